"""Optimistic settles of single steps from the row cache: one round trip, and results as with locks."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import psycopg
import pytest
from attrs import evolve

from holdfast.adapters.sql.database import ChangedError
from holdfast.adapters.sql.dialect import LONG_TEXT
from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.adapters.sql.postgresql import row_cache
from holdfast.adapters.sql.postgresql.optimistic import OptimisticTransaction
from holdfast.adapters.sql.postgresql.row_cache import (
    KNOWN_MAX,
    LACKING_MAX,
    LACKING_RUNS,
    TRUSTED,
    CachedRun,
    RowCache,
)
from holdfast.ports.changes import Change, Delete, Insert, Update
from holdfast.ports.errors import RefusedError
from holdfast.ports.persistence import Transaction
from holdfast.ports.queries.history import HistoryOf
from holdfast.ports.queries.runs import JobsOfRun, RunsByKey
from holdfast.ports.queries.values import LoadWork
from holdfast.ports.records.job import Job, JobKey, JobKind, JobState
from holdfast.ports.records.run import RunStatus
from holdfast.ports.records.session import SessionState
from holdfast.ports.records.values import Payload
from holdfast.ports.searches import ClaimableJobs, LockedAttempts, QueueClaim
from holdfast.ports.tables import JOBS, RUNS
from holdfast.testing.conformance.builders import (
    DEFINITION,
    NAMESPACE,
    NOW,
    QUEUE,
    a_job,
    a_key,
    a_leased_job,
    a_row,
    a_run,
    a_session,
)
from tests.integration.sql.proxy import Mode, Proxy

pytestmark = pytest.mark.service

OpenStore = Callable[..., SqlPersistence]

RUN = a_key(1)
JOB = JobKey(RUN, 1)


class Changed:
    """Counts transactions that used changed rows."""

    def __init__(self) -> None:
        self.times = 0


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> Changed:
    found = Changed()
    original = ChangedError.__init__

    def counted(self: ChangedError, *args: object) -> None:
        found.times += 1
        original(self, *args)

    monkeypatch.setattr(ChangedError, "__init__", counted)
    return found


@pytest.fixture
def postgres_database(postgres_with_tables: str) -> str:
    """The database behind the proxy, with tables."""
    return postgres_with_tables


def applied(changes: Sequence[Change]) -> Callable[[Transaction], None]:
    return lambda tx: tx.apply(changes)


def prepared(store: SqlPersistence, *numbers: int) -> None:
    """Store runs with one leased job each."""
    for number in numbers:
        changes: list[Change] = [Insert(a_run(number)), Insert(a_leased_job(number, session="s"))]
        store.transact(applied(changes))


@pytest.fixture
def store(proxy: Proxy, open_store: OpenStore) -> SqlPersistence:
    store = open_store(proxy.url, deadline=20.0)
    prepared(store, 1)
    return store


@pytest.fixture
def other(postgres_database: str, open_store: OpenStore) -> SqlPersistence:
    """The store as another process sees it."""
    return open_store(postgres_database)


class Step:
    """The transaction of a step: it reads a run and its job, and appends a row. Returns the row's number."""

    def __init__(self, run: str = RUN, payload: str = "1") -> None:
        self.run = run
        self.payload = payload
        self.held: list[LockedAttempts] = []

    def __call__(self, tx: Transaction) -> int:
        held = tx.lock_attempts([self.run], [JobKey(self.run, 1)], [])
        self.held.append(held)
        (run,) = held.runs
        number = run.last_row + 1
        row = a_row(self.run, number, payload=Payload(inline=self.payload))
        tx.apply([Update(evolve(run, last_row=number, updated_at=row.at)), Insert(row)])
        return number


def known(store: SqlPersistence, run: str = RUN) -> int:
    """Commit steps until the row cache is used for a run, and return the number of the last one's row."""
    return [store.transact(Step(run)) for _ in range(TRUSTED)][-1]


def numbers_of(store: SqlPersistence, run: str = RUN) -> list[int]:
    return [row.number for row in store.read(HistoryOf(run))]


@pytest.mark.slow
def test_a_step_after_others_is_one_round_trip(proxy: Proxy, store: SqlPersistence, changed: Changed) -> None:
    trips: list[int] = []
    for _ in range(TRUSTED + 10):  # more than it takes until the server keeps the statements
        before = proxy.round_trips
        store.transact(Step())
        trips.append(proxy.round_trips - before)
    assert trips[:TRUSTED] == [2] * TRUSTED
    assert trips[TRUSTED:].count(1) >= 9  # one of them has the server keep a statement
    assert max(trips) == 2
    assert changed.times == 0
    assert numbers_of(store) == list(range(1, TRUSTED + 11))


@pytest.mark.slow
def test_what_is_known_is_what_is_there(
    store: SqlPersistence, other: SqlPersistence, changed: Changed
) -> None:
    known(store)
    step = Step()
    store.transact(step)
    store.transact(step)
    ((run,), (job,)) = step.held[-1].runs, step.held[-1].jobs
    (there,) = other.read(RunsByKey((RUN,)))
    assert there == evolve(run, last_row=run.last_row + 1, updated_at=there.updated_at)
    assert other.read(JobsOfRun(RUN)) == (job,)
    assert changed.times == 0


@pytest.mark.slow
def test_what_others_write_meanwhile_is_seen(
    store: SqlPersistence, other: SqlPersistence, changed: Changed
) -> None:
    number = known(store)
    other.transact(Step())
    step = Step()
    assert store.transact(step) == number + 2
    assert [held.runs[0].last_row for held in step.held] == [number, number + 1]
    assert numbers_of(store) == list(range(1, number + 3))
    assert changed.times == 1


def updated(*changes: Change) -> Callable[[Transaction], None]:
    """Return work that locks the run and its job before it changes them."""

    def work(tx: Transaction) -> None:
        tx.lock(RUNS, [RUN])
        tx.lock(JOBS, [JOB])
        tx.apply(changes)

    return work


@pytest.mark.slow
def test_a_job_that_somebody_else_has_by_now_is_seen(
    store: SqlPersistence, other: SqlPersistence, changed: Changed
) -> None:
    known(store)
    (job,) = other.read(JobsOfRun(RUN))
    other.transact(updated(Update(evolve(job, epoch=2, session="other"))))
    step = Step()
    store.transact(step)
    assert [held.jobs[0].epoch for held in step.held] == [1, 2]
    assert changed.times == 1


@pytest.mark.slow
def test_a_run_that_looks_the_same_in_another_version_is_read_again(
    store: SqlPersistence, other: SqlPersistence, changed: Changed
) -> None:
    known(store)
    (run,) = other.read(RunsByKey((RUN,)))
    for status in (RunStatus.PAUSED, run.status):
        other.transact(updated(Update(evolve(run, status=status))))
    store.transact(Step())
    assert changed.times == 1


@pytest.mark.slow
def test_work_that_writes_nothing_is_told_what_is_so(
    store: SqlPersistence, other: SqlPersistence, changed: Changed
) -> None:
    number = known(store)
    other.transact(Step())
    assert store.transact(lambda tx: tx.lock_attempts([RUN], [JOB], []).runs[0].last_row) == number + 1
    assert changed.times == 1


@pytest.mark.slow
def test_work_that_needs_more_locks_all(
    store: SqlPersistence, other: SqlPersistence, changed: Changed
) -> None:
    prepared(store, 2)
    number = known(store)
    other.transact(Step())

    def work(tx: Transaction) -> tuple[int, str]:
        (run,) = tx.lock_attempts([RUN], [JOB], []).runs
        (second,) = tx.lock(RUNS, [a_key(2)])
        tx.apply([Update(evolve(run, status=RunStatus.PAUSED)), Update(second)])
        return run.last_row, second.id

    assert store.transact(work) == (number + 1, "run-2")
    assert changed.times == 1


@pytest.mark.slow
def test_work_that_writes_more_than_a_step_locks_all(
    store: SqlPersistence, other: SqlPersistence, changed: Changed
) -> None:
    known(store)

    def work(tx: Transaction) -> None:
        held = tx.lock_attempts([RUN], [JOB], [])
        run, job = held.runs[0], held.jobs[0]
        tx.apply([Update(evolve(run, status=RunStatus.PAUSED)), Update(evolve(job, attempts=2))])

    store.transact(work)
    assert other.read(RunsByKey((RUN,)))[0].status is RunStatus.PAUSED
    assert changed.times == 1
    step = Step()
    store.transact(step)  # what was known of the run is forgotten
    assert [held.jobs[0].attempts for held in step.held] == [2]
    assert changed.times == 1


@pytest.mark.slow
def test_what_is_written_with_other_runs_is_known_no_more(store: SqlPersistence, changed: Changed) -> None:
    prepared(store, 2)
    number = known(store)

    def work(tx: Transaction) -> None:
        runs = tx.lock(RUNS, [RUN, a_key(2)])
        tx.apply([Update(evolve(run, status=RunStatus.PAUSED)) for run in runs])

    store.transact(work)
    assert store.transact(Step()) == number + 1
    assert changed.times == 0


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["commit", "rollback"])
@pytest.mark.parametrize("table", ["holdfast_runs", "holdfast_jobs"])
def test_what_others_have_locked_is_waited_for(
    store: SqlPersistence, postgres_database: str, changed: Changed, table: str, ends: str
) -> None:
    """The lock's owner may change the row: then the cached version is old, though it was current before."""
    number = known(store)
    step = Step()
    with ThreadPoolExecutor(1) as pool, psycopg.connect(postgres_database) as connection:
        if table == "holdfast_runs":
            connection.execute("UPDATE holdfast_runs SET last_row = last_row WHERE key = %s", (RUN,))
        else:
            connection.execute("UPDATE holdfast_jobs SET epoch = epoch + 1 WHERE run = %s", (RUN,))
        done = pool.submit(store.transact, step)
        until_somebody_waits(postgres_database)
        assert not done.done()
        (connection.commit if ends == "commit" else connection.rollback)()
        assert done.result() == number + 1
    assert changed.times == (ends == "commit")
    assert len(step.held) == 1 + (ends == "commit")
    if table == "holdfast_jobs" and ends == "commit":
        assert step.held[-1].jobs[0].epoch == 2
    assert numbers_of(store) == list(range(1, number + 2))


def until_somebody_waits(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        until = time.monotonic() + 10
        waits = (
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        while connection.execute(waits).fetchone() is None:
            assert time.monotonic() < until, "nobody waits for a lock"
            time.sleep(0.005)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "times"),
    [
        ("cut after commit", 1),
        ("cut before commit", 2),
        pytest.param("swallow commit", 1, marks=pytest.mark.slow),
    ],
)
def test_a_step_whose_answer_is_lost_happens_once(
    proxy: Proxy, store: SqlPersistence, fault: Mode, times: int
) -> None:
    number = known(store)
    step = Step()
    proxy.fail(fault)
    assert store.transact(step) == number + 1
    assert proxy.fired[fault] == 1
    assert len(step.held) == times
    assert numbers_of(store) == list(range(1, number + 2))


@pytest.mark.slow
def test_who_connects_anew_knows_nothing(proxy: Proxy, store: SqlPersistence, changed: Changed) -> None:
    """After a failover another server may have lost the last commits and reused their versions."""
    known(store)
    proxy.fail("cut before commit")
    store.transact(Step())
    before = proxy.round_trips
    store.transact(Step())
    assert proxy.round_trips - before >= 2
    assert changed.times == 0


@pytest.mark.slow
def test_a_value_that_the_store_refuses_is_refused(store: SqlPersistence) -> None:
    number = known(store)
    with pytest.raises(RefusedError):
        store.transact(Step(payload="a\0b"))
    assert store.transact(Step()) == number + 1
    assert numbers_of(store) == list(range(1, number + 2))


def test_a_long_text_is_stored_as_it_is(proxy: Proxy, store: SqlPersistence, changed: Changed) -> None:
    """In one round trip too, and between short ones."""
    number = known(store)
    texts = [f'"{one * (LONG_TEXT // len(one))}"' for one in ("x", "\\n", "é😀", '\\"', "\u2028")]
    trips: list[int] = []
    for text in (*texts, "1", *texts):
        before = proxy.round_trips
        store.transact(Step(payload=text))
        trips.append(proxy.round_trips - before)
    rows = store.read(HistoryOf(RUN, after=number))
    assert [row.payload for row in rows] == [Payload(inline=text) for text in (*texts, "1", *texts)]
    assert trips.count(1) >= 9  # the server keeps each of two statements once
    assert changed.times == 0


@pytest.mark.parametrize("options", [{"versions": False}, {"session_settings": False}, {"pipeline": False}])
def test_it_is_the_same_with_other_settings(
    open_store: OpenStore, postgres_database: str, options: dict[str, bool], changed: Changed
) -> None:
    store = open_store(postgres_database, **options)
    prepared(store, 1)
    assert [store.transact(Step()) for _ in range(10)] == list(range(1, 11))
    assert changed.times == 0


def test_a_run_that_is_not_there_is_not_in_the_answer(store: SqlPersistence) -> None:
    held = store.transact(lambda tx: tx.lock_attempts([a_key(9)], [JobKey(a_key(9), 1)], []))
    assert held == LockedAttempts([], [], [])
    held = store.transact(lambda tx: tx.lock_attempts([RUN], [JobKey(RUN, 9)], []))
    assert [run.key for run in held.runs] == [RUN]
    assert not held.jobs


def test_no_more_is_remembered_than_so_much() -> None:
    memory = RowCache()
    for number in range(KNOWN_MAX + 1):
        memory.keep(CachedRun(a_run(number), a_leased_job(number, session="s"), "1", "2", 1))
    assert memory.take(a_key(0), JobKey(a_key(0), 1)) is None
    assert memory.take(a_key(1), JobKey(a_key(1), 2)) is None
    assert memory.take(a_key(2), JobKey(a_key(2), 1)) is not None
    assert memory.take(a_key(2), JobKey(a_key(2), 1)) is None
    memory.forget([a_key(3), "none"])
    assert memory.take(a_key(3), JobKey(a_key(3), 1)) is None


@pytest.mark.slow
def test_many_who_write_the_same_runs_lose_nothing(
    postgres_database: str, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several stores and threads on few runs: each row has its number, and no old version of a job is used."""
    stores = [open_store(postgres_database) for _ in range(3)]
    prepared(stores[0], 1, 2, 3)
    went_by = 0
    lock = threading.Lock()
    original = OptimisticTransaction.commit

    def counted(self: OptimisticTransaction) -> None:
        nonlocal went_by
        original(self)
        with lock:
            went_by += not self.is_locked

    monkeypatch.setattr(OptimisticTransaction, "commit", counted)
    done: dict[str, list[tuple[int, int]]] = {a_key(number): [] for number in (1, 2, 3)}

    def steps(store: SqlPersistence, run: str) -> None:
        for times in range(60):
            step = Step(run)
            number = store.transact(step)
            with lock:
                done[run].append((number, step.held[-1].jobs[0].epoch))
            if times % 20 == 19:
                store.transact(lambda tx: claimed(tx, run))

    def claimed(tx: Transaction, run: str) -> None:
        held = tx.lock_attempts([run], [JobKey(run, 1)], [])
        number = held.runs[0].last_row + 1
        tx.apply(
            [
                Update(evolve(held.runs[0], last_row=number)),
                Insert(a_row(run, number, type="stage.lost")),
                Update(evolve(held.jobs[0], epoch=held.jobs[0].epoch + 1)),
            ]
        )

    # One run has one writer, who mostly goes by what is known; the others have three each.
    writers: Sequence[tuple[SqlPersistence, str]] = [
        (stores[0], a_key(1)),
        *((store, run) for store in stores for run in (a_key(2), a_key(3))),
    ]
    with ThreadPoolExecutor(len(writers)) as pool:
        for future in [pool.submit(steps, *writer) for writer in writers]:
            future.result()
    for run, found in done.items():
        rows = stores[0].read(HistoryOf(run))
        assert [row.number for row in rows] == list(range(1, len(rows) + 1))
        lost = [row.number for row in rows if row.type == "stage.lost"]
        assert len(found) + len(lost) == len(rows)
        for number, epoch in found:
            assert epoch == 1 + sum(one < number for one in lost)
    assert went_by >= 40


# Claims -----------------------------------------------------------------------------------------------------------

SESSION = a_key(50)
PAYLOAD = Payload(inline='{"number":1}')


def queued(store: SqlPersistence, number: int = 2, parent: str | None = None) -> JobKey:
    """Store a run of a function with a queued job, and the session for it. Return the job's key."""
    run = a_run(number, last_row=1, last_job=1, open_jobs=1, parent=parent)
    job = a_job(number, kind=JobKind.WORKFLOW, input="1")
    row = a_row(number, 1, type="run.created", payload=PAYLOAD)
    store.transact(
        applied([Insert(run), Insert(job), Insert(row), Insert(a_session(50))]),
    )
    return job.key


def lease_all(tx: Transaction, limit: int = 9) -> list[Job]:
    """Lease the queued job."""
    lane = QueueClaim(queue=QUEUE, definitions=(DEFINITION,), limit=limit)
    found = tx.find(ClaimableJobs(NAMESPACE, [lane], limit, session=SESSION))
    jobs = [
        evolve(job, state=JobState.LEASED, session=SESSION, epoch=job.epoch + 1, attempts=1, leased_at=NOW)
        for job in found.jobs
    ]
    tx.apply([Update(job) for job in jobs])
    return jobs


class End:
    """The transaction of the end of a function: a row, and the job deleted. Returns the row's number."""

    def __init__(self, job: JobKey, sessions: Sequence[str] = (SESSION,)) -> None:
        self.job = job
        self.sessions = sessions
        self.held: list[LockedAttempts] = []

    def __call__(self, tx: Transaction) -> int:
        held = tx.lock_attempts([self.job.run], [self.job], self.sessions)
        self.held.append(held)
        (run,) = held.runs
        number = run.last_row + 1
        row = a_row(self.job.run, number, type="run.completed", payload=Payload(inline="2"))
        ended = evolve(
            run, status=RunStatus.COMPLETED, last_row=number, open_jobs=0, ended_at=row.at, result=str(number)
        )
        tx.apply([Update(ended), Delete(JOBS, self.job), Insert(row)])
        return number


def trips_of(proxy: Proxy, call: Callable[[], object]) -> int:
    before = proxy.round_trips
    call()
    return proxy.round_trips - before


@pytest.mark.slow
def test_a_run_that_comes_alone_is_claimed_in_two_round_trips_and_each_of_its_transactions_is_one_more(
    proxy: Proxy, store: SqlPersistence, changed: Changed
) -> None:
    trips: list[list[int]] = []
    for number in range(2, 20):  # more than it takes until the server keeps the statements
        job = queued(store, number)
        work = LoadWork(((job, 1),), ((job.run, 1),))
        trips.append(
            [
                trips_of(proxy, partial(store.transact, lease_all)),
                trips_of(proxy, partial(store.read, work)),
                trips_of(proxy, partial(store.transact, Step(job.run))),
                trips_of(proxy, partial(store.transact, End(job))),
            ]
        )
    assert trips[-1] == [2, 0, 1, 1]
    assert changed.times == 0


@pytest.mark.slow
def test_what_is_read_with_a_claim_is_what_is_there(store: SqlPersistence, other: SqlPersistence) -> None:
    job = queued(store)
    (leased,) = store.transact(lease_all)
    work = LoadWork(((job, 1),), ((job.run, 1),))
    assert store.read(work) == other.read(work)
    assert store.read(work).values[0].payloads == (PAYLOAD,)
    step, end = Step(job.run), End(job)
    store.transact(step)
    (run,) = other.read(RunsByKey((job.run,)))
    assert store.transact(end) == run.last_row + 1 == 3
    assert end.held == [LockedAttempts([run], [leased], (a_session(50),))]
    (after,) = other.read(RunsByKey((job.run,)))
    assert after == evolve(
        run, status=RunStatus.COMPLETED, last_row=3, open_jobs=0, ended_at=NOW + 3, result="3"
    )
    assert other.read(JobsOfRun(job.run)) == ()
    assert numbers_of(other, job.run) == [1, 2, 3]


@pytest.mark.slow
def test_what_was_read_with_another_claim_or_long_ago_is_read_again(
    proxy: Proxy, store: SqlPersistence, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = queued(store)
    store.transact(lease_all)

    def asks(epoch: int, reference: int) -> bool:
        return trips_of(proxy, lambda: store.read(LoadWork(((job, epoch),), ((job.run, reference),)))) > 0

    assert not asks(1, 1)
    assert asks(2, 1)
    assert asks(1, 2)
    monkeypatch.setattr(row_cache, "LEASE_SECONDS", -1.0)
    assert asks(1, 1)


@pytest.mark.slow
def test_several_that_are_claimed_together_are_read_when_they_are_asked_for(
    proxy: Proxy, store: SqlPersistence
) -> None:
    jobs = [queued(store, number) for number in (2, 3)]
    assert len(store.transact(lease_all)) == 2
    work = LoadWork(tuple((job, 1) for job in jobs), tuple((job.run, 1) for job in jobs))
    assert trips_of(proxy, lambda: store.read(work)) == 1
    assert len(store.read(work).runs) == 2


@pytest.mark.slow
@pytest.mark.parametrize("what", ["run", "job", "session"])
def test_an_end_that_goes_by_what_has_changed_is_done_again(
    store: SqlPersistence, other: SqlPersistence, changed: Changed, what: str
) -> None:
    job = queued(store)
    (leased,) = store.transact(lease_all)
    session = evolve(a_session(50), state=SessionState.DEAD)
    match what:
        case "run":
            other.transact(Step(job.run))
        case "job":
            other.transact(applied([Update(evolve(leased, epoch=2))]))
        case _:
            other.transact(applied([Insert(session)]))
    end = End(job)
    assert store.transact(end) == 2 + (what == "run")
    assert changed.times == 1
    assert end.held[1].jobs[0].epoch == 1 + (what == "job")
    assert [one.state for one in end.held[1].sessions] == [
        SessionState.DEAD if what == "session" else SessionState.OPEN
    ]
    assert numbers_of(other, job.run) == list(range(1, 3 + (what == "run")))


def test_an_end_that_needs_no_session_goes_by_none(
    store: SqlPersistence, other: SqlPersistence, changed: Changed
) -> None:
    job = queued(store)
    store.transact(lease_all)
    other.transact(applied([Insert(a_session(50))]))
    assert store.transact(End(job, ())) == 2
    assert changed.times == 0


def test_an_end_that_asks_for_another_session_locks_all(store: SqlPersistence, changed: Changed) -> None:
    job = queued(store)
    store.transact(lease_all)
    end = End(job, (a_key(51), SESSION))
    assert store.transact(end) == 2
    assert [one.id for one in end.held[0].sessions] == [SESSION]
    assert changed.times == 0


@pytest.mark.parametrize(("fault", "times"), [("cut after commit", 1), ("cut before commit", 2)])
def test_an_end_whose_answer_is_lost_happens_once(
    proxy: Proxy, store: SqlPersistence, fault: Mode, times: int
) -> None:
    job = queued(store)
    store.transact(lease_all)
    end = End(job)
    proxy.fail(fault)
    assert store.transact(end) == 2
    assert proxy.fired[fault] == 1
    assert len(end.held) == times
    assert numbers_of(store, job.run) == [1, 2]
    assert store.read(JobsOfRun(job.run)) == ()


def test_a_claim_whose_answer_is_lost_happens_once(proxy: Proxy, store: SqlPersistence) -> None:
    job = queued(store)
    proxy.fail("cut after commit")
    (leased,) = store.transact(lease_all)
    assert store.read(JobsOfRun(job.run)) == (leased,)
    assert store.read(LoadWork(((job, 1),), ((job.run, 1),))).values[0].payloads == (PAYLOAD,)
    assert store.transact(End(job)) == 2


def test_the_run_of_a_child_is_locked_first(store: SqlPersistence, changed: Changed) -> None:
    """Its end changes more than a run and its history: the parent's job, too."""
    job = queued(store, parent=JOB.text)
    store.transact(lease_all)
    end = End(job, ())
    assert store.transact(end) == 2
    assert len(end.held) == 1
    assert changed.times == 0


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"versions": False}, {"session_settings": False}, {"pipeline": False}])
def test_a_claim_is_the_same_with_other_settings(
    open_store: OpenStore, postgres_database: str, options: dict[str, bool], changed: Changed
) -> None:
    store = open_store(postgres_database, **options)
    for number in range(2, 12):
        job = queued(store, number)
        assert [one.key for one in store.transact(lease_all)] == [job]
        assert store.read(LoadWork(((job, 1),), ((job.run, 1),))).values[0].payloads == (PAYLOAD,)
        assert (store.transact(Step(job.run)), store.transact(End(job))) == (2, 3)
    assert changed.times == 0


@pytest.mark.slow
def test_where_what_is_known_is_too_little_each_time_it_is_tried_seldom(
    store: SqlPersistence, changed: Changed
) -> None:
    """The same as for runs whose events go to a sink."""

    def rest(job: JobKey, tx: Transaction) -> None:
        held = tx.lock_attempts([job.run], [job], [SESSION])
        tx.apply([Update(evolve(held.jobs[0], state=JobState.SLEEPING, wake_at=NOW, session=None))])

    for number in range(2, 2 + LACKING_MAX + LACKING_RUNS):
        job = queued(store, number)
        store.transact(lease_all)
        store.transact(partial(rest, job))
    assert changed.times == LACKING_MAX
    for number in range(100, 105):
        job = queued(store, number)
        store.transact(lease_all)
        store.transact(End(job))
    assert changed.times == LACKING_MAX
    job = queued(store, 200)
    store.transact(lease_all)
    store.transact(partial(rest, job))
    assert changed.times == LACKING_MAX + 1  # it is trusted again
