"""Events of history rows for the checks. Cached, because each check of a growing history reads its rows again."""

from functools import lru_cache

from holdfast.kernel.history import events
from holdfast.ports.records.history import HistoryRow


@lru_cache(maxsize=4_096)
def event_of(row: HistoryRow) -> events.HistoryEvent:
    """Return the event of a row. UnreadableRowError if its data is damaged."""
    return events.event_of(row)
