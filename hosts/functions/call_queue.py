"""Batches of calls that run durable functions: calls that arrive meanwhile run one after the other in one thread.

A thread for each call would cost several times as much as most calls (docs/decisions/0008). A slow call holds up no
other: after a while the remaining calls of its batch move to another thread.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context
from functools import partial
from threading import Lock, get_ident
from typing import Final, Generic, TypeVar
from weakref import WeakKeyDictionary

import anyio
import attrs
from anyio import CancelScope, lowlevel

from holdfast.hosts.execution.event_loops import CurrentLoop, Event, caller_into_loop, has_ended
from holdfast.hosts.execution.threads import context_of_no_loop, start_in_thread
from holdfast.hosts.functions import stall_watchdog
from holdfast.kernel.dispatch.kernel import Kernel

T = TypeVar("T")

CALLS_MAX: Final = 500
"""How many calls a batch has at most."""


@attrs.define(eq=False)
class BatchedCall(Generic[T]):
    """A call that runs a durable function, and its progress."""

    what: T
    """What the call is about, for the preparation of its batch."""
    make: Callable[[], None]
    turn: Callable[[], int]
    """See `stall_watchdog.run_watched`."""
    takes_time: bool = False
    """Whether it is known to be slow, so that it gets a thread of its own."""
    may_be_abandoned: bool = False
    """Whether a cancelled caller may abandon it while it runs."""
    error: BaseException | None = None
    """What it raised, or why it was not made."""
    is_over: bool = False
    """Whether it has ended."""
    wake_event: Event = attrs.field(init=False)
    """Set when it is over, when it moves to a thread of its own, and when its caller is to watch the batch."""
    watches: "_Batch[T] | None" = None
    """Its batch, if its caller is the one that watches it for slow calls."""
    ended: Event | None = None
    """If it has a thread of its own, set when it is over."""
    threads: list[int] = attrs.field(factory=list[int])
    """The threads that run it."""
    context: Context | None = None
    """The context to run it in; None if any will do."""

    def run(self) -> None:
        """Make the call. Not where an event loop runs."""
        if self.error is None:
            self.threads.append(get_ident())
            try:
                if self.context is None:
                    self.make()
                else:
                    self.context.run(self.make)
            except BaseException as error:  # noqa: BLE001  # raised again where it is awaited
                self.error = error
        self.is_over = True

    @property
    def is_plainly_over(self) -> bool:
        """Whether it is over and its caller has nothing to do but take the result."""
        return self.is_over and self.watches is None and self.ended is None

    async def over(self) -> None:
        """Wait until it is over, shielded from cancellation. WorkflowStalledError, see `stall_watchdog.run_watched`."""
        with CancelScope(shield=True):
            await self.wake_event.wait()
            if self.watches is not None:
                await self.watches.watch()
        if self.ended is not None:
            with CancelScope(shield=not self.may_be_abandoned):
                await stall_watchdog.wait_watched(self.ended, self.turn, self.threads)


class CallBatcher(Generic[T]):
    """Makes calls in threads, in batches: while one batch is prepared, the next one gathers.

    `before` prepares a batch, in a thread, for example in one transaction for all of its calls. It sets `error` of
    calls that must not be made, and never raises. Created and used on the thread of one event loop.
    """

    def __init__(self, before: Callable[[Sequence[BatchedCall[T]]], None]) -> None:
        self._before = before
        self._waiting: list[BatchedCall[T]] = []
        self._last: _Batch[T] | None = None
        """The latest batch, until it is over."""
        self._begins = False
        """Whether the start of a batch is scheduled."""
        self._loop = CurrentLoop()
        self._in_loop = caller_into_loop()

    async def made(self, call: BatchedCall[T]) -> None:
        """Make a call and wait for it. Raises its error; WorkflowStalledError if its function does not stop to wait.

        A cancelled caller still waits once its batch has started, unless the call may be abandoned.
        """
        call.wake_event = self._loop.event()
        call.context = context_of_no_loop()
        self._gather(call)
        try:
            await call.wake_event.wait()
        except BaseException:
            await self.leave(call)
            raise
        if not call.is_plainly_over:
            await call.over()
        if call.error is not None:
            raise call.error

    def send(self, call: BatchedCall[T], wake: Callable[[], None]) -> None:
        """Make a call without a task that waits for it. `wake` is called whenever its `wake_event` would be set."""
        call.wake_event = _WakeEvent(wake, self._loop)
        self._gather(call)

    async def leave(self, call: BatchedCall[T]) -> None:
        """Remove a call that has not started; otherwise wait until it is over."""
        if call in self._waiting:
            self._waiting.remove(call)
        else:
            await call.over()

    def _gather(self, call: BatchedCall[T]) -> None:
        self._waiting.append(call)
        if not self._begins and (self._last is None or self._last.is_prepared):
            self._begins = True
            self._loop.call_soon(self._begin_soon)  # after callbacks that are ready now, which may add calls

    def _begin_soon(self) -> None:
        self._begins = False
        if self._waiting and (self._last is None or self._last.is_prepared):
            self._begin()

    def _begin(self) -> None:
        """Start a batch of the waiting calls. Also works in a callback of the loop."""
        batch, self._waiting = self._waiting[:CALLS_MAX], self._waiting[CALLS_MAX:]
        if not batch:
            self._last = None
            return
        self._last = together = _Batch(batch, self._loop, self._in_loop, self._go_on)

        def work() -> None:
            self._before(batch)
            together.is_prepared = True
            if self._waiting:  # later calls check `is_prepared` on their own
                self._in_loop(partial(self._go_on, together))
            together.run()

        start_in_thread(work)

    def _go_on(self, before: "_Batch[T]") -> None:
        """Start the next batch, unless that has been done."""
        if self._last is before:
            self._begin()


class _WakeEvent:
    """An event that makes a call when it is set."""

    __slots__ = ("_event", "_is_set", "_loop", "_wake")

    def __init__(self, wake: Callable[[], None], loop: CurrentLoop) -> None:
        self._wake = wake
        self._loop = loop
        self._event: Event | None = None
        self._is_set = False

    def set(self) -> None:
        if not self._is_set:
            self._is_set = True
            if self._event is not None:
                self._event.set()
            self._wake()

    def is_set(self) -> bool:
        return self._is_set

    async def wait(self) -> None:
        if not self._is_set:
            self._event = self._event or self._loop.event()
            await self._event.wait()


class _Batch(Generic[T]):
    """A batch of calls. Reports to `next_ones` on the loop when it is over.

    `in_loop` schedules a call on the loop from any thread.
    """

    def __init__(
        self,
        calls: Sequence[BatchedCall[T]],
        loop: CurrentLoop,
        in_loop: Callable[[Callable[[], object]], None],
        next_ones: "Callable[[_Batch[T]], None]",
    ) -> None:
        self._calls = calls
        self._left = deque(calls)
        self._loop = loop
        self._in_loop = in_loop
        self._next_ones = next_ones
        self._current: BatchedCall[T] | None = None
        self._over = loop.event()
        self.is_prepared = False
        """Whether the preparation of the batch is over."""
        self._alarm = loop.call_later(stall_watchdog.CHECK_INTERVAL, self._look)

    def _look(self) -> None:
        """Make one of the waiting callers watch the batch, because it is slow."""
        waits = next((call for call in self._calls if not call.wake_event.is_set()), None)
        if waits is None or not self.is_prepared:
            self._alarm = self._loop.call_later(stall_watchdog.CHECK_INTERVAL, self._look)
        else:
            waits.watches = self
            waits.wake_event.set()

    def run(self) -> None:
        """Make the remaining calls, one after the other. In one thread, or in several if some calls are slow."""
        while self._left:
            try:
                call = self._left.popleft()
            except IndexError:  # taken by another thread
                break
            if call.takes_time and call.error is None:
                self._in_loop(partial(self._make_alone, call))
                continue
            self._current = call
            call.run()
            if call.ended is not None:  # another thread makes the remaining calls
                self._in_loop(call.ended.set)
                return
        self._in_loop(self._finish)

    async def watch(self) -> None:
        """Move the calls behind a slow one to another thread. Returns once all calls have ended or moved."""
        before: BatchedCall[T] | None = None
        while not self._over.is_set():
            with anyio.move_on_after(stall_watchdog.CHECK_INTERVAL):
                await self._over.wait()
                return
            self._wake_finished()
            current = self._current
            if current is not None and current is before and not current.is_over:
                self._leave(current)
                start_in_thread(self.run)
            before = current

    def _make_alone(self, call: BatchedCall[T]) -> None:
        """Make a call in a thread of its own."""
        call.ended = ended = self._loop.event()

        def make() -> None:
            call.run()
            self._in_loop(ended.set)

        start_in_thread(make)
        call.wake_event.set()

    def _leave(self, call: BatchedCall[T]) -> None:
        """Leave a slow call alone in its thread."""
        call.ended = self._loop.event()
        if call.is_over:  # its thread may have missed that it was left alone
            call.ended.set()
        call.wake_event.set()

    def _wake_finished(self) -> None:
        for call in self._calls:
            if call.is_over:
                call.wake_event.set()

    def _finish(self) -> None:
        self._alarm()
        self._wake_finished()
        self._over.set()
        self._next_ones(self)


class PerEventLoop(Generic[T]):
    """One object for each kernel in each event loop. `make` creates it, on the thread of the loop.

    The objects refer to their loop, so weak references to loops would keep both. Loops that have ended are forgotten
    when the next one comes.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._known: dict[object, WeakKeyDictionary[Kernel, T]] = {}
        self._lock = Lock()

    def of(self, kernel: Kernel) -> T:
        """Return the object of a kernel in the running loop."""
        loop = lowlevel.current_token().native_token
        known = self._known.get(loop)
        if known is None:
            self.forget_ended()
            with self._lock:
                known = self._known[loop] = WeakKeyDictionary()
        if kernel not in known:
            known[kernel] = self._make()
        return known[kernel]

    def forget_ended(self) -> None:
        """Forget the objects of loops that have ended."""
        with self._lock:
            for loop in [one for one in self._known if has_ended(one)]:
                del self._known[loop]
