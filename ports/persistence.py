"""The store: the only truth. Everything else is a hint."""

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import Generic, NamedTuple, Protocol

import attrs
from typing_extensions import TypeVar

from holdfast.ports.attempt_output import Annotation
from holdfast.ports.changes import Change
from holdfast.ports.pagination import ListPlace
from holdfast.ports.records import (
    STAGE_COMPLETED,
    HistoryRow,
    IdempotencyReply,
    Job,
    JobKey,
    JobKind,
    LeaderLease,
    Micros,
    OutputRow,
    PassOver,
    Payload,
    PlanRow,
    RateName,
    RateWindow,
    Run,
    RunName,
    RunStatus,
    Session,
    Sink,
    SinkName,
    SlotName,
    Stream,
    StreamHead,
    StreamKey,
)
from holdfast.ports.references import Reference
from holdfast.ports.structs import frozen
from holdfast.ports.unreadable import RunOutline

R = TypeVar("R")
Answer = TypeVar("Answer", covariant=True)


@frozen(kw_only=True)
class Lane:
    """What a worker takes from one queue: jobs of code that it has, and how many at most."""

    queue: str
    definitions: tuple[str, ...]
    limit: int


@frozen
class CompletedRow:
    """That a stage, or one item of a map, was completed in this history row; or, by `type`, what else came of it."""

    run: str
    number: int
    node: str
    item: int | None
    type: str = STAGE_COMPLETED


@frozen
class NodeRows:
    """The history rows of one type that are about one node of a run: the first, the last, and how many."""

    run: str
    node: str
    type: str
    first: int
    last: int
    rows: int


class Waiting(StrEnum):
    """Who waits for slots: pending runs for those of their concurrency keys, limited jobs for those of their stages."""

    RUNS = "runs"
    JOBS = "jobs"


class SlotPlace(NamedTuple):
    """A concurrency key of a namespace, in the order in which they are searched."""

    namespace: str
    key: str


@frozen
class WaitedFor:
    """A key for which somebody waits: the limit that the first of those has, and how many slots are taken.

    Without a `limit` slots are not counted. `rate_limit` and `rate_period` are the rate limit of the first.
    """

    place: SlotPlace
    limit: int | None
    used: int
    rate_limit: int | None = None
    rate_period: Micros | None = None

    @property
    def free(self) -> int | None:
        """How many slots the first of those who wait finds free; None if it needs none."""
        return None if self.limit is None else max(0, self.limit - self.used)


class LockedAttempts(NamedTuple):
    """What `Transaction.held` gives: each as the method of that name."""

    runs: Sequence[Run]
    jobs: Sequence[Job]
    sessions: Sequence[Session]


class Transaction(Protocol):
    """Reads that lock what they return, many rows at once, and one write. Valid only inside `transact`'s work.

    Every read sees what was committed before it, never less than what this transaction has locked. What is asked for
    and does not exist is simply not in the answer. Locks are taken in the order runs, jobs, others, slots, rates;
    keys ascending.
    `apply` is called at most once, and last.
    """

    def runs(self, keys: Collection[str], /) -> Sequence[Run]:
        """Lock and return runs by key."""
        ...

    def latest_runs(self, names: Collection[RunName], /) -> Sequence[Run]:
        """Lock and return the newest generation of each named run."""
        ...

    def generations(self, names: Collection[RunName], /) -> Sequence[Run]:
        """Return, without locks, all generations of each named run, by name and generation, ascending.

        Whoever has locked the newest one is told of all that there are.
        """
        ...

    def jobs(self, keys: Collection[JobKey], /, *, lock: bool = True) -> Sequence[Job]:
        """Return jobs by key, locked unless told otherwise."""
        ...

    def held(
        self, runs: Collection[str], jobs: Collection[JobKey], sessions: Collection[str], /
    ) -> LockedAttempts:
        """Lock and return runs and then jobs, by key, and return sessions without locks.

        The same as `runs`, `jobs` and `sessions`: where each of these waits for a server, this waits once.
        """
        ...

    def jobs_of(self, runs: Collection[str], /) -> Sequence[Job]:
        """Lock and return all jobs of these runs."""
        ...

    def claimable(
        self,
        namespace: str,
        lanes: Sequence[Lane],
        limit: int,
        /,
        *,
        pass_over: PassOver = PassOver.NOTHING,
    ) -> Sequence[Job]:
        """Lock and return queued jobs, skipping those that others have locked.

        For each lane at most its own limit, in all at most `limit`: lowest rank first, then oldest run, then
        lowest job number. Jobs of other queues or definitions, and jobs that sleep or are held, cost nothing. Jobs
        of which `Job.is_passed_over(pass_over)` is true take nobody's place.
        """
        ...

    def claimable_by(
        self,
        session: str,
        namespace: str,
        lanes: Sequence[Lane],
        limit: int,
        /,
        *,
        pass_over: PassOver = PassOver.NOTHING,
    ) -> LockedAttempts:
        """Lock and return queued jobs as `claimable`, and return the session of this id without locks.

        Where there are no jobs, no session is returned. This waits for a server once.
        """
        ...

    def due(self, now: Micros, limit: int, /, *, kind: JobKind | None = None) -> Sequence[Job]:
        """Lock and return sleeping jobs whose `wake_at` is not after `now`, earliest first, skipping locked ones.

        Of all kinds, or of one.
        """
        ...

    def stage_jobs(self, name: RunName, stage: str, item: int | None, /) -> Sequence[JobKey]:
        """Return, without locks, the keys of jobs of a stage that check external work, or whose bodies run.

        They are of the newest generation of the run; of a map they are of one `item`, or of all.
        """
        ...

    def external_jobs(self, namespace: str, key: str, /) -> Sequence[JobKey]:
        """Return, without locks, the keys of jobs that check the external work of this key."""
        ...

    def sessions(self, ids: Collection[str], /, *, lock: bool) -> Sequence[Session]:
        """Return sessions by id, locked only if asked."""
        ...

    def expired_sessions(self, before: Micros, limit: int, /) -> Sequence[Session]:
        """Lock and return open sessions that expired before this instant, skipping locked ones."""
        ...

    def lost_jobs(self, limit: int, /) -> Sequence[JobKey]:
        """Return, without locks, the keys of jobs that are leased to dead sessions."""
        ...

    def silent_jobs(self, before: Micros, limit: int, /) -> Sequence[JobKey]:
        """Return, without locks, the keys of leased jobs whose `heartbeat_by` is earlier, the earliest first."""
        ...

    def active_runs(self, after: str, limit: int, /) -> Sequence[str]:
        """Return, without locks, the next keys after `after` of runs that have not ended, ascending."""
        ...

    def unsound_runs(self, keys: Collection[str], /) -> Sequence[str]:
        """Return, without locks, those of these runs that lack jobs.

        They have not ended, and the number of their jobs is not what their row says, or zero although they have begun.
        Jobs for which `Job.outlives_run` do not count.
        """
        ...

    def has_deliveries(self) -> bool:
        """Return, without locks, whether there is a job that tells others of the end of a run."""
        ...

    def completed(
        self, runs: Collection[str], /, *, types: Collection[str] = (STAGE_COMPLETED,)
    ) -> Sequence[CompletedRow]:
        """Return which stages and items of these runs were completed, in the order of the history.

        With other `types` it is the rows of these types.
        """
        ...

    def node_rows(self, runs: Collection[str], /) -> Sequence[NodeRows]:
        """Return what the histories of these runs have about their nodes, in no order."""
        ...

    def history(self, rows: Collection[tuple[str, int]], /) -> Sequence[HistoryRow]:
        """Return history rows by run and number, ascending. The first row of a run may have any number."""
        ...

    def plans(self, fingerprints: Collection[str], /) -> Sequence[PlanRow]:
        """Return stored plans."""
        ...

    def replies(self, keys: Collection[tuple[str, str]], /) -> Sequence[IdempotencyReply]:
        """Return the replies stored for these (namespace, idempotency key)."""
        ...

    def said_keys(self, keys: Collection[tuple[str, str]], /) -> Sequence[tuple[str, str, str]]:
        """Return, without locks, run, key and name of the annotations under each (run, key), ascending."""
        ...

    def annotations(self, runs: Collection[str], /) -> Sequence[Annotation]:
        """Return, without locks, what was said of these runs as wholes, by run and in the order of `place`."""
        ...

    def duties(self, names: Collection[str], /) -> Sequence[LeaderLease]:
        """Lock and return duties."""
        ...

    def all_sinks(self) -> Sequence[Sink]:
        """Return, without locks, every sink of every namespace, by key."""
        ...

    def sinks(self, names: Collection[SinkName], /, *, lock: bool) -> Sequence[Sink]:
        """Return sinks by name, locked only if asked."""
        ...

    def streams(self, keys: Collection[StreamKey], /) -> Sequence[Stream]:
        """Lock and return streams."""
        ...

    def due_streams(self, sink: SinkName, now: Micros, limit: int, /) -> Sequence[Stream]:
        """Lock and return a sink's streams whose `due_at` is not after `now`, skipping those that others have locked.

        Those that have been due for longest come first. None if the sink is to be left alone until later.
        """
        ...

    def parked_streams(self, namespace: str, sink: str, run_id: str, limit: int, /) -> Sequence[Stream]:
        """Lock and return parked streams, by key: of a sink of this name and a run of this id, unless these are ""."""
        ...

    def outlines(self, keys: Collection[str], /, *, lock: bool) -> Sequence[RunOutline]:
        """Return of these runs what can be read whatever stands in their rows, by key."""
        ...

    def run_keys(self, after: str, limit: int, /) -> Sequence[str]:
        """Return, without locks, the next keys after `after` of runs, ascending."""
        ...

    def unheard(
        self, namespace: str, sinks: Collection[str], runs: Collection[str], /
    ) -> Sequence[StreamHead]:
        """Return, without locks, what sinks of these names have not heard of these runs.

        Those are the runs of which the last row is past the stream's news, and to which something has happened since
        the sink's `since`. Each is said as of then.
        """
        ...

    def due_runs(self, now: Micros, limit: int, /) -> Sequence[str]:
        """Return, without locks, keys of pending runs whose `start_at` is not after `now`, earliest first."""
        ...

    def overdue_runs(self, now: Micros, limit: int, /) -> Sequence[str]:
        """Return, without locks, keys of runs whose deadline has come, earliest first.

        Left out are those that have ended, or were told to end.
        """
        ...

    def waited_for(self, waiting: Waiting, places: Collection[SlotPlace], /) -> Sequence[WaitedFor]:
        """Return, without locks, those of these keys for which somebody waits, ascending.

        A pending run waits for a slot once it has no `start_at` any more; a job if its state is `limited`.
        """
        ...

    def all_waited_for(self, waiting: Waiting, after: SlotPlace, limit: int, /) -> Sequence[WaitedFor]:
        """Return, without locks, the next keys after `after` for which somebody waits, ascending.

        What this costs does not depend on how many wait for each.
        """
        ...

    def first_pending(self, wanted: Sequence[tuple[SlotPlace, int]], /) -> Sequence[str]:
        """Return, without locks, for each key so many of the runs that wait for its slots.

        Those of the lowest rank, and of those the oldest, are first.
        """
        ...

    def first_limited(self, wanted: Sequence[tuple[SlotPlace, int]], /) -> Sequence[JobKey]:
        """Return, without locks, for each key so many of the jobs that wait for its slots, as `first_pending`."""
        ...

    def slots(self, names: Collection[SlotName], /) -> Sequence[SlotName]:
        """Lock and return the rows of slots."""
        ...

    def used_slots(self, waiting: Waiting, places: Collection[SlotPlace], /) -> Mapping[SlotPlace, int]:
        """Return how many runs, or jobs, have a slot of each key (see `Run.has_slot`, `Job.has_slot`)."""
        ...

    def rates(self, names: Collection[RateName], /, *, lock: bool) -> Sequence[RateWindow]:
        """Return the rows in which starts are counted, by name, locked only if asked."""
        ...

    def rated_jobs(self, places: Collection[SlotPlace], /) -> Mapping[SlotPlace, int]:
        """Return how many jobs of each key have a rate limit and are queued: they may start at any moment."""
        ...

    def apply(self, changes: Sequence[Change], /) -> None:
        """Write these changes, in their order, all or none.

        ConflictError if a row that is to be added has a key, name or id that another has taken;
        RefusedError if the store can't keep a value.
        """
        ...


class Query(Generic[Answer]):
    """A question to the store, answered from a snapshot without locks. Never used for a decision."""


class Persistence(Protocol):
    """A store. Safe to use from several threads and several processes at once."""

    def setup(self) -> None:
        """Make the tables, or bring them up to date. Safe when raced; harmless when repeated.

        SchemaError if they are newer than this code knows.
        """
        ...

    def transact(self, work: Callable[[Transaction], R], /) -> R:
        """Run `work` in one transaction and return what it returned, once all its changes are durable.

        `work` is a plain function and may be run again from the start (after a serialization failure, a deadlock, a
        ConflictError, a lost connection), so it must do nothing but use `tx`. If it raises, nothing is stored and the
        error goes to the caller. Where a commit's answer is lost, its effects are stored once and its result
        is returned. UnavailableError if the store did not answer in time: then it is unknown whether it was stored.
        """
        ...

    def read(self, query: Query[R], /) -> R:
        """Answer a question from a snapshot. UnavailableError as above; TypeError for an unknown query."""
        ...

    def prune(self, before: Micros, /) -> int:
        """Remove what nobody will ask for again, and return how many rows that were.

        Those are replies stored before this instant, dead sessions that expired before it and hold nothing, counts of
        starts that were last changed before it, streams of sinks that are no more, and what the store keeps for itself
        about transactions that are long over. History is
        not among them. Once it is, no row of it may go that a stream of a sink has yet to deliver.
        """
        ...

    def close(self) -> None:
        """Give up all connections. Harmless when repeated."""
        ...


# Questions ------------------------------------------------------------------------------------------------------


@frozen
class FindRun(Query[Run | None]):
    """The newest generation of a run, or the given one."""

    name: RunName
    generation: int | None = None


@frozen
class RunsByKey(Query[tuple[Run, ...]]):
    """Runs by key, in no order."""

    keys: tuple[str, ...]


@frozen(kw_only=True)
class RunFilter:
    """Which runs are asked for: those of which all that is said here is true.

    `statuses` are those of which a run has one; none stands for all. `created_from` is the first instant that counts,
    `created_before` the first that does not any more. A run that is to have ended before `ended_before` has ended.
    `attributes` are names and texts: a run has each exactly so.
    `annotations` are too: each was said of a run at some time. With `newest` only the newest generation of each run
    counts.
    """

    namespace: str
    workflow: str | None = None
    statuses: frozenset[RunStatus] = frozenset()
    created_from: Micros | None = None
    created_before: Micros | None = None
    ended_before: Micros | None = None
    attributes: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    newest: bool = False


@frozen
class ListRuns(Query[tuple[Run, ...]]):
    """Runs by when they were created, those of one instant by key: newest first, or oldest first.

    For the next page give the place of the last run of this one as `after`. Runs that are created meanwhile move none
    that was there from one page to another. The run of that place need not exist any more.
    """

    which: RunFilter
    after: ListPlace | None = attrs.field(default=None, kw_only=True)
    oldest_first: bool = attrs.field(default=False, kw_only=True)
    limit: int = attrs.field(default=50, kw_only=True)


@frozen
class CountRuns(Query[dict[RunStatus, int]]):
    """How many of these runs there are of each status that any of them has."""

    which: RunFilter


@frozen
class JobsOfRun(Query[tuple[Job, ...]]):
    """The live jobs of a run, by number."""

    run: str


@frozen(kw_only=True)
class QueuedJobs(Query[tuple[Job, ...]]):
    """Queued jobs of these definitions, of runs that have not changed since then, by key.

    Jobs that sleep or are held are none of them. For the next page give the key of the last job of this one as `after`.
    """

    namespace: str
    definitions: tuple[str, ...]
    quiet_since: Micros
    after: JobKey | None = None
    limit: int = 100


@frozen
class HistoryOf(Query[tuple[HistoryRow, ...]]):
    """The next rows of a run's history after row `after`."""

    run: str
    after: int = 0
    limit: int = 1_000


@frozen(kw_only=True)
class NewestRows(Query[tuple[HistoryRow, ...]]):
    """The last rows of one type of a run's history, the last first; those before row `before`, if given."""

    run: str
    type: str
    before: int | None = None
    limit: int = 100


@frozen
class NotesOf(Query[tuple[OutputRow, ...]]):
    """What attempts of a run have said after note `after`, by id."""

    run: str
    after: str = ""
    limit: int = 1_000


@frozen
class ListSinks(Query[tuple[Sink, ...]]):
    """The sinks of a namespace, by name."""

    namespace: str


@frozen
class SinksWithNews(Query[tuple[str, ...]]):
    """Which of the sinks of these names have a stream that is due, and are not to be left alone at this instant."""

    namespace: str
    names: tuple[str, ...]
    now: Micros


@frozen
class StreamStart:
    """Where to read on in a run's history: after row `after`, or, if that is 0, from the first one since `since` on."""

    run: str
    after: int
    since: Micros


@frozen
class StreamRows(Query[tuple[HistoryRow, ...]]):
    """The next rows of several runs, at most `limit` of each, by run and number."""

    starts: tuple[StreamStart, ...]
    limit: int


@frozen(kw_only=True)
class DeadLetter:
    """A stream that is parked at the event `number`, which its sink has refused again and again."""

    sink: str
    run: str
    run_id: str
    number: int
    head_row: int
    attempts: int
    dead_lettered_at: Micros
    error: str


@frozen(kw_only=True)
class ListDeadLetters(Query[tuple[DeadLetter, ...]]):
    """Parked streams, by the name of the sink and the key of the run; of one sink and one run id, if these are not "".

    For the next page give the last one of this page as `after`.
    """

    namespace: str
    sink: str = ""
    run_id: str = ""
    after: DeadLetter | None = None
    limit: int = 100


@frozen
class CountDeadLetters(Query[dict[str, int]]):
    """How many parked streams each sink of a namespace has, those with none left out."""

    namespace: str


@frozen
class LastHeartbeat(Query[OutputRow | None]):
    """The newest note of kind `heartbeat` that attempts of a job have left, before the one of this epoch."""

    run: str
    job: int
    before: int


@frozen
class PlansByFingerprint(Query[tuple[PlanRow, ...]]):
    """Stored plans."""

    fingerprints: tuple[str, ...]


@frozen
class StoredValue:
    """A value as it is stored: one payload, or the payloads of a list (of a map's outputs, say)."""

    run: str
    reference: Reference
    payloads: tuple[Payload, ...]


@frozen
class LoadValues(Query[tuple[StoredValue, ...]]):
    """The payloads that references of runs stand for; only for references that are not lists.

    A reference to an item gives the one payload, to a map (or to its failures) those of its items in order; one to what
    another run has gives what it stands for there.
    """

    wanted: tuple[tuple[str, Reference], ...]


@frozen
class LoadedWork:
    """What attempts need to run."""

    runs: tuple[Run, ...]
    values: tuple[StoredValue, ...]


@frozen
class LoadWork(Query[LoadedWork]):
    """The runs of jobs, by key and epoch, in no order, and values as of `LoadValues`.

    What is not there is not in the answer. All is as it was when the jobs were leased in these epochs, or later: it is
    for whoever has just leased them.
    """

    jobs: tuple[tuple[JobKey, int], ...]
    wanted: tuple[tuple[str, Reference], ...]


@frozen
class OutputRows(Query[tuple[CompletedRow, ...]]):
    """The history rows in which a stage of a run was completed: one, or one for each item of a map."""

    run: str
    node: str


@frozen
class NodeRowsOf(Query[tuple[NodeRows, ...]]):
    """What the history of a run has about its nodes, in no order."""

    run: str


@frozen
class OwedJobs(Query[tuple[Job, ...]]):
    """Jobs that tell others of the end of a run, oldest run first; those after `after`, if given."""

    limit: int = 100
    after: JobKey | None = None


@frozen
class ChildrenLeft(Query[tuple[Run, ...]]):
    """Active runs that a job of these runs has started which is there no more, but for those that are to be abandoned.

    By the id of that job, up to the limit.
    """

    runs: tuple[str, ...]
    limit: int = 500


@frozen
class StoreTime(Query[Micros | None]):
    """The store's own time now; None where the store is on this machine and has no other clock."""


@frozen
class SchemaVersion(Query[str | None]):
    """The version of the tables; None if there are none."""


@frozen(kw_only=True)
class StoreCounts:
    """How many rows there are of what."""

    runs: dict[str, int]
    jobs: dict[str, int]


@frozen
class CountAll(Query[StoreCounts]):
    """How many runs of each status and jobs of each state there are in a namespace."""

    namespace: str
