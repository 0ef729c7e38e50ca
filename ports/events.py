"""The history of runs, seen from outside."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import attrs


@attrs.frozen(kw_only=True)
class Event:
    """One history row as others see it. (`run`, `number`) is its stable identity; `data` is JSON text."""

    namespace: str
    run_id: str
    run: str
    number: int
    type: str
    at: datetime
    data: str


class EventSink(Protocol):
    """Takes events: at least once, in order for each run."""

    def emit(self, events: Sequence[Event], /) -> None:
        """Take these events. When it returns they are taken; if it raises they may or may not be, and come again."""
        ...
