"""Schedules on real databases: whoever fires them, and whatever is lost, a nominal time has one run."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import timedelta
from threading import Barrier
from typing import Final

import psycopg
import pytest

from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.kernel.calendars.specs import Every
from holdfast.kernel.commands import (
    Overlap,
    RunCreate,
    RunTerminate,
    ScheduleFire,
    SchedulePolicy,
    SchedulePut,
    SchedulesFired,
    admissions,
)
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.kernel.schedules.row_data import NominalOutcome, scheduled_start, timing_of, values_of
from holdfast.ports.clock import micros
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.runs import FindRun, ListRuns, RunFilter
from holdfast.ports.queries.schedules import FindSchedule, ListSchedules
from holdfast.ports.records.run import TERMINAL, Run, RunName, RunStatus
from holdfast.ports.records.schedule import ScheduleName, ScheduleRow
from holdfast.ports.records.values import Micros, Payload
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.threads import in_threads
from holdfast.testing.ids import SeededIds
from tests.integration.sql.proxy import Mode, Proxy
from tests.sizes import sized
from tests.unit.kernel.world import pipeline, stage

OpenStore = Callable[..., SqlPersistence]

pytestmark = pytest.mark.sized

PLAN: Final = pipeline(stage("a"), workflow="report")
MINUTE: Final = timedelta(minutes=1)
FIRE: Final = ScheduleFire(workflows=("report",))
THREADS: Final = sized(6, 10)
SCHEDULES: Final = sized(20, 50)
INSTANTS: Final = sized(6, 10)


def kernel_on(store: Persistence, clock: ManualClock, seed: int = 1) -> Kernel:
    """Return a kernel as another host has it: with ids of its own."""
    return Kernel(persistence=store, clock=clock, ids=SeededIds(seed, clock=clock), plans=[PLAN])


def put(kernel: Kernel, name: str, overlap: Overlap = Overlap.ALLOW) -> None:
    """Store a schedule that fires each minute."""
    start = RunCreate(workflow="report", input=Payload(inline="1"))
    policy = SchedulePolicy(overlap=overlap)
    kernel.dispatch(SchedulePut(schedule=name, start=start, timing=timing_of([Every(MINUTE)]), policy=policy))


def runs_of(store: Persistence) -> Sequence[Run]:
    """Return all runs."""
    return store.read(ListRuns(RunFilter(namespace="default"), limit=10_000))


def schedules_of(store: Persistence) -> Sequence[ScheduleRow]:
    """Return all schedules."""
    return store.read(ListSchedules(namespace="default", limit=1_000))


def started_by(store: Persistence) -> Counter[tuple[str, Micros]]:
    """Return how many runs each schedule started for each nominal time."""
    starts = [scheduled_start(run.scheduled) for run in runs_of(store)]
    return Counter((start.schedule, start.at) for start in starts if start is not None)


@pytest.mark.slow
def test_those_who_fire_at_once_start_each_run_once(url: str, open_store: OpenStore) -> None:
    """Each thread has a store and a clock of its own, as hosts have."""
    open_store(url).setup()
    stores = [open_store(url) for _ in range(THREADS)]
    began = ManualClock()
    first = kernel_on(stores[0], began)
    for number in range(SCHEDULES):
        put(first, f"every-minute-{number}")
    barrier = Barrier(THREADS)

    def host(thread: int) -> list[SchedulesFired]:
        clock = ManualClock(began.now())
        kernel = kernel_on(stores[thread], clock, seed=thread + 2)
        replies: list[SchedulesFired] = []
        for _ in range(INSTANTS):
            clock.advance(MINUTE)
            barrier.wait(60)
            replies.append(kernel.dispatch(FIRE))
        barrier.wait(60)
        while replies[-1].more:
            replies.append(kernel.dispatch(FIRE))
        return replies

    replies = [reply for of_host in in_threads(THREADS, host) for reply in of_host]
    last = ManualClock(began.now() + INSTANTS * MINUTE)
    replies.append(kernel_on(stores[0], last, seed=99).dispatch(FIRE))

    found, rows = started_by(stores[0]), schedules_of(stores[0])
    assert set(found.values()) == {1}
    assert Counter(run for reply in replies for run in reply.runs) == Counter(
        run.id for run in runs_of(stores[0])
    )
    for row in rows:
        mine = sorted(at for name, at in found if name == row.name)
        noted = [one.at for one in values_of(row.recent, NominalOutcome) if one.outcome == "started"]
        assert row.started == len(mine) == len(noted)
        assert noted == mine
        assert row.started + row.missed == INSTANTS
        assert (row.handled_until, row.next_at) == (micros(last.now()), micros(last.now() + MINUTE))
    assert sum(row.started for row in rows) == len(runs_of(stores[0]))
    assert sum(row.missed for row in rows) == sum(reply.missed for reply in replies)


@pytest.mark.slow
def test_hosts_with_different_clocks_start_each_run_once(url: str, open_store: OpenStore) -> None:
    """One is a minute ahead of the next."""
    open_store(url).setup()
    stores = [open_store(url) for _ in range(4)]
    began = ManualClock()
    first = kernel_on(stores[0], began)
    for number in range(5):
        put(first, f"every-minute-{number}")

    def host(thread: int) -> None:
        clock = ManualClock(began.now() + thread * MINUTE)
        kernel = kernel_on(stores[thread], clock, seed=thread + 2)
        for _ in range(INSTANTS):
            clock.advance(MINUTE)
            kernel.dispatch(FIRE)

    in_threads(4, host)
    # What one host had locked, the others skipped.
    last = ManualClock(began.now() + (INSTANTS + 3) * MINUTE)
    kernel_on(stores[0], last, seed=99).dispatch(FIRE)

    found = started_by(stores[0])
    assert set(found.values()) == {1}
    for row in schedules_of(stores[0]):
        assert row.started == sum(name == row.name for name, _ in found)
        assert row.started + row.missed == INSTANTS + 3


@pytest.fixture
def behind_proxy(proxy: Proxy, open_store: OpenStore) -> SqlPersistence:
    store = open_store(proxy.url, deadline=20.0)
    store.setup()
    return store


@pytest.mark.slow
@pytest.mark.service
@pytest.mark.parametrize("fault", ["cut after commit", "cut before commit"])
def test_a_commit_whose_answer_is_lost_starts_each_run_once(
    proxy: Proxy, behind_proxy: SqlPersistence, fault: Mode
) -> None:
    clock = ManualClock()
    kernel = kernel_on(behind_proxy, clock)
    for number in range(10):
        put(kernel, f"s{number}", Overlap.SKIP)
    clock.advance(MINUTE)
    proxy.fail(fault)

    fired = kernel.dispatch(FIRE)

    assert len(fired.runs) == 10
    assert set(started_by(behind_proxy).values()) == {1}
    assert {(row.started, row.skipped) for row in schedules_of(behind_proxy)} == {(1, 0)}
    assert kernel.dispatch(FIRE).runs == ()
    assert len(runs_of(behind_proxy)) == 10


@pytest.mark.slow
@pytest.mark.service
def test_a_lost_answer_while_another_host_fires_starts_each_run_once(
    proxy: Proxy, behind_proxy: SqlPersistence, postgres_database: str, open_store: OpenStore
) -> None:
    clock = ManualClock()
    kernel = kernel_on(behind_proxy, clock)
    other = kernel_on(open_store(postgres_database), clock, seed=2)
    for number in range(10):
        put(kernel, f"s{number}")
    for _ in range(INSTANTS):
        clock.advance(MINUTE)
        proxy.fail("cut after commit")
        in_threads(2, lambda thread: (kernel, other)[thread].dispatch(FIRE))
    kernel.dispatch(FIRE)

    found = started_by(behind_proxy)
    assert set(found.values()) == {1}
    assert len(found) == 10 * INSTANTS
    assert {row.started for row in schedules_of(behind_proxy)} == {INSTANTS}


@pytest.mark.slow
@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.QUEUE_ONE, Overlap.CANCEL, Overlap.TERMINATE])
@pytest.mark.parametrize("table", ["runs", "jobs"])
def test_a_run_that_can_not_be_read_holds_up_its_own_schedule_only(
    url: str, open_store: OpenStore, overlap: Overlap, table: str
) -> None:
    store, clock = open_store(url), ManualClock()
    store.setup()
    kernel = kernel_on(store, clock)
    put(kernel, "bad", overlap)
    put(kernel, "good")
    clock.advance(MINUTE)
    first = kernel.dispatch(FIRE)
    kernel.dispatch_many(admissions("default", first.follow_up))
    damaged = next(run for run in first.runs if run.startswith("bad/"))
    (key,) = (run.key for run in runs_of(store) if run.id == damaged)
    change(
        url,
        f"UPDATE holdfast_runs SET status = 'newer' WHERE key = '{key}'"
        if table == "runs"
        else f"UPDATE holdfast_jobs SET kind = 'newer' WHERE run = '{key}'",
    )

    for skipped in (1, 2):
        clock.advance(MINUTE)
        fired = kernel.dispatch(FIRE)
        bad = store.read(FindSchedule(ScheduleName("default", "bad")))
        assert bad is not None
        assert bad.problem is None
        assert fired.runs[-1].startswith("good/")
        if table == "runs" and skipped == 2 and overlap is not Overlap.SKIP:
            break  # it was blocked, and so it has a status again
        assert [run.partition("/")[0] for run in fired.runs] == ["good"]
        assert fired.skipped == 1
        assert (bad.started, bad.skipped) == (1, skipped)
        assert values_of(bad.recent, NominalOutcome)[-1].run == damaged

    # Once it can be read and has ended, the schedule continues.
    change(url, "UPDATE holdfast_jobs SET kind = 'stage'")
    run = store.read(FindRun(RunName("default", damaged)))
    assert run is not None
    if run.status not in TERMINAL:
        # Under `skip`, jobs are not even read.
        is_read = (table, overlap) != ("jobs", Overlap.SKIP)
        assert run.status is (RunStatus.BLOCKED if is_read else RunStatus.RUNNING)
        kernel.dispatch(RunTerminate(run_id=damaged))
        clock.advance(MINUTE)
        assert sorted(one.partition("/")[0] for one in kernel.dispatch(FIRE).runs) == ["bad", "good"]


@pytest.mark.slow
def test_a_run_that_exists_and_can_not_be_read_is_not_started_again(url: str, open_store: OpenStore) -> None:
    store, clock = open_store(url), ManualClock()
    store.setup()
    kernel = kernel_on(store, clock)
    put(kernel, "s")
    clock.advance(MINUTE)
    (damaged,) = kernel.dispatch(FIRE).runs
    change(url, "UPDATE holdfast_runs SET status = 'newer'")
    minute, before = 60_000_000, micros(clock.now())
    change(url, f"UPDATE holdfast_schedules SET handled_until = {before - minute}, next_at = {before}")

    assert kernel.dispatch(FIRE).runs == ()

    (row,) = schedules_of(store)
    last = values_of(row.recent, NominalOutcome)[-1]
    assert (last.outcome, last.run, row.started) == ("existing", damaged, 1)


def change(url: str, sql: str) -> None:
    """Make a change as only a fault can."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
            connection.execute(sql)
    else:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(sql.encode())
