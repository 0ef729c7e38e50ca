"""Questions to a store of somebody who looks through all of it, page by page: of all namespaces, without locks."""

from collections.abc import Sequence

import attrs

from holdfast.ports.persistence import Query, SlotPlace, Waiting
from holdfast.ports.records import HistoryRow, Job, Micros, Run, RunName
from holdfast.ports.unreadable import Unreadable

LAST: str = "\U0010ffff"
"""A text that comes after every key."""


@attrs.frozen
class WholeRun:
    """A run and all its jobs, by number, as they were at one moment."""

    run: Run
    jobs: Sequence[Job]


@attrs.frozen(kw_only=True)
class WholeRuns(Query[tuple[WholeRun, ...]]):
    """The next runs after a key, in the order of their keys; with `keys`, those of these."""

    keys: tuple[str, ...] | None = None
    after: str = ""
    limit: int = 100


@attrs.frozen
class UnreadableRows(Query[tuple[Unreadable, ...]]):
    """The columns that can't be read of runs of these keys, of their jobs, histories and items: each of these once.

    Where there are jobs, and no row of their run, it is the column `run` of these.
    """

    keys: tuple[str, ...]


@attrs.frozen(kw_only=True)
class HistoriesOf(Query[tuple[HistoryRow, ...]]):
    """The histories of several runs, by run and number, without inline values: a payload is there if it is a blob.

    For the next page give run and number of the last row as `after`.
    """

    runs: tuple[str, ...]
    after: tuple[str, int] = ("", 0)
    limit: int = 1_000


@attrs.frozen
class KinOf(Query[tuple[str, ...]]):
    """The keys of runs by name: of each name the newest generation, and those that the job of this id waits for.

    The id is "" where there is no such job.
    """

    wanted: tuple[tuple[RunName, str], ...]


@attrs.frozen(kw_only=True)
class RowsOfNothing(Query[tuple[tuple[str, str], ...]]):
    """What there are rows of under keys of which there is no run, after one key and up to another.

    By key: the key, and one of `jobs`, `history`, `items`, `notes`, `annotations`, `artifacts` and `ai_calls`; and,
    where a store has an index of them, `attributes`.
    """

    after: str
    upto: str = LAST
    limit: int = 1_000


@attrs.frozen
class SlotsOver:
    """A key of which more have a slot than the highest limit among them allows."""

    place: SlotPlace
    used: int
    limit: int


@attrs.frozen
class SlotsOverLimit(Query[tuple[SlotsOver, ...]]):
    """The keys of which more runs, or jobs, have a slot than may, in their order."""

    waiting: Waiting
    limit: int = attrs.field(default=1_000, kw_only=True)


@attrs.frozen
class LiveSessions(Query[int]):
    """How many sessions there are that are open and have not expired at this instant."""

    now: Micros


@attrs.frozen
class StreamPlace:
    """How far a run's events have come to a sink, and how far its history goes; `last_row` is None without a run."""

    run: str
    head_row: int
    delivered: int
    due_at: Micros | None
    last_row: int | None


@attrs.frozen(kw_only=True)
class StreamPlaces(Query[tuple[StreamPlace, ...]]):
    """The next streams to the sink of this key, after that of a run."""

    sink: str
    after: str = ""
    limit: int = 1_000


@attrs.frozen
class BlobUse:
    """A blob that a row refers to. `what` says which: a history row, an artifact, a call of a model, or an item."""

    run: str
    what: str
    blob: str


@attrs.frozen(kw_only=True)
class BlobsOf(Query[tuple[BlobUse, ...]]):
    """The blobs that the rows of these runs refer to, those of their histories left out, by run."""

    runs: tuple[str, ...]
