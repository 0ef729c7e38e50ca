"""Queries for checking a whole store, page by page, over all namespaces and without locks."""

from collections.abc import Sequence

import attrs

from holdfast.ports.persistence import Query
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job
from holdfast.ports.records.run import Run, RunName
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import SlotPlace, Waiting
from holdfast.ports.unreadable import Unreadable

LAST: str = "\U0010ffff"
"""A text that sorts after every key."""


@attrs.frozen
class WholeRun:
    """A run and all its jobs, by number, from one snapshot."""

    run: Run
    jobs: Sequence[Job]


@attrs.frozen(kw_only=True)
class WholeRuns(Query[tuple[WholeRun, ...]]):
    """The next runs by key, each with its jobs."""

    keys: tuple[str, ...] | None = None
    """If set, only the runs with these keys are returned."""
    after: str = ""
    """The key of the last run of the page before."""
    limit: int = 100


@attrs.frozen
class UnreadableRows(Query[tuple[Unreadable, ...]]):
    """The columns that can't be read of these runs, their jobs, histories and items, each once.

    Jobs without a row of their run are reported as the column `run`.
    """

    keys: tuple[str, ...]


@attrs.frozen(kw_only=True)
class HistoriesOf(Query[tuple[HistoryRow, ...]]):
    """The histories of several runs, by run and number, without inline values: only blobs are returned as payloads."""

    runs: tuple[str, ...]
    after: tuple[str, int] = ("", 0)
    """Run and number of the last row of the page before."""
    limit: int = 1_000


@attrs.frozen
class RelatedRuns(Query[tuple[str, ...]]):
    """For each name, the key of the newest generation and those of the child runs that a job waits for."""

    wanted: tuple[tuple[RunName, str], ...]
    """Names of runs, each with the id of a parent job; "" if there is no such job."""


@attrs.frozen(kw_only=True)
class OrphanedRows(Query[tuple[tuple[str, str], ...]]):
    """Orphaned rows: keys without a run, each with the kind of rows that exist under it.

    The kinds are `jobs`, `history`, `map_items`, `attempt_output`, `annotations`, `artifacts`, `ai_calls` and, where a
    store has an index of them, `attributes`. Ordered by key.
    """

    after: str
    """The first key is after this one."""
    upto: str = LAST
    """The last key that counts."""
    limit: int = 1_000


@attrs.frozen
class SlotsOver:
    """A concurrency key with more slots taken than the highest limit among their holders."""

    place: SlotPlace
    used: int
    limit: int


@attrs.frozen
class SlotsOverLimit(Query[tuple[SlotsOver, ...]]):
    """The concurrency keys of which runs, or jobs, hold more slots than their limit, ascending."""

    waiting: Waiting
    limit: int = attrs.field(default=1_000, kw_only=True)


@attrs.frozen
class LiveSessions(Query[int]):
    """How many sessions are open and not expired at this instant."""

    now: Micros


@attrs.frozen
class StreamPlace:
    """How far a stream was delivered, and how far its run's history goes."""

    run: str
    head_row: int
    delivered: int
    due_at: Micros | None
    last_row: int | None
    """The number of the run's last row; None without a run."""


@attrs.frozen(kw_only=True)
class StreamPlaces(Query[tuple[StreamPlace, ...]]):
    """The next streams of a sink, by run."""

    sink: str
    """The key of the sink."""
    after: str = ""
    """The key of the run of the last stream of the page before."""
    limit: int = 1_000


@attrs.frozen
class BlobUse:
    """A blob that a row refers to."""

    run: str
    what: str
    """The kind of row: `artifact`, `ai_call` or `item`."""
    blob: str


@attrs.frozen(kw_only=True)
class BlobsOf(Query[tuple[BlobUse, ...]]):
    """The blobs that rows of these runs refer to, except those of history rows, by run."""

    runs: tuple[str, ...]
