"""The in-memory store, with real rollback and repeated work behind one lock. Nothing outlives the process."""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from holdfast.adapters.memory.job_index import JobOrder
from holdfast.adapters.memory.queries.admissions import first_waiting, queued, used, waited_for
from holdfast.adapters.memory.queries.handlers import answer, dead_lettered_in, node_rows
from holdfast.ports.attempt_output import Annotation, AnnotationScope
from holdfast.ports.changes import AnyTable, Change, NetChanges, net_changes
from holdfast.ports.errors import ConflictError, ForkedStoreError, HoldfastError
from holdfast.ports.persistence import (
    CompletedRow,
    LockedAttempts,
    NodeRows,
    Query,
    QueueClaim,
    SlotPlace,
    WaitedFor,
    Waiting,
)
from holdfast.ports.process_forks import renew_in_forks
from holdfast.ports.records.history import STAGE_COMPLETED, HistoryRow
from holdfast.ports.records.job import Job, JobKey, JobKind, JobState, PassOver
from holdfast.ports.records.limits import RateName, RateWindow, SlotName
from holdfast.ports.records.outbox import Sink, SinkName, Stream, StreamHead, StreamKey
from holdfast.ports.records.run import ACTIVE, HELD, Run, RunName, RunStatus
from holdfast.ports.records.session import LeaderLease, Session, SessionState
from holdfast.ports.records.values import IdempotencyReply, Micros, PlanRow
from holdfast.ports.tables import ANNOTATIONS, JOBS, RUNS, TABLE_OF, OnInsert, StoredRecord
from holdfast.ports.unreadable import RunOutline
from holdfast.ports.working_set import Tables

R = TypeVar("R")

CONFLICTS_MAX: Final = 10


class MemoryPersistence:
    """A store for tests, for experiments, and for the simulator."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._tables = Tables()
        self._order = JobOrder()
        self._is_copy = False
        renew_in_forks(self)

    def renew(self) -> None:
        """Refuse all use in a forked child if runs exist, since no other process would see its changes."""
        self._lock = threading.RLock()
        self._is_copy = bool(self._tables.runs)

    def setup(self) -> None:
        """Do nothing: a dictionary needs no setup."""

    def prune(self, before: Micros, /) -> int:
        """See `Persistence.prune`."""
        with self._lock:
            tables = self._tables
            old = [key for key, reply in tables.replies.items() if reply.created_at < before]
            holding = {job.session for job in tables.all_jobs() if job.state is JobState.LEASED}
            gone = [
                key
                for key, session in tables.sessions.items()
                if session.state is SessionState.DEAD and session.expires_at < before and key not in holding
            ]
            for key in old:
                del tables.replies[key]
            orphans = [key for key in tables.streams if key.sink not in tables.sinks]
            quiet = [name for name, window in tables.rates.items() if window.updated_at < before]
            for session in gone:
                del tables.sessions[session]
            for name in quiet:
                del tables.rates[name]
            for stream in orphans:
                del tables.streams[stream]
            return len(old) + len(gone) + len(quiet) + len(orphans)

    def close(self) -> None:
        """Do nothing: the rows live as long as this object."""

    def transact(self, work: Callable[["MemoryTransaction"], R], /) -> R:
        """See `Persistence.transact`."""
        for _ in range(CONFLICTS_MAX - 1):
            try:
                return self._attempt(work)
            except ConflictError:
                continue
        return self._attempt(work)

    def read(self, query: Query[R], /) -> R:
        """See `Persistence.read`."""
        with self._lock:
            self._check_process()
            return answer(self._tables, query)

    def dump(self) -> Tables:
        """Return a copy of all rows, from one moment. For tests and simulations, which inspect everything."""
        with self._lock:
            return self._tables.copy()

    def _check_process(self) -> None:
        if self._is_copy:
            raise ForkedStoreError(
                "memory:// lives in one process, and was used before this one was forked: changes made here would"
                " be visible nowhere else; use sqlite:/// or postgresql://, or open an engine after the fork"
            )

    def _attempt(self, work: Callable[["MemoryTransaction"], R]) -> R:
        with self._lock:
            self._check_process()
            tx = MemoryTransaction(self._tables, self._order)
            result = work(tx)
            for change in tx.pending:
                self._order.follow(self._tables, change)
                self._tables.apply(change)
            return result


class MemoryTransaction:
    """See `Transaction`. The store's single lock stands for the locks of all rows."""

    def __init__(self, tables: Tables, order: JobOrder) -> None:
        self._tables = tables
        self._order = order
        self.pending: tuple[Change, ...] = ()

    def runs(self, keys: Collection[str], /) -> Sequence[Run]:
        """See `Transaction.runs`."""
        return [self._tables.runs[key] for key in sorted(set(keys)) if key in self._tables.runs]

    def latest_runs(self, names: Collection[RunName], /) -> Sequence[Run]:
        """See `Transaction.latest_runs`."""
        found = [self._tables.run_named(name) for name in set(names)]
        return sorted((run for run in found if run is not None), key=lambda run: run.key)

    def generations(self, names: Collection[RunName], /) -> Sequence[Run]:
        """See `Transaction.generations`."""
        wanted = set(names)
        found = [run for run in self._tables.runs.values() if run.name in wanted]
        return sorted(found, key=lambda run: (run.name, run.generation))

    def jobs(self, keys: Collection[JobKey], /, *, lock: bool = True) -> Sequence[Job]:
        """See `Transaction.jobs`."""
        del lock
        found = [self._tables.job(key) for key in sorted(set(keys))]
        return [job for job in found if job is not None]

    def lock_attempts(
        self, runs: Collection[str], jobs: Collection[JobKey], sessions: Collection[str], /
    ) -> LockedAttempts:
        """See `Transaction.lock_attempts`."""
        return LockedAttempts(self.runs(runs), self.jobs(jobs), self.sessions(sessions, lock=False))

    def jobs_of(self, runs: Collection[str], /) -> Sequence[Job]:
        """See `Transaction.jobs_of`."""
        return [job for run in sorted(set(runs)) for _, job in sorted(self._tables.jobs.get(run, {}).items())]

    def claimable(
        self,
        session: str,
        namespace: str,
        queue_claims: Sequence[QueueClaim],
        limit: int,
        /,
        *,
        pass_over: PassOver = PassOver.NOTHING,
    ) -> LockedAttempts:
        """See `Transaction.claimable`."""
        jobs = self._in_order(self._order.claimable(namespace, queue_claims, limit, pass_over))
        return LockedAttempts((), jobs, self.sessions([session], lock=False) if jobs else ())

    def due(self, now: Micros, limit: int, /, *, kind: JobKind | None = None) -> Sequence[Job]:
        """See `Transaction.due`."""
        if kind is None:
            return self._in_order(self._order.due(now, limit))
        sleepers = self._in_order(self._order.due(now, len(self._order)))
        return [job for job in sleepers if job.kind is kind][:limit]

    def stage_jobs(self, name: RunName, stage: str, item: int | None, /) -> Sequence[JobKey]:
        """See `Transaction.stage_jobs`."""
        run = self._tables.run_named(name)
        jobs = self._tables.jobs.get(run.key, {}).values() if run else ()
        return sorted(
            job.key for job in jobs if job.node == stage and item in (None, job.item) and _is_wakeable(job)
        )

    def external_jobs(self, namespace: str, key: str, /) -> Sequence[JobKey]:
        """See `Transaction.external_jobs`."""
        return sorted(
            job.key
            for job in self._tables.all_jobs()
            if (job.namespace, job.waiting_for, job.kind) == (namespace, key, JobKind.POLL)
        )

    def sessions(self, ids: Collection[str], /, *, lock: bool) -> Sequence[Session]:
        """See `Transaction.sessions`."""
        del lock
        return [self._tables.sessions[key] for key in sorted(set(ids)) if key in self._tables.sessions]

    def expired_sessions(self, before: Micros, limit: int, /) -> Sequence[Session]:
        """See `Transaction.expired_sessions`."""
        expired = [
            session
            for session in self._tables.sessions.values()
            if session.state is SessionState.OPEN and session.expires_at < before
        ]
        return sorted(expired, key=lambda session: session.id)[:limit]

    def lost_jobs(self, limit: int, /) -> Sequence[JobKey]:
        """See `Transaction.lost_jobs`."""
        sessions = self._tables.sessions
        dead = {key for key, session in sessions.items() if session.state is SessionState.DEAD}
        if not dead:
            return []
        lost = [
            job.key for job in self._tables.all_jobs() if job.state is JobState.LEASED and job.session in dead
        ]
        return sorted(lost)[:limit]

    def heartbeat_overdue_jobs(self, before: Micros, limit: int, /) -> Sequence[JobKey]:
        """See `Transaction`."""
        overdue = [
            (job.heartbeat_by, job.key)
            for job in self._tables.all_jobs()
            if job.state is JobState.LEASED and job.heartbeat_by is not None and job.heartbeat_by < before
        ]
        return [key for _, key in sorted(overdue)[:limit]]

    def active_runs(self, after: str, limit: int, /) -> Sequence[str]:
        """See `Transaction.active_runs`."""
        active = (key for key, run in self._tables.runs.items() if run.status in ACTIVE and key > after)
        return sorted(active)[:limit]

    def runs_missing_jobs(self, keys: Collection[str], /) -> Sequence[str]:
        """See `Transaction`."""
        return [run.key for run in self.runs(keys) if not self._is_sound(run)]

    def has_deliveries(self) -> bool:
        """See `Transaction.has_deliveries`."""
        return self._order.has_deliveries

    def completed(
        self, runs: Collection[str], /, *, types: Collection[str] = (STAGE_COMPLETED,)
    ) -> Sequence[CompletedRow]:
        """See `Transaction.completed`."""
        return [
            CompletedRow(run, row.number, row.node or "", row.item, row.type)
            for run in sorted(set(runs))
            for row in self._tables.history.get(run, ())
            if row.type in types
        ]

    def node_rows(self, runs: Collection[str], /) -> Sequence[NodeRows]:
        """See `Transaction.node_rows`."""
        return [rows for run in sorted(set(runs)) for rows in node_rows(self._tables, run)]

    def history(self, rows: Collection[tuple[str, int]], /) -> Sequence[HistoryRow]:
        """See `Transaction.history`."""
        found: list[HistoryRow] = []
        for run, number in sorted(set(rows)):
            history = self._tables.history.get(run, [])
            at = number - history[0].number if history else -1
            if 0 <= at < len(history):
                found.append(history[at])
        return found

    def plans(self, fingerprints: Collection[str], /) -> Sequence[PlanRow]:
        """See `Transaction.plans`."""
        return [self._tables.plans[name] for name in sorted(set(fingerprints)) if name in self._tables.plans]

    def replies(self, keys: Collection[tuple[str, str]], /) -> Sequence[IdempotencyReply]:
        """See `Transaction.replies`."""
        return [self._tables.replies[key] for key in sorted(set(keys)) if key in self._tables.replies]

    def annotation_keys(self, keys: Collection[tuple[str, str]], /) -> Sequence[tuple[str, str, str]]:
        """See `Transaction`."""
        return sorted(name for name in self._tables.names[ANNOTATIONS] if name[:2] in keys)

    def annotations(self, runs: Collection[str], /) -> Sequence[Annotation]:
        """See `Transaction.annotations`."""
        found = sorted(self._tables.annotations.items())
        return [one for _, one in found if one.run in runs and one.scope is AnnotationScope.RUN]

    def leaders(self, names: Collection[str], /) -> Sequence[LeaderLease]:
        """See `Transaction`."""
        return [self._tables.leaders[name] for name in sorted(set(names)) if name in self._tables.leaders]

    def all_sinks(self) -> Sequence[Sink]:
        """See `Transaction.all_sinks`."""
        return [sink for _, sink in sorted(self._tables.sinks.items())]

    def sinks(self, names: Collection[SinkName], /, *, lock: bool) -> Sequence[Sink]:
        """See `Transaction.sinks`."""
        del lock
        found = [self._tables.sink_named(name) for name in sorted(set(names))]
        return [sink for sink in found if sink is not None]

    def streams(self, keys: Collection[StreamKey], /) -> Sequence[Stream]:
        """See `Transaction.streams`."""
        return [self._tables.streams[key] for key in sorted(set(keys)) if key in self._tables.streams]

    def due_streams(self, sink: SinkName, now: Micros, limit: int, /) -> Sequence[Stream]:
        """See `Transaction.due_streams`."""
        known = self._tables.sink_named(sink)
        if known is None or (known.retry_at is not None and known.retry_at > now):
            return []
        due = [
            (stream.due_at, stream.run, stream)
            for stream in self._tables.streams.values()
            if stream.sink == known.key and stream.due_at is not None and stream.due_at <= now
        ]
        return [stream for _, _, stream in sorted(due, key=lambda one: one[:2])[:limit]]

    def dead_lettered_streams(
        self, namespace: str, sink: str, run_id: str, limit: int, /
    ) -> Sequence[Stream]:
        """See `Transaction`."""
        dead_lettered = [
            stream
            for stream in dead_lettered_in(self._tables, namespace)
            if (not sink or self._tables.sinks[stream.sink].name == sink)
            and (not run_id or self._tables.runs[stream.run].id == run_id)
        ]
        return dead_lettered[:limit]

    def outlines(self, keys: Collection[str], /, *, lock: bool) -> Sequence[RunOutline]:
        """See `Transaction.outlines`."""
        del lock
        return [
            RunOutline(
                run.key,
                run.namespace,
                run.id,
                run.workflow,
                run.version,
                run.status,
                max((row.number for row in self._tables.history.get(run.key, ())), default=0),
            )
            for run in self.runs(keys)
        ]

    def run_keys(self, after: str, limit: int, /) -> Sequence[str]:
        """See `Transaction.run_keys`."""
        return sorted(key for key in self._tables.runs if key > after)[:limit]

    def undelivered_heads(
        self, namespace: str, sinks: Collection[str], runs: Collection[str], /
    ) -> Sequence[StreamHead]:
        """See `Transaction`."""
        tables = self._tables
        wanted = [
            sink for sink in tables.sinks.values() if sink.namespace == namespace and sink.name in sinks
        ]
        found: list[StreamHead] = []
        for run in self.runs(runs):
            for sink in wanted:
                stream = tables.streams.get(StreamKey(sink.key, run.key))
                head_row = 0 if stream is None else stream.head_row
                if run.namespace == namespace and run.updated_at >= sink.since and head_row < run.last_row:
                    found.append(
                        StreamHead(sink=sink.key, run=run.key, head_row=run.last_row, at=run.updated_at)
                    )
        return sorted(found, key=lambda head: (head.sink, head.run))

    def due_runs(self, now: Micros, limit: int, /) -> Sequence[str]:
        """See `Transaction.due_runs`."""
        due = [
            (run.start_at, run.key)
            for run in self._tables.runs.values()
            if run.status is RunStatus.PENDING and run.start_at is not None and run.start_at <= now
        ]
        return [key for _, key in sorted(due)[:limit]]

    def overdue_runs(self, now: Micros, limit: int, /) -> Sequence[str]:
        """See `Transaction.overdue_runs`."""
        overdue = [
            (run.deadline, run.key)
            for run in self._tables.runs.values()
            if run.status in ACTIVE and not run.is_ending
            if run.deadline is not None and run.deadline <= now
        ]
        return [key for _, key in sorted(overdue)[:limit]]

    def waited_for(self, waiting: Waiting, places: Collection[SlotPlace], /) -> Sequence[WaitedFor]:
        """See `Transaction.waited_for`."""
        return [one for one in waited_for(self._tables, waiting) if one.place in places]

    def all_waited_for(self, waiting: Waiting, after: SlotPlace, limit: int, /) -> Sequence[WaitedFor]:
        """See `Transaction.all_waited_for`."""
        return [one for one in waited_for(self._tables, waiting) if one.place > after][:limit]

    def first_pending(self, wanted: Sequence[tuple[SlotPlace, int]], /) -> Sequence[str]:
        """See `Transaction.first_pending`."""
        return [key[0] for key in first_waiting(self._tables, Waiting.RUNS, wanted)]

    def first_limited(self, wanted: Sequence[tuple[SlotPlace, int]], /) -> Sequence[JobKey]:
        """See `Transaction.first_limited`."""
        return [JobKey(run, number) for run, number in first_waiting(self._tables, Waiting.JOBS, wanted)]

    def slots(self, names: Collection[SlotName], /) -> Sequence[SlotName]:
        """See `Transaction.slots`."""
        return sorted(self._tables.slots.keys() & names)

    def used_slots(self, waiting: Waiting, places: Collection[SlotPlace], /) -> Mapping[SlotPlace, int]:
        """See `Transaction.used_slots`."""
        taken = used(self._tables, waiting)
        return {place: taken[place] for place in places}

    def rates(self, names: Collection[RateName], /, *, lock: bool) -> Sequence[RateWindow]:
        """See `Transaction.rates`."""
        del lock
        return [self._tables.rates[name] for name in sorted(set(names)) if name in self._tables.rates]

    def rated_jobs(self, places: Collection[SlotPlace], /) -> Mapping[SlotPlace, int]:
        """See `Transaction.rated_jobs`."""
        found = queued(self._tables)
        return {place: found[place] for place in places}

    def apply(self, changes: Sequence[Change], /) -> None:
        """See `Transaction.apply`. The store applies the changes after the work has returned."""
        if self.pending:
            raise HoldfastError("a transaction applies its changes once, all together")
        net = net_changes(changes)
        added = Tables()
        for change in changes:
            added.apply(change)  # ConflictError if two changes of this transaction conflict
        for rows in net.inserted.values():
            for record in rows.values():
                self._check_insert(record, net)
        for table, rows in net.updated.items():
            for key in rows:
                if self._row(table, key) is None:
                    raise HoldfastError(f"{table.name}: {key} is to be updated and is not there")
        self.pending = tuple(changes)

    def _check_insert(self, record: StoredRecord, net: NetChanges) -> None:
        """ConflictError if a new row has a key or unique name of a row that this transaction does not delete."""
        table = TABLE_OF[type(record)]
        taken = None if table.on_insert is not OnInsert.REFUSE else self._tables.taken(record)
        if taken is None:
            return
        deleted = (
            self._row(table, key) for key in (net.removed_runs if table is RUNS else net.deleted[table])
        )
        if not any(row is not None and taken in (table.key_of(row), table.name_of(row)) for row in deleted):
            raise ConflictError(f"{table.name}: {taken} exists")

    def _row(self, table: AnyTable, key: Any) -> Any | None:
        return self._tables.job(key) if table is JOBS else self._tables.rows[table].get(key)

    def _in_order(self, keys: Iterable[JobKey]) -> Sequence[Job]:
        found = [self._tables.job(key) for key in keys]
        return [job for job in found if job is not None]

    def _is_sound(self, run: Run) -> bool:
        of_run = self._tables.jobs.get(run.key, {}).values()
        jobs = sum(not job.outlives_run for job in of_run)
        waits = run.status in {RunStatus.PENDING, *HELD} and not run.is_admitted
        return run.status not in ACTIVE or (jobs == run.open_jobs and (jobs > 0 or waits))


def _is_wakeable(job: Job) -> bool:
    return job.kind is JobKind.POLL or (job.kind is JobKind.STAGE and job.state is JobState.LEASED)
