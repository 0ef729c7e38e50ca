"""Connections to PostgreSQL by psycopg, with few round trips, safe behind a pooler (docs/decisions/0010).

All writes to one table are one statement, so a transaction takes about as many round trips as it touches tables.
Statements that do not need an answer first are sent together: BEGIN with the first query, COMMIT with the writes.
Statements that find rows by key are prepared if no pooler is in between. No other session state is relied on.
"""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

import contextlib
import math
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, cast

import psycopg
from psycopg import pq
from sqlalchemy import Connection, Engine, NullPool, create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from holdfast.adapters.sql.database import NONE, Parameters, Shared, check_hits
from holdfast.adapters.sql.dialect import Dialect, Write
from holdfast.adapters.sql.errors import TransientError, from_sqlstate
from holdfast.adapters.sql.pool import Pool
from holdfast.adapters.sql.postgresql.dialect import POSTGRES_CLOCK, PostgresDialect
from holdfast.adapters.sql.postgresql.libpq import StatementResult, StatementRunner
from holdfast.adapters.sql.postgresql.row_cache import RowCache, Versions, versions_for
from holdfast.adapters.sql.rows import Row
from holdfast.adapters.sql.settings import (
    BEGIN,
    BEGIN_SHARED,
    CHECK_SESSION,
    CONNECT_SECONDS,
    JOIN_SHARED,
    LOCAL_SETTINGS,
    REPAIR_SESSION,
    STATEMENT_SECONDS,
    TIMEOUTS,
    connect,
    connection_settings,
)
from holdfast.adapters.sql.user_transactions import (
    CONNECTIONS_KEPT,
    CONNECTIONS_MORE,
    BodyCursor,
    for_bodies,
    in_body,
)
from holdfast.adapters.sql.watchdog import Watchdog
from holdfast.ports.errors import HoldfastError
from holdfast.ports.process_forks import leave_alone, renew_in_forks

ANSWER_SECONDS: Final = STATEMENT_SECONDS + 3.0
"""How long to wait for an answer: longer than the server's statement timeout."""
GRACE_SECONDS: Final = 0.5
"""How much longer than its deadline a call waits for an answer."""
AGE_SECONDS: Final = 1800.0
"""Age at which a connection is replaced, so that all servers behind a load balancer get their share again."""

MIGRATION_LOCK: Final = 0x686F6C64_66617374  # "holdfast"

_PUT_RECEIPT: Final = f"INSERT INTO holdfast_commit_receipts (id, at) VALUES (%(receipt)s, {POSTGRES_CLOCK})"
_UNPREPARED: Final = frozenset({"26000", "42P05", "0A000"})
"""SQLSTATEs for a prepared statement that is unknown, exists already, or whose result has other columns by now."""
_SHARED_SECONDS: Final = 60.0
"""How long the body of a step may be idle in a transaction, which holds locks."""
_NO_OPTIONS: Final = "unsupported startup parameter"
"""PgBouncer's error for session settings in the startup packet."""

_Statement = tuple[str, Parameters, bool]
"""SQL, parameters, and whether the server may prepare it."""

_Writes = Sequence[tuple[Write, Sequence[Row]]]
_COMMIT: Final[Sequence[_Statement]] = (("COMMIT", NONE, False),)


class PostgresLink:
    """See `Link`."""

    probes = False

    def __init__(
        self,
        statements: StatementRunner,
        watchdog: Watchdog,
        preamble: Sequence[str],
        *,
        pipeline: bool,
        until: float,
        versions: Versions | None = None,
    ) -> None:
        self._until = until
        self._versions = versions
        self._statements = statements
        self._watchdog = watchdog
        self._preamble = preamble
        self._pipeline = pipeline
        self._unsent: Sequence[str] = ()
        self._unwritten: tuple[_Writes, str | None] | None = None
        self._began = False
        self._is_spoilt = False

    @property
    def began(self) -> bool:
        """See `Link.began`."""
        return self._began

    @property
    def remembers(self) -> "PostgresLink | None":
        """See `Link.remembers`. None behind a pooler, where the server may change."""
        return self if self._versions is not None and self._statements.prepares else None

    @property
    def memory(self) -> RowCache:
        """See `CachingLink.memory`."""
        return self._statements.memory

    @property
    def versions(self) -> Versions:
        """See `CachingLink.versions`."""
        assert self._versions is not None
        return self._versions

    def begin(self) -> None:
        """See `Link.begin`. BEGIN is sent together with the next statement."""
        if not self._began:
            self._began = True
            self._unsent = self._preamble

    def query(self, sql: str, parameters: Parameters = NONE, /, *, keyed: bool = False) -> list[Row]:
        """See `Link.query`."""
        self._write_now()
        with self._guarded():
            return self._run([(sql, parameters, keyed)])[-1].rows()

    def queries(self, statements: Sequence[tuple[str, Parameters]], /) -> list[list[Row]]:
        """See `Link.queries`."""
        self._write_now()
        with self._guarded():
            keyed = [(sql, parameters, True) for sql, parameters in statements]
            return [answer.rows() for answer in self._run(keyed, len(keyed))]

    def write(self, writes: _Writes, receipt: str | None, /, *, is_sure: bool = False) -> None:
        """See `Link.write`."""
        self._write_now()
        self._unwritten = writes, receipt
        if not is_sure or not self._pipeline:
            self._write_now()

    def put_receipt(self, receipt: str, /) -> None:
        """See `Link.put_receipt`."""
        self.begin()
        self.write([], receipt)

    def commit(self) -> None:
        """See `Link.commit`."""
        if self._unwritten is not None:
            self._write_now(*_COMMIT)
        elif self._began and not self._unsent:
            with self._guarded():
                self._run(_COMMIT)
        self._began = False
        self._unsent = ()

    def commit_and_query(self, sql: str, parameters: Parameters, /) -> list[Row]:
        """See `CachingLink.commit_and_query`."""
        if self._unwritten is None:
            self.commit()
            return []
        answers = self._write_now((sql, parameters, True), *_COMMIT)
        self._began = False
        return answers[-2].rows()

    def query_and_commit(self, sql: str, parameters: Parameters, /) -> list[Row]:
        """See `CachingLink.query_and_commit`. BEGIN is explicit, so defaults of server and session have no effect."""
        self.begin()
        with self._guarded():
            answers = self._run(((sql, parameters, True), *_COMMIT), 2)
        self._began = False
        return answers[0].rows()

    def end(self) -> bool:
        """Roll back uncommitted work. Return whether the connection can be used again."""
        status = self._statements.status
        if status in {pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR}:
            with contextlib.suppress(HoldfastError), self._guarded():
                self._statements.make("ROLLBACK", NONE)
            status = self._statements.status
        return status == pq.TransactionStatus.IDLE and not self._is_spoilt

    def _write_now(self, *and_then: _Statement) -> Sequence[StatementResult]:
        """Send the delayed writes, if any, followed by other statements. Return all answers."""
        if self._unwritten is None:
            return ()
        (writes, receipt), self._unwritten = self._unwritten, None
        with self._guarded():
            answers = self._run(
                chain(_statements(writes, receipt), and_then), max(len(writes), 1) + len(and_then)
            )
        for (write, rows), answer in zip(writes, answers, strict=False):
            check_hits(write, rows, answer.hits)
        return answers

    def _run(self, statements: Iterable[_Statement], number: int = 1) -> Sequence[StatementResult]:
        """Send statements, after a pending BEGIN, and return their answers."""
        before, self._unsent = self._unsent, ()
        all_statements = chain(((sql, NONE, False) for sql in before), statements)
        if self._pipeline and len(before) + number > 1:
            return self._statements.make_all(all_statements)[len(before) :]
        make = self._statements.make
        return [make(sql, parameters, prepared=prepared) for sql, parameters, prepared in all_statements][
            len(before) :
        ]

    @contextlib.contextmanager
    def _guarded(self) -> Generator[None]:
        self._watchdog.enter(self._statements, self._until)
        try:
            yield
        except psycopg.Error as error:
            if error.sqlstate in _UNPREPARED and self._statements.prepares:
                self._is_spoilt = True
                raise TransientError(f"a prepared statement is no longer valid: {error}") from error
            raise from_sqlstate(error.sqlstate, f"{type(error).__name__}: {error}") from error
        except UnicodeError as error:  # a lone surrogate
            raise from_sqlstate("22021", str(error)) from error
        finally:
            self._watchdog.leave(self._statements)


def _statements(writes: _Writes, receipt: str | None) -> Iterator[_Statement]:
    """Yield a statement per write. The last one also stores the receipt, which saves a statement.

    A generator, so that the server works on the first rows while later ones are being encoded.
    """
    for left, (write, rows) in zip(range(len(writes) - 1, -1, -1), writes, strict=True):
        sql, encoded = write.encoded(rows)
        if receipt is not None and not left:
            yield f"WITH kept AS ({_PUT_RECEIPT}) {sql}", {**encoded, "receipt": receipt}, True
        else:
            yield sql, encoded, True
    if receipt is not None and not writes:
        yield _PUT_RECEIPT, {"receipt": receipt}, True


class PostgresDatabase:
    """See `Database`."""

    clock_sql: str | None = f"SELECT {POSTGRES_CLOCK}"
    has_receipts: bool = True

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 4,
        session_settings: bool = True,
        pipeline: bool = True,
        versions: bool = True,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        """See `SqlPersistence`."""
        self.dialect: Dialect = PostgresDialect()
        self._versions = versions_for(self.dialect) if versions else None
        self._url = url
        self._use_session_settings(session_settings)
        self._pipeline = pipeline and psycopg.Pipeline.is_supported()
        self._watchdog = Watchdog(answer_seconds)
        self._pool = Pool(self._connect, size=pool_size, kept=pool_size, age_seconds=AGE_SECONDS)
        self._sharing: Engine | None = None
        self._sharing_lock = threading.Lock()
        renew_in_forks(self)

    def renew(self) -> None:
        """Reset to no connections. In a forked child they belong to the parent."""
        leave_alone(self._sharing)
        self._sharing = None
        self._sharing_lock = threading.Lock()
        self._watchdog.renew()
        self._pool.renew()

    @contextlib.contextmanager
    def writer(self, seconds: float, /) -> Generator[PostgresLink]:
        """See `Database.writer`. An answer later than the deadline is not waited for."""
        until = time.monotonic() + seconds + GRACE_SECONDS
        lent = self._pool.take(seconds)
        link = PostgresLink(
            lent.connection,
            self._watchdog,
            self._preamble,
            pipeline=self._pipeline,
            until=until,
            versions=self._versions,
        )
        try:
            yield link
        finally:
            self._pool.release(lent, is_sound=link.end())

    def reader(self, seconds: float, /) -> contextlib.AbstractContextManager[PostgresLink]:
        """See `Database.reader`."""
        return self.writer(seconds)

    @contextlib.contextmanager
    def shared(self, seconds: float, /) -> Generator[Shared]:
        """See `Database.shared`. The body has the server's own timeouts; ours apply once our rows join."""
        try:
            connection = self._shared_engine(seconds).connect()
        except (psycopg.Error, SQLAlchemyError) as error:
            raise TransientError(f"no connection: {error}") from error
        with connection:
            connection.begin()
            raw = cast("psycopg.Connection[Row]", connection.connection.driver_connection)
            statements = StatementRunner(raw, prepares=False)
            link = PostgresLink(statements, self._watchdog, (JOIN_SHARED,), pipeline=False, until=math.inf)
            try:
                connection.exec_driver_sql(BEGIN_SHARED.format(int(_SHARED_SECONDS * 1000)))
            except SQLAlchemyError as error:
                connection.invalidate()
                raise TransientError(f"no transaction: {error}") from error
            try:
                with in_body(connection):
                    yield Shared(connection, link, lambda: _is_in_transaction(raw))
            finally:
                if not link.end():
                    connection.invalidate()

    def _shared_engine(self, seconds: float) -> Engine:
        """Return the engine for connections of step bodies."""
        with self._sharing_lock:
            if self._sharing is None:
                engine = create_engine(
                    "postgresql+psycopg://",
                    creator=self._connect_shared,
                    isolation_level="READ COMMITTED",
                    pool_size=CONNECTIONS_KEPT,
                    max_overflow=CONNECTIONS_MORE,
                    pool_timeout=seconds,
                    pool_pre_ping=True,
                    pool_recycle=int(AGE_SECONDS),
                    use_native_hstore=False,
                )
                self._sharing = for_bodies(engine)
            return self._sharing

    def _connect_shared(self) -> psycopg.Connection[Row]:
        settings = connection_settings(self._url, session_settings=False)
        connection: psycopg.Connection[Row] = connect(self._url, settings, CONNECT_SECONDS, autocommit=False)
        connection.read_only = False  # overrules the role's defaults
        connection.deferrable = False
        connection.cursor_factory = _BodyCursor
        return connection

    @contextlib.contextmanager
    def migration(self, seconds: float, /) -> Generator[Connection]:
        """See `Database.migration`. The lock belongs to the transaction, so a pooler can't leave it behind."""
        engine = create_engine(
            "postgresql+psycopg://",
            creator=lambda: self._connect(seconds).connection,
            poolclass=NullPool,
            use_native_hstore=False,
        )
        limit = str(int(seconds * 1000))
        try:
            with engine.connect() as connection, connection.begin():
                connection.execute(text(BEGIN))  # the driver is in autocommit mode
                for name in TIMEOUTS:
                    connection.execute(
                        text("SELECT set_config(:name, :value, true)"), {"name": name, "value": limit}
                    )
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
                yield connection
        finally:
            engine.dispose()

    def close(self) -> None:
        """See `Database.close`."""
        self._pool.close()
        with self._sharing_lock:
            if self._sharing is not None:
                self._sharing.dispose()
                self._sharing = None
        self._watchdog.close()

    def _use_session_settings(self, use: bool) -> None:
        self._settings = connection_settings(self._url, session_settings=use)
        self._preamble: tuple[str, ...] = (BEGIN,) if use else (BEGIN, LOCAL_SETTINGS)

    def _connect(self, seconds: float) -> StatementRunner:
        try:
            return self._connected(seconds)
        except TransientError as error:
            if _NO_OPTIONS not in str(error):
                raise
        # A pooler in transaction mode: settings are made in each transaction instead of for the session.
        self._use_session_settings(use=False)
        return self._connected(seconds)

    def _connected(self, seconds: float) -> StatementRunner:
        connection: psycopg.Connection[Row] = connect(self._url, self._settings, seconds, autocommit=True)
        statements = StatementRunner(connection, prepares=False)
        try:
            ((backend, is_as_it_must_be),) = statements.make(CHECK_SESSION, NONE).rows()
            statements.prepares = _is_direct(statements, backend)
            if not statements.prepares:
                # A pooler that accepts settings does not pass them on to server sessions that exist already.
                self._preamble = (BEGIN, LOCAL_SETTINGS)
            elif not is_as_it_must_be:
                statements.make(REPAIR_SESSION, NONE)
        except psycopg.Error as error:
            connection.close()
            raise from_sqlstate(error.sqlstate, f"{type(error).__name__}: {error}") from error
        return statements


def _is_direct(statements: StatementRunner, backend: object) -> bool:
    """Whether a connection is to the server itself, so that the same backend process answers for its whole life.

    A pooler invents the process id that it announces on connect. Behind it, a statement may be prepared in one
    server and executed in another, where its name may stand for a statement of another client.
    """
    return bool(backend == statements.connection.info.backend_pid)


def _is_in_transaction(connection: psycopg.Connection[Any]) -> bool:
    states = {pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR}
    return connection.pgconn.transaction_status in states


class _BodyCursor(BodyCursor, psycopg.Cursor[Row]):
    pass
