from datetime import timedelta

import pytest

from holdfast.testing.clock import DEFAULT_START, ManualClock
from holdfast.testing.conformance.builders import a_key
from holdfast.testing.conformance.events import an_event
from holdfast.testing.scheduler import MemoryScheduler, WakeUp
from holdfast.testing.sink import MemorySink

MINUTE = timedelta(minutes=1)


def test_a_sink_keeps_repetitions() -> None:
    sink = MemorySink()
    sink.emit([an_event(1, 1), an_event(1, 2)])
    sink.emit([an_event(1, 1)])

    assert (an_event(1, 1), an_event(1, 2), an_event(1, 1)) == sink.events


def test_a_sink_tells_the_events_of_a_run_once_and_in_order() -> None:
    sink = MemorySink()
    sink.emit([an_event(1, 1), an_event(2, 1), an_event(1, 2), an_event(1, 1), an_event(1, 3)])

    assert (an_event(1, 1), an_event(1, 2), an_event(1, 3)) == sink.of_run(a_key(1))
    assert sink.of_run(a_key(3)) == ()


def test_due_wake_ups_are_taken_out_earliest_first() -> None:
    scheduler = MemoryScheduler()
    for key, minutes in (("c", 3), ("b", 1), ("a", 2), ("d", 1)):
        scheduler.schedule(key, key.upper(), DEFAULT_START + minutes * MINUTE)

    due = scheduler.due(DEFAULT_START + 2 * MINUTE)

    assert [wake_up.key for wake_up in due] == ["b", "d", "a"]
    assert (WakeUp(key="c", command="C", at=DEFAULT_START + 3 * MINUTE),) == scheduler.pending
    assert scheduler.due(DEFAULT_START + 2 * MINUTE) == ()


def test_the_clock_says_what_is_due() -> None:
    clock = ManualClock()
    scheduler = MemoryScheduler(clock)
    scheduler.schedule("key", "command", DEFAULT_START + MINUTE)
    assert scheduler.due() == ()
    clock.advance(MINUTE)

    assert [wake_up.key for wake_up in scheduler.due()] == ["key"]


def test_without_a_clock_somebody_must_say_what_time_it_is() -> None:
    with pytest.raises(ValueError, match="MemoryScheduler"):
        MemoryScheduler().due()
