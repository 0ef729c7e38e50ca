"""Results of searches, and data that they need: keys of rows, and the remains of runs."""

from collections.abc import Mapping

import attrs

from holdfast.ports.records.job import Job, JobKey
from holdfast.ports.records.limits import ConcurrencyPlan, RateName, RunRatePlan
from holdfast.ports.records.outbox import Stream, StreamHead, StreamKey
from holdfast.ports.records.run import RunName
from holdfast.ports.records.topic import GroupRow, SubscriptionName
from holdfast.ports.records.values import Micros
from holdfast.ports.records.workflow import WorkflowKey
from holdfast.ports.searches import RowOfTopic
from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class GroupTurn:
    """What a delivery may hand to the members of a group: to the first member the first message, and so on."""

    group_key: str
    members: tuple[SubscriptionName, ...]
    """The members that wait, the one that has waited longest first."""
    messages: tuple[str, ...]
    """The ids of the messages, in the order in which they are handed out."""
    returned: int
    """How many of the messages, the first ones, went back to the group before."""
    end: int
    """The number of the first message that the group may get after all of these."""
    is_page: bool = False
    """Whether there may be more members that wait."""


@frozen(kw_only=True)
class TopicRound:
    """What one delivery of a topic does: stored messages go to subscriptions behind, or new messages to the others."""

    namespace: str
    topic: str
    messages: tuple[str, ...] = ()
    """The ids of the messages to deliver. Those without a number, or with that of a message whose delivery has begun,
    get the next numbers in this order."""
    deliveries: tuple[tuple[SubscriptionName, str], ...] = ()
    """The subscriptions that get a message, each with the id of the message."""
    finished: int = 0
    """How many of the messages with new numbers all of their subscribers have after this."""
    after: tuple[str, str] | None = None
    """The run id and the channel of the last subscription that gets the next message, which some do not have yet."""
    behind: tuple[tuple[SubscriptionName, int], ...] = ()
    """Subscriptions behind, each with the number of the next message that it may get."""
    unreadable: tuple[SubscriptionName, ...] = ()
    """Subscriptions of runs that can't be read: they fall behind."""
    turns: tuple[GroupTurn, ...] = ()
    """Groups in which members wait, with the messages for them."""
    expired: tuple[str, ...] = ()
    """The ids of messages to delete."""
    groups: tuple[GroupRow, ...] = ()
    """The groups to store: they were removed with their topic, as members began to wait."""
    postponed: tuple[str, ...] = ()
    """The ids of messages that have expired and are to be kept: they expire later."""
    problem: str | None = None
    """What is wrong with the row of the topic; None if it can be read."""
    more: bool = False
    """Whether there may be more to deliver."""


@frozen
class SearchResult:
    """The result of a search: keys of rows, or heads of streams."""

    jobs: tuple[JobKey, ...] = ()
    sessions: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    schedules: tuple[str, ...] = ()
    topic: TopicRound | None = None
    topic_rows: tuple[RowOfTopic, ...] = ()
    """Rows of a topic that is removed."""
    first_number: int | None = None
    """The number of the first message of a topic since an instant; None without any."""
    run_names: tuple[RunName, ...] = ()
    """The names of runs that may be ended to make way for others: their jobs are read, too."""
    to_end: tuple[str, ...] = ()
    """The keys of runs that may be ended to make way under a concurrency key: they are locked with their drivers."""
    unreadable: tuple[RunName, ...] = ()
    """The names of runs whose rows can't be read: they have not been read."""
    next_at: Micros | None = None
    """When the next schedule is due that is not due yet, or the next rate of starts."""
    streams: tuple[StreamKey, ...] = ()
    stream_heads: tuple[StreamHead, ...] = ()
    """Streams behind the history of their runs, with the last row of each."""
    checked: int = 0
    """How many rows the search has looked at."""
    next: str | None = None
    """Where the next search continues; None at the end."""
    has_deliveries: bool = False
    """Whether any run of the store has a result to deliver to another run."""
    contents: tuple[str, ...] = ()
    """What a namespace has: `runs`, `schedules` or `sinks`."""
    workflows: tuple[tuple[WorkflowKey, Micros], ...] = ()
    """The registered workflows of a namespace, each with the instant at which it was registered last."""
    lines: tuple[str, ...] = ()
    """Concurrency keys, or rates of starts, that are to be looked at next."""
    rates: tuple[RateName, ...] = ()
    """The rates of starts whose lines were looked at."""
    queued: tuple[Job, ...] = ()
    """Queued jobs, for hints: they are not locked, and not in the tables."""


@frozen(kw_only=True)
class RunRemains:
    """What the generations of a run that is to be removed have left in the store."""

    runs: tuple[str, ...]
    """The keys of the generations, oldest first."""
    inputs: tuple[str, ...] = ()
    """The keys of the blobs of their inputs."""
    streams: tuple[Stream, ...] = ()
    has_deliveries: bool = False
    """Whether a generation has a result to deliver to another run, or external work to cancel."""
    lagging_sinks: frozenset[str] = frozenset()
    """The keys of sinks that lack events of a generation."""
    sinks: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """The names of all sinks, by key."""


@frozen(kw_only=True)
class NewRun:
    """A run that a command may start, as far as the concurrency limit goes that it may come under."""

    namespace: str
    workflow: str
    version: str | None
    concurrency: ConcurrencyPlan | None
    """The concurrency limit that the start has itself; None: that of the workflow."""
    rate: RunRatePlan | None
    """The rate of starts that the start has itself; None: that of the workflow."""
    attributes: str | None
    """The attributes of the run as JSON text; None: those of its parent, if it has one."""
    parent: str | None = None
    """The key of the parent run."""
