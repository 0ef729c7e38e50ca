"""The event loop of a durable function: deterministic, with no time, files, sockets or threads of its own.

Theory of operation
===================

Each durable function has its own `FunctionLoop`. The loop does not run for ever. A host runs it in turns: the machine
(`machine.py`) passes one history row to the function, then `run_until_quiet` runs callbacks, first in, first out, until
there are none. Between turns the loop is an inert object in memory, and a later turn may run in another thread.

A replay must make the same calls in the same order, in another process and on another Python version. So everything in
asyncio that depends on the process is replaced:

- Time. The clock shows what the machine sets, as a rule the time of the row. Nothing waits: `call_at` turns into a
  `TimerRequest`, and a history row fires it.
- Sets of tasks and futures. asyncio keeps tasks in sets, which iterate by hash, and the default hash is an address.
  `RunTask` and `RunFuture` hash by order of creation (`tasks.py`).
- Names of calls. A task has a path, and its calls are numbered within it: `3.1` is the first call in the task that was
  call 3. What one task does never renumbers the calls of another (docs/decisions/0020).
- Garbage collection. The loop references all tasks and async generators that have not ended, so none is finalised while
  it waits. Unretrieved errors of tasks are reported when the function ends, not when a task is collected.
- Input and output. Every method of `AbstractEventLoop` that is not implemented here raises NotDurableError; these
  methods are made at the end of this module. So is a callback that belongs to the loop of another run: objects such as
  a lock shared by several runs are detected when they wake a task (docs/decisions/0064).

A function leaves memory in one of two ways:

- It is halted: it continues as a new generation (`goes_on`), or a recorded value can't be decoded (`fault`). No further
  callback runs, and nothing is raised where its code could catch it.
- It is evicted: its coroutines are closed, which runs its `finally` blocks. Meanwhile every call, wait and new task
  raises `Evicted`, so `finally: await refund()` refunds nothing.

Guaranteed: as long as the code does no I/O of its own, nothing reaches it but rows of its history.
A turn ends: after `CALLBACKS_MAX` callbacks it raises WorkflowStalledError. Code in an endless loop without `await`
is not detected here.

Not pretty, and why it stays:

- Private parts of asyncio are used: the running loop, `Handle._run`, and flags of tasks and timers. There is no public
  way to run a loop in steps. Tests on each Python version notice when these change.
- `asyncio.wait_for` (up to 3.11), `asyncio.as_completed` and parts of anyio are recognised by their code or names
  (`call_sites.py`, `tasks.py`), because they create or cancel tasks in an order that a replay could not repeat. From
  anyio's table of tasks, those of evicted functions are removed: it would keep them for ever.
- The code avoids objects: slots, parts created on first use (`lazy_parts.py`), lists for deques, one shared empty
  mapping. A worker keeps up to a thousand parked functions in memory by default.
- After a thousand refusals during an eviction, code that catches everything is left waiting, referenced for ever. If it
  were collected instead, Python would resume it, and its code would run outside of any loop.
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
from holdfast.kernel.functions.conditions import Conditions
from holdfast.kernel.functions.inboxes import Inboxes
from holdfast.kernel.functions.lazy_parts import Part
from holdfast.kernel.functions.outputs import Outputs
from holdfast.kernel.functions.patches import Patches
from holdfast.kernel.functions.protocol import (
    FunctionContinued,
    OutputKind,
    Request,
    TimerRequest,
    Turn,
    UpdateRequest,
)
from holdfast.kernel.functions.publications import Publications
from holdfast.kernel.functions.replies import Replies
from holdfast.kernel.functions.run_facts import RunFacts
from holdfast.kernel.functions.sagas import Compensations
from holdfast.kernel.functions.tasks import Numbers, RunFuture, RunTask, RunTimer, forget_scopes
from holdfast.kernel.functions.updates import Updates
from holdfast.ports.errors import (
    InvalidValueError,
    NotDurableError,
    UnreadableValueError,
    WorkflowStalledError,
)
from holdfast.ports.records.values import Micros

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")
CancelledError = asyncio.CancelledError

CALLBACKS_MAX: Final = 100_000
"""Maximum number of callbacks in one turn."""
TIMER_MAX: Final = 1_000 * 366 * 86_400
"""Maximum delay of a timer in seconds: a thousand years."""
_OF_OTHERS: Final = "an asyncio object that was created outside of it"
_SHARED: Final = "is shared by several runs, or with a step, and no replay could repeat what they do with it"
_OWN: Final = "Make it in the function that uses it; between runs use messages"
_NOTHING: Final[Mapping[str, str]] = {}
"""Shared by all functions with nothing of a kind: an empty dict for each would take 64 bytes."""
_CLOSES_MAX: Final = 100
_KEPT_MIN: Final = 16
_REFUSALS_MAX: Final = 1_000
_ABANDONED: Final[list[object]] = []
"""Coroutines that refuse to be closed. They are referenced for ever: collecting one would run its code."""


class Evicted(BaseException):
    """Raised in the code of a function that is evicted from memory. Its run can continue from its history."""


class FunctionLoop(asyncio.AbstractEventLoop):
    """The event loop of one durable function, run in turns. Not thread-safe.

    Args:
        began_at: The instant at which the loop's `time()` is 0.
        seed: The seed of the run's random numbers and UUIDs.
        run: What the function knows about its run.
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
        "_made_conditions",
        "_made_inboxes",
        "_made_outputs",
        "_made_patches",
        "_made_publications",
        "_made_replies",
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
        "is_cancelling",
        "is_evicted",
        "is_queried",
        "is_replaying",
        "next_generation",
        "reports_after",
        "requests",
        "row",
        "run",
        "seed",
        "step_arguments",
        "turn",
        "was_read",
    )

    inboxes = Part(lambda loop: Inboxes(loop.create_future, loop.halt))
    children = Part(lambda loop: Children(loop.create_future))
    replies = Part(lambda loop: Replies(loop.create_future))
    saga = Part(lambda _: Compensations())
    patches = Part(lambda _: Patches())
    publications = Part(lambda _: Publications())
    outputs = Part(lambda _: Outputs())
    updates = Part(lambda loop: Updates(loop.begin, loop.halt))
    conditions = Part(lambda loop: Conditions(loop.create_future, loop.read_by))

    def __init__(self, *, began_at: Micros, seed: str, run: RunFacts) -> None:
        self.seed = seed
        self.run = run
        self.requests: list[Request] = []
        """The requests made since the last turn was taken, in order."""
        self.dropped: list[str] = []
        """The calls that the function stopped awaiting since the last turn was taken."""
        self._unawaited: dict[str, tuple[Request, Coroutine[Any, Any, Any]]] = {}
        """Calls that were made and not awaited yet."""
        self.is_replaying = False
        """Whether there are more rows to feed: the function is being replayed."""
        self.reports_after: int | None = None
        """The number of the last row up to which the function's output is stored: it is collected in later turns only.

        -1 if none is stored. None while the function is only replayed, as for a query.
        """
        self.is_queried = False
        """Whether a query is reading the function's state: then nothing may change."""
        self.next_generation: FunctionContinued | None = None
        """The new generation as which the run continues. Once it is set, no more of the function's code runs."""
        self.fault: Exception | None = None
        """The error that halted the function, for example a recorded value that can't be decoded."""
        self.step_arguments: Mapping[str, str] = _NOTHING
        """The arguments of steps, by call, for compensations that need them."""
        self.row = 0
        """The number of the row that is being fed."""
        self.is_cancelling = False
        """Whether the run was cancelled."""
        self._began_at = began_at
        self._now = began_at
        self.was_read = False
        """Whether the clock was read in this turn."""
        self._ready: list[asyncio.Handle] = []
        """The callbacks to run, in order. A list: most functions in memory have none, and a deque is larger."""
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
        """Incremented when the loop starts to run and when it stops: an odd number while it runs."""
        self.is_evicted = False
        self._refusals = 0
        self._made_inboxes: Inboxes | None = None
        self._made_children: Children | None = None
        self._made_replies: Replies | None = None
        self._made_patches: Patches | None = None
        self._made_publications: Publications | None = None
        self._made_outputs: Outputs | None = None
        self._made_updates: Updates | None = None
        self._made_conditions: Conditions | None = None

    @property
    def began_at(self) -> Micros:
        """The instant at which the loop's `time()` is 0."""
        return self._began_at

    # Turns ----------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> Micros:
        """The current time of the run."""
        self.was_read = True
        return self._now

    def set_clock(self, at: Micros) -> None:
        """Set the clock. It is never set back."""
        if at > self._now:  # noqa: PLR1730  # each row sets it, and `max` takes three times as long
            self._now = at

    @contextmanager
    def showing(self, at: Micros) -> Generator[None]:
        """Show another time for one turn. If the function does not read the clock in it, the clock is set back."""
        before = self._now
        self.set_clock(at)
        yield
        if not self.was_read:
            self._now = before

    def begin(self, coroutine: Coroutine[Any, Any, T], context: Context, *, path: str = "") -> RunTask[T]:
        """Start the function's own task, or, with a path, a further task."""
        task = self._make_task(coroutine, Numbers(path), None, context)
        self._function = self._function or task
        return task

    @property
    def waits_for_others(self) -> bool:
        """Whether the function awaits external input: a message, an update, a reply, or the end of a child run."""
        inboxes, children, updates = self._made_inboxes, self._made_children, self._made_updates
        return (
            (inboxes is not None and inboxes.is_waited_for)
            or (children is not None and children.are_waited_for)
            or (updates is not None and updates.are_taken)
            or bool(self.awaited_replies)
        )

    @property
    def awaited_channels(self) -> tuple[str, ...]:
        """The channels from which messages are awaited."""
        inboxes = self._made_inboxes
        return () if inboxes is None else inboxes.awaited

    @property
    def awaited_children(self) -> tuple[str, ...]:
        """The ids of the child runs whose ends are awaited."""
        children = self._made_children
        return () if children is None else children.awaited

    @property
    def awaited_replies(self) -> tuple[UpdateRequest, ...]:
        """The updates of other runs whose replies are awaited."""
        replies = self._made_replies
        return () if replies is None else replies.awaited

    @property
    def has_returned(self) -> bool:
        """Whether the function itself has ended. Tasks that it has created may not have."""
        return self._has_returned or (self._function is not None and self._function.done())

    def tasks(self) -> Sequence[RunTask[Any]]:
        """Return the tasks that have not ended, in order of creation."""
        return [task for task in self._tasks if not task.done()]

    @property
    def kept(self) -> int:
        """The number of tasks and async generators that are referenced, including ended ones."""
        return len(self._tasks) + len(self._generators)

    def run_until_quiet(self) -> None:
        """Run callbacks until none is left. WorkflowStalledError after `CALLBACKS_MAX` of them.

        Propagates SystemExit, KeyboardInterrupt and other errors that are not an Exception.
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
        """A context in which this is the running loop of the thread, for several `run_until_quiet_here`."""
        return _InThread(self)

    def run_until_quiet_here(self) -> None:
        """Run callbacks as `run_until_quiet`, in a thread where this is the running loop already."""
        ready, ran = self._ready, 0
        self._is_running = True  # as `enter`, inlined because this runs for each row
        self.turn += 1
        try:
            for handle in ready:  # callbacks added meanwhile are reached by the same loop
                if self.next_generation is not None or self.fault is not None:
                    break
                if ran == CALLBACKS_MAX:
                    raise WorkflowStalledError(CALLBACKS_MAX)
                ran += 1
                if not handle._cancelled:
                    handle._run()
                if ran == len(ready) and self._made_conditions is not None:
                    self._made_conditions.check()  # may add callbacks
        finally:
            del ready[:ran]
            self._is_running = False
            self.turn += 1
        # Drop references to ended tasks. The threshold doubles, so the cost for each task is constant.
        if len(self._tasks) + len(self._generators) > self._kept_max:
            self._tasks = [task for task in self._tasks if not task.done() or _has_unseen(task)]
            self._generators = [one for one in self._generators if cast("Any", one).ag_frame is not None]
            self._kept_max = 2 * self.kept + _KEPT_MIN

    @contextmanager
    def _in_turn(self) -> Generator[None]:
        """A context for code of the function that is not a callback."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def looked_at(self, look: Callable[[], T]) -> T:
        """Call `look`, which only reads the function's state. RuntimeError if it makes a call or waits."""
        with _InThread(self), self._in_turn():
            return self.read_by(look)

    def read_by(self, look: Callable[[], T]) -> T:
        """Call `look` as `looked_at`, while the loop runs."""
        self.is_queried = True
        try:
            return look()
        finally:
            self.is_queried = False

    def evict(self, context: Context) -> None:
        """Close all coroutines without any effect outside of them. The loop must not be run after that."""
        self.is_evicted = True
        self._ready.clear()
        context.run(self._close_all)
        # Break reference cycles, so that memory is freed without a garbage collection.
        self._has_returned = self.has_returned
        self._function = None
        self._tasks, self._generators = [], []

    def _close_all(self) -> None:
        unfinished = [task for task in self._tasks if not task.done()]
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
        forget_scopes(unfinished)

    @property
    def has_only_requests(self) -> bool:
        """Whether the turn produced nothing but requests."""
        inboxes = self._made_inboxes
        parts = self._made_patches or self._made_updates or self._made_publications
        outputs = self._made_outputs
        if (inboxes is not None and inboxes.refused) or (outputs is not None and outputs.new):
            return False
        return parts is None and not self.dropped and self.next_generation is None and self.fault is None

    def take_turn(self, requests: tuple[Request, ...]) -> Turn:
        """Return a turn with these requests and whatever else the function has produced, which is cleared."""
        patches, updates, publications = self._made_patches, self._made_updates, self._made_publications
        inboxes, outputs = self._made_inboxes, self._made_outputs
        return Turn(
            requests=requests,
            patches=() if patches is None else patches.take(),
            answers=() if updates is None else updates.take(),
            published=() if publications is None else publications.take(),
            outputs=() if outputs is None else outputs.take(),
            refused=() if inboxes is None else inboxes.take_refused(),
            read_clock=self.was_read,
        )

    # Calls ----------------------------------------------------------------------------------------------------------

    @property
    def has_timers(self) -> bool:
        """Whether a timer is pending."""
        return bool(self._timers)

    @property
    def under_way(self) -> tuple[str, ...]:
        """The calls without an outcome."""
        return tuple(self._waiting)

    def next_call(self) -> str:
        """Return the name of the next call. Evicted if the function is being evicted, RuntimeError in a query."""
        if self.is_evicted or self.is_queried:
            self._check()
        task = current_task(self) if self._is_running else None  # as `_numbers`, inlined in a hot path
        return task.numbers.next() if isinstance(task, RunTask) else self._outside.next()

    def made(self, request: Request, coroutine: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Register a call until it is awaited, and return its coroutine, which is closed with the loop otherwise."""
        self._unawaited[request.call] = request, coroutine
        return coroutine

    @property
    def unawaited(self) -> Sequence[Request]:
        """The requests of calls that were never awaited."""
        return [request for request, _ in self._unawaited.values()]

    def cancel_soon(self, task: RunTask[Any], msg: Any | None, /) -> None:
        """See `CancelsTogether`."""
        self._cancels = (*self._cancels, (task, msg))

    def _cancel_together(self) -> None:
        cancels, self._cancels = self._cancels, ()
        for task, msg in sorted(cancels, key=lambda one: one[0].number):
            task.cancel_now(msg)

    def keep_arguments(self, call: str, arguments: str) -> None:
        """Keep the arguments of a step for its compensation."""
        if self.step_arguments is _NOTHING:
            self.step_arguments = {}
        cast("dict[str, str]", self.step_arguments)[call] = arguments

    @property
    def failures(self) -> Sequence[tuple[str, BaseException]]:
        """Errors of tasks that were not retrieved, each with the name of the task's function."""
        tasks = [
            task for task in self._tasks if task.done() and task is not self._function and _has_unseen(task)
        ]
        return [(_name_of(task), cast("BaseException", task.exception())) for task in tasks]

    def submit(self, request: Request) -> "asyncio.Future[Any]":
        """Make a request and return the future of its outcome."""
        if self.is_evicted or self.is_queried:
            self._check()
        if self._unawaited.pop(request.call, None) is not None and not self._unawaited:
            self._unawaited.clear()  # frees the table of the emptied dict
        self.requests.append(request)
        # asyncio's own future, which is awaited in a fraction of the time. Only the call itself has it, so it is never
        # in a set. It is counted all the same, so that the numbers of other futures stay as they were.
        self._made += 1
        future: asyncio.Future[Any] = asyncio.Future(loop=self)
        self._waiting[request.call] = future
        return future

    def halt(self, what: str, row: int | None, error: Exception) -> None:
        """Halt the function: a value of its history, in this row, can't be decoded.

        An error that is not an InvalidValueError is a fault of the codec and is kept as it is.
        """
        if self.fault is None:
            if isinstance(error, InvalidValueError):
                error = UnreadableValueError(what, row, error.problems)
            self.fault = error

    async def never(self) -> NoReturn:
        """Wait for ever. In a halted function nothing is raised that its code could catch."""
        await self.create_future()
        raise AssertionError("a function that is halted was run on")

    def publish(self, name: str, text: str) -> None:
        """Publish a value, given as JSON text. Not a numbered call, so a deploy may add it anywhere."""
        self._check()
        self.publications.add(name, text)

    def report(self, kind: OutputKind, content: object) -> None:
        """Collect an output of this turn, unless it is stored already. Not a numbered call, as `publish`."""
        self._check()
        self.outputs.add(self.row, kind, content, is_live=self.is_live)

    @property
    def is_live(self) -> bool:
        """Whether the function is driven, rather than inspected, and this turn's output was not stored before."""
        return self.reports_after is not None and self.row > self.reports_after

    def drop(self, call: str) -> None:
        """Drop a call that is no longer awaited."""
        self._waiting.pop(call, None)
        self.dropped.append(call)

    def answer(self, call: str, result: object) -> None:
        """Resolve a call with its result."""
        future = self._waiting.pop(call)
        if not future.done():
            future.set_result(result)

    def fail(self, call: str, error: Exception) -> None:
        """Resolve a call with an error."""
        future = self._waiting.pop(call)
        if not future.done():
            future.set_exception(error)

    def fire(self, call: str) -> None:
        """Run the callback of a timer."""
        self._ready.append(self._timers.pop(call))

    def _numbers(self) -> Numbers:
        task = current_task(self) if self._is_running else None
        return task.numbers if isinstance(task, RunTask) else self._outside

    def _check(self) -> None:
        """Raise Evicted while the function is evicted, RuntimeError in a query.

        After too many refusals it does nothing: code that catches everything is left waiting.
        """
        if self.is_queried:
            raise RuntimeError(
                "it calls or waits for something, and a query or a condition only reads; make it an update"
            )
        if self.is_evicted and self._refusals < _REFUSALS_MAX:
            self._refusals += 1
            raise Evicted

    # Methods of AbstractEventLoop -------------------------------------------------------------------------------------

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
        """Do nothing: asyncio's debug mode looks at things that differ between processes."""

    @override
    def get_task_factory(self) -> None:
        """Return None: the loop has no task factory."""

    @override
    def get_exception_handler(self) -> None:
        """Return None: the loop has no exception handler."""

    @override
    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Do nothing: asyncio reports an unretrieved error when the task is collected, which is not deterministic."""

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
        if self.is_evicted or self.is_queried:
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
            return timer  # `anyio.sleep_forever` sets this timer, which never fires
        if when <= self.time():
            self._ready.append(timer)
            return timer
        call = timer.call = self._numbers().next()
        self._timers[call] = timer
        cast("Any", timer)._scheduled = True  # otherwise `cancel` does not call `_timer_handle_cancelled`
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
        if self.is_evicted or self.is_queried:
            self._check()
        self._made += 1
        # Not RunFuture[Any](...): then each future would keep that alias in a dict of its own.
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
        """Create all tasks of `asyncio.as_completed` in the order of its list: it would do so by address."""
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
            context=copy_context() if context is None else context,  # not `or`: an empty context is false
        )
        self._tasks.append(task)
        return task

    def enter(self) -> None:
        """Mark the loop as running."""
        self._is_running = True
        self.turn += 1

    def leave(self) -> None:
        """Mark the loop as not running."""
        self._is_running = False
        self.turn += 1

    def keep(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Keep a reference to an async generator, so that it is never collected before it ends."""
        self._generators.append(generator)


class _InThread:
    """A context in which a loop is the running loop of the thread."""

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
    """Raise RuntimeError if an event loop runs in this thread: then no function can be driven here."""
    if asyncio._get_running_loop() is not None:
        raise RuntimeError("a durable function can't be driven from a thread whose event loop runs")


def new_loop(*, began_at: Micros, seed: str, run: RunFacts) -> FunctionLoop:
    """Return a new loop. To type checkers the class is abstract: the methods that only refuse are made below."""
    make = cast("Callable[..., FunctionLoop]", FunctionLoop)
    return make(began_at=began_at, seed=seed, run=run)


def running_loop() -> FunctionLoop | None:
    """Return the loop of the durable function that calls this, or None outside of one."""
    loop = asyncio._get_running_loop()
    return loop if isinstance(loop, FunctionLoop) else None


def loop_for(what: str) -> FunctionLoop:
    """Return the loop of the durable function that calls this. RuntimeError, naming `what`, outside of one."""
    loop = running_loop()
    if loop is None:
        raise RuntimeError(
            f"{what} was called outside of a workflow: call it in a function with @workflow, which a worker runs; the"
            " body of a step is outside of it"
        )
    return loop


def _close(close: Callable[[], object], what: object) -> None:
    """Close a suspended coroutine. If it refuses to end, it is abandoned."""
    for _ in range(_CLOSES_MAX):
        try:
            close()
        except RuntimeError as error:
            if "ignored GeneratorExit" in str(error):  # the coroutine is suspended again
                continue
            return
        except BaseException:  # noqa: BLE001  # an error during an eviction must not have any effect
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
    """Return a NotDurableError for the error of asyncio about another event loop; other errors as they are."""
    if isinstance(error, RuntimeError) and "is bound to a different event loop" in str(error):
        known = NotDurableError(_OF_OTHERS, _SHARED, _OWN)
        known.__cause__ = error
        return known
    return error


def _has_unseen(task: RunTask[Any]) -> bool:
    """Whether a task has failed and its error was not retrieved."""
    return bool(getattr(task, "_log_traceback", False))


def _name_of(task: RunTask[Any]) -> str:
    return str(getattr(task.get_coro(), "__qualname__", task.get_name())).rpartition("<locals>.")[2]


def _leave_alone(_: object) -> None:
    """Do nothing: when a generator is collected is not deterministic."""


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise NotDurableError(f"loop.{name}")

    refuse.__name__ = name
    return refuse


for _name in sorted(asyncio.AbstractEventLoop.__dict__.keys() - FunctionLoop.__dict__.keys()):
    if not _name.startswith("_"):
        setattr(FunctionLoop, _name, _refusal(_name))
