"""Hints in transit: batching into messages, and the queue of received ones."""

import time
from threading import Timer

import pytest

from holdfast.adapters.sql import hint_queue
from holdfast.adapters.sql.hint_queue import Inbox
from holdfast.adapters.sql.postgresql.listen_notify import MESSAGE_BYTES_MAX, hints_in, messages_of
from holdfast.ports.transport import Hint, HistoryGrew, JobHint, RunEnded


def a_hint(number: int) -> Hint:
    return JobHint(job=f"run.{number}", epoch=number, queue='ma"in')


def test_hints_survive_the_journey() -> None:
    hints = [a_hint(1), RunEnded(run="key"), HistoryGrew(run="key"), a_hint(2)]

    (message,) = messages_of(hints)

    assert hints == hints_in(message)


def test_messages_fit_into_a_notification() -> None:
    hints = [a_hint(number) for number in range(2_000)]

    messages = list(messages_of(hints))

    assert all(len(message.encode()) <= MESSAGE_BYTES_MAX for message in messages)
    assert hints == [hint for message in messages for hint in hints_in(message)]


def test_a_hint_that_fits_into_no_message_is_dropped() -> None:
    assert list(messages_of([RunEnded(run="x" * 8_000)])) == []


def test_hints_that_are_alike_are_sent_once() -> None:
    (message,) = messages_of([a_hint(1), a_hint(1)])

    assert [a_hint(1)] == hints_in(message)


@pytest.mark.parametrize("message", ["", "{", "7", "null"])
def test_a_message_that_makes_no_sense_says_that_something_changed(message: str) -> None:
    assert hints_in(message) == [None]


def test_a_part_that_makes_no_sense_does_not_spoil_the_others() -> None:
    assert [None, RunEnded(run="key")] == hints_in('[["job","one"],["run_ended","key"]]')


def test_what_was_delivered_is_not_repeated_unasked() -> None:
    box = Inbox()
    box.put([a_hint(1)])
    (delivery,) = box.take(10, 0.0)

    assert tuple(box.take(10, 0.01)) == ()

    box.retry(delivery.receipt, 0.05)
    assert tuple(box.take(10, 0.0)) == ()
    (again,) = box.take(10, 5.0)
    assert a_hint(1) == again.hint
    box.ack(again.receipt)
    box.retry(again.receipt, 0.0)
    assert tuple(box.take(10, 0.01)) == ()


def test_closing_wakes_whoever_waits() -> None:
    box = Inbox()
    Timer(0.05, box.close).start()
    started = time.monotonic()

    assert tuple(box.take(1, 30.0)) == ()
    assert time.monotonic() - started < 10


def test_too_many_hints_become_one_that_says_that_something_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hint_queue, "WAITING_MAX", 3)
    box = Inbox()
    box.put([a_hint(number) for number in range(5)])

    assert [None, a_hint(3), a_hint(4)] == [delivery.hint for delivery in box.take(10, 0.0)]
