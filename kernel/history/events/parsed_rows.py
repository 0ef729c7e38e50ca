"""History rows whose data is parsed and whose events are made on demand: the form in which histories are replayed.

A replay reads thousands of rows, and most are results of steps. To parse the data of all rows as one text takes half
as long as one by one, and to make the event of a row takes longer than to feed it. So what a replay needs of each row
(`is_requested`, `site`, `completed_step`) is read from the parsed data, and events are made only of the other rows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, cast

from holdfast.kernel.history import events
from holdfast.kernel.history.events.event import Facts, facts_of
from holdfast.ports.errors import UnreadableRowError
from holdfast.ports.json import parse
from holdfast.ports.records.history import HistoryRow

E = TypeVar("E", bound=events.HistoryEvent)


class ParsedRow(NamedTuple):
    """A history row with its parsed data."""

    row: HistoryRow
    facts: Mapping[str, Any]
    """The data, for this module only."""

    @property
    def event(self) -> events.HistoryEvent:
        """The event of the row. UnreadableRowError if its data is damaged."""
        return events.class_of(self.row.type).from_row(self.row, self.facts)

    def read(self, kind: type[E]) -> E:
        """Return the event of the row, which has this type. UnreadableRowError if its data is damaged."""
        return kind.from_row(self.row, self.facts)

    @property
    def is_requested(self) -> bool:
        """Whether the row exists only because the code of a durable function requested something."""
        return events.class_of(self.row.type).was_requested(self.facts)

    @property
    def site(self) -> str:
        """File and line of the call that the row is about; "" if it is about none."""
        site: str = self.facts.get("site", "")
        return site


_new: Final = cast("Callable[[type[ParsedRow], Iterable[object]], ParsedRow]", cast("Any", tuple).__new__)
_parsed: Final = partial(_new, ParsedRow)
"""Makes a parsed row in a third of the time that its constructor takes."""


def parse_rows(rows: Sequence[HistoryRow]) -> list[ParsedRow]:
    """Return rows with their parsed data. UnreadableRowError if the data of one is not JSON."""
    try:
        facts: list[Facts] = parse(f"[{','.join([row.data or '{}' for row in rows])}]")
        return list(map(_parsed, zip(rows, facts, strict=True)))
    except ValueError:
        return [ParsedRow(row, _facts(row)) for row in rows]  # raises, and names the row


def _facts(row: HistoryRow) -> Facts:
    try:
        return facts_of(row)
    except (ValueError, TypeError) as error:
        why = f"row {row.number} has no valid data: {error}"
        raise UnreadableRowError("holdfast_history", row.run, "data", why) from error


def completed_step(one: ParsedRow) -> tuple[str, str, str | None]:
    """Return call, step and recorded arguments of a `step.completed` row, without making its event."""
    facts = one[1]
    return facts.get("call", ""), facts.get("step", ""), facts.get("given")
