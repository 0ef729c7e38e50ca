"""The event loop of durable functions: deterministic, without time, files, sockets or threads of its own.

It runs callbacks first in, first out. Its clock is what it is set to. Tasks and futures hash by the number in which
they were made, so a set of them has one order on every Python. Each task has a path in the tree of tasks, and calls
are numbered within their task: what a call is named does not depend on what other tasks did before.
"""

import asyncio
import sys
from asyncio import current_task
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import Context, copy_context
from math import inf
from typing import Any, Final, NoReturn, TypeVar, TypeVarTuple, Unpack, cast

from typing_extensions import override

from holdfast.kernel.functions.call_sites import as_completed_awaitables, call_site, caller, is_wait_for
from holdfast.kernel.functions.children import Children
from holdfast.kernel.functions.inboxes import Inboxes
from holdfast.kernel.functions.lazy_parts import Part
from holdfast.kernel.functions.patches import Patches
from holdfast.kernel.functions.protocol import Answered, GoesOn, Published, Refused, Request, TimerRequest
from holdfast.kernel.functions.publications import Publications
from holdfast.kernel.functions.sagas import Saga
from holdfast.kernel.functions.tasks import Numbers, RunFuture, RunTask, RunTimer
from holdfast.kernel.functions.updates import Updates
from holdfast.ports.errors import (
    InvalidValueError,
    NotDurableError,
    RestlessError,
    UnreadableValueError,
)
from holdfast.ports.records import Micros

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")
CancelledError = asyncio.CancelledError

CALLBACKS_MAX: Final = 100_000
"""How many callbacks may run before the loop has nothing left to do."""
TIMER_MAX: Final = 1_000 * 366 * 86_400
"""How many seconds ahead a timer may be set: a thousand years."""
_OF_OTHERS: Final = "an asyncio object that was made outside of it"
_SHARED: Final = "is shared by several runs, or with a step, and no replay could repeat what they do with it"
_OWN: Final = "Make it in the function that uses it; between runs use messages"
_NOTHING: Final[Mapping[str, str]] = {}
"""Shared by the many functions that have nothing of a kind: an empty dict of its own takes 64 bytes."""
_CLOSES_MAX: Final = 100
_KEPT_MIN: Final = 16
_REFUSALS_MAX: Final = 1_000
_ABANDONED: Final[list[object]] = []
"""Coroutines that can't be closed. Nobody must do so for us: then code of theirs would run."""


class Evicted(BaseException):
    """The function is taken out of memory: no error. Its run goes on from its history, as if this had not been."""


class FunctionLoop(asyncio.AbstractEventLoop):
    """Runs one durable function, in turns: callbacks until there are none. Not thread-safe.

    `began_at` is the instant at which its clock stands at 0. `seed` makes what it draws that run's own.
    """

    __slots__ = (
        "_began_at",
        "_cancels",
        "_function",
        "_generators",
        "_has_returned",
        "_is_running",
        "_kept_max",
        "_made",
        "_made_children",
        "_made_inboxes",
        "_made_patches",
        "_made_publications",
        "_made_saga",
        "_made_updates",
        "_now",
        "_outside",
        "_ready",
        "_refusals",
        "_tasks",
        "_timers",
        "_together",
        "_unawaited",
        "_waiting",
        "dropped",
        "fault",
        "goes_on",
        "is_cancelling",
        "is_evicted",
        "is_looked_at",
        "is_replaying",
        "requests",
        "row",
        "seed",
        "speaker",
        "step_arguments",
        "turn",
        "was_read",
    )

    inboxes = Part(lambda loop: Inboxes(loop.create_future, loop.halt))
    children = Part(lambda loop: Children(loop.create_future))
    saga = Part(lambda _: Saga())
    patches = Part(lambda _: Patches())
    publications = Part(lambda _: Publications())
    updates = Part(lambda loop: Updates(loop.begin, loop.halt))

    def __init__(self, *, began_at: Micros, seed: str) -> None:
        self.seed = seed
        self.requests: list[Request] = []
        """What was asked for since this was emptied, in order."""
        self.dropped: list[str] = []
        """The calls in which interest was lost since this was emptied."""
        self._unawaited: dict[str, tuple[Request, Coroutine[Any, Any, Any]]] = {}
        """The calls that were made, and that nobody has awaited."""
        self.is_replaying = False
        """Whether there are rows of the history that the function has not been told yet."""
        self.speaker: object = None
        """To whom it is told what the function logs: whoever drives it knows; None where nobody does, as in a query."""
        self.is_looked_at = False
        """Whether somebody looks at the function from outside: then nothing of it may change."""
        self.goes_on: GoesOn | None = None
        """As what the run goes on, once the function has asked for that: then no more of its code runs."""
        self.fault: Exception | None = None
        """Why no more of the function's code may run: what it is told can't be read."""
        self.step_arguments: Mapping[str, str] = _NOTHING
        """What steps were called with, by their calls, as far as what takes them back is to have it."""
        self.row = 0
        """The number of the row that it is told."""
        self.is_cancelling = False
        """Whether the function was told to end."""
        self._began_at = began_at
        self._now = began_at
        self.was_read = False
        """Whether the clock was looked at since this was unset."""
        self._ready: list[asyncio.Handle] = []
        """What is to run, in order. A list, for those of functions that rest are empty, and a deque never is small."""
        self._made = 0
        self._cancels: tuple[tuple[RunTask[Any], Any], ...] = ()
        self._tasks: list[RunTask[Any]] = []
        self._function: RunTask[Any] | None = None
        self._has_returned = False
        self._generators: list[AsyncGenerator[Any, Any]] = []
        self._kept_max = _KEPT_MIN
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._timers: dict[str, RunTimer] = {}
        self._together: dict[int, RunTask[Any]] | None = None
        self._outside = Numbers("0")
        self._is_running = False
        self.turn = 0
        """How often it has begun to run and stopped again: an odd number while it runs."""
        self.is_evicted = False
        self._refusals = 0
        self._made_inboxes: Inboxes | None = None
        self._made_children: Children | None = None
        self._made_patches: Patches | None = None
        self._made_publications: Publications | None = None
        self._made_updates: Updates | None = None

    # Turns ----------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> Micros:
        """The instant at which the run is."""
        self.was_read = True
        return self._now

    def set_clock(self, at: Micros) -> None:
        """Let the clock stand at an instant. It is never set back."""
        self._now = max(self._now, at)

    @contextmanager
    def showing(self, at: Micros) -> Generator[None]:
        """Have the clock show an instant for a turn. If nobody reads it then, it shows what it did before."""
        before = self._now
        self.set_clock(at)
        yield
        if not self.was_read:
            self._now = before

    def begin(self, coroutine: Coroutine[Any, Any, T], context: Context, *, path: str = "") -> RunTask[T]:
        """Make the function's own task, or, with a path, one that goes on after it."""
        task = self._make_task(coroutine, Numbers(path), None, context)
        self._function = self._function or task
        return task

    @property
    def waits_for_others(self) -> bool:
        """Whether it waits for what only others can bring: a message, an update, or the end of a run."""
        inboxes, children, updates = self._made_inboxes, self._made_children, self._made_updates
        return (
            (inboxes is not None and inboxes.is_waited_for)
            or (children is not None and children.are_waited_for)
            or (updates is not None and updates.are_taken)
        )

    @property
    def awaited_channels(self) -> tuple[str, ...]:
        """The names of the channels from which it awaits messages."""
        inboxes = self._made_inboxes
        return () if inboxes is None else inboxes.awaited

    @property
    def awaited_children(self) -> tuple[str, ...]:
        """The ids of the runs whose ends it awaits."""
        children = self._made_children
        return () if children is None else children.awaited

    @property
    def has_returned(self) -> bool:
        """Whether the function itself has ended, though some of its tasks may not have."""
        return self._has_returned or (self._function is not None and self._function.done())

    def tasks(self) -> Sequence[RunTask[Any]]:
        """Return the tasks that have not ended, in the order in which they were made."""
        return [task for task in self._tasks if not task.done()]

    @property
    def kept(self) -> int:
        """How many tasks and async generators are kept in memory, ended ones too."""
        return len(self._tasks) + len(self._generators)

    def run_until_quiet(self) -> None:
        """Run callbacks until there are none. RestlessError if that does not come to an end.

        SystemExit and KeyboardInterrupt, if code raises them, and whatever else is no Exception.
        """
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(self.keep, _leave_alone)
        asyncio._set_running_loop(self)
        try:
            self.run_until_quiet_here()
        finally:
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    @property
    def in_thread(self) -> AbstractContextManager[None]:
        """While this is entered, it is the loop of this thread, as for `run_until_quiet`, which takes its time."""
        return _InThread(self)

    def run_until_quiet_here(self) -> None:
        """Do what `run_until_quiet` does, in a thread whose loop it is already."""
        ready, ran = self._ready, 0
        self._is_running = True  # as `enter`: each call takes its time, and this is done for each row
        self.turn += 1
        try:
            for handle in ready:  # what is added to a list while it is gone through comes too
                if self.goes_on is not None or self.fault is not None:
                    break
                if ran == CALLBACKS_MAX:
                    raise RestlessError(CALLBACKS_MAX)
                ran += 1
                if not handle._cancelled:
                    handle._run()
        finally:
            del ready[:ran]
            self._is_running = False
            self.turn += 1
        # What has ended needs no strong reference. That is looked at so seldom that it costs nothing.
        if len(self._tasks) + len(self._generators) > self._kept_max:
            self._tasks = [task for task in self._tasks if not task.done() or _has_unseen(task)]
            self._generators = [one for one in self._generators if cast("Any", one).ag_frame is not None]
            self._kept_max = 2 * self.kept + _KEPT_MIN

    @contextmanager
    def _in_turn(self) -> Generator[None]:
        """While this is entered, code of the function runs that is no callback."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def looked_at(self, look: Callable[[], T]) -> T:
        """Make a call that only looks at what the function holds. What it raises, RuntimeError if it does more."""
        self.is_looked_at = True
        try:
            with _InThread(self), self._in_turn():
                return look()
        finally:
            self.is_looked_at = False

    def evict(self, context: Context) -> None:
        """Close all that waits, so that no code of the function has any effect. Nothing is to be run after this."""
        self.is_evicted = True
        self._ready.clear()
        context.run(self._close_all)
        # They refer to this loop, and it to them: what is over need not wait until Python looks for such things.
        self._has_returned = self.has_returned
        self._function = None
        self._tasks, self._generators = [], []

    def _close_all(self) -> None:
        with _InThread(self), self._in_turn():
            for task in self._tasks:
                cast("Any", task)._log_destroy_pending = False
                coroutine = cast("Coroutine[Any, Any, Any]", task.get_coro())
                _close(coroutine.close, coroutine)
            for _, coroutine in self._unawaited.values():
                coroutine.close()
            for generator in self._generators:
                _close(_closing(generator), generator)
            self._ready.clear()

    @property
    def has_only_requests(self) -> bool:
        """Whether nothing has come of a turn but what was asked for."""
        inboxes = self._made_inboxes
        parts = self._made_patches or self._made_updates or self._made_publications
        if inboxes is not None and inboxes.refused:
            return False
        return parts is None and not self.dropped and self.goes_on is None and self.fault is None

    def take_outputs(
        self,
    ) -> tuple[tuple[str, ...], tuple[Answered, ...], tuple[Published, ...], tuple[Refused, ...]]:
        """Return what is new since this was called last.

        Patches, answers to updates, published values, and messages that were passed over.
        """
        patches, updates, publications = self._made_patches, self._made_updates, self._made_publications
        inboxes = self._made_inboxes
        return (
            () if patches is None else patches.take(),
            () if updates is None else updates.take(),
            () if publications is None else publications.take(),
            () if inboxes is None else inboxes.take_refused(),
        )

    # Calls ----------------------------------------------------------------------------------------------------------

    @property
    def has_timers(self) -> bool:
        """Whether a timer was set, and has neither fired nor been cancelled."""
        return bool(self._timers)

    @property
    def under_way(self) -> tuple[str, ...]:
        """The calls that were made, and of which nothing has come yet."""
        return tuple(self._waiting)

    def next_call(self) -> str:
        """Return the name of the call that is being made. Evicted if the function is being taken out of memory."""
        if self.is_evicted or self.is_looked_at:
            self._check()
        task = current_task(self) if self._is_running else None  # as `_numbers`, of which it takes most calls
        return task.numbers.next() if isinstance(task, RunTask) else self._outside.next()

    def made(self, request: Request, coroutine: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Keep a call until it is awaited, and return it. Where that never happens, it is closed in the end."""
        self._unawaited[request.call] = request, coroutine
        return coroutine

    @property
    def unawaited(self) -> Sequence[Request]:
        """What would have been asked for by the calls that nobody has awaited."""
        return [request for request, _ in self._unawaited.values()]

    def cancel_soon(self, task: RunTask[Any], msg: Any | None, /) -> None:
        """See `CancelsTogether`."""
        self._cancels = (*self._cancels, (task, msg))

    def _cancel_together(self) -> None:
        cancels, self._cancels = self._cancels, ()
        for task, msg in sorted(cancels, key=lambda one: one[0].number):
            task.cancel_now(msg)

    def keep_arguments(self, call: str, arguments: str) -> None:
        """Keep what a step was called with, for what takes it back."""
        if self.step_arguments is _NOTHING:
            self.step_arguments = {}
        cast("dict[str, str]", self.step_arguments)[call] = arguments

    @property
    def failures(self) -> Sequence[tuple[str, BaseException]]:
        """What tasks have raised that nobody has asked for it, each with the name of what the task runs."""
        tasks = [
            task for task in self._tasks if task.done() and task is not self._function and _has_unseen(task)
        ]
        return [(_name_of(task), cast("BaseException", task.exception())) for task in tasks]

    def submit(self, request: Request) -> "asyncio.Future[Any]":
        """Have something asked for; return the future of what comes of it."""
        if self.is_evicted or self.is_looked_at:
            self._check()
        if self._unawaited.pop(request.call, None) is not None and not self._unawaited:
            self._unawaited.clear()  # an empty dict that had members before is four times as large
        self.requests.append(request)
        # One of asyncio's own, which a task awaits in a fraction of the time: only the call itself ever has it, and no
        # set. It counts as any other, for in which order a set has its members hangs on their numbers.
        self._made += 1
        future: asyncio.Future[Any] = asyncio.Future(loop=self)
        self._waiting[request.call] = future
        return future

    def halt(self, what: str, row: int | None, error: Exception) -> None:
        """Run no more of the function's code: a value of its history, which is in this row, can't be read.

        What no value is to blame for, a fault of the codec's, stays as it is.
        """
        if self.fault is None:
            if isinstance(error, InvalidValueError):
                error = UnreadableValueError(what, row, error.problems)
            self.fault = error

    async def never(self) -> NoReturn:
        """Wait for what does not come. Once it is halted nothing is raised here that code could catch."""
        await self.create_future()
        raise AssertionError("a function that is halted was run on")

    def publish(self, name: str, text: str) -> None:
        """Show a value, by its JSON text. It takes no number from the calls: it may be added to a function any time."""
        self._check()
        self.publications.add(name, text)

    def drop(self, call: str) -> None:
        """Note that nobody waits for a call any more."""
        self._waiting.pop(call, None)
        self.dropped.append(call)

    def answer(self, call: str, result: object) -> None:
        """Give a call its result."""
        future = self._waiting.pop(call)
        if not future.done():
            future.set_result(result)

    def fail(self, call: str, error: Exception) -> None:
        """Have a call raise an error."""
        future = self._waiting.pop(call)
        if not future.done():
            future.set_exception(error)

    def fire(self, call: str) -> None:
        """Have the callback of a timer run."""
        self._ready.append(self._timers.pop(call))

    def _numbers(self) -> Numbers:
        task = current_task(self) if self._is_running else None
        return task.numbers if isinstance(task, RunTask) else self._outside

    def _check(self) -> None:
        """Raise Evicted while the function is taken out of memory, unless it goes on and on: then let it wait.

        RuntimeError while somebody only looks at it.
        """
        if self.is_looked_at:
            raise RuntimeError("it calls or waits for something, and a query only looks; make it an update")
        if self.is_evicted and self._refusals < _REFUSALS_MAX:
            self._refusals += 1
            raise Evicted

    # What asyncio asks of a loop --------------------------------------------------------------------------------------

    @override
    def time(self) -> float:
        self.was_read = True
        return (self._now - self._began_at) / 1_000_000

    @override
    def is_running(self) -> bool:
        return self._is_running

    @override
    def is_closed(self) -> bool:
        return False

    @override
    def get_debug(self) -> bool:
        return False

    @override
    def set_debug(self, enabled: bool) -> None:
        """Do nothing: what asyncio looks at then is not the run's."""

    @override
    def get_task_factory(self) -> None:
        """Return None: tasks are made as the loop makes them."""

    @override
    def get_exception_handler(self) -> None:
        """Return None: there is none, as `call_exception_handler` says."""

    @override
    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Do nothing: when asyncio would tell of a task that nobody asked depends on when it is collected."""

    @override
    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Do nothing, as `call_exception_handler`."""

    @override
    def call_soon(
        self,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.Handle:
        running = asyncio._get_running_loop()
        if running is not self and running is not None:
            raise NotDurableError(_OF_OTHERS, _SHARED, _OWN)
        if self.is_evicted or self.is_looked_at:
            self._check()
        if self._cancels:
            self._cancel_together()
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    @override
    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    @override
    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        self._check()
        if not when - self.time() <= TIMER_MAX and when != inf:
            raise ValueError(f"a timer is set for in {when - self.time():g} s; it must be within 1,000 years")
        timer = RunTimer(when, callback, args, self, context)
        timer.call = ""
        if when == inf:
            return timer  # as anyio sleeps for ever: nothing is asked for, and nothing comes
        if when <= self.time():
            self._ready.append(timer)
            return timer
        call = timer.call = self._numbers().next()
        self._timers[call] = timer
        cast("Any", timer)._scheduled = True  # only then does it say that it is cancelled
        self.requests.append(
            TimerRequest(call=call, at=self._began_at + round(when * 1_000_000), site=call_site())
        )
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        call = cast("RunTimer", handle).call
        if self._timers.pop(call, None) is not None:
            self.dropped.append(call)

    @override
    def create_future(self) -> "asyncio.Future[Any]":
        if self.is_evicted or self.is_looked_at:
            self._check()
        self._made += 1
        # Not RunFuture[Any](...): then each would keep that alias, in a dict of its own.
        future: RunFuture[Any] = RunFuture(loop=self)
        future.number = self._made
        return future

    @override
    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> "asyncio.Task[T]":
        self._check()
        if self._together and (made := self._together.pop(id(coro), None)) is not None:
            return made
        coroutine = cast("Coroutine[Any, Any, T]", coro)
        maker = caller()
        together = as_completed_awaitables(maker)
        if together is not None:
            return self._make_together(together).pop(id(coro))
        numbers = self._numbers() if is_wait_for(maker) else Numbers(self._numbers().next())
        return self._make_task(coroutine, numbers, name, context)

    def _make_together(self, awaitables: object) -> "dict[int, RunTask[Any]]":
        """Make tasks of all that `asyncio.as_completed` was given: it would do so in the order of their addresses."""
        if not isinstance(awaitables, list | tuple):
            raise NotDurableError(
                "asyncio.as_completed",
                f"was given a {type(awaitables).__name__}, which has no order that a replay could repeat; "
                "give it a list",
            )
        made = self._together = self._together or {}
        for one in cast("Sequence[object]", awaitables):
            if asyncio.iscoroutine(one) and id(one) not in made:
                made[id(one)] = self._make_task(one, Numbers(self._numbers().next()), None, None)
        return made

    def _make_task(
        self, coroutine: Coroutine[Any, Any, T], numbers: Numbers, name: str | None, context: Context | None
    ) -> RunTask[T]:
        self._made += 1
        task = RunTask(
            coroutine,
            loop=self,
            number=self._made,
            numbers=numbers,
            name=name,
            context=copy_context() if context is None else context,  # one that is empty is false
        )
        self._tasks.append(task)
        return task

    def enter(self) -> None:
        """Note that callbacks run now."""
        self._is_running = True
        self.turn += 1

    def leave(self) -> None:
        """Note that they do not any more."""
        self._is_running = False
        self.turn += 1

    def keep(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Keep an async generator in memory: when it is collected is not the run's to know."""
        self._generators.append(generator)


class _InThread:
    """While it is entered, a loop is that of this thread."""

    __slots__ = ("_hooks", "_loop")

    def __init__(self, loop: FunctionLoop) -> None:
        self._loop = loop
        self._hooks: Any = None

    def __enter__(self) -> None:
        self._hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._loop.keep, finalizer=_leave_alone)
        asyncio._set_running_loop(self._loop)

    def __exit__(self, *_: object) -> None:
        asyncio._set_running_loop(None)
        sys.set_asyncgen_hooks(*self._hooks)


def check_thread() -> None:
    """Raise RuntimeError if this thread's event loop runs: no function can be driven here."""
    if asyncio._get_running_loop() is not None:
        raise RuntimeError("a durable function can't be driven from a thread whose event loop runs")


def new_loop(*, began_at: Micros, seed: str) -> FunctionLoop:
    """Return a loop. Type checkers don't see the methods that only refuse, which are made below."""
    return cast("Callable[..., FunctionLoop]", FunctionLoop)(began_at=began_at, seed=seed)


def running_loop() -> FunctionLoop | None:
    """Return the loop of the durable function that calls; None if none does."""
    loop = asyncio._get_running_loop()
    return loop if isinstance(loop, FunctionLoop) else None


def loop_for(what: str) -> FunctionLoop:
    """Return the loop of the durable function that calls. RuntimeError, which names what it wants, if none does."""
    loop = running_loop()
    if loop is None:
        raise RuntimeError(f"{what} is for workflows: nothing outside of one is the same in every replay")
    return loop


def _close(close: Callable[[], object], what: object) -> None:
    """Close what waits. Code that refuses to end is left as it is, for good."""
    for _ in range(_CLOSES_MAX):
        try:
            close()
        except RuntimeError as error:
            if "ignored GeneratorExit" in str(error):  # it waits for something else now
                continue
            return
        except BaseException:  # noqa: BLE001  # whatever it raises while it ends is nobody's
            return
        return
    _ABANDONED.append(what)


def _closing(generator: AsyncGenerator[Any, Any]) -> Callable[[], object]:
    def close() -> None:
        with suppress(StopIteration):
            generator.aclose().send(None)
            raise RuntimeError("async generator ignored GeneratorExit")

    return close


def explained(error: BaseException) -> BaseException:
    """Return an error that says what to do about it, where it is one of asyncio's that does not."""
    if isinstance(error, RuntimeError) and "is bound to a different event loop" in str(error):
        known = NotDurableError(_OF_OTHERS, _SHARED, _OWN)
        known.__cause__ = error
        return known
    return error


def _has_unseen(task: RunTask[Any]) -> bool:
    """Whether a task has failed, and nobody has asked for that: what asyncio tells of when such a task is collected."""
    return bool(getattr(task, "_log_traceback", False))


def _name_of(task: RunTask[Any]) -> str:
    return str(getattr(task.get_coro(), "__qualname__", task.get_name())).rpartition("<locals>.")[2]


def _leave_alone(_: object) -> None:
    """What is collected when is not the run's to know."""


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise NotDurableError(f"loop.{name}")

    refuse.__name__ = name
    return refuse


for _name in sorted(asyncio.AbstractEventLoop.__dict__.keys() - FunctionLoop.__dict__.keys()):
    if not _name.startswith("_"):
        setattr(FunctionLoop, _name, _refusal(_name))
