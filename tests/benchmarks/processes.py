"""Processor time of processes, from /proc; helpers in processes of their own; pauses between questions."""

import contextlib
import os
import random
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

READY: Final = "ready"
"""What a helper prints when it can be asked."""
PAUSE_SECONDS_MAX: Final = 0.02

_ROOT: Final = Path(__file__).resolve().parent.parent.parent
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PARENT, _USER, _SYSTEM, _ENDED_USER, _ENDED_SYSTEM = 1, 11, 12, 13, 14


def cpu_seconds(pid: int, *, with_ended_children: bool = False) -> float:
    """Return how many seconds a process has computed for; 0 if it is gone. Precise to a tick, which is 10 ms."""
    fields = _stat(pid)
    if fields is None:
        return 0.0
    places = (_USER, _SYSTEM, *((_ENDED_USER, _ENDED_SYSTEM) if with_ended_children else ()))
    return sum(int(fields[place]) for place in places) / _TICKS


def children_of(pid: int) -> Iterator[int]:
    """Yield the processes that a process has started and that still run."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            fields = _stat(int(folder.name))
            if fields is not None and int(fields[_PARENT]) == pid:
                yield int(folder.name)


@contextlib.contextmanager
def helper(*arguments: str) -> Generator[int]:
    """Run `tests.benchmarks.helper` in a process of its own, and give its id. It ends when its input does."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.helper", *arguments],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        try:
            if process.stdout.readline().strip() != READY:
                raise RuntimeError(f"the helper {arguments[0]!r} could not start")
            yield process.pid
            assert process.stdin is not None
            process.stdin.close()
            process.wait(30)
        finally:
            process.kill()


def pauses() -> Iterator[float]:
    """Yield pauses in seconds, the same ones every time: questions must not fall into step with what polls."""
    draw = random.Random(20)
    while True:
        yield draw.uniform(0.0, PAUSE_SECONDS_MAX)


def _stat(pid: int) -> list[str] | None:
    """Return the fields after the process's name, which is in brackets and may itself hold spaces and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
