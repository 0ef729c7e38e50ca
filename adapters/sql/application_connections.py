"""Connections and sessions of the application, by SQLAlchemy and Django. Each runs statements of Holdfast.

Those of drivers are in the folder of the database. Nothing is imported that the application has not imported itself.
"""

import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary

import attrs
from sqlalchemy import Connection, TextClause, event

from holdfast.adapters.sql.database import NONE, Parameters
from holdfast.adapters.sql.dialect import Write
from holdfast.adapters.sql.rows import Row
from holdfast.ports.application_transactions import RunAsync
from holdfast.ports.errors import HoldfastError, InvalidArgumentError

if TYPE_CHECKING:
    from sqlalchemy import CursorResult
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session, SessionTransaction

R = TypeVar("R")

TransactionState: TypeAlias = Literal["open", "implicit", "none"]
"""`implicit`: the driver begins a transaction with the next statement that needs one."""
Executed: TypeAlias = tuple[list[Row], int]
"""The rows of a statement, and how many it returned or affected."""
Execute: TypeAlias = Callable[[str, Parameters | Sequence[Row]], Executed]
"""Runs a statement, for each of several rows if these are given."""

NOT_OPEN: Final = "no transaction is open: begin one, and do not use autocommit"
_ACCEPTED: Final = (
    "a SQLAlchemy Session or Connection, a connection of the store's driver, or Django's `connection`; in async code"
    " an AsyncSession or AsyncConnection"
)
_INFO: Final = "holdfast_after_commit"


class ApplicationConnection(Protocol):
    """A connection of the application, on which statements run in its open transaction."""

    @property
    def vendor(self) -> str:
        """The name of the database, as SQLAlchemy and Django have it: `postgresql` or `sqlite`."""
        ...

    def flush(self) -> None:
        """Write what the application has pending in a session."""
        ...

    def execute(self, sql: str, parameters: Parameters | Sequence[Row] = NONE, /) -> Executed:
        """Run a statement, for each of several rows if these are given. Errors are those of the driver."""
        ...

    def transaction(self) -> TransactionState:
        """Return whether a transaction is open, or will be."""
        ...

    def after_commit(self, call: Callable[[], None], /) -> None:
        """See `ApplicationTransaction.after_commit`."""
        ...


class ApplicationAccess(Protocol):
    """What a database needs in a transaction of the application."""

    @property
    def vendor(self) -> str:
        """The name of the database, as SQLAlchemy and Django have it."""
        ...

    @property
    def excludes_writers(self) -> bool:
        """Whether an open transaction that has written excludes all others that write."""
        ...

    @property
    def can_cancel_statements(self) -> bool:
        """Whether a statement that runs can be cancelled without the loss of locks that it holds."""
        ...

    @property
    def store_id_sql(self) -> str:
        """The statement for the identity of the store that a connection leads to."""
        ...

    def driver_connection(self, given: object, run_async: RunAsync | None, /) -> ApplicationConnection | None:
        """Return what runs statements on a connection of a driver of this database; None for any other object.

        With `run_async`, async ones only; without, sync ones only.
        """
        ...

    def is_async(self, given: object, /) -> bool:
        """Whether this is an async connection of a driver of this database."""
        ...

    def statement(self, sql: str, parameters: Parameters | Sequence[Row], /) -> tuple[str | TextClause, Any]:
        """Return a statement and its parameters for SQLAlchemy: a string for `exec_driver_sql`, or for `execute`."""
        ...

    def state_of(self, driver_connection: object, /) -> TransactionState:
        """Return the state of the transaction on a connection of any driver of this database."""
        ...

    def begin(self, connection: ApplicationConnection, /) -> None:
        """Make sure that a transaction is open. InvalidTransactionError if that is for the application to do."""
        ...

    def write(self, execute: Execute, writes: Sequence[tuple[Write, Sequence[Row]]], /) -> list[Row]:
        """Write rows, and return those of `store_id_sql`."""
        ...

    def translated(self, error: Exception, /) -> HoldfastError | None:
        """Return the error that stands for one of a driver or of SQLAlchemy; None if it is another."""
        ...


def application_connection(
    given: object, run_async: RunAsync | None, access: ApplicationAccess
) -> ApplicationConnection:
    """Return what runs statements on a connection or session. InvalidArgumentError if it is of no known class."""
    is_async = access.is_async(given) or is_of(
        given, "sqlalchemy.ext.asyncio", "AsyncConnection", "AsyncSession", "async_scoped_session"
    )
    if is_async and run_async is None:
        raise InvalidArgumentError(
            "connection", f"within: a {type(given).__name__} is for async code: use `engine.within(...)`"
        )
    if not is_async and run_async is not None:
        raise InvalidArgumentError(
            "connection",
            f"within: {type(given).__name__} is no async connection: use `engine.sync.within(...)`, or give"
            f" {_ACCEPTED}",
        )
    found = access.driver_connection(given, run_async)
    if found is None:
        found = _sync(given, access) if run_async is None else _async(given, access, run_async)
    if found is None:
        raise InvalidArgumentError("connection", f"within: {given!r:.80} is no connection; give {_ACCEPTED}")
    return found


_locks: Final[WeakKeyDictionary[object, threading.Lock]] = WeakKeyDictionary()
_locks_guard: Final = threading.Lock()


def lock_of(given: object) -> threading.Lock:
    """Return the lock of a connection or session. One without weak references is used by a single thread."""
    with _locks_guard:
        try:
            return _locks.setdefault(given, threading.Lock())
        except TypeError:
            return threading.Lock()


def is_of(given: object, module: str, *classes: str) -> bool:
    """Whether an object is of one of these classes. A module that is not imported has made none."""
    found = sys.modules.get(module)
    return found is not None and isinstance(given, tuple(getattr(found, name) for name in classes))


def _async(given: Any, access: ApplicationAccess, run_async: RunAsync) -> ApplicationConnection:
    if is_of(given, "sqlalchemy.ext.asyncio", "async_scoped_session"):
        given = given()
    return _AsyncSqlAlchemy(given, access, run_async)


def _sync(given: Any, access: ApplicationAccess) -> ApplicationConnection | None:
    if is_of(given, "sqlalchemy.orm", "scoped_session"):
        given = given()
    if isinstance(given, Connection) or is_of(given, "sqlalchemy.orm", "Session"):
        return _SqlAlchemy(given, access)
    if "django.db" in sys.modules and hasattr(given, "in_atomic_block"):
        given.ensure_connection()
        inner = access.driver_connection(given.connection, None)
        return _Django(given, inner)
    return None


class _SqlAlchemy:
    """A `Connection`, or a `Session` with a connection."""

    def __init__(self, given: "Connection | Session", access: ApplicationAccess) -> None:
        self._given = given
        self._access = access

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
        statement, arguments = self._access.statement(sql, parameters)
        if isinstance(statement, str):
            return _executed(self._connection.exec_driver_sql(statement, arguments))
        return _executed(self._connection.execute(statement, arguments))

    def transaction(self) -> TransactionState:
        return self._access.state_of(self._connection.connection.driver_connection)

    def after_commit(self, call: Callable[[], None], /) -> None:
        # The commit event of a Connection is sent before the commit takes place.
        if not isinstance(self._given, Connection):
            _after_commit_of(self._given, call)


class _AsyncSqlAlchemy:
    """An `AsyncConnection`, or an `AsyncSession` with a connection."""

    def __init__(
        self, given: "AsyncConnection | AsyncSession", access: ApplicationAccess, run_async: RunAsync
    ) -> None:
        from sqlalchemy.ext.asyncio import AsyncSession

        self._given = given
        self._session = given if isinstance(given, AsyncSession) else None
        self._access = access
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

        return self._run(name)

    def flush(self) -> None:
        if self._session is not None:
            self._run(self._session.flush)

    def execute(self, sql: str, parameters: Parameters | Sequence[Row] = NONE, /) -> Executed:
        async def execute() -> Executed:
            connection = await self._connection()
            statement, arguments = self._access.statement(sql, parameters)
            if isinstance(statement, str):
                return _executed(await connection.exec_driver_sql(statement, arguments))
            return _executed(await connection.execute(statement, arguments))

        return self._run(execute)

    def transaction(self) -> TransactionState:
        async def state() -> TransactionState:
            raw = await (await self._connection()).get_raw_connection()
            return self._access.state_of(raw.driver_connection)

        return self._run(state)

    def after_commit(self, call: Callable[[], None], /) -> None:
        if self._session is not None:
            _after_commit_of(self._session.sync_session, call)

    def _run(self, call: Callable[[], Coroutine[Any, Any, R]]) -> R:
        return self._run_async(call, cancellable=self._access.can_cancel_statements)


@attrs.frozen
class _Django:
    """Django's `connection`, in an `atomic` block."""

    given: Any
    inner: ApplicationConnection | None
    """The connection of its driver; None if that is for another database than the store's."""

    @property
    def vendor(self) -> str:
        return str(self.given.vendor)

    def flush(self) -> None:
        pass

    def execute(self, sql: str, parameters: Parameters | Sequence[Row] = NONE, /) -> Executed:
        assert self.inner is not None
        return self.inner.execute(sql, parameters)

    def transaction(self) -> TransactionState:
        return "open" if self.given.in_atomic_block else "none"

    def after_commit(self, call: Callable[[], None], /) -> None:
        self.given.on_commit(call, robust=True)


def _executed(result: "CursorResult[Any]") -> Executed:
    if not result.returns_rows:
        return [], result.rowcount
    rows = [tuple(row) for row in result.all()]
    return rows, len(rows)


@attrs.define(eq=False)
class _AfterCommit:
    """The calls that wait for the commit of a session's outermost transaction. A rollback drops them."""

    calls: list[Callable[[], None]] = attrs.field(factory=list[Callable[[], None]])
    is_committed: bool = False

    def note_commit(self, session: "Session") -> None:
        """Note the commit of the transaction. SQLAlchemy calls this after the release of each savepoint too."""
        self.is_committed = not session.in_nested_transaction()

    def end(self, _: "Session", transaction: "SessionTransaction") -> None:
        """Make the calls at the end of the outermost transaction, if it was committed."""
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
