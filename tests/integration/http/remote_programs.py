"""The example workers as processes, a proxy that cuts answers off, and an engine whose steps and stages they run."""

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import attrs
from typing_extensions import override

from holdfast import Engine, Pipeline, Retry, stage, step, workflow
from tests.sizes import sized

EXAMPLES: Final = Path(__file__).resolve().parents[3] / "docs/examples/remote_workers"
KINDS: Final = ("sh", "mjs", "py")
LEASE_SECONDS: Final = 10


RETRY: Final = Retry(attempts=5, wait=0, give_up_on=(ValueError,))
"""A body that is lost is started again, one that fails is not: workers report the failure as this class.

Attempts are left over for leases that expire because the machine stands still for a while.
"""


@attrs.frozen
class Order:
    """The input of the stages: the same as JSON as the arguments of the steps."""

    text: str


def _shout(kind: str) -> Any:
    @step(name=f"shout_{kind}", queue=f"queue_{kind}", retry=RETRY)
    async def shout(text: str) -> str:
        raise AssertionError("only remote workers run it")

    return shout


def _louder(kind: str) -> Pipeline[Order, str]:
    @stage(name=f"shout_{kind}", queue=f"queue_{kind}", retry=RETRY, remote=True)
    def shout(order: Order) -> str: ...  # type: ignore[empty-body]

    return Pipeline(f"louder_{kind}", input=Order).pipe(shout)


STEPS: Final = {kind: _shout(kind) for kind in KINDS}
LOUDER: Final = {kind: _louder(kind) for kind in KINDS}
"""For each kind of worker a pipeline with a remote stage."""


@workflow
async def loud(kind: str, text: str) -> str:
    result: str = await STEPS[kind](text)
    return result


def opened(url: str) -> Engine:
    """Return an engine for the function and its steps."""
    return Engine.open(url, workflows=[loud, *LOUDER.values()], steps=STEPS.values())


SHOP: Final = """
import os
from tests.integration.http.remote_programs import opened

engine = opened(os.environ["SHOP_URL"])
"""

_NOTE_MJS: Final = """import fs from 'fs';
const note = (task) => {
  fs.appendFileSync(process.env.EFFECTS, JSON.stringify(task) + '\\n');
  if (task.input.text.startsWith('no')) throw Object.assign(new Error('no'), { name: 'ValueError' });
};
const pause = 1000 * (process.env.PAUSE ?? 0);
const url"""
_NOTE_SH: Final = """() {
  tee -a "$EFFECTS" | { sleep "$PAUSE"; cat; } |
    jq -ce 'if .input.text | startswith("no") then error("no") else {output: (.input.text | ascii_upcase)} end'"""
_IMPORTS_PY: Final = """import json
import time

import attrs

from holdfast import StageContext, stage, step, step_context
from holdfast.hosts.remote import connection, worker
"""
_NOTE_PY: Final = """connection._PAUSE_FIRST, connection._PAUSE_MAX, worker._LAST_TRIES = 0.02, 0.05, 1_000


def noted(context, text):
    line = {"idempotency_key": context.idempotency_key, "attempt": context.attempt}
    with open(os.environ["EFFECTS"], "a") as file:
        file.write(json.dumps(line) + "\\n")
    time.sleep(float(os.environ["PAUSE"]))
    if text.startswith("no"):
        raise ValueError("no")
    return text.upper()


@attrs.frozen
class Order:
    text: str


@stage(name="shout_py", queue="queue_py")
def shout_order(context: StageContext, order: Order) -> str:
    return noted(context, order.text)


"""
_CHANGES: Final = {
    "sh": (
        (
            '"queues":["queue_sh"]',
            f'"stages":["shout_sh"],"queues":["queue_sh"],"lease_seconds":{LEASE_SECONDS}',
        ),
        ("sleep 10;", "sleep 1;"),
        ('{"code":"shell"', '{"code":"shell","type":"ValueError"'),
        ("do sleep 1; done", "do sleep 0.02; done"),
        ("() { jq -ce '{output: (.input.text | ascii_upcase)}'", _NOTE_SH),
    ),
    "mjs": (
        ("slots = 8", "slots = Number(process.env.SLOTS ?? 8)"),
        (
            "pause = 100; ; pause = Math.min(pause * 2, 5_000)",
            "pause = 20; ; pause = Math.min(pause * 2, 50)",
        ),
        ('queues: ["queue_mjs"]', f'queues: ["queue_mjs"], lease_seconds: {LEASE_SECONDS}'),
        ("async (task) => task", "async (task) => (note(task), await sleep(pause), task)"),
        ("({})", "({ shout_mjs: (task, stop) => steps.shout_mjs(task, stop) })"),
        ("const url", _NOTE_MJS),
    ),
    "py": (
        ("steps=[shout_py]", f"steps=[shout_py], stages=[shout_order], lease={LEASE_SECONDS}"),
        ("    return text.upper()", "    return noted(step_context(), text)"),
        ("from holdfast import step\n", _IMPORTS_PY),
        ("@step(", f"{_NOTE_PY}@step("),
    ),
}
"""What differs from the examples: a short lease, quick repetitions, a note of each start of a body, a body that takes a
while and fails for some texts, and a stage beside the step."""


def program(folder: Path, kind: str) -> list[str]:
    """Write an example with these changes, and return its command line."""
    text = (EXAMPLES / f"shout.{kind}").read_text()
    text = text.replace("shout", f"shout_{kind}").replace("tools", f"queue_{kind}")
    for old, new in _CHANGES[kind]:
        assert old in text, old
        text = text.replace(old, new, 1)
    file = folder / f"worker.{kind}"
    file.write_text(text)
    return [{"sh": "bash", "mjs": "node", "py": sys.executable}[kind], str(file)]


KEY_FILE: Final = "key"
"""The file in the folder of a test with the API key of its workers."""


@contextmanager
def working(
    folder: Path, url: str, kind: str, *, pause: float = 0.0, slots: int = 8
) -> Generator[subprocess.Popen[bytes]]:
    """Run an example as a process group, which is killed at the end of the block."""
    variables = {
        "HOLDFAST_SERVER": url,
        "HOLDFAST_KEY": (folder / KEY_FILE).read_text(),
        "EFFECTS": str(folder / f"effects.{kind}"),
        "PAUSE": str(pause),
        "SLOTS": str(slots),
    }
    with (folder / f"worker.{kind}.log").open("ab") as log:
        process = subprocess.Popen(
            program(folder, kind),
            env={**os.environ, **variables},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            send(process, 9)
            process.wait()


def send(process: subprocess.Popen[bytes], signal: int) -> None:
    """Send a signal to a program and all that it has started."""
    try:
        os.killpg(process.pid, signal)
    except ProcessLookupError:
        return


def effects(folder: Path, kind: str) -> list[tuple[str, int]]:
    """Return the starts of bodies: the key of the call and the attempt, in their order."""
    path = folder / f"effects.{kind}"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(one["idempotency_key"], one["attempt"]) for one in map(json.loads, lines)]


CUT_STEP: Final = sized(7, 1)
"""How many bytes there are between two places where answers are cut off: in full, every byte."""
WAYS_ONCE: Final = ("claim", "complete", "fail")
"""Requests that are each cut off once. The others are the same at each repetition, and cut off in a row."""


class Cuts:
    """Cuts the answers of some requests off: each answer of a kind `CUT_STEP` bytes later than the one before.

    The kinds are `workers`, `claim`, `heartbeat`, `complete`, `fail`, `tasks:settle` and `leave`.
    """

    def __init__(self, *kinds: str) -> None:
        self._seen: set[tuple[str, str]] = set()
        self._lock = threading.Lock()
        self.fired: dict[str, list[int]] = {kind: [] for kind in kinds}
        """After how many bytes answers were really cut off, by kind."""
        self._lengths: dict[str, Counter[int]] = {kind: Counter() for kind in kinds}

    def offset(self, path: str, key: str, length: int) -> int | None:
        """Return after how many bytes the answer is cut off; None for the whole answer."""
        last = path.rpartition("/")[2]
        kind = last if "/workers/" not in path or last in {"claim", "heartbeat"} else "leave"
        with self._lock:
            if kind not in self.fired:
                return None
            self._lengths[kind][length] += 1
            fired = self.fired[kind]
            wanted = CUT_STEP * len(fired)
            if wanted >= length or (kind in WAYS_ONCE and (path, key) in self._seen):
                return None
            self._seen.add((path, key))
            fired.append(wanted)
            return wanted

    def length(self, kind: str) -> int:
        """Return the length of the longest answers of a kind, of those that are at least a tenth of them."""
        with self._lock:
            found = self._lengths[kind]
            return max((one for one, times in found.items() if 10 * times >= found.total()), default=0)

    def missing(self, *kinds: str) -> int:
        """Return how many more answers must be cut off to reach their ends, in the kind with the most.

        Of a kind that had no answer yet, one is missing.
        """
        return max(-(-max(self.length(kind), 1) // CUT_STEP) - len(self.fired[kind]) for kind in kinds)


@contextmanager
def proxy(ports: Sequence[int], cut: Callable[[str, str, int], int | None]) -> Generator[str]:
    """Forward requests to the first of these ports that answers, and cut answers off."""

    class Handler(BaseHTTPRequestHandler):
        @override
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            self.close_connection = True
            answer = self._forwarded(body)
            if answer is not None:
                end = cut(self.path, self.headers.get("idempotency-key", ""), len(answer))
                self.wfile.write(answer[:end])

        do_GET = do_DELETE = do_POST  # noqa: N815  # the names are those of the base class

        def _forwarded(self, body: bytes) -> bytes | None:
            for port in ports:
                connection = HTTPConnection("127.0.0.1", port, timeout=70)
                try:
                    connection.request(self.command, self.path, body, dict(self.headers))
                    response = connection.getresponse()
                    data = response.read()
                except ConnectionRefusedError:
                    continue
                except (OSError, HTTPException):
                    return None
                finally:
                    connection.close()
                head = f"HTTP/1.1 {response.status} X\r\ncontent-length: {len(data)}\r\nconnection: close\r\n\r\n"
                return head.encode() + data
            return None

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 100

        @override
        def handle_error(self, request: object, client_address: object) -> None:
            """A client may have left."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
