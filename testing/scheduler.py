"""Wake-ups that a test sends by hand."""

from datetime import datetime
from threading import Lock

import attrs

from holdfast.ports.clock import Clock, micros
from holdfast.ports.records import Micros


@attrs.frozen(kw_only=True)
class WakeUp:
    """A command to be sent at an instant."""

    key: str
    command: str
    at: datetime


class MemoryScheduler:
    """A Scheduler that hands out what is due when asked. Safe to use from several threads."""

    def __init__(self, clock: Clock | None = None) -> None:
        """`clock` says what is due where `due` is not told the time."""
        self._lock = Lock()
        self._clock = clock
        self._wake_ups: dict[str, WakeUp] = {}

    def schedule(self, key: str, command: str, at: datetime, /) -> None:
        """Remember to send the command at `at`, instead of an earlier wake-up of this key. ValueError if naive."""
        micros(at)
        with self._lock:
            self._wake_ups[key] = WakeUp(key=key, command=command, at=at)

    def cancel(self, key: str, /) -> None:
        """Forget a wake-up; nothing happens if there is none."""
        with self._lock:
            self._wake_ups.pop(key, None)

    def due(self, now: datetime | None = None) -> tuple[WakeUp, ...]:
        """Take out and return the wake-ups whose time has come, earliest first. ValueError without any clock."""
        if now is None:
            if self._clock is None:
                raise ValueError("say what time it is: due(now), or MemoryScheduler(clock)")
            now = self._clock.now()
        with self._lock:
            due = sorted((wake for wake in self._wake_ups.values() if wake.at <= now), key=_order)
            for wake_up in due:
                del self._wake_ups[wake_up.key]
        return tuple(due)

    @property
    def pending(self) -> tuple[WakeUp, ...]:
        """What is to be sent later, earliest first."""
        with self._lock:
            return tuple(sorted(self._wake_ups.values(), key=_order))


def _order(wake_up: WakeUp) -> tuple[Micros, str]:
    return micros(wake_up.at), wake_up.key
