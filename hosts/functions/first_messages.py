"""Which messages and updates are there when a function begins: it finds them in its first turn, as in each replay.

Those that were stored with its run are. Those that came later, and before anybody drove it, are as well; which these
were is recorded before anything else, in a row of its own.
"""

from collections.abc import Sequence
from typing import Final, cast

from holdfast.hosts.functions.function_events import Texts, function_event
from holdfast.kernel.functions.machine import Known
from holdfast.kernel.functions.protocol import Row
from holdfast.ports.records import FUNCTION_BEGAN, SIGNAL_RECEIVED

_TYPES: Final = frozenset({SIGNAL_RECEIVED, "update.received"})


def last_there(rows: Sequence[Known]) -> int:
    """Return up to which row they are there, by the rows that say that; 0 if none is."""
    row_numbers = (
        facts.get("row" if row.type == FUNCTION_BEGAN else "inbox", 0)
        for row, facts in rows
        if row.type in (FUNCTION_BEGAN, "run.created")
    )
    return max((cast("int", one) for one in row_numbers), default=0)


def last_come(history: Sequence[Known]) -> int:
    """Return the number of the last row of a history that has one; 0 if none has."""
    return max((row.number for row, _ in history if row.type in _TYPES), default=0)


def rows_there(history: Sequence[Known], last: int, text: Texts) -> list[Row]:
    """Return those up to a row, as the function is told them."""
    return [
        Row(number=row.number, at=row.at, event=event)
        for row, facts in history
        if row.number <= last
        and row.type in _TYPES
        and (event := function_event(row, facts, text)) is not None
    ]
