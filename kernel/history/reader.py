"""Reads the complete history of a run, including rows kept from earlier generations."""

from collections.abc import Iterator

from holdfast.ports.errors import UnreadableRowError
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.history import HistoryOf
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import Run
from holdfast.ports.references import KeptRows

PAGE = 1_000
"""Number of rows read at a time."""
ROWS_BEYOND_MAX = 1_000_000
"""A `last_row` that is further beyond the last known row is damaged: no history grows so much between two reads."""


def last_row_of(run: Run, seen: int = 0) -> int:
    """Return the number of a run's last row. UnreadableRowError if it is implausibly far beyond row `seen`."""
    if run.last_row - seen > ROWS_BEYOND_MAX:
        why = f"it is {run.last_row}, and the last row that is known is {seen}"
        raise UnreadableRowError("holdfast_runs", run.key, "last_row", why)
    return run.last_row


def rows_of(
    persistence: Persistence, run: Run, after: int = 0, upto: int | None = None
) -> Iterator[HistoryRow]:
    """Yield the rows of a run's history after row `after`, up to row `upto` if given, in order, read page by page.

    Kept rows come first. The run's own rows include those appended after `run` was read.
    """
    for part in run.kept_rows:
        if after < part.last:
            last = part.last if upto is None else min(part.last, upto)
            yield from _pages(persistence, KeptRows(part.run, last), after)
            after = last
    if upto is None or after < upto:
        yield from _pages(persistence, KeptRows(run.key, upto or 0), after)


def _pages(persistence: Persistence, part: KeptRows, after: int) -> Iterator[HistoryRow]:
    """Yield rows of one run, up to `part.last`; to the end if that is 0."""
    while not part.last or after < part.last:
        limit = min(PAGE, part.last - after) if part.last else PAGE
        page = persistence.read(HistoryOf(part.run, after, limit))
        yield from page
        if len(page) < limit:
            return
        after = page[-1].number
