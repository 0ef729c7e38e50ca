"""A clock that moves only when a test moves it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Final

from holdfast.ports.durations import NO_TIME, Duration
from holdfast.ports.validation import AWARE, an, check, duration

DEFAULT_START: Final = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """A Clock for tests: time passes only by `advance` and `sleep`, without waiting. Thread-safe.

    `jump` sets its wall clock, as operators and time servers do. Its monotonic clock is not affected.
    """

    def __init__(self, start: datetime = DEFAULT_START) -> None:
        """Set the wall clock to `start`. Raises InvalidArgumentError unless it is an aware datetime."""
        check("ManualClock", AWARE, start=start)
        self._lock = Lock()
        self._now = start.astimezone(UTC)
        self._passed = timedelta()
        self._watchers: list[Callable[[], None]] = []

    def now(self) -> datetime:
        """Return the wall clock's time, aware, in UTC."""
        with self._lock:
            return self._now

    def monotonic(self) -> float:
        """Return the seconds since this clock was created."""
        with self._lock:
            return self._passed.total_seconds()

    def sleep(self, seconds: float, /) -> None:
        """Advance the clock by so many seconds, rounded up to whole microseconds; negative ones count as 0."""
        check("sleep", an("a number of seconds", int, float), seconds=seconds)
        step = timedelta(seconds=max(seconds, 0.0))
        if step.total_seconds() < seconds:
            step += timedelta(microseconds=1)
        self.advance(step)

    def advance(self, by: Duration) -> None:
        """Advance both clocks. Raises InvalidArgumentError if `by` is negative: `jump` sets the wall clock back."""
        step = duration("advance", "by", by, NO_TIME)
        with self._lock:
            self._now += step
            self._passed += step
        self._moved()

    def jump(self, by: Duration) -> None:
        """Set the wall clock forward, or back if `by` is negative. No time passes."""
        step = duration("jump", "by", by, timedelta.min)
        with self._lock:
            self._now += step
        self._moved()

    def watch(self, moved: Callable[[], None]) -> None:
        """Call `moved` after each future move, in the thread that made it. For fakes that wait for a time."""
        with self._lock:
            self._watchers.append(moved)

    def _moved(self) -> None:
        with self._lock:
            watchers = tuple(self._watchers)
        for moved in watchers:
            moved()
