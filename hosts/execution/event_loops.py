"""Event loops of whichever kind: code run in one of its own, and calls from other threads into one."""

import asyncio
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

import anyio
from anyio import CancelScope, NoEventLoopError, lowlevel

from holdfast.ports.process_forks import leave_alone

T = TypeVar("T")

Run: TypeAlias = Callable[[Callable[[], Awaitable[Any]]], Any]

runs: Final[ContextVar[Run | None]] = ContextVar("holdfast_runs", default=None)
"""What runs async code here instead of anyio. None in every real process; the simulator has loops of its own."""


def run_in_loop(call: Callable[[], Awaitable[T]]) -> T:
    """Run async code to its end from sync code, which may itself be called from within an event loop."""
    run = cast("Callable[[Callable[[], Awaitable[T]]], T]", runs.get() or anyio.run)
    if not _is_in_loop():
        return run(call)
    results: list[T] = []
    errors: list[BaseException] = []

    def make() -> None:
        try:
            results.append(run(call))
        except BaseException as error:  # noqa: BLE001  # it is raised again in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=make, name="holdfast-bodies")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


class KeptLoop:
    """An asyncio loop that stays between calls: a client that bodies keep for the next call is of use there.

    Safe from any thread. Who finds it busy, or is in a loop, gets a loop for the one call, as `run_in_loop` gives it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runner: asyncio.Runner | None = None

    def renew(self) -> None:
        """Begin anew. In a forked child: to close the loop would take away what its parent hears by."""
        leave_alone(self._runner, self._runner and self._runner.get_loop())
        self._lock = threading.Lock()
        self._runner = None

    def run(self, call: Callable[[], Awaitable[T]]) -> T:
        """Run async code to its end from sync code."""
        if runs.get() is not None or _is_in_loop() or not self._lock.acquire(blocking=False):
            return run_in_loop(call)
        try:
            if self._runner is None:
                self._runner = asyncio.Runner()
                weakref.finalize(self, _close, self._runner.get_loop())

            async def awaited() -> T:
                return await call()

            return self._runner.run(awaited(), context=copy_context())
        finally:
            self._lock.release()

    def close(self) -> None:
        """End what bodies have left behind in the loop, and close it, unless something runs in it."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._runner is not None and not _is_in_loop():
                self._runner.close()
                self._runner = None
        finally:
            self._lock.release()


def _is_in_loop() -> bool:
    try:
        lowlevel.current_token()
    except NoEventLoopError:
        return False
    return True


def _close(loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_running():
        loop.close()


def caller_into_loop() -> Callable[[Callable[[], object]], None]:
    """Return a function, for any thread, that has this loop make a call soon. It never waits.

    If the loop is gone by then, nothing happens: with it went whoever the call was for.
    """
    native = lowlevel.current_token().native_token
    name = "call_soon_threadsafe" if hasattr(native, "call_soon_threadsafe") else "run_sync_soon"
    soon = cast("Callable[[Callable[[], object]], object]", getattr(native, name))

    def call(what: Callable[[], object]) -> None:
        try:
            soon(what)
        except RuntimeError:
            return

    return call


def loop_time() -> Callable[[], float]:
    """Return what gives this loop's time, as `anyio.current_time` does; also where no task runs, but on its thread."""
    time: Callable[[], float] = getattr(lowlevel.current_token().native_token, "time", anyio.current_time)
    return time


class Event(Protocol):
    """What is set once, and waited for."""

    def set(self) -> object:
        """Wake who waits. On the thread of the loop."""
        ...

    def is_set(self) -> bool:
        """Return whether it was set."""
        ...

    async def wait(self) -> object:
        """Return when it is set."""
        ...


class ThisLoop:
    """The loop that runs, without anyio's groups and scopes, which take five to ten times as long as what they guard.

    To be made and used on its thread.
    """

    __slots__ = ("_asyncio", "time")

    def __init__(self) -> None:
        native = lowlevel.current_token().native_token
        self._asyncio = native if isinstance(native, asyncio.AbstractEventLoop) else None
        self.time = loop_time() if self._asyncio is None else self._asyncio.time
        """Gives its time, in seconds."""

    def event(self) -> Event:
        """Return an event that is not set."""
        return anyio.Event() if self._asyncio is None else asyncio.Event()

    def start(self, act: Callable[[], Coroutine[Any, Any, None]], context: Context) -> object:
        """Have a task of its own do something, in a copy of a context; return it, for the loop itself keeps no task.

        It is in no group: it is to raise nothing, and who starts it ends it.
        """
        if self._asyncio is None:
            return _trio().spawn_system_task(act, context=context.copy())
        return self._asyncio.create_task(act(), context=context.copy())

    def call_soon(self, call: Callable[[], object]) -> None:
        """Have a call made once all is done that is ready now."""
        if self._asyncio is None:
            _trio().current_trio_token().run_sync_soon(call)
        else:
            self._asyncio.call_soon(call)

    def call_later(self, seconds: float, call: Callable[[], object]) -> Callable[[], object]:
        """Have a call made after so long; return what prevents that."""
        if self._asyncio is not None:
            return self._asyncio.call_later(seconds, call).cancel
        scope = CancelScope()

        async def wait() -> None:
            with scope:
                await anyio.sleep(seconds)
                call()

        _trio().spawn_system_task(wait, context=copy_context())
        return scope.cancel


def _trio() -> Any:
    return sys.modules["trio"].lowlevel
