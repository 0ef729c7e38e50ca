"""Transactions of the application, to carry out commands in."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

from holdfast.hosts.wiring.services import Core
from holdfast.ports.application_transactions import ApplicationTransaction, JoinsTransactions, RunAsync
from holdfast.ports.errors import InvalidArgumentError, InvalidTransactionError


def application_transaction(
    core: Core, connection: object, run_async: RunAsync | None
) -> ApplicationTransaction:
    """Return the transaction that is open on a connection. InvalidArgumentError, InvalidTransactionError."""
    store = core.stores.persistence
    if not isinstance(store, JoinsTransactions):
        raise InvalidTransactionError("the engine's store is in no database; use one in PostgreSQL or SQLite")
    return store.application_transaction(connection, run_async)


def into_running_loop() -> RunAsync:
    """Return what runs coroutine functions in the running event loop, from other threads. InvalidArgumentError."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise InvalidArgumentError(
            "connection",
            "within: no event loop of asyncio is running here; in synchronous code use `engine.sync.within(...)`",
        ) from None

    def run_async(call: Callable[[], Coroutine[Any, Any, Any]]) -> object:
        return cast("object", asyncio.run_coroutine_threadsafe(call(), loop).result())

    return run_async
