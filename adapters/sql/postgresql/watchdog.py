"""Timeouts for connections that do not answer.

A driver can wait for ever on a socket whose peer vanished silently, or that is behind a proxy which swallows all
data: the operating system's timeouts only see unacknowledged bytes. Shutting the socket down wakes the waiting
thread with an error.
"""

import contextlib
import math
import os
import socket
import threading
import time
from functools import partial
from typing import Protocol


class HasSocket(Protocol):
    """A connection with a file descriptor. If it is closed, `fileno` raises OSError or the driver's error."""

    def fileno(self) -> int:
        """Return the file descriptor."""
        ...


class Watchdog:
    """One thread that watches all waiting connections. It starts with the first one, and sleeps while none waits."""

    def __init__(self, seconds: float) -> None:
        """`seconds` is the longest wait for an answer."""
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        """Reset. In a forked child, waits of the parent do not count."""
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[float, HasSocket]] = {}
        self._anyone = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def enter(self, connection: HasSocket, until: float = math.inf) -> None:
        """Start to watch a connection that waits for an answer, at most until `until` by the monotonic clock."""
        self._waiting[id(connection)] = (min(time.monotonic() + self._seconds, until), connection)
        if self._thread is None:
            self._start()
        if not self._anyone.is_set():  # after the entry was made: see `_watch`
            self._anyone.set()

    def leave(self, connection: HasSocket) -> None:
        """Stop watching a connection."""
        self._waiting.pop(id(connection), None)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._anyone, self._stopped = threading.Event(), threading.Event()
                watch = partial(self._watch, self._anyone, self._stopped)
                self._thread = threading.Thread(target=watch, name="holdfast-watchdog", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Stop the thread, until the next `enter`."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._stopped.set()
            self._anyone.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _watch(self, anyone: threading.Event, stopped: threading.Event) -> None:
        while True:
            anyone.wait()
            if stopped.is_set():
                return
            now = time.monotonic()
            # A copy, as other threads enter and leave without a lock: two locks for each statement cost more than this.
            for until, connection in list(self._waiting.values()):
                if until < now:
                    hang_up(connection)
            if not self._waiting:
                anyone.clear()
                if self._waiting or stopped.is_set():  # entered, or closed, before `clear`
                    anyone.set()
            stopped.wait(min(self._seconds / 4, 0.25))


def hang_up(connection: HasSocket) -> None:
    """Shut a connection's socket down, so that a thread waiting for it gets an error."""
    with contextlib.suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)
