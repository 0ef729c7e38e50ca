"""The port for stores. The store is the only source of truth; everything else is a hint."""

from collections.abc import Callable, Collection, Sequence
from typing import Generic, Protocol

from typing_extensions import TypeVar

from holdfast.ports.changes import Change
from holdfast.ports.records.job import JobKey
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import LockedAttempts, Search
from holdfast.ports.tables import Table

R = TypeVar("R")
K = TypeVar("K")
A = TypeVar("A")
Answer = TypeVar("Answer", covariant=True)


class Transaction(Protocol):
    """The reads and the one write of a transaction. Valid only inside the work passed to `Persistence.transact`.

    - Reads take many keys at once; a key that does not exist is missing from the result.
    - A read sees everything that was committed before it, and the latest version of every row that is locked.
    - Rows are locked in the order schedules, triggers, topics, runs, jobs, others, slots, rates, each by ascending key.
      So no two transactions deadlock.
    - `apply` is called at most once, and last.
    """

    def lock(self, table: Table[R, K], keys: Collection[K], /) -> Sequence[R]:
        """Lock and return rows by key, ascending."""
        ...

    def get(self, table: Table[R, K], keys: Collection[K], /) -> Sequence[R]:
        """Return rows by key, ascending. Takes no locks."""
        ...

    def find(self, search: Search[A], /, now: Micros = 0) -> A:
        """Return what a search finds. `now` is the instant for searches for rows that are due, overdue or expired.

        TypeError for an unknown search.
        """
        ...

    def lock_attempts(
        self, runs: Collection[str], jobs: Collection[JobKey], sessions: Collection[str], /
    ) -> LockedAttempts:
        """Lock and return runs, then jobs, by key; also return sessions by id, without locks.

        The same as `lock` of the runs and the jobs, and `get` of the sessions, in one round trip.
        """
        ...

    def apply(self, changes: Sequence[Change], /) -> None:
        """Write these changes in their order, all or none.

        - ConflictError if a key, name or id of a new row exists already.
        - RefusedError if the store can't keep a value.
        """
        ...


class Query(Generic[Answer]):
    """A query answered from a snapshot without locks. Decisions never depend on one."""


class Persistence(Protocol):
    """A store. Safe to use from several threads and several processes at once."""

    def setup(self) -> None:
        """Create the tables, or migrate them to the newest version.

        - It can be repeated, and may run in several processes at once.
        - SchemaError if the tables are newer than this code.
        """
        ...

    def transact(self, work: Callable[[Transaction], R], /) -> R:
        """Run `work` in one transaction, and return its result once all its changes are durable.

        - `work` may run several times from the start: after a serialization failure, a deadlock, a ConflictError or a
          lost connection. So it is a plain function that does nothing but use the transaction.
        - If `work` raises, nothing is stored, and the error propagates.
        - If the answer to a commit is lost, the changes are still stored exactly once, and the result is returned.
        - UnavailableError if the store did not answer in time: then it is unknown whether the changes were stored.
        """
        ...

    def read(self, query: Query[R], /) -> R:
        """Answer a query from a snapshot. UnavailableError as `transact`; TypeError for an unknown query.

        A database stops it at the limit of its caller (`ports.read_limits`): ReadTimeoutError.
        """
        ...

    def prune(self, before: Micros, /) -> int:
        """Delete rows that are no longer needed, and return how many.

        - Deleted are replies stored before this instant; dead sessions without jobs that expired before it; browser
          sessions that ended before it; rate limits and fair keys last changed before it; audit entries that are older
          than it by `AUDIT_KEPT`; streams of removed sinks; rows of the worker registry without an open session; and
          the store's own records of transactions long over.
        - History is kept. Should it ever be deleted, rows that a stream has not delivered must stay.
        """
        ...

    def close(self) -> None:
        """Close all connections. Can be called repeatedly."""
        ...
