"""Transactions of simulated transactional steps: their writes take effect when the step's row is committed."""

from collections.abc import Callable
from typing import TypeVar

from holdfast.ports.errors import NoTransactionError, UnavailableError
from holdfast.ports.persistence import Transaction
from holdfast.testing.simulation import faults as f
from holdfast.testing.simulation.fibers import current
from holdfast.testing.simulation.process_life import FaultyProcess
from holdfast.testing.simulation.store import SharedStore

R = TypeVar("R")


class SimulatedConnection:
    """The connection that a transactional step gets. Its writes take effect with the commit, or not at all."""

    def __init__(self) -> None:
        self._written: list[Callable[[], None]] = []

    def in_transaction(self) -> bool:
        """Return True: it is always in a transaction."""
        return True

    def begin_nested(self) -> object:
        """Raise NotImplementedError: nested transactions are not simulated."""
        raise NotImplementedError

    def write(self, change: Callable[[], None]) -> None:
        """Add a write, made at the commit."""
        self._written.append(change)

    def commit(self) -> None:
        """Make the writes."""
        for change in self._written:
            change()


class SimulatedTransaction:
    """A `SharedTransaction` that commits in `join`: no other process can see the state between the two."""

    def __init__(self, life: FaultyProcess, store: SharedStore, given: SimulatedConnection) -> None:
        self.given = given
        self._life = life
        self._store = store
        self._is_committed = False

    def join(self, work: Callable[[Transaction], R], /) -> R:
        """See `SharedTransaction.join`. A fenced attempt writes and commits nothing."""
        if self._life.reach_point(f.WRITE) is f.FaultKind.FAILS_BEFORE:
            raise UnavailableError("injected fault: the transaction was lost before its commit")
        fiber = current()
        commits = fiber.commits
        result = self._store.transact(fiber, work)
        if fiber.commits > commits:
            self._is_committed = True
            self.given.commit()
        return result

    def commit(self) -> None:
        """See `SharedTransaction.commit`."""
        if self._life.reach_point(f.WRITTEN) is f.FaultKind.LOST_ANSWER:
            raise UnavailableError("injected fault: the response to a commit was lost")

    def was_committed(self) -> bool:
        """See `SharedTransaction.was_committed`."""
        if self._life.reach_point(f.READ) is f.FaultKind.FAILS_BEFORE:
            raise UnavailableError("injected fault: nothing was read")
        return self._is_committed


def begin_transaction(life: FaultyProcess, store: SharedStore, wanted: type) -> SimulatedTransaction:
    """Return an open transaction. Raises NoTransactionError or UnavailableError."""
    if wanted is not SimulatedConnection:
        raise NoTransactionError("a simulation has rows of its own")
    if life.reach_point(f.READ) is f.FaultKind.FAILS_BEFORE:
        raise UnavailableError("injected fault: the transaction was not started")
    return SimulatedTransaction(life, store, SimulatedConnection())
