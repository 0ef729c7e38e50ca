"""Transactions that simulated steps share with the store: what they write happens when their own row is committed."""

from collections.abc import Callable
from typing import TypeVar

from holdfast.ports.errors import NoTransactionError, UnavailableError
from holdfast.ports.persistence import Transaction
from holdfast.testing.simulation import faults as f
from holdfast.testing.simulation.fibers import current
from holdfast.testing.simulation.process_life import Life
from holdfast.testing.simulation.store import SharedStore

R = TypeVar("R")


class Rows:
    """What the body of a step is given: what it writes happens with the commit, or not at all."""

    def __init__(self) -> None:
        self._written: list[Callable[[], None]] = []

    def in_transaction(self) -> bool:
        """It always is."""
        return True

    def begin_nested(self) -> object:
        """There are no parts."""
        raise NotImplementedError

    def write(self, change: Callable[[], None]) -> None:
        """Have something happen with the commit."""
        self._written.append(change)

    def commit(self) -> None:
        """Have it happen."""
        for change in self._written:
            change()


class SimulatedTransaction:
    """See `SharedTransaction`. All is committed when our row joins it, for nobody could see it between these."""

    def __init__(self, life: Life, store: SharedStore, given: Rows) -> None:
        self.given = given
        self._life = life
        self._store = store
        self._is_committed = False

    def join(self, work: Callable[[Transaction], R], /) -> R:
        """See `SharedTransaction.join`. What writes nothing, for it is fenced, commits nothing."""
        if self._life.meet(f.WRITE) is f.Kind.FAILS_BEFORE:
            raise UnavailableError("fault on purpose: the transaction was lost before its commit")
        fiber = current()
        commits = fiber.commits
        result = self._store.transact(fiber, work)
        if fiber.commits > commits:
            self._is_committed = True
            self.given.commit()
        return result

    def commit(self) -> None:
        """See `SharedTransaction.commit`."""
        if self._life.meet(f.WRITTEN) is f.Kind.LOST_ANSWER:
            raise UnavailableError("fault on purpose: the answer to a commit was lost")

    def was_committed(self) -> bool:
        """See `SharedTransaction.was_committed`."""
        if self._life.meet(f.READ) is f.Kind.FAILS_BEFORE:
            raise UnavailableError("fault on purpose: nothing was read")
        return self._is_committed


def begun(life: Life, store: SharedStore, wanted: type) -> SimulatedTransaction:
    """Return a transaction that is open. NoTransactionError, UnavailableError."""
    if wanted is not Rows:
        raise NoTransactionError("a simulation has rows of its own")
    if life.meet(f.READ) is f.Kind.FAILS_BEFORE:
        raise UnavailableError("fault on purpose: the transaction was not begun")
    return SimulatedTransaction(life, store, Rows())
