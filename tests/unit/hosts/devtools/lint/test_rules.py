"""Each rule: the code that it reports, and the code that it does not."""

import re
from pathlib import Path
from textwrap import indent

import pytest

from holdfast.hosts.devtools.lint.rules import RULES
from tests.unit.hosts.devtools.lint.conftest import Lint, codes

DESK = """from holdfast import update

class Desk:
    @update
    def add(self) -> None:
        self.count += 1
"""

# Bodies of workflows, each with one finding of the code; what is before a line of --- is above the workflow.
FLAGGED: dict[str, tuple[str, ...]] = {
    "HF001": (
        "import time\n---\ntime.time()",
        "import time as clock\n---\nbegan = clock.monotonic()\nprint(began)",
        "from time import perf_counter as tick\n---\nprint(tick())",
        "import datetime as dt\n---\nprint(dt.datetime.now(dt.UTC))",
        "from datetime import datetime\n---\nprint(datetime.utcnow())",
        "from datetime import date\n---\nprint(date.today())",
        "import datetime\n---\nprint([datetime.datetime.now() for _ in range(3)])",
        "import time\nread = time.time\n---\nprint(read())",
        "import time\n---\nread = time.time\nprint(read())",
        "import time\n---\nprint(time.strftime('%Y'))",
        "---\nfrom time import time\nprint(time())",
        "from time import *\n---\nprint(monotonic())",
        "import time\n---\nasync def inner() -> float:\n    return time.time()\nawait inner()",
        "import time\n---\nprint(sorted([1], key=lambda one: time.time()))",
        "import time\n---\nasync for _ in approval:\n    time.time()",
        (
            "from dataclasses import dataclass, field\nfrom datetime import datetime\n\n@dataclass\nclass Note:\n"
            "    at: datetime = field(default_factory=datetime.now)\n---\nprint(Note())"
        ),
        (
            "from dataclasses import dataclass, field\nimport time\n\n@dataclass\nclass Note:\n"
            "    at: float = field(default_factory=lambda: time.time())\n---\nprint(Note())"
        ),
    ),
    "HF002": ("import time\n---\ntime.sleep(5)",),
    "HF003": (
        "import random\n---\nprint(random.random())",
        "from random import choice\n---\nprint(choice([1, 2]))",
        "import random\n---\nprint(random.Random())",
        "import uuid\n---\nprint(uuid.uuid4())",
        "from uuid import uuid1 as new\n---\nprint(new())",
        "import secrets\n---\nprint(secrets.token_hex())",
        "import os\n---\nprint(os.urandom(8))",
        "import numpy as np\n---\nprint(np.random.normal())",
        (
            "from dataclasses import dataclass, field\nfrom uuid import UUID, uuid4\n\n@dataclass\nclass Note:\n"
            "    id: UUID = field(default_factory=uuid4)\n---\nprint(Note())"
        ),
    ),
    "HF004": (
        "import os\n---\nprint(os.environ['SHOP'])",
        "import os\n---\nprint(os.environ.get('SHOP'))",
        "from os import environ\n---\nprint('SHOP' in environ)",
        "from os import getenv\n---\nprint(getenv('SHOP'))",
        "import socket\n---\nprint(socket.gethostname())",
        "import sys\n---\nprint(sys.argv)",
    ),
    "HF005": (
        "---\nwith open('x') as file:\n    print(file.read())",
        "from pathlib import Path\n---\nprint(Path('x').read_text())",
        "from pathlib import Path\n---\nplace = Path('x') / 'y'\nprint(place.parent.exists())",
        "from pathlib import Path\nHERE = Path('x')\n---\nprint((HERE / 'y').read_bytes())",
        "import requests\n---\nprint(requests.get('http://shop').text)",
        (
            "import httpx\n---\nasync with httpx.AsyncClient() as client:\n"
            "    print(await client.get('http://shop'))"
        ),
        "import httpx\nclient = httpx.AsyncClient()\n---\nprint(await client.get('http://shop'))",
        "from urllib.request import urlopen\n---\nurlopen('http://shop')",
        "import subprocess\n---\nsubprocess.run(['true'])",
        (
            "import sqlalchemy as sa\nengine = sa.create_engine('sqlite://')\n---\nwith engine.begin() as connection:\n"
            "    print(connection)"
        ),
        (
            "from sqlalchemy.orm import Session\n---\ndef load(session: Session) -> None:\n"
            "    session.get(int, 1)\nload(None)"
        ),
        "import os\n---\nprint(os.path.exists('x'))",
        "---\nawait asyncio.open_connection('shop', 80)",
        "---\nprint(input())",
    ),
    "HF006": (
        "---\nawait asyncio.to_thread(print)",
        "---\nawait asyncio.get_running_loop().run_in_executor(None, print)",
        "---\nloop = asyncio.get_running_loop()\nawait loop.run_in_executor(None, print)",
        "import threading\n---\nthreading.Thread(target=print).start()",
        (
            "from concurrent.futures import ThreadPoolExecutor\n---\n"
            "with ThreadPoolExecutor() as pool:\n    pool.submit(print)"
        ),
        "from multiprocessing import Pool\n---\nPool()",
        "import time\n---\nawait asyncio.to_thread(time.sleep, 1)",
        "---\nasyncio.run(charge(1))",
    ),
    "HF007": (
        "SEEN = 0\n---\nglobal SEEN\nSEEN = 1",
        "SEEN = 0\n\ndef see() -> None:\n    global SEEN\n    SEEN += 1\n---\nprint(SEEN)",
        "CACHE: dict[int, int] = {}\n---\nCACHE[order] = 1",
        "CACHE = {}\n---\nCACHE.update({1: 2})",
        "CACHE = {}\n\n@step\ndef fill() -> None:\n    CACHE['x'] = 1\n---\nprint(CACHE['x'])",
        "from collections import defaultdict\nCACHE = defaultdict(list)\n---\nCACHE.pop(1)",
        "CACHE = [1]\n---\ndel CACHE[0]",
        "class State:\n    count = 0\n---\nState.count += 1",
        "LOCK = asyncio.Lock()\n---\nasync with LOCK:\n    pass",
        "import itertools\nNUMBERS = itertools.count()\n---\nprint(next(NUMBERS))",
    ),
    "HF008": (
        "---\nfor one in {'a', 'b'}:\n    print(one)",
        "---\nnames = set('ab')\nprint([one for one in names])",
        "---\nnames: set[str] = set()\nprint(list(names))",
        "---\none, two = {'a', 'b'}\nprint(one, two)",
        "---\na, b = {'x'}, ['y']\nfor one in a | set(b):\n    print(one)",
        "---\nold, new = {'x': 1}, {'y': 1}\nfor one in new.keys() - old.keys():\n    print(one)",
        "---\nnames = frozenset('ab')\nprint(','.join(names))",
        "---\nnames = {'a', 'b'}\nprint(names.pop())",
        "---\nfor one in asyncio.as_completed({charge(1), charge(2)}):\n    await one",
        "---\nnames = {1, 2}\nprint(await asyncio.gather(*(charge(one) for one in names)))",
        "@step\ndef tags() -> set[str]: ...\n---\nfor tag in await tags():\n    print(tag)",
        (
            "from dataclasses import dataclass\n\n@dataclass\nclass Order:\n    tags: set[str]\n---\n"
            "def show(given: Order) -> None:\n    print(list(given.tags))\nshow(None)"
        ),
        "---\nnames = {'a', 'b'}\nprint(f'{names}')",
        "---\nnames = {'a', 'b'}\nprint([*names])",
    ),
    "HF009": ("---\nprint(hash('x'))", "---\nprint(sorted([object()], key=id))"),
    "HF010": (
        "---\ncharge(order)",
        "---\ncharge.options(timeout=None)(order)",
        "---\nif order:\n    charge(order)",
        "---\nlater = charge(order)",
        "---\nasyncio.sleep(5)",
        "---\nholdfast.sleep(None)",
        "---\nholdfast.side_effect(print)",
        "---\nchild = await holdfast.start_child(other(order))\nchild.result()",
        "---\napproval.receive()",
        "---\nasync def inner() -> None: ...\ninner()",
        "async def helper() -> None: ...\n---\nhelper()",
        "---\n[charge(one) for one in range(3)]",
        "---\norder and charge(order)",
        "---\nreturn charge(order)",
        "---\nif order:\n    return charge.options(timeout=None)(order)",
        "---\nreturn [charge(one) for one in range(3)]",
        "---\nreturn other(order)",
        "---\nreturn holdfast.start_child(other(order))",
        "---\nreturn holdfast.continue_as_new(other(order))",
        "async def helper() -> None: ...\n---\nreturn helper()",
    ),
    "HF011": (
        "---\nasyncio.create_task(charge(order))",
        "---\ntask = asyncio.create_task(charge(order))",
        "---\nasyncio.ensure_future(charge(order))",
        "---\nasyncio.gather(charge(1), charge(2))",
    ),
    "HF012": ("---\nother(order)", "---\napproval(5)", "---\nlater = other(order)"),
    "HF013": (
        "---\ntry:\n    await charge(order)\nexcept:\n    pass",
        "---\ntry:\n    await charge(order)\nexcept BaseException as error:\n    print(error)",
        "---\ntry:\n    await charge(order)\nexcept (ValueError, asyncio.CancelledError):\n    return",
        (
            "from asyncio import CancelledError as Stop\n---\ntry:\n    await charge(order)\n"
            "except Stop:\n    return"
        ),
        (
            "from contextlib import suppress\n---\nwith suppress(asyncio.CancelledError):\n"
            "    await charge(order)"
        ),
        "---\ntry:\n    await charge(order)\nfinally:\n    return",
        (
            "---\nwhile True:\n    try:\n        async with asyncio.timeout(5):\n"
            "            pass\n    finally:\n        break"
        ),
    ),
    "HF014": ("import sys\n---\nsys.exit(1)", "---\nexit()", "import os\n---\nos._exit(1)"),
    "HF015": (
        (
            "from holdfast import query\n\nclass Desk:\n    @query\n    def add(self) -> int:\n"
            "        self.count += 1\n        return self.count\n---\npass"
        ),
        (
            "import holdfast\n\nclass Desk:\n    @holdfast.query\n    def add(self) -> int:\n"
            "        self.seen['x'] = 1\n        return 1\n---\npass"
        ),
        (
            "from holdfast import query\n\nclass Desk:\n    @query\n    def take(self) -> int:\n"
            "        return self.stops[0].names.pop()\n---\npass"
        ),
        (
            "from holdfast import query\n\nclass Desk:\n    @query\n    def drop(self) -> None:\n"
            "        del self.stops[0]\n---\npass"
        ),
        (
            "from holdfast import update\n\nclass Desk:\n    @update\n    def add(self, by: int) -> None: ...\n\n"
            "    @add.validator\n    def may_add(self, by: int) -> None:\n        self.asked.append(by)\n---\npass"
        ),
    ),
    "HF016": (
        f"{DESK}---\ndesk = holdfast.expose(Desk())\nreturn await holdfast.continue_as_new(body(desk.count))",
        f"{DESK}---\ndesk = Desk()\nholdfast.expose(desk)\nreturn await holdfast.continue_as_new(body([desk.count]))",
    ),
    "HF100": ("---\nprint(1)  # noqa: HF999",),
}
# Bodies of workflows without any finding.
CLEAN: dict[str, tuple[str, ...]] = {
    "HF001": (
        "---\nprint(holdfast.now(), asyncio.get_running_loop().time())",
        "from datetime import datetime, timedelta\n---\nprint(datetime(2026, 1, 1) + timedelta(days=1))",
        "import time\n---\nprint(time.strftime('%Y', (2026,)), time.gmtime(0))",
        "import time\n---\ntime: float = order.time\nprint(time)",
        "import time\n---\nprint([time.time() for time in order])",
        "import time\n---\nprint(holdfast.side_effect(lambda: time.time()))",
        "import time\n---\nprint(holdfast.side_effect(time.time))",
        "import time\n\n@step\ndef clock() -> float:\n    return time.time()\n---\nprint(await clock())",
        "import time\n\ndef elsewhere() -> float:\n    return time.time()\n---\npass",
        "import time\n---\nmoment: 'time.time' = None\nprint(moment)",
        (
            "from dataclasses import dataclass, field\nfrom datetime import datetime\n\n@dataclass\nclass Note:\n"
            "    at: datetime = field(default_factory=datetime.now)\n---\nprint(Note(at=holdfast.now()))"
        ),
    ),
    "HF002": ("---\nawait asyncio.sleep(5)",),
    "HF003": (
        "---\nprint(holdfast.uuid4())",
        "import secrets\n---\nprint(secrets.compare_digest('a', 'b'))",
        "import random\n---\nrandom_ = random.Random(order)\nprint(random_.random())",
        "from uuid import UUID, uuid5\n---\nprint(uuid5(UUID(int=1), 'x'))",
    ),
    "HF004": ("import os\n---\nprint(os.sep, os.path.join('a', 'b'))",),
    "HF005": (
        "from pathlib import Path\n---\nprint(Path('x') / 'y', Path('x').name, Path('x').with_suffix('.z'))",
        "import httpx\n---\ntry:\n    await charge(order)\nexcept httpx.HTTPError:\n    pass",
        "---\nopen = order\nprint(open(1))",
        "import sqlalchemy as sa\n---\nprint(sa.text('select 1'))",
        "import io\n---\nprint(io.StringIO('x').read())",
    ),
    "HF006": ("import threading\n---\nlock: threading.Lock = None\nprint(lock)",),
    "HF007": (
        "PRICES = {'a': 1}\n---\nprint(PRICES['a'])",
        (
            "HANDLERS = {}\n\ndef handles(fn):\n    HANDLERS[fn.__name__] = fn\n    return fn\n"
            "---\nprint(HANDLERS)"
        ),
        "CACHE = {}\nCACHE['x'] = 1\n---\nprint(CACHE)",
        "CACHE = {}\n\ndef local() -> None:\n    CACHE = {}\n    CACHE['x'] = 1\n---\nprint(CACHE)",
        "---\nfound = {}\nfound['x'] = 1\nfound.update({})",
        "---\nlock = asyncio.Lock()\nasync with lock:\n    pass",
        (
            "class State:\n    def __init__(self) -> None:\n        self.count = 0\n---\n"
            "state = State()\nstate.count += 1"
        ),
    ),
    "HF008": (
        "---\nnames = {'a', 'b'}\nprint(sorted(names), len(names), 'a' in names)",
        "---\nprint(sum(one for one in {1, 2}), max({1, 2}), {one + 1 for one in {1, 2}})",
        (
            "---\ntasks = {asyncio.create_task(charge(one)) for one in range(3)}\n"
            "for task in tasks:\n    task.cancel()"
        ),
        (
            "---\ntasks = set()\nfor one in range(3):\n    tasks.add(asyncio.create_task(charge(one)))\n"
            "await asyncio.gather(*tasks)"
        ),
        "---\ntasks: set[asyncio.Task[int]] = set()\nprint([task.result() for task in tasks])",
        (
            "---\ndone, pending = await asyncio.wait({asyncio.create_task(charge(1))})\nfor task in pending:\n"
            "    task.cancel()\nprint(done)"
        ),
        (
            "---\npending = {asyncio.create_task(charge(1))}\nwhile pending:\n"
            "    done, pending = await asyncio.wait(pending)\n    for task in done:\n        print(task.result())"
        ),
        "---\nfor one in {'a': 1}.keys():\n    print(one)",
        "---\nprint([1].pop(), 1 | 2)",
    ),
    "HF009": (
        "---\nid = order.id\nprint(id)",
        "---\ndef show(id: str) -> str:\n    return id\nprint(show('x'))",
    ),
    "HF010": (
        "---\nawait charge(order)",
        "---\nlater = charge(order)\nawait later",
        "---\nawait asyncio.gather(charge(1), charge(2))",
        "---\nasync with asyncio.TaskGroup() as group:\n    group.create_task(charge(1))",
        "---\nasync def inner():\n    yield 1\nasync for one in inner():\n    print(one)",
        "---\ndef inner() -> None: ...\ninner()",
        "---\nreturn await charge(order)",
        "---\ndef later(one: int):\n    return charge(one)\nawait later(1)",
        "---\nreturn await asyncio.gather(*(charge(one) for one in range(3)))",
        "---\nreturn [await charge(one) for one in range(3)]",
        "def later(one: int):\n    return charge(one)\n---\nreturn await later(1)",
    ),
    "HF011": (
        "---\ntask = asyncio.create_task(charge(1))\nawait task",
        "---\n_task = asyncio.create_task(charge(1))",
    ),
    "HF012": ("---\nawait other(order)", "---\nreturn await holdfast.continue_as_new(other(order))"),
    "HF013": (
        "---\ntry:\n    await charge(order)\nexcept Exception:\n    pass",
        "---\ntry:\n    await charge(order)\nexcept BaseException:\n    await charge(2)\n    raise",
        (
            "---\ntry:\n    await charge(order)\nexcept asyncio.CancelledError:\n    raise\n"
            "except BaseException:\n    pass"
        ),
        "---\ntry:\n    print(1)\nexcept:\n    pass",
        (
            "---\ntask = asyncio.create_task(charge(1))\ntask.cancel()\ntry:\n    await task\n"
            "except asyncio.CancelledError:\n    pass"
        ),
        "---\ntry:\n    await charge(order)\nfinally:\n    for one in range(3):\n        break",
        "from contextlib import suppress\n---\nwith suppress(ValueError):\n    await charge(order)",
    ),
    "HF014": ("---\nraise ValueError('no')",),
    "HF015": (
        (
            "from holdfast import query\n\nclass Desk:\n    @query\n    def add(self) -> int:\n"
            "        stops = list(self.stops)\n        stops.append(1)\n        return len(stops)\n---\npass"
        ),
        (
            "from holdfast import query\n\nclass Desk:\n    @query\n    def add(self) -> int:\n"
            "        return sorted(self.stops).pop() + self.count()\n---\npass"
        ),
        (
            "from holdfast import update\n\nclass Desk:\n    @update\n    def add(self) -> None:\n"
            "        self.count += 1\n        self.stops.append(1)\n---\npass"
        ),
        "class Desk:\n    def add(self) -> None:\n        self.count += 1\n---\nDesk().add()",
    ),
    "HF016": (
        f"{DESK}---\ndesk = holdfast.expose(Desk())\nreturn await holdfast.continue_as_new(lambda: body(desk.count))",
        f"{DESK}---\ndesk = holdfast.expose(Desk())\nreturn await holdfast.continue_as_new(body(order + 1))",
        f"{DESK}---\ndesk = Desk()\nreturn await holdfast.continue_as_new(body(desk.count))",
        (
            f"{DESK.replace('update', 'query').replace('self.count += 1', 'return self.count')}---\n"
            "desk = holdfast.expose(Desk())\nreturn await holdfast.continue_as_new(body(desk.count))"
        ),
    ),
    "HF100": ("---\nprint(1)  # noqa: F999, HF001",),
}


PAGE = Path(__file__).parents[5] / "docs" / "reference" / "lint.md"
BLOCKS = re.findall(r"^```py\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
ON_THE_PAGE = """
import asyncio, holdfast, logging, os, random, time, uuid, zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from holdfast import step, workflow

@step
async def charge(order): ...
mail = remind = greet = charge

@workflow
async def fulfil_(order): ...
"""


@pytest.mark.parametrize(
    ("code", "text"), [(code, text) for code, texts in FLAGGED.items() for text in texts]
)
def test_what_a_replay_could_not_repeat_is_found(lint_body: Lint, code: str, text: str) -> None:
    above, _, body = text.rpartition("---\n")
    report = lint_body(body, above)

    assert codes(report) == [code]
    assert RULES[code].advice in report.findings[0].message


@pytest.mark.parametrize(("code", "text"), [(code, text) for code, texts in CLEAN.items() for text in texts])
def test_what_is_alike_and_harmless_is_left_alone(lint_body: Lint, code: str, text: str) -> None:
    above, _, body = text.rpartition("---\n")

    assert [finding.message for finding in lint_body(body, above).findings] == [], code


def test_every_code_is_tested_both_ways_and_described() -> None:
    sections = re.findall(r"^## (HF\d+)\n\n\*\*(.+)\.\*\*", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    certain = {code for code, rule in RULES.items() if not rule.is_warning}  # warnings: test_warnings.py

    assert FLAGGED.keys() == CLEAN.keys() == certain
    assert sections == [(rule.code, rule.title) for rule in RULES.values()]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: re.findall(r"HF\d+", block)[0])
def test_in_the_examples_of_the_page_that_is_found_which_they_say(lint_program: Lint, block: str) -> None:
    inside = block if "@workflow" in block else f"@workflow\nasync def flow(order):\n{indent(block, '    ')}"
    report = lint_program({"flows.py": f"{ON_THE_PAGE}{inside.replace('fulfil(', 'fulfil_(')}"})
    lines = (ON_THE_PAGE + inside).splitlines()
    said = [
        (number, code[1]) for number, line in enumerate(lines, 1) if (code := re.search(r"# (HF\d+)", line))
    ]

    found = sorted((*report.findings, *report.warnings))
    assert [(one.line, one.code) for one in found] == said
