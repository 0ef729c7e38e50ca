"""Transactions that a step's body shares with the store: its rows and ours are committed together, or not at all."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from typing_extensions import TypeVar

from holdfast.ports.persistence import Transaction

R = TypeVar("R")


class SharedTransaction(Protocol):
    """A transaction that is open. What is not committed when it is left is rolled back. For one thread at a time."""

    @property
    def given(self) -> object:
        """What the body works with: a connection, or a session."""
        ...

    def join(self, work: Callable[[Transaction], R], /) -> R:
        """Carry out `work` inside, as the last act, and return what it returned. Not committed, and not tried again.

        TransactionEndedError if the body has ended the transaction; ConflictError, RefusedError and UnavailableError as
        `Persistence.transact`. What the body had yet to write is written first, and raises what it raises.
        """
        ...

    def commit(self) -> None:
        """Commit. UnavailableError if no answer came: then `was_committed` knows. Any other error: it was not."""
        ...

    def was_committed(self) -> bool:
        """Whether the commit that was not answered has happened; if not, it never will. UnavailableError: not known.

        To be asked once the transaction was left.
        """
        ...


@runtime_checkable
class SharesTransactions(Protocol):
    """What a store can do beside `Persistence` whose transactions bodies can share: those of databases."""

    def shared(self, wanted: type, /) -> AbstractContextManager[SharedTransaction]:
        """Open a transaction, with something of this class for the body.

        NoTransactionError if nothing of that class can be had here; UnavailableError if no transaction can be now.
        """
        ...
