"""PostgreSQL in transactions of the application, by any driver that SQLAlchemy or Django has for it."""

from collections.abc import Sequence
from typing import Final

import attrs
from sqlalchemy.exc import DBAPIError

from holdfast.adapters.sql.application_connections import NOT_OPEN, ApplicationConnection
from holdfast.adapters.sql.database import Parameters
from holdfast.adapters.sql.dialect import Write
from holdfast.adapters.sql.postgresql.errors import from_sqlstate
from holdfast.adapters.sql.rows import Row
from holdfast.ports.errors import HoldfastError, InvalidTransactionError

_UNUSABLE: Final = {
    "25P01": NOT_OPEN,
    "25P02": "it has failed already: roll it back, or to a savepoint, first",
    "25006": "it is read-only",
}


@attrs.frozen
class PostgresJoining:
    """See `Joining`. Drivers open a transaction with their first statement, unless they are in autocommit."""

    vendor: str = "postgresql"
    excludes_writers: bool = False
    store_id_sql: str = "SELECT id || ' in database ' || current_database() FROM holdfast_store"

    def begin(self, connection: ApplicationConnection, /) -> None:
        """See `Joining.begin`. Without a transaction, PostgreSQL refuses the savepoint."""
        if connection.transaction() == "none":
            raise InvalidTransactionError(NOT_OPEN)

    def encoded(self, write: Write, rows: Sequence[Row], /) -> tuple[str, Parameters | Sequence[Row]]:
        """See `Joining.encoded`."""
        return write.encoded(rows)

    def translated(self, error: Exception, /) -> HoldfastError | None:
        """See `Joining.translated`."""
        if isinstance(error, UnicodeError):  # a lone surrogate
            return from_sqlstate("22021", str(error))
        cause = error.orig if isinstance(error, DBAPIError) else error
        sqlstate: str | None = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        if sqlstate in _UNUSABLE:
            return InvalidTransactionError(_UNUSABLE[sqlstate])
        if sqlstate is not None:
            return from_sqlstate(sqlstate, f"{type(cause).__name__}: {cause}")
        return None
