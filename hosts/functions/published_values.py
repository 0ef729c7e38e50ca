"""What durable functions show to the world, read from the histories of their runs."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Final, cast

import attrs

from holdfast.hosts.wiring.services import Core
from holdfast.kernel.values import decode
from holdfast.kernel.values.type_forms import Form
from holdfast.ports.clock import instant
from holdfast.ports.json import parse
from holdfast.ports.persistence import NewestRows, Persistence
from holdfast.ports.records import PUBLISHED, HistoryRow, Run
from holdfast.ports.references import KeptRows

SHOWN: Final = 200
"""How many rows are looked at for all that a run shows: names that were published before these are left out."""
_PAGE: Final = 20


@attrs.frozen(kw_only=True)
class PublishedValue:
    """A value that a function shows: the JSON text of it, and when it was stored."""

    name: str
    text: str
    at: datetime


def published_value(core: Core, run: Run, name: str, form: Form) -> object:
    """Return what a run showed last under a name; None if it has shown nothing. InvalidValueError."""
    for row in newest_shown(core.stores.persistence, run, _PAGE):
        if name_of_shown(row) == name:
            return decode(_text(core, row), form)
    return None


def published_values(core: Core, run: Run) -> list[PublishedValue]:
    """Return what a run shows, by name."""
    found: dict[str, PublishedValue] = {}
    for row in islice(newest_shown(core.stores.persistence, run, SHOWN), SHOWN):
        name = name_of_shown(row)
        if name not in found:
            found[name] = PublishedValue(name=name, text=_text(core, row), at=instant(row.at))
    return [found[name] for name in sorted(found)]


def _text(core: Core, row: HistoryRow) -> str:
    return "null" if row.payload is None else core.payloads.get(row.payload)


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
