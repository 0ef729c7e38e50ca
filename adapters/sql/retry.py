"""Retries with backoff, limited by a deadline."""

import logging
import time
from collections.abc import Callable
from typing import Final

from holdfast.adapters.sql.errors import DiskFullError, TransientError
from holdfast.ports.errors import ConflictError, StorageFullError, UnavailableError

PAUSE_SECONDS_MIN: Final = 0.02
PAUSE_SECONDS_MAX: Final = 2.0
NOTICE_SECONDS: Final = 2.0
"""After this time a waiting call logs what it waits for."""
CONFLICTS_MAX: Final = 30
"""Conflicts with concurrently added rows after which the caller gets the error.

Each conflict means that another transaction was committed. A call that is unlucky with a name that opens and closes all
the time, such as that of a small batch of gathered starts, loses one try in two while many others start.
"""
CONFLICT_PAUSE_SECONDS_MAX: Final = 0.2

_log = logging.getLogger("holdfast.sql")


class RetryBudget:
    """The retries of one call: counts them, waits between them, and enforces the deadline."""

    def __init__(
        self, seconds: float, random: Callable[[], float], *, notice_after: float = NOTICE_SECONDS
    ) -> None:
        """`random` returns numbers from 0 to 1, which spread the retries of transactions that collided."""
        self._until = time.monotonic() + seconds
        self._notice_at = time.monotonic() + notice_after
        self._seconds = seconds
        self._random = random
        self._failures = 0
        self._conflicts = 0

    @property
    def left(self) -> float:
        """The remaining seconds, at least 0.01."""
        return max(self._until - time.monotonic(), 0.01)

    def after_failure(self, error: TransientError) -> None:
        """Wait before the next try. At the deadline UnavailableError, or StorageFullError after a full disk."""
        pause = min(PAUSE_SECONDS_MIN * 2**self._failures, PAUSE_SECONDS_MAX) * (0.5 + 0.5 * self._random())
        self._failures += 1
        if time.monotonic() + pause >= self._until:
            for_so_long = (
                f"for {self._seconds:g} second{'' if self._seconds == 1 else 's'} and {self._failures}"
                f" attempt{'' if self._failures == 1 else 's'}"
            )
            if isinstance(error, DiskFullError):
                raise StorageFullError(
                    f"the database's disk has been full {for_so_long}; free space and try again, "
                    f"workers continue automatically: {error}"
                ) from error
            raise UnavailableError(
                f"the database was unavailable {for_so_long}; the last error was: {error}"
            ) from error
        if time.monotonic() >= self._notice_at:
            self._notice_at = self._until
            _log.warning(
                "the database is unavailable; the call is retried for up to %.0f s: %s", self.left, error
            )
        time.sleep(pause)

    def after_conflict(self, error: ConflictError) -> None:
        """Return for an immediate retry, which then finds the row. Raise the error itself after too many."""
        self._conflicts += 1
        if self._conflicts >= CONFLICTS_MAX or time.monotonic() >= self._until:
            raise error
        if self._conflicts > 1:
            pause = min(PAUSE_SECONDS_MIN * 2 ** (self._conflicts - 2), CONFLICT_PAUSE_SECONDS_MAX)
            time.sleep(pause * self._random())
