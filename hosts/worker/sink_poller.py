"""When a worker looks for events of its sinks, and which sinks it is delivering to."""

from collections.abc import Iterable
from typing import Final

from holdfast.hosts.worker.machine_protocol import Action, FindEvents, Flush
from holdfast.hosts.worker.settings import Settings

IDLE_POLLS: Final = 5.0
"""Poll intervals between two looks of a worker that has received no hint."""
LOOKS_APART: Final = 0.1
"""Seconds between two looks at least."""
LAST_FLUSH: Final = 2.0
"""How many seconds an ending worker delivers the last events. Other workers deliver what is left."""


class SinkPoller:
    """The state of event delivery: at most one look, and one flush per sink, so a slow sink delays no other."""

    def __init__(self, settings: Settings) -> None:
        self._sinks = settings.sinks
        self._poll_interval = settings.poll_interval
        self._looking = False
        self._flushing: set[str] = set()
        self._next = 0.0
        self._looked_at = -LOOKS_APART
        self._last_from = -LOOKS_APART
        self._last_until: float | None = None

    def look_soon(self, now: float) -> None:
        """Schedule a look: runs may have new events."""
        self._next = min(self._next, max(now, self._looked_at + LOOKS_APART))

    def found(self, now: float, sinks: Iterable[str]) -> list[Action]:
        """Process the result of a look; return the flushes to start."""
        self._looking = False
        with_events = [sink for sink in sinks if sink not in self._flushing]
        self._flushing.update(with_events)
        self._next = now + self._poll_interval * (1.0 if with_events else IDLE_POLLS)
        if self._looked_at < self._last_from:
            self._next = now  # the last commits may be later than that look
        return [Flush(sink) for sink in with_events]

    def flushed(self, now: float, sink: str, *, more: bool) -> None:
        """Note that a flush has ended."""
        self._flushing.discard(sink)
        if more or self._last_until is not None:  # the last round looks until nothing is left
            self._next = now

    def failed(self, action: FindEvents | Flush, later: float) -> None:
        """Note that the store call failed; look again at `later`."""
        if isinstance(action, FindEvents):
            self._looking = False
        else:
            self._flushing.discard(action.sink)
        self._next = later

    def look(self, now: float) -> list[Action]:
        """Return a look if one is due."""
        if not self._sinks or self._looking or now < self._next:
            return []
        self._looking, self._looked_at = True, now
        return [FindEvents()]

    def next_look(self) -> float | None:
        """Return when the next look is due; None without sinks, or while a look is in flight."""
        return self._next if self._sinks and not self._looking else None

    def is_over(self, now: float, actions: list[Action]) -> bool:
        """Return whether an otherwise idle worker may end: its sinks are up to date, or their time is over.

        The first call starts the last round. Appends a look to `actions` if one is due.
        """
        if not self._sinks:
            return True
        if self._last_until is None:
            self._last_from, self._last_until, self._next = now, now + LAST_FLUSH, now
        elif now >= self._last_until or not (self._looking or self._flushing or self._next <= now):
            return True
        actions += self.look(now)
        return False

    def ends_at(self) -> float | None:
        """Return when an ending worker stops waiting for its sinks; None before the last round."""
        return self._last_until
