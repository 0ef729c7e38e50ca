"""Goes on asking while a store is away."""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

import anyio

from holdfast.hosts.execution.threads import result_in_thread
from holdfast.hosts.wiring.payloads import Payloads
from holdfast.ports.errors import STORE_ERRORS, BlobCorruptError, BlobMissingError, UnavailableError
from holdfast.ports.records import Payload

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


MISREAD_MAX: Final = 10
"""How often a blob is asked for again that is missing or torn: for some twenty seconds. Then its run is blocked."""


class PatientValues:
    """Reads values for one attempt. A blob that is not there is asked for again for a while: copies lag."""

    def __init__(self, payloads: Payloads) -> None:
        self._payloads = payloads
        self._misread: dict[str, int] = {}
        """How often each blob could not be read that still can't."""

    def text(self, payload: Payload) -> str:
        """Return the text of a value.

        UnavailableError if it is to be asked for again; BlobMissingError or BlobCorruptError if it is gone.
        """
        blob = payload.blob
        if blob is None:
            return self._payloads.get(payload)
        try:
            text = self._payloads.get(payload)
        except (BlobCorruptError, BlobMissingError) as error:
            times = self._misread[blob] = self._misread.get(blob, 0) + 1
            if times > MISREAD_MAX:
                raise
            raise UnavailableError(str(error)) from error
        self._misread.pop(blob, None)
        return text
