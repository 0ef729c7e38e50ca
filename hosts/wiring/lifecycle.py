"""When an engine is open: who has opened it, which workers run on it, and what it refuses meanwhile."""

import threading
from collections.abc import Callable
from contextlib import suppress

from anyio import NoEventLoopError, lowlevel

from holdfast.ports.errors import BlockedLoopError, EngineClosedError


class Lifecycle:
    """Counts who has opened an engine, and its workers: when all have left, it is closed, and may be opened again.

    `reopen` and `close` do so with what the engine is made of. Safe from any thread.
    """

    def __init__(self, *, reopen: Callable[[], None], close: Callable[[], None]) -> None:
        self._reopen = reopen
        self._close = close
        self._opened = 0
        self._is_to_close = False
        self._is_closed = False
        self.renew()

    def renew(self) -> None:
        """Go on in a forked child, in which no worker of its parent's runs."""
        self._lock = threading.Lock()
        self._loops: list[object] = []

    def check_open(self) -> None:
        """Raise EngineClosedError if it is closed."""
        if self._is_closed:
            raise EngineClosedError

    def open(self) -> None:
        """Count one more who has opened it. EngineClosedError if it is closed for good."""
        self.reopen()
        with self._lock:
            self._opened += 1
            self._is_to_close = False

    def reopen(self) -> None:
        """Undo that it was closed, if it was."""
        with self._lock:
            if self._is_closed:
                self._reopen()
                self._is_closed = False

    def close(self) -> None:
        """Count one fewer who has opened it. It is closed now, or when the last worker ends, if there are none left."""
        with self._lock:
            self._opened = max(0, self._opened - 1)
            self._is_to_close = not self._opened
        self._close_if_due()

    def begin_worker(self) -> Callable[[], None]:
        """Count a worker in the event loop that runs here; return what is to be called, in a thread, when it ends."""
        loop = lowlevel.current_token()
        with self._lock:
            self._loops.append(loop)

        def end() -> None:
            with self._lock, suppress(ValueError):  # a forked child has none
                self._loops.remove(loop)
            self._close_if_due()

        return end

    def check_may_block(self, call: str) -> None:
        """Raise BlockedLoopError if a call that blocks would stop the event loop of a worker of this engine."""
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
