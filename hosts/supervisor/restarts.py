"""When a worker process that has ended is started again."""

from typing import Final

RESTART_MIN: Final = 1.0
"""Seconds until the first restart."""
RESTART_MAX: Final = 30.0
"""Most seconds until a restart."""
STABLE_SECONDS: Final = 60.0
"""A process that was ready for so long counts as healthy: the next restart is a first one again."""
FAILURES_MAX: Final = 5
"""How often in a row a process may end before it was ready."""


class Restarts:
    """The restarts of one worker process. Instants are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self.count = 0
        """How often it was restarted."""
        self._delay = RESTART_MIN
        self._failures = 0
        self._ready_at: float | None = None

    @property
    def is_hopeless(self) -> bool:
        """Whether it has ended so often before it was ready that another restart would not help."""
        return self._failures >= FAILURES_MAX

    def note_ready(self, now: float) -> None:
        """Note that the process is ready."""
        self._failures = 0
        if self._ready_at is None:
            self._ready_at = now

    def note_end(self, now: float) -> float:
        """Note that the process has ended; return the instant of its restart."""
        if self._ready_at is None:
            self._failures += 1
        elif now - self._ready_at >= STABLE_SECONDS:
            self._delay = RESTART_MIN
        self._ready_at = None
        self.count += 1
        delay, self._delay = self._delay, min(2 * self._delay, RESTART_MAX)
        return now + delay
