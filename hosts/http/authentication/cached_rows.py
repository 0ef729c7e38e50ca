"""A cache of the rows that authenticate requests, which also notes their use."""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Generic, TypeVar

import attrs

from holdfast.hosts.execution.threads import in_thread

Row = TypeVar("Row")

CACHED_SECONDS: Final = 3.0
"""How long a row is used without a look at the store: what was revoked is refused within this time."""
STALE_SECONDS: Final = 0.4
"""How much longer it is used while one request looks at the store: so a thousand open streams do not all do it."""
CACHED_MAX: Final = 1_000
"""How many rows are cached. The one used least recently is dropped first."""
TOUCHED_SECONDS: Final = 60.0
"""How often the use of a row is noted in the store."""

_log = logging.getLogger("holdfast.server")


@attrs.define
class _Cached(Generic[Row]):
    row: Row
    read_at: float
    touched_at: float | None = None
    is_reading: bool = False
    """Whether a request reads it anew."""


class CachedRows(Generic[Row]):
    """Rows by id.

    Args:
        name: What they are, for the log.
        read: Returns a row; None if there is none. May block.
        touch: Notes in the store that a row was used. May block.
        monotonic: Returns seconds.
        start: Starts a call in the background; in a thread by default.
    """

    def __init__(
        self,
        name: str,
        *,
        read: Callable[[str], Row | None],
        touch: Callable[[str], None],
        monotonic: Callable[[], float],
        start: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self._name = name
        self._read = read
        self._touch = touch
        self._monotonic = monotonic
        self._start = start or _start_thread
        self._cached: OrderedDict[str, _Cached[Row]] = OrderedDict()

    async def find(self, id: str) -> Row | None:
        """Return the row with this id; None if it does not exist."""
        now = self._monotonic()
        cached = self._cached.get(id)
        if cached is None or is_due(cached.read_at, now, is_reading=cached.is_reading):
            if cached is not None:
                cached.is_reading = True
            try:
                row = await in_thread(lambda: self._read(id))
            finally:
                if cached is not None:
                    cached.is_reading = False
            if row is None:
                self._cached.pop(id, None)
                return None
            touched_at = None if cached is None else cached.touched_at
            cached = self._cached[id] = _Cached(row, now, touched_at)
            if len(self._cached) > CACHED_MAX:
                self._cached.popitem(last=False)
        with suppress(KeyError):  # another thread may have forgotten it
            self._cached.move_to_end(id)
        return cached.row

    def note_use(self, id: str) -> None:
        """Note the use of a row in the background. It is no part of the request: the request does not fail with it."""
        cached, now = self._cached.get(id), self._monotonic()
        if cached is None or (cached.touched_at is not None and now - cached.touched_at < TOUCHED_SECONDS):
            return
        cached.touched_at = now

        def touch() -> None:
            try:
                self._touch(id)
            except Exception as error:  # noqa: BLE001  # whatever it is, the request was allowed
                _log.warning("the use of the %s %s was not noted: %s", self._name, id, error)

        self._start(touch)

    def forget(self, id: str) -> None:
        """Read this row from the store when it is needed next. From any thread."""
        self._cached.pop(id, None)

    def forget_all(self) -> None:
        """Read every row from the store when it is needed next. From any thread."""
        self._cached.clear()


def is_due(read_at: float | None, now: float, *, is_reading: bool) -> bool:
    """Return whether something must be read again, given when it was read, and whether a request reads it."""
    return read_at is None or now - read_at >= CACHED_SECONDS + (STALE_SECONDS if is_reading else 0.0)


def _start_thread(call: Callable[[], None]) -> None:
    threading.Thread(target=call, name="holdfast-noted-use", daemon=True).start()
