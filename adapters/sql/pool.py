"""A small pool of connections.

The pools of drivers and of SQLAlchemy have one timeout for all callers. Here each call has its own deadline, and one
broken connection closes all idle ones: a restart or failover that ended one has ended them all.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import Generic, Protocol

import attrs
from typing_extensions import TypeVar

from holdfast.adapters.sql.errors import TransientError
from holdfast.ports.process_forks import leave_alone


class Closable(Protocol):
    """A connection."""

    def close(self) -> None:
        """Close it."""
        ...


C = TypeVar("C", bound=Closable)


@attrs.frozen
class PooledConnection(Generic[C]):
    """A connection in use."""

    connection: C
    until: float
    """When it is replaced, by the monotonic clock."""
    process: int
    """The id of the process that opened it."""
    closings: int
    """How often the pool had been closed when it was opened."""


class Pool(Generic[C]):
    """Lends connections, the most recently returned first, so that the others can reach their maximum age."""

    def __init__(self, connect: Callable[[float], C], *, size: int, kept: int, age_seconds: float) -> None:
        """Lend at most `size` connections and keep at most `kept` idle. `connect` takes a timeout in seconds."""
        self._connect = connect
        self._size = size
        self._kept = kept
        self._age_seconds = age_seconds
        self._idle: list[PooledConnection[C]] = []
        self.renew()

    def renew(self) -> None:
        """Reset to empty. In a forked child, closing the parent's connections would end the parent's sessions."""
        leave_alone(*self._idle)
        self._closings = 0
        self._process = os.getpid()
        self._free = threading.BoundedSemaphore(self._size)
        self._lock = threading.Lock()
        self._idle = []

    def take(self, seconds: float) -> PooledConnection[C]:
        """Lend a connection, waiting up to `seconds` for one. TransientError if none became free."""
        until = time.monotonic() + seconds
        if not self._free.acquire(timeout=seconds):
            raise TransientError(f"all {self._size} connections are in use")
        try:
            return self._idle_one() or self._new(until - time.monotonic())
        except BaseException:
            self._free.release()
            raise

    def release(self, lent: PooledConnection[C], *, is_sound: bool) -> None:
        """Return a connection to the pool. If it is not sound, close it and all idle ones.

        A connection that was lent while the pool was closed is closed too: nothing would close it later.
        """
        if lent.process != self._process:
            leave_alone(lent)
            return
        with self._lock:
            keep = is_sound and lent.closings == self._closings and len(self._idle) < self._kept
            if keep:
                self._idle.append(lent)
        if not keep:
            _close(lent)
        if not is_sound:
            self._close_idle()
        self._free.release()

    def discard(self, lent: PooledConnection[C]) -> None:
        """Close a connection instead of returning it. The idle ones are as good as before."""
        if lent.process != self._process:
            leave_alone(lent)
            return
        _close(lent)
        self._free.release()

    def pause(self, seconds: float) -> bool:
        """Wait until no connection is lent, block lending, and close all. False if that takes longer than `seconds`."""
        until = time.monotonic() + seconds
        for held in range(self._size):
            if not self._free.acquire(timeout=max(0.0, until - time.monotonic())):
                for _ in range(held):
                    self._free.release()
                return False
        self.close()
        return True

    def resume(self) -> None:
        """Allow lending again after `pause`."""
        for _ in range(self._size):
            self._free.release()

    def close(self) -> None:
        """Close the idle connections now, and those in use when they are returned."""
        with self._lock:
            self._closings += 1
        self._close_idle()

    def _close_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for lent in idle:
            _close(lent)

    def _new(self, seconds: float) -> PooledConnection[C]:
        closings = self._closings
        connection = self._connect(seconds)
        return PooledConnection(connection, time.monotonic() + self._age_seconds, self._process, closings)

    def _idle_one(self) -> PooledConnection[C] | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                lent = self._idle.pop()
            if time.monotonic() < lent.until:
                return lent
            _close(lent)


def _close(lent: PooledConnection[C]) -> None:
    with contextlib.suppress(Exception):
        lent.connection.close()
