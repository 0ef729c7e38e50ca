"""Connections and sessions of the application: SQLAlchemy, psycopg, sqlite3, Django. Each runs statements of Holdfast.

Nothing is imported that the application has not imported itself.
"""

import re
import sqlite3
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, cast

import attrs
from sqlalchemy import ARRAY, BigInteger, Boolean, Connection, Text, TextClause, bindparam, event, text

from holdfast.adapters.sql.database import NONE, Parameters
from holdfast.adapters.sql.rows import Row
from holdfast.ports.application_transactions import RunAsync
from holdfast.ports.errors import InvalidArgumentError

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy import CursorResult
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session, SessionTransaction

TransactionState: TypeAlias = Literal["open", "implicit", "none"]
"""`implicit`: the driver begins a transaction with the next statement that needs one."""
Executed: TypeAlias = tuple[list[Row], int]
"""The rows of a statement, and how many it returned or affected."""

NOT_OPEN: Final = "no transaction is open: begin one, and do not use autocommit"
_PARAMETER: Final = re.compile(r"%\(([a-z_0-9]+)\)s")
_TYPES: Final = {str: Text(), int: BigInteger(), bool: Boolean(), list: ARRAY(Text())}
_TAKEN: Final = (
    "a SQLAlchemy Session or Connection, a psycopg or sqlite3 connection, or Django's `connection`; in async code"
    " an AsyncSession, an AsyncConnection or psycopg's AsyncConnection"
)


class ApplicationConnection(Protocol):
    """A connection of the application, on which statements run in its open transaction."""

    @property
    def vendor(self) -> str:
        """The kind of the database, as SQLAlchemy and Django name it: `postgresql` or `sqlite`."""
        ...

    def flush(self) -> None:
        """Write what the application has pending in a session."""
        ...

    def execute(self, sql: str, parameters: Parameters | Sequence[Row] = NONE, /) -> Executed:
        """Run a statement, for each of several rows if these are given. Errors are those of the driver."""
        ...

    def transaction(self) -> "TransactionState":
        """Return whether a transaction is open, or will be."""
        ...

    def after_commit(self, call: Callable[[], None], /) -> None:
        """See `ApplicationTransaction.after_commit`."""
        ...


class _SqlAlchemy:
    """A `Connection`, or a `Session` with a connection."""

    def __init__(self, given: "Connection | Session") -> None:
        self._given = given

    @property
    def _connection(self) -> Connection:
        return self._given if isinstance(self._given, Connection) else self._given.connection()

    @property
    def vendor(self) -> str:
        return self._connection.dialect.name

    def flush(self) -> None:
        if not isinstance(self._given, Connection):
            self._given.flush()

    def execute(self, sql: str, parameters: Parameters | Sequence[Row] = NONE, /) -> Executed:
        connection = self._connection
        statement, arguments = _statement(connection.dialect.name, sql, parameters)
        if isinstance(statement, str):
            return _executed(connection.exec_driver_sql(statement, cast("Any", arguments)))
        return _executed(connection.execute(statement, cast("Any", arguments)))

    def transaction(self) -> TransactionState:
        return _state_of(self._connection.connection.driver_connection)

    def after_commit(self, call: Callable[[], None], /) -> None:
        # A Connection tells of a commit only before it takes place.
        if not isinstance(self._given, Connection):
            _after_commit_of(self._given, call)


class _AsyncSqlAlchemy:
    """An `AsyncConnection`, or an `AsyncSession` with a connection."""

    def __init__(self, given: "AsyncConnection | AsyncSession", run_async: RunAsync) -> None:
        from sqlalchemy.ext.asyncio import AsyncSession

        self._given = given
        self._session = given if isinstance(given, AsyncSession) else None
        self._run_async = run_async

    async def _connection(self) -> "AsyncConnection":
        return (
            cast("AsyncConnection", self._given)
            if self._session is None
            else await self._session.connection()
        )

    @property
    def vendor(self) -> str:
        async def name() -> str:
            return (await self._connection()).dialect.name

        return cast("str", self._run_async(name))

    def flush(self) -> None:
        if self._session is not None:
            self._run_async(self._session.flush)

    def execute(self, sql: str, parameters: Parameters | Sequence[Row] = NONE, /) -> Executed:
        async def execute() -> Executed:
            connection = await self._connection()
            statement, arguments = _statement(connection.dialect.name, sql, parameters)
            if isinstance(statement, str):
                return _executed(await connection.exec_driver_sql(statement, cast("Any", arguments)))
            return _executed(await connection.execute(statement, cast("Any", arguments)))

        return cast("Executed", self._run_async(execute))

    def transaction(self) -> TransactionState:
        async def state() -> TransactionState:
            return _state_of((await (await self._connection()).get_raw_connection()).driver_connection)

        return cast("TransactionState", self._run_async(state))

    def after_commit(self, call: Callable[[], None], /) -> None:
        if self._session is not None:
            _after_commit_of(self._session.sync_session, call)


class _Psycopg:
    """psycopg's `Connection`, or one of psycopg2 that Django lends."""

    vendor = "postgresql"

    def __init__(self, cursor: Callable[[], Any]) -> None:
        self._cursor = cursor

    def flush(self) -> None:
        pass

    def execute(self, sql: str, parameters: Parameters | Sequence[Row] = NONE, /) -> Executed:
        with self._cursor() as cursor:
            cursor.execute(sql, parameters or None)
            rows = [] if cursor.description is None else cursor.fetchall()
            return rows, cursor.rowcount

    def transaction(self) -> TransactionState:
        return "implicit"  # in autocommit, a savepoint is refused

    def after_commit(self, call: Callable[[], None], /) -> None:
        pass


class _AsyncPsycopg:
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

        return cast("Executed", self._run_async(execute))

    def transaction(self) -> TransactionState:
        return "implicit"

    def after_commit(self, call: Callable[[], None], /) -> None:
        pass


class _Sqlite:
    """A connection of the sqlite3 module."""

    vendor = "sqlite"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def flush(self) -> None:
        pass

    def execute(self, sql: str, parameters: Parameters | Sequence[Row] = NONE, /) -> Executed:
        cursor = self._connection.cursor(sqlite3.Cursor)
        cursor.row_factory = None
        if isinstance(parameters, Sequence):
            return [], cursor.executemany(sql, parameters).rowcount
        rows = cursor.execute(sql, parameters).fetchall()
        return rows, cursor.rowcount

    def transaction(self) -> TransactionState:
        return _state_of(self._connection)

    def after_commit(self, call: Callable[[], None], /) -> None:
        pass


@attrs.frozen
class _Django:
    """Django's `connection`, in an `atomic` block."""

    given: Any
    inner: ApplicationConnection

    @property
    def vendor(self) -> str:
        return self.inner.vendor

    def flush(self) -> None:
        pass

    def execute(self, sql: str, parameters: Parameters | Sequence[Row] = NONE, /) -> Executed:
        return self.inner.execute(sql, parameters)

    def transaction(self) -> TransactionState:
        return "open" if self.given.in_atomic_block else "none"

    def after_commit(self, call: Callable[[], None], /) -> None:
        self.given.on_commit(call, robust=True)


def application_connection(given: object, run_async: RunAsync | None) -> ApplicationConnection:
    """Return what runs statements on a connection or session. InvalidArgumentError if it is none that is known."""
    is_async = _is_async(given)
    if is_async and run_async is None:
        raise InvalidArgumentError(
            "connection", f"within: a {type(given).__name__} is for async code: use `engine.within(...)`"
        )
    if not is_async and run_async is not None:
        raise InvalidArgumentError(
            "connection",
            f"within: {type(given).__name__} is no async connection: use `engine.sync.within(...)`, or give {_TAKEN}",
        )
    found = _sync(given) if run_async is None else _async(given, run_async)
    if found is None:
        raise InvalidArgumentError("connection", f"within: {given!r:.80} is no connection; give {_TAKEN}")
    return found


def _is_async(given: object) -> bool:
    if isinstance(
        given, _classes("sqlalchemy.ext.asyncio", "AsyncConnection", "AsyncSession", "async_scoped_session")
    ):
        return True
    return isinstance(given, _classes("psycopg", "AsyncConnection"))


def _async(given: Any, run_async: RunAsync) -> ApplicationConnection | None:
    if isinstance(given, _classes("psycopg", "AsyncConnection")):
        return _AsyncPsycopg(cast("psycopg.AsyncConnection[Any]", given), run_async)
    if isinstance(given, _classes("sqlalchemy.ext.asyncio", "async_scoped_session")):
        given = cast("Any", given)()
    return _AsyncSqlAlchemy(given, run_async)


def _sync(given: Any) -> ApplicationConnection | None:
    if isinstance(given, _classes("sqlalchemy.orm", "scoped_session")):
        given = cast("Any", given)()
    if isinstance(given, (Connection, *_classes("sqlalchemy.orm", "Session"))):
        return _SqlAlchemy(cast("Connection | Session", given))
    if isinstance(given, sqlite3.Connection):
        return _Sqlite(given)
    if isinstance(given, _classes("psycopg", "Connection")):
        from psycopg import Cursor
        from psycopg.rows import tuple_row

        # Not `connection.cursor()`: its classes of cursors and rows are the application's.
        return _Psycopg(lambda: Cursor(given, row_factory=tuple_row))
    if isinstance(given, _classes("psycopg2.extensions", "connection")):
        from psycopg2.extensions import cursor  # type: ignore[import-untyped, unused-ignore]

        return _Psycopg(lambda: given.cursor(cursor_factory=cursor))
    if "django.db" in sys.modules and hasattr(given, "in_atomic_block"):
        given.ensure_connection()
        inner = _sync(given.connection)
        return None if inner is None else _Django(given, inner)
    return None


def _classes(module: str, *names: str) -> tuple[type, ...]:
    """Return classes of a module that is imported already; none if it is not."""
    found = sys.modules.get(module)
    return () if found is None else tuple(getattr(found, name) for name in names)


def _state_of(driver_connection: Any) -> TransactionState:
    """Return the state of a connection of SQLite; `implicit` for one of PostgreSQL."""
    if not hasattr(driver_connection, "in_transaction"):
        return "implicit"
    if driver_connection.in_transaction:
        return "open"
    return "none" if driver_connection.isolation_level is None else "implicit"


def _executed(result: "CursorResult[Any]") -> Executed:
    if not result.returns_rows:
        return [], result.rowcount
    rows = [tuple(row) for row in result.all()]
    return rows, len(rows)


def _statement(
    vendor: str, sql: str, parameters: Parameters | Sequence[Row]
) -> tuple[str | TextClause, object]:
    """Return a statement and its parameters as SQLAlchemy takes them, whatever the driver."""
    if vendor == "sqlite":
        return sql, list(parameters) if isinstance(parameters, Sequence) else dict(parameters)
    named = cast("Parameters", parameters)
    used = dict.fromkeys(_PARAMETER.findall(sql))
    kinds = tuple((name, type(named[name])) for name in used if named[name] is not None)
    return _text(sql, kinds), {name: named[name] for name in used}


@lru_cache(maxsize=256)
def _text(sql: str, kinds: tuple[tuple[str, type], ...]) -> TextClause:
    """Return a statement in psycopg's form as one with typed parameters: drivers differ in what they infer."""
    clause = text(_PARAMETER.sub(r":\1", sql).replace("%%", "%"))
    return clause.bindparams(*(bindparam(name, type_=_TYPES[kind]) for name, kind in kinds))


_INFO: Final = "holdfast_after_commit"


@attrs.define(eq=False)
class _AfterCommit:
    """The calls that wait for the commit of a session's outermost transaction. A rollback drops them."""

    calls: list[Callable[[], None]] = attrs.field(factory=list[Callable[[], None]])
    is_committed: bool = False

    def note_commit(self, session: "Session") -> None:
        """Called after the commit of the transaction, and after the release of each savepoint."""
        self.is_committed = not session.in_nested_transaction()

    def end(self, _: "Session", transaction: "SessionTransaction") -> None:
        """Called at the end of each transaction, savepoint and flush."""
        if transaction.parent is not None:
            return
        calls, self.calls = self.calls, []
        if self.is_committed:
            for call in calls:
                call()
        self.is_committed = False


def _after_commit_of(session: "Session", call: Callable[[], None]) -> None:
    """Call a function once the session's outermost transaction is committed."""
    waiting = session.info.get(_INFO)
    if waiting is None:
        waiting = session.info[_INFO] = _AfterCommit()
        event.listen(session, "after_commit", waiting.note_commit)
        event.listen(session, "after_transaction_end", waiting.end)
    waiting.calls.append(call)
