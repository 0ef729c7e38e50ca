"""The clock of the simulated store, which may be set forward or back."""

from collections.abc import Callable, Sequence
from typing import Final

from holdfast.ports.records.values import Micros

CLOCK_JUMP_WINDOW: Final[Micros] = 1_800_000_000
"""For how long a process may use a time that it read before the store's clock was set."""


class StoreTimeline:
    """What the store's clock shows. `jumps` are instants of virtual time, and by how much the clock is set then."""

    def __init__(self, now: Callable[[], Micros], jumps: Sequence[tuple[Micros, Micros]] = ()) -> None:
        self._now = now
        self._jumps = sorted(jumps)

    def now(self) -> Micros:
        """Return the time that the store's clock shows."""
        now = self._now()
        return now + sum(by for at, by in self._jumps if at <= now)

    def latest(self) -> Micros:
        """Return the latest time that a process may take for the store's, which it may have read before a jump."""
        return max(self._recent())

    def earliest(self) -> Micros:
        """Return the earliest time that a process may take for the store's."""
        return min(self._recent())

    def _recent(self) -> list[Micros]:
        """Return the present time by each setting of the clock that a process may still go by."""
        now, found, ahead = self._now(), list[Micros](), 0
        for at, by in self._jumps:
            if at > now:
                break
            if now - at <= CLOCK_JUMP_WINDOW:
                found.append(now + ahead)
            ahead += by
        return [*found, now + ahead]
