"""Helpers for event loops: run async code in a loop of its own, and call into a loop from other threads."""

import asyncio
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

import anyio
from anyio import CancelScope, NoEventLoopError, lowlevel

from holdfast.hosts.execution.caught_calls import CaughtCall
from holdfast.ports.errors import EngineClosedError
from holdfast.ports.process_forks import leave_alone

T = TypeVar("T")

CLOSED: Final = "the engine was closed while a run was waited for"

Run: TypeAlias = Callable[[Callable[[], Awaitable[Any]]], Any]

runs: Final[ContextVar[Run | None]] = ContextVar("holdfast_runs", default=None)
"""Replaces `anyio.run` for async code. None in every real process; the simulator has loops of its own."""


def run_in_loop(call: Callable[[], Awaitable[T]]) -> T:
    """Run async code to its end from sync code, which may itself be called within an event loop."""
    run = cast("Callable[[Callable[[], Awaitable[T]]], T]", runs.get() or anyio.run)
    if not _is_in_loop():
        return run(call)
    caught = CaughtCall(lambda: run(call))
    thread = threading.Thread(target=caught, name="holdfast-bodies")
    thread.start()
    thread.join()
    return caught.result()


class PersistentLoop:
    """An asyncio loop that stays open between calls, so that bodies can reuse clients that are bound to a loop.

    Safe from any thread. If it is busy, or if the caller is inside a loop, the call runs in a loop of its own, as
    with `run_in_loop`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runner: asyncio.Runner | None = None

    def renew(self) -> None:
        """Reset in a forked child. The loop is not closed: that would close file descriptors which the parent uses."""
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
        """Cancel the tasks that bodies left in the loop, and close it, unless code is running in it."""
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
    """Return a function, usable in any thread, that schedules a call on the current loop without waiting.

    It does nothing once the loop is closed: what the call was for is gone as well.
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


def has_ended(loop: Any) -> bool:
    """Whether nothing runs in an event loop any more, given its native token of anyio."""
    if isinstance(loop, asyncio.AbstractEventLoop):
        return loop.is_closed()
    try:
        loop.run_sync_soon(_do_nothing)
    except RuntimeError:
        return True
    return False


def _do_nothing() -> None:
    pass


def event_for_thread() -> "tuple[Event, Callable[[], None]]":
    """Return an event of the current loop, and a function that sets it, usable in any thread.

    That does nothing once the loop is closed.
    """
    loop = asyncio._get_running_loop()  # `get_running_loop` raises outside of one
    if loop is None or asyncio.current_task(loop) is None:  # not asyncio, or trio as a guest of asyncio
        event = anyio.Event()
        return event, partial(caller_into_loop(), event.set)
    done = asyncio.Event()

    def set_done() -> None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(done.set)

    return done, set_done


async def resolved(future: "Future[T]") -> T:
    """Wait for a future of another thread, without a thread. EngineClosedError if the engine is closed meanwhile."""
    done = anyio.Event()
    in_loop = caller_into_loop()
    future.add_done_callback(lambda _: in_loop(done.set))
    if not future.done():
        await done.wait()
    try:
        return future.result(0)
    except CancelledError:
        raise EngineClosedError(CLOSED) from None


def loop_time() -> Callable[[], float]:
    """Return a function for the loop's time, like `anyio.current_time`; it also works in callbacks on its thread."""
    time: Callable[[], float] = getattr(lowlevel.current_token().native_token, "time", anyio.current_time)
    return time


class Event(Protocol):
    """An event that is set once and awaited."""

    def set(self) -> object:
        """Wake the waiting tasks. On the thread of the loop."""
        ...

    def is_set(self) -> bool:
        """Return whether it was set."""
        ...

    async def wait(self) -> object:
        """Wait until it is set."""
        ...


class CurrentLoop:
    """The current loop, without anyio's task groups and cancel scopes, which cost five to ten times what they guard.

    Created and used on the thread of the loop.
    """

    __slots__ = ("_asyncio", "time")

    def __init__(self) -> None:
        native = lowlevel.current_token().native_token
        self._asyncio = native if isinstance(native, asyncio.AbstractEventLoop) else None
        self.time = loop_time() if self._asyncio is None else self._asyncio.time
        """Returns the time of the loop, in seconds."""

    def event(self) -> Event:
        """Return an event that is not set."""
        return anyio.Event() if self._asyncio is None else asyncio.Event()

    def start(self, act: Callable[[], Coroutine[Any, Any, None]], context: Context) -> object:
        """Start a task in a copy of a context; return the task, which the caller must keep, as the loop does not.

        It belongs to no group: it must not raise, and the caller cancels it.
        """
        if self._asyncio is None:
            return _trio().spawn_system_task(act, context=context.copy())
        return self._asyncio.create_task(act(), context=context.copy())

    def call_soon(self, call: Callable[[], object]) -> None:
        """Schedule a call for after the callbacks that are ready now."""
        if self._asyncio is None:
            _trio().current_trio_token().run_sync_soon(call)
        else:
            self._asyncio.call_soon(call)

    def call_later(self, seconds: float, call: Callable[[], object]) -> Callable[[], object]:
        """Schedule a call after this many seconds; return a function that cancels it."""
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
