"""A call that is made when it is time, on the thread of a loop."""

from collections.abc import Callable

from holdfast.hosts.loops import ThisLoop


class Alarm:
    """Makes a call after a while, or before: one that is set, and rings too early, is cheaper than another."""

    __slots__ = ("_call", "_loop", "_set")

    def __init__(self, loop: ThisLoop, call: Callable[[], object]) -> None:
        self._loop = loop
        self._call: Callable[[], object] | None = call
        self._set: tuple[float, Callable[[], object]] | None = None
        """When it rings, by the time of the loop, and what prevents that."""

    def ring_in(self, seconds: float) -> None:
        """Have it ring by then."""
        at = self._loop.time() + seconds
        if self._set is not None:
            if self._set[0] <= at:
                return
            self._set[1]()
        self._set = at, self._loop.call_later(seconds, self._ring)

    def stop(self) -> None:
        """Have it ring no more."""
        if self._set is not None:
            self._set[1]()
            self._set = None

    def end(self) -> None:
        """Have it ring never again, and keep nothing in memory that it would have called."""
        self.stop()
        self._call = None

    def _ring(self) -> None:
        self._set = None
        if self._call is not None:
            self._call()
