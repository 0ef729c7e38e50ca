"""SQLite in transactions of the application, by any driver that SQLAlchemy or Django has for it."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, cast

import attrs
from sqlalchemy import TextClause
from sqlalchemy.exc import DBAPIError

from holdfast.adapters.sql.application_connections import (
    NOT_OPEN,
    ApplicationConnection,
    Execute,
    Executed,
    TransactionState,
)
from holdfast.adapters.sql.database import NONE, Parameters, check_hits
from holdfast.adapters.sql.dialect import Write
from holdfast.adapters.sql.rows import Row
from holdfast.adapters.sql.sqlite.errors import from_sqlite
from holdfast.ports.application_transactions import RunAsync
from holdfast.ports.errors import HoldfastError, InvalidTransactionError


@attrs.frozen
class SqliteApplicationAccess:
    """See `ApplicationAccess`. A transaction that has written excludes all other writers of the file."""

    vendor: str = "sqlite"
    excludes_writers: bool = True
    # SQLAlchemy would drop the connection, which holds its lock until it is collected.
    can_cancel_statements: bool = False
    store_id_sql: str = (
        "SELECT id || ' in ' || (SELECT file FROM pragma_database_list WHERE name = 'main')"
        " FROM holdfast_store"
    )

    def driver_connection(self, given: object, run_async: RunAsync | None, /) -> ApplicationConnection | None:
        """See `ApplicationAccess.driver_connection`: the sqlite3 module."""
        is_known = run_async is None and isinstance(given, sqlite3.Connection)
        return _Sync(cast("sqlite3.Connection", given)) if is_known else None

    def is_async(self, given: object, /) -> bool:
        """See `ApplicationAccess.is_async`."""
        del given
        return False

    def statement(self, sql: str, parameters: Parameters | Sequence[Row], /) -> tuple[str | TextClause, Any]:
        """See `ApplicationAccess.statement`."""
        return sql, list(parameters) if isinstance(parameters, Sequence) else dict(parameters)

    def state_of(self, driver_connection: object, /) -> TransactionState:
        """See `ApplicationAccess.state_of`."""
        connection = cast("sqlite3.Connection", driver_connection)  # or one with its attributes
        if connection.in_transaction:
            return "open"
        return "none" if connection.isolation_level is None else "implicit"

    def begin(self, connection: ApplicationConnection, /) -> None:
        """See `ApplicationAccess.begin`. A savepoint outside a transaction would be one, and its release a commit."""
        state = connection.transaction()
        if state == "none":
            raise InvalidTransactionError(NOT_OPEN)
        if state == "implicit":
            try:
                connection.execute("BEGIN IMMEDIATE")
            except Exception as error:
                translated = self.translated(error)
                if translated is None:
                    raise
                raise translated from error

    def write(self, execute: Execute, writes: Sequence[tuple[Write, Sequence[Row]]], /) -> list[Row]:
        """See `ApplicationAccess.write`."""
        for write, rows in writes:
            _, hits = execute(write.sql, rows)
            check_hits(write, rows, hits)
        return execute(self.store_id_sql, NONE)[0]

    def translated(self, error: Exception, /) -> HoldfastError | None:
        """See `ApplicationAccess.translated`."""
        cause = error.orig if isinstance(error, DBAPIError) else error
        return from_sqlite(cause) if isinstance(cause, sqlite3.Error | OverflowError | UnicodeError) else None


class _Sync:
    """A connection of the sqlite3 module."""

    vendor = "sqlite"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def flush(self) -> None:
        pass

    def execute(self, sql: str, parameters: Parameters | Sequence[Row] = NONE, /) -> Executed:
        # Not `connection.execute()`: its classes of cursors and rows are the application's.
        cursor = self._connection.cursor(sqlite3.Cursor)
        cursor.row_factory = None
        if isinstance(parameters, Sequence):
            return [], cursor.executemany(sql, parameters).rowcount
        rows = cursor.execute(sql, parameters).fetchall()
        return rows, cursor.rowcount

    def transaction(self) -> TransactionState:
        return SqliteApplicationAccess().state_of(self._connection)

    def after_commit(self, call: Callable[[], None], /) -> None:
        pass
