"""Threads for sync bodies and for a worker's calls to the store.

A process that ends does not wait for them. It would wait for anyio's threads, so a body that hangs, or a store that
is down, could keep a worker from stopping. A worker waits for bodies that it has cancelled, for a short time
(`runner.THREAD_GRACE`).
"""

import contextvars
import queue
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Final, TypeAlias, TypeVar, cast

from anyio import CancelScope, CapacityLimiter, WouldBlock, lowlevel
from anyio.lowlevel import RunVar
from typing_extensions import TypeVarTuple, Unpack, override

from holdfast.hosts.execution.caught_calls import CaughtCall
from holdfast.hosts.execution.event_loops import Event, event_for_thread
from holdfast.ports.process_forks import renew_in_forks

R = TypeVar("R")
T = TypeVar("T")

IDLE_SECONDS: Final = 10.0
"""Seconds that an idle thread waits for its next call before it ends."""

Start: TypeAlias = Callable[[Callable[[], None]], None]

starts: Final[ContextVar[Start | None]] = ContextVar("holdfast_starts", default=None)
"""Replaces threads for starting calls. None in every real process; the simulator starts greenlets."""

CALLS_MAX: Final = 40
"""How many calls to the engine run at once from one event loop."""

Arguments = TypeVarTuple("Arguments")

_of_loop: Final = RunVar[CapacityLimiter]("holdfast_calls")


class _Idle:
    """The idle threads of this process."""

    def __init__(self) -> None:
        self.renew()
        renew_in_forks(self)

    def renew(self) -> None:
        """Reset in a forked child: the threads exist only in its parent."""
        self.lock = threading.Lock()
        self.threads: list[_Thread] = []


_idle: Final = _Idle()


async def run_in_thread(call: Callable[[], None], limiter: CapacityLimiter) -> None:
    """Run a call that never raises in a thread, within the limit. A cancelled caller abandons it."""
    await lowlevel.checkpoint_if_cancelled()
    slot = object()
    try:
        limiter.acquire_on_behalf_of_nowait(
            slot
        )  # `async with` takes a turn of the loop and two cancel scopes
    except WouldBlock:
        await limiter.acquire_on_behalf_of(slot)
    try:
        await make_in_thread(call)
    finally:
        limiter.release_on_behalf_of(slot)


async def result_in_thread(call: Callable[[], R]) -> R:
    """Run a call in a thread; return its result or raise its error. A cancelled caller abandons it."""
    caught = CaughtCall(call)
    await make_in_thread(caught)
    return caught.result()


async def in_thread(call: Callable[[Unpack[Arguments]], R], *arguments: *Arguments) -> R:
    """Run a call from the application to the engine in a thread, to its end even if the caller is cancelled.

    Not in one of anyio's threads: the application may fill those with calls that wait for this one.
    """
    async with _limiter():
        made: list[R] = []
        with CancelScope(shield=True):
            made.append(await result_in_thread(partial(call, *arguments)))
        return made[0]


async def iterate_in_thread(found: Iterator[T]) -> AsyncIterator[T]:
    """Yield the elements of a blocking iterator; each is fetched in a thread."""
    nothing = object()
    following: Callable[[], object] = partial(next, found, nothing)
    while (one := await in_thread(following)) is not nothing:
        yield cast("T", one)


def _limiter() -> CapacityLimiter:
    try:
        return _of_loop.get()
    except LookupError:
        limiter = CapacityLimiter(CALLS_MAX)
        _of_loop.set(limiter)
        return limiter


async def make_in_thread(call: Callable[[], None]) -> None:
    """Run a call that never raises in a thread. A cancelled caller abandons it."""
    await begin_in_thread(call).wait()


def begin_in_thread(call: Callable[[], None]) -> Event:
    """Start a call that never raises in a thread; return an event that is set once it has ended."""
    done, set_done = event_for_thread()

    def make() -> None:
        call()
        set_done()

    start_in_thread(make)
    return done


def start_in_thread(call: Callable[[], None]) -> None:
    """Start a call that never raises in a thread. Works in callbacks of a loop too, where no task runs."""
    context = context_of_no_loop()
    (starts.get() or _start_pooled)(lambda: context.run(call))


def context_of_no_loop() -> contextvars.Context:
    """Return a copy of the context in which a body can run an event loop of its own."""
    context = contextvars.copy_context()
    sniffio = sys.modules.get("sniffio")
    if sniffio is not None:
        context.run(sniffio.current_async_library_cvar.set, None)
    return context


def _start_pooled(call: Callable[[], None]) -> None:
    with _idle.lock:
        if _idle.threads:
            _idle.threads.pop().calls.put(call)
            return
    thread = _Thread()
    thread.calls.put(call)
    thread.start()


class _Thread(threading.Thread):
    """A thread that runs one call after the other, until it has been idle for a while."""

    def __init__(self) -> None:
        super().__init__(name="holdfast-body", daemon=True)
        self.calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    @property
    def is_idle(self) -> bool:
        """Whether it waits for its next call."""
        with _idle.lock:
            return self in _idle.threads

    @override
    def run(self) -> None:
        while True:
            try:
                call = self.calls.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                with _idle.lock:
                    if self in _idle.threads:
                        _idle.threads.remove(self)
                        return
                continue
            call()
            del call
            with _idle.lock:
                _idle.threads.append(self)
