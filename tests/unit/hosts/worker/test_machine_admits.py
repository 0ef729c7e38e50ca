"""The worker's state machine when slots are freed for which runs wait."""

from holdfast.hosts.worker.machine import Phase
from holdfast.hosts.worker.machine_protocol import (
    Action,
    CallFailed,
    Claim,
    Drain,
    Finish,
    FollowedUp,
    Settled,
)
from holdfast.kernel.commands import FollowUp, merge
from tests.unit.hosts.worker.test_machine import Driven, attempt, attempts, ended, kinds

RUNS = FollowUp(runs=("k",))
JOBS = FollowUp(jobs=("w/a",))
BOTH = merge(RUNS, JOBS)
DELIVERIES = FollowUp(deliveries=True)


def follow_ups(actions: list[Action]) -> list[FollowUp]:
    return [action for action in actions if isinstance(action, FollowUp)]


def test_what_waits_for_a_freed_slot_is_let_in_at_once() -> None:
    driven = Driven()
    driven.running(*attempts(1, 2))
    driven.step(*ended(attempt(1)))

    assert BOTH in driven.step(Settled(opened=False, follow_up=BOTH))
    assert follow_ups(driven.step()) == []


def test_one_call_at_a_time_lets_in_what_was_freed_meanwhile() -> None:
    driven = Driven()
    driven.running(*attempts(1, 2, 3))
    for number, freed in ((1, RUNS), (2, BOTH), (3, RUNS)):
        driven.step(*ended(attempt(number)))
        actions = driven.step(Settled(opened=False, follow_up=freed))
        assert (FollowUp in kinds(actions)) is (number == 1)

    assert BOTH in driven.step(FollowedUp(RUNS, opened=False))


def test_it_claims_once_more_has_been_let_in() -> None:
    driven = Driven(poll_interval=100.0)
    driven.running(attempt(1))
    driven.step(*ended(attempt(1)))
    assert Claim not in kinds(driven.step(Settled(opened=False, follow_up=JOBS)))

    assert Claim not in kinds(driven.step(FollowedUp(JOBS, opened=False)))
    assert Claim in kinds(driven.step(FollowedUp(JOBS, opened=True)))


def test_a_call_that_failed_is_left_to_maintenance() -> None:
    driven = Driven()
    driven.running(*attempts(1, 2))
    driven.step(*ended(attempt(1)))
    driven.step(Settled(opened=False, follow_up=RUNS))

    driven.step(CallFailed(RUNS))
    assert follow_ups(driven.step()) == []
    driven.step(*ended(attempt(2)))
    assert JOBS in driven.step(Settled(opened=False, follow_up=JOBS))


def test_a_worker_that_drains_lets_in_what_its_last_bodies_freed_before_it_ends() -> None:
    driven = Driven()
    driven.running(attempt(1))
    driven.step(Drain())
    driven.step(*ended(attempt(1)))

    assert driven.step(Settled(opened=False, follow_up=RUNS)) == [RUNS]
    assert driven.machine.phase is Phase.DRAINING
    assert driven.step(FollowedUp(RUNS, opened=True)) == [Finish()]


def test_neither_admissions_nor_deliveries_wait_for_the_other() -> None:
    driven = Driven()
    driven.running(*attempts(1, 2, 3))
    driven.step(*ended(attempt(1)))
    assert DELIVERIES in driven.step(Settled(opened=False, follow_up=DELIVERIES))
    driven.step(*ended(attempt(2)))
    assert follow_ups(driven.step(Settled(opened=False, follow_up=merge(JOBS, DELIVERIES)))) == [JOBS]
    driven.step(*ended(attempt(3)))
    assert follow_ups(driven.step(Settled(opened=False, follow_up=RUNS))) == []

    assert follow_ups(driven.step(FollowedUp(DELIVERIES, opened=True))) == [DELIVERIES]
    assert follow_ups(driven.step(FollowedUp(JOBS, opened=True))) == [RUNS]


def test_a_worker_that_drains_leaves_deliveries_to_others() -> None:
    driven = Driven()
    driven.running(attempt(1))
    driven.step(Drain())
    driven.step(*ended(attempt(1)))

    assert driven.step(Settled(opened=False, follow_up=DELIVERIES)) == [Finish()]
