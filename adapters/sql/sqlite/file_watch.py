"""A transport of hints that watches the version of a SQLite file."""

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from holdfast.adapters.sql.hint_queue import Inbox
from holdfast.ports.process_forks import leave_alone, renew_in_forks
from holdfast.ports.transport import Delivery, Hint

LOOK_SECONDS_MIN: Final = 0.002
LOOK_SECONDS_MAX: Final = 0.02


class SqliteTransport:
    """See `JobTransport`.

    Announced hints reach the receivers of this object at once. Commits of other processes are noticed by the version
    of the file. It takes a few microseconds to read, and shows only that something changed.
    """

    def __init__(self, path: str | Path) -> None:
        """`path` is the database's file; it may not exist yet."""
        self._path = Path(path).absolute()
        self._inbox = Inbox()
        self._connection: sqlite3.Connection | None = None
        self.renew()
        renew_in_forks(self)

    def renew(self) -> None:
        """Reset to no connection. In a forked child, one of SQLite must be neither used nor closed."""
        leave_alone(self._connection)
        self._inbox.renew()
        self._connection = None
        self._version: int | None = None
        self._pause = LOOK_SECONDS_MIN

    def pause(self, seconds: float, /) -> bool:
        """See `Pausable`."""
        return self._inbox.pause(seconds, self._let_go)

    def resume(self) -> None:
        """See `Pausable`."""
        self._inbox.resume()

    def spoil(self) -> None:
        """See `Pausable`. Does nothing: the store raises the error."""

    def reopen(self) -> None:
        """See `Reopenable`."""
        if self._inbox.is_closed:
            self.renew()

    def announce(self, hints: Sequence[Hint], /) -> None:
        """See `JobTransport.announce`."""
        self._inbox.put(hints)

    def receive(self, limit: int, wait: float, /) -> Sequence[Delivery]:
        """See `JobTransport.receive`."""
        self._pause = LOOK_SECONDS_MIN
        return self._inbox.take(limit, wait, self._look)

    def ack(self, receipt: str, /) -> None:
        """See `JobTransport.ack`."""
        self._inbox.ack(receipt)

    def retry(self, receipt: str, delay: float, /) -> None:
        """See `JobTransport.retry`."""
        self._inbox.retry(receipt, delay)

    def extend(self, receipt: str, by: float, /) -> None:
        """See `JobTransport.extend`. Does nothing: deliveries are repeated only on request."""

    def close(self) -> None:
        """See `JobTransport.close`."""
        self._inbox.close()
        self._let_go()

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _look(self) -> float:
        """Queue a hint if the file has changed. Return the seconds until the next check. Holds the queue's lock."""
        version = self._read_version()
        if version != self._version:
            is_first = self._version is None
            self._version = version
            if version is not None and not is_first:
                self._pause = LOOK_SECONDS_MIN
                self._inbox.put([None])
        pause = self._pause
        self._pause = min(pause * 1.3, LOOK_SECONDS_MAX)
        return pause

    def _read_version(self) -> int | None:
        try:
            if self._connection is None:
                uri = f"{self._path.as_uri()}?mode=rw"  # does not create the file
                self._connection = sqlite3.connect(
                    uri, uri=True, timeout=0, isolation_level=None, check_same_thread=False
                )
            version: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error:
            return self._version  # the maintenance tick replaces missed hints
        return version
