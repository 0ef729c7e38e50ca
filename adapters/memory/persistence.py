"""The in-memory store, with real rollback and repeated work behind one lock. Nothing outlives the process."""

import threading
from collections.abc import Callable, Collection, Sequence, Sized
from typing import Final, TypeVar

from holdfast.adapters.memory.job_index import JobOrder
from holdfast.adapters.memory.queries.handlers import answer
from holdfast.adapters.memory.searches import Store, find, rows_by_key
from holdfast.ports.changes import Change, NetChanges, net_changes
from holdfast.ports.errors import ConflictError, ForkedStoreError, HoldfastError
from holdfast.ports.persistence import Query
from holdfast.ports.process_forks import renew_in_forks
from holdfast.ports.records.audit_entry import AUDIT_KEPT
from holdfast.ports.records.job import JobKey, JobState
from holdfast.ports.records.session import SessionState
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import LockedAttempts, Search, SessionsForClaims
from holdfast.ports.tables import JOBS, RUNS, TABLE_OF, OnInsert, StoredRecord, Table
from holdfast.ports.working_set import Tables

R = TypeVar("R")
T = TypeVar("T")
K = TypeVar("K")

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
            idle = [name for name, row in tables.fair_keys.items() if row.updated_at < before]
            for account in idle:
                del tables.fair_keys[account]
            for stream in orphans:
                del tables.streams[stream]
            past = [key for key, row in tables.audit_entries.items() if row.at < before - AUDIT_KEPT]
            for entry in past:
                del tables.audit_entries[entry]
            signed_out = [key for key, row in tables.browser_sessions.items() if row.ends_at < before]
            for browser in signed_out:
                del tables.browser_sessions[browser]
            stray = [
                session
                for session in tables.registrations
                if (known := tables.sessions.get(session)) is None or known.state is not SessionState.OPEN
            ]
            for session in stray:
                del tables.registrations[session]
            removed: tuple[Sized, ...] = (old, gone, orphans, quiet, idle, past, signed_out, stray)
            return sum(len(rows) for rows in removed)

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

    def lock(self, table: Table[T, K], keys: Collection[K], /) -> Sequence[T]:
        """See `Transaction.lock`."""
        return rows_by_key(self._tables, table, keys)

    def get(self, table: Table[T, K], keys: Collection[K], /) -> Sequence[T]:
        """See `Transaction.get`."""
        return rows_by_key(self._tables, table, keys)

    def find(self, search: Search[T], /, now: Micros = 0) -> T:
        """See `Transaction.find`."""
        return find(Store(self._tables, self._order, now), search)

    def lock_attempts(
        self, runs: Collection[str], jobs: Collection[JobKey], sessions: Collection[str], /
    ) -> LockedAttempts:
        """See `Transaction.lock_attempts`."""
        holders = self.find(SessionsForClaims(sessions))
        return LockedAttempts(
            self.lock(RUNS, runs), self.lock(JOBS, jobs), holders.sessions, holders.has_limits
        )

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
            if len(self.get(table, rows.keys())) < len(rows):
                raise HoldfastError(f"{table.name}: a row is to be updated and is not there: {sorted(rows)}")
        self.pending = tuple(changes)

    def _check_insert(self, record: StoredRecord, net: NetChanges) -> None:
        """ConflictError if a new row has a key or unique name of a row that this transaction does not delete."""
        table = TABLE_OF[type(record)]
        taken = None if table.on_insert is not OnInsert.REFUSE else self._tables.taken(record)
        if taken is None:
            return
        deleted = self.get(table, net.removed_runs if table is RUNS else net.deleted[table])
        if not any(taken in (table.key_of(row), table.name_of(row)) for row in deleted):
            raise ConflictError(f"{table.name}: {taken} exists")
