"""Published values of durable functions, read from the histories of their runs."""

from collections.abc import Iterator
from typing import Final

from holdfast.hosts.wiring.services import Core
from holdfast.kernel.history import events
from holdfast.kernel.values import decode
from holdfast.kernel.values.type_forms import Form
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.history import NewestRows
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import Run
from holdfast.ports.references import KeptRows

_PAGE: Final = 20


def published_value(core: Core, run: Run, name: str, form: Form) -> object:
    """Return the last value published under a name; None if there was never one. InvalidValueError."""
    for row in newest_rows(core.stores.persistence, run, events.ValuePublished.type, _PAGE):
        if published_name(row) == name:
            return decode("null" if row.payload is None else core.payloads.get(row.payload), form)
    return None


def newest_rows(
    persistence: Persistence, run: Run, type: str, page: int, before: int | None = None
) -> Iterator[HistoryRow]:
    """Yield the rows of one type of a run, newest first, including rows kept from earlier generations.

    With `before`, only rows with lower numbers.
    """
    for part in reversed((*run.kept_rows, KeptRows(run.key, run.last_row))):
        # No bound for its own rows: rows that were added since the run was read count.
        end = before
        if part.run != run.key:
            end = part.last + 1 if before is None else min(part.last + 1, before)
        while rows := persistence.read(NewestRows(run=part.run, type=type, before=end, limit=page)):
            yield from rows
            if len(rows) < page:
                break
            end = rows[-1].number


def published_name(row: HistoryRow) -> str:
    """Return the name of the value that a row publishes."""
    return events.ValuePublished.from_row(row).name
