"""What a peer's program and the benchmark say to each other. Only the standard library: every peer's Python runs it.

A program is called with the name of a workload, a URL and its sizes as JSON. It sets up, says `ready`, waits for a
line, does its work, prints what came of it as JSON, and waits for another line: only what is in between is measured.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field


@dataclass
class Outcome:
    """What came of some work: how many items in how many seconds, or how many seconds each took; and other figures."""

    items: int
    seconds: float
    latencies: list[float] = field(default_factory=list)
    more: dict[str, float] = field(default_factory=dict)


Work = Callable[[], Outcome]
Workload = Callable[..., Generator[Work]]
"""Sets up, yields what is measured, and takes down."""


def main(*workloads: Workload) -> None:
    """Do what the command line says: that of these functions which it names."""
    name, url, sizes = sys.argv[1:]
    with contextmanager({one.__name__: one for one in workloads}[name])(url, **json.loads(sizes)) as work:
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps(asdict(work())), flush=True)
        sys.stdin.readline()


def timed(items: int, work: Callable[[], object]) -> Outcome:
    """Do some work, and say how long it took."""
    began_at = time.perf_counter()
    work()
    return Outcome(items, time.perf_counter() - began_at)


def asked(times: int, ask: Callable[[int], object], *, pause: float = 0.01) -> Outcome:
    """Ask for something again and again, with pauses, and say how long each time took."""
    latencies: list[float] = []
    for number in range(times):
        time.sleep(pause)
        began_at = time.perf_counter()
        ask(number)
        latencies.append(time.perf_counter() - began_at)
    return Outcome(times, sum(latencies), latencies)


def check(truth: bool, what: str) -> None:
    """Raise if a peer has not done what it was to do: then there is no figure."""
    if not truth:
        raise RuntimeError(what)


def until(done: Callable[[], bool], *, seconds: float = 300.0, every: float = 0.005) -> None:
    """Wait until something is done."""
    ends_at = time.monotonic() + seconds
    while not done():
        if time.monotonic() > ends_at:
            raise TimeoutError(f"not done within {seconds:g} s")
        time.sleep(every)


@contextmanager
def beside(name: str, url: str, **sizes: object) -> Generator[None]:
    """Run a workload of the same program in a process of its own: a worker, that is ready before this goes on."""
    command = [sys.executable, sys.argv[0], name, url, json.dumps(sizes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        check(process.stdout.readline().strip() == "ready", f"the worker of {name} could not start")
        try:
            yield
        finally:
            process.kill()


def marks(times: list[float], *, ends: int) -> dict[str, float]:
    """Return the milliseconds that each of the first and of the last steps took, by when each was done."""
    first, last = times[ends] - times[0], times[-1] - times[-1 - ends]
    return {"first_ms": first / ends * 1_000, "last_ms": last / ends * 1_000}
