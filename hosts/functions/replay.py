"""Replay of a durable function: feeds it the rows of its history and collects what it requests.

A function is never continued from saved variables, only from its history (docs/decisions/0020): its machine calls it
from the first line and feeds it one row at a time, and after each row the function runs until it waits again.
`FunctionReplay` connects the rows of the store with that machine (`kernel/functions/machine.py`, which matches rows
with calls). It turns a row into an event, feeds it, and collects the requests of the function: steps, queued steps,
timers, child runs, replies to updates, published values. The driver (driver.py) executes and records them. Queries,
exported histories and upgrade checks use the same class and execute nothing.

There is no replay mode. Live runs, takeovers and replays feed the same rows in the same order. The object that a step
returned does not go to the function: what it gets is decoded from the row. So code that replays here continues there.

Rows get in by four methods. `open` calls the function and feeds its whole history. `take` feeds the rows of the
answer to a record. `resume` continues a function that was kept in memory; it refuses if the new rows do not follow
the last one, or if another driver wrote one of them, and then the function must be replayed. `feed_ahead` feeds the
result of a step that is probably the last one before its row is stored (docs/decisions/0126). If another row is stored
in its place, `take` raises OvertakenError, and the function must be replayed too.

Two row numbers matter. `seen` is the last row that was fed; `take` skips rows up to it, so an answer may be fed
twice. `stored` is the last row that exists because some code requested something or read its clock. Up to `stored`
the clock shows what it showed before. A later row that is fed more than a second late shows the current time instead,
and if the function reads its clock then, that reading becomes a row (docs/decisions/0037).

Some rows must be known before earlier rows are fed, because they record how the function was answered then: active
patches, clock readings, refused messages, updates and results, and which messages its first turn had. `open` reads
them first.

What is guaranteed:

- No threads, no waiting and no clock: `now` is passed in. But `text` may read a blob store, and `open`, `take` and
  `resume` run user code: call them in a thread without a running event loop.
- A row counts as seen only once its payload was read. Errors of a store are raised, and `take` can be repeated. After
  a failed `open` or `resume` the drive must be closed and replaced, as loader.py does.
- Other errors of Holdfast, such as nondeterminism, are not raised: they end the drive as its `fault`.
- What `notes` returns must be stored before anything new is started, because the function already relies on it.

What is ugly and why it stays:

- An event is matched in two places: `function_event` (what the function receives) and `_learn` (what the drive needs).
  Some events concern both. One pass in the order of the rows keeps the state between two rows exactly what it was live.
- `_feed_steps` feeds consecutive results of steps in bulk (docs/decisions/0045): a second path with the effect of the
  first, in about 60 % of its time.
- `_todo` and `queues` are created on demand and dropped while the function waits, because a worker keeps a thousand
  functions in memory. Frequent paths test `_made_queues` so that they do not create one.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeVar, cast

import attrs

from holdfast.hosts.execution.attempt_runtime import AttemptRuntime
from holdfast.hosts.execution.failures import MESSAGE_MAX
from holdfast.hosts.functions.function_events import (
    Texts,
    first_turn_rows,
    function_event,
    is_unreadable,
    last_first_turn_row,
    last_message_row,
    payload_of,
    type_of_answer,
)
from holdfast.hosts.functions.pending_calls import PendingWork, QueuedSteps, StepAttempt
from holdfast.kernel.authoring.steps import Step
from holdfast.kernel.commands import (
    EventAppend,
    EventPublish,
    FunctionRecord,
    JobRecorded,
    PublishedEvent,
    StepCancel,
    StepFail,
    TimerFire,
)
from holdfast.kernel.functions.lazy_parts import Part
from holdfast.kernel.functions.loop import CancelledError
from holdfast.kernel.functions.machine import FunctionMachine
from holdfast.kernel.functions.protocol import (
    CloseRequest,
    Ended,
    FunctionContinued,
    FunctionEvent,
    FunctionFailed,
    FunctionOutput,
    FunctionReturned,
    RecordedRequest,
    Row,
    StepCompleted,
    StepQueued,
    StepRequest,
    TimerRequest,
    Turn,
    UpdateOutcome,
)
from holdfast.kernel.history import events, limits
from holdfast.kernel.history.events.parsed_rows import ParsedRow, completed_step, parse_rows
from holdfast.ports.errors import (
    STORE_ERRORS,
    CancelRun,
    HistoryFullError,
    HoldfastError,
    InvalidValueError,
    NondeterminismError,
    StepResultError,
    WorkflowStalledError,
)
from holdfast.ports.events import USER_EVENTS
from holdfast.ports.mailboxes import mailbox_from
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.records.values import Micros, Payload
from holdfast.ports.structs import evolve

T = TypeVar("T")


class OvertakenError(Exception):
    """A function received the result of a step before another row that is stored before it. It must be replayed."""


@attrs.define(eq=False)
class FedAhead:
    """The result of a step that a function has received before its row is stored."""

    step: EventAppend
    after: int
    """The number of the last stored row that the function had received."""
    turn: Turn = attrs.field(factory=Turn)
    """What the function did with it."""


BEHIND_MAX: Final[Micros] = 1_000_000
"""Microseconds that the clock of a function may be behind when a row is fed."""
_NO_ROWS: Final[frozenset[int]] = frozenset()
"""Shared by all functions without unread messages: an empty set for each would take 216 bytes."""
_CONCERN_IT: Final = (
    events.FUNCTION_EVENTS
    | events.READ_FIRST
    | events.types_where(lambda event: event.requested_by_code)
    | {events.StepRetrying.type, events.StepStarted.type, events.RunBlocked.type}
)
"""The types of events that concern the function or its drive. Others, such as pauses, are not even decoded."""


class FunctionReplay:
    """A function with its machine, its position in the history, and its pending requests.

    `text` returns the JSON text of a payload.
    """

    __slots__ = (
        "_machine",
        "_made_queues",
        "_made_todo",
        "_recorded_mailbox",
        "_runtime",
        "_text",
        "_was_full",
        "ahead",
        "ended",
        "fault",
        "has_published",
        "is_paused",
        "seen",
        "stored",
    )

    queues = Part(lambda _: QueuedSteps())
    """The queued steps."""
    _todo = Part(lambda _: PendingWork())

    def __init__(self, machine: FunctionMachine, text: Texts) -> None:
        self._machine = machine
        self._text = text
        self.seen = 0
        """The number of the last row that was fed."""
        self.ahead: FedAhead | None = None
        """The result that was fed before its row is stored, until an answer has the row."""
        self.ended: Ended | None = None
        self.fault: HoldfastError | None = None
        """Why the function cannot continue; None if it can."""
        self.is_paused = False
        self.has_published = False
        """Whether the history has published values, of this or an earlier generation."""
        self.stored = 0
        """The number of the last row that exists because some code requested something or read its clock."""
        self._made_queues: QueuedSteps | None = None
        self._recorded_mailbox: tuple[int, frozenset[int]] | None = None
        """The last row of the run when it was read, and the unread messages according to its mailbox."""
        self._was_full = 0
        """How often the run was blocked because its history was full."""
        self._runtime: AttemptRuntime | None = None
        """What receives the function's output; None while it is only replayed."""

    def open(
        self, history: Sequence[HistoryRow], *, seen: int = 0, now: Micros | None = None, begins: bool = False
    ) -> None:
        """Call the function and feed it the history after the row `seen`; rows up to that one do not concern it.

        `now` is the current time, for rows that no code has received before; None if it is not needed. With `begins`
        no earlier attempt can have started anything without a row: then a function without recorded progress finds
        all messages and updates so far in its first turn, and `notes` returns a row for that.
        """
        self.seen = seen
        known = parse_rows(history)
        read_first = events.READ_FIRST
        rare = [one for one, row in zip(known, history, strict=True) if row.type in read_first]
        patches = [
            one.read(events.PatchMarked).call for one in rare if one.row.type == events.PatchMarked.type
        ]
        refusals = (one for one in rare if one.row.type == events.ResultRefused.type)
        refused = next((one.read(events.ResultRefused).message for one in refusals), "")
        # What was requested shows how far earlier code came. Messages do not: they may arrive before any code runs.
        past = next((one.row.number for one in reversed(known) if one.is_requested), 0)
        self._read_before(rare)
        stored = self.stored = max(self.stored, past)
        last = last_first_turn_row(rare)
        has_begun = stored or patches or any(one.row.type == events.FunctionBegan.type for one in rare)
        if begins and not has_begun and (came := last_message_row(known)) > last:
            last = self._todo.began = came
        inbox = first_turn_rows(known, last, self._text) if last else []
        began_at = max([self._machine.began_at, *(row.at for row in inbox)])
        shown = self._shows(0, began_at, None if stored else now)
        try:
            turn = self._machine.begin(
                more=past > 0, patches=patches, shown=shown, refused=refused, inbox=inbox
            )
            self._note(turn, 0, began_at, shown)
        except HoldfastError as error:
            self.fault = error
        else:
            there = {row.number for row in inbox}
            left = [one for one in known if one.row.number not in there] if there else known
            self._feed(left, now, past=past, stored=stored)
            self.seen = max(self.seen, *there, 0) if there else self.seen
            self._todo.new = self._open_steps()

    def know(self, run: Run) -> None:
        """Note which messages are unread according to the run, which was read before its history."""
        unread = mailbox_from(run.mailbox).unread
        self._recorded_mailbox = run.last_row, frozenset(unread) if unread else _NO_ROWS

    def received(self) -> tuple[int, ...]:
        """Return the row numbers of the messages that the function has received and that are not recorded as such."""
        taken = self._machine.received
        if taken and self._recorded_mailbox is not None:
            last, unread = self._recorded_mailbox
            taken[:] = [number for number in taken if number > last or number in unread]
            self._recorded_mailbox = None
        return tuple(taken)

    def report_to(self, runtime: AttemptRuntime, after: int) -> None:
        """Pass on what the function reports in turns after this row, such as its log, to this attempt.

        What it has reported before is stored; -1 if it has reported nothing.
        """
        self._runtime = runtime
        self._machine.report_after(after)

    def take(self, answer: JobRecorded, *, now: Micros | None = None, received: Collection[int] = ()) -> None:
        """Feed the rows of an answer, by any writer. `now` is the current time.

        The record behind the answer contained the row numbers `received`.
        """
        if self.ahead is not None and answer.rows:
            self.confirm(self.ahead, answer)
        if received and answer.status == "recorded":
            recorded = frozenset(received)
            self._machine.received[:] = [one for one in self._machine.received if one not in recorded]
        self.is_paused = answer.run_status is RunStatus.PAUSED
        # No other code has received these rows: they are not fed in bulk, and the clock may show the current time.
        known = parse_rows(answer.rows)
        self._read_before(known)
        self._feed(known, now)

    def feed_ahead(self, step: EventAppend, now: Micros, stays_inline: Callable[[str], bool]) -> bool:
        """Feed the result of a step as the next row before it is stored; return whether both can end together.

        `now` is the current time, and `stays_inline` says whether a result goes into its row. They can if the function
        has returned with such a result, and has done nothing else. If not, nothing that
        it has requested may be started before `take` has received the row.
        """
        done = step.event
        assert isinstance(done, events.StepCompleted)
        assert step.payload is not None
        self.ahead = ahead = FedAhead(step, self.seen)
        output = self._text(step.payload)
        number = self.seen = self.stored = self.seen + 1
        event = StepCompleted(call=done.call, step=done.step, output=output, given=done.given)
        try:
            turn = ahead.turn = self._machine.feed(Row(number=number, at=now, event=event, site=done.site))
            self._note(attrs.evolve(turn, outputs=()) if turn.outputs else turn, number, now, None)
        except HoldfastError as error:
            self.fault = error
            return False
        if ahead.turn.outputs or ahead.turn.read_clock or self.has_others:
            return False
        # A result that is kept as a blob would have to be stored before the step is stored.
        return isinstance(self.ended, FunctionReturned) and stays_inline(self.ended.output)

    def confirm(self, ahead: FedAhead, answer: JobRecorded) -> None:
        """Compare the row that was fed before it was stored with the stored one. Raises OvertakenError.

        The stored row has another time: a replay would show that to a function that has read its clock.
        """
        done = ahead.step.event
        assert isinstance(done, events.StepCompleted)
        row = answer.rows[0]
        is_it = row.type == events.StepCompleted.type and events.event_of(row).identity == done.identity
        if not is_it or ahead.turn.read_clock:
            raise OvertakenError
        self.ahead = None
        for output in ahead.turn.outputs:
            self._report(output, row.at)

    def suspend(self) -> None:
        """Detach the function from its driver. It keeps its place until `resume`.

        The attempt that suspends it has reported the received messages; if its settle is refused, the function is not
        resumed.
        """
        self._text = _unread
        self._machine.received.clear()
        self._machine.report_after(None)
        self._runtime = None
        todo = self._todo
        if todo.tries:
            open_calls = {one.call for one in self._machine.pending_requests}
            todo.tries = {call: one for call, one in todo.tries.items() if call in open_calls}
        if not todo:
            FunctionReplay._todo.drop(self)
        if not self.queues:
            FunctionReplay.queues.drop(self)

    def resume(self, new_rows: Sequence[HistoryRow], text: Texts, *, now: Micros | None = None) -> bool:
        """Continue from where the function was suspended, with these rows, as a replay would.

        `now` is the current time. Return False, with nothing fed, if these are not just the next rows, or if another
        driver wrote one of them: then the function must be replayed.
        """
        known = parse_rows(new_rows)
        if not self._are_next(known):
            return False
        self._text = text
        self.is_paused = False
        self._todo.dropped.clear()
        self._todo.new = self._open_steps()
        self._feed(known, now)
        return True

    def _open_steps(self) -> list[StepRequest]:
        """Return the inline steps that the function waits for."""
        return [
            one
            for one in self._machine.pending_requests
            if isinstance(one, StepRequest) and one.queue is None
        ]

    def _are_next(self, new_rows: Sequence[ParsedRow]) -> bool:
        numbers = range(self.seen + 1, self.seen + 1 + len(new_rows))
        return all(
            one.row.number == number and not one.is_requested and one.row.type not in events.RECORDED_FIRST
            for number, one in zip(numbers, new_rows, strict=True)
        )

    @property
    def is_in_memory(self) -> bool:
        """Whether there is anything to `close`; not after the function has ended."""
        return self._machine.is_in_memory

    def close(self) -> None:
        """Evict the function from memory."""
        self._machine.evict()

    def give_up(self, error: WorkflowStalledError) -> None:
        """Abandon a function that computes without waiting in another thread. From any thread."""
        self.fault = error
        self._machine.give_up()

    @property
    def turn(self) -> int:
        """The turn that the function is in; see `FunctionMachine.turn`."""
        return self._machine.turn

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to drive: the function has ended, or cannot continue."""
        return self.ended is not None or self.fault is not None

    @property
    def has_only_steps(self) -> bool:
        """Whether the function continues, and needs nothing but inline steps from its driver."""
        is_elsewhere = self.is_over or self.is_paused or self._machine.has_timers
        return not (is_elsewhere or self.has_others or self.is_full)

    @property
    def waits_for_others(self) -> bool:
        """Whether the function waits for a message, an update, a reply, the end of a run, or a queued step."""
        queues = self._made_queues
        return self._machine.waits_for_others or (queues is not None and queues.are_awaited)

    @property
    def waits_at(self) -> Sequence[str]:
        """The places in the code where the tasks of the function wait, for people."""
        return self._machine.waits_at

    @property
    def is_full(self) -> bool:
        """Whether the history has reached its limit. A function that is cleaning up may exceed it."""
        return not self._machine.is_ending and limits.is_full(self.seen, self._was_full)

    @property
    def failures(self) -> Sequence[tuple[str, BaseException]]:
        """Exceptions of tasks that were never retrieved, each with the name of what the task ran."""
        return self._machine.failures

    @property
    def is_cancelled(self) -> bool:
        """Whether the function ended as cancelled: by a request, or by a CancelRun or CancelledError of its own."""
        ended = self.ended
        return isinstance(ended, FunctionFailed) and isinstance(ended.error, CancelRun | CancelledError)

    @property
    def unread(self) -> frozenset[int]:
        """Row numbers of updates that were not started, for the next generation."""
        left = self.ended.unread if isinstance(self.ended, FunctionContinued) else ()
        return frozenset((*left, *self._machine.late))

    @property
    def has_others(self) -> bool:
        """Whether anything besides inline steps and timers is to be done or recorded."""
        todo, queues = self._todo, self._made_queues
        notes = todo.patches or todo.read or todo.began is not None or todo.refused
        others = todo.children or todo.answers or todo.published or todo.events or notes
        return bool(others or (queues is not None and queues))

    def children(self) -> list[RecordedRequest]:
        """Return the requests that the command which records them carries out, such as starts of child runs."""
        return list(self._todo.children.values())

    def beside(self, call: Callable[[], T]) -> T:
        """Make a call that sees the function's context variables; see `FunctionMachine.beside`."""
        return self._machine.beside(call)

    def notes(self) -> list[EventAppend]:
        """Return the rows to store before anything new is started, because the function relies on them."""
        began = self._todo.began
        notes: list[events.DriverEvent] = [] if began is None else [events.FunctionBegan(row=began)]
        notes += [events.ClockRead(row=row, shown=shown) for row, shown in self._todo.read.items()]
        notes += [
            events.SignalRefused(row=one.number, channel=one.channel, message=one.why[:MESSAGE_MAX])
            for one in self._todo.refused.values()
        ]
        notes += [events.PatchMarked(call=name) for name in self._todo.patches]
        return [EventAppend(event=note) for note in notes]

    def before_suspend(self) -> list[EventAppend]:
        """Return the clock reading to store before the function is suspended.

        A later driver could not reconstruct it, and timers count from it.
        """
        read = self._todo.read_in_time.items()
        return [
            EventAppend(event=events.ClockRead(row=row, shown=at)) for row, at in read if self._is_new(row)
        ]

    def answers(self) -> list[UpdateOutcome]:
        """Return the results of updates to record."""
        return list(self._todo.answers.values())

    def published(self) -> list[EventAppend | EventPublish]:
        """Return the rows for published values and events."""
        values = [
            EventAppend(
                event=events.ValuePublished(name=one.name, number=one.number),
                payload=Payload(inline=one.text),
            )
            for one in self._todo.published.values()
        ]
        return [*values, *self._todo.events.values()]

    def tries(self) -> list[StepAttempt]:
        """Return the steps that were requested since the last call, in order."""
        todo = self._todo
        if not todo.new:
            return []
        new, todo.new = todo.new, []
        waits = self._machine.waits_for
        open_ = [one for one in new if waits(one.call) is not None and not self._is_queued(one.call)]
        return [todo.tries.get(one.call) or StepAttempt(request=one) for one in open_]

    def running_steps(self, now: Micros) -> list[StepAttempt]:
        """Return the next attempts of inline steps that may be running: those that are due."""
        steps = [one for one in self._open_steps() if not self._is_queued(one.call)]
        tries = [self._todo.tries.get(one.call) or StepAttempt(request=one) for one in steps]
        return [one for one in tries if one.at is None or one.at <= now]

    def lost_attempts(self, records: Sequence[FunctionRecord] = ()) -> int:
        """Return the highest number of lost attempts of any open inline step that no record names."""
        waits = self._machine.waits_for
        lost = {
            call: one.lost_attempts
            for call, one in self._todo.tries.items()
            if one.lost_attempts and waits(call)
        }
        if not lost:
            return 0
        for record in records:
            match record:
                case (
                    EventAppend(event=events.StepCompleted(call=call))
                    | StepFail(event=events.StepFailed(call=call))
                    | StepCancel(call=call)
                ):
                    lost.pop(call, None)
                case _:
                    pass
        return max(lost.values(), default=0)

    def dropped(self) -> list[str]:
        """Return the calls that the function stopped waiting for since the last call of this."""
        dropped, self._todo.dropped = self._todo.dropped, []
        return dropped

    def timers(self) -> list[TimerRequest]:
        """Return the timers that the function waits for, the earliest first."""
        return sorted(self._machine.timers, key=lambda one: one.at)

    def due(self, now: Micros) -> list[TimerFire]:
        """Return the rows for timers that are due."""
        return [TimerFire(call=one.call, due=one.at, site=one.site) for one in self.timers() if one.at <= now]

    def _feed(
        self, history: Sequence[ParsedRow], now: Micros | None, *, past: int = 0, stored: int = 0
    ) -> None:
        """Feed rows. Code has run before with rows up to `past`, and has stored its clock readings up to `stored`."""
        feed, shown_before = self._machine.feed, self._todo.shown
        place, places, result = 0, len(history), events.StepCompleted.type
        try:
            while place < places:
                one = history[place]
                row, number = one.row, one.row.number
                if self.seen < number <= past and row.type == result and self._made_queues is None:
                    place = self._feed_steps(history, place, past)
                    if self.seen >= number:
                        continue
                place += 1
                if number <= self.seen:
                    continue
                if number > self.stored and one.is_requested:
                    self.stored = number
                shown = None
                if number > stored or shown_before:
                    shown = self._shows(number, row.at, now if number > stored else None)
                event = self._function_event(one)  # before it counts as seen: a blob store may be down
                self.seen = number
                if event is not None:
                    event_row = Row(number=number, at=row.at, event=event, site=one.site, shown=shown)
                    self._note(feed(event_row, more=number < past), number, row.at, shown)
        except STORE_ERRORS:
            raise
        except HoldfastError as error:
            self.fault = error

    def _feed_steps(self, history: Sequence[ParsedRow], place: int, past: int) -> int:
        """Feed results of steps in bulk, from index `place` on, for as long as that is possible; return the next index.

        Earlier code has recorded what these rows made it request, so the clock shows their own times.
        """
        machine = self._machine
        try:
            after, turn = machine.feed_steps(history, place, past=past, apart=self._todo.shown)
        finally:
            self.seen = max(self.seen, machine.rows)
        if turn is not None:
            row = history[after - 1].row
            self._note(turn, row.number, row.at, None)
        return after

    def _read_before(self, history: Sequence[ParsedRow]) -> None:
        """Learn clock readings from rows before they are fed, and messages and updates that were refused.

        A value that could not be decoded once stays refused, even if the current code could decode it.
        """
        for one in history:
            if one.row.type not in events.READ_FIRST:
                continue  # as most rows
            match one.row.type:
                case events.SignalRefused.type:
                    self._machine.refuse_signal(one.read(events.SignalRefused).row)
                case events.UpdateRejected.type:
                    update = one.read(events.UpdateRejected)
                    if update.error.code == InvalidValueError.code:
                        self._machine.refuse_update(update.call, update.error.raised)
                case events.ClockRead.type:
                    reading = one.read(events.ClockRead)
                    self._todo.shown[reading.row] = reading.shown
                    self.stored = max(self.stored, one.row.number)
                case _:
                    pass

    def _shows(self, number: int, at: Micros, now: Micros | None) -> Micros | None:
        """Return the time that the clock shows while a row is fed; None for the time of the row.

        A function that requests a minute after an hour without a driver must get a minute from now.
        """
        shown = self._todo.shown.get(number)
        if shown is not None:
            return shown if shown > at else None
        return now if now is not None and now - at > BEHIND_MAX else None

    def _is_new(self, number: int) -> bool:
        """Return whether no code has stored anything since a row was fed, or since the start if it is 0."""
        return self.stored < max(number, 1)

    def _note(self, turn: Turn, number: int, at: Micros, shown: Micros | None) -> None:
        todo = self._todo
        if turn.read_clock and shown is not None and number not in todo.shown:
            todo.read[number] = shown
        elif turn.read_clock and self._is_new(number):
            todo.read_in_time = {number: at}
        for one in turn.requests:
            if isinstance(one, StepRequest):
                if one.queue is None:
                    todo.new.append(one)
                else:
                    self.queues.enqueue(one)
            elif isinstance(one, RecordedRequest):
                todo.children[one.call] = one
        for call in turn.dropped:
            if isinstance(todo.children.get(call), CloseRequest):
                del todo.children[call]
            if self._made_queues is not None:
                self._made_queues.drop(call)
            todo.dropped.append(call)
        for name in turn.patches:
            todo.patches[name] = None
        for answer in turn.answers:
            todo.answers[answer.call] = answer
        for message in turn.refused:
            todo.refused[message.number] = message
        for value in turn.published:
            todo.published[value.name] = value
        for output in turn.outputs:
            self._report(output, at)
        self.ended = self.ended or turn.ended

    def _report(self, output: FunctionOutput, at: Micros) -> None:
        """Pass on what the function has reported in the turn of a row, which was stored `at`."""
        if isinstance(output.content, PublishedEvent):
            call = f"after{output.row}.{output.number}"
            self._todo.events[call] = EventPublish(call=call, published=output.content)
        elif self._runtime is not None:
            self._runtime.report(output, at)

    def _function_event(self, one: ParsedRow) -> FunctionEvent | None:
        """Return what the function receives of a row; None if it does not receive it. Updates the pending requests."""
        row = one.row
        if row.type == events.StepCompleted.type:  # the most frequent
            call, step, given = completed_step(one)
            if self._made_queues is not None:
                self.queues.note_end(call)
            return StepCompleted(call=call, step=step, output=self._text(payload_of(row)), given=given)
        if row.type not in _CONCERN_IT:
            if row.type.startswith(USER_EVENTS) and self._todo.events:
                self._todo.events.pop(one.read(events.UserEvent).call, None)
            return None
        event = one.event
        self._learn(row, event)
        if isinstance(event, events.StepFailed) and self._not_undone(event):
            return None
        received = function_event(row, event, self._text)
        if isinstance(received, StepQueued):
            request = self._machine.waits_for(received.call)
            if (
                isinstance(request, StepRequest)
                and cast("Step[..., object]", request.definition).records_arguments
            ):
                return attrs.evolve(received, given=self._text(payload_of(row)))
        return received

    def _learn(self, row: HistoryRow, event: events.HistoryEvent) -> None:
        """Update the pending requests."""
        match event:
            case events.StepQueued(call=call):
                self.queues.note_queued(event, is_open=self._machine.waits_for(call) is not None)
            case events.StepFailed(call=call) | events.StepCancelled(call=call):
                if self._made_queues is not None:
                    self.queues.note_end(call)
            case (
                events.ChildStarted(call=call)
                | events.ChildFailed(call=str(call))
                | events.SignalSent(call=call)
                | events.CancelSent(call=call)
                | events.UpdateSent(call=call)
                | events.ChannelClosed(call=call)
                | events.MessagePublished(call=call)
                | events.TopicSubscribed(call=call)
                | events.TopicUnsubscribed(call=call)
            ):
                self._todo.children.pop(call, None)
            case events.StepRetrying(call=call):
                if not self._is_queued(call):
                    self._try_again(event, row.run)
            case events.StepStarted(call=call):
                self._begin_again(call)
            case events.PatchMarked(call=call):
                self._todo.patches.pop(call, None)
            case events.FunctionBegan():
                self._todo.began = None
            case events.SignalRefused(row=number):
                self._todo.refused.pop(number, None)
            case events.ClockRead(row=number):
                self._todo.read.pop(number, None)
            case events.RunCreated():
                if self._made_queues is not None:
                    self.queues.start_generation(self._machine.waits_for)
            case events.ValuePublished(name=name, number=number):
                self._show(name, number)
            case (
                events.UpdateCompleted(call=call)
                | events.UpdateFailed(call=call)
                | events.UpdateRejected(call=call)
            ):
                self._answered(row, call)
            case events.RunBlocked(code=code):
                self.queues.failure = None
                self._was_full += code == HistoryFullError.code
            case _:
                pass

    def _is_queued(self, call: str) -> bool:
        return self._made_queues is not None and self._made_queues.has(call)

    def _not_undone(self, failed: events.StepFailed) -> bool:
        """Return whether this is the failure of a queued step that the function must not receive.

        That is so for a compensation that failed, and for a step that could not read its arguments: both block the
        run.
        """
        request = self._machine.waits_for(failed.call)
        if failed.job is None or not isinstance(request, StepRequest):
            return False
        is_done = not request.undoes or failed.error.code == StepResultError.code
        if is_done and not is_unreadable(failed.error.type):
            return False
        self.queues.try_again(request, failed)
        return True

    def _show(self, name: str, number: int) -> None:
        """Note that a published value is recorded. Code may publish more or less than the code before it."""
        self.has_published = True
        shown = self._todo.published.get(name)
        if shown is not None and shown.number <= number:
            del self._todo.published[name]

    def _answered(self, row: HistoryRow, call: str) -> None:
        """Check a recorded result of an update against the code. NondeterminismError if they differ."""
        answer = self._todo.answers.pop(call, None)
        came_to = None if answer is None else type_of_answer(answer)
        if came_to != row.type:
            instead = "has not finished it by then" if came_to is None else f"now has {came_to}"
            raise NondeterminismError(
                row=row.number, call=call, recorded=row.type, requested=f"the code {instead}"
            )

    def _try_again(self, retrying: events.StepRetrying, run: str) -> None:
        call = retrying.call
        request = next((one for one in self._machine.pending_requests if one.call == call), None)
        if isinstance(request, StepRequest):
            before = self._todo.tries.get(call)
            first = before.run if before is not None and before.run is not None else run
            lost_before = 0 if before is None else before.lost_attempts
            began = None if before is None else before.first_started_at
            self._todo.tries[call] = StepAttempt(
                request=request,
                number=retrying.attempt + 1,
                at=retrying.retry_at,
                run=first,
                lost_attempts=retrying.lost_attempts or lost_before,
                first_started_at=retrying.started_at if began is None else began,
            )
            self._todo.new.append(request)

    def _begin_again(self, call: str) -> None:
        """Note that the new start of a lost step is recorded."""
        known = self._todo.tries.get(call)
        if known is not None:
            self._todo.tries[call] = evolve(known, is_restarted=True)
            self._todo.new.append(known.request)


def _unread(_: Payload) -> str:
    raise AssertionError("no driver runs this function")
