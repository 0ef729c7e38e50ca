"""The lifecycle of an engine: counts its openings and workers, and closes it after the last."""

import threading
from collections.abc import Callable
from contextlib import suppress

from anyio import NoEventLoopError, lowlevel

from holdfast.ports.errors import BlockedLoopError, EngineClosedError


class Lifecycle:
    """Counts the openings and workers of an engine. It is closed when none are left, and may be opened again.

    `reopen` and `close` act on the parts of the engine. Thread-safe.
    """

    def __init__(self, *, reopen: Callable[[], None], close: Callable[[], None]) -> None:
        self._reopen = reopen
        self._close = close
        self._opened = 0
        self._is_to_close = False
        self._is_closed = False
        self.renew()

    def renew(self) -> None:
        """Reset the state in a forked child, where none of the parent's workers run."""
        self._lock = threading.Lock()
        self._loops: list[object] = []

    def check_open(self) -> None:
        """Raise EngineClosedError if the engine is closed."""
        if self._is_closed:
            raise EngineClosedError

    def open(self) -> None:
        """Count an opening. Raises EngineClosedError if the engine can't be reopened."""
        self.reopen()
        with self._lock:
            self._opened += 1
            self._is_to_close = False

    def reopen(self) -> None:
        """Reopen the engine if it was closed."""
        with self._lock:
            if self._is_closed:
                self._reopen()
                self._is_closed = False

    def close(self) -> None:
        """Count a closing. The last one closes the engine, at once or when its last worker ends."""
        with self._lock:
            self._opened = max(0, self._opened - 1)
            self._is_to_close = not self._opened
        self._close_if_due()

    def begin_worker(self) -> Callable[[], None]:
        """Count a worker in the current event loop. Return a function to call in a thread when the worker ends."""
        loop = lowlevel.current_token()
        with self._lock:
            self._loops.append(loop)

        def end() -> None:
            with self._lock, suppress(ValueError):  # not in the list of a forked child
                self._loops.remove(loop)
            self._close_if_due()

        return end

    def check_may_block(self, call: str) -> None:
        """Raise BlockedLoopError if a blocking call would stop the event loop of a worker of this engine."""
        if not self._loops:
            return
        with suppress(NoEventLoopError):
            if lowlevel.current_token() in self._loops:
                raise BlockedLoopError(call)

    def _close_if_due(self) -> None:
        with self._lock:
            if not self._is_to_close or self._loops:
                return
            self._is_closed, self._is_to_close = True, False
        self._close()
