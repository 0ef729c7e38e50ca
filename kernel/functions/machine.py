"""Drives one durable function: it is told the rows of its run's history, in order, and says what it asks for.

Nothing else reaches it, live or in a replay, so it comes to the same each time. Pure but for the code that it drives:
it neither waits nor knows what time it is.
"""

from asyncio import Task, wait
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextvars import Context
from typing import Any, Final, TypeAlias, TypeVar, cast

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
    Answer,
    Cancelling,
    ChannelClosed,
    ChildEnded,
    ChildNotified,
    ChildRequest,
    ChildStarted,
    Ended,
    Failed,
    NotifyRequest,
    Raised,
    Request,
    Returned,
    Row,
    SignalReceived,
    StepCompleted,
    StepFailed,
    StepQueued,
    StepRequest,
    TimerFired,
    TimerRequest,
    Turn,
    UpdateReceived,
)
from holdfast.kernel.functions.tasks import RunTask
from holdfast.kernel.history.exceptions import error_from, error_words
from holdfast.ports.errors import (
    ChannelClosedError,
    ChildRefusedError,
    CompensationError,
    DebuggerLeftError,
    HoldfastError,
    NondeterminismError,
    RestlessError,
    SignalRefusedError,
    StorageRefusedError,
    UnreadMessagesError,
)
from holdfast.ports.records import STEP_COMPLETED, STEP_GIVEN, HistoryRow, Micros

T = TypeVar("T")
Known: TypeAlias = tuple[HistoryRow, Mapping[str, Any]]
"""A row, and what its JSON tells."""

_NOTHING: Final[Mapping[str, Request]] = {}
"""Shared by all functions that have forgotten nothing: an empty dict of its own takes 64 bytes."""
_IN_MEMORY: Final["set[FunctionMachine]"] = set()
"""What must not be collected: code that tidies up would run then, and take its steps for ordinary functions."""


class FunctionMachine:
    """One life of one run's function. Not thread-safe, and not to be driven where an event loop runs.

    Args:
        function: Calls the function, with the loop as the one that runs.
        encode: Gives the JSON text of what it returns. Raises what says that it can't be stored.
        began_at: When the run began.
        seed: What it draws is a function of this.
    """

    # Those of a function that has ended are set then: most are in memory while they rest, and take less without.
    failures: Sequence[tuple[str, BaseException]] = ()
    """What its tasks had raised when it ended that nobody has asked for, with the names of what the tasks ran."""
    _cancelled_with: tuple[object, ...] = ()

    def __init__(
        self,
        function: Callable[[], Coroutine[Any, Any, object]],
        encode: Callable[[object], str],
        *,
        began_at: Micros,
        seed: str,
    ) -> None:
        self.began_at = began_at
        self._function: Callable[[], Coroutine[Any, Any, object]] | None = function
        self._encode = encode
        self._loop = new_loop(began_at=began_at, seed=seed)
        self._context = Context()
        self._task: RunTask[object] | None = None
        self._open: dict[str, Request] = {}
        self._forgotten: Mapping[str, Request] = _NOTHING
        self._is_over = False
        self._late: tuple[int, ...] = ()
        """The numbers of the updates that have come since it ended."""
        self._is_given_up = False
        self._undoing: RunTask[None] | None = None
        self._exit: BaseException | None = None
        """What it has raised that is no Exception, `SystemExit` say."""
        self._result: str | Exception | None = None
        """The JSON text of what it has returned, or why that can't be kept."""
        self._fault: HoldfastError | None = None
        self.rows = 0
        """The number of the row that it was told last."""
        self.is_cancelled = False
        """Whether it was told to end."""

    @property
    def pending_requests(self) -> tuple[Request, ...]:
        """What it waits for, in the order in which it has asked."""
        return tuple(self._open.values())

    @property
    def timers(self) -> Sequence[TimerRequest]:
        """The timers among what it waits for."""
        if not self._loop.has_timers:  # of many calls there mostly is none
            return ()
        return [one for one in self._open.values() if isinstance(one, TimerRequest)]

    @property
    def has_timers(self) -> bool:
        """Whether it waits for a timer."""
        return self._loop.has_timers

    def waits_for(self, call: str) -> Request | None:
        """Return what was asked for by a call that it waits for; None if it does not."""
        return self._open.get(call)

    def speak_to(self, speaker: object) -> None:
        """Say to whom it is told from here on what the function logs."""
        self._loop.speaker = speaker

    @property
    def kept(self) -> int:
        """How many tasks and async generators are kept in memory, ended ones too."""
        return self._loop.kept

    @property
    def waits_for_others(self) -> bool:
        """Whether it waits for what only others can bring: a message, an update, or the end of a run."""
        return self._loop.waits_for_others

    @property
    def awaited_channels(self) -> tuple[str, ...]:
        """The names of the channels from which it awaits messages."""
        return self._loop.awaited_channels

    @property
    def awaited_children(self) -> tuple[str, ...]:
        """The ids of the runs whose ends it awaits."""
        return self._loop.awaited_children

    @property
    def waits_at(self) -> Sequence[str]:
        """Where its tasks wait, as people name it, in the order in which they were made."""
        found = (waits_at(task.get_coro()) for task in self._loop.tasks())
        return [where for where in found if where]

    @property
    def exposed(self) -> Sequence[object]:
        """What others may look at, in the order in which it was exposed; also when the function has ended."""
        updates = FunctionLoop.updates.of(self._loop)
        return () if updates is None else updates.exposed

    def looked_at(self, look: Callable[[], T]) -> T:
        """Make a call that only looks at what is exposed. What it raises, RuntimeError if it does more than look."""
        check_thread()
        return self._context.copy().run(self._loop.looked_at, look)

    @property
    def late(self) -> tuple[int, ...]:
        """The numbers of the rows with updates that were told to it after it had ended."""
        return self._late

    @property
    def received(self) -> list[int]:
        """The numbers of the rows with messages that it has received; whoever drives it takes out what is recorded."""
        inboxes = FunctionLoop.inboxes.of(self._loop)
        return [] if inboxes is None else inboxes.taken

    @property
    def is_ending(self) -> bool:
        """Whether it was told to end, or takes back what it did."""
        return self.is_cancelled or self._undoing is not None

    def refuse_signal(self, number: int) -> None:
        """Have the message of this row passed over when it is told: so it was when it was read first."""
        self._loop.inboxes.pass_over(number)

    def refuse_update(self, call: str, rejected: Raised) -> None:
        """Have an update rejected when it is told, for its arguments could not be read when it was begun first."""
        self._loop.updates.rejected[call] = rejected

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

        `patches` are those that are recorded in all of its history, `more` whether there are rows to tell it. `shown`
        is what its clock shows then, if not `began_at`. `refused` says why the store does not keep what it gives, if it
        was asked to before: so it fails then, and takes back what it did. `inbox` are the messages and updates that are
        there when it begins: its clock does not show an earlier time then.
        """
        function, self._function = self._function, None  # its arguments are the function's alone from here on
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
        """Tell it a row and run it until it waits; `more` says whether there are more of them already.

        A row about a call in which nobody is interested any more changes nothing.

        Raises:
            NondeterminismError: The row is about what it did not ask for.
            DebuggerLeftError: A debugger that stood in it was left.
            CompensationError: It has failed, and can't take back what it did.
            UnreadableValueError: A value of its history is not what it takes. None of its code has run on.
        """
        check_thread()
        self._loop.set_clock(row.at)
        self.rows = self._loop.row = row.number
        match row.event:
            case StepCompleted() as event:  # most rows are that
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
            case ChannelClosed(channel=channel) as closed:
                self._loop.inboxes.close(channel)
                if self._expected(row, closed) is not None:
                    del self._open[closed.call]
                    self._loop.answer(closed.call, None)
            case StepQueued() as queued:
                self._expected(row, queued)
                self._keep_arguments(queued)
            case event:
                if (request := self._expected(row, event)) is not None:
                    del self._open[event.call]
                    self._answer(request, event)
        return self._turn(more) if row.shown is None else self._turn_at(row.shown, more)

    def _put(self, row: Row) -> None:
        """Put a message or an update where the function finds it."""
        match row.event:
            case SignalReceived() as signal:
                message = Message(row.number, signal.channel, signal.text, signal.checked)
                for call in self._loop.inboxes.put(message):
                    if call in self._open:
                        self._loop.fail(call, UnreadMessagesError(signal.channel))
                        self._loop.dropped.append(call)
            case UpdateReceived() as update if not self._is_over:
                self._loop.updates.receive(update, row.number)
            case _:
                self._late += (row.number,)

    def feed_steps(
        self, rows: Sequence[Known], place: int, *, past: int, apart: Collection[int]
    ) -> tuple[int, Turn | None]:
        """Tell it rows from a place on as `feed` would, one after the other; return the place of the next.

        As far as each is what a step gave that it waits for, is there itself, and is not among those `apart`; up to
        the row with the number `past`, behind which there are no more of them. It stops after the first that comes to
        anything else than that it waits, for steps that are done here too: then that turn is returned as well.

        Raises as `feed`, of the row with the number `rows`.
        """
        check_thread()
        loop, open_, task = self._loop, self._open, self._task
        assert task is not None
        start, is_plain, places = place, self._is_waiting, len(rows)
        with loop.in_thread:
            while is_plain and place < places:
                row, facts = rows[place]
                number, payload = row.number, row.payload
                request = open_.get(call := facts.get("call", ""))
                if not (
                    row.type == STEP_COMPLETED
                    and number <= past
                    and payload is not None
                    and (output := payload.inline) is not None
                    and isinstance(request, StepRequest)
                    and request.step == facts.get("step", "")
                    and number not in apart
                ):
                    break
                place += 1
                self.rows = loop.row = number
                loop.set_clock(row.at)
                loop.was_read = False
                loop.is_replaying = number < past
                del open_[call]
                if STEP_GIVEN in facts:
                    loop.keep_arguments(call, facts[STEP_GIVEN])
                loop.answer(call, output)
                try:
                    loop.run_until_quiet_here()
                except RestlessError:
                    raise
                except BaseException as error:  # noqa: BLE001  # as `_run`
                    self._exit = self._exit or error
                is_over = task.done() or self._exit is not None or self._is_given_up
                is_plain = loop.has_only_requests and not is_over
                for one in loop.requests:
                    is_plain = is_plain and isinstance(one, StepRequest) and one.queue is None
                if is_plain:
                    for one in loop.requests:
                        open_[one.call] = one
                    loop.requests.clear()
        if is_plain or place == start:
            return place, None
        self._keep_result()
        return place, self._come_to()

    @property
    def is_in_memory(self) -> bool:
        """Whether there is anything to be taken out of memory: it has begun, and not ended."""
        return self in _IN_MEMORY

    def evict(self) -> None:
        """Take the function out of memory. None of its code has any effect from here on."""
        check_thread()
        if self._loop.is_running():  # in another thread
            self.give_up()
        elif self in _IN_MEMORY:
            _IN_MEMORY.remove(self)
            self._loop.evict(self._context)

    @property
    def turn(self) -> int:
        """Which turn it is in, an odd number while the function runs. To be asked from any thread."""
        return self._loop.turn

    def give_up(self) -> None:
        """Have it taken out of memory by whoever drives it, should this turn ever end. From any thread.

        Whatever it asks for from here on is refused.
        """
        self._is_given_up = self._loop.is_evicted = True

    def _forget(self, requests: Mapping[str, Request]) -> None:
        """Note that nobody waits for what was asked for. What comes of it all the same changes nothing."""
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
        """Take back what the function has done that has failed, once all else that it has begun is over."""
        for task in others:
            task.cancel()
        if others:
            await wait(others)
        try:
            await self._loop.saga.compensate()
        except HoldfastError as error:
            self._fault = error
        except Exception as error:  # noqa: BLE001  # whatever it is, somebody has to look at it
            self._fault = CompensationError("what it did", error_words(error))

    def _expected(self, row: Row, event: Answer | StepQueued) -> Request | None:
        """Return what was asked for by the call that a row is about; None if that was dropped."""
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
                f"the code asks for {known.what} ({known.site})" if known.site else f"it is {known.what}"
            )
        elif self._has_ended:
            instead = "the function has ended without it"
        else:
            others = ", ".join(
                f"{one.what} ({one.site}) as {call}" if one.site else f"{one.what} as {call}"
                for call, one in self._open.items()
            )
            instead = f"the code has not asked for it by then; it waits for {others or 'nothing'}"
        raise NondeterminismError(row=row.number, call=event.call, recorded=recorded, asked=instead)

    def _answer(self, request: Request, event: Answer) -> None:
        match request, event:
            case TimerRequest(), TimerFired():
                self._loop.fire(request.call)
            case ChildRequest(), ChildStarted(run=run, error=None):
                self._loop.answer(request.call, run)
            case ChildRequest(), ChildStarted(run=run, error=str(error)):
                self._loop.fail(request.call, ChildRefusedError(run, error))
            case NotifyRequest(), ChildNotified(error=None):
                self._loop.answer(request.call, None)
            case NotifyRequest(), ChildNotified(run=run, closed=str(channel)):
                self._loop.fail(request.call, ChannelClosedError(run, channel))
            case NotifyRequest(), ChildNotified(run=run, error=str(error)):
                self._loop.fail(request.call, SignalRefusedError(run, error))
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
        """Run the function until it waits, and return what has come of that."""
        self._loop.was_read = False
        self._loop.is_replaying = more
        self._run_until_quiet()
        return self._come_to()

    def _come_to(self) -> Turn:
        """Return what has come of a turn."""
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
        patches, answers, published, refused = loop.take_outputs()
        loop.requests.clear()
        loop.dropped.clear()
        ended = self._end()
        if ended is not None:
            if failures := loop.failures:
                self.failures = failures
            # Tasks that were not waited for end with the function. What they wait for, nobody is interested in.
            self._forget(self._open)
            dropped += (call for call in self._open if call not in requests)
            self._open.clear()
            requests.clear()
            self.evict()
        return Turn(
            requests=tuple(requests.values()),
            dropped=tuple(dropped),
            patches=patches,
            answers=answers,
            published=published,
            refused=refused,
            read_clock=loop.was_read,
            ended=ended,
        )

    def _check_fault(self) -> None:
        """Raise why it can't go on, if it can't."""
        if (fault := self._loop.fault or self._fault) is not None:
            raise fault

    def _waiting(self) -> Turn:
        """Return what has come of a turn after which the function waits, if nothing was dropped: so most turns end."""
        loop = self._loop
        requests = tuple(loop.requests)
        if requests:
            loop.requests.clear()
            for one in requests:
                self._open[one.call] = one
        patches, answers, published, refused = loop.take_outputs()
        return Turn(
            requests=requests,
            patches=patches,
            answers=answers,
            published=published,
            refused=refused,
            read_clock=loop.was_read,
        )

    @property
    def _is_waiting(self) -> bool:
        """Whether the function waits: it has neither ended nor asked to go on as a new generation."""
        task = self._task
        assert task is not None
        loop = self._loop
        return not task.done() and self._exit is None and loop.goes_on is None and loop.fault is None

    def _run_until_quiet(self) -> None:
        self._run(self._loop.run_until_quiet)
        self._keep_result()

    def _run(self, run: Callable[[], None]) -> None:
        try:
            run()
        except RestlessError:
            raise
        except BaseException as error:  # noqa: BLE001  # `sys.exit()` in a function ends it, and nothing else
            self._exit = self._exit or error

    def _keep_result(self) -> None:
        """Keep what the function has given, if it has: that is encoded where no loop runs."""
        task = self._task
        assert task is not None
        if task.done() and task.cancelled():
            try:
                task.result()
            except CancelledError as error:  # asyncio gives it once with what it was raised with
                self._cancelled_with = self._cancelled_with or error.args
        elif task.done() and self._result is None and task.exception() is None:
            try:
                self._result = self._encode(task.result())
            except Exception as error:  # noqa: BLE001  # a user's class may do anything when it is encoded
                self._result = error

    @property
    def _has_failed(self) -> bool:
        task = self._task
        assert task is not None
        return (task.done() and task.cancelled()) or self._error is not None

    @property
    def _error(self) -> BaseException | None:
        """What it has raised, but for its cancellation."""
        task = self._task
        assert task is not None
        if self._exit is not None:
            return self._exit
        if not task.done() or task.cancelled():
            return None
        raised = task.exception()
        return explained(raised) if raised else self._result if isinstance(self._result, Exception) else None

    def _end(self) -> Ended | None:
        """Return how the function has ended, if it has."""
        task = self._task
        assert task is not None
        if self._is_over or (self._undoing is not None and not self._undoing.done()):
            return None
        if self._exit is not None:
            self._is_over = True
            return Failed(self._exit)
        if (goes_on := self._loop.goes_on) is not None:
            self._is_over = True
            return attrs.evolve(goes_on, unread=self._loop.updates.left)
        if not task.done():
            return None
        self._is_over = True
        if task.cancelled():
            return Failed(CancelledError(*self._cancelled_with))
        if (raised := self._error) is not None:
            return Failed(raised)
        assert isinstance(self._result, str)
        return Returned(self._result, unawaited=tuple(self._loop.unawaited))


def in_memory() -> frozenset[FunctionMachine]:
    """Return the machines of all functions that are in memory."""
    return frozenset(_IN_MEMORY)


def evict_all(besides: Collection[FunctionMachine] = ()) -> None:
    """Take all functions out of memory, besides these: a program does so before it ends."""
    for machine in tuple(_IN_MEMORY):
        if machine not in besides:
            machine.evict()


def _left_debugger(error: BaseException | None) -> bool:
    """Whether a function has ended only because a debugger did that stood in it. That is no failure of its own."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(_left_debugger, cast("BaseExceptionGroup[BaseException]", error).exceptions))
    return error is not None and (type(error).__module__, type(error).__name__) == ("bdb", "BdbQuit")
