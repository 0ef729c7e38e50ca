"""An event loop that skips time: it moves the clock to the next timer instead of waiting."""

import asyncio
import selectors
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack

from typing_extensions import override

from holdfast.testing.clock import ManualClock

R = TypeVar("R")
Arguments = TypeVarTuple("Arguments")

_OF_EXECUTORS: Final = "asyncio_"
"""Name prefix of the threads of a loop's default executor. They are never idle; their calls are counted instead."""

_REAL_WAIT: Final = 0.02
"""How long to wait in real time for busy threads and sockets before the next check, in seconds."""


class TimeSkippingLoop(asyncio.SelectorEventLoop):
    """An asyncio loop on a manual clock: `asyncio.sleep` and timeouts take no real time.

    While a socket is open, or a thread that started after the loop is busy, time is real: the loop may be waiting for
    them.
    """

    def __init__(self, clock: ManualClock) -> None:
        """`clock` is the loop's clock, which the loop advances."""
        self._passing = clock
        self._executing = 0
        super().__init__(_SkippingSelector(clock, lambda: self._executing > 0))

    @override
    def time(self) -> float:
        """Return the clock's time in seconds."""
        return self._passing.monotonic()

    @override
    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Arguments]], R], *args: *Arguments
    ) -> "asyncio.Future[R]":
        """Make a call in a thread. Time is real until it returns."""
        future = super().run_in_executor(executor, func, *args)
        self._executing += 1
        future.add_done_callback(self._executed)
        return future

    def _executed(self, _: "asyncio.Future[Any]") -> None:
        self._executing -= 1


class _SkippingSelector(selectors.BaseSelector):
    """A selector that waits in real time for I/O and threads, and in the clock's time for timers."""

    def __init__(self, clock: ManualClock, is_executing: Callable[[], bool]) -> None:
        self._clock = clock
        self._is_executing = is_executing
        self._inner = selectors.DefaultSelector()
        self._known_threads = frozenset(threading.enumerate())

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return self._inner.select(timeout)
        if not self._is_busy():
            events = self._inner.select(0)
            if not events:
                self._clock.sleep(timeout)
            return events
        began_at = time.monotonic()
        events = self._inner.select(min(timeout, _REAL_WAIT))
        self._clock.sleep(min(timeout, time.monotonic() - began_at))
        return events

    def _is_busy(self) -> bool:
        # The only permanent socket is that of the loop's own wake-up.
        if self._is_executing() or len(self._inner.get_map()) > 1:
            return True
        return any(
            thread not in self._known_threads and not _is_idle(thread) for thread in threading.enumerate()
        )

    @override
    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.register(fileobj, events, data)

    @override
    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._inner.unregister(fileobj)

    @override
    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.modify(fileobj, events, data)

    @override
    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._inner.get_map()

    @override
    def close(self) -> None:
        self._inner.close()


def _is_idle(thread: threading.Thread) -> bool:
    """Return whether a thread waits for its next call. Threads of anyio and of Holdfast show this."""
    if thread is threading.current_thread() or thread.name.startswith(_OF_EXECUTORS):
        return True
    idle: object = getattr(thread, "idle_workers", ())
    return bool(getattr(thread, "is_idle", False)) or (isinstance(idle, Collection) and thread in idle)
