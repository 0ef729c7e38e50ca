"""How long the history of a durable function may get: every wake-up reads all of it, so it must not grow for ever."""

from typing import Final

ROWS_LONG: Final = 10_000
"""A history that gets as long as this is marked, once, by a row of type `HISTORY_LONG`."""
ROWS_MAX: Final = 50_000
"""A function whose history is as long as this begins nothing more: its run is blocked."""
ROWS_MORE: Final = 10_000
"""How many rows more a run may have each time that somebody resumes it after that: for code that comes to an end."""


def gets_long(before: int, after: int) -> bool:
    """Whether a history that gets from so many rows to so many becomes one that is marked."""
    return before < ROWS_LONG <= after


def is_full(rows: int, blocked: int) -> bool:
    """Whether a history of so many rows has no room left, whose run was blocked so many times for that before."""
    return rows >= ROWS_MAX + blocked * ROWS_MORE
