"""Goes on asking while a store is away."""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

import anyio

from holdfast.hosts.process.threads import result_in_thread
from holdfast.ports.errors import STORE_ERRORS

T = TypeVar("T")

RETRY_MIN: Final = 0.05
RETRY_MAX: Final = 5.0

_log = logging.getLogger("holdfast.functions")


async def until_available_in_thread(call: Callable[[], T], what: str) -> T:
    """Make a call in a thread, again and again while a store is away."""
    return await until_available(partial(result_in_thread, call), what)


async def until_available(call: Callable[[], Awaitable[T]], what: str) -> T:
    """Await a call, again and again while a store is away."""
    wait = RETRY_MIN
    while True:
        try:
            return await call()
        except STORE_ERRORS as error:
            _log.warning("%s: %s", what, error)
            await anyio.sleep(wait)
            wait = min(2 * wait, RETRY_MAX)
