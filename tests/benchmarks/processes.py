"""Processor time of processes from /proc, helper processes, and pauses between polls."""

import contextlib
import os
import random
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

READY: Final = "ready"
"""The line that a helper prints when it is ready."""
PAUSE_SECONDS_MAX: Final = 0.02

_ROOT: Final = Path(__file__).resolve().parent.parent.parent
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PARENT, _USER, _SYSTEM, _ENDED_USER, _ENDED_SYSTEM = 1, 11, 12, 13, 14


def cpu_seconds(pid: int, *, with_ended_children: bool = False) -> float:
    """Return the processor seconds of a process, to 10 ms; 0 if it has ended."""
    fields = _stat(pid)
    if fields is None:
        return 0.0
    places = (_USER, _SYSTEM, *((_ENDED_USER, _ENDED_SYSTEM) if with_ended_children else ()))
    return sum(int(fields[place]) for place in places) / _TICKS


def children_of(pid: int) -> Iterator[int]:
    """Yield the running child processes of a process."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            fields = _stat(int(folder.name))
            if fields is not None and int(fields[_PARENT]) == pid:
                yield int(folder.name)


@contextlib.contextmanager
def helper(*arguments: str) -> Generator[int]:
    """Run `tests.benchmarks.helper` in a separate process, and yield its id. It ends with its input."""
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
    """Yield reproducible random pauses in seconds, so that polls do not synchronize."""
    draw = random.Random(20)
    while True:
        yield draw.uniform(0.0, PAUSE_SECONDS_MAX)


def _stat(pid: int) -> list[str] | None:
    """Return the fields after the process name, which may contain spaces and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
