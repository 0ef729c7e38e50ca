"""Retries of calls while the store or the blob store is down."""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

import anyio

from holdfast.hosts.execution.threads import result_in_thread
from holdfast.hosts.wiring.payloads import Payloads
from holdfast.ports.errors import STORE_ERRORS, BlobCorruptError, BlobMissingError, UnavailableError
from holdfast.ports.records.values import Payload

T = TypeVar("T")

RETRY_MIN: Final = 0.05
"""Seconds before the first retry."""
RETRY_MAX: Final = 5.0
"""Seconds between retries at most."""

_log = logging.getLogger("holdfast.functions")


async def until_available_in_thread(call: Callable[[], T], what: str) -> T:
    """Make a call in a thread; repeat it while the store is down. `what` is the log message."""
    return await until_available(partial(result_in_thread, call), what)


async def until_available(call: Callable[[], Awaitable[T]], what: str) -> T:
    """Await a call; repeat it while the store is down. `what` is the log message."""
    wait = RETRY_MIN
    while True:
        try:
            return await call()
        except STORE_ERRORS as error:
            _log.warning("%s: %s", what, error)
            await anyio.sleep(wait)
            wait = min(2 * wait, RETRY_MAX)


MISREAD_MAX: Final = 10
"""How often a missing or corrupt blob is read again, for some twenty seconds. Then its run is blocked."""


class PatientValues:
    """Reads values for one attempt. Retries blobs that are missing, because replicas of a blob store lag."""

    def __init__(self, payloads: Payloads) -> None:
        self._payloads = payloads
        self._misread: dict[str, int] = {}
        """How often each blob that still cannot be read was tried."""

    def text(self, payload: Payload) -> str:
        """Return the JSON text of a value.

        UnavailableError if the read is to be repeated; BlobMissingError or BlobCorruptError if the blob is lost.
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
