"""Import rules of the folders hold, and their checker finds violations."""

import pytest

from tools.purity import check, check_repository, wiring

CLEAN = """
from datetime import UTC, datetime, timedelta
import attrs
from holdfast.ports.records.run import (Run)

def due(now: datetime) -> datetime:
    return max(now, datetime.fromtimestamp(0, UTC)) + timedelta(seconds=1)
"""


@pytest.mark.repository
def test_the_repository_keeps_its_rules() -> None:
    assert [str(violation) for violation in check_repository()] == []


@pytest.mark.slow
def test_one_module_of_the_hosts_turns_urls_into_adapters() -> None:
    assert len(set(wiring())) <= 1, wiring()


def test_clean_code_is_left_alone() -> None:
    assert check(CLEAN, "kernel/rules/claims.py") == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("kernel/functions/loop.py", "import asyncio"),
        ("kernel/authoring/steps.py", "async def run() -> None:\n    await other()"),
        ("kernel/pipelines/plan.py", "from holdfast.kernel.state import State"),
        ("ports/records/run.py", "from holdfast.ports.json import JSON"),
        (
            "adapters/sql/store.py",
            "import os, sqlalchemy\nfrom holdfast.adapters.sql.schema.tables import runs",
        ),
        ("adapters/sql/store.py", "from holdfast.adapters.sql import tables"),
        ("adapters/files.py", "from datetime import datetime\nstamp = datetime.now()"),
        ("hosts/open.py", "from holdfast.adapters.sql.store import Store\nfrom holdfast.kernel import plan"),
        (
            "testing/fakes.py",
            "from holdfast.testing.clock import FakeClock\nfrom holdfast.hosts import process",
        ),
        ("hosts/worker/worker.py", "import logging, time\nprint(time.time())"),
        ("kernel/values/scalars.py", "from uuid import UUID"),
        ("kernel/pipelines/plan.py", "import re\nfind = re.compile('x')\nself.eval(x.exec)"),
        ("kernel/pipelines/plan.py", "from holdfast.ports.persistence import open\nopen()"),
        ("tests/unit/test_x.py", "import pickle\nfrom holdfast.testing import fakes\neval('1')"),
        ("tests/unit/test_x.py", "from tests.postgres import PrivatePostgres"),
    ],
)
def test_what_a_folder_may_do(path: str, source: str) -> None:
    assert check(source, path) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("kernel/pipelines/plan.py", "async def run() -> None: ..."),
        ("kernel/pipelines/plan.py", "x = lambda: (await y)"),
        ("kernel/pipelines/plan.py", "x = [y async for y in z]"),
        ("kernel/pipelines/plan.py", "async def f():\n    async with x: ..."),
        *(
            ("kernel/pipelines/plan.py", f"import {module}")
            for module in (
                "threading",
                "logging",
                "os",
                "os.path",
                "time",
                "random",
                "uuid",
                "socket",
                "asyncio",
            )
        ),
        ("kernel/pipelines/plan.py", "import anyio"),
        ("kernel/pipelines/plan.py", "import sqlalchemy.exc"),
        ("kernel/pipelines/plan.py", "import psycopg"),
        ("kernel/values/models.py", "import pydantic"),
        ("kernel/pipelines/plan.py", "from os import path"),
        ("kernel/pipelines/plan.py", "def f() -> None:\n    from uuid import uuid4"),
        ("kernel/pipelines/plan.py", "if TYPE_CHECKING:\n    from sqlalchemy import Table"),
        ("kernel/pipelines/plan.py", "from datetime import datetime\nx = datetime.now(UTC)"),
        ("kernel/pipelines/plan.py", "from datetime import datetime as dt\nx = dt.utcnow()"),
        ("kernel/pipelines/plan.py", "import datetime\nx = datetime.datetime.today()"),
        ("kernel/pipelines/plan.py", "import datetime as d\nx = d.date.today()"),
        (
            "kernel/pipelines/plan.py",
            "import attrs\nfrom datetime import datetime\nx = attrs.field(factory=datetime.now)",
        ),
        ("kernel/pipelines/plan.py", "open('x')"),
        ("kernel/pipelines/plan.py", "print('x')"),
        ("kernel/pipelines/plan.py", "from holdfast.adapters.sql import store"),
        ("kernel/pipelines/plan.py", "from holdfast import adapters"),
        ("kernel/pipelines/plan.py", "import holdfast"),
        ("kernel/pipelines/plan.py", "from holdfast.hosts.process import Worker"),
        ("kernel/pipelines/plan.py", "from holdfast.testing import fakes"),
        ("kernel/pipelines/plan.py", "from ports import records"),
        ("kernel/authoring/steps.py", "import time"),
        ("ports/records/run.py", "from holdfast.kernel.pipelines.plan import Plan"),
        ("ports/records/run.py", "import asyncio"),
        ("adapters/sql/store.py", "from holdfast.kernel.pipelines.plan import Plan"),
        ("adapters/sql/store.py", "from holdfast.hosts import open"),
        ("adapters/sql/store.py", "from holdfast.testing.fakes import Fake"),
        ("adapters/sql/store.py", "from holdfast.adapters.files import Files"),
        ("adapters/sql/store.py", "from holdfast.adapters import files"),
        ("adapters/sql/store.py", "from holdfast.adapters.sqlite import x"),
        ("adapters/files.py", "from holdfast.adapters.filesystem import x"),
        ("hosts/open.py", "from holdfast.testing import fakes"),
        ("hosts/open.py", "from holdfast import testing"),
        ("hosts/open.py", "from tests.postgres import PrivatePostgres"),
        ("testing/fakes.py", "from tests.postgres import PrivatePostgres"),
        ("testing/fakes.py", "from tools import purity"),
        ("hosts/open.py", "import pickle"),
        ("adapters/sql/store.py", "from pickle import loads"),
        ("hosts/open.py", "import yaml\nyaml.load(x)"),
        ("hosts/open.py", "from yaml import load\nload(x)"),
        ("hosts/open.py", "eval('1')"),
        ("testing/fakes.py", "exec('1')"),
        ("tests/unit/test_x.py", "import kernel.plan"),
        ("docs/examples/x/demo.py", "from adapters import sql"),
    ],
)
def test_a_planted_violation_is_found(path: str, source: str) -> None:
    assert check(source, path) != []


def test_a_violation_says_where_and_why() -> None:
    (violation,) = check("import re\nimport time", "kernel/pipelines/plan.py")
    assert str(violation).startswith("kernel/pipelines/plan.py:2: kernel may not import time")
