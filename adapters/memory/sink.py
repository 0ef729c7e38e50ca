"""A sink that stores the events it receives, for tests and experiments."""

from collections.abc import Sequence
from threading import Lock

from holdfast.ports.events import Event


class MemorySink:
    """An EventSink that stores every event, including repeated ones. Safe to use from several threads."""

    def __init__(self) -> None:
        """Start empty."""
        self._lock = Lock()
        self._events: list[Event] = []

    def emit(self, events: Sequence[Event], /) -> None:
        """Store events."""
        with self._lock:
            self._events.extend(events)

    @property
    def events(self) -> tuple[Event, ...]:
        """All events so far, in the order of their arrival."""
        with self._lock:
            return tuple(self._events)

    def of_run(self, run: str) -> tuple[Event, ...]:
        """Return one run's events (`run` is its key), each once, in the order in which they first arrived."""
        first: dict[int, Event] = {}
        for event in self.events:
            if event.run == run:
                first.setdefault(event.number, event)
        return tuple(first.values())
