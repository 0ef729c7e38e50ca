"""Reads the history of a run whole: with the rows that it keeps of generations before."""

from collections.abc import Iterator

from holdfast.ports.persistence import HistoryOf, Persistence
from holdfast.ports.records import HistoryRow, Run
from holdfast.ports.references import KeptRows

PAGE = 1_000
"""How many rows are read at once."""


def rows_of(
    persistence: Persistence, run: Run, after: int = 0, upto: int | None = None
) -> Iterator[HistoryRow]:
    """Yield the rows of a run's history after this number, in order, page by page; those up to `upto`, if given.

    What comes after the rows that it keeps is read from the run's own, also what was added since `run` was read.
    """
    for part in run.kept_rows:
        if after < part.last:
            last = part.last if upto is None else min(part.last, upto)
            yield from _pages(persistence, KeptRows(part.run, last), after)
            after = last
    if upto is None or after < upto:
        yield from _pages(persistence, KeptRows(run.key, upto or 0), after)


def _pages(persistence: Persistence, part: KeptRows, after: int) -> Iterator[HistoryRow]:
    """Yield rows of one run up to a number; all of them if that is 0."""
    while not part.last or after < part.last:
        limit = min(PAGE, part.last - after) if part.last else PAGE
        page = persistence.read(HistoryOf(part.run, after, limit))
        yield from page
        if len(page) < limit:
            return
        after = page[-1].number
