"""Deliveries of topics that threads share."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count

from holdfast.hosts.execution.topic_delivery import SharedDeliveries
from holdfast.ports.errors import UnavailableError

THREADS = 8


class Deliveries:
    """A topic whose first delivery lasts until the other threads wait."""

    def __init__(self) -> None:
        self.shared = SharedDeliveries()
        self.began = threading.Event()
        self.go_on = threading.Event()
        self.stored = 0
        self.delivered: list[int] = []

    def deliver(self) -> None:
        seen = self.stored
        self.began.set()
        assert self.go_on.wait(20)
        self.delivered.append(seen)

    def publish(self, topic: str = "t") -> int:
        """Store a message and deliver. Return how many messages are delivered then."""
        self.stored += 1
        self.shared.deliver("n", topic, self.deliver)
        return max(self.delivered)

    def publish_beside(self, threads: ThreadPoolExecutor) -> list[int]:
        """Publish in each thread while the first one delivers."""
        first = threads.submit(self.publish)
        assert self.began.wait(20)
        others = [threads.submit(self.publish) for _ in range(THREADS - 1)]
        until_waiting(lambda: self.waiting == THREADS)
        self.go_on.set()
        return [one.result(20) for one in (first, *others)]

    @property
    def waiting(self) -> int:
        return sum(one.waiting for one in vars(self.shared)["_topics"].values())


def until_waiting(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.001)


def test_threads_that_wait_share_the_next_delivery() -> None:
    deliveries = Deliveries()
    with ThreadPoolExecutor(THREADS) as threads:
        found = deliveries.publish_beside(threads)
    assert deliveries.delivered == [1, THREADS]
    assert found[1:] == [THREADS] * (THREADS - 1)  # each finds its message delivered
    assert deliveries.waiting == 0


def test_topics_do_not_wait_for_each_other() -> None:
    deliveries = Deliveries()
    with ThreadPoolExecutor(2) as threads:
        slow = threads.submit(deliveries.publish, "slow")
        assert deliveries.began.wait(20)
        called: list[str] = []
        deliveries.shared.deliver("n", "other", lambda: called.append("other"))
        deliveries.shared.deliver("another", "slow", lambda: called.append("slow"))
        assert called == ["other", "slow"]
        deliveries.go_on.set()
        slow.result(20)


def test_a_delivery_that_fails_covers_nothing() -> None:
    deliveries = Deliveries()
    calls = count(1)

    def fail_second() -> None:
        deliveries.deliver()
        if next(calls) == 2:  # the one that the others wait for
            raise UnavailableError("down")

    deliver = deliveries.shared.deliver
    with ThreadPoolExecutor(THREADS) as threads:
        first = threads.submit(deliver, "n", "t", fail_second)
        assert deliveries.began.wait(20)
        others = [threads.submit(deliver, "n", "t", fail_second) for _ in range(THREADS - 1)]
        until_waiting(lambda: deliveries.waiting == THREADS)
        deliveries.go_on.set()
        errors = [one.exception(20) for one in (first, *others)]
    assert [type(error) for error in errors if error] == [UnavailableError]
    assert len(deliveries.delivered) == 3


def test_a_thread_that_publishes_alone_delivers_each_time() -> None:
    deliveries = Deliveries()
    deliveries.go_on.set()
    assert [deliveries.publish() for _ in range(3)] == [1, 2, 3]
