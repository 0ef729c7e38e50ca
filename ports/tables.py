"""The tables of a store: for each kind of row its record, its key and its unique names."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final, Generic, TypeAlias

import attrs
from typing_extensions import TypeVar

from holdfast.ports.attempt_output import AiCall, Annotation, Artifact
from holdfast.ports.records.history import HistoryRow, OutputRow
from holdfast.ports.records.job import Job, JobKey
from holdfast.ports.records.limits import RateName, RateWindow, SlotName
from holdfast.ports.records.outbox import Sink, Stream, StreamKey
from holdfast.ports.records.run import Run
from holdfast.ports.records.session import LeaderLease, Session
from holdfast.ports.records.values import IdempotencyReply, MapItems, PlanRow

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
SLOTS: Final[Table[SlotName, SlotName]] = Table("slots", SlotName, ("namespace", "name"), lambda slot: slot)
RATES: Final[Table[RateWindow, RateName]] = Table(
    "rates", RateWindow, ("namespace", "name"), attrgetter("rate_name")
)

TABLES: Final[tuple[Table[Any, Any], ...]] = (
    RUNS,
    JOBS,
    HISTORY,
    MAP_ITEMS,
    PLANS,
    REPLIES,
    SESSIONS,
    LEADERS,
    OUTPUT,
    SINKS,
    STREAMS,
    ANNOTATIONS,
    ARTIFACTS,
    AI_CALLS,
    SLOTS,
    RATES,
)
"""In the order in which a transaction locks and writes them."""

OF_RUNS: Final = tuple(table for table in TABLES if table.key[0] == "run")
"""The tables whose rows are parts of a run: the first field of their key is its key."""

TABLE_OF: Final[Mapping[type, Table[Any, Any]]] = {table.record: table for table in TABLES}
"""By record."""

StoredRecord: TypeAlias = (
    Run
    | Job
    | HistoryRow
    | MapItems
    | PlanRow
    | IdempotencyReply
    | Session
    | LeaderLease
    | OutputRow
    | Sink
    | Stream
    | Annotation
    | Artifact
    | AiCall
    | SlotName
    | RateWindow
)
"""A record that is a row of its own."""
