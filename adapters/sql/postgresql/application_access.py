"""PostgreSQL in transactions of the application, by any driver that SQLAlchemy or Django has for it."""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

import attrs
from sqlalchemy import ARRAY, BigInteger, Boolean, Text, TextClause, bindparam, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine

from holdfast.adapters.sql.application_connections import (
    NOT_OPEN,
    ApplicationConnection,
    Execute,
    Executed,
    TransactionState,
    is_of,
)
from holdfast.adapters.sql.database import NONE, Parameters, check_hits
from holdfast.adapters.sql.dialect import Write
from holdfast.adapters.sql.postgresql.errors import from_sqlstate
from holdfast.adapters.sql.rows import Row
from holdfast.ports.application_transactions import RunAsync
from holdfast.ports.errors import HoldfastError, InvalidTransactionError

if TYPE_CHECKING:
    import psycopg

_UNUSABLE: Final = {
    "25P01": NOT_OPEN,
    "25P02": "it has failed already: roll it back, or to a savepoint, first",
    "25006": "it is read-only",
}
_PARAMETER: Final = re.compile(r"%\(([a-z_0-9]+)\)s")
_TABLE: Final = re.compile(r"holdfast_[a-z_]+")
_TYPES: Final[Mapping[type, TypeEngine[Any]]] = {
    str: Text(),
    int: BigInteger(),
    bool: Boolean(),
    list: ARRAY(Text()),
}


@attrs.frozen
class PostgresApplicationAccess:
    """See `ApplicationAccess`. Drivers open a transaction with their first statement, unless they are in autocommit."""

    vendor: str = "postgresql"
    excludes_writers: bool = False
    can_cancel_statements: bool = True
    store_id_sql: str = "SELECT id || ' in database ' || current_database() FROM holdfast_store"

    def driver_connection(self, given: object, run_async: RunAsync | None, /) -> ApplicationConnection | None:
        """See `ApplicationAccess.driver_connection`: psycopg, and psycopg2 for Django."""
        if run_async is not None:
            if not self.is_async(given):
                return None
            _check_pipeline(cast("psycopg.AsyncConnection[Any]", given))
            return _Async(cast("psycopg.AsyncConnection[Any]", given), run_async)
        if is_of(given, "psycopg", "Connection"):
            from psycopg import Cursor
            from psycopg.rows import tuple_row

            # Not `connection.cursor()`: its classes of cursors and rows are the application's.
            connection = cast("psycopg.Connection[Any]", given)
            _check_pipeline(connection)
            return _Sync(lambda: Cursor(connection, row_factory=tuple_row))
        if is_of(given, "psycopg2.extensions", "connection"):
            cursor_class = sys.modules["psycopg2.extensions"].cursor
            return _Sync(lambda: cast("Any", given).cursor(cursor_factory=cursor_class))
        return None

    def is_async(self, given: object, /) -> bool:
        """See `ApplicationAccess.is_async`."""
        return is_of(given, "psycopg", "AsyncConnection")

    def statement(self, sql: str, parameters: Parameters | Sequence[Row], /) -> tuple[str | TextClause, Any]:
        """See `ApplicationAccess.statement`."""
        given = cast("Parameters", parameters)
        names: list[str] = _PARAMETER.findall(sql)
        used: dict[str, object] = {name: given[name] for name in names}
        types = tuple((name, type(value)) for name, value in used.items() if value is not None)
        return _typed(sql, types), used

    def state_of(self, driver_connection: object, /) -> TransactionState:
        """See `ApplicationAccess.state_of`. In autocommit, PostgreSQL refuses the savepoint."""
        del driver_connection
        return "implicit"

    def begin(self, connection: ApplicationConnection, /) -> None:
        """See `ApplicationAccess.begin`."""
        if connection.transaction() == "none":
            raise InvalidTransactionError(NOT_OPEN)

    def write(self, execute: Execute, writes: Sequence[tuple[Write, Sequence[Row]]], /) -> list[Row]:
        """See `ApplicationAccess.write`. Inserts that depend on no other rows are one statement, and one round trip."""
        if _are_independent(tuple(write.sql for write, _ in writes)):
            return execute(*_together(writes, self.store_id_sql))[0]
        for write, rows in writes:
            _, hits = execute(*write.encoded(rows))
            check_hits(write, rows, hits)
        return execute(self.store_id_sql, NONE)[0]

    def translated(self, error: Exception, /) -> HoldfastError | None:
        """See `ApplicationAccess.translated`."""
        if isinstance(error, UnicodeError):  # a lone surrogate
            return from_sqlstate("22021", str(error))
        cause = error.orig if isinstance(error, DBAPIError) else error
        sqlstate: str | None = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        if sqlstate in _UNUSABLE:
            return InvalidTransactionError(_UNUSABLE[sqlstate])
        is_lost = _OF_LOST & {base.__name__ for base in type(cause).__mro__}
        if sqlstate is not None or is_lost:
            return from_sqlstate(sqlstate, f"{type(cause).__name__}: {cause}")
        return None


_OF_LOST: Final = frozenset({"OperationalError", "InterfaceError", "InternalClientError"})
"""Errors of drivers without an SQLSTATE, for a connection that is lost or closed. asyncpg raises the last one while it
reads the message of the server that ends the connection."""


def _check_pipeline(connection: "psycopg.Connection[Any] | psycopg.AsyncConnection[Any]") -> None:
    """Raise InvalidTransactionError if a connection sends statements before it has the answers to earlier ones."""
    if not connection.closed and connection.pgconn.pipeline_status:
        raise InvalidTransactionError("the connection is in pipeline mode: leave that first")


@lru_cache(maxsize=256)
def _are_independent(statements: Sequence[str]) -> bool:
    """Whether these are inserts into different tables that read no table."""
    names = [_TABLE.findall(sql) for sql in statements]
    return (
        all(sql.startswith("INSERT ") for sql in statements)
        and all(len(set(of_one)) == 1 for of_one in names)
        and len({of_one[0] for of_one in names}) == len(names)
    )


def _together(writes: Sequence[tuple[Write, Sequence[Row]]], then: str) -> tuple[str, Parameters]:
    """Return one statement that writes all rows and returns those of a query, and its parameters."""
    parts: list[str] = []
    parameters: dict[str, object] = {}
    for place, (write, rows) in enumerate(writes):
        sql, given = write.encoded(rows)
        renamed = _PARAMETER.sub(rf"%(\1_{place})s", sql)
        parts.append(f"written_{place} AS ({renamed})")
        parameters |= {f"{name}_{place}": value for name, value in given.items()}
    return f"WITH {', '.join(parts)} {then}", parameters


@lru_cache(maxsize=256)
def _typed(sql: str, types: tuple[tuple[str, type], ...]) -> TextClause:
    """Return a statement in psycopg's form as one with typed parameters: drivers differ in what they infer."""
    clause = text(_PARAMETER.sub(r":\1", sql).replace("%%", "%"))
    return clause.bindparams(*(bindparam(name, type_=_TYPES[kind]) for name, kind in types))


class _Sync:
    """A connection of psycopg, or one of psycopg2 that Django lends."""

    vendor = "postgresql"

    def __init__(self, cursor: Callable[[], Any]) -> None:
        self._cursor = cursor

    def flush(self) -> None:
        pass

    def execute(self, sql: str, parameters: Parameters | Sequence[Row] = NONE, /) -> Executed:
        with self._cursor() as cursor:
            cursor.execute(sql, parameters or None)
            rows: list[Row] = [] if cursor.description is None else cursor.fetchall()
            return rows, cursor.rowcount

    def transaction(self) -> TransactionState:
        return "implicit"

    def after_commit(self, call: Callable[[], None], /) -> None:
        pass


class _Async:
    """psycopg's `AsyncConnection`."""

    vendor = "postgresql"

    def __init__(self, connection: "psycopg.AsyncConnection[Any]", run_async: RunAsync) -> None:
        self._connection = connection
        self._run_async = run_async

    def flush(self) -> None:
        pass

    def execute(self, sql: str, parameters: Parameters | Sequence[Row] = NONE, /) -> Executed:
        from psycopg import AsyncCursor
        from psycopg.rows import tuple_row

        async def execute() -> Executed:
            async with AsyncCursor(self._connection, row_factory=tuple_row) as cursor:
                await cursor.execute(cast("Any", sql), cast("Any", parameters or None))
                rows = [] if cursor.description is None else await cursor.fetchall()
                return rows, cursor.rowcount

        return self._run_async(execute, cancellable=True)

    def transaction(self) -> TransactionState:
        return "implicit"

    def after_commit(self, call: Callable[[], None], /) -> None:
        pass
