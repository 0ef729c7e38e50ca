"""The port for transactions that a step's body shares with the store, so that both write atomically."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from typing_extensions import TypeVar

from holdfast.ports.persistence import Transaction

R = TypeVar("R")


class SharedTransaction(Protocol):
    """An open transaction. Leaving it without `commit` rolls back. Not for use by several threads."""

    @property
    def given(self) -> object:
        """The connection or session for the step's body."""
        ...

    def join(self, work: Callable[[Transaction], R], /) -> R:
        """Run `work` inside the transaction, as its last action, and return its result. Neither commits nor retries.

        - Pending writes of the body are flushed first; their errors propagate.
        - TransactionEndedError if the body has ended the transaction.
        - ConflictError, RefusedError and UnavailableError as `Persistence.transact`.
        """
        ...

    def commit(self) -> None:
        """Commit.

        - UnavailableError if no answer came: then ask `was_committed`.
        - Any other error means that nothing was committed.
        """
        ...

    def was_committed(self) -> bool:
        """Return whether an unanswered commit took place; if not, it never will. Call it after leaving the transaction.

        The store may forget a commit after an hour; then the answer is False. UnavailableError if it can't be asked.
        """
        ...


@runtime_checkable
class SharesTransactions(Protocol):
    """An extension of `Persistence` for databases, whose transactions step bodies can share."""

    def shared(self, wanted: type, /) -> AbstractContextManager[SharedTransaction]:
        """Open a transaction with a connection or session of class `wanted` for the body.

        NoTransactionError if this store has nothing of that class; UnavailableError if the database can't be used now.
        """
        ...
