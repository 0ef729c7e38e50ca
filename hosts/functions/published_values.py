"""Published values of durable functions, read from the histories of their runs."""

from collections.abc import Iterator
from typing import Final

from holdfast.hosts.wiring.services import Core
from holdfast.kernel.history import events
from holdfast.kernel.values import decode
from holdfast.kernel.values.type_forms import Form
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.history import HistoryOf, NewestRows
from holdfast.ports.queries.runs import FindRun, RunsByKey
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import TERMINAL, Run
from holdfast.ports.references import KeptRows
from holdfast.ports.structs import frozen

_PAGE: Final = 20
_ROWS: Final = 1_000

TAKEN_OVER: Final = 0
"""The number of a value that a generation has taken over from the one before."""


def published_value(core: Core, run: Run, name: str, form: Form) -> object:
    """Return the last value published under a name; None if there was never one. InvalidValueError."""
    for row in newest_rows(core.stores.persistence, run, events.ValuePublished.type, _PAGE):
        if published_name(row) == name:
            return decode("null" if row.payload is None else core.payloads.get(row.payload), form)
    return None


@frozen
class PublishedRow:
    """A history row of a value that was published."""

    generation: int
    row: HistoryRow


class PublishedRowReader:
    """A reader of the rows of the values that a run publishes under a name, in order. It reads each history row once.

    It follows the run to its next generations. What a generation takes over from the one before is not read again.

    Args:
        core: The services.
        run: The generation to begin with.
        name: The name of the values.
        after: The number of its history row to begin after.
    """

    def __init__(self, core: Core, run: Run, name: str, after: int = 0) -> None:
        self._core = core
        self._name = name
        self.run: str = run.key
        """The key of the generation that is read."""
        self.generation: int = run.generation
        """Its number."""
        self.last_read_row: int = after
        """The number of the last history row read."""
        self.ended = False
        """Whether the run has ended, and everything was read."""
        self._is_first = after == 0

    def read_rows(self, limit: int = _ROWS) -> list[PublishedRow]:
        """Return the next rows: those among the next `limit` history rows that have any; empty before there are any.

        Raises UnreadableRowError.
        """
        read = self._core.stores.persistence.read
        while True:
            # The run's row first: if it has ended then, the history read afterwards is complete.
            runs = read(RunsByKey((self.run,)))
            while rows := read(HistoryOf(self.run, self.last_read_row, limit)):
                self.last_read_row = rows[-1].number
                if found := [PublishedRow(self.generation, row) for row in rows if self._takes(row)]:
                    return found
            if runs and runs[0].status not in TERMINAL:
                return []
            following = read(FindRun(runs[0].name, runs[0].generation + 1)) if runs else None
            if following is None or not runs[0].has_successor:
                self.ended = True
                return []
            self.run, self.generation = following.key, following.generation
            self.last_read_row, self._is_first = 0, False

    def text_of(self, found: PublishedRow) -> str:
        """Return the value of a row as JSON text. Raises BlobMissingError."""
        payload = found.row.payload
        return "null" if payload is None else self._core.payloads.get(payload)

    def _takes(self, row: HistoryRow) -> bool:
        if row.type != events.ValuePublished.type:
            return False
        event = events.ValuePublished.from_row(row)
        return event.name == self._name and (self._is_first or event.number > TAKEN_OVER)


class PublishedValueReader(PublishedRowReader):
    """A reader of the values that a run publishes under a name, in order."""

    def __init__(self, core: Core, run: Run, name: str, form: Form) -> None:
        super().__init__(core, run, name)
        self._form = form

    def read_new(self) -> list[object]:
        """Return the values that were published since the last call. InvalidValueError, UnreadableRowError."""
        found: list[object] = []
        while rows := self.read_rows():
            found += [decode(self.text_of(row), self._form) for row in rows]
        return found


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
