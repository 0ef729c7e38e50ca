"""Gives up connections that do not answer.

A socket whose other end is gone without a word, or behind a proxy that swallows everything, lets a driver wait for
ever: the kernel's timeouts only see bytes that nobody acknowledged. Shutting the socket down wakes the waiting thread
with an error.
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
    """A connection's file descriptor; OSError or the driver's error if it is closed."""

    def fileno(self) -> int:
        """Return the descriptor."""
        ...


class Watchdog:
    """One thread that looks after all waiting connections; it is started by the first, and sleeps while none waits."""

    def __init__(self, seconds: float) -> None:
        """`seconds` is how long an answer may take."""
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        """Begin anew. In a forked child: who waits in the parent is none of its business."""
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[float, HasSocket]] = {}
        self._anyone = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def enter(self, connection: HasSocket, until: float = math.inf) -> None:
        """Say that an answer is being waited for, and not longer than until then, by the monotonic clock."""
        with self._lock:
            self._waiting[id(connection)] = (min(time.monotonic() + self._seconds, until), connection)
            if self._thread is None:
                self._anyone, self._stopped = threading.Event(), threading.Event()
                watch = partial(self._watch, self._anyone, self._stopped)
                self._thread = threading.Thread(target=watch, name="holdfast-watchdog", daemon=True)
                self._thread.start()
            anyone = self._anyone
        if not anyone.is_set():
            anyone.set()

    def leave(self, connection: HasSocket) -> None:
        """Say that the answer came, or that nobody waits for it any more."""
        with self._lock:
            self._waiting.pop(id(connection), None)

    def close(self) -> None:
        """Stop watching, until somebody waits again."""
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
            with self._lock:
                now = time.monotonic()
                overdue = [connection for until, connection in self._waiting.values() if until < now]
                if not self._waiting and not stopped.is_set():
                    anyone.clear()
            for connection in overdue:
                hang_up(connection)
            stopped.wait(min(self._seconds / 4, 0.25))


def hang_up(connection: HasSocket) -> None:
    """Shut a connection's socket down, so that whoever waits for it gets an error."""
    with contextlib.suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)
