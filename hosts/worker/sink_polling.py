"""When a worker looks for events, and which sinks it is bringing some to."""

from collections.abc import Iterable
from typing import Final

from holdfast.hosts.worker.machine_protocol import Action, Flush, Look
from holdfast.hosts.worker.settings import Settings

IDLE_POLLS: Final = 5.0
"""A worker that has heard of nothing looks this seldom, in poll intervals."""
LOOKS_APART: Final = 0.1
LAST_FLUSH: Final = 2.0
"""Seconds that a worker that ends gives its sinks to take what is left. The rest is for others, or the next time."""


class Outgoing:
    """At most one look and, for each sink, one round at a time. A sink that hangs keeps nothing else waiting."""

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
        """Look soon: something may have happened to a run."""
        self._next = min(self._next, max(now, self._looked_at + LOOKS_APART))

    def found(self, now: float, sinks: Iterable[str]) -> list[Action]:
        """Take in which sinks have news; return what to do."""
        self._looking = False
        with_events = [sink for sink in sinks if sink not in self._flushing]
        self._flushing.update(with_events)
        self._next = now + self._poll_interval * (1.0 if with_events else IDLE_POLLS)
        if self._looked_at < self._last_from:
            self._next = now  # what was stored last may have come after that look
        return [Flush(sink) for sink in with_events]

    def flushed(self, now: float, sink: str, *, more: bool) -> None:
        """Take in that a round is over."""
        self._flushing.discard(sink)
        if more or self._last_until is not None:  # in the end it is looked whether that was all
            self._next = now

    def failed(self, action: Look | Flush, later: float) -> None:
        """Take in that the store did not answer."""
        if isinstance(action, Look):
            self._looking = False
        else:
            self._flushing.discard(action.sink)
        self._next = later

    def look(self, now: float) -> list[Action]:
        """Return a look, if it is time for one."""
        if not self._sinks or self._looking or now < self._next:
            return []
        self._looking, self._looked_at = True, now
        return [Look()]

    def next_look(self) -> float | None:
        """Return when to look at the latest; None if never, or if a look is under way."""
        return self._next if self._sinks and not self._looking else None

    def is_over(self, now: float, actions: list[Action]) -> bool:
        """Whether a worker that has nothing else left to do may end: its sinks have taken all, or had their time."""
        if not self._sinks:
            return True
        if self._last_until is None:
            self._last_from, self._last_until, self._next = now, now + LAST_FLUSH, now
        elif now >= self._last_until or not (self._looking or self._flushing or self._next <= now):
            return True
        actions += self.look(now)
        return False

    def ends_at(self) -> float | None:
        """Return when a worker that ends waits for its sinks no longer; None if it does not wait for them yet."""
        return self._last_until
