"""A host's estimate of the store's time."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.hosts.wiring.store_clock import GAIN_MAX, STEP_MAX, ClockStep, StoreClock
from holdfast.ports.clock import micros
from holdfast.testing.clock import DEFAULT_START, ManualClock

STORE = datetime(2030, 5, 1, 12, tzinfo=UTC)
"""The store's clock is years ahead of the machine's."""


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


@pytest.fixture
def machine() -> ManualClock:
    return ManualClock()


@pytest.fixture
def clock(machine: ManualClock) -> StoreClock:
    return StoreClock(machine)


def test_before_the_first_sync_it_is_the_machine_s_clock(machine: ManualClock, clock: StoreClock) -> None:
    machine.advance(seconds(5))

    assert clock.now() == DEFAULT_START + seconds(5)


def test_after_a_sync_it_is_the_store_s_time_and_goes_on_with_the_monotonic_clock(
    machine: ManualClock, clock: StoreClock
) -> None:
    clock.sync(micros(STORE))
    machine.advance(seconds(2.5))

    assert clock.now() == STORE + seconds(2.5 * (1 - GAIN_MAX))


def test_it_is_not_ahead_of_the_store_though_the_machine_s_clock_runs_too_fast(
    machine: ManualClock, clock: StoreClock
) -> None:
    clock.sync(micros(STORE))
    machine.advance(seconds(10 * (1 + 0.9 * GAIN_MAX)))

    assert seconds(-0.02) < clock.now() - (STORE + seconds(10)) <= seconds(0)


def test_it_is_not_ahead_of_the_store_however_slow_the_question_was(
    machine: ManualClock, clock: StoreClock
) -> None:
    """The request took seconds before the store read its clock."""
    machine.advance(seconds(4))
    clock.sync(micros(STORE))

    assert clock.now() == STORE


def test_an_answer_that_took_long_does_not_set_it_back(machine: ManualClock, clock: StoreClock) -> None:
    """The store read its clock eight seconds ago or just now: the host cannot know."""
    clock.sync(micros(STORE))
    machine.advance(seconds(10))
    shown = clock.now()
    clock.sync(micros(STORE + seconds(3)), took=8.0)

    assert clock.now() == shown
    assert 0 < clock.behind_by <= 1.1


def test_what_an_answer_says_for_sure_it_takes_over_though_it_took_long(
    machine: ManualClock, clock: StoreClock
) -> None:
    clock.sync(micros(STORE))
    machine.advance(seconds(10))
    clock.sync(micros(STORE + seconds(60)), took=8.0)

    assert (clock.now(), clock.behind_by) == (STORE + seconds(60), 8.0)


def test_it_is_set_back_with_the_store_s(machine: ManualClock, clock: StoreClock) -> None:
    clock.sync(micros(STORE))
    machine.advance(seconds(10))
    clock.sync(micros(STORE - seconds(60)), took=8.0)

    assert clock.now() == STORE - seconds(60)


def test_a_step_of_the_machine_s_clock_does_not_move_it(machine: ManualClock, clock: StoreClock) -> None:
    clock.sync(micros(STORE))
    machine.jump(timedelta(days=-300))

    assert clock.now() == STORE


def test_every_sync_takes_over_the_store_s_time_anew(machine: ManualClock, clock: StoreClock) -> None:
    clock.sync(micros(STORE))
    machine.advance(seconds(10))
    clock.sync(micros(STORE + seconds(11)))

    assert clock.now() == STORE + seconds(11)


def test_where_the_store_has_no_clock_it_stays_the_machine_s(machine: ManualClock, clock: StoreClock) -> None:
    clock.sync(None)
    machine.jump(seconds(60))

    assert clock.now() == DEFAULT_START + seconds(60)


def test_it_is_trusted_while_the_last_sync_is_not_too_old(machine: ManualClock, clock: StoreClock) -> None:
    clock.sync(micros(STORE))
    machine.advance(seconds(10))

    assert clock.is_trusted(10.0)
    machine.advance(seconds(0.1))
    assert not clock.is_trusted(10.0)
    clock.sync(micros(STORE))
    assert clock.is_trusted(10.0)


@pytest.mark.parametrize("step", [STEP_MAX + 0.1, -STEP_MAX - 0.1])
@pytest.mark.parametrize("store_time", [micros(STORE), None])
def test_it_is_not_trusted_once_the_machine_s_clock_has_stepped(
    machine: ManualClock, clock: StoreClock, step: float, store_time: int | None
) -> None:
    """Until it is synced again."""
    clock.sync(store_time)
    machine.advance(seconds(1))
    machine.jump(seconds(step))

    assert not clock.is_trusted(10.0)
    clock.sync(store_time)
    assert clock.is_trusted(10.0)


@pytest.mark.parametrize("by", [3_600.0, -3_600.0])
def test_a_step_is_remembered_where_the_machine_s_clock_is_the_store_s(
    machine: ManualClock, clock: StoreClock, by: float
) -> None:
    clock.sync(None)
    assert clock.step is None
    machine.advance(seconds(7))
    machine.jump(seconds(by))
    machine.advance(seconds(1))
    clock.sync(None)
    machine.advance(seconds(5))
    clock.sync(None)

    assert clock.step == ClockStep(by=by, ago=5.0)


def test_a_step_is_nothing_to_a_store_with_a_clock_of_its_own(
    machine: ManualClock, clock: StoreClock
) -> None:
    clock.sync(micros(STORE))
    machine.jump(seconds(3_600))
    clock.sync(micros(STORE))

    assert clock.step is None


def test_a_little_drift_is_no_step(machine: ManualClock, clock: StoreClock) -> None:
    clock.sync(micros(STORE))
    machine.jump(seconds(STEP_MAX * 0.9))

    assert clock.is_trusted(10.0)


def test_it_sleeps_and_counts_as_the_machine_does(machine: ManualClock, clock: StoreClock) -> None:
    clock.sleep(3.0)

    assert clock.monotonic() == machine.monotonic() == 3.0
