"""The contract of a store for concurrent transactions.

The threads of these tests meet only outside transactions, or wait inside one for a moment at most: so the tests also
end on a store that runs one transaction at a time.
"""

from collections.abc import Callable, Sequence
from functools import partial
from threading import Event, Thread
from typing import Final

import pytest
from attrs import evolve

from holdfast.ports.changes import AdvanceStreams, Change, Insert, Update
from holdfast.ports.persistence import Persistence, Transaction
from holdfast.ports.queries.history import HistoryOf
from holdfast.ports.queries.runs import JobsOfRun, ListRuns, RunFilter, RunsByKey
from holdfast.ports.records.job import Job, JobKind, JobState
from holdfast.ports.records.outbox import Sink, Stream, StreamHead
from holdfast.ports.records.run import Run, RunName, RunStatus
from holdfast.ports.records.schedule import ScheduleRow
from holdfast.ports.records.session import LeaderLease, Session
from holdfast.ports.searches import (
    ActiveRuns,
    AllSinks,
    ClaimableJobs,
    DueJobs,
    DueSchedules,
    DueStreams,
    ExpiredSessions,
    IncompleteRuns,
    JobsOfRuns,
    LatestRuns,
    LatestRunsAndDrivers,
    LostJobs,
    SchedulesByName,
    SchedulesOfOtherZones,
    SinksByName,
)
from holdfast.ports.tables import JOBS, LEADERS, PLANS, REPLIES, RUNS, SCHEDULES, SESSIONS, STREAMS
from holdfast.testing.conformance.builders import (
    NAMESPACE,
    NOW,
    a_job,
    a_key,
    a_leader_lease,
    a_plan,
    a_reply,
    a_row,
    a_run,
    a_schedule,
    a_session,
    a_sink,
    a_stream,
)
from holdfast.testing.conformance.persistence.case import (
    PersistenceCase,
    a_queue_claim,
    claimable,
    jobs_of,
    lease,
    put,
    put_jobs,
    put_run,
    query,
    the_run,
)
from holdfast.testing.conformance.threads import DEADLINE_SECONDS, in_threads

_MOMENT_SECONDS: Final = 0.2
"""How long a transaction waits for an event that can't happen on a store that runs one at a time."""


class Concurrency(PersistenceCase):
    """Locks, races and isolation."""

    def test_two_transactions_on_one_run_wait_for_each_other(self, store: Persistence) -> None:
        """A write to a locked row is never overwritten with values that another transaction read before."""
        put_run(store, a_run(), a_job())

        def append(thread: int) -> None:
            for _ in range(15):
                store.transact(lambda tx: _append_row(tx, f"thread-{thread}"))

        in_threads(6, append)

        assert the_run(store, a_key(1)).last_row == 90
        rows = store.read(HistoryOf(a_key(1)))
        assert list(range(1, 91)) == [row.number for row in rows]
        assert {15} == {sum(row.type == f"thread-{thread}" for row in rows) for thread in range(6)}

    def test_two_stores_on_one_run_wait_for_each_other(self, store: Persistence, other: Persistence) -> None:
        """The same with transactions from two processes."""
        put_run(store, a_run(), a_job())

        def append(at: int) -> None:
            for _ in range(20):
                (store, other)[at].transact(lambda tx: _append_row(tx, "x"))

        in_threads(2, append)

        assert list(range(1, 41)) == [row.number for row in store.read(HistoryOf(a_key(1)))]

    @pytest.mark.parametrize(
        "how",
        [
            "runs",
            "latest_runs",
            "latest_drivers",
            "held runs",
            "held jobs",
            "jobs",
            "jobs_of",
            "sessions",
            "duties",
            "sinks",
            "streams",
            "schedules",
            "due schedules",
            "named schedules",
            "schedules of other zones",
        ],
    )
    def test_what_a_read_returned_stays_locked(self, store: Persistence, how: str) -> None:
        """Concurrent increments in locked rows lose no count."""
        put_run(store, a_run(), a_job(kind=JobKind.WORKFLOW))
        put(store, Insert(a_session(expires_at=0)), Insert(a_leader_lease(until=0)))
        put(store, Insert(a_schedule(zones="2025b")))
        put(
            store,
            Insert(a_sink()),
            AdvanceStreams(StreamHead(sink=a_sink().key, run=a_key(1), head_row=1, at=NOW)),
        )

        def count(_: int) -> None:
            for _ in range(10):
                store.transact(lambda tx: tx.apply([COUNTERS[how](tx)]))

        in_threads(4, count)

        counted = store.transact(COUNTERS[how])
        assert _count_in(counted) == 41

    def test_the_order_in_which_keys_are_given_makes_no_deadlock(self, store: Persistence) -> None:
        """Locks are taken in the order of the keys, independent of the order of arguments."""
        keys = [a_key(number) for number in range(20)]
        put_jobs(store, *(a_job(key, 1) for key in keys))

        def touch(thread: int) -> None:
            for _ in range(10):
                wanted = keys if thread % 2 else keys[::-1]
                store.transact(partial(_touch, keys=wanted))

        in_threads(4, touch)

        assert {40} == {run.last_row for run in store.read(RunsByKey(tuple(keys)))}

    def test_a_deadlock_is_resolved(self, store: Persistence) -> None:
        """Two transactions that lock the same runs one by one, in opposite orders, both succeed."""
        put_run(store, a_run(1), a_job(1))
        put_run(store, a_run(2), a_job(2))
        met = [Event(), Event()]

        def cross(thread: int) -> None:
            first, second = (a_key(1), a_key(2)) if thread else (a_key(2), a_key(1))

            def work(tx: Transaction) -> None:
                tx.lock(RUNS, [first])
                met[thread].set()
                met[1 - thread].wait(_MOMENT_SECONDS)
                _touch(tx, [first, second])

            store.transact(work)

        in_threads(2, cross)

        assert {2} == {run.last_row for run in store.read(RunsByKey((a_key(1), a_key(2))))}

    @pytest.mark.parametrize("threads", [2, 8])
    def test_one_of_those_who_create_the_same_run_wins(self, store: Persistence, threads: int) -> None:
        """The others find the winner's run, and none of their changes are stored."""

        def get_or_create(thread: int) -> list[str]:
            return [
                store.transact(partial(_get_or_create, name=f"order-{at}", thread=thread)) for at in range(10)
            ]

        found = in_threads(threads, get_or_create)

        assert len({tuple(keys) for keys in found}) == 1
        assert sorted(found[0]) == sorted(
            run.key for run in store.read(ListRuns(RunFilter(namespace=NAMESPACE), limit=1_000))
        )
        assert sorted(found[0]) == [job.run for job in jobs_of(store, *found[0])]

    def test_one_of_those_who_use_the_same_idempotency_key_wins(self, store: Persistence) -> None:
        """The others get the winner's reply."""

        def dispatch(thread: int) -> str:
            return store.transact(lambda tx: _replay_or_store(tx, thread))

        bodies = in_threads(6, dispatch)

        assert len(set(bodies)) == 1
        assert bodies[:1] == [
            reply.body for reply in query(store, lambda tx: tx.get(REPLIES, [(NAMESPACE, "key-1")]))
        ]

    def test_everybody_may_store_the_same_plan(self, store: Persistence) -> None:
        """In any order, together with others."""
        plans = [a_plan(number) for number in range(20)]
        in_threads(4, lambda thread: put(store, *map(Insert, plans if thread % 2 else plans[::-1])))

        fingerprints = [plan.fingerprint for plan in plans]
        assert len(query(store, lambda tx: tx.get(PLANS, fingerprints))) == 20

    @pytest.mark.parametrize("how", ["latest_runs", "latest_runs_and_drivers", "runs"])
    def test_who_waits_for_a_run_finds_what_was_committed_meanwhile(
        self, store: Persistence, how: str
    ) -> None:
        """Including a new generation that did not exist when the wait began."""
        put_run(store, a_run(id="order"), a_job(kind=JobKind.WORKFLOW))
        found: list[Run] = []

        def wait() -> None:
            name = RunName(NAMESPACE, "order")

            def look(tx: Transaction) -> Sequence[Run]:
                match how:
                    case "latest_runs":
                        return tx.find(LatestRuns([name]))
                    case "latest_runs_and_drivers":
                        runs, (driver,), *_ = tx.find(LatestRunsAndDrivers([name]))
                        assert driver.key.run == runs[0].key
                        return runs
                    case _:
                        return tx.lock(RUNS, [a_key(1)])

            found.extend(store.transact(look))

        def rerun(tx: Transaction) -> None:
            (before,) = tx.find(LatestRuns([RunName(NAMESPACE, "order")]))
            waiting.start()
            waiting.join(_MOMENT_SECONDS)
            again = a_run(2, id="order", generation=2, open_jobs=1)
            ended = Update(evolve(before, status=RunStatus.COMPLETED, ended_at=NOW))
            tx.apply([ended, Insert(again), Insert(a_job(2, kind=JobKind.WORKFLOW))])

        waiting = Thread(target=wait, daemon=True)
        store.transact(rerun)
        waiting.join(DEADLINE_SECONDS)

        (run,) = found
        expected = (a_key(1), RunStatus.COMPLETED) if how == "runs" else (a_key(2), RunStatus.RUNNING)
        assert (run.key, run.status) == expected

    def test_nobody_reads_what_is_not_committed(self, store: Persistence) -> None:
        """No query or transaction sees a change that is rolled back."""
        put_run(store, a_run(), a_job())
        seen: list[object] = []
        read = Event()

        def look() -> None:
            seen.append(store.read(RunsByKey((a_key(1), a_key(2)))))
            seen.append(store.read(JobsOfRun(a_key(1))))
            seen.append(claimable(store, a_queue_claim(queue="reports")))
            read.set()

        def work(tx: Transaction) -> None:
            tx.apply([Insert(a_run(2)), Insert(a_job(1, 2, queue="reports"))])
            looking.start()
            read.wait(_MOMENT_SECONDS)
            raise LookupError("roll back")

        looking = Thread(target=look, daemon=True)
        with pytest.raises(LookupError):
            store.transact(work)
        looking.join(DEADLINE_SECONDS)

        assert [(evolve(a_run(), open_jobs=1, last_job=1),), (a_job(),), []] == seen

    def test_a_read_sees_what_another_committed_meanwhile(self, store: Persistence) -> None:
        """A transaction is not a snapshot of the instant at which it began."""
        self._skip_if_serial()
        put(store, Insert(a_run(1)))

        def work(tx: Transaction) -> Sequence[str]:
            tx.lock(RUNS, [a_key(1)])
            if not tx.lock(RUNS, [a_key(2)]):
                in_threads(1, lambda _: put(store, Insert(a_run(2))))
            return [run.key for run in tx.lock(RUNS, [a_key(2)])]

        assert [a_key(2)] == store.transact(work)

    @pytest.mark.parametrize(
        "what",
        [
            "claimable",
            "due",
            "expired_sessions",
            "due_streams",
            "due_schedules",
            "schedules_of_other_zones",
        ],
    )
    def test_what_others_have_locked_is_skipped(self, store: Persistence, what: str) -> None:
        """The search does not wait for the lock."""
        self._skip_if_serial()
        put_jobs(store, *(a_job(run, 1) for run in range(4)))
        put_jobs(store, *(a_job(run, 1, state=JobState.SLEEPING, wake_at=run) for run in range(4, 8)))
        put(store, *(Insert(a_session(number, expires_at=number)) for number in range(4)))
        heads = (StreamHead(sink=a_sink().key, run=a_key(run), head_row=1, at=NOW) for run in range(4))
        put(store, Insert(a_sink()), *map(AdvanceStreams, heads))
        put(store, *(Insert(a_schedule(number, zones="2025b")) for number in range(4)))
        search = SEARCHES[what]

        def work(tx: Transaction) -> tuple[list[str], list[str]]:
            mine = search(tx, 2)
            theirs = in_threads(1, lambda _: store.transact(lambda tx: search(tx, 4)))[0]
            return mine, theirs

        mine, theirs = store.transact(work)

        assert len(mine) == 2
        assert len(theirs) == 2
        assert not set(mine) & set(theirs)

    def test_a_question_waits_for_no_lock(self, store: Persistence) -> None:
        """The answer is from the rows committed before."""
        if self.reads_wait:
            pytest.skip("questions to this store wait for the transaction that is under way")
        put_run(store, a_run(), a_job())

        def work(tx: Transaction) -> list[tuple[Job, ...]]:
            tx.lock(RUNS, [a_key(1)])
            tx.apply([Update(lease(job, a_key(5))) for job in tx.find(JobsOfRuns([a_key(1)]))])
            return in_threads(1, lambda _: store.read(JobsOfRun(a_key(1))))

        assert [(a_job(),)] == store.transact(work)

    def test_searches_without_locks_wait_for_none(self, store: Persistence) -> None:
        """Searches for lost jobs, active runs and inconsistent runs ignore locks; so do reads without a lock."""
        self._skip_if_serial()
        put(store, Insert(a_run(open_jobs=2)), Insert(a_job()), Insert(a_session()), Insert(a_sink()))

        def look(tx: Transaction) -> tuple[int, ...]:
            searches = tx.find(LostJobs(1)), tx.find(ActiveRuns("", 9)), tx.find(IncompleteRuns([a_key(1)]))
            known = tx.get(SESSIONS, [a_key(1)]), tx.get(JOBS, [a_job().key]), tx.find(AllSinks())
            return tuple(map(len, (*searches, *known)))

        def work(tx: Transaction) -> list[tuple[int, ...]]:
            tx.lock(RUNS, [a_key(1)])
            tx.lock(JOBS, [a_job().key])
            tx.lock(SESSIONS, [a_key(1)])
            tx.find(SinksByName([a_sink().sink_name], locks=True))
            return in_threads(1, lambda _: store.transact(look))

        assert store.transact(work) == [(0, 1, 1, 1, 1, 1)]

    def _skip_if_serial(self) -> None:
        if self.serial:
            pytest.skip("this store carries out one transaction at a time")


def _append_row(tx: Transaction, kind: str) -> None:
    (run,) = tx.lock(RUNS, [a_key(1)])
    number = run.last_row + 1
    tx.apply([Update(evolve(run, last_row=number)), Insert(a_row(1, number, type=kind))])


def _touch(tx: Transaction, keys: Sequence[str]) -> None:
    tx.apply([Update(evolve(run, last_row=run.last_row + 1)) for run in tx.lock(RUNS, keys)])


def _get_or_create(tx: Transaction, name: str, thread: int) -> str:
    found = tx.find(LatestRuns([RunName(NAMESPACE, name)]))
    if found:
        return found[0].key
    key = a_key(1_000 * thread + int(name.partition("-")[2]))
    tx.apply([Insert(a_run(key=key, id=name, open_jobs=1)), Insert(a_job(key, 1))])
    return key


def _replay_or_store(tx: Transaction, thread: int) -> str:
    for reply in tx.get(REPLIES, [(NAMESPACE, "key-1")]):
        return reply.body
    tx.apply([Insert(a_reply(body=str(thread))), Insert(a_run(thread))])
    return str(thread)


def _count_run(tx: Transaction) -> Change:
    (run,) = tx.lock(RUNS, [a_key(1)])
    return Update(evolve(run, last_row=run.last_row + 1))


def _count_named_run(tx: Transaction) -> Change:
    (run,) = tx.find(LatestRuns([RunName(NAMESPACE, "run-1")]))
    return Update(evolve(run, last_row=run.last_row + 1))


def _count_named_driver(tx: Transaction) -> Change:
    _, (job,), *_ = tx.find(LatestRunsAndDrivers([RunName(NAMESPACE, "run-1")]))
    return Update(evolve(job, epoch=job.epoch + 1))


def _count_job(tx: Transaction) -> Change:
    (job,) = tx.lock(JOBS, [a_job().key])
    return Update(evolve(job, epoch=job.epoch + 1))


def _count_held_run(tx: Transaction) -> Change:
    (run,) = tx.lock_attempts([a_key(1)], [], []).runs
    return Update(evolve(run, last_row=run.last_row + 1))


def _count_held_job(tx: Transaction) -> Change:
    (job,) = tx.lock_attempts([], [a_job().key], []).jobs
    return Update(evolve(job, epoch=job.epoch + 1))


def _count_job_of_run(tx: Transaction) -> Change:
    (job,) = tx.find(JobsOfRuns([a_key(1)]))
    return Update(evolve(job, epoch=job.epoch + 1))


def _count_session(tx: Transaction) -> Change:
    (session,) = tx.lock(SESSIONS, [a_key(1)])
    return Insert(evolve(session, expires_at=session.expires_at + 1))


def _count_leader(tx: Transaction) -> Change:
    (leader,) = tx.lock(LEADERS, ["maintenance"])
    return Update(evolve(leader, expires_at=leader.expires_at + 1))


def _count_sink(tx: Transaction) -> Change:
    (sink,) = tx.find(SinksByName([a_sink().sink_name], locks=True))
    return Update(evolve(sink, failures=sink.failures + 1))


def _count_stream(tx: Transaction) -> Change:
    (stream,) = tx.lock(STREAMS, [a_stream().key])
    return Update(evolve(stream, attempts=stream.attempts + 1))


def _count_schedule(tx: Transaction) -> Change:
    return _counted(tx.lock(SCHEDULES, [a_schedule().key]))


def _count_due_schedule(tx: Transaction) -> Change:
    rows = tx.find(DueSchedules(NAMESPACE, ["orders"], 1), NOW)
    # Another transaction that has locked it is not waited for: the lock by key is.
    return _counted(rows or tx.lock(SCHEDULES, [a_schedule().key]))


def _count_named_schedule(tx: Transaction) -> Change:
    return _counted(tx.find(SchedulesByName([a_schedule().schedule_name])))


def _count_schedule_of_other_zones(tx: Transaction) -> Change:
    rows = tx.find(SchedulesOfOtherZones(NAMESPACE, ("orders",), "2026a", "", 1))
    return _counted(rows or tx.lock(SCHEDULES, [a_schedule().key]))


def _counted(rows: Sequence[ScheduleRow]) -> Change:
    (row,) = rows
    return Update(evolve(row, started=row.started + 1))


def _count_in(change: Change) -> int:
    match change:
        case Update(Run() as run):
            return run.last_row
        case Update(Job() as job):
            return job.epoch
        case Insert(Session() as session):
            return session.expires_at
        case Update(LeaderLease() as leader):
            return leader.expires_at
        case Update(Sink() as sink):
            return sink.failures
        case Update(Stream() as stream):
            return stream.attempts
        case Update(ScheduleRow() as schedule):
            return schedule.started
        case _:
            raise AssertionError(change)


COUNTERS: Final[dict[str, Callable[[Transaction], Change]]] = {
    "runs": _count_run,
    "latest_runs": _count_named_run,
    "latest_drivers": _count_named_driver,
    "held runs": _count_held_run,
    "held jobs": _count_held_job,
    "jobs": _count_job,
    "jobs_of": _count_job_of_run,
    "sessions": _count_session,
    "duties": _count_leader,
    "sinks": _count_sink,
    "streams": _count_stream,
    "schedules": _count_schedule,
    "due schedules": _count_due_schedule,
    "named schedules": _count_named_schedule,
    "schedules of other zones": _count_schedule_of_other_zones,
}
"""For each locking read: a function that increments a number in the row that it returns."""

SEARCHES: Final[dict[str, Callable[[Transaction, int], list[str]]]] = {
    "claimable": lambda tx, limit: [
        job.run for job in tx.find(ClaimableJobs(NAMESPACE, [a_queue_claim()], limit)).jobs
    ],
    "due": lambda tx, limit: [job.run for job in tx.find(DueJobs(limit), NOW)],
    "expired_sessions": lambda tx, limit: [session.id for session in tx.find(ExpiredSessions(0, limit), NOW)],
    "due_schedules": lambda tx, limit: [
        row.key for row in tx.find(DueSchedules(NAMESPACE, ["orders"], limit), NOW)
    ],
    "schedules_of_other_zones": lambda tx, limit: [
        row.key for row in tx.find(SchedulesOfOtherZones(NAMESPACE, ("orders",), "2026a", "", limit))
    ],
    "due_streams": lambda tx, limit: [
        one.run for one in tx.find(DueStreams(*a_sink().sink_name, limit), NOW)
    ],
}
"""For each read that skips locked rows: a function that calls it."""
