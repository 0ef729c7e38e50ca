"""Transactions of step bodies, through SQLAlchemy, which the store's own rows join at the end."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, TypeVar

import attrs
from sqlalchemy import Connection, Engine, RootTransaction, event
from sqlalchemy.exc import MissingGreenlet
from sqlalchemy.util import await_only

from holdfast.adapters.sql.database import Link, Shared
from holdfast.adapters.sql.transaction import SqlTransaction
from holdfast.ports.errors import ConflictError, NoTransactionError, TransactionEndedError
from holdfast.ports.persistence import Transaction

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

R = TypeVar("R")

_IN_BODY: Final = "holdfast_in_body"


@attrs.frozen
class Handle:
    """What a body writes with."""

    given: object
    """The connection or session that it gets."""
    session: "Session | None" = None
    """The session, which is flushed before the store's own rows are written, and closed at the end."""


class JoinedTransaction:
    """See `SharedTransaction`."""

    def __init__(
        self,
        handle: Handle,
        shared: Shared,
        new_transaction: Callable[[Link], SqlTransaction],
        has_receipt: Callable[[], bool],
    ) -> None:
        """`new_transaction` wraps a link; `has_receipt` looks up the receipt of an unanswered commit."""
        transaction = shared.connection.get_transaction()
        assert isinstance(transaction, RootTransaction)
        self._handle = handle
        self._shared = shared
        self._transaction = transaction
        self._new_transaction = new_transaction
        self._has_receipt = has_receipt

    @property
    def given(self) -> object:
        """See `SharedTransaction.given`."""
        return self._handle.given

    def join(self, work: Callable[[Transaction], R], /) -> R:
        """See `SharedTransaction.join`."""
        session = self._handle.session
        if session is not None and self._is_open:
            session.flush()
        if not self._is_open:
            raise TransactionEndedError
        link = self._shared.link
        link.begin()
        tx = self._new_transaction(link)
        result = work(tx)
        tx.end()
        return result

    @property
    def _is_open(self) -> bool:
        ours, shared = self._transaction, self._shared
        return ours.is_active and shared.connection.get_transaction() is ours and shared.is_open()

    def commit(self) -> None:
        """See `SharedTransaction.commit`."""
        self._shared.link.commit()

    def was_committed(self) -> bool:
        """See `SharedTransaction.was_committed`."""
        return self._has_receipt()


def handle_for(connection: Connection, wanted: type) -> Handle:
    """Return an object of class `wanted` that works in a connection's transaction. NoTransactionError otherwise."""
    if isinstance(connection, wanted):
        return Handle(connection)
    # Imported here, because most programs do not need them.
    from sqlalchemy.orm import Session

    if issubclass(wanted, Session):
        session = wanted(bind=connection, join_transaction_mode="rollback_only")
        return Handle(session, session)
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession

    if not issubclass(wanted, AsyncConnection | AsyncSession):
        raise NoTransactionError(
            "this store provides a sqlalchemy.Connection, a Session, an AsyncConnection or an AsyncSession, not"
            f" {wanted.__module__}.{wanted.__qualname__}"
        )
    if find_spec("greenlet") is None:
        raise NoTransactionError(f'{wanted.__name__} needs greenlet: pip install "holdfast[asyncio]"')
    event.listen(connection, "before_cursor_execute", _yield_to_loop)
    async_connection = AsyncConnection(AsyncEngine(connection.engine), connection)
    if issubclass(wanted, AsyncConnection):
        return Handle(async_connection)
    async_session = wanted(bind=async_connection, join_transaction_mode="rollback_only")
    return Handle(async_session, async_session.sync_session)


class BodyCursor:
    """A part of the class of a driver's cursors, so that async connections and sessions can work with them."""

    async def _async_soft_close(self) -> None:
        """Do nothing: SQLAlchemy awaits this before it returns results, and closing these cursors does not wait."""


def _yield_to_loop(*_: object) -> None:
    """Give the event loop of an async body a turn before each statement, which blocks it.

    There a body that has timed out is cancelled. Also, SQLAlchemy refuses a connection that never awaits anything.
    """
    with suppress(MissingGreenlet):  # the flush after the body is not async
        await_only(asyncio.sleep(0))


@contextmanager
def closing(handle: Handle) -> Generator[None]:
    """Close a session at the end. A connection is closed by its owner."""
    try:
        yield
    finally:
        if handle.session is not None:
            handle.session.close()


def for_bodies(engine: Engine) -> Engine:
    """Make connections of an engine refuse what bodies must not do within `in_body`: commit, or begin again."""
    event.listen(engine, "commit", _refuse)
    event.listen(engine, "begin", _refuse)
    # Async bodies get the same connections as others: each has a thread and an event loop of its own, so a driver that
    # blocks is no worse than one that does not. SQLAlchemy checks the flag before it wraps an engine. It expects a
    # `BodyCursor` then.
    engine.dialect.is_async = True
    return engine


@contextmanager
def in_body(connection: Connection) -> Generator[None]:
    """Make a connection refuse to commit meanwhile, and to continue after a rollback."""
    connection.execution_options(**{_IN_BODY: True})
    try:
        yield
    finally:
        connection.execution_options(**{_IN_BODY: False})


def _refuse(connection: Connection) -> None:
    if connection.get_execution_options().get(_IN_BODY):
        raise TransactionEndedError


def receipt_is_there(link: Link, receipt: str) -> bool:
    """Whether the transaction with this receipt was committed. Waits while that is undecided."""
    # An insert, which is rolled back: a read would not wait for a transaction that is still open on the server.
    try:
        link.put_receipt(receipt)
    except ConflictError:
        return True
    return False
