"""A fork server: a process that has imported everything and forks the processes that tests kill.

A Python that imports Holdfast takes a second of processor time to start; a fork takes milliseconds. So a test can kill
twenty of them. A forked process runs one thread and has opened nothing yet.

It answers each line of JSON on standard input with one: `{"live": plan}` forks a process that carries out the plan
and returns its id; `{"look": id}` returns its exit code, or null; `{}` at the start means that it is ready. When its
input ends, as when the tests are killed, it kills all remaining processes and ends.
"""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, NoReturn, Self

import attrs

from tests.chaos.faults import Fault

ROOT: Final = Path(__file__).resolve().parent.parent.parent
LOOK_SECONDS: Final = 0.01
_LOADED: Final = (
    "alembic.command",
    "alembic.config",
    "anyio._backends._asyncio",
    "holdfast.adapters.sql.postgresql.listen_notify",
    "holdfast.adapters.sql.persistence",
    "holdfast.adapters.sql.postgresql.connection",
    "holdfast.adapters.sql.schema.migrator",
    "tests.chaos.process_roles",
)
"""The modules that a worker imports, the lazy ones included: these take as long as all the others."""


class ForkServer:
    """The client of the fork server, in the process of the tests."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.fork_server"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *_python_path()])},
        )
        self._lock = threading.Lock()
        self._ask({})

    def fork(self, plan: Mapping[str, object]) -> int:
        """Fork a process that carries out a plan, and return its pid."""
        return int(self._ask({"live": dict(plan)}))

    def look(self, pid: int) -> int | None:
        """Return a process's exit code, minus the signal if one killed it; None while it runs."""
        found = self._ask({"look": pid})
        return None if found is None else int(found)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def _ask(self, question: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())


@attrs.define
class Process:
    """A process that the fork server forked. Its pid is not reused before its exit code was read."""

    fork_server: ForkServer
    pid: int
    name: str
    folder: Path
    _code: int | None = None

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        if self._code is None:
            self._code = self.fork_server.look(self.pid)
        return self._code

    @property
    def log(self) -> str:
        """Its standard error so far."""
        return (self.folder / f"{self.name}.log").read_text(errors="replace")

    @property
    def said(self) -> dict[str, Any]:
        """The data that it wrote at a normal exit, such as a worker's statistics."""
        found: dict[str, Any] = json.loads((self.folder / f"{self.name}.said").read_text())
        return found

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it runs."""
        if self.code is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it at once (SIGKILL)."""
        self.signal(signal.SIGKILL)

    def wait(self, seconds: float = 30.0) -> int:
        """Wait for its end, and return its exit code."""
        until = time.monotonic() + seconds
        while (code := self.code) is None:
            assert time.monotonic() < until, f"{self.name} has not ended in {seconds} s:\n{self.log}"
            time.sleep(LOOK_SECONDS)
        return code

    def is_stopped(self) -> bool:
        """Whether a signal has stopped it."""
        with contextlib.suppress(OSError):
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        return False


def plan_of(
    *,
    kind: str,
    name: str,
    url: str,
    folder: Path,
    ledger: str | None,
    workflows: Sequence[str],
    faults: Sequence[Fault],
    work_seconds: float,
    options: Mapping[str, object],
) -> dict[str, object]:
    """Return a plan for `process_roles.live`."""
    return {
        "kind": kind,
        "name": name,
        "url": url,
        "folder": str(folder),
        "ledger": ledger,
        "workflows": list(workflows),
        "faults": [attrs.asdict(fault) for fault in faults],
        "work_seconds": work_seconds,
        "options": dict(options),
    }


def _python_path() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


# The other end --------------------------------------------------------------------------------------------------


def main(questions: IO[str], answers: IO[str]) -> None:
    """Answer requests until the input ends."""
    for module in _LOADED:
        importlib.import_module(module)
    codes: dict[int, int | None] = {}
    for line in questions:
        question = json.loads(line)
        answer: int | None = None
        if "live" in question:
            answer = _fork(question["live"])
            codes[answer] = None
        elif "look" in question:
            pid = question["look"]
            if codes[pid] is None:
                ended, status = os.waitpid(pid, os.WNOHANG)
                codes[pid] = os.waitstatus_to_exitcode(status) if ended else None
            answer = codes[pid]
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    for pid, code in codes.items():
        if code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _fork(plan: Mapping[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        _live(plan)
    return pid


def _live(plan: Mapping[str, Any]) -> NoReturn:
    """Carry out a plan, then end as every Python program does: at the end of the main module."""
    from tests.chaos.process_roles import live

    nothing = os.open(os.devnull, os.O_RDONLY)
    path = Path(plan["folder"]) / f"{plan['name']}.log"
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number, file in enumerate((nothing, log, log)):
        os.dup2(file, number)
    sys.exit(live(plan))


if __name__ == "__main__":
    main(sys.stdin, sys.stdout)
