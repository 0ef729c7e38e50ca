"""A shared read: at most one at a time and in a period, and nobody waits for it long."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.errors import UnavailableError
from holdfast.hosts.wiring.cached_read import CachedRead


class Source:
    """Counts its reads, and answers with their number once it may."""

    def __init__(self) -> None:
        self.reads = 0
        self.now = 100.0
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.error: Exception | None = None

    def read(self) -> int:
        self.reads += 1
        self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return self.reads

    def cached(self, wait_max: float = 20.0) -> CachedRead[int]:
        return CachedRead(self.read, age_max=10.0, wait_max=wait_max, monotonic=lambda: self.now)


def test_a_result_is_used_until_it_is_too_old() -> None:
    source = Source()
    cached = source.cached()

    assert (cached.get(), cached.get()) == (1, 1)
    source.now += 9.9
    assert cached.get() == 1
    source.now += 0.2
    assert cached.get() == 2


def test_callers_share_one_read() -> None:
    source = Source()
    source.may_answer.clear()
    cached = source.cached()
    with ThreadPoolExecutor(8) as threads:
        found = [threads.submit(cached.get) for _ in range(8)]
        source.may_answer.set()

        assert [one.result() for one in found] == [1] * 8
    assert source.reads == 1


def test_a_read_that_takes_too_long_holds_one_thread_and_is_used_when_it_ends() -> None:
    source = Source()
    source.may_answer.clear()
    cached = source.cached(wait_max=0.0)
    for _ in range(5):
        with pytest.raises(TimeoutError, match="in time"):
            cached.get()
    source.may_answer.set()
    for thread in threading.enumerate():
        if thread.name == "holdfast-read":
            thread.join()

    assert cached.get() == 1
    assert source.reads == 1


def test_a_failure_is_raised_in_all_callers_until_the_next_read() -> None:
    source = Source()
    source.error = UnavailableError("the store is away")
    cached = source.cached()
    for _ in range(3):
        with pytest.raises(UnavailableError):
            cached.get()
    assert source.reads == 1
    source.now, source.error = source.now + 11, None

    assert cached.get() == 2
