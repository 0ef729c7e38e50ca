"""The reads of a caller that may leave before it has its answer."""

import logging
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

_log = logging.getLogger("holdfast.server")


class CallerReads:
    """See `ReadLimit`. `abandon` ends the reads that are being made."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._interrupts: list[Callable[[], None]] = []
        self._is_abandoned = False

    @property
    def seconds(self) -> float:
        """See `ReadLimit.seconds`."""
        return self._seconds

    @property
    def is_abandoned(self) -> bool:
        """See `ReadLimit.is_abandoned`."""
        return self._is_abandoned

    @contextmanager
    def interrupted_by(self, interrupt: Callable[[], None], /) -> Generator[None]:
        """See `ReadLimit.interrupted_by`. The end of the block waits for an interrupt that is being made."""
        with self._lock:
            self._interrupts.append(interrupt)
            is_late = self._is_abandoned
        try:
            if is_late:
                interrupt()
            yield
        finally:
            with self._lock:
                self._interrupts.remove(interrupt)

    def abandon_unless_reading(self) -> bool:
        """Refuse reads if none is being made. Return whether that is so; otherwise `abandon` has to end them.

        It never blocks. Most clients leave while nothing is read, and thousands may leave at once.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self._is_abandoned = self._is_abandoned or not self._interrupts
            return not self._interrupts
        finally:
            self._lock.release()

    def abandon(self) -> None:
        """End the reads that are being made, and refuse others. It blocks while the store cancels them."""
        with self._lock:
            self._is_abandoned = True
            for interrupt in self._interrupts:
                try:
                    interrupt()
                except Exception:  # noqa: BLE001  # the other reads are stopped all the same
                    _log.exception("a read of a client that has left could not be stopped")
