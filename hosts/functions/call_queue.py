"""Calls that run functions, gathered: those that have come meanwhile are made one after the other in one thread.

To hand each to a thread of its own would take several times as long as most of them do. One that takes its time holds
up no other: after a while the others go on in another thread.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context
from functools import partial
from threading import get_ident
from typing import Final, Generic, TypeVar
from weakref import WeakKeyDictionary

import anyio
import attrs
from anyio import CancelScope
from anyio.lowlevel import RunVar

from holdfast.hosts.execution.event_loops import Event, ThisLoop, caller_into_loop
from holdfast.hosts.execution.threads import context_of_no_loop, start_in_thread
from holdfast.hosts.functions import stall_watchdog
from holdfast.kernel.dispatch.kernel import Kernel

T = TypeVar("T")

CALLS_MAX: Final = 500
"""How many calls are made together."""


@attrs.define(eq=False)
class Call(Generic[T]):
    """A call that runs a function, of `what`, and how far it has come. `turn` is as for `turns.in_turns`.

    One that `takes_time` by what is known before is made in a thread of its own. One that `may_be_left` goes on without
    whoever was cancelled that has waited for it.
    """

    what: T
    make: Callable[[], None]
    turn: Callable[[], int]
    takes_time: bool = False
    may_be_left: bool = False
    error: BaseException | None = None
    """What it has raised, or why it is not made."""
    is_over: bool = False
    wake_event: Event = attrs.field(init=False)
    """Set when it is over, when it takes its time, and when there is something to watch."""
    watches: "_Together[T] | None" = None
    """The calls that are made with it, if it is the one whose task watches them."""
    ended: Event | None = None
    """Set when it is over, if it takes its time."""
    threads: list[int] = attrs.field(factory=list[int])
    context: Context | None = None
    """In which it is made; None if that does not matter to it."""

    def run(self) -> None:
        """Make the call. Not where an event loop runs."""
        if self.error is None:
            self.threads.append(get_ident())
            try:
                if self.context is None:
                    self.make()
                else:
                    self.context.run(self.make)
            except BaseException as error:  # noqa: BLE001  # it is raised again where it is awaited
                self.error = error
        self.is_over = True

    @property
    def is_plainly_over(self) -> bool:
        """Whether it is over, and nothing is left to be done by who has waited for it."""
        return self.is_over and self.watches is None and self.ended is None

    async def over(self) -> None:
        """Wait until it is over, whoever is cancelled. RestlessError, as `turns.in_turns`."""
        with CancelScope(shield=True):
            await self.wake_event.wait()
            if self.watches is not None:
                await self.watches.watch()
        if self.ended is not None:
            with CancelScope(shield=not self.may_be_left):
                await stall_watchdog.quiet(self.ended, self.turn, self.threads)


class Gathering(Generic[T]):
    """Makes calls in threads. While `before` is done for some, others gather for the next time.

    `before` is what is done for all of them at once, in a thread. It sets the `error` of those that are not to be made,
    and never raises. One gathering for each event loop, on whose thread it is made and used.
    """

    def __init__(self, before: Callable[[Sequence[Call[T]]], None]) -> None:
        self._before = before
        self._waiting: list[Call[T]] = []
        self._last: _Together[T] | None = None
        """The calls with which was begun last, unless they are over."""
        self._begins = False
        """Whether it is about to begin with those that wait."""
        self._loop = ThisLoop()
        self._in_loop = caller_into_loop()

    async def made(self, call: Call[T]) -> None:
        """Return once a call is made. Raises what it does; RestlessError if its function does not get quiet.

        Once something is done for it, it is waited for, whoever is cancelled, unless it may be left.
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

    def send(self, call: Call[T], wake: Callable[[], None]) -> None:
        """Have a call made, and `stir` called as `Call.stirred` has it: there is no task then that waits for it."""
        call.wake_event = _WakeEvent(wake, self._loop)
        self._gather(call)

    async def leave(self, call: Call[T]) -> None:
        """Wait for a call no more, unless something is done for it: then until it is over."""
        if call in self._waiting:
            self._waiting.remove(call)
        else:
            await call.over()

    def _gather(self, call: Call[T]) -> None:
        self._waiting.append(call)
        if not self._begins and (self._last is None or self._last.is_prepared):
            self._begins = True
            self._loop.call_soon(self._begin_soon)  # so that those come too that are ready now

    def _begin_soon(self) -> None:
        self._begins = False
        if self._waiting and (self._last is None or self._last.is_prepared):
            self._begin()

    def _begin(self) -> None:
        """Begin with those that wait. Also from a callback of the loop."""
        batch, self._waiting = self._waiting[:CALLS_MAX], self._waiting[CALLS_MAX:]
        if not batch:
            self._last = None
            return
        self._last = together = _Together(batch, self._loop, self._in_loop, self._go_on)

        def work() -> None:
            self._before(batch)
            together.is_prepared = True
            if self._waiting:  # who comes from now on sees it
                self._in_loop(partial(self._go_on, together))
            together.run()

        start_in_thread(work)

    def _go_on(self, before: "_Together[T]") -> None:
        """Begin with those that wait for these, if nobody has."""
        if self._last is before:
            self._begin()


class _WakeEvent:
    """An event that makes a call when it is set."""

    __slots__ = ("_event", "_is_set", "_loop", "_wake")

    def __init__(self, wake: Callable[[], None], loop: ThisLoop) -> None:
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


class _Together(Generic[T]):
    """Makes some calls, and tells the `next_ones` in the loop when they are over.

    `in_loop` has their loop do something soon, from any thread.
    """

    def __init__(
        self,
        calls: Sequence[Call[T]],
        loop: ThisLoop,
        in_loop: Callable[[Callable[[], object]], None],
        next_ones: "Callable[[_Together[T]], None]",
    ) -> None:
        self._calls = calls
        self._left = deque(calls)
        self._loop = loop
        self._in_loop = in_loop
        self._next_ones = next_ones
        self._current: Call[T] | None = None
        self._over = loop.event()
        self.is_prepared = False
        """Whether all is done that is done before."""
        self._alarm = loop.call_later(stall_watchdog.ROUND, self._look)

    def _look(self) -> None:
        """Have somebody watch who waits: it takes long."""
        waits = next((call for call in self._calls if not call.wake_event.is_set()), None)
        if waits is None or not self.is_prepared:
            self._alarm = self._loop.call_later(stall_watchdog.ROUND, self._look)
        else:
            waits.watches = self
            waits.wake_event.set()

    def run(self) -> None:
        """Make the calls that are left, one after the other. In a thread; in several if some take their time."""
        while self._left:
            try:
                call = self._left.popleft()
            except IndexError:  # another thread has taken it
                break
            if call.takes_time and call.error is None:
                self._in_loop(partial(self._make_alone, call))
                continue
            self._current = call
            call.run()
            if call.ended is not None:  # the others are made elsewhere by now
                self._in_loop(call.ended.set)
                return
        self._in_loop(self._finish)

    async def watch(self) -> None:
        """See to it that nobody waits for long for those before. Returns once all are over, or take their time."""
        before: Call[T] | None = None
        while not self._over.is_set():
            with anyio.move_on_after(stall_watchdog.ROUND):
                await self._over.wait()
                return
            self._wake_finished()
            current = self._current
            if current is not None and current is before and not current.is_over:
                self._leave(current)
                start_in_thread(self.run)
            before = current

    def _make_alone(self, call: Call[T]) -> None:
        """Make a call in a thread of its own."""
        call.ended = ended = self._loop.event()

        def make() -> None:
            call.run()
            self._in_loop(ended.set)

        start_in_thread(make)
        call.wake_event.set()

    def _leave(self, call: Call[T]) -> None:
        """Let a call go on alone in its thread."""
        call.ended = self._loop.event()
        if call.is_over:  # its thread may not have seen that it is alone
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


class Here(Generic[T]):
    """What there is one of for each kernel in each event loop. `make` makes it, on the thread of the loop."""

    def __init__(self, name: str, make: Callable[[], T]) -> None:
        self._make = make
        self._known: RunVar[WeakKeyDictionary[Kernel, T]] = RunVar(name)

    def of(self, kernel: Kernel) -> T:
        """Return that of a kernel in the loop that runs."""
        try:
            known = self._known.get()
        except LookupError:
            self._known.set(known := WeakKeyDictionary())
        if kernel not in known:
            known[kernel] = self._make()
        return known[kernel]
