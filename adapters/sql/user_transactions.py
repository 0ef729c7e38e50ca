"""Transactions of step bodies, through SQLAlchemy, which the store's own rows join at the end."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar, cast

from sqlalchemy import Connection, Engine, RootTransaction, event

from holdfast.adapters.sql.database import Link, Shared
from holdfast.adapters.sql.transaction import SqlTransaction
from holdfast.ports.errors import ConflictError, NoTransactionError, TransactionEndedError
from holdfast.ports.persistence import Transaction

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

R = TypeVar("R")

_IN_BODY: Final = "holdfast_in_body"


class JoinedTransaction:
    """See `SharedTransaction`."""

    def __init__(
        self,
        handle: object,
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
        return self._handle

    def join(self, work: Callable[[Transaction], R], /) -> R:
        """See `SharedTransaction.join`."""
        if not isinstance(self._handle, Connection) and self._is_open:
            cast("Session", self._handle).flush()
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


def handle_for(connection: Connection, wanted: type) -> object:
    """Return an object of class `wanted` that works in a connection's transaction. NoTransactionError otherwise."""
    if isinstance(connection, wanted):
        return connection
    # Imported here, because most programs do not need it.
    from sqlalchemy.orm import Session

    if issubclass(wanted, Session):
        return wanted(bind=connection, join_transaction_mode="rollback_only")
    raise NoTransactionError(
        f"this store provides a sqlalchemy.Connection or Session, not {wanted.__module__}.{wanted.__qualname__}"
    )


@contextmanager
def closing(handle: object) -> Generator[None]:
    """Close a session at the end. A connection is closed by its owner."""
    try:
        yield
    finally:
        if not isinstance(handle, Connection):
            cast("Session", handle).close()


def for_bodies(engine: Engine) -> Engine:
    """Make connections of an engine refuse what bodies must not do within `in_body`: commit, or begin again."""
    event.listen(engine, "commit", _refuse)
    event.listen(engine, "begin", _refuse)
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
