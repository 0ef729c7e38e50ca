"""A few connections, kept open for those who come next.

The pools of drivers and of SQLAlchemy wait for a connection as long as was said when they were made. Here every call
brings its own deadline, and when one connection turns out to be broken all idle ones can go with it: what ended one
(a restart, a failover) has ended them all.
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
class Lent(Generic[C]):
    """A connection that somebody uses. `until` is when it is replaced, by the monotonic clock."""

    connection: C
    until: float
    process: int


class Pool(Generic[C]):
    """Lends connections: those given back last come first, so that the others can grow old."""

    def __init__(self, connect: Callable[[float], C], *, size: int, kept: int, age_seconds: float) -> None:
        """At most `size` are lent at once, and `kept` kept for later. `connect` is told how many seconds it has."""
        self._connect = connect
        self._size = size
        self._kept = kept
        self._age_seconds = age_seconds
        self._idle: list[Lent[C]] = []
        self.renew()

    def renew(self) -> None:
        """Begin anew. In a forked child: to close the parent's connections would end its sessions."""
        leave_alone(*self._idle)
        self._process = os.getpid()
        self._free = threading.BoundedSemaphore(self._size)
        self._lock = threading.Lock()
        self._idle = []

    def take(self, seconds: float) -> Lent[C]:
        """Lend a connection, waiting so long for a free one. TransientError if none became free."""
        until = time.monotonic() + seconds
        if not self._free.acquire(timeout=seconds):
            raise TransientError(f"all {self._size} connections are in use")
        try:
            return self._idle_one() or Lent(
                self._connect(until - time.monotonic()), time.monotonic() + self._age_seconds, self._process
            )
        except BaseException:
            self._free.release()
            raise

    def release(self, lent: Lent[C], *, is_sound: bool) -> None:
        """Take a connection back. If it is not sound, close it and all idle ones."""
        if lent.process != self._process:
            leave_alone(lent)
            return
        with self._lock:
            keep = is_sound and len(self._idle) < self._kept
            if keep:
                self._idle.append(lent)
        if not keep:
            _close(lent)
        if not is_sound:
            self.close()
        self._free.release()

    def pause(self, seconds: float) -> bool:
        """Wait until none is lent, lend none, and close them all. False if that took longer."""
        until = time.monotonic() + seconds
        for held in range(self._size):
            if not self._free.acquire(timeout=max(0.0, until - time.monotonic())):
                for _ in range(held):
                    self._free.release()
                return False
        self.close()
        return True

    def resume(self) -> None:
        """Lend connections again after a pause."""
        for _ in range(self._size):
            self._free.release()

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for lent in idle:
            _close(lent)

    def _idle_one(self) -> Lent[C] | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                lent = self._idle.pop()
            if time.monotonic() < lent.until:
                return lent
            _close(lent)


def _close(lent: Lent[C]) -> None:
    with contextlib.suppress(Exception):
        lent.connection.close()
