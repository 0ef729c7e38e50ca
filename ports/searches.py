"""Searches: what a transaction finds by something else than keys. Each class is one search of `Transaction.find`.

Lists of keys or names may have duplicates. Those that do not exist are missing from the answer.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Generic, NamedTuple

import attrs
from typing_extensions import TypeVar

from holdfast.ports.attempt_output import Annotation
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.records.history import STAGE_COMPLETED
from holdfast.ports.records.job import Job, JobKey, JobKind, PassOver
from holdfast.ports.records.outbox import Sink, SinkName, Stream, StreamHead
from holdfast.ports.records.run import Run, RunName
from holdfast.ports.records.session import Session
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen
from holdfast.ports.unreadable import RunOutline

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
    """The result of `Transaction.lock_attempts` and of `ClaimableJobs`."""

    runs: Sequence[Run]
    """Locked."""
    jobs: Sequence[Job]
    """Locked."""
    sessions: Sequence[Session]
    """Not locked."""


def not_negative(_: object, field: "attrs.Attribute[int]", value: int) -> None:
    """Raise InvalidCommandError for a negative number. A validator of attrs."""
    if value < 0:
        raise InvalidCommandError(f"{field.name} is {value}; it must not be negative")


def _not_negative_each(
    _: object, field: "attrs.Attribute[Sequence[QueueClaim]]", value: Sequence[QueueClaim]
) -> None:
    for queue_claim in value:
        if queue_claim.limit < 0:
            raise InvalidCommandError(f"{field.name}: the limit of {queue_claim} must not be negative")


class Search(Generic[Answer]):
    """A search of `Transaction.find`. Takes no locks, except where its class calls rows locked.

    Raises:
        InvalidCommandError: Its `limit` or `grace` is negative.
    """

    __slots__ = ()


# Jobs -----------------------------------------------------------------------------------------------------------


@frozen
class ClaimableJobs(Search[LockedAttempts]):
    """Queued jobs, locked, with the session that is to have them, not locked. One round trip.

    - Jobs that other transactions have locked are skipped.
    - At most each queue's own limit, and `limit` in all: lowest rank first, then oldest run, then lowest number.
    - Jobs for which `Job.is_passed_over(pass_over)` is true are left out, and use up no limit.
    - The cost does not depend on jobs of other queues or definitions, or on jobs that sleep or are paused.
    - If no job is found, the session is not returned.
    """

    namespace: str
    queue_claims: Sequence[QueueClaim] = attrs.field(validator=_not_negative_each)
    limit: int = attrs.field(validator=not_negative)
    pass_over: PassOver = PassOver.NOTHING
    session: str = attrs.field(default="", eq=False)
    """The id of the session. Searches that differ in it alone find the same jobs, and are equal."""


@frozen
class DueJobs(Search[Sequence[Job]]):
    """Sleeping jobs, locked, whose `wake_at` is not after `now`, earliest first.

    Jobs that other transactions have locked are skipped. With `kind`, only jobs of that kind are returned.
    """

    limit: int = attrs.field(validator=not_negative)
    kind: JobKind | None = None


@frozen
class JobsOfRuns(Search[Sequence[Job]]):
    """All jobs of these runs, locked, by key."""

    runs: Collection[str]


@frozen
class StageJobs(Search[Sequence[JobKey]]):
    """The keys of a stage's jobs that poll external work, or whose bodies run.

    They belong to the newest generation of the run. For a map, `item` selects one item, None all of them.
    """

    namespace: str
    run_id: str
    stage: str
    item: int | None = None


@frozen
class ExternalJobs(Search[Sequence[JobKey]]):
    """The keys of the jobs that poll the external work with this key."""

    namespace: str
    key: str


@frozen
class LostJobs(Search[Sequence[JobKey]]):
    """The keys of jobs that are leased to dead sessions."""

    limit: int = attrs.field(validator=not_negative)


@frozen
class OverdueHeartbeats(Search[Sequence[JobKey]]):
    """The keys of leased jobs with a `heartbeat_by` more than `grace` microseconds before `now`, earliest first."""

    grace: Micros = attrs.field(validator=not_negative)
    limit: int = attrs.field(validator=not_negative)


@frozen
class AnyPendingDelivery(Search[bool]):
    """Whether any job is pending delivery."""


# Sessions -------------------------------------------------------------------------------------------------------


@frozen
class ExpiredSessions(Search[Sequence[Session]]):
    """Open sessions, locked, that expired more than `grace` microseconds before `now`.

    Those that other transactions have locked are skipped.
    """

    grace: Micros = attrs.field(validator=not_negative)
    limit: int = attrs.field(validator=not_negative)


# Runs -----------------------------------------------------------------------------------------------------------


@frozen
class LatestRuns(Search[Sequence[Run]]):
    """The newest generation of each named run, locked, by key."""

    names: Collection[RunName]


@frozen
class Generations(Search[Sequence[Run]]):
    """All generations of each named run, by name and generation, ascending.

    While the newest generation is locked, the answer is complete: no other transaction can add one.
    """

    names: Collection[RunName]


@frozen
class RunKeys(Search[Sequence[str]]):
    """The next keys of runs after `after`, ascending."""

    after: str
    limit: int = attrs.field(validator=not_negative)


@frozen
class ActiveRuns(Search[Sequence[str]]):
    """The next keys after `after` of runs that have not ended, ascending."""

    after: str
    limit: int = attrs.field(validator=not_negative)


@frozen
class IncompleteRuns(Search[Sequence[str]]):
    """The keys of those of these runs whose jobs do not match their row.

    A run is returned if it has not ended, and its number of jobs differs from `open_jobs`, or is 0 although it was
    admitted. Jobs for which `Job.outlives_run` is true do not count.
    """

    runs: Collection[str]


@frozen
class DueRuns(Search[Sequence[str]]):
    """The keys of pending runs whose `start_at` is not after `now`, earliest first."""

    limit: int = attrs.field(validator=not_negative)


@frozen
class OverdueRuns(Search[Sequence[str]]):
    """The keys of runs whose deadline is not after `now`, earliest first.

    Runs that have ended or are ending are left out.
    """

    limit: int = attrs.field(validator=not_negative)


@frozen
class RunOutlines(Search[Sequence[RunOutline]]):
    """The columns of these runs that can be read even if others are damaged, by key. Locked only with `locks`."""

    runs: Collection[str]
    locks: bool


# History and annotations ----------------------------------------------------------------------------------------


@frozen
class NodeResults(Search[Sequence[CompletedRow]]):
    """The history rows in which stages and map items of these runs completed, in the order of the history.

    With `types`, the rows of those types.
    """

    runs: Collection[str]
    types: Collection[str] = (STAGE_COMPLETED,)


@frozen
class NodeSummaries(Search[Sequence[NodeRows]]):
    """A summary of the history rows about each node of these runs, in no order."""

    runs: Collection[str]


@frozen
class AnnotationKeys(Search[Sequence[tuple[str, str, str]]]):
    """Run, key and name of the annotations under each (run, key), ascending."""

    keys: Collection[tuple[str, str]]


@frozen
class RunAnnotations(Search[Sequence[Annotation]]):
    """The annotations of these runs with scope `run`, by run and in the order of `place`."""

    runs: Collection[str]


# Sinks and streams ----------------------------------------------------------------------------------------------


@frozen
class AllSinks(Search[Sequence[Sink]]):
    """Every sink of every namespace, by key."""


@frozen
class SinksByName(Search[Sequence[Sink]]):
    """Sinks by name, in the order of their keys. Locked only with `locks`."""

    names: Collection[SinkName]
    locks: bool


@frozen
class DueStreams(Search[Sequence[Stream]]):
    """A sink's streams, locked, whose `due_at` is not after `now`, those due longest first.

    - Streams that other transactions have locked are skipped.
    - Empty while the sink's `retry_at` is after `now`.
    """

    namespace: str
    sink: str
    limit: int = attrs.field(validator=not_negative)


@frozen
class DeadLetteredStreams(Search[Sequence[Stream]]):
    """Dead-lettered streams, locked, by key.

    `sink` and `run_id` select the sink of that name and the run with that id; "" selects all.
    """

    namespace: str
    sink: str
    run_id: str
    limit: int = attrs.field(validator=not_negative)


@frozen
class UndeliveredHeads(Search[Sequence[StreamHead]]):
    """A stream head for each sink and run with rows that the stream does not know yet.

    - `sinks` are names of sinks of the namespace.
    - A run counts if its last row is after the stream's `head_row`, and it was updated since the sink's `since`.
    - `at` of a head is the run's `updated_at`.
    """

    namespace: str
    sinks: Collection[str]
    runs: Collection[str]


# Limits ---------------------------------------------------------------------------------------------------------


@frozen
class KeysWaitedFor(Search[Sequence[WaitedFor]]):
    """Those of these concurrency keys for which runs or jobs wait, ascending.

    A pending run waits once its `start_at` is None; a job waits while its state is `limited`.
    """

    waiting: Waiting
    places: Collection[SlotPlace]


@frozen
class AllKeysWaitedFor(Search[Sequence[WaitedFor]]):
    """The next concurrency keys after `after` for which runs or jobs wait, ascending.

    The cost does not depend on how many wait for each key.
    """

    waiting: Waiting
    after: SlotPlace
    limit: int = attrs.field(validator=not_negative)


@frozen
class FirstPendingRuns(Search[Sequence[str]]):
    """The keys of the first runs that wait for each concurrency key, as many as requested for it.

    The order is lowest rank, then oldest run.
    """

    wanted: Sequence[tuple[SlotPlace, int]]


@frozen
class FirstLimitedJobs(Search[Sequence[JobKey]]):
    """The keys of the first jobs that wait for each concurrency key, as `FirstPendingRuns`."""

    wanted: Sequence[tuple[SlotPlace, int]]


@frozen
class UsedSlots(Search[Mapping[SlotPlace, int]]):
    """How many runs, or jobs, hold a slot of each key (see `Run.has_slot`, `Job.has_slot`)."""

    waiting: Waiting
    places: Collection[SlotPlace]


@frozen
class QueuedUnderRates(Search[Mapping[SlotPlace, int]]):
    """How many jobs of each key have a rate limit and are queued, so that they may start at any moment."""

    places: Collection[SlotPlace]
