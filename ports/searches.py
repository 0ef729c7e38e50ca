"""Searches: what a transaction finds by something else than keys. Each class is one search of `Transaction.find`.

Lists of keys or names may have duplicates. Those that do not exist are missing from the answer.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Final, Generic, Literal, NamedTuple

import attrs
from typing_extensions import TypeVar

from holdfast.ports.attempt_output import Annotation
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.records.browser_session import BrowserSession
from holdfast.ports.records.credential import Credential
from holdfast.ports.records.history import STAGE_COMPLETED
from holdfast.ports.records.job import Job, JobKey, JobKind, PassOver
from holdfast.ports.records.limits import FairKeyName, RateName
from holdfast.ports.records.outbox import Sink, SinkName, Stream, StreamHead
from holdfast.ports.records.run import Run, RunName
from holdfast.ports.records.schedule import ScheduleName, ScheduleRow
from holdfast.ports.records.session import Session
from holdfast.ports.records.topic import GroupRow, SubscriptionRow, TopicMessageRow, TopicName
from holdfast.ports.records.values import Micros
from holdfast.ports.records.workflow import WorkflowKey
from holdfast.ports.structs import evolve, frozen
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
    """What waits in lines: pending runs for a slot, or for the rate of starts, and limited jobs for both."""

    RUNS = "runs"
    """Pending runs that wait for a slot of their concurrency key."""
    RATED_RUNS = "rated_runs"
    """Pending runs that wait for their rate of starts: their lines have its names as keys, and no slots."""
    JOBS = "jobs"
    """Limited jobs that wait for a slot or a rate limit of their stage or step."""


class SlotPlace(NamedTuple):
    """A concurrency key in a namespace. Sorts in the order in which stores search them."""

    namespace: str
    key: str


class KeySpan(NamedTuple):
    """The concurrency keys of a namespace from `first` on, and before `beyond`."""

    namespace: str
    first: str
    beyond: str


@frozen
class WaitedFor:
    """A concurrency key with waiting runs or jobs. The limits are those of the first one that waits."""

    place: SlotPlace
    limit: int | None
    """The concurrency limit; None if slots are not counted."""
    used: int
    """How many slots are taken, by runs also those of keys within this one. 0 with outer limits (`SlotsInSpans`)."""
    rate_limit: int | None = None
    rate_period: Micros | None = None
    has_limits: bool = False
    """Whether an operator has ever changed a limit or paused a queue of this store."""
    outer: tuple[int, ...] = ()
    """The limits of the outer levels of the key, the outermost first."""
    position: Micros = 0
    """The rank of the first one that waits."""

    @property
    def free(self) -> int | None:
        """How many slots are free; None without a limit."""
        return None if self.limit is None else max(0, self.limit - self.used)


class QueuePart(NamedTuple):
    """Where the first jobs of runs wait: what a claim reads in one piece."""

    namespace: str
    queue: str
    definition: str


class PartTurn(NamedTuple):
    """A turn in a part."""

    part: QueuePart
    turn: int


class WaitingTurn(NamedTuple):
    """The turn of a job that waits for its first claim."""

    turn: int
    since: Micros
    """The instant by which it is ranked (see `waits_since`)."""


class TurnsAround(NamedTuple):
    """The waiting jobs on both sides of a turn."""

    before: WaitingTurn | None
    """The last one with a lower turn."""
    after: WaitingTurn | None
    """The first one with this turn or a higher one."""


@frozen(kw_only=True)
class OpenRunsOfKey:
    """The open runs of one concurrency key that are not ending."""

    under_way: int = 0
    """How many have a slot (see `Run.has_slot`)."""
    waiting: int = 0
    """How many have none."""
    oldest_under_way: tuple[str, ...] = ()
    """The keys of the oldest of those under way, by creation."""
    oldest_waiting: tuple[str, ...] = ()
    """The keys of the oldest of those that wait, by creation."""
    newest: str | None = None
    """The key of the newest of all."""
    newest_id: str | None = None
    """Its id."""
    slots: int | None = None
    """How many slots an operator has set for the key (see `LimitRow`); None: the limit is that of its runs."""

    @property
    def total(self) -> int:
        """How many there are."""
        return self.under_way + self.waiting

    def without(self, has_slot: bool) -> "OpenRunsOfKey":
        """Return the counts without one run that has a slot, or has none."""
        if has_slot:
            return evolve(self, under_way=self.under_way - 1)
        return evolve(self, waiting=self.waiting - 1)


class LockedAttempts(NamedTuple):
    """The result of `Transaction.lock_attempts` and of `ClaimableJobs`."""

    runs: Sequence[Run]
    """Locked."""
    jobs: Sequence[Job]
    """Locked."""
    sessions: Sequence[Session]
    """Not locked."""
    has_limits: bool = False
    """Whether an operator has ever changed a limit or paused a queue of this store, as far as it was looked for.

    It is looked for whenever sessions are: at no extra cost, so that reading those rows costs nothing without any.
    """


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
    - Jobs of paused queues (`LimitRow.is_paused`) are left out.
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


@frozen
class SessionsForClaims(Search[LockedAttempts]):
    """Sessions by id, and whether the store has limits that were changed (`has_limits`). Locked only with `locks`."""

    ids: Collection[str]
    locks: bool = False


# Runs -----------------------------------------------------------------------------------------------------------


@frozen
class LatestRuns(Search[Sequence[Run]]):
    """The newest generation of each named run, locked, by key."""

    names: Collection[RunName]


@frozen
class LatestRunsAndDrivers(Search[LockedAttempts]):
    """The newest generation of each named run, with its first job if that drives a durable function; locked, by key.

    There are no sessions in the result.
    """

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
    """The keys of pending runs whose `start_at` is not after `now`, earliest first.

    Those of one namespace cost nothing for what is due in others.
    """

    limit: int = attrs.field(validator=not_negative)
    namespace: str | None = None
    """None for all namespaces."""


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


# Schedules ------------------------------------------------------------------------------------------------------


@frozen
class DueSchedules(Search[Sequence[ScheduleRow]]):
    """Schedules of these workflows, locked, whose `next_at` is not after `now`, those due longest first.

    Schedules that other transactions have locked are skipped. The cost does not depend on schedules that are not due,
    or of other workflows.
    """

    namespace: str
    workflows: Collection[str]
    limit: int = attrs.field(validator=not_negative)


@frozen
class NextScheduleTime(Search[Micros | None]):
    """The earliest `next_at` after `now` of the schedules of these workflows. One index lookup a workflow."""

    namespace: str
    workflows: Collection[str]


@frozen
class SchedulesByName(Search[Sequence[ScheduleRow]]):
    """Schedules by name, locked, in the order of their keys."""

    names: Collection[ScheduleName]


@frozen
class SchedulesOfOtherZones(Search[Sequence[ScheduleRow]]):
    """The next schedules of these workflows by key from `after` on, locked, computed with other time zone data.

    That is, `zones` is neither empty nor `version`. Schedules that other transactions have locked are skipped.
    """

    namespace: str
    workflows: tuple[str, ...]
    version: str
    after: str
    limit: int = attrs.field(validator=not_negative)


# Topics -----------------------------------------------------------------------------------------------------------


EXPIRED_WINDOW: Final = 1_000
"""How many expired messages of all topics are looked at for their topics."""


@frozen
class TopicToDeliver(Search[TopicName | None]):
    """The first topic of all namespaces, after a name, with something to deliver; None without any.

    That is, a message without a number, a message that some of its subscribers have, a subscription with a
    `next_number`, a group as of `GroupsToServe`, or a message with a number that has expired before `now`: of these, a
    topic is found if it has one of the first `EXPIRED_WINDOW`.
    """

    after_namespace: str
    after_name: str


@frozen
class TopicUsers(Search[Sequence[str]]):
    """What uses a topic: those of `subscriptions` and `triggers` of which there is at least one, in this order."""

    namespace: str
    topic: str


class RowOfTopic(NamedTuple):
    """A row that belongs to a topic."""

    kind: Literal["message", "returned", "group"]
    """A message, one that went back to a group, or a group."""
    name: str
    """The id of the message, or the key of the group."""
    number: int = 0
    """The number of a message that went back."""


@frozen
class RowsOfTopic(Search[Sequence[RowOfTopic]]):
    """The rows of a topic: its messages, then those that went back, then its groups; each by name and number."""

    namespace: str
    topic: str
    limit: int = attrs.field(validator=not_negative)


@frozen
class NewMessages(Search[Sequence[TopicMessageRow]]):
    """The first messages of a topic without a number, by instant, row of their sender, and id."""

    namespace: str
    topic: str
    limit: int = attrs.field(validator=not_negative)


@frozen
class NumberedMessages(Search[Sequence[TopicMessageRow]]):
    """Messages of a topic by ascending number, from `number` on. `limit` is the most."""

    namespace: str
    topic: str
    number: int
    limit: int = attrs.field(validator=not_negative)


@frozen
class FirstNumberSince(Search[int | None]):
    """The lowest number of the messages of a topic that were published at `since` or later; None without any.

    The cost depends on these messages only.
    """

    namespace: str
    topic: str
    since: Micros


class ExpiredMessage(NamedTuple):
    """A message that has expired."""

    id: str
    is_kept: bool
    """Whether it has to be kept all the same."""


@frozen
class ExpiredMessages(Search[Sequence[ExpiredMessage]]):
    """Messages of a topic that have expired before `now`, with a number up to `number`: the first by expiry, then id.

    These are to be kept:

    - those that a trigger of the topic has to handle: from its `next_number` on;
    - those that a group has to hand out, from its `next_number` on, unless no member waits and it was not used for
      `GROUP_IDLE` before `now`;
    - those that a member of a group holds, and those that went back to a group.
    """

    namespace: str
    topic: str
    number: int
    limit: int = attrs.field(validator=not_negative)


KEPT_WINDOW: Final = 1_000
"""How many messages that members hold, or that went back, may come before one that `MessagesBefore` finds."""


@frozen
class MessagesBefore(Search[Sequence[str]]):
    """The ids of messages of a topic with a number below `number`, by number, without those that are to be kept.

    They are those of `ExpiredMessages`. `limit` is the most. Of the messages that triggers and groups have passed, the
    first `limit` and `KEPT_WINDOW` more are looked at.
    """

    namespace: str
    topic: str
    number: int
    limit: int = attrs.field(validator=not_negative)


@frozen
class SubscriptionsOfDigests(Search[Sequence[SubscriptionRow]]):
    """Subscriptions of a topic that have caught up and have one of these digests, in the order of their names.

    Those up to `after_run` and `after_channel` are left out. The cost does not depend on subscriptions with other
    digests.
    """

    namespace: str
    topic: str
    digests: Collection[str]
    after_run: str
    after_channel: str
    limit: int = attrs.field(validator=not_negative)


@frozen
class SubscriptionsBehind(Search[Sequence[SubscriptionRow]]):
    """Subscriptions of a topic that have not caught up with its stored messages, in the order of their names."""

    namespace: str
    topic: str
    limit: int = attrs.field(validator=not_negative)


@frozen
class GroupsToServe(Search[Sequence[GroupRow]]):
    """Groups of a topic in which a member waits and a message may be handed out, by key.

    That is, a stored message that went back to the group, or one with a number from its `next_number` up to `number`.
    """

    namespace: str
    topic: str
    number: int
    limit: int = attrs.field(validator=not_negative)


@frozen
class WaitingMembers(Search[Sequence[SubscriptionRow]]):
    """The members of a group that wait for its next message: those that have waited longest, then by name.

    Those that hold a message do not wait.
    """

    namespace: str
    topic: str
    group_key: str
    limit: int = attrs.field(validator=not_negative)


@frozen
class MembersWithoutGroup(Search[Sequence[SubscriptionRow]]):
    """The members that wait in a topic whose group is not stored: by its key, and as of `WaitingMembers`.

    The topic was removed as they began to wait.
    """

    namespace: str
    topic: str
    limit: int = attrs.field(validator=not_negative)


@frozen
class ReturnedMessages(Search[Sequence[TopicMessageRow]]):
    """The messages that went back to a group and are still stored, by number."""

    namespace: str
    topic: str
    group_key: str
    limit: int = attrs.field(validator=not_negative)


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

    A pending run waits once its `start_at` is None, for its rate while `in_rate_line` is set, else for a slot; a job
    waits while its state is `limited`.
    """

    waiting: Waiting
    places: Collection[SlotPlace]


@frozen
class KeysWaitedForInSpans(Search[Sequence[WaitedFor]]):
    """The concurrency keys for which runs wait, ascending: the first ones of each span, `limit` at most.

    The spans do not overlap. The cost does not depend on how many wait for each key.
    """

    spans: Collection[KeySpan]
    limit: int = attrs.field(validator=not_negative)


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
    waiting: Waiting = Waiting.RUNS
    """`RUNS` or `RATED_RUNS`."""


@frozen
class DueRunRates(Search[Sequence[RateName]]):
    """The names of the rates of starts whose `admits_at` is not after `now`, those due longest first."""

    limit: int = attrs.field(validator=not_negative)
    namespace: str | None = None
    """None for all namespaces."""


@frozen
class FirstLimitedJobs(Search[Sequence[JobKey]]):
    """The keys of the first jobs that wait for each concurrency key, as `FirstPendingRuns`."""

    wanted: Sequence[tuple[SlotPlace, int]]


@frozen
class UsedSlots(Search[Mapping[SlotPlace, int]]):
    """How many runs, or jobs, hold a slot of each key (see `Run.has_slot`, `Job.has_slot`).

    Runs also hold a slot of each outer level of their key.
    """

    waiting: Waiting
    places: Collection[SlotPlace]


@frozen
class SlotsInSpans(Search[Mapping[SlotPlace, int]]):
    """How many runs hold a slot by each concurrency key of these spans, which do not overlap; only keys with holders.

    The cost is that of reading the holders.
    """

    spans: Collection[KeySpan]


@frozen
class OpenRuns(Search[Mapping[SlotPlace, OpenRunsOfKey]]):
    """The open runs of concurrency keys: those that `Run.counts_for_starts`, oldest first.

    `wanted` has for each key how many runs under way, and how many that wait, are named at most.
    """

    wanted: Sequence[tuple[SlotPlace, int]]


@frozen
class NamespaceRuns(Search[tuple[int, int]]):
    """How many runs of a namespace are active, and how many were created after an instant, each up to a number."""

    namespace: str
    active_max: int
    since: Micros
    started_max: int


@frozen
class WorkflowsOfNamespace(Search[Sequence[tuple[WorkflowKey, Micros]]]):
    """The keys of the registered workflows of a namespace, each with its `registered_at`, by key."""

    namespace: str


@frozen
class NamespaceParts(Search[Sequence[str]]):
    """What a namespace has, in this order: `runs`, `schedules`, `triggers`, `sinks`, `topics` with at least one row."""

    namespace: str


@frozen
class QueuedUnderRates(Search[Mapping[SlotPlace, int]]):
    """How many jobs of each key have a rate limit and are queued, so that they may start at any moment."""

    places: Collection[SlotPlace]


@frozen
class FirstTurns(Search[Mapping[QueuePart, WaitingTurn]]):
    """The lowest turn in each part among the jobs for which `Job.waits_for_turn` is true; no part without such jobs.

    One index lookup a part.
    """

    parts: Collection[QueuePart]


@frozen
class NeighbouringTurns(Search[Mapping[PartTurn, TurnsAround]]):
    """The jobs that wait on both sides of each of these turns. One index lookup each."""

    turns: Collection[PartTurn]


@frozen
class HighestTurns(Search[Mapping[FairKeyName, int]]):
    """The highest `next_turn` of all keys of each line, without those of lines without a key.

    Lines are named with an empty key. One index lookup a line.
    """

    lines: Collection[FairKeyName]


@frozen
class SleepersUnderRates(Search[Sequence[Job]]):
    """The jobs, locked, that sleep until a rate limit allows the next start, by key.

    One for each rate limit whose name begins with `start` and ends with `end`, and whose `wakes_at` is after `now`.
    """

    namespace: str
    start: str
    end: str
    limit: int = attrs.field(validator=not_negative)


@frozen
class QueuedOfQueue(Search[Sequence[Job]]):
    """The next queued jobs of a queue after `after`, by definition and in the order of claims. Not locked."""

    namespace: str
    queue: str
    after: tuple[str, Micros, str, int]
    """Definition, rank, run and number of the last job of the page before."""
    limit: int = attrs.field(validator=not_negative)


@frozen
class CredentialsNamed(Search[Sequence[Credential]]):
    """Credentials, locked, whose id or label is one of these, by id. Labels of revoked ones do not count."""

    names: Collection[str]


@frozen
class AnyCredential(Search[bool]):
    """Whether any credential is stored, valid or not."""


@frozen
class BrowserSessionsOfPrincipal(Search[Sequence[BrowserSession]]):
    """Browser sessions of a principal, locked, by id; also those that have ended and are not yet deleted."""

    kind: str
    principal: str
