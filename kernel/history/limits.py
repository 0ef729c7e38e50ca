"""Limits of the length of a durable function's history: each replay reads all of it."""

from typing import Final

ROWS_LONG: Final = 10_000
"""Length at which a history is marked as long, once, by a row of type `run.history_long`."""
ROWS_MAX: Final = 50_000
"""Length at which a function may make no more calls: its run is blocked."""
ROWS_MORE: Final = 10_000
"""How many more rows each resume allows to a run that was blocked for its length, so that its code can finish."""


def gets_long(before: int, after: int) -> bool:
    """Whether a history that grows from `before` to `after` rows passes the length at which it is marked."""
    return before < ROWS_LONG <= after


def is_full(rows: int, blocked: int) -> bool:
    """Whether a history has reached its maximum, for a run that was blocked for this reason `blocked` times before."""
    return rows >= ROWS_MAX + blocked * ROWS_MORE
