"""Concurrent calls of a function in several threads, with a deadline."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Barrier, Thread
from time import monotonic
from typing import Final

from typing_extensions import TypeVar

R = TypeVar("R")

DEADLINE_SECONDS: Final = 60.0


def in_threads(threads: int, work: Callable[[int], R]) -> list[R]:
    """Call `work(0)`, `work(1)`, ... concurrently and return the results. Raises the first error.

    Raises AssertionError if they do not finish within a minute.
    """
    barrier = Barrier(threads, timeout=DEADLINE_SECONDS)
    results: dict[int, R] = {}
    errors: list[BaseException] = []

    def started_together(number: int) -> None:
        try:
            barrier.wait()
            results[number] = work(number)
        except BaseException as error:  # noqa: BLE001  # raised again below, in the thread of the test
            errors.append(error)

    # Daemons, so that a test that finds a deadlock can report it and end.
    started = [Thread(target=started_together, args=(number,), daemon=True) for number in range(threads)]
    with _threads_interrupted_often():
        for thread in started:
            thread.start()
        until = monotonic() + DEADLINE_SECONDS
        for thread in started:
            thread.join(max(until - monotonic(), 0.0))
    if errors:
        raise errors[0]
    unfinished = sum(thread.is_alive() for thread in started)
    assert unfinished == 0, f"{unfinished} of {threads} threads still wait after {DEADLINE_SECONDS:.0f} s"
    return [results[number] for number in range(threads)]


@contextmanager
def _threads_interrupted_often() -> Generator[None]:
    # By default a thread runs for 5 ms, in which most of these operations end, so that a missing lock would hardly
    # show.
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
