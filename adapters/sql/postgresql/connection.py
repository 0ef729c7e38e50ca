"""Connections to PostgreSQL by psycopg, with few round trips, safe behind a pooler (docs/decisions/0010)."""

import contextlib
import math
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final, cast

import psycopg
from psycopg import pq
from sqlalchemy import Connection, Engine, NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from holdfast.adapters.sql.application_connections import ApplicationAccess
from holdfast.adapters.sql.database import NONE, Shared
from holdfast.adapters.sql.dialect import Dialect
from holdfast.adapters.sql.errors import TransientError
from holdfast.adapters.sql.pool import Pool
from holdfast.adapters.sql.postgresql.application_access import PostgresApplicationAccess
from holdfast.adapters.sql.postgresql.ddl import set_storage
from holdfast.adapters.sql.postgresql.dialect import POSTGRES_CLOCK, PostgresDialect
from holdfast.adapters.sql.postgresql.errors import from_sqlstate
from holdfast.adapters.sql.postgresql.libpq import StatementRunner
from holdfast.adapters.sql.postgresql.link import PostgresLink
from holdfast.adapters.sql.postgresql.listen_notify import PostgresTransport
from holdfast.adapters.sql.postgresql.optimistic import OptimisticPath
from holdfast.adapters.sql.postgresql.settings import (
    BEGIN,
    BEGIN_SHARED,
    CHECK_SESSION,
    CONNECT_SECONDS,
    JOIN_SHARED,
    LIMITED_READ,
    LOCAL_SETTINGS,
    REPAIR_SESSION,
    STATEMENT_SECONDS,
    TIMEOUTS,
    connect,
    connection_settings,
)
from holdfast.adapters.sql.postgresql.watchdog import Watchdog
from holdfast.adapters.sql.rows import Row
from holdfast.adapters.sql.transaction import Statements
from holdfast.adapters.sql.user_transactions import BodyCursor, for_bodies, in_body
from holdfast.ports.process_forks import leave_alone, renew_in_forks
from holdfast.ports.read_limits import ReadLimit

ANSWER_SECONDS: Final = STATEMENT_SECONDS + 3.0
"""How long to wait for an answer: longer than the server's statement timeout."""
GRACE_SECONDS: Final = 0.5
"""How much longer than its deadline a call waits for an answer."""
CANCEL_SECONDS: Final = 2.0
"""How long a request to cancel a statement may take."""
AGE_SECONDS: Final = 1800.0
"""Age at which a connection is replaced, so that all servers behind a load balancer get their share again."""

MIGRATION_LOCK: Final = 0x686F6C64_66617374  # "holdfast"

BODIES_KEPT: Final = 4
"""The connections for bodies of steps that are kept open."""
BODIES_MORE: Final = 28
"""How many more bodies may be in transactions at a time."""
_SHARED_SECONDS: Final = 60.0
"""How long the body of a step may be idle in a transaction, which holds locks."""
_NO_OPTIONS: Final = "unsupported startup parameter"
"""PgBouncer's error for session settings in the startup packet."""


class PostgresDatabase:
    """See `Database`."""

    clock_sql: str | None = f"SELECT {POSTGRES_CLOCK}"
    has_receipts: bool = True
    application_access: ApplicationAccess | None = PostgresApplicationAccess()
    file: Path | None = None

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
        """Use the server of a URL.

        Args:
            url: `postgresql://user@host/database`.
            pool_size: The most connections.
            session_settings: False for poolers that refuse `options` (PgBouncer without
                `ignore_startup_parameters = options`): timeouts are then set in each transaction instead of on
                connect, and queries have only the client's.
            pipeline: False for poolers that do not support several statements in flight: each then waits for its
                answer.
            versions: False for servers other than PostgreSQL, which lack `xmin`: no rows are cached, and each
                transaction locks the rows that it reads.
            answer_seconds: How long to wait for an answer.
        """
        self.dialect: Dialect = PostgresDialect()
        self._has_versions = versions
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

    def fast_path(self, statements: Statements, /) -> OptimisticPath | None:
        """See `Database.fast_path`."""
        return OptimisticPath(statements) if self._has_versions else None

    def transport(self) -> PostgresTransport:
        """See `Database.transport`."""
        return PostgresTransport(self._url)

    @contextlib.contextmanager
    def writer(self, seconds: float, /) -> Generator[PostgresLink]:
        """See `Database.writer`. An answer later than the deadline is not waited for."""
        until = time.monotonic() + seconds + GRACE_SECONDS
        lent = self._pool.take(seconds)
        link = PostgresLink(
            lent.connection, self._watchdog, self._preamble, pipeline=self._pipeline, until=until
        )
        try:
            yield link
        finally:
            self._pool.release(lent, is_sound=link.end())

    def reader(
        self, seconds: float, limit: ReadLimit | None = None, /
    ) -> contextlib.AbstractContextManager[PostgresLink]:
        """See `Database.reader`."""
        return self.writer(seconds) if limit is None else self._limited_reader(seconds, limit)

    @contextlib.contextmanager
    def _limited_reader(self, seconds: float, limit: ReadLimit) -> Generator[PostgresLink]:
        lent = self._pool.take(seconds)
        link = PostgresLink(
            lent.connection,
            self._watchdog,
            self._preamble,
            pipeline=self._pipeline,
            until=time.monotonic() + seconds + GRACE_SECONDS,
            limit=LIMITED_READ.format(max(1, int(limit.seconds * 1000))),
        )
        cancelled = threading.Event()

        def cancel() -> None:
            cancelled.set()
            with contextlib.suppress(psycopg.Error):  # a server that does not answer stops it by its timeout
                lent.connection.connection.cancel_safe(timeout=CANCEL_SECONDS)

        try:
            with limit.interrupted_by(cancel):
                yield link
        finally:
            is_sound = link.end()
            if cancelled.is_set():
                # The server may still get the request, and would stop a statement of the next to use the connection.
                self._pool.discard(lent)
            else:
                self._pool.release(lent, is_sound=is_sound)

    @contextlib.contextmanager
    def shared(self, seconds: float, /) -> Generator[Shared]:
        """See `Database.shared`. The body has the server's own timeouts; ours apply once our rows join."""
        try:
            engine = self._shared_engine(seconds)
            connection = engine.connect()
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
                is_sound = link.end()
                # Nothing would close it later if the database was closed meanwhile.
                if not is_sound or self._sharing is not engine:
                    connection.invalidate()

    def _shared_engine(self, seconds: float) -> Engine:
        """Return the engine for connections of step bodies."""
        with self._sharing_lock:
            if self._sharing is None:
                engine = create_engine(
                    "postgresql+psycopg://",
                    creator=self._connect_shared,
                    isolation_level="READ COMMITTED",
                    pool_size=BODIES_KEPT,
                    max_overflow=BODIES_MORE,
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
                set_storage(connection)
        except DBAPIError as error:
            cause = error.orig
            raise from_sqlstate(
                getattr(cause, "sqlstate", None), f"{type(cause).__name__}: {cause}"
            ) from error
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
