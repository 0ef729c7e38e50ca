"""Follow-ups are made in one thread, in order, whatever some of them raise."""

import threading
from functools import partial

from holdfast.hosts.client.follow_ups import FollowUps


def wait_for(event: threading.Event) -> None:
    event.wait(60)


def test_all_are_made_in_order_in_few_threads() -> None:
    made: list[int] = []
    threads: set[int] = set()
    go, done = threading.Event(), threading.Event()
    follow_ups = FollowUps()

    def call(number: int) -> None:
        threads.add(threading.get_ident())
        made.append(number)
        if number == 3:
            raise RuntimeError("the engine is closed")
        if number == 99:
            done.set()

    follow_ups.add(partial(wait_for, go))
    for number in range(100):
        follow_ups.add(partial(call, number))
    go.set()
    assert done.wait(60)
    assert made == list(range(100))
    assert len(threads) == 1


def test_a_later_one_is_made_after_the_thread_has_ended() -> None:
    follow_ups = FollowUps()
    for _ in range(3):
        done = threading.Event()
        follow_ups.add(done.set)
        assert done.wait(60)


def test_a_forked_child_begins_without_those_of_its_parent() -> None:
    follow_ups, go, made = FollowUps(), threading.Event(), threading.Event()
    follow_ups.add(partial(wait_for, go))
    follow_ups.renew()
    follow_ups.add(made.set)
    assert made.wait(60)
    go.set()
