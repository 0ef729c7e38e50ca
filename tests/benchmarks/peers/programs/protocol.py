"""What a peer's program and the benchmark say to each other. Only the standard library: every peer's Python runs it.

A program is called with the name of a workload, a URL and its sizes as JSON. It sets up, says `ready`, waits for a
line, does its work, prints what came of it as JSON, and waits for another line: only what is in between is measured.
"""

import itertools
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from typing import TypeVar

T = TypeVar("T")


@dataclass
class Outcome:
    """What came of some work: how many items in how many seconds, or how many seconds each took; and other figures.

    `curve` is how a figure went along the work, from its beginning to its end.
    """

    items: int
    seconds: float
    latencies: list[float] = field(default_factory=list)
    more: dict[str, float] = field(default_factory=dict)
    curve: list[float] = field(default_factory=list)


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


def shuffled(items: Sequence[T]) -> list[T]:
    """Return the items in an order that is random, and the same for all."""
    return random.Random(20).sample(items, len(items))


class Process:
    """A workload of the same program in a process of its own, that is ready, and waits to be told to go."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def go(self) -> None:
        """Let it do its work."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def line(self) -> str:
        """Return the next line that it prints, which may be what came of its work."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        check(bool(line), "a process has died")
        return line

    def outcome(self) -> Outcome:
        """Return what came of its work, once it is done. It is still there then, until its block ends."""
        return Outcome(**json.loads(self.line()))


@contextmanager
def beside(name: str, url: str, **sizes: object) -> Generator[Process]:
    """Run a workload of the same program in a process of its own, that is ready before this goes on."""
    command = [sys.executable, sys.argv[0], name, url, json.dumps(sizes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        one = Process(process)
        try:
            check(one.line().strip() == "ready", f"{name} could not start")
            yield one
        finally:
            process.kill()


@contextmanager
def several(number: int, name: str, url: str, **sizes: object) -> Generator[list[Process]]:
    """Run so many of them."""
    with ExitStack() as stack:
        yield [stack.enter_context(beside(name, url, **sizes)) for _ in range(number)]


def drained(
    number: int, url: str, items: int, is_done: Callable[[], bool], **sizes: object
) -> Generator[Work]:
    """Have so many processes do `drainer`, each once it is told to go, until all is done."""
    with several(number, "drainer", url, **sizes) as processes:

        def work() -> None:
            for one in processes:
                one.go()
            until(is_done, every=0.05)

        yield lambda: timed(items, work)


def marks(times: list[float], *, ends: int) -> Outcome:
    """Return what the first and the last of a run's steps took, and all others, by when each began and the last ended.

    The curve is of at most 50 equal parts of the run: the milliseconds that each step took in it.
    """
    length = len(times) - 1
    first, last = times[ends] - times[0], times[-1] - times[-1 - ends]
    parts = min(50, length)
    edges = [length * part // parts for part in range(parts + 1)]
    curve = [(times[to] - times[since]) / (to - since) * 1_000 for since, to in itertools.pairwise(edges)]
    more = {"first_ms": first / ends * 1_000, "last_ms": last / ends * 1_000}
    return Outcome(length, times[-1] - times[0], more=more, curve=curve)


def fired(seen: list[float], due: int, at: float) -> Outcome:
    """Wait until schedules that are due at one instant have all run. Return how long after the instant each did.

    `seen` is where each body puts the seconds since 1970.
    """
    check(time.time() < at, "the schedules were due before all were stored")
    until(lambda: len(seen) >= due)
    check(len(seen) == due and min(seen) >= at, "one ran twice, or early")
    latencies = [one - at for one in seen]
    return Outcome(due, max(latencies), latencies)


def instant_ahead(seconds: float) -> float:
    """Return a whole second so far ahead, in seconds since 1970."""
    return float(int(time.time() + seconds) + 1)


def say(what: str) -> None:
    """Print when something has happened: a word, and seconds since 1970, by a clock that all processes share."""
    print(json.dumps([what, time.time()]), flush=True)


def heard(process: Process, what: str) -> float:
    """Wait until a process has said that something happened; return when it was."""
    while True:
        said, at = json.loads(process.line())
        if said == what:
            return float(at)


@dataclass
class Left:
    """When a process was killed, when another had its run, and when that was where the first had been."""

    killed_at: float
    taken_at: float
    held_at: float

    def takeover(self) -> Outcome:
        """Return how long it took until somebody had the run."""
        return Outcome(1, self.taken_at - self.killed_at)

    def replay(self) -> Outcome:
        """Return how long it took from then on."""
        return Outcome(1, self.held_at - self.taken_at)


def left_behind(
    url: str, first: Process, taken_at: Callable[[], float], done: Callable[[], bool], **sizes: object
) -> Left:
    """Have another process go on with what the first has when it is killed, until it is done.

    Both say `entered` when the run begins in them, and `held` when it is at its end, where it waits a second.
    """
    heard(first, "entered")
    with beside("holder", url, heir=True, **sizes) as heir:
        heir.go()
        heard(first, "held")
        first.process.send_signal(signal.SIGKILL)
        killed_at = time.time()
        entered_at = heard(heir, "entered")
        held_at = heard(heir, "held")
        left = Left(killed_at, taken_at() or entered_at, held_at)
        until(done)
        return left
