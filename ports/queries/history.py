"""Queries for history rows and attempt output."""

from holdfast.ports.persistence import Query
from holdfast.ports.records.history import HistoryRow, OutputRow
from holdfast.ports.searches import CompletedRow, NodeRows
from holdfast.ports.structs import frozen


@frozen
class HistoryOf(Query[tuple[HistoryRow, ...]]):
    """The next rows of a run's history, after the row with number `after`."""

    run: str
    after: int = 0
    limit: int = 1_000


@frozen
class HistoriesOf(Query[tuple[HistoryRow, ...]]):
    """The next rows of several runs' histories, those of a run one after the other and in order."""

    places: tuple[tuple[str, int], ...]
    """The key of each run, once, and the number of the row after which its rows begin."""
    limit: int = 1_000
    """The most rows of all runs together. If so many are returned, those of the last run may be incomplete."""


@frozen(kw_only=True)
class NewestRows(Query[tuple[HistoryRow, ...]]):
    """The last rows of one type of a run's history, in descending order."""

    run: str
    type: str
    before: int | None = None
    """If set, only rows with lower numbers are returned."""
    limit: int = 100


@frozen
class NotesOf(Query[tuple[OutputRow, ...]]):
    """The attempt output of a run, by id."""

    run: str
    after: str = ""
    """The id of the last row of the page before."""
    limit: int = 1_000


@frozen
class LastHeartbeat(Query[OutputRow | None]):
    """The newest heartbeat of a job's attempts whose epoch is lower than `before`."""

    run: str
    job: int
    before: int


@frozen
class OutputRows(Query[tuple[CompletedRow, ...]]):
    """The history rows in which a stage of a run completed: one, or one for each item of a map."""

    run: str
    node: str


@frozen
class NodeRowsOf(Query[tuple[NodeRows, ...]]):
    """A summary of the history rows about each node of a run, in no order."""

    run: str
