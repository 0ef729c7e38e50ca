"""A clock that moves only when it is told to."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Final

DEFAULT_START: Final = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """A Clock for tests: time passes by `advance` and `sleep` only, and at once. Safe to use from several threads.

    Its wall clock can be set (`jump`) as operators and time servers do; its monotonic clock knows nothing of that.
    """

    def __init__(self, start: datetime = DEFAULT_START) -> None:
        """Stand at `start`. ValueError if that is naive."""
        if start.tzinfo is None:
            raise ValueError(f"{start!r} has no time zone; use datetime(..., tzinfo=UTC)")
        self._lock = Lock()
        self._now = start.astimezone(UTC)
        self._passed = timedelta()
        self._watchers: list[Callable[[], None]] = []

    def now(self) -> datetime:
        """Return the instant that the wall clock shows, aware, in UTC."""
        with self._lock:
            return self._now

    def monotonic(self) -> float:
        """Return how many seconds have passed since this clock was made."""
        with self._lock:
            return self._passed.total_seconds()

    def sleep(self, seconds: float, /) -> None:
        """Advance the clock by that many seconds, rounded up to whole microseconds; by none if it is negative."""
        step = timedelta(seconds=max(seconds, 0.0))
        if step.total_seconds() < seconds:
            step += timedelta(microseconds=1)
        self.advance(step)

    def advance(self, by: timedelta) -> None:
        """Let time pass, for both clocks. ValueError if `by` is negative."""
        if by < timedelta():
            raise ValueError(f"time can't pass by {by}; `jump` sets the wall clock back")
        with self._lock:
            self._now += by
            self._passed += by
        self._moved()

    def jump(self, by: timedelta) -> None:
        """Set the wall clock forward, or back if `by` is negative. No time passes."""
        with self._lock:
            self._now += by
        self._moved()

    def watch(self, moved: Callable[[], None]) -> None:
        """Call `moved` after each move from now on, in the thread that made it. For fakes that wait for a time."""
        with self._lock:
            self._watchers.append(moved)

    def _moved(self) -> None:
        with self._lock:
            watchers = tuple(self._watchers)
        for moved in watchers:
            moved()
