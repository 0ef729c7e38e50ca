"""Replay: the machine that drives one durable function by feeding it the rows of its run's history.

Theory of operation
===================

A `FunctionMachine` is one life of a function in memory. `begin` calls the function and runs it until it waits. Then
`feed(row)` passes it one history row at a time and runs it until it waits again. Each returns a `Turn`: the calls that
the function has made since (`requests`), calls that it no longer awaits, and its end.

The machine does no I/O. The driver (hosts/functions) reads rows, carries out the requests of a turn, stores the
outcomes as rows, and then feeds these rows. There is no separate mode for replay: whether a row was stored a second ago
or by another worker last week, the function receives it by the same method. So a function continues in the same way
whether it stayed in memory or is called again from its first line (docs/decisions/0020). The only difference is
`is_replaying`, which is set while more rows are left to feed: it decides about patches. What the function reports, its
log for example, is collected in turns whose output is not stored yet (docs/decisions/0075).

How a row finds its call. Every call has a name, its path in the tree of tasks (`loop.py`). `_open` holds the requests
that are awaited. A row about a call must match the open request of this name, by kind and by step, workflow, run or
channel. Arguments are not compared. A row about a call that the function has dropped changes nothing. Any other row is
a NondeterminismError, which is raised before any code of the function runs for it. Messages, updates, ends of child
runs and cancellations are about no call: they are put where the function will find them.

How a function ends. It returns, raises, or continues as a new generation. If it has failed or was cancelled and has
compensations, its other tasks are cancelled first. Then the compensations run in a task with the path `undo`, as
recorded steps of the same function, and the end is reported when they are done. A compensation that fails for good
raises CompensationError out of `feed`, and the driver blocks the run.

Guaranteed:

- The same rows give the same turns, if the code is deterministic.
- The function only receives recorded values, never the object that a step has returned in this process.
- A row that matches no call, or a value that can't be decoded, stops the function before any more of its code runs.
- No code of an evicted function has an effect: its calls are refused while its coroutines are closed.

Not pretty, and why it stays:

- `feed_steps` repeats parts of `feed`, `_turn` and `_come_to` without their checks. Most rows of a replay are
  results of consecutive steps, and a replay of 3,000 of them takes 28 ms instead of 46 (docs/decisions/0045). Tests
  feed the same histories in both ways.
- `_IN_MEMORY` references every machine that has begun and not ended. Python would finalise a forgotten coroutine by
  running its `finally` blocks as ordinary code. So each machine has to be evicted, and `evict_all` does that at the end
  of the process.
- `give_up` may be called from another thread, while a turn never ends. Python can't interrupt that thread. So the
  function's calls are refused from then on, and the thread evicts it if the turn ends after all.
"""

from asyncio import Task, wait
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextvars import Context
from typing import Any, Final, TypeVar, cast

import attrs

from holdfast.kernel.functions.call_sites import waits_at
from holdfast.kernel.functions.inboxes import Message
from holdfast.kernel.functions.loop import (
    CancelledError,
    Evicted,
    FunctionLoop,
    check_thread,
    explained,
    new_loop,
)
from holdfast.kernel.functions.protocol import (
    CallOutcome,
    Cancelling,
    ChannelClosed,
    ChildEnded,
    ChildRequest,
    ChildStarted,
    Ended,
    FunctionFailed,
    FunctionReturned,
    MessagePublished,
    NotifyRequest,
    PublishRequest,
    Request,
    Row,
    RunNotified,
    SignalReceived,
    StepCompleted,
    StepFailed,
    StepQueued,
    StepRequest,
    TimerFired,
    TimerRequest,
    TopicSubscribed,
    Turn,
    UpdateReceived,
    UpdateReplied,
    UpdateRequest,
    UpdateSent,
)
from holdfast.kernel.functions.run_facts import RunFacts
from holdfast.kernel.functions.tasks import RunTask
from holdfast.kernel.history import events
from holdfast.kernel.history.events.parsed_rows import ParsedRow, completed_step
from holdfast.kernel.history.exceptions import error_from, error_words, leaves_of
from holdfast.kernel.history.raised import Raised
from holdfast.ports.errors import (
    ChannelClosedError,
    ChildRefusedError,
    CompensationError,
    ConcurrencyFullError,
    DebuggerLeftError,
    HoldfastError,
    InvalidCommandError,
    NondeterminismError,
    RateExceededError,
    RunNotFoundError,
    SignalRefusedError,
    StorageRefusedError,
    UnreadMessagesError,
    UpdateRefusedError,
    WorkflowStalledError,
)
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import evolve

T = TypeVar("T")

_NOTHING: Final[Mapping[str, Request]] = {}
"""Shared by all functions without dropped calls: an empty dict for each would take 64 bytes."""
_IN_MEMORY: Final["set[FunctionMachine]"] = set()
"""The machines that have begun and not ended. Collecting one would run its function's clean-up as ordinary code."""


class FunctionMachine:
    """Drives one durable function. Not thread-safe; not to be used in a thread with a running event loop.

    Args:
        function: Calls the function; it runs with the machine's loop as the running loop.
        encode: Returns a result as JSON text. Raises if it can't be stored.
        began_at: When the run started.
        seed: The seed of the run's random numbers and UUIDs.
        run: What the function knows about its run.
    """

    # Class attributes, set on the instance only at the end of a function: most machines in memory have not ended.
    failures: Sequence[tuple[str, BaseException]] = ()
    """Errors of tasks that were not retrieved when the function ended, with the names of the tasks' functions."""
    _cancelled_with: tuple[object, ...] = ()
    _leave: Callable[[], object] | None = None
    """What is called in the function's context when it leaves memory."""

    def __init__(
        self,
        function: Callable[[], Coroutine[Any, Any, object]],
        encode: Callable[[object], str],
        *,
        began_at: Micros,
        seed: str,
        run: RunFacts,
    ) -> None:
        self.began_at = began_at
        self._function: Callable[[], Coroutine[Any, Any, object]] | None = function
        self._encode = encode
        self._loop = new_loop(began_at=began_at, seed=seed, run=run)
        self._context = Context()
        self._task: RunTask[object] | None = None
        self._open: dict[str, Request] = {}
        self._forgotten: Mapping[str, Request] = _NOTHING
        self._is_over = False
        self._late: tuple[int, ...] = ()
        """Row numbers of updates that were fed after the end."""
        self._is_given_up = False
        self._undoing: RunTask[None] | None = None
        self._exit: BaseException | None = None
        """A BaseException that is not an Exception, such as SystemExit, raised by the function."""
        self._result: str | Exception | None = None
        """The result as JSON text, or the error of encoding it."""
        self._fault: HoldfastError | None = None
        self.rows = 0
        """The number of the last row fed."""
        self.is_cancelled = False
        """Whether the run was cancelled."""

    @property
    def pending_requests(self) -> tuple[Request, ...]:
        """The requests without an outcome, in the order in which they were made."""
        return tuple(self._open.values())

    @property
    def timers(self) -> Sequence[TimerRequest]:
        """The pending timers."""
        if not self._loop.has_timers:  # usually none, however many calls are open
            return ()
        return [one for one in self._open.values() if isinstance(one, TimerRequest)]

    @property
    def has_timers(self) -> bool:
        """Whether a timer is pending."""
        return self._loop.has_timers

    def waits_for(self, call: str) -> Request | None:
        """Return the request of an open call; None if the call is not awaited."""
        return self._open.get(call)

    def report_after(self, row: int | None) -> None:
        """Collect the function's output of the turns after this row; see `FunctionLoop.reports_after`."""
        self._loop.reports_after = row

    @property
    def kept(self) -> int:
        """The number of tasks and async generators that are referenced, including ended ones."""
        return self._loop.kept

    @property
    def waits_for_others(self) -> bool:
        """Whether the function awaits external input: a message, an update, a reply, or the end of a child run."""
        return self._loop.waits_for_others

    @property
    def awaited_channels(self) -> tuple[str, ...]:
        """The channels from which messages are awaited."""
        return self._loop.awaited_channels

    @property
    def awaited_children(self) -> tuple[str, ...]:
        """The ids of the child runs whose ends are awaited."""
        return self._loop.awaited_children

    @property
    def awaited_replies(self) -> tuple[UpdateRequest, ...]:
        """The updates of other runs whose replies are awaited."""
        return self._loop.awaited_replies

    @property
    def waits_at(self) -> Sequence[str]:
        """The places in user code where tasks wait, in order of their creation."""
        found = (waits_at(task.get_coro()) for task in self._loop.tasks())
        return [where for where in found if where]

    @property
    def exposed(self) -> Sequence[object]:
        """The exposed objects, in the order in which they were exposed; also after the end."""
        updates = FunctionLoop.updates.of(self._loop)
        return () if updates is None else updates.exposed

    def looked_at(self, look: Callable[[], T]) -> T:
        """Call `look`, which only reads exposed state. RuntimeError if it makes a call or waits."""
        check_thread()
        return self._context.copy().run(self._loop.looked_at, look)

    def beside(self, call: Callable[[], T]) -> T:
        """Make a call of the host that sees the function's context variables, and can set none of them."""
        return self._context.copy().run(call)

    @property
    def late(self) -> tuple[int, ...]:
        """The row numbers of updates that were fed after the end."""
        return self._late

    @property
    def received(self) -> list[int]:
        """The row numbers of received messages. The driver removes those whose receipt is recorded."""
        inboxes = FunctionLoop.inboxes.of(self._loop)
        return [] if inboxes is None else inboxes.taken

    @property
    def is_ending(self) -> bool:
        """Whether the run was cancelled, or compensations are running."""
        return self.is_cancelled or self._undoing is not None

    def refuse_signal(self, number: int) -> None:
        """Skip the message of this row when it is fed, because that is recorded."""
        self._loop.inboxes.pass_over(number)

    def refuse_update(self, call: str, rejected: Raised) -> None:
        """Reject an update when it is fed, because that is recorded: its arguments could not be decoded."""
        self._loop.updates.rejected[call] = rejected

    def enter(self, around: Callable[[], Callable[[], object]]) -> None:
        """Call `around` in the function's context before `begin`, and what it returns when the function is evicted.

        The function, its compensations, updates and queries see the context variables that `around` sets. The function
        is also evicted when it has ended. Raises what `around` raises.
        """
        self._leave = self._context.run(around)

    def begin(
        self,
        *,
        more: bool = False,
        patches: Collection[str] = (),
        shown: Micros | None = None,
        refused: str = "",
        inbox: Sequence[Row] = (),
    ) -> Turn:
        """Call the function and run it until it waits. RuntimeError if an event loop runs in this thread.

        Args:
            more: Whether there are rows to feed.
            patches: The patches recorded anywhere in the history.
            shown: The time of the function's clock during this turn, if not `began_at`.
            refused: Why the store refused the function's result in an earlier attempt: the function fails with that
                when it
                returns, and compensates.
            inbox: Messages and updates that were stored before the function starts. The clock is not earlier than
                these.
        """
        function, self._function = self._function, None  # frees arguments that the function drops
        assert function is not None
        check_thread()
        _IN_MEMORY.add(self)
        if patches:
            self._loop.patches.know(patches)
        if refused:
            self._result = StorageRefusedError(refused)
        for row in inbox:
            self._loop.set_clock(row.at)
            self._put(row)
        self._task = self._loop.begin(function(), self._context)
        return self._turn(more) if shown is None else self._turn_at(shown, more)

    def feed(self, row: Row, *, more: bool = False) -> Turn:
        """Feed a row and run the function until it waits. `more` is whether more rows are left to feed.

        A row about a call that the function has dropped changes nothing.

        Raises:
            NondeterminismError: The row does not match the function's calls.
            DebuggerLeftError: The user left a debugger that had stopped the function.
            CompensationError: The function has failed, and a compensation failed for good.
            UnreadableValueError: A recorded value can't be decoded. No more code has run.
            WorkflowStalledError: The turn does not end.
            Evicted: The machine was given up during the turn.
        """
        check_thread()
        self._loop.set_clock(row.at)
        self.rows = self._loop.row = row.number
        match row.event:
            case StepCompleted() as event:  # first, because most rows are
                if self._expected(row, event) is not None:
                    del self._open[event.call]
                    self._keep_arguments(event)
                    self._loop.answer(event.call, event.output)
            case Cancelling(reason=reason):
                self._cancel(reason)
            case SignalReceived() | UpdateReceived():
                self._put(row)
            case ChildEnded() as ended:
                self._loop.children.end(ended, row.number, wakes=not self._is_over)
            case UpdateReplied() as reply:
                self._loop.replies.arrive(reply, row.number, wakes=not self._is_over)
            case ChannelClosed(channel=channel) as closed:
                self._loop.inboxes.close(channel)
                if self._expected(row, closed) is not None:
                    del self._open[closed.call]
                    self._loop.answer(closed.call, None)
            case TopicSubscribed(channel=channel) as subscribed:
                if subscribed.is_end:
                    self._loop.inboxes.discard(channel)
                else:
                    self._loop.inboxes.reopen(channel)
                if self._expected(row, subscribed) is not None:
                    del self._open[subscribed.call]
                    self._loop.answer(subscribed.call, None)
            case StepQueued() as queued:
                self._expected(row, queued)
                self._keep_arguments(queued)
            case event:
                if (request := self._expected(row, event)) is not None:
                    del self._open[event.call]
                    self._answer(request, event)
        return self._turn(more) if row.shown is None else self._turn_at(row.shown, more)

    def _put(self, row: Row) -> None:
        """Deliver a message or an update to the function."""
        match row.event:
            case SignalReceived() as signal:
                message = Message(row.number, signal.channel, signal.text, signal.checked, signal.sender)
                for call in self._loop.inboxes.put(message):
                    if call in self._open:
                        self._loop.fail(call, UnreadMessagesError(signal.channel))
                        self._loop.dropped.append(call)
            case UpdateReceived() as update if not self._is_over:
                self._loop.updates.receive(update, row.number)
            case _:
                self._late += (row.number,)

    def feed_steps(
        self, rows: Sequence[ParsedRow], place: int, *, past: int, apart: Collection[int]
    ) -> tuple[int, Turn | None]:
        """Feed results of consecutive steps from index `place`; return the index of the next row, and a turn or None.

        This does the same as `feed` for each row, but faster. It stops before a row that is not the inline result of an
        awaited step, is numbered above `past`, or is in `apart`. It also stops after a row that makes the function do
        more than call inline steps and wait; the turn of that row is returned.

        Raises as `feed`, about the row whose number is `self.rows`.
        """
        check_thread()
        loop, open_, task = self._loop, self._open, self._task
        assert task is not None
        start, is_plain, places, result = place, self._is_waiting, len(rows), events.StepCompleted.type
        with loop.in_thread:
            while is_plain and place < places:
                parsed = rows[place]
                row = parsed[0]
                if row.type != result:
                    break
                call, step, given = completed_step(parsed)
                number, payload = row.number, row.payload
                request = open_.get(call)
                if not (
                    number <= past
                    and payload is not None
                    and (output := payload.inline) is not None
                    and isinstance(request, StepRequest)
                    and request.step == step
                    and number not in apart
                ):
                    break
                place += 1
                self.rows = loop.row = number
                loop.set_clock(row.at)
                loop.was_read = False
                loop.is_replaying = number < past
                del open_[call]
                if given is not None:
                    loop.keep_arguments(call, given)
                loop.answer(call, output)
                try:
                    loop.run_until_quiet_here()
                except WorkflowStalledError:
                    raise
                except BaseException as error:  # noqa: BLE001  # as `_run`
                    self._exit = self._exit or error
                is_over = task.done() or self._exit is not None or self._is_given_up
                is_plain = loop.has_only_requests and not is_over
                if is_plain:
                    for one in loop.requests:
                        open_[one.call] = one
                        is_plain = is_plain and isinstance(one, StepRequest) and one.queue is None
                    if is_plain:
                        loop.requests.clear()
        if is_plain or place == start:
            return place, None
        self._keep_result()
        return place, self._come_to()

    @property
    def is_in_memory(self) -> bool:
        """Whether the function has begun and not ended, so that it has to be evicted."""
        return self in _IN_MEMORY

    def evict(self) -> None:
        """Evict the function from memory. None of its code has any effect from now on."""
        check_thread()
        if self._loop.is_running():  # in another thread
            self.give_up()
            return
        if self in _IN_MEMORY:
            _IN_MEMORY.remove(self)
            self._loop.evict(self._context)
        if (leave := self._leave) is not None:
            self._leave = None
            self._context.run(leave)

    @property
    def turn(self) -> int:
        """The number of the loop's turn, odd while the function runs. May be read from any thread."""
        return self._loop.turn

    def give_up(self) -> None:
        """Refuse all further calls of a function whose turn may never end. May be called from any thread.

        The thread that drives it evicts it, if the turn ends.
        """
        self._is_given_up = self._loop.is_evicted = True

    def _forget(self, requests: Mapping[str, Request]) -> None:
        """Register dropped calls: rows with their outcomes change nothing."""
        if self._forgotten is _NOTHING:
            self._forgotten = {}
        cast("dict[str, Request]", self._forgotten).update(requests)

    def _keep_arguments(self, event: StepCompleted | StepFailed | StepQueued) -> None:
        if event.given is not None:
            self._loop.keep_arguments(event.call, event.given)

    def _cancel(self, reason: str) -> None:
        assert self._task is not None
        self.is_cancelled = self._loop.is_cancelling = True
        if self._is_over:
            return
        saga = FunctionLoop.saga.of(self._loop)
        if saga is None or not saga.is_under_way:
            self._task.cancel(reason or None)

    async def _compensate(self, others: Sequence[Task[Any]]) -> None:
        """Cancel the other tasks, wait for them, and run the compensations of a failed function."""
        for task in others:
            task.cancel()
        if others:
            await wait(others)
        try:
            await self._loop.saga.compensate()
        except HoldfastError as error:
            self._fault = error
        except Exception as error:  # noqa: BLE001  # any error of a compensation blocks the run
            self._fault = CompensationError("what it did", error_words(error))

    def _expected(self, row: Row, event: CallOutcome | StepQueued) -> Request | None:
        """Return the open request that a row is about; None for a dropped call. NondeterminismError without a match."""
        request = self._open.get(event.call)
        known = request or self._forgotten.get(event.call)
        if isinstance(known, StepRequest) and isinstance(event, StepCompleted):
            is_known = known.step == event.step
        else:
            is_known = known is not None and known.what == event.what
        if is_known:
            return request
        recorded = f"{event.what} ({row.site})" if row.site else event.what
        if known is not None:
            instead = (
                f"the code requests {known.what} ({known.site})" if known.site else f"it is {known.what}"
            )
        elif self._has_ended:
            instead = "the function has ended without it"
        else:
            others = ", ".join(
                f"{one.what} ({one.site}) as {call}" if one.site else f"{one.what} as {call}"
                for call, one in self._open.items()
            )
            instead = f"the code has not requested it by then; it waits for {others or 'nothing'}"
        raise NondeterminismError(row=row.number, call=event.call, recorded=recorded, requested=instead)

    def _answer(self, request: Request, event: CallOutcome) -> None:
        match request, event:
            case TimerRequest(), TimerFired():
                self._loop.fire(request.call)
            case ChildRequest(), ChildStarted(run=run, error=None):
                self._loop.answer(request.call, run)
            case ChildRequest(), ChildStarted(error=str(error), code=ConcurrencyFullError.code):
                self._loop.fail(request.call, ConcurrencyFullError(error))
            case ChildRequest(), ChildStarted(error=str(error), code=RateExceededError.code):
                self._loop.fail(request.call, RateExceededError(error))
            case ChildRequest(), ChildStarted(run=run, error=str(error), code=InvalidCommandError.code):
                self._loop.fail(request.call, ChildRefusedError(run, error, is_taken=False))
            case ChildRequest(), ChildStarted(run=run, error=str(error)):
                self._loop.fail(request.call, ChildRefusedError(run, error))
            case PublishRequest(), MessagePublished():
                self._loop.answer(request.call, None)
            case NotifyRequest(), RunNotified(error=None):
                self._loop.answer(request.call, None)
            case NotifyRequest(), RunNotified(run=run, closed=str(channel)):
                self._loop.fail(request.call, ChannelClosedError(run, channel))
            case NotifyRequest(), RunNotified(run=run, error=str(error)):
                self._loop.fail(request.call, SignalRefusedError(run, error))
            case UpdateRequest(), UpdateSent(error=None):
                self._loop.answer(request.call, None)
            case UpdateRequest(), UpdateSent(run=run, code=RunNotFoundError.code):
                self._loop.fail(request.call, RunNotFoundError(run))
            case UpdateRequest(), UpdateSent(run=run, error=str(error)):
                self._loop.fail(request.call, UpdateRefusedError(run, error))
            case StepRequest(), StepFailed(error=raised):
                self._keep_arguments(event)
                self._loop.fail(request.call, error_from(raised))
            case _:
                raise AssertionError(f"{event} answers {request}")

    @property
    def _has_ended(self) -> bool:
        return self._is_over

    def _turn_at(self, shown: Micros, more: bool) -> Turn:
        with self._loop.showing(shown):
            return self._turn(more)

    def _turn(self, more: bool) -> Turn:
        """Run the function until it waits, and return the turn."""
        self._loop.was_read = False
        self._loop.is_replaying = more
        self._run_until_quiet()
        return self._come_to()

    def _come_to(self) -> Turn:
        """Return the turn that has just run. Starts the compensations of a failed function."""
        loop = self._loop
        if self._is_given_up:
            self.evict()
            raise Evicted
        self._check_fault()
        if self._is_waiting and not loop.dropped:
            return self._waiting()
        if _left_debugger(self._error):
            raise DebuggerLeftError
        if self._has_failed and FunctionLoop.saga.of(loop) and self._undoing is None:
            loop.saga.is_under_way = True
            self._undoing = loop.begin(self._compensate(loop.tasks()), self._context, path="undo")
            self._run_until_quiet()
        self._check_fault()
        requests = {one.call: one for one in loop.requests}
        self._open.update(requests)
        dropped: list[str] = []
        for call in loop.dropped:
            if (one := self._open.pop(call, None)) is not None:
                self._forget({call: one})
                if requests.pop(call, None) is None:
                    dropped.append(call)
        produced = loop.take_turn(())
        loop.requests.clear()
        loop.dropped.clear()
        ended = self._end()
        if ended is not None:
            if failures := loop.failures:
                self.failures = failures
            # Tasks that were not awaited end with the function, and their calls are dropped.
            self._forget(self._open)
            dropped += (call for call in self._open if call not in requests)
            self._open.clear()
            requests.clear()
            self.evict()
        return evolve(produced, requests=tuple(requests.values()), dropped=tuple(dropped), ended=ended)

    def _check_fault(self) -> None:
        """Raise the error that halted the function, if any."""
        if (fault := self._loop.fault or self._fault) is not None:
            raise fault

    def _waiting(self) -> Turn:
        """Return a turn after which the function waits and that dropped no call, as most turns."""
        loop = self._loop
        requests = tuple(loop.requests)
        if requests:
            loop.requests.clear()
            for one in requests:
                self._open[one.call] = one
        return loop.take_turn(requests)

    @property
    def _is_waiting(self) -> bool:
        """Whether the function has neither ended, nor halted, nor continued as a new generation."""
        task = self._task
        assert task is not None
        loop = self._loop
        return not task.done() and self._exit is None and loop.next_generation is None and loop.fault is None

    def _run_until_quiet(self) -> None:
        self._run(self._loop.run_until_quiet)
        self._keep_result()

    def _run(self, run: Callable[[], None]) -> None:
        try:
            run()
        except WorkflowStalledError:
            raise
        except BaseException as error:  # noqa: BLE001  # `sys.exit()` in a function ends it, and nothing else
            self._exit = self._exit or error

    def _keep_result(self) -> None:
        """Keep the function's result, encoded outside of the loop, or the arguments of its cancellation."""
        task = self._task
        assert task is not None
        if task.done() and task.cancelled():
            try:
                task.result()
            except CancelledError as error:  # asyncio returns the original error only once
                self._cancelled_with = self._cancelled_with or error.args
        elif task.done() and self._result is None and task.exception() is None:
            try:
                self._result = self._encode(task.result())
            except Exception as error:  # noqa: BLE001  # user classes may raise anything when they are encoded
                self._result = error

    @property
    def _has_failed(self) -> bool:
        task = self._task
        assert task is not None
        return (task.done() and task.cancelled()) or self._error is not None

    @property
    def _error(self) -> BaseException | None:
        """What the function has raised, other than its cancellation; or the error of encoding its result."""
        task = self._task
        assert task is not None
        if self._exit is not None:
            return self._exit
        if not task.done() or task.cancelled():
            return None
        raised = task.exception()
        return explained(raised) if raised else self._result if isinstance(self._result, Exception) else None

    def _end(self) -> Ended | None:
        """Return the end of the function; None if it has not ended or its compensations are running."""
        task = self._task
        assert task is not None
        if self._is_over or (self._undoing is not None and not self._undoing.done()):
            return None
        if self._exit is not None:
            self._is_over = True
            return FunctionFailed(self._exit)
        if (goes_on := self._loop.next_generation) is not None:
            self._is_over = True
            return attrs.evolve(goes_on, unread=self._loop.updates.left)
        if not task.done():
            return None
        self._is_over = True
        if task.cancelled():
            return FunctionFailed(CancelledError(*self._cancelled_with))
        if (raised := self._error) is not None:
            return FunctionFailed(raised)
        assert isinstance(self._result, str)
        return FunctionReturned(self._result, unawaited=tuple(self._loop.unawaited))


def in_memory() -> frozenset[FunctionMachine]:
    """Return all machines that have begun and not ended."""
    return frozenset(_IN_MEMORY)


def evict_all(besides: Collection[FunctionMachine] = ()) -> None:
    """Evict all functions but those of `besides`, at the end of a process."""
    for machine in tuple(_IN_MEMORY):
        if machine not in besides:
            machine.evict()


def _left_debugger(error: BaseException | None) -> bool:
    """Whether a function ended because the user left a debugger in it, which is not a failure of the function."""
    leaves = () if error is None else leaves_of(error)
    return any((type(leaf).__module__, type(leaf).__name__) == ("bdb", "BdbQuit") for leaf in leaves)
