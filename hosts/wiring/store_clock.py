"""The host's idea of the store's time."""

import threading
from datetime import datetime, timedelta
from typing import Final

import attrs

from holdfast.ports.clock import Clock, instant
from holdfast.ports.records import Micros

GAIN_MAX: Final = 0.001
"""Seconds in each by which a machine's monotonic clock may run too fast; real ones do by a tenth of that at worst."""

_RATE: Final = 1 - GAIN_MAX

STEP_MAX: Final = 1.0
"""Seconds by which the wall clock may drift from the monotonic one before it counts as stepped."""


@attrs.frozen(kw_only=True)
class Step:
    """The clock by which a store without one of its own goes was set: by how many seconds, and how many ago."""

    by: float
    ago: float


class StoreClock:
    """A clock that follows the store's: its time at the last sync, plus the monotonic time since.

    It is never ahead of the store's, so that nothing is done before its time: a thousandth of the time since is left
    out, in case the machine's clock runs too fast. It is behind by that, and by as long as the answer took: so an
    answer that took long moves it no further back than it shows already.

    Before the first sync, and where the store has no clock but this machine's, it is the machine's clock. Safety never
    depends on it; how early a dead worker's jobs are taken, and how late sleepers wake, do.
    """

    def __init__(self, machine: Clock) -> None:
        self._machine = machine
        self._monotonic = machine.monotonic
        self._lock = threading.Lock()
        self._base: tuple[datetime, float] | None = None
        """What time it was at some time of the monotonic clock. It is read without the lock."""
        self._wall_at = machine.now()
        self._synced_at = machine.monotonic()
        self._stepped: tuple[float, float] | None = None
        self.behind_by = 0.0
        """How many seconds it was behind the store's at the last sync, at most."""

    def renew(self) -> None:
        """Go on in a forked child, where nobody holds the lock."""
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
        """Take over the store's time, which has just been answered, and was asked for `took` seconds before that.

        None: the store has no clock of its own.
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
                    # What both say is true, unless the store's clock was set back.
                    base = answer if shown > latest else max(answer, shown)
                self._base = base, answered_at
                self.behind_by = (latest - base).total_seconds()
            elif abs(by := self._drift(answered_at)) > STEP_MAX:
                self._stepped = (by, answered_at)
            self._synced_at = answered_at
            self._wall_at = self._machine.now()

    def is_trusted(self, age_max: float) -> bool:
        """Whether the last sync is at most `age_max` seconds old and the machine's clock has not stepped since."""
        with self._lock:
            now = self._monotonic()
            return now - self._synced_at <= age_max and abs(self._drift(now)) <= STEP_MAX

    @property
    def step(self) -> Step | None:
        """The last step that a sync has found, for a store that has no clock of its own; None if there was none."""
        with self._lock:
            if self._stepped is None:
                return None
            by, at = self._stepped
            return Step(by=by, ago=self._machine.monotonic() - at)

    def _drift(self, now: float) -> float:
        """By how many seconds the wall clock has moved more than the monotonic one since the last sync."""
        return (self._machine.now() - self._wall_at).total_seconds() - (now - self._synced_at)
