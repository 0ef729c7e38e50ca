"""Published values of durable functions, read from the histories of their runs."""

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Final

import attrs

from holdfast.hosts.wiring.services import Core
from holdfast.kernel.history import events
from holdfast.kernel.values import decode
from holdfast.kernel.values.type_forms import Form
from holdfast.ports.clock import instant
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.history import NewestRows
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import Run
from holdfast.ports.references import KeptRows

PUBLISHED_ROWS_MAX: Final = 200
"""How many rows are read for all published values of a run: names that were last published earlier are left out."""
_PAGE: Final = 20


@attrs.frozen(kw_only=True)
class PublishedValue:
    """A published value."""

    name: str
    text: str
    """Its JSON text."""
    at: datetime
    """When it was stored."""


def published_value(core: Core, run: Run, name: str, form: Form) -> object:
    """Return the last value published under a name; None if there was never one. InvalidValueError."""
    for row in newest_published_rows(core.stores.persistence, run, _PAGE):
        if published_name(row) == name:
            return decode(_text(core, row), form)
    return None


def published_values(core: Core, run: Run) -> list[PublishedValue]:
    """Return the last published values of a run, sorted by name."""
    found: dict[str, PublishedValue] = {}
    for row in islice(
        newest_published_rows(core.stores.persistence, run, PUBLISHED_ROWS_MAX), PUBLISHED_ROWS_MAX
    ):
        name = published_name(row)
        if name not in found:
            found[name] = PublishedValue(name=name, text=_text(core, row), at=instant(row.at))
    return [found[name] for name in sorted(found)]


def _text(core: Core, row: HistoryRow) -> str:
    return "null" if row.payload is None else core.payloads.get(row.payload)


def newest_published_rows(persistence: Persistence, run: Run, page: int) -> Iterator[HistoryRow]:
    """Yield the rows with published values of a run, newest first, including rows kept from earlier generations."""
    for part in reversed((*run.kept_rows, KeptRows(run.key, run.last_row))):
        # No bound for its own rows: rows that were added since the run was read count.
        before = None if part.run == run.key else part.last + 1
        of_values = events.ValuePublished.type
        while rows := persistence.read(NewestRows(run=part.run, type=of_values, before=before, limit=page)):
            yield from rows
            if len(rows) < page:
                break
            before = rows[-1].number


def published_name(row: HistoryRow) -> str:
    """Return the name of the value that a row publishes."""
    return events.ValuePublished.from_row(row).name
