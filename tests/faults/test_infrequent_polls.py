"""External work that is polled every six hours for a day: the run does not count as stuck."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Any, Final

import pytest
from typing_extensions import TypeVar, override

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.serverless.host import ServerlessHost
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.external import NotReady, Suspended, suspend
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.ports.changes import Change, Delete, Insert, Update
from holdfast.ports.persistence import Transaction
from holdfast.ports.queries.runs import FindRun
from holdfast.ports.records.job import Job, JobKind
from holdfast.ports.records.run import RunName, RunStatus
from holdfast.ports.tables import JOBS
from tests.faults.fleet import ClockedStore, Fleet

pytestmark = pytest.mark.slow

R = TypeVar("R")

HOUR: Final = timedelta(hours=1)
MINUTE: Final = timedelta(minutes=1)

asked: list[float] = []
clock: list[Callable[[], float]] = []


@stage.external
def submit(ctx: StageContext, number: int) -> Suspended[int, int]:
    return suspend(number, check_after=6 * HOUR)


@submit.check(retry=Retry(attempts=1))
def submitted(ctx: StageContext, number: int) -> int | NotReady:
    asked.append(clock[-1]())
    return number if len(asked) == 4 else NotReady()


@stage
def publish(number: int) -> int:
    return number + 1


BATCH = Pipeline("batch", input=int).pipe(submitted).pipe(publish)


class Watched(ClockedStore):
    """A store that records what is written, transaction by transaction."""

    written: list[tuple[Change, ...]]

    @override
    def transact(self, work: Callable[[Any], R], /) -> R:
        seen: list[Change] = []
        result = super().transact(lambda tx: work(_Watching(tx, seen)))
        if seen:
            self.written.append(tuple(seen))
        return result


class _Watching:
    def __init__(self, tx: Transaction, seen: list[Change]) -> None:
        self._tx = tx
        self._seen = seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    def apply(self, changes: Collection[Change]) -> None:
        self._seen.extend(changes)
        self._tx.apply(tuple(changes))


@pytest.fixture
def fleet() -> Fleet:
    asked.clear()
    fleet = Fleet((BATCH,))
    watched = Watched(fleet.time)
    watched.written = []
    fleet.store = watched
    fleet.engine = fleet.open(fleet.time)
    clock.append(fleet.time.monotonic)
    fleet.engine.sync.start(BATCH(1), id="x")
    return fleet


def a_day_has_gone_well(fleet: Fleet, late: float) -> None:
    """Check that each of four polls was made when due, and that only the rows of two stages were written."""
    run = fleet.store.read(FindRun(RunName("default", "x")))
    assert run is not None
    assert (run.status, run.error) == (RunStatus.COMPLETED, None)
    assert fleet.engine.sync.handle(BATCH, "x").result() == 2
    before = 0.0
    for check in asked:
        assert 6 * 3_600 <= check - before <= 6 * 3_600 + late
        before = check
    assert len(asked) == 4
    assert [row.type for row in fleet.store.dump().history[run.key]] == [
        "run.created",
        "stage.suspended",
        "stage.completed",
        "stage.completed",
        "run.completed",
    ]
    assert isinstance(fleet.store, Watched)
    checks: list[Job] = []
    others: Counter[type[Change]] = Counter()
    for changes in fleet.store.written:
        of_run = [change for change in changes if run.key in str(change)]
        if any(
            isinstance(one, Update) and isinstance(one.record, Job) and one.record.kind is JobKind.POLL
            for one in of_run
        ):
            # While it waits one row is written, that of its job, and no other of this run's.
            (only,) = of_run
            assert isinstance(only, Update)
            assert isinstance(only.record, Job)
            checks.append(only.record)
        else:
            others.update(
                type(one)
                for one in of_run
                if (isinstance(one, Insert) and isinstance(one.record, Job))
                or (isinstance(one, Delete) and one.table is JOBS)
            )
    # Each check is queued and claimed; of those that find nothing, it falls asleep again.
    assert Counter(job.state.value for job in checks) == {"queued": 4, "leased": 4, "sleeping": 3}
    assert {job.epoch for job in checks if job.state.value == "leased"} == {1, 2, 3, 4}
    assert others[Insert] + others[Delete] <= 6


def test_a_worker_asks_four_times_in_a_day_and_writes_a_row_for_each(fleet: Fleet) -> None:
    fleet.worker()
    fleet.worker()
    fleet.pass_time(25 * HOUR)

    a_day_has_gone_well(fleet, late=181)
    assert (
        sum(worker.calls.counts.fenced + worker.calls.counts.sessions_lost for worker in fleet.workers) == 0
    )
    assert sum(worker.calls.counts.claimed for worker in fleet.workers) == 6


def _work(hosts: Sequence[ServerlessHost], minute: int) -> int:
    """Act as a timer and a queue: a tick each minute, by alternating functions, and a call for available jobs."""
    hosts[minute % len(hosts)].run_maintenance_tick()
    return hosts[(minute + 1) % len(hosts)].process_available_jobs(max_jobs=10).processed


def test_functions_ask_four_times_in_a_day_and_write_a_row_for_each(fleet: Fleet) -> None:
    hosts = [ServerlessHost(_engine(fleet), time_limit=60.0) for _ in range(2)]
    processed = _work(hosts, 0)
    for minute in range(1, 25 * 60):
        fleet.time.advance(MINUTE)
        processed += _work(hosts, minute)

    a_day_has_gone_well(fleet, late=61)
    assert processed == 6


def _engine(fleet: Fleet) -> Engine:
    return fleet.open(fleet.time)
