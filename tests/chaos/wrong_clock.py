"""A wrong machine clock that is also set from time to time."""

from datetime import UTC, datetime, timedelta

from typing_extensions import override

from holdfast.adapters.system.clock import SystemClock


class WrongClock(SystemClock):
    """A `Clock` that is wrong by `wrong_by` seconds; every `every` seconds it is set by `jumps`, alternately back."""

    def __init__(self, *, wrong_by: float = 0.0, jumps: float = 0.0, every: float = 0.0) -> None:
        self._wrong_by = wrong_by
        self._jumps = jumps
        self._every = every
        self._began = self.monotonic()

    @property
    def times_set(self) -> int:
        """Return how often it was set."""
        return int((self.monotonic() - self._began) / self._every) if self._every else 0

    @override
    def now(self) -> datetime:
        """Return the time it shows."""
        wrong_by = self._wrong_by + (self._jumps if self.times_set % 2 else 0.0)
        return datetime.now(UTC) + timedelta(seconds=wrong_by)
