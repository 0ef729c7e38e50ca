"""`holdfast debug` in a process of its own, driven through a pipe and a terminal."""

import os
import pty
import re
import runpy
import select
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import Engine, SyncRunHandle
from holdfast.client import RunStatus
from holdfast.hosts.cli.exit_codes import Exit

pytestmark = pytest.mark.slow

ORDERS = '''
import asyncio
from holdfast import Engine, step, workflow

@step
def charge(order: str) -> str:
    open("charged", "w").close()
    return order

@workflow
async def fulfil(order: str) -> list[str]:
    """Charge an order, twice."""
    receipt = await charge(order)
    again = await asyncio.gather(checked(receipt))
    return [receipt, *again]

async def checked(receipt: str) -> str:
    text = receipt.upper()
    await asyncio.sleep(60)
    return await charge(text)

engine = Engine.open("sqlite:///runs.db", workflows=[fulfil])
'''
HISTORY = """{
  "holdfast_history": 1, "workflow": "fulfil", "version": "1", "id": "order-7", "generation": 1, "key": "K",
  "status": "completed", "created_at": "2026-01-01T00:00:00.000000Z",
  "rows": [
    {"number": 1, "type": "run.created", "at": "2026-01-01T00:00:00.000000Z", "data": {"definition": "fulfil@1"},
     "payload": {"order": "a"}},
    {"number": 2, "type": "step.completed", "at": "2026-01-01T00:00:01.000000Z", "stage": "fulfil",
     "data": {"attempt": 1, "call": "1", "step": "charge", "site": "orders.py:12"}, "payload": "receipt 1"},
    {"number": 3, "type": "timer.fired", "at": "2026-01-01T00:01:01.000000Z", "stage": "fulfil",
     "data": {"call": "2.1"}},
    {"number": 4, "type": "step.completed", "at": "2026-01-01T00:01:02.000000Z", "stage": "fulfil",
     "data": {"attempt": 1, "call": "2.2", "step": "charge", "site": "orders.py:19"}, "payload": "receipt 2"},
    {"number": 5, "type": "stage.completed", "at": "2026-01-01T00:01:02.000000Z", "stage": "fulfil",
     "data": {"attempt": 1, "job": 1}, "payload": ["receipt 1", "receipt 2"]},
    {"number": 6, "type": "run.completed", "at": "2026-01-01T00:01:02.000000Z"}
  ]
}
"""
SECONDS_MAX = 200
END = 'it returns ["receipt 1","receipt 2"], as recorded'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "orders.py").write_text(ORDERS)
    (tmp_path / "h.json").write_text(HISTORY)
    return tmp_path


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "holdfast.hosts.cli.main", "debug", *words]


def environment() -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HOLDFAST_", "PYTHONBREAKPOINT"))
    }
    return {**kept, "HOLDFAST_ENGINE": "orders:engine", "TERM": "dumb"}


def debug(folder: Path, typed: str, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(*(words or ("h.json",))),
        cwd=folder,
        env=environment(),
        input=typed,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def stops(out: str) -> list[str]:
    """Return the lines of code at which the debugger stopped."""
    return re.findall(r"^-> (.*)$", out, re.MULTILINE)


def test_it_stops_at_the_first_line_and_goes_over_awaits_and_into_the_code_of_the_user_only(
    folder: Path,
) -> None:
    done = debug(folder, "n\np receipt\ns\ns\ns\ns\nrestart\nc\n")
    assert done.returncode == Exit.OK, done.stderr
    shown = stops(done.stdout)
    assert shown[:2] == ["receipt = await charge(order)", "again = await asyncio.gather(checked(receipt))"]
    assert "'receipt 1'" in done.stdout
    assert "text = receipt.upper()" in shown
    assert all(
        place.endswith("orders.py") for place in re.findall(r"^> ([^\s(]+)\(", done.stdout, re.MULTILINE)
    )
    assert "start holdfast debug again" in done.stdout
    assert done.stdout.endswith(f"{END}\n")
    assert "Run order-7 of fulfil@1, 6 rows" in done.stderr
    assert not (folder / "charged").exists(), "no step is run"


def test_breakpoints_in_the_code_are_heeded(folder: Path) -> None:
    wait = "    await asyncio.sleep(60)"
    (folder / "orders.py").write_text(ORDERS.replace(wait, f"    breakpoint()\n{wait}"))
    done = debug(folder, "c\np text\nc\n")
    assert done.returncode == Exit.OK, done.stderr
    assert stops(done.stdout) == ["receipt = await charge(order)", "await asyncio.sleep(60)"]
    assert "'RECEIPT 1'" in done.stdout
    assert done.stdout.endswith(f"{END}\n")


def test_whoever_leaves_is_told_nothing_more(folder: Path) -> None:
    done = debug(folder, "n\nq\n")
    assert done.returncode == Exit.OK, done.stderr
    assert "it returns" not in done.stdout
    assert "Traceback" not in done.stderr


def test_code_that_does_something_else_is_told_in_the_end(folder: Path) -> None:
    (folder / "orders.py").write_text(
        ORDERS.replace("    receipt = await charge(order)", "    receipt = order")
    )
    done = debug(folder, "c\n")
    assert done.returncode == Exit.DIVERGED
    assert "row 2 of the history records step 'charge' (orders.py:12) as call 1" in done.stderr


def test_a_person_at_a_terminal_is_asked(folder: Path) -> None:
    leader, follower = pty.openpty()
    with subprocess.Popen(
        command("h.json"), cwd=folder, env=environment(), stdin=follower, stdout=follower, stderr=follower
    ) as process:
        os.close(follower)
        said = _answered(leader, ["n", "p receipt", "c"])
        process.wait(SECONDS_MAX)
    os.close(leader)
    assert process.returncode == Exit.OK
    assert "-> again = await asyncio.gather(checked(receipt))" in said
    assert "'receipt 1'" in said
    assert END in said


def _answered(terminal: int, answers: list[str], *, leaves: bool = False) -> str:
    """Answer each prompt; return the output until the other end closes or the last answer was given."""
    said, answered = b"", 0
    until = time.monotonic() + SECONDS_MAX
    while time.monotonic() < until and select.select([terminal], [], [], SECONDS_MAX)[0]:
        try:
            part = os.read(terminal, 10_000)
        except OSError:  # that is how a terminal ends
            break
        if not part:
            break
        said += part
        # A prompt may come in two parts, and is to be answered once.
        if said[answered:].rstrip().endswith(b"(Pdb)") and answers:
            os.write(terminal, f"{answers.pop(0)}\n".encode())
            said += b"\n"
            answered = len(said)
            if leaves and not answers:
                break
    return said.decode().replace("\r\n", "\n")


# In a worker ------------------------------------------------------------------------------------------------------


@pytest.fixture
def begun(folder: Path, new_sqlite: Callable[[Path], str]) -> Iterator[SyncRunHandle[Any]]:
    """A store with a run of a function that has a breakpoint, and the module that its worker imports."""
    url = new_sqlite(folder / "runs.db")
    first = "    receipt = await charge(order)"
    (folder / "orders.py").write_text(
        ORDERS.replace(first, f"{first}\n    breakpoint()").replace("(60)", "(0)")
    )
    fulfil: Any = runpy.run_path(str(folder / "orders.py"))["fulfil"]
    with Engine.open(url, workflows=[fulfil]).sync as engine:
        yield engine.start(fulfil("a"), id="order-7")


@contextmanager
def worker(folder: Path, terminal: int) -> Generator[None]:
    words = [sys.executable, "-m", "holdfast.hosts.cli.main", "worker"]
    with subprocess.Popen(
        words, cwd=folder, env=environment(), stdin=terminal, stdout=terminal, stderr=terminal
    ) as process:
        try:
            yield
        finally:
            process.kill()


def test_where_nobody_is_at_a_terminal_a_breakpoint_blocks_the_run(
    folder: Path, begun: SyncRunHandle[Any]
) -> None:
    with worker(folder, subprocess.DEVNULL):
        until = time.monotonic() + SECONDS_MAX
        while begun.info().status is not RunStatus.BLOCKED and time.monotonic() < until:
            time.sleep(0.05)
    blocked = begun.history()[-1]
    assert (blocked.type, blocked.data["code"]) == ("run.blocked", "debugger_left")
    assert (folder / "charged").exists(), "what was done before it is recorded"


def test_a_person_at_the_terminal_of_a_worker_is_asked(folder: Path, begun: SyncRunHandle[Any]) -> None:
    leader, follower = pty.openpty()
    with worker(folder, follower):
        os.close(follower)
        said = _answered(leader, ["p receipt", "c"], leaves=True)
        assert begun.result(timeout=SECONDS_MAX) == ["a", "A"]
    os.close(leader)
    assert "'a'" in said
