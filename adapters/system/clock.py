"""The machine's own clock."""

import time
from datetime import UTC, datetime


class SystemClock:
    """The machine's wall clock, its monotonic clock, and really waiting."""

    def now(self) -> datetime:
        """Return the instant, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds since some fixed moment of this machine; never less than before."""
        return time.monotonic()

    def sleep(self, seconds: float, /) -> None:
        """Return when that many seconds have passed; at once if there are none to wait for."""
        until = time.monotonic() + seconds
        # The operating system may wake a sleeper a little early by the clock that we promise to go by.
        while (remaining := until - time.monotonic()) > 0:
            time.sleep(remaining)
