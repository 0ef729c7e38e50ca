"""Transactions of the application, to carry out commands in."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from anyio import CancelScope

from holdfast.hosts.execution.caught_calls import CaughtCall
from holdfast.hosts.execution.threads import begin_in_thread
from holdfast.hosts.wiring.services import Core
from holdfast.ports.application_transactions import ApplicationTransaction, JoinsTransactions, RunAsync
from holdfast.ports.errors import InvalidArgumentError, InvalidTransactionError

R = TypeVar("R")


def application_transaction(
    core: Core, connection: object, run_async: RunAsync | None
) -> ApplicationTransaction:
    """Return the transaction that is open on a connection. InvalidArgumentError, InvalidTransactionError."""
    store = core.stores.persistence
    if not isinstance(store, JoinsTransactions):
        raise InvalidTransactionError("the engine's store is in no database; use one in PostgreSQL or SQLite")
    return store.application_transaction(connection, run_async)


class TransactionCalls:
    """The calls of an async application in one of its transactions: made in threads, with statements in its event loop.

    They take none of the engine's threads for calls, as they may wait for locks of other transactions. A cancelled call
    returns once its statement has ended and its savepoint is undone: later, the application may use the connection.
    """

    def __init__(self) -> None:
        """InvalidArgumentError if no event loop of asyncio is running here."""
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            raise InvalidArgumentError(
                "connection",
                "within: no event loop of asyncio is running here; in synchronous code use `engine.sync.within(...)`",
            ) from None

    def transaction(self, core: Core, connection: object) -> ApplicationTransaction:
        """Return the transaction that is open on an async connection."""
        return application_transaction(core, connection, self._execute)

    async def make(self, call: Callable[[], R]) -> R:
        """Make a call in a thread, to its end. If the caller is cancelled, so is its statement, where it can be."""
        statements = _Statements(self._loop)

        def make() -> R:
            _current.statements = statements
            try:
                return call()
            finally:
                _current.statements = None

        caught = CaughtCall(make)
        done = begin_in_thread(caught)
        cancelled: asyncio.CancelledError | None = None
        with CancelScope(shield=True):
            while not done.is_set():
                try:
                    await done.wait()
                except asyncio.CancelledError as error:
                    cancelled = error
                    statements.cancel()
        if cancelled is not None:
            raise cancelled
        return caught.result()

    def _execute(self, call: Callable[[], Coroutine[Any, Any, R]], /, *, cancellable: bool) -> R:
        statements: _Statements | None = getattr(_current, "statements", None)
        assert statements is not None, "a statement of an async connection outside of a call"
        return statements.execute(call, cancellable=cancellable)


_current = threading.local()


class _Statements:
    """The statements of one call, made one after the other in the event loop of the application."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Both are used in the event loop only.
        self._running: asyncio.Task[Any] | None = None
        self._is_cancellable = False
        self._is_cancelled = False

    def execute(self, call: Callable[[], Coroutine[Any, Any, R]], *, cancellable: bool) -> R:
        """Run a coroutine function in the loop, to its end, and return its result. CancelledError if it is cancelled.

        It has ended even then: the next statement, which undoes the savepoint, finds the connection free.
        """
        outcome: concurrent.futures.Future[R] = concurrent.futures.Future()

        def begin() -> None:
            if self._take_cancellation():
                outcome.set_exception(concurrent.futures.CancelledError())
                return
            task = self._loop.create_task(call())
            self._running, self._is_cancellable = task, cancellable
            task.add_done_callback(hand_over)

        def hand_over(task: "asyncio.Task[R]") -> None:
            if task.cancelled():
                outcome.set_exception(concurrent.futures.CancelledError())
            elif (error := task.exception()) is not None:
                outcome.set_exception(error)
            elif self._take_cancellation():
                outcome.set_exception(concurrent.futures.CancelledError())
            else:
                outcome.set_result(task.result())

        self._loop.call_soon_threadsafe(begin)
        return outcome.result()

    def cancel(self) -> None:
        """Cancel the call: the statement that runs, or else what follows it. Called in the event loop."""
        if self._running is None or self._running.done() or not self._is_cancellable:
            self._is_cancelled = True
        else:
            self._running.cancel()

    def _take_cancellation(self) -> bool:
        """Return whether the call was cancelled, once: what undoes its savepoint is not cancelled."""
        was_cancelled, self._is_cancelled = self._is_cancelled, False
        return was_cancelled
