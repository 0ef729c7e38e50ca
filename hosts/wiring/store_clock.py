"""A host's clock that follows the store's clock."""

import threading
from datetime import datetime, timedelta
from typing import Final

import attrs

from holdfast.ports.clock import Clock, instant
from holdfast.ports.records.values import Micros

GAIN_MAX: Final = 0.001
"""How many seconds per second a monotonic clock may run fast; real ones stay below a tenth of this."""

_RATE: Final = 1 - GAIN_MAX

STEP_MAX: Final = 1.0
"""Seconds by which the wall clock may drift from the monotonic clock before this counts as a step."""


@attrs.frozen(kw_only=True)
class ClockStep:
    """A step of the machine's wall clock, for a store that has no clock of its own."""

    by: float
    """By how many seconds it was set; negative if backwards."""
    ago: float
    """How many seconds ago it was detected."""


class StoreClock:
    """A clock that shows the store's time at the last sync plus the monotonic time since.

    It is never ahead of the store's clock, so nothing happens early: a thousandth of the time since the sync is
    subtracted, in case the machine's clock runs fast. It is behind by this, and by the latency of the answer; a slow
    answer never sets it back.

    Before the first sync, and for stores without a clock of their own, it is the machine's clock. Safety never depends
    on it, only how early the jobs of a dead worker are claimed and how late sleeping jobs wake.
    """

    def __init__(self, machine: Clock) -> None:
        self._machine = machine
        self._monotonic = machine.monotonic
        self._lock = threading.Lock()
        self._base: tuple[datetime, float] | None = None
        """The time at the last sync, and the monotonic time then. Read without the lock."""
        self._wall_at = machine.now()
        self._synced_at = machine.monotonic()
        self._stepped: tuple[float, float] | None = None
        self.behind_by = 0.0
        """The maximum number of seconds that it was behind the store's clock at the last sync."""

    def renew(self) -> None:
        """Reset the lock in a forked child."""
        self._lock = threading.Lock()

    def now(self) -> datetime:
        """See `Clock.now`."""
        base = self._base
        if base is None:
            return self._machine.now()
        shown, at = base
        return shown + timedelta(0, (self._monotonic() - at) * _RATE)

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return self._machine.monotonic()

    def sleep(self, seconds: float, /) -> None:
        """See `Clock.sleep`."""
        self._machine.sleep(seconds)

    def sync(self, store_time: Micros | None, *, took: float = 0.0) -> None:
        """Set the clock to the store's time, which was just received.

        Args:
            store_time: The store's time in microseconds since 1970; None if the store has no clock of its own.
            took: How many seconds ago it was requested.
        """
        answered_at = self._machine.monotonic()
        with self._lock:
            if store_time is not None:
                answer = instant(store_time)
                latest = answer + timedelta(seconds=took)
                base = answer
                if self._base is not None:
                    before, at = self._base
                    shown = before + timedelta(0, (answered_at - at) * _RATE)
                    # Both are lower bounds of the store's time, unless its clock was set back.
                    base = answer if shown > latest else max(answer, shown)
                self._base = base, answered_at
                self.behind_by = (latest - base).total_seconds()
            elif abs(by := self._drift(answered_at)) > STEP_MAX:
                self._stepped = (by, answered_at)
            self._synced_at = answered_at
            self._wall_at = self._machine.now()

    def is_trusted(self, age_max: float) -> bool:
        """Whether the last sync is at most `age_max` seconds old, and the wall clock has not stepped since."""
        with self._lock:
            now = self._monotonic()
            return now - self._synced_at <= age_max and abs(self._drift(now)) <= STEP_MAX

    @property
    def step(self) -> ClockStep | None:
        """The last clock step that a sync detected, for a store without a clock of its own; None if there was none."""
        with self._lock:
            if self._stepped is None:
                return None
            by, at = self._stepped
            return ClockStep(by=by, ago=self._machine.monotonic() - at)

    def _drift(self, now: float) -> float:
        """Return how many seconds the wall clock has gained on the monotonic clock since the last sync."""
        return (self._machine.now() - self._wall_at).total_seconds() - (now - self._synced_at)
