"""The clock of the machine."""

import time
from datetime import UTC, datetime


class SystemClock:
    """The machine's wall clock, its monotonic clock, and real sleep."""

    def now(self) -> datetime:
        """Return the current time as an aware datetime in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds since some fixed moment of this machine. Never decreases."""
        return time.monotonic()

    def sleep(self, seconds: float, /) -> None:
        """Block until that many seconds have passed; return at once for zero or less."""
        until = time.monotonic() + seconds
        # The operating system may wake a sleeper a little early by the monotonic clock.
        while (remaining := until - time.monotonic()) > 0:
            time.sleep(remaining)
