"""A sink of events that remembers what it was given. For tests, and for trying out."""

from collections.abc import Sequence
from threading import Lock

from holdfast.ports.events import Event


class MemorySink:
    """An EventSink that keeps every event, repeated ones too. Safe to use from several threads."""

    def __init__(self) -> None:
        """Be empty."""
        self._lock = Lock()
        self._events: list[Event] = []

    def emit(self, events: Sequence[Event], /) -> None:
        """Take these events."""
        with self._lock:
            self._events.extend(events)

    @property
    def events(self) -> tuple[Event, ...]:
        """All events so far, in the order in which they came."""
        with self._lock:
            return tuple(self._events)

    def of_run(self, run: str) -> tuple[Event, ...]:
        """Return one run's events (`run` is its key), each once, in the order in which they first came."""
        first: dict[int, Event] = {}
        for event in self.events:
            if event.run == run:
                first.setdefault(event.number, event)
        return tuple(first.values())
