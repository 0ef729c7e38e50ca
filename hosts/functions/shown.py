"""What functions show to the world, in the rows of their histories."""

from collections.abc import Iterator, Mapping
from typing import cast

from holdfast.ports.json import parse
from holdfast.ports.persistence import NewestRows, Persistence
from holdfast.ports.records import PUBLISHED, HistoryRow, Run
from holdfast.ports.references import KeptRows


def newest_shown(persistence: Persistence, run: Run, page: int) -> Iterator[HistoryRow]:
    """Yield what a run has shown, also in the rows that it keeps of generations before, the last first."""
    for part in reversed((*run.kept_rows, KeptRows(run.key, run.last_row))):
        # Of its own rows those, too, that came since its row was read.
        before = None if part.run == run.key else part.last + 1
        while rows := persistence.read(NewestRows(run=part.run, type=PUBLISHED, before=before, limit=page)):
            yield from rows
            if len(rows) < page:
                break
            before = rows[-1].number


def name_of_shown(row: HistoryRow) -> str:
    """Return the name under which a row shows something."""
    return str(cast("Mapping[str, object]", parse(row.data or "{}")).get("name"))
