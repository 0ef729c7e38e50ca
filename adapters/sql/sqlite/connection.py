"""Connections to SQLite: one writer per process, and as many readers as there are queries at a time.

The write-ahead log lets readers and one writer work side by side, in any number of processes on one machine. A
transaction that may write starts with BEGIN IMMEDIATE: upgrading a read transaction later fails if another has
written meanwhile. `synchronous=FULL`: a commit is on disk when it returns.
"""

import contextlib
import os
import re
import sqlite3
import threading
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote
from weakref import WeakSet

from sqlalchemy import Connection, Engine, QueuePool, StaticPool, create_engine
from sqlalchemy.exc import DBAPIError
from typing_extensions import override

from holdfast.adapters.sql.application_connections import ApplicationAccess
from holdfast.adapters.sql.database import NONE, Parameters, Shared, check_hits
from holdfast.adapters.sql.dialect import Dialect, Write
from holdfast.adapters.sql.errors import TransientError
from holdfast.adapters.sql.pool import Pool
from holdfast.adapters.sql.rows import Row
from holdfast.adapters.sql.sqlite.application_access import SqliteApplicationAccess
from holdfast.adapters.sql.sqlite.dialect import SqliteDialect
from holdfast.adapters.sql.sqlite.errors import from_sqlite
from holdfast.adapters.sql.sqlite.file_watch import SqliteTransport
from holdfast.adapters.sql.transaction import Statements
from holdfast.adapters.sql.user_transactions import BodyCursor, for_bodies, in_body
from holdfast.ports.errors import AccessDeniedError, ForkedStoreError, InvalidUrlError, UnavailableError
from holdfast.ports.process_forks import leave_alone, renew_in_forks
from holdfast.ports.read_limits import ReadLimit
from holdfast.ports.urls import shown_url

BUSY_SECONDS_MAX: Final = 5.0
"""How long SQLite itself waits for another process's transaction before a try fails."""
LIMIT_CHECKED_EVERY: Final = 20_000
"""After how many steps of its program a query is checked against its limit: about a millisecond."""
VERSION_MIN: Final = (3, 35)
READERS_KEPT: Final = 4
READERS_MAX: Final = 32
READER_AGE_SECONDS: Final = 1800.0

_SETTINGS: Final = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",  # on macOS, fsync does not wait for the disk
    "PRAGMA checkpoint_fullfsync = ON",
    "PRAGMA foreign_keys = ON",
)
_SETTINGS_OF_BODIES: Final = (
    *_SETTINGS[1:],
    "PRAGMA query_only = OFF",
    "PRAGMA ignore_check_constraints = OFF",
    "PRAGMA writable_schema = OFF",
)
"""For a connection whose settings the body of another step may have changed."""


_IN_THE_MIDDLE: Final = (
    "this process was forked in the middle of a transaction of its parent, for example by the body of a step: SQLite"
    " can't be used in it; fork elsewhere, or start another process with `subprocess`"
)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def sqlite_path(url: str) -> str:
    """Return the file in a URL: `sqlite:///relative.db` or `sqlite:////absolute.db`. ValueError for any other."""
    remainder = url.partition("://")[2]
    path = unquote(re.split("[?#]", remainder)[0], errors="surrogateescape")
    if not path.startswith("/") or path in {"/", "/:memory:"}:
        raise ValueError(
            f"{shown_url(url)!r} names no file: use sqlite:///relative.db or sqlite:////absolute.db"
        )
    if _CONTROL.search(path):
        raise ValueError("the file's name has characters that can't be printed")
    try:
        path.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        raise ValueError("the file's name has half of a surrogate pair, which no file's name has") from None
    if "?" in remainder or "#" in remainder:
        raise ValueError("a SQLite URL has no parameters; a ? or # in a file's name is written %3F or %23")
    return path[1:]


def _identity_of(path: str) -> tuple[int, int] | None:
    """Return the device and the number of a file; None if it does not exist."""
    try:
        found = os.stat(path)  # a Path would take as long again, in each transaction
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextlib.contextmanager
def _translated() -> Generator[None]:
    try:
        yield
    except DBAPIError as error:
        raise from_sqlite(error.orig or error) from error
    except (sqlite3.Error, OverflowError, UnicodeError) as error:
        raise from_sqlite(error) from error


@contextlib.contextmanager
def _limited(connection: sqlite3.Connection, limit: ReadLimit | None) -> Generator[None]:
    """Stop the statements of a connection at a limit. SQLite calls the check in the thread of the query."""
    if limit is None:
        yield
        return
    until = time.monotonic() + limit.seconds
    connection.set_progress_handler(
        lambda: limit.is_abandoned or time.monotonic() >= until, LIMIT_CHECKED_EVERY
    )
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)


class _BodyCursor(BodyCursor, sqlite3.Cursor):
    pass


class _BodyConnection(sqlite3.Connection):
    """The connection of a step's body."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._cursors = WeakSet[sqlite3.Cursor]()

    @override
    def cursor(self, factory: Any = _BodyCursor) -> Any:
        cursor: sqlite3.Cursor = super().cursor(factory)
        self._cursors.add(cursor)
        return cursor

    def close_cursors(self) -> None:
        """Close all cursors: one with unread results would keep its snapshot, on which no other body could write."""
        for cursor in tuple(self._cursors):
            cursor.close()


class SqliteLink:
    """See `Link`."""

    probes = True

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @property
    def began(self) -> bool:
        """See `Link.began`."""
        return self._connection.in_transaction

    def begin(self) -> None:
        """See `Link.begin`. Waits for other writers."""
        if not self._connection.in_transaction:
            with _translated():
                self._connection.execute("BEGIN IMMEDIATE")

    def query(self, sql: str, parameters: Parameters = NONE, /, *, keyed: bool = False) -> list[Row]:
        """See `Link.query`. The sqlite3 module caches parsed statements itself."""
        del keyed
        with _translated():
            return self._connection.execute(sql, parameters).fetchall()

    def queries(self, statements: Sequence[tuple[str, Parameters]], /) -> list[list[Row]]:
        """See `Link.queries`."""
        return [self.query(sql, parameters) for sql, parameters in statements]

    def write(
        self, writes: Sequence[tuple[Write, Sequence[Row]]], receipt: str | None, /, *, is_sure: bool = False
    ) -> None:
        """See `Link.write`. Receipts are not needed: the answer to a commit can't be lost within a process."""
        del receipt, is_sure
        self.begin()
        for write, rows in writes:
            with _translated():
                hits = self._connection.executemany(write.sql, rows).rowcount
            check_hits(write, rows, hits)

    def put_receipt(self, receipt: str, /) -> None:
        """See `Link.put_receipt`."""

    def commit(self) -> None:
        """See `Link.commit`."""
        if self._connection.in_transaction:
            with _translated():
                self._connection.execute("COMMIT")

    def end(self) -> bool:
        """Roll back uncommitted work. Return whether the connection can be used again."""
        with contextlib.suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            return True
        return False


class SqliteDatabase:
    """See `Database`."""

    clock_sql: str | None = None
    has_receipts: bool = False
    application_access: ApplicationAccess | None = SqliteApplicationAccess()

    def __init__(self, path: str, *, busy_seconds: float = BUSY_SECONDS_MAX) -> None:
        """Use the file at a path; it may not exist yet. Transactions of others are waited for `busy_seconds`."""
        if sqlite3.sqlite_version_info < VERSION_MIN:
            raise UnavailableError(
                f"SQLite 3.35 or newer is needed; this Python has {sqlite3.sqlite_version}"
            )
        self.dialect: Dialect = SqliteDialect()
        self._file = Path(
            path
        ).absolute()  # the process may change its folder later, and open a connection then
        self.file: Path | None = self._file
        self._path = str(self._file)
        self._identity: tuple[int, int] | None = None
        self._busy_seconds = min(busy_seconds, BUSY_SECONDS_MAX)
        self._lock = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._sharing: Engine | None = None
        self._is_spoilt = False
        self._readers = Pool(
            self._connect_reader, size=READERS_MAX, kept=READERS_KEPT, age_seconds=READER_AGE_SECONDS
        )
        renew_in_forks(self)

    def renew(self) -> None:
        """Reset to no connections. In a forked child, those of SQLite must be neither used nor closed."""
        leave_alone(self._writer, self._sharing)
        self._lock = threading.Lock()
        self._writer = self._sharing = None
        self._readers.renew()

    def pause(self, seconds: float, /) -> bool:
        """See `Pausable`. SQLite keeps track of its file locks per process, and a child would inherit wrong ones.

        It would assume the locks that its parent held then: wait for ever, or fail to lock what the parent changes.
        """
        until = time.monotonic() + seconds
        if not self._lock.acquire(timeout=seconds):
            return False
        if not self._readers.pause(until - time.monotonic()):
            self._lock.release()
            return False
        self._let_go()
        return True

    def resume(self) -> None:
        """See `Pausable`."""
        self._readers.resume()
        self._lock.release()

    def spoil(self) -> None:
        """See `Pausable`."""
        self._is_spoilt = True

    def fast_path(self, statements: Statements, /) -> None:
        """See `Database.fast_path`. A local query costs too little for a cache."""

    def transport(self) -> SqliteTransport:
        """See `Database.transport`."""
        return SqliteTransport(self._path)

    @contextlib.contextmanager
    def writer(self, seconds: float, /) -> Generator[SqliteLink]:
        """See `Database.writer`. One at a time, since SQLite allows only one writer anyway."""
        if not self._lock.acquire(timeout=seconds):
            raise TransientError("another thread of this process keeps the database busy")
        try:
            self._check_file()
            if self._writer is None:
                self._writer = self._connect()
            link = SqliteLink(self._writer)
            try:
                yield link
            finally:
                if not link.end():
                    self._writer.close()
                    self._writer = None
        finally:
            self._lock.release()

    @contextlib.contextmanager
    def reader(self, seconds: float, limit: ReadLimit | None = None, /) -> Generator[SqliteLink]:
        """See `Database.reader`."""
        lent = self._readers.take(seconds)
        is_sound = False
        try:
            with _limited(lent.connection, limit):
                yield SqliteLink(lent.connection)
            is_sound = True
        finally:
            self._readers.release(lent, is_sound=is_sound)

    @contextlib.contextmanager
    def shared(self, seconds: float, /) -> Generator[Shared]:
        """See `Database.shared`. It blocks all other writers, in this process and others."""
        if not self._lock.acquire(timeout=seconds):
            raise TransientError("another thread of this process keeps the database busy")
        try:
            self._check_file()
            with self._shared_engine().connect() as connection:
                connection.begin()
                raw = connection.connection.driver_connection
                assert isinstance(raw, _BodyConnection)
                with _translated():
                    for setting in _SETTINGS_OF_BODIES:
                        raw.execute(setting)
                link = SqliteLink(raw)
                link.begin()
                try:
                    with in_body(connection):
                        yield Shared(connection, link, lambda: link.began)
                finally:
                    raw.close_cursors()
                    if not link.end():
                        connection.invalidate()
        finally:
            self._lock.release()

    def _shared_engine(self) -> Engine:
        """Return the engine for connections of step bodies."""
        if self._sharing is None:
            self._sharing = for_bodies(
                create_engine(
                    "sqlite://",
                    creator=lambda: self._connect(factory=_BodyConnection),
                    poolclass=QueuePool,
                    pool_size=1,
                )
            )
        return self._sharing

    @contextlib.contextmanager
    def migration(self, seconds: float, /) -> Generator[Connection]:
        """See `Database.migration`. BEGIN IMMEDIATE admits only one process at a time."""
        raw = self._connect()
        raw.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")
        engine = create_engine("sqlite://", creator=lambda: raw, poolclass=StaticPool)
        try:
            with engine.connect() as connection, connection.begin(), _translated():
                SqliteLink(raw).begin()
                yield connection
        finally:
            engine.dispose()
            raw.close()

    def close(self) -> None:
        """See `Database.close`."""
        with self._lock:
            self._let_go()
            self._identity = None
        self._readers.close()

    def _let_go(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._sharing is not None:
            self._sharing.dispose()
            self._sharing = None

    def _check_file(self) -> None:
        """Raise UnavailableError if the file that this process writes to is no longer at its path.

        SQLite would go on in a file that no other process finds, and that is gone when this process ends.
        """
        if self._identity is not None and _identity_of(self._path) != self._identity:
            raise UnavailableError(
                f"the database's file {self._path!r} was removed or replaced while this process used it: nothing is"
                " stored any more; put the file back, or close the engine and open it again"
            )

    def _connect(self, **options: Any) -> sqlite3.Connection:
        if self._is_spoilt:
            raise ForkedStoreError(_IN_THE_MIDDLE)
        with _translated():
            self._create_file()
            connection: sqlite3.Connection = sqlite3.connect(
                self._path,
                timeout=self._busy_seconds,
                isolation_level=None,
                check_same_thread=False,
                **options,
            )
            try:
                for setting in _SETTINGS:
                    connection.execute(setting)
            except BaseException:
                connection.close()
                raise
            if self._identity is None:
                self._identity = _identity_of(self._path)
            return connection

    def _connect_reader(self, _: float) -> sqlite3.Connection:
        connection = self._connect()
        connection.execute("PRAGMA query_only = ON")
        return connection

    def _create_file(self) -> None:
        """Create the file for its owner only: SQLite copies the mode to its journal files.

        Checks the path first, because SQLite reports all failures to open a file alike, whether or not a retry can
        help.
        """
        path = self._file
        try:
            if path.is_dir():
                raise InvalidUrlError(f"the URL names a folder, not a file: {self._path!r}")
            if not path.exists():
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            elif not os.access(path, os.R_OK | os.W_OK) or not os.access(path.absolute().parent, os.W_OK):
                raise AccessDeniedError(
                    f"the database's file, or its folder, can't be written by this user: {self._path!r}"
                )
        except PermissionError as error:
            raise AccessDeniedError(f"the database file can't be made: {error}") from error
        except OSError as error:
            raise UnavailableError(f"the database file can't be made: {error}") from error
