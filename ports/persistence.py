"""The port for stores. The store is the only source of truth; everything else is a hint."""

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import Generic, NamedTuple, Protocol

from typing_extensions import TypeVar

from holdfast.ports.attempt_output import Annotation
from holdfast.ports.changes import Change
from holdfast.ports.records.history import STAGE_COMPLETED, HistoryRow
from holdfast.ports.records.job import Job, JobKey, JobKind, PassOver
from holdfast.ports.records.limits import RateName, RateWindow, SlotName
from holdfast.ports.records.outbox import Sink, SinkName, Stream, StreamHead, StreamKey
from holdfast.ports.records.run import Run, RunName
from holdfast.ports.records.session import LeaderLease, Session
from holdfast.ports.records.values import IdempotencyReply, Micros, PlanRow
from holdfast.ports.structs import frozen
from holdfast.ports.unreadable import RunOutline

R = TypeVar("R")
Answer = TypeVar("Answer", covariant=True)


@frozen(kw_only=True)
class QueueClaim:
    """A request to claim jobs from one queue."""

    queue: str
    definitions: tuple[str, ...]
    """The code that the worker has: only jobs with one of these definitions are claimed."""
    limit: int
    """The most jobs to claim."""


@frozen
class CompletedRow:
    """A history row that records the outcome of a stage or map item."""

    run: str
    number: int
    node: str
    item: int | None
    type: str = STAGE_COMPLETED
    """`stage.completed`, or another type that was requested."""


@frozen
class NodeRows:
    """The history rows of one type about one node of a run, summed up."""

    run: str
    node: str
    type: str
    first: int
    """The number of the first row."""
    last: int
    """The number of the last row."""
    rows: int
    """How many rows there are."""


class Waiting(StrEnum):
    """What waits for slots: pending runs for a slot of their concurrency key, limited jobs for one of their stage."""

    RUNS = "runs"
    JOBS = "jobs"


class SlotPlace(NamedTuple):
    """A concurrency key in a namespace. Sorts in the order in which stores search them."""

    namespace: str
    key: str


@frozen
class WaitedFor:
    """A concurrency key with waiting runs or jobs. The limits are those of the first one that waits."""

    place: SlotPlace
    limit: int | None
    """The concurrency limit; None if slots are not counted."""
    used: int
    """How many slots are taken."""
    rate_limit: int | None = None
    rate_period: Micros | None = None

    @property
    def free(self) -> int | None:
        """How many slots are free; None without a limit."""
        return None if self.limit is None else max(0, self.limit - self.used)


class LockedAttempts(NamedTuple):
    """The result of `Transaction.held` and `claimable`."""

    runs: Sequence[Run]
    """Locked."""
    jobs: Sequence[Job]
    """Locked."""
    sessions: Sequence[Session]
    """Not locked."""


class Transaction(Protocol):
    """The reads and the one write of a transaction. Valid only inside the work passed to `Persistence.transact`.

    - Reads take many keys at once; a key that does not exist is missing from the result.
    - A read sees everything that was committed before it, and the latest version of every row that is locked.
    - Rows are locked in the order runs, jobs, others, slots, rates, each by ascending key. So no two transactions
      deadlock.
    - `apply` is called at most once, and last.
    """

    def runs(self, keys: Collection[str], /) -> Sequence[Run]:
        """Lock and return runs by key."""
        ...

    def latest_runs(self, names: Collection[RunName], /) -> Sequence[Run]:
        """Lock and return the newest generation of each named run."""
        ...

    def generations(self, names: Collection[RunName], /) -> Sequence[Run]:
        """Return all generations of each named run, by name and generation, ascending. Takes no locks.

        While the newest generation is locked, the result is complete: no other transaction can add one.
        """
        ...

    def jobs(self, keys: Collection[JobKey], /, *, lock: bool = True) -> Sequence[Job]:
        """Return jobs by key, locked by default."""
        ...

    def lock_attempts(
        self, runs: Collection[str], jobs: Collection[JobKey], sessions: Collection[str], /
    ) -> LockedAttempts:
        """Lock and return runs, then jobs, by key; also return sessions by id, without locks.

        The same as `runs`, `jobs` and `sessions`, in one round trip.
        """
        ...

    def jobs_of(self, runs: Collection[str], /) -> Sequence[Job]:
        """Lock and return all jobs of these runs."""
        ...

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
        """Lock and return queued jobs, and the session with this id, which is not locked. One round trip.

        - Jobs that other transactions have locked are skipped.
        - At most each queue's own limit, and `limit` in all: lowest rank first, then oldest run, then lowest number.
        - Jobs for which `Job.is_passed_over(pass_over)` is true are left out, and use up no limit.
        - The cost does not depend on jobs of other queues or definitions, or on jobs that sleep or are paused.
        - If no job is found, the session is not returned.
        """
        ...

    def due(self, now: Micros, limit: int, /, *, kind: JobKind | None = None) -> Sequence[Job]:
        """Lock and return sleeping jobs whose `wake_at` is not after `now`, earliest first.

        - Jobs that other transactions have locked are skipped.
        - With `kind`, only jobs of that kind are returned.
        """
        ...

    def stage_jobs(self, name: RunName, stage: str, item: int | None, /) -> Sequence[JobKey]:
        """Return the keys of a stage's jobs that poll external work, or whose bodies run. Takes no locks.

        They belong to the newest generation of the run. For a map, `item` selects one item, None all of them.
        """
        ...

    def external_jobs(self, namespace: str, key: str, /) -> Sequence[JobKey]:
        """Return the keys of the jobs that poll the external work with this key. Takes no locks."""
        ...

    def sessions(self, ids: Collection[str], /, *, lock: bool) -> Sequence[Session]:
        """Return sessions by id, locked only with `lock`."""
        ...

    def expired_sessions(self, before: Micros, limit: int, /) -> Sequence[Session]:
        """Lock and return open sessions that expired before this instant, skipping those that others have locked."""
        ...

    def lost_jobs(self, limit: int, /) -> Sequence[JobKey]:
        """Return the keys of jobs that are leased to dead sessions. Takes no locks."""
        ...

    def heartbeat_overdue_jobs(self, before: Micros, limit: int, /) -> Sequence[JobKey]:
        """Return the keys of leased jobs with a `heartbeat_by` before this instant, earliest first. Takes no locks."""
        ...

    def active_runs(self, after: str, limit: int, /) -> Sequence[str]:
        """Return the next keys after `after` of runs that have not ended, ascending. Takes no locks."""
        ...

    def runs_missing_jobs(self, keys: Collection[str], /) -> Sequence[str]:
        """Return those of these runs whose jobs do not match their row. Takes no locks.

        A run is returned if it has not ended, and its number of jobs differs from `open_jobs`, or is 0 although it was
        admitted. Jobs for which `Job.outlives_run` is true do not count.
        """
        ...

    def has_deliveries(self) -> bool:
        """Return whether any job is pending delivery. Takes no locks."""
        ...

    def completed(
        self, runs: Collection[str], /, *, types: Collection[str] = (STAGE_COMPLETED,)
    ) -> Sequence[CompletedRow]:
        """Return the history rows in which stages and map items of these runs completed, in the order of the history.

        With `types`, the rows of those types.
        """
        ...

    def node_rows(self, runs: Collection[str], /) -> Sequence[NodeRows]:
        """Return a summary of the history rows about each node of these runs, in no order."""
        ...

    def history(self, rows: Collection[tuple[str, int]], /) -> Sequence[HistoryRow]:
        """Return history rows by run and number, ascending. The first row of a run may have any number."""
        ...

    def plans(self, fingerprints: Collection[str], /) -> Sequence[PlanRow]:
        """Return stored plans by fingerprint."""
        ...

    def replies(self, keys: Collection[tuple[str, str]], /) -> Sequence[IdempotencyReply]:
        """Return the replies stored for these (namespace, idempotency key)."""
        ...

    def annotation_keys(self, keys: Collection[tuple[str, str]], /) -> Sequence[tuple[str, str, str]]:
        """Return run, key and name of the annotations under each (run, key), ascending. Takes no locks."""
        ...

    def annotations(self, runs: Collection[str], /) -> Sequence[Annotation]:
        """Return the annotations of these runs with scope `run`, by run and in the order of `place`. Takes no locks."""
        ...

    def leaders(self, names: Collection[str], /) -> Sequence[LeaderLease]:
        """Lock and return leader leases by name."""
        ...

    def all_sinks(self) -> Sequence[Sink]:
        """Return every sink of every namespace, by key. Takes no locks."""
        ...

    def sinks(self, names: Collection[SinkName], /, *, lock: bool) -> Sequence[Sink]:
        """Return sinks by name, locked only with `lock`."""
        ...

    def streams(self, keys: Collection[StreamKey], /) -> Sequence[Stream]:
        """Lock and return streams by key."""
        ...

    def due_streams(self, sink: SinkName, now: Micros, limit: int, /) -> Sequence[Stream]:
        """Lock and return a sink's streams whose `due_at` is not after `now`, those due longest first.

        - Streams that other transactions have locked are skipped.
        - Empty while the sink's `retry_at` is after `now`.
        """
        ...

    def dead_lettered_streams(
        self, namespace: str, sink: str, run_id: str, limit: int, /
    ) -> Sequence[Stream]:
        """Lock and return dead-lettered streams, by key.

        `sink` and `run_id` select the sink of that name and the run with that id; "" selects all.
        """
        ...

    def outlines(self, keys: Collection[str], /, *, lock: bool) -> Sequence[RunOutline]:
        """Return the columns of these runs that can be read even if others are damaged, by key."""
        ...

    def run_keys(self, after: str, limit: int, /) -> Sequence[str]:
        """Return the next keys of runs after `after`, ascending. Takes no locks."""
        ...

    def undelivered_heads(
        self, namespace: str, sinks: Collection[str], runs: Collection[str], /
    ) -> Sequence[StreamHead]:
        """Return a stream head for each sink and run with rows that the stream does not know yet. Takes no locks.

        - `sinks` are names of sinks of the namespace.
        - A run counts if its last row is after the stream's `head_row`, and it was updated since the sink's `since`.
        - `at` of a head is the run's `updated_at`.
        """
        ...

    def due_runs(self, now: Micros, limit: int, /) -> Sequence[str]:
        """Return the keys of pending runs whose `start_at` is not after `now`, earliest first. Takes no locks."""
        ...

    def overdue_runs(self, now: Micros, limit: int, /) -> Sequence[str]:
        """Return the keys of runs whose deadline has passed, earliest first. Takes no locks.

        Runs that have ended or are ending are left out.
        """
        ...

    def waited_for(self, waiting: Waiting, places: Collection[SlotPlace], /) -> Sequence[WaitedFor]:
        """Return those of these concurrency keys for which runs or jobs wait, ascending. Takes no locks.

        A pending run waits once its `start_at` is None; a job waits while its state is `limited`.
        """
        ...

    def all_waited_for(self, waiting: Waiting, after: SlotPlace, limit: int, /) -> Sequence[WaitedFor]:
        """Return the next concurrency keys after `after` for which runs or jobs wait, ascending. Takes no locks.

        The cost does not depend on how many wait for each key.
        """
        ...

    def first_pending(self, wanted: Sequence[tuple[SlotPlace, int]], /) -> Sequence[str]:
        """Return the keys of the first runs waiting for each concurrency key, as many as requested. Takes no locks.

        The order is lowest rank, then oldest run.
        """
        ...

    def first_limited(self, wanted: Sequence[tuple[SlotPlace, int]], /) -> Sequence[JobKey]:
        """Return the keys of the first jobs that wait for each concurrency key, as `first_pending`. Takes no locks."""
        ...

    def slots(self, names: Collection[SlotName], /) -> Sequence[SlotName]:
        """Lock and return the rows of concurrency limits."""
        ...

    def used_slots(self, waiting: Waiting, places: Collection[SlotPlace], /) -> Mapping[SlotPlace, int]:
        """Return how many runs, or jobs, hold a slot of each key (see `Run.has_slot`, `Job.has_slot`)."""
        ...

    def rates(self, names: Collection[RateName], /, *, lock: bool) -> Sequence[RateWindow]:
        """Return the rows of rate limits by name, locked only with `lock`."""
        ...

    def rated_jobs(self, places: Collection[SlotPlace], /) -> Mapping[SlotPlace, int]:
        """Return how many jobs of each key have a rate limit and are queued, so that they may start at any moment."""
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
        """Answer a query from a snapshot. UnavailableError as `transact`; TypeError for an unknown query."""
        ...

    def prune(self, before: Micros, /) -> int:
        """Delete rows that are no longer needed, and return how many.

        - Deleted are replies stored before this instant; dead sessions without jobs that expired before it; rate limits
          last changed before it; streams of removed sinks; and the store's own records of transactions long over.
        - History is kept. Should it ever be deleted, rows that a stream has not delivered must stay.
        """
        ...

    def close(self) -> None:
        """Close all connections. Can be called repeatedly."""
        ...


# Queries --------------------------------------------------------------------------------------------------------
