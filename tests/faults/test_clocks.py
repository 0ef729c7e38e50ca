"""Workers whose clocks are wrong by minutes, or are set by an hour while they work.

The store's clock decides what is due: nothing starts early, nothing starts twice, nothing is forgotten, and no healthy
worker loses its jobs.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import cycle

import pytest

from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.external import NotReady, Suspended, suspend
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.ports.records.run import RunStatus
from tests.faults.fleet import LEASE, POLL, Fleet

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
LATE = 2 * POLL + 1
"""Seconds within which maintenance finds what is due and a worker claims it."""

ran: list[tuple[str, str, int, float]] = []
"""Return what ran, with the true time in seconds since the start."""
fleets: list[Fleet] = []


def note(ctx: StageContext, what: str) -> None:
    ran.append((what, ctx.run_id, ctx.attempt, fleets[-1].time.monotonic()))


@stage(retry=Retry(attempts=4, wait=7 * MINUTE, wait_max=7 * MINUTE, jitter=0.0))
def stumble(ctx: StageContext, number: int) -> int:
    """Fail three times, with a retry after seven minutes each."""
    note(ctx, "stumble")
    if ctx.attempt < 4:
        raise ConnectionError("busy")
    return number


@stage.external
def hand_on(ctx: StageContext, number: int) -> Suspended[int, int]:
    note(ctx, "hand_on")
    return suspend(number, check_after=11 * MINUTE)


@hand_on.check
def handed_on(ctx: StageContext, number: int) -> int | NotReady:
    note(ctx, "check")
    checks = sum(what == "check" and run == ctx.run_id for what, run, _, _ in ran)
    return number if checks == 4 else NotReady()


@stage(retry=Retry(attempts=1))
def take_long(ctx: StageContext, number: int) -> int:
    """A stage with one attempt: taking it from a healthy worker would end its run."""
    note(ctx, "take_long")
    return number


ALL = Pipeline("all", input=int).pipe(stumble).pipe(handed_on).pipe(take_long)


pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    ran.clear()
    yield
    fleets.clear()


def open_fleet(*, has_clock: bool) -> Fleet:
    fleets.append(Fleet((ALL,), lasts={"take_long": 4_000.0}, has_clock=has_clock))
    return fleets[-1]


def start(fleet: Fleet, runs: int) -> None:
    """Start runs at intervals of a quarter of an hour."""
    engine = fleet.engine.sync
    for number in range(runs):
        engine.start(ALL(number), id=f"r{number}", start_at=fleet.time.now() + number * 15 * MINUTE)


def all_is_well(fleet: Fleet, runs: int) -> None:
    """Check that nothing started early, twice or never, and that no healthy worker lost a job."""
    rows = fleet.store.dump().runs.values()
    assert {run.status for run in rows} == {RunStatus.COMPLETED}
    assert len(rows) == runs
    assert Counter((what, run, attempt) for what, run, attempt, _ in ran if what != "check") == Counter(
        {
            (what, f"r{number}", attempt): 1
            for number in range(runs)
            for what, attempts in [("stumble", 4), ("hand_on", 1), ("take_long", 1)]
            for attempt in range(1, attempts + 1)
        }
    )
    for number in range(runs):
        at = {
            (what, attempt): when
            for what, run, attempt, when in ran
            if run == f"r{number}" and what != "check"
        }
        checks = [when for what, run, _, when in ran if run == f"r{number}" and what == "check"]
        assert len(checks) == 4
        due = [number * 15 * 60.0, *(at["stumble", attempt] + 7 * 60 for attempt in (1, 2, 3))]
        begun = [at["stumble", attempt] for attempt in (1, 2, 3, 4)]
        due += [at["hand_on", 1] + 11 * 60, *(when + 11 * 60 for when in checks[:-1])]
        begun += checks
        for wanted, came in zip(due, begun, strict=True):
            assert wanted <= came <= wanted + LATE
    assert fleet.rows("stage.lost") == []
    assert sum(worker.calls.counts.fenced + worker.cancelled for worker in fleet.workers) == 0
    assert sum(worker.calls.counts.sessions_lost for worker in fleet.workers) == 0


def test_clocks_that_are_off_and_are_set_change_nothing_where_the_store_has_one() -> None:
    fleet = open_fleet(has_clock=True)
    wrong = [10 * MINUTE, -10 * MINUTE, timedelta(), 10 * MINUTE]
    workers = [fleet.worker(wrong_by=by) for by in wrong]
    start(fleet, 12)
    jumps = cycle([HOUR, -HOUR, -HOUR, HOUR])
    victims = cycle(workers)
    for _ in range(150):  # every third of a lease somebody's clock is set, while everything goes on
        next(victims).clock.wrong_by += next(jumps)
        fleet.pass_time(timedelta(seconds=LEASE / 3))
    fleet.pass_time(5 * HOUR)

    all_is_well(fleet, 12)


@pytest.mark.parametrize("moment", [1.0, 61.0])
def test_nobody_who_is_well_is_reaped_when_the_clock_of_a_file_is_set_forward(moment: float) -> None:
    """A file has the clock of its machine. When that is set, sleeping jobs are due, but leases are as fresh as ever."""
    fleet = open_fleet(has_clock=False)
    workers = [fleet.worker() for _ in range(3)]
    start(fleet, 3)
    fleet.pass_time(2 * HOUR)
    for _ in range(2):
        fleet.pass_time(timedelta(seconds=moment))
        fleet.time.jump(HOUR)
        fleet.pass_time(HOUR)

    assert fleet.rows("stage.lost") == []
    assert sum(worker.calls.counts.sessions_lost + worker.cancelled for worker in workers) == 0
    assert {run.status for run in fleet.store.dump().runs.values()} == {RunStatus.COMPLETED}


def test_who_is_dead_is_found_soon_after_the_clock_of_a_file_was_set_forward() -> None:
    fleet = open_fleet(has_clock=False)
    victim = fleet.worker()
    start(fleet, 1)
    fleet.pass_time(2 * HOUR)
    assert victim.machine.running == 1  # it is in `take_long`
    fleet.workers.remove(victim)
    fleet.worker()
    fleet.pass_time(MINUTE)
    fleet.time.jump(HOUR)
    fleet.pass_time(timedelta(seconds=LEASE + LEASE / 3 + LATE))

    (run,) = fleet.store.dump().runs.values()
    assert run.status is RunStatus.FAILED
    assert "worker_lost" in (run.error or "")


def test_sleepers_are_late_and_never_lost_when_the_clock_of_a_file_is_set_back() -> None:
    fleet = open_fleet(has_clock=False)
    for _ in range(2):
        fleet.worker()
    start(fleet, 4)
    fleet.pass_time(20 * MINUTE)
    fleet.time.jump(-HOUR)
    fleet.pass_time(6 * HOUR)

    assert {run.status for run in fleet.store.dump().runs.values()} == {RunStatus.COMPLETED}
    begun = Counter((what, run, attempt) for what, run, attempt, _ in ran if what != "check")
    assert set(begun.values()) == {1}
    assert fleet.rows("stage.lost") == []
