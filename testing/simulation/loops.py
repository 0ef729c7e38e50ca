"""An asyncio event loop in virtual time that runs in a fiber.

It has callbacks, timers and tasks but no I/O: replace the I/O of a body by a stub.
"""

import asyncio
import contextvars
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any, Final, TypeVar, cast

from typing_extensions import TypeVarTuple, Unpack, override

from holdfast.kernel.functions.tasks import forget_scopes
from holdfast.testing.simulation.fibers import Process, SpinningError, WakeSignal

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_TURNS_MAX: Final = 50_000
"""The most turns of a loop at one instant. Real hosts take some dozens."""


class _Task(asyncio.Task[Any]):
    """A task with a reproducible hash, so that its place in a set is the same in every simulation.

    The hash is a number that is unique among all loops: asyncio keeps the tasks of all loops in one set, where equal
    hashes would make every look-up compare many tasks.
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


def close_tasks() -> None:
    """Close the coroutines of crashed processes that are within a cancel scope of anyio, which would keep them."""
    states: Iterable[object] = getattr(sys.modules.get("anyio._backends._asyncio"), "_task_states", ())
    tasks = [one for one in states if isinstance(one, _Task)]
    forget_scopes(tasks)
    for task in tasks:
        with suppress(RuntimeError):  # a scope can't be left outside of its task
            cast("Coroutine[Any, Any, Any]", task.get_coro()).close()


class VirtualLoop(asyncio.AbstractEventLoop):
    """An event loop that runs one coroutine to its end. Use it once."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._woken = WakeSignal(process.hub)
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timer_numbers = count()
        self._is_running = False
        self._is_over = False
        self._asyncgens: list[Any] = []
        self._turned_at = -1
        self._turns = 0
        """The number of consecutive turns at the same instant."""

    @override
    def run_until_complete(self, future: Any) -> Any:
        """Run a coroutine; return its result or raise its exception."""
        task: asyncio.Future[Any] = self.create_task(future)
        former = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        self._is_running = True
        try:
            while not task.done():
                self._turn()
        finally:
            self._is_running = False
            self._is_over = True
            asyncio._set_running_loop(former)
        self._process.check()
        return task.result()

    def _turn(self) -> None:
        """Wait until a callback is due, and call all due ones."""
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
        """Raise SpinningError if the loop turns without virtual time passing."""
        now = self._process.hub.now
        self._turns = self._turns + 1 if now == self._turned_at else 0
        self._turned_at = now
        if self._turns > _TURNS_MAX:
            raise SpinningError(f"the event loop made {_TURNS_MAX} turns, and no time has passed")

    def _left(self) -> float | None:
        """Return the seconds until the next timer is due; None without a timer, or with infinite ones only."""
        due = self._timers[0][0] if self._timers else inf
        return None if due == inf else max(0.0, due - self.time())

    @override
    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._process.hub.now / 1_000_000

    @override
    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Schedule a callback."""
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
        """Schedule a callback from any fiber."""
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
        """Schedule a callback after a delay in virtual seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    @override
    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule a callback at a virtual time in seconds."""
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
        # A crashing process abandons its tasks, and asyncio would log each.
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
        return task

    @override
    def get_task_factory(self) -> None:
        """Return None: there is no task factory."""

    @override
    def is_running(self) -> bool:
        """Return whether the loop is running."""
        return self._is_running

    @override
    def is_closed(self) -> bool:
        """Whether its coroutine has ended, or its process has crashed."""
        return self._is_over or self._process.is_crashed

    @override
    def get_debug(self) -> bool:
        """Return False: the loop has no debug mode."""
        return False

    @override
    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore the exception: a crash leaves many tasks behind, and abandoned tasks of a body are the body's."""

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing. Timer handles of asyncio call this."""

    @override
    async def shutdown_asyncgens(self) -> None:
        """Do nothing."""

    @override
    def run_in_executor(self, executor: Any, func: Callable[[Unpack[Ts]], T], *args: *Ts) -> Any:
        """Make a call in a new fiber; return a future of its result."""
        future = self.create_future()

        def make() -> None:
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001  # the future raises it
                self.call_soon_threadsafe(future.set_exception, error)
            else:
                self.call_soon_threadsafe(future.set_result, result)

        self._process.spawn(make)
        return future


def virtual_loop(process: Process) -> VirtualLoop:
    """Return a loop for a process. The class lacks the methods for I/O, so type checkers count it as abstract."""
    make: Any = VirtualLoop
    return cast("VirtualLoop", make(process))


def run_virtually(process: Process) -> Callable[[Callable[[], Any]], Any]:
    """Return a function that runs async code in a loop of a process."""
    return lambda call: virtual_loop(process).run_until_complete(call())
