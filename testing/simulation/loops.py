"""An asyncio event loop in virtual time, that runs within a fiber: bodies and hosts need no other.

It has callbacks, timers and tasks, and no I/O: of what a body does outside, something has to stand for it.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any, Final, TypeVar, cast

from typing_extensions import TypeVarTuple, Unpack, override

from holdfast.testing.simulation.fibers import Process, Signal, SpinningError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_TURNS_MAX: Final = 50_000
"""Of one instant. Real hosts take some dozens."""


class _Task(asyncio.Task[Any]):
    """A task whose place in a set is the same in every run: it hashes as its number, which no other of all loops has.

    asyncio keeps the tasks of all loops in one set: of those that hash as the same, each would be compared with all.
    """

    def __init__(self, coro: Any, *, loop: asyncio.AbstractEventLoop, number: int, **options: Any) -> None:
        self._holdfast_number = number
        super().__init__(coro, loop=loop, **options)

    @override
    def __hash__(self) -> int:
        return self._holdfast_number

    @override
    def __eq__(self, other: object) -> bool:
        return self is other


class VirtualLoop(asyncio.AbstractEventLoop):
    """Runs one coroutine to its end. Not to be used twice."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._woken = Signal(process.hub)
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timer_numbers = count()
        self._is_running = False
        self._asyncgens: list[Any] = []
        self._turned_at = -1
        self._turns = 0
        """How often in a row something was called at the same instant."""

    @override
    def run_until_complete(self, future: Any) -> Any:
        """Run until the coroutine has ended; return what it gives, or raise what it raises."""
        task: asyncio.Future[Any] = self.create_task(future)
        former = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        self._is_running = True
        try:
            while not task.done():
                self._turn()
        finally:
            self._is_running = False
            asyncio._set_running_loop(former)
        self._process.check()
        return task.result()

    def _turn(self) -> None:
        """Wait until something is to be called, and call it."""
        self._process.check()
        while self._timers and self._timers[0][2].cancelled():
            heappop(self._timers)
        if not self._ready:
            self._woken.wait(self._left())
        self._check_progress()
        now = self.time() + 1e-9
        while self._timers and self._timers[0][0] <= now:
            self._ready.append(heappop(self._timers)[2])
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._run()

    def _check_progress(self) -> None:
        """Raise SpinningError if it goes round and round while no time passes: it would for ever."""
        now = self._process.hub.now
        self._turns = self._turns + 1 if now == self._turned_at else 0
        self._turned_at = now
        if self._turns > _TURNS_MAX:
            raise SpinningError(f"{_TURNS_MAX} turns of its loop, and no time has passed")

    def _left(self) -> float | None:
        """Return the seconds until a timer is due; None if none ever is, as that of who sleeps for ever."""
        due = self._timers[0][0] if self._timers else inf
        return None if due == inf else max(0.0, due - self.time())

    @override
    def time(self) -> float:
        """Return virtual seconds."""
        return self._process.hub.now / 1_000_000

    @override
    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Call soon."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    @override
    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Call soon; from any fiber."""
        handle = self.call_soon(callback, *args, context=context)
        self._woken.set()
        return handle

    @override
    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call after so many virtual seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    @override
    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call at a time."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heappush(self._timers, (when, next(self._timer_numbers), handle))
        return handle

    @override
    def create_future(self) -> "asyncio.Future[Any]":
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    @override
    def create_task(self, coro: Any, **options: Any) -> "asyncio.Task[Any]":
        """Return a task of this loop."""
        task = _Task(coro, loop=self, number=next(self._process.hub.tasks), **options)
        # A process that crashes leaves them as they are.
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
        return task

    @override
    def get_task_factory(self) -> None:
        """There is none."""

    @override
    def is_running(self) -> bool:
        """Return whether it runs."""
        return self._is_running

    @override
    def is_closed(self) -> bool:
        """It never is."""
        return False

    @override
    def get_debug(self) -> bool:
        """It does not."""
        return False

    @override
    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Nobody is told: what a body leaves behind is its own affair, and what crashes leaves much."""

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Asyncio's timers call this."""

    @override
    async def shutdown_asyncgens(self) -> None:
        """Leave them."""

    @override
    def run_in_executor(self, executor: Any, func: Callable[[Unpack[Ts]], T], *args: *Ts) -> Any:
        """Make a call in what stands for a thread; return a future of what it gives."""
        future = self.create_future()

        def make() -> None:
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001  # it is the future's
                self.call_soon_threadsafe(future.set_exception, error)
            else:
                self.call_soon_threadsafe(future.set_result, result)

        self._process.spawn(make)
        return future


def virtual_loop(process: Process) -> VirtualLoop:
    """Return a loop of a process. It lacks what has to do with I/O, and so counts as abstract."""
    make: Any = VirtualLoop
    return cast("VirtualLoop", make(process))


def run_virtually(process: Process) -> Callable[[Callable[[], Any]], Any]:
    """Return what runs async code in loops of a process."""
    return lambda call: virtual_loop(process).run_until_complete(call())
