"""What durable functions show to the world, read from the histories of their runs."""

from datetime import datetime
from itertools import islice
from typing import Final

import attrs

from holdfast.hosts.core import Core
from holdfast.hosts.functions.shown import name_of_shown, newest_shown
from holdfast.kernel.values import decode
from holdfast.kernel.values.forms import Form
from holdfast.ports.clock import instant
from holdfast.ports.records import HistoryRow, Run

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
