"""The port for transactions of the application, in which commands are carried out so that both commit together."""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, runtime_checkable

from typing_extensions import TypeVar

from holdfast.ports.persistence import Transaction

R = TypeVar("R")


class RunAsync(Protocol):
    """Runs a coroutine function in the event loop of the application, waits for it and returns its result."""

    def __call__(self, call: Callable[[], Coroutine[Any, Any, R]], /, *, cancellable: bool) -> R:
        """Run it. CancelledError if the application has cancelled its call.

        Without `cancellable`, the coroutine is not cancelled but runs to its end first.
        """
        ...


class ApplicationTransaction(Protocol):
    """A transaction that the application has open, on a connection to the store's database."""

    @property
    def excludes_writers(self) -> bool:
        """Whether no other connection can write to the database until the transaction ends."""
        ...

    def join(self, work: Callable[[Transaction], R], /) -> R:
        """Run `work` inside the transaction and return its result. Never commits.

        If `work` raises, nothing that it wrote remains, and the transaction can go on. After a ConflictError it runs
        again, as for `Persistence.transact`.

        - WrongStoreError if the connection is to another database.
        - InvalidTransactionError if no transaction is open, or it has failed or is read-only.
        - ConflictError, RefusedError and UnavailableError as `Persistence.transact`: the application tries its
          transaction again.
        """
        ...

    def after_commit(self, call: Callable[[], None], /) -> None:
        """Call a function after the commit, if the connection reports its commits. The function must not raise."""
        ...


@runtime_checkable
class JoinsTransactions(Protocol):
    """An extension of `Persistence` for databases, which can work in transactions of the application."""

    def application_transaction(
        self, connection: object, run_async: RunAsync | None = None, /
    ) -> ApplicationTransaction:
        """Return the transaction that is open on a connection or session of the application.

        Async connections need `run_async`. InvalidArgumentError if it is none that this store can work with.
        """
        ...
