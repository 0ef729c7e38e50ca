"""The messages and updates that a durable function finds in its first turn, live and in every replay.

These are the ones that were stored with its run, and the ones that arrived before the first attempt started. A row
`function.began` records the latter before anything else (docs/decisions/0061).
"""

from collections.abc import Sequence
from typing import Final, cast

from holdfast.hosts.functions.function_events import Texts, function_event
from holdfast.kernel.functions.machine import ParsedRow
from holdfast.kernel.functions.protocol import Row
from holdfast.ports.records.history import FUNCTION_BEGAN, SIGNAL_RECEIVED

_TYPES: Final = frozenset({SIGNAL_RECEIVED, "update.received"})


def last_first_turn_row(rows: Sequence[ParsedRow]) -> int:
    """Return the number of the last row in the first turn, as recorded; 0 if there are no such messages."""
    row_numbers = (
        facts.get("row" if row.type == FUNCTION_BEGAN else "inbox", 0)
        for row, facts in rows
        if row.type in (FUNCTION_BEGAN, "run.created")
    )
    return max((cast("int", one) for one in row_numbers), default=0)


def last_message_row(history: Sequence[ParsedRow]) -> int:
    """Return the number of the last message or update of a history; 0 if it has none."""
    return max((row.number for row, _ in history if row.type in _TYPES), default=0)


def first_turn_rows(history: Sequence[ParsedRow], last: int, text: Texts) -> list[Row]:
    """Return the messages and updates up to a row, as the function receives them."""
    return [
        Row(number=row.number, at=row.at, event=event)
        for row, facts in history
        if row.number <= last
        and row.type in _TYPES
        and (event := function_event(row, facts, text)) is not None
    ]
