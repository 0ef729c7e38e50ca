"""SQLite in transactions of the application, by any driver that SQLAlchemy or Django has for it."""

import sqlite3
from collections.abc import Sequence

import attrs
from sqlalchemy.exc import DBAPIError

from holdfast.adapters.sql.application_connections import NOT_OPEN, ApplicationConnection
from holdfast.adapters.sql.database import Parameters
from holdfast.adapters.sql.dialect import Write
from holdfast.adapters.sql.rows import Row
from holdfast.adapters.sql.sqlite.errors import from_sqlite
from holdfast.ports.errors import HoldfastError, InvalidTransactionError


@attrs.frozen
class SqliteJoining:
    """See `Joining`. A transaction that has written excludes all other writers of the file."""

    vendor: str = "sqlite"
    excludes_writers: bool = True
    store_id_sql: str = (
        "SELECT id || ' in ' || (SELECT file FROM pragma_database_list WHERE name = 'main')"
        " FROM holdfast_store"
    )

    def begin(self, connection: ApplicationConnection, /) -> None:
        """See `Joining.begin`. A savepoint outside a transaction would be one, and its release a commit."""
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

    def encoded(self, write: Write, rows: Sequence[Row], /) -> tuple[str, Parameters | Sequence[Row]]:
        """See `Joining.encoded`."""
        return write.sql, rows

    def translated(self, error: Exception, /) -> HoldfastError | None:
        """See `Joining.translated`."""
        cause = error.orig if isinstance(error, DBAPIError) else error
        is_drivers = isinstance(cause, sqlite3.Error | OverflowError | UnicodeError)
        return from_sqlite(cause) if is_drivers else None
