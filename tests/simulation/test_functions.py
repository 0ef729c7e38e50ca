"""Durable functions in the simulator: all their features occur, and violations are found."""

from collections import Counter
from random import Random

import pytest

from holdfast.hosts.functions.replay import FunctionReplay
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.history import events
from holdfast.kernel.history.events.parsed_rows import ParsedRow
from holdfast.kernel.invariants import Violation
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job, JobKind, JobState
from holdfast.testing.simulation import Exit, FaultKind, SeedOutcome, draw_workload, simulate_seed
from holdfast.testing.simulation.step_records import StartedAttempt, StepRecords
from holdfast.testing.simulation.store_kinds import stores

SEEDS = range(1, 61)
EVENTS = (
    "step.completed",
    "step.failed",
    "step.retrying",
    "step.queued",
    "step.cancelled",
    "timer.fired",
    "signal.received",
    "update.received",
    "update.completed",
    "value.published",
    "run.cancelling",
    "patch.marked",
    "clock.read",
    'code":"step_lost',
)
"""What must happen in so many seeds: else nothing is tested of it."""


def _with_functions() -> list[int]:
    return [
        seed
        for seed in SEEDS
        if any(isinstance(one, Workflow) for one in draw_workload(Random(f"{seed}/scenario"))[0].workflows)
    ]


@pytest.mark.slow
def test_there_are_functions_in_many_seeds_and_all_of_theirs_happens() -> None:
    seeds = _with_functions()
    assert len(SEEDS) / 3 < len(seeds) < len(SEEDS)
    happened: Counter[str] = Counter()
    fired: Counter[FaultKind] = Counter()
    for seed in seeds[:12]:
        outcome = simulate_seed(seed, draw_workload, wastes_nothing=False)
        assert outcome.exit is Exit.FINE, (seed, outcome.found)
        happened.update(event for line in outcome.trace for event in EVENTS if event in line)
        fired.update(one.kind for one in outcome.fired)
    assert not [event for event in EVENTS if not happened[event]], happened
    assert fired[FaultKind.CRASH] > 10


@pytest.mark.slow
def test_sqlite_gives_the_same_trace_of_functions_as_memory() -> None:
    """K1."""
    seed = _with_functions()[0]
    with stores("memory") as memory, stores("sqlite") as sqlite:
        one = simulate_seed(seed, draw_workload, store=memory, wastes_nothing=False)
        other = simulate_seed(seed, draw_workload, store=sqlite, wastes_nothing=False)
    assert any(" STEP " in line for line in one.trace)
    assert one.trace == other.trace


@pytest.mark.slow
def test_a_driver_that_leaves_out_a_row_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks for other steps than the replay does, or never ends."""
    told = FunctionReplay._function_event  # pyright: ignore[reportPrivateUsage]
    skips = Random(1)

    def forgetful(self: FunctionReplay, one: ParsedRow) -> object:
        return None if one.row.type == "step.completed" and skips.random() < 0.3 else told(self, one)

    monkeypatch.setattr(FunctionReplay, "_function_event", forgetful)
    outcome = _first_that_fails()
    assert outcome.exit in (Exit.BROKEN, Exit.STUCK)


def _first_that_fails() -> SeedOutcome:
    for seed in _with_functions():
        outcome = simulate_seed(seed, draw_workload, wastes_nothing=False)
        if outcome.exit is not Exit.FINE:
            return outcome
    pytest.fail("nothing was found")


# What is known of steps -------------------------------------------------------------------------------------------


def row(number: int, event: events.HistoryEvent) -> HistoryRow:
    return HistoryRow(run="r", number=number, type=event.type, at=0, data=event.data)


def retrying(attempt: int = 1, retry_at: int = 0) -> events.StepRetrying:
    error = events.RecordedError(type="OSError", message="no", code="body_error")
    return events.StepRetrying(call="1", step="charge", attempt=attempt, error=error, retry_at=retry_at)


def completed(attempt: int) -> events.StepCompleted:
    return events.StepCompleted(call="1", step="charge", attempt=attempt)


def begun(attempt: int = 1, epoch: int = 1) -> StartedAttempt:
    return StartedAttempt(
        job="r.1", epoch=epoch, run="r", run_id="x", call="1", step="charge", attempt=attempt, arguments="{}"
    )


def job(epoch: int = 1) -> Job:
    return Job(
        run="r",
        number=1,
        namespace="default",
        kind=JobKind.WORKFLOW,
        node="f",
        definition="f@1",
        state=JobState.LEASED,
        queue="default",
        epoch=epoch,
    )


def names(violations: "list[Violation]") -> list[str]:
    return [one.invariant for one in violations]


def test_what_is_recorded_of_a_call_stays() -> None:
    steps = StepRecords()
    assert not list(steps.record_row(row(1, retrying(attempt=1))))
    assert not list(steps.record_row(row(2, completed(attempt=2))))
    assert names(list(steps.record_row(row(3, completed(attempt=3))))) == ["S4"]
    assert not list(steps.record_row(row(4, events.TimerFired(call="2"))))
    assert names(list(steps.record_row(row(5, events.TimerFired(call="2"))))) == ["S4"]


def test_tries_are_recorded_each_once() -> None:
    steps = StepRecords()
    assert not list(steps.record_row(row(1, retrying(attempt=1))))
    assert names(list(steps.record_row(row(2, retrying(attempt=1))))) == ["S8"]


def test_a_try_begins_once_for_a_claim_and_when_it_may() -> None:
    steps = StepRecords()
    assert not list(steps.record_start(begun(), job(), 0))
    assert names(list(steps.record_start(begun(), job(), 0))) == ["S2"]
    list(steps.record_row(row(1, retrying(retry_at=50))))
    assert names(list(steps.record_start(begun(2), job(), 20))) == ["T1"]
    assert names(list(steps.record_start(begun(1, epoch=2), job(2), 60))) == ["S8"]
    list(steps.record_row(row(2, completed(attempt=2))))
    assert names(list(steps.record_start(begun(3, epoch=2), job(2), 60))) == ["S4"]
    assert not list(steps.record_start(begun(1, epoch=3), job(4), 60)), (
        "whoever has lost it knows nothing of that"
    )


def test_a_try_whose_worker_was_lost_counts() -> None:
    steps = StepRecords()
    assert not list(steps.record_start(begun(epoch=1), job(1), 0))
    assert not list(steps.record_start(begun(epoch=2), job(2), 0)), "it was given back"
    lost = HistoryRow(run="r", number=1, type="stage.lost", at=0, epoch=2)
    assert not list(steps.record_row(lost))
    assert names(list(steps.record_start(begun(epoch=3), job(3), 0))) == ["S8"]


def test_what_begins_twice_is_waste_where_nothing_goes_wrong() -> None:
    steps = StepRecords()
    list(steps.record_start(begun(epoch=1), None, 0))
    assert not list(steps.wasted())
    list(steps.record_start(begun(epoch=2), None, 0))
    assert names(list(steps.wasted())) == ["W1"]
