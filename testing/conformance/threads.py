"""Running the same function in several threads at once, without waiting for ever."""

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
    """Call `work(0)`, `work(1)`, ... at the same time and return what they returned. The first error is raised.

    AssertionError if they are not done after a minute.
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

    # Daemons, so that a test that found a deadlock can report it and end.
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
    # The interpreter lets a thread run for 5 ms, in which most of what is tested here is over: a missing lock would
    # hardly ever be noticed.
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
