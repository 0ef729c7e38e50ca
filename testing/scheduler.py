"""A Scheduler whose wake-ups a test sends itself."""

from datetime import datetime
from threading import Lock

import attrs

from holdfast.ports.clock import Clock, micros
from holdfast.ports.records.values import Micros


@attrs.frozen(kw_only=True)
class WakeUp:
    """A command to send at an instant."""

    key: str
    """The key of the wake-up, unique."""
    command: str
    """The command as JSON text."""
    at: datetime
    """When to send it, aware."""


class MemoryScheduler:
    """A Scheduler that returns due wake-ups on request. Thread-safe."""

    def __init__(self, clock: Clock | None = None) -> None:
        """`clock` is the default time of `due`."""
        self._lock = Lock()
        self._clock = clock
        self._wake_ups: dict[str, WakeUp] = {}

    def schedule(self, key: str, command: str, at: datetime, /) -> None:
        """Schedule a command at `at`; replaces an earlier wake-up with this key. Raises ValueError if `at` is naive."""
        micros(at)
        with self._lock:
            self._wake_ups[key] = WakeUp(key=key, command=command, at=at)

    def cancel(self, key: str, /) -> None:
        """Cancel a wake-up. A missing key is not an error."""
        with self._lock:
            self._wake_ups.pop(key, None)

    def due(self, now: datetime | None = None) -> tuple[WakeUp, ...]:
        """Remove and return the due wake-ups, earliest first. Raises ValueError without `now` and without a clock."""
        if now is None:
            if self._clock is None:
                raise ValueError(
                    "due needs the current time: call due(now), or create MemoryScheduler(clock)"
                )
            now = self._clock.now()
        with self._lock:
            due = sorted((wake for wake in self._wake_ups.values() if wake.at <= now), key=_order)
            for wake_up in due:
                del self._wake_ups[wake_up.key]
        return tuple(due)

    @property
    def pending(self) -> tuple[WakeUp, ...]:
        """Scheduled wake-ups, earliest first."""
        with self._lock:
            return tuple(sorted(self._wake_ups.values(), key=_order))


def _order(wake_up: WakeUp) -> tuple[Micros, str]:
    return micros(wake_up.at), wake_up.key
