"""The worker's state machine when slots are freed for which runs wait."""

from holdfast.hosts.worker.machine import Phase
from holdfast.hosts.worker.machine_protocol import (
    Admit,
    Admitted,
    CallFailed,
    Claim,
    Drain,
    Finish,
    Settled,
)
from holdfast.kernel.commands import JobAdmit, RunClaimPending
from tests.unit.hosts.worker.test_machine import Driven, attempt, attempts, ended, kinds

RUNS = RunClaimPending(keys=("k",))
JOBS = JobAdmit(keys=("w/a",))


def admits(driven: Driven) -> list[Admit]:
    """Return the admissions that it requests, with nothing else happening."""
    return [action for action in driven.step() if isinstance(action, Admit)]


def test_what_waits_for_a_freed_slot_is_let_in_at_once() -> None:
    driven = Driven()
    driven.running(*attempts(1, 2))
    driven.step(*ended(attempt(1)))

    assert Admit((RUNS, JOBS)) in driven.step(Settled(opened=False, admits=(RUNS, JOBS)))
    assert admits(driven) == []


def test_one_call_at_a_time_lets_in_what_was_freed_meanwhile() -> None:
    driven = Driven()
    driven.running(*attempts(1, 2, 3))
    for number, freed in ((1, (RUNS,)), (2, (JOBS, RUNS)), (3, (RUNS,))):
        driven.step(*ended(attempt(number)))
        actions = driven.step(Settled(opened=False, admits=freed))
        assert (Admit in kinds(actions)) is (number == 1)

    assert Admit((JOBS, RUNS)) in driven.step(Admitted(opened=False))


def test_it_claims_once_more_has_been_let_in() -> None:
    driven = Driven(poll_interval=100.0)
    driven.running(attempt(1))
    driven.step(*ended(attempt(1)))
    claim = [
        action for action in driven.step(Settled(opened=False, admits=(JOBS,))) if isinstance(action, Claim)
    ]
    assert not claim

    assert Claim not in kinds(driven.step(Admitted(opened=False)))
    assert Claim in kinds(driven.step(Admitted(opened=True)))


def test_a_call_that_failed_is_left_to_maintenance() -> None:
    driven = Driven()
    driven.running(*attempts(1, 2))
    driven.step(*ended(attempt(1)))
    driven.step(Settled(opened=False, admits=(RUNS,)))

    driven.step(CallFailed(Admit((RUNS,))))
    assert admits(driven) == []
    driven.step(*ended(attempt(2)))
    assert Admit((JOBS,)) in driven.step(Settled(opened=False, admits=(JOBS,)))


def test_a_worker_that_drains_lets_in_what_its_last_bodies_freed_before_it_ends() -> None:
    driven = Driven()
    driven.running(attempt(1))
    driven.step(Drain())
    driven.step(*ended(attempt(1)))

    assert driven.step(Settled(opened=False, admits=(RUNS,))) == [Admit((RUNS,))]
    assert driven.machine.phase is Phase.DRAINING
    assert driven.step(Admitted(opened=True)) == [Finish()]
