"""The tables of a store: for each kind of row its record, its key and its unique names."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final, Generic, TypeAlias

import attrs
from typing_extensions import TypeVar

from holdfast.ports.attempt_output import AiCall, Annotation, Artifact
from holdfast.ports.records.audit_entry import AuditEntry
from holdfast.ports.records.browser_session import BrowserSession
from holdfast.ports.records.credential import Credential
from holdfast.ports.records.gatherings import Gathering, GatheringName
from holdfast.ports.records.history import HistoryRow, OutputRow
from holdfast.ports.records.job import Job, JobKey
from holdfast.ports.records.limits import (
    FairKey,
    FairKeyName,
    LimitName,
    LimitRow,
    RateName,
    RateWindow,
    SlotName,
)
from holdfast.ports.records.namespace import NamespaceRow
from holdfast.ports.records.outbox import Sink, Stream, StreamKey
from holdfast.ports.records.run import Run
from holdfast.ports.records.schedule import ScheduleRow
from holdfast.ports.records.session import LeaderLease, Registration, Session
from holdfast.ports.records.topic import (
    GroupName,
    GroupRow,
    MessageName,
    ReturnedName,
    ReturnedRow,
    SubscriptionName,
    SubscriptionRow,
    TopicMessageRow,
    TopicName,
    TopicRow,
)
from holdfast.ports.records.trigger import TriggerName, TriggerRow
from holdfast.ports.records.values import IdempotencyReply, MapItems, PlanRow
from holdfast.ports.records.workflow import WorkflowKey, WorkflowRow

Record = TypeVar("Record")
Key = TypeVar("Key")


class OnInsert(StrEnum):
    """What an insert does if a row with the same key or unique name exists."""

    REFUSE = "refuse"
    """It raises ConflictError."""
    KEEP = "keep"
    """It keeps the row that is there."""
    REPLACE = "replace"
    """It replaces that row."""


def _values_of_unique(table: "Table[Any, Any]") -> Callable[[Any], tuple[object, ...]]:
    if len(table.unique) == 1:
        value_of = attrgetter(table.unique[0])
        return lambda record: (value_of(record),)
    return attrgetter(*table.unique) if table.unique else lambda _: ()


@attrs.frozen(eq=False)
class Table(Generic[Record, Key]):
    """One kind of row. A table equals only itself."""

    name: str
    record: type[Record]
    key: tuple[str, ...]
    """The fields of the record that are its key. Rows are locked, and returned by key, in the order of their keys."""
    key_of: Callable[[Record], Key]
    """Returns the key of a record: the value of the field, or a tuple of the values of several."""
    unique: tuple[str, ...] = ()
    """Other fields whose values together are a unique name: no two rows share it, unless one of them is None."""
    on_insert: OnInsert = OnInsert.REFUSE

    _unique_of: Callable[[Record], tuple[object, ...]] = attrs.field(
        init=False, repr=False, default=attrs.Factory(_values_of_unique, takes_self=True)
    )

    def name_of(self, record: Record) -> tuple[object, ...] | None:
        """Return the unique name of a record, besides its key; None if it has none."""
        values = self._unique_of(record)
        return None if not values or None in values else values


NAMESPACES: Final[Table[NamespaceRow, str]] = Table("namespaces", NamespaceRow, ("name",), attrgetter("name"))
SCHEDULES: Final[Table[ScheduleRow, str]] = Table(
    "schedules", ScheduleRow, ("key",), attrgetter("key"), unique=("namespace", "name")
)
TRIGGERS: Final[Table[TriggerRow, TriggerName]] = Table(
    "triggers", TriggerRow, ("namespace", "name"), attrgetter("trigger_name")
)
TOPICS: Final[Table[TopicRow, TopicName]] = Table(
    "topics", TopicRow, ("namespace", "name"), attrgetter("topic_name")
)
RUNS: Final[Table[Run, str]] = Table(
    "runs", Run, ("key",), attrgetter("key"), unique=("namespace", "id", "generation")
)
JOBS: Final[Table[Job, JobKey]] = Table("jobs", Job, ("run", "number"), attrgetter("key"))
HISTORY: Final[Table[HistoryRow, tuple[str, int]]] = Table(
    "history", HistoryRow, ("run", "number"), attrgetter("run", "number")
)
MAP_ITEMS: Final[Table[MapItems, tuple[str, str, int]]] = Table(
    "map_items", MapItems, ("run", "node", "page"), attrgetter("run", "node", "page")
)
PLANS: Final[Table[PlanRow, str]] = Table(
    "plans", PlanRow, ("fingerprint",), attrgetter("fingerprint"), on_insert=OnInsert.KEEP
)
REPLIES: Final[Table[IdempotencyReply, tuple[str, str]]] = Table(
    "replies", IdempotencyReply, ("namespace", "key"), attrgetter("namespace", "key")
)
SESSIONS: Final[Table[Session, str]] = Table(
    "sessions", Session, ("id",), attrgetter("id"), on_insert=OnInsert.REPLACE
)
REGISTRATIONS: Final[Table[Registration, str]] = Table(
    "registrations", Registration, ("session",), attrgetter("session"), on_insert=OnInsert.REPLACE
)
LEADERS: Final[Table[LeaderLease, str]] = Table("leaders", LeaderLease, ("name",), attrgetter("name"))
OUTPUT: Final[Table[OutputRow, tuple[str, str]]] = Table(
    "attempt_output", OutputRow, ("run", "id"), attrgetter("run", "id"), on_insert=OnInsert.KEEP
)
SINKS: Final[Table[Sink, str]] = Table(
    "sinks", Sink, ("key",), attrgetter("key"), unique=("namespace", "name")
)
STREAMS: Final[Table[Stream, StreamKey]] = Table("streams", Stream, ("sink", "run"), attrgetter("key"))
ANNOTATIONS: Final[Table[Annotation, tuple[str, int, str]]] = Table(
    "annotations",
    Annotation,
    ("run", "at", "id"),
    attrgetter("run", "at", "id"),
    unique=("run", "key", "name"),
)
ARTIFACTS: Final[Table[Artifact, tuple[str, int, int, str, str]]] = Table(
    "artifacts", Artifact, ("run", "job", "epoch", "call", "name"), attrgetter("key")
)
AI_CALLS: Final[Table[AiCall, tuple[str, int, str]]] = Table(
    "ai_calls",
    AiCall,
    ("run", "at", "id"),
    attrgetter("run", "at", "id"),
    unique=("run", "batch", "batch_index"),
    on_insert=OnInsert.KEEP,
)
GATHERINGS: Final[Table[Gathering, GatheringName]] = Table(
    "gatherings", Gathering, ("namespace", "name"), attrgetter("gathering_name")
)
SLOTS: Final[Table[SlotName, SlotName]] = Table("slots", SlotName, ("namespace", "name"), lambda slot: slot)
RATES: Final[Table[RateWindow, RateName]] = Table(
    "rates", RateWindow, ("namespace", "name"), attrgetter("rate_name")
)
FAIR_KEYS: Final[Table[FairKey, FairKeyName]] = Table(
    "fair_keys",
    FairKey,
    ("namespace", "line", "key"),
    attrgetter("name"),
    # Of two transactions that add a key, none waits for the other: the later one counts, and one turn is lost.
    on_insert=OnInsert.REPLACE,
)
LIMITS: Final[Table[LimitRow, LimitName]] = Table(
    "limits", LimitRow, ("namespace", "name"), attrgetter("limit_name")
)
CREDENTIALS: Final[Table[Credential, str]] = Table(
    "credentials", Credential, ("id",), attrgetter("id"), unique=("unique_label",)
)
BROWSER_SESSIONS: Final[Table[BrowserSession, str]] = Table(
    "browser_sessions", BrowserSession, ("id",), attrgetter("id")
)
AUDIT_ENTRIES: Final[Table[AuditEntry, tuple[str, int, str]]] = Table(
    "audit_entries", AuditEntry, ("namespace", "at", "id"), attrgetter("namespace", "at", "id")
)
TOPIC_MESSAGES: Final[Table[TopicMessageRow, MessageName]] = Table(
    "topic_messages",
    TopicMessageRow,
    ("namespace", "topic", "id"),
    attrgetter("message_name"),
    on_insert=OnInsert.KEEP,
)
SUBSCRIPTIONS: Final[Table[SubscriptionRow, SubscriptionName]] = Table(
    "subscriptions",
    SubscriptionRow,
    ("namespace", "run_id", "channel"),
    attrgetter("subscription_name"),
    on_insert=OnInsert.KEEP,
)
GROUPS: Final[Table[GroupRow, GroupName]] = Table(
    "topic_groups",
    GroupRow,
    ("namespace", "topic", "group_key"),
    attrgetter("group_name"),
    on_insert=OnInsert.KEEP,
)
RETURNED_MESSAGES: Final[Table[ReturnedRow, ReturnedName]] = Table(
    "returned_messages",
    ReturnedRow,
    ("namespace", "topic", "group_key", "number"),
    attrgetter("returned_name"),
    on_insert=OnInsert.KEEP,
)
WORKFLOWS: Final[Table[WorkflowRow, WorkflowKey]] = Table(
    "workflows",
    WorkflowRow,
    ("namespace", "name", "version"),
    attrgetter("key"),
    # Of two workers that register a version at the same time, the later one counts.
    on_insert=OnInsert.REPLACE,
)

TABLES: Final[tuple[Table[Any, Any], ...]] = (
    NAMESPACES,
    SCHEDULES,
    TRIGGERS,
    TOPICS,
    RUNS,
    JOBS,
    HISTORY,
    MAP_ITEMS,
    PLANS,
    REPLIES,
    SESSIONS,
    REGISTRATIONS,
    LEADERS,
    OUTPUT,
    SINKS,
    STREAMS,
    ANNOTATIONS,
    ARTIFACTS,
    AI_CALLS,
    GATHERINGS,
    SLOTS,
    RATES,
    FAIR_KEYS,
    LIMITS,
    CREDENTIALS,
    BROWSER_SESSIONS,
    AUDIT_ENTRIES,
    WORKFLOWS,
    TOPIC_MESSAGES,
    SUBSCRIPTIONS,
    GROUPS,
    RETURNED_MESSAGES,
)
"""In the order in which a transaction locks and writes them."""

OF_RUNS: Final = tuple(table for table in TABLES if table.key[0] == "run")
"""The tables whose rows are parts of a run: the first field of their key is its key."""

TABLE_OF: Final[Mapping[type, Table[Any, Any]]] = {table.record: table for table in TABLES}
"""By record."""

StoredRecord: TypeAlias = (
    ScheduleRow
    | Run
    | Job
    | HistoryRow
    | MapItems
    | PlanRow
    | IdempotencyReply
    | Session
    | Registration
    | LeaderLease
    | OutputRow
    | Sink
    | Stream
    | Annotation
    | Artifact
    | AiCall
    | Gathering
    | SlotName
    | RateWindow
    | FairKey
    | LimitRow
    | Credential
    | BrowserSession
    | AuditEntry
    | NamespaceRow
    | WorkflowRow
    | TriggerRow
    | TopicRow
    | TopicMessageRow
    | SubscriptionRow
    | GroupRow
    | ReturnedRow
)
"""A record that is a row of its own."""
