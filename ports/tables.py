"""The tables of a store: for each kind of row its record, its key and its unique names."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final, Generic

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


@attrs.frozen(eq=False)
class Table(Generic[Record, Key]):
    """One kind of row. A table equals only itself."""

    name: str
    record: type[Record]
    key: tuple[str, ...]
    """The fields of the record that are its key. Rows are locked, and returned by key, in the order of their keys."""
    key_of: Callable[[Record], Key]
    """Returns the key of a record: the value of the field, or a tuple of the values of several."""
    unique: tuple[tuple[str, ...], ...] = ()
    """Other sets of fields whose values no two rows share, unless one of these values is None."""
    on_insert: OnInsert = OnInsert.REFUSE


RUNS: Final[Table[Run, str]] = Table(
    "runs", Run, ("key",), attrgetter("key"), unique=(("namespace", "id", "generation"),)
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
    "output", OutputRow, ("run", "id"), attrgetter("run", "id")
)
SINKS: Final[Table[Sink, str]] = Table(
    "sinks", Sink, ("key",), attrgetter("key"), unique=(("namespace", "name"),)
)
STREAMS: Final[Table[Stream, StreamKey]] = Table("streams", Stream, ("sink", "run"), attrgetter("key"))
ANNOTATIONS: Final[Table[Annotation, tuple[str, int, str]]] = Table(
    "annotations",
    Annotation,
    ("run", "at", "id"),
    attrgetter("run", "at", "id"),
    unique=(("run", "key", "name"),),
)
ARTIFACTS: Final[Table[Artifact, tuple[str, int, int, str]]] = Table(
    "artifacts",
    Artifact,
    ("run", "job", "epoch", "call", "name"),
    attrgetter("run", "job", "epoch", "call", "name"),
)
AI_CALLS: Final[Table[AiCall, tuple[str, int, str]]] = Table(
    "ai_calls",
    AiCall,
    ("run", "at", "id"),
    attrgetter("run", "at", "id"),
    unique=(("run", "batch", "batch_index"),),
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

TABLE_OF: Final[Mapping[type, Table[Any, Any]]] = {table.record: table for table in TABLES}
"""By record."""
