"""One attempt to drive a function: what its history tells its machine, and what is to be done and recorded now.

No threads, no waiting and no clock in here. `open` and `take` run the function, so they are for a thread of their own.
"""

from collections.abc import Mapping, Sequence
from typing import Final, cast

from holdfast.hosts.functions.queues import Queues
from holdfast.hosts.functions.telling import (
    NOTES,
    PATCHED,
    RETRYING,
    Facts,
    Texts,
    is_of_driver,
    known_from,
    payload_of,
    raised_from_facts,
    told_by,
    type_of_answer,
)
from holdfast.hosts.functions.todo import Todo, Try
from holdfast.hosts.runtime import AttemptRuntime
from holdfast.kernel.commands import UPDATE_ANSWERS, JobRecorded, Recorded
from holdfast.kernel.functions import limits
from holdfast.kernel.functions.asked import (
    Answered,
    ChildAsked,
    Ended,
    Failed,
    GoesOn,
    Row,
    StepAsked,
    StepCompleted,
    TellAsked,
    TimerAsked,
    Told,
    Turn,
)
from holdfast.kernel.functions.loop import CancelledError
from holdfast.kernel.functions.machine import FunctionMachine, Known
from holdfast.kernel.functions.parts import Part
from holdfast.ports.errors import (
    HistoryFullError,
    HoldfastError,
    NondeterminismError,
    RestlessError,
    StepResultError,
    UnavailableError,
)
from holdfast.ports.records import (
    CLOCK_READ,
    PUBLISHED,
    RESULT_REFUSED,
    STEP_COMPLETED,
    STEP_FAILED,
    STEP_QUEUED,
    HistoryRow,
    Micros,
    Payload,
    RunStatus,
)

BEHIND_MAX: Final[Micros] = 1_000_000
"""By how much the clock of a function may be behind when it is told what has happened."""
BLOCKED: Final = "run.blocked"
_RARE: Final = frozenset({PATCHED, RESULT_REFUSED, CLOCK_READ})
"""The types of the rows that are looked for before a function is told any."""


class Drive:
    """Tells a machine the rows of its history, and knows what its function waits for.

    `text` gives the JSON text of a payload.
    """

    __slots__ = (
        "_machine",
        "_made_queues",
        "_made_todo",
        "_text",
        "_was_full",
        "ended",
        "fault",
        "has_shown",
        "is_paused",
        "seen",
        "stored",
    )

    queues = Part(lambda _: Queues())
    """The steps that are jobs of their own."""
    _todo = Part(lambda _: Todo())

    def __init__(self, machine: FunctionMachine, text: Texts) -> None:
        self._machine = machine
        self._text = text
        self.seen = 0
        """The number of the last row that is known."""
        self.ended: Ended | None = None
        self.fault: HoldfastError | None = None
        """Why the function can't go on, if it can't."""
        self.is_paused = False
        self.has_shown = False
        """Whether anything is recorded of what the function, or a generation before, has shown."""
        self.stored = 0
        """The number of the last row that is there because some code has asked for something, or read its clock."""
        self._made_queues: Queues | None = None
        self._was_full = 0
        """How often its run was blocked because its history was full."""

    def open(self, history: Sequence[HistoryRow], *, seen: int = 0, now: Micros | None = None) -> None:
        """Call the function, and tell it all that there is after the row `seen`: those before say nothing to it.

        `now` is what time it is: what its clock shows if no code has come before that could have stored what it asked
        for.
        """
        self.seen = seen
        known = known_from(history)
        rare = [one for one in known if one[0].type in _RARE]
        patches = [str(facts["call"]) for row, facts in rare if row.type == PATCHED]
        refused = next((str(facts["message"]) for row, facts in rare if row.type == RESULT_REFUSED), "")
        # Up to here some code has come before. A message says nothing of that: it may come before anything else.
        past = next((row.number for row, facts in reversed(known) if is_of_driver(row, facts)), 0)
        self._read_before(rare)
        stored = self.stored = max(self.stored, past)
        began_at = self._machine.began_at
        shown = self._shows(0, began_at, None if stored else now)
        try:
            turn = self._machine.begin(more=past > 0, patches=patches, shown=shown, refused=refused)
            self._note(turn, 0, began_at, shown)
        except HoldfastError as error:
            self.fault = error
        else:
            self._tell(known, now, past=past, stored=stored)
            self._todo.new = self._open_steps()

    def speak_to(self, runtime: AttemptRuntime) -> None:
        """Have what the function logs from here on told to this attempt."""
        self._machine.speak_to(runtime)

    def take(self, answer: JobRecorded, *, now: Micros | None = None) -> None:
        """Tell the function what has been recorded, by whomever. `now` is what time it is."""
        self.is_paused = answer.run_status is RunStatus.PAUSED
        # What is new has been met by no other code, also if it comes together.
        known = known_from(answer.rows)
        self._read_before(known)
        self._tell(known, now)

    def rest(self) -> None:
        """Let go of whoever has driven it. It stays where it is until somebody resumes it."""
        self._text = _unread
        self._machine.speak_to(None)
        asked = {one.call for one in self._machine.asked}
        todo = self._todo
        todo.tries = {call: one for call, one in todo.tries.items() if call in asked}
        if not todo:
            Drive._todo.drop(self)
        if not self.queues:
            Drive.queues.drop(self)

    def resume(self, news: Sequence[HistoryRow], text: Texts, *, now: Micros | None = None) -> bool:
        """Go on from where it rests, as a replay would: with what it waits for, and these rows. `now`: what time it is.

        Return whether it does. If these are not just the rows that follow, of which no other driver made any, then it
        does not: it is to be replayed.
        """
        known = known_from(news)
        if not self._are_next(known):
            return False
        self._text = text
        self.is_paused = False
        self._todo.dropped.clear()
        self._todo.new = self._open_steps()
        self._tell(known, now)
        return True

    def _open_steps(self) -> list[StepAsked]:
        """Return the steps that the function waits for, but for those that are jobs of their own."""
        return [one for one in self._machine.asked if isinstance(one, StepAsked) and one.queue is None]

    def _are_next(self, news: Sequence[Known]) -> bool:
        numbers = range(self.seen + 1, self.seen + 1 + len(news))
        return all(
            row.number == number and not is_of_driver(row, facts) and row.type not in NOTES
            for number, (row, facts) in zip(numbers, news, strict=True)
        )

    @property
    def is_in_memory(self) -> bool:
        """Whether there is anything to `close`: one that has ended is out of memory."""
        return self._machine.is_in_memory

    def close(self) -> None:
        """Take the function out of memory."""
        self._machine.evict()

    def give_up(self, error: RestlessError) -> None:
        """Have the function end, which does not get quiet in a thread of its own. From any thread."""
        self.fault = error
        self._machine.give_up()

    @property
    def turn(self) -> int:
        """Which turn the function is in; see `FunctionMachine.turn`."""
        return self._machine.turn

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to drive: the function has ended, or can't go on."""
        return self.ended is not None or self.fault is not None

    @property
    def has_only_steps(self) -> bool:
        """Whether it goes on, and all that is to be done for it are steps that are done here."""
        is_elsewhere = self.is_over or self.is_paused or self._machine.has_timers
        return not (is_elsewhere or self.has_others or self.is_full)

    @property
    def waits_for_others(self) -> bool:
        """Whether the function waits for a message, the end of a run, or a step that is a job of its own."""
        queues = self._made_queues
        return self._machine.waits_for_others or (queues is not None and queues.are_waited_for)

    @property
    def waits_at(self) -> Sequence[str]:
        """Where the function's tasks wait, as people name it."""
        return self._machine.waits_at

    @property
    def is_full(self) -> bool:
        """Whether its history has no room left. For a function to clean up there always is some."""
        return not self._machine.is_ending and limits.is_full(self.seen, self._was_full)

    @property
    def is_cancelled(self) -> bool:
        """Whether the function was told to end, and did."""
        ended = self.ended
        was_told = self._machine.is_cancelled
        return was_told and isinstance(ended, Failed) and isinstance(ended.error, CancelledError)

    @property
    def unread(self) -> frozenset[int]:
        """The numbers of the rows with what the function has not taken, if it goes on as a new generation."""
        left = self.ended.unread if isinstance(self.ended, GoesOn) else ()
        return frozenset((*left, *self._machine.late))

    @property
    def has_others(self) -> bool:
        """Whether anything is to be done or recorded beside steps that are done here, and timers."""
        todo, queues = self._todo, self._made_queues
        others = todo.children or todo.answers or todo.published or todo.patches or todo.read
        return bool(others or (queues is not None and queues))

    def children(self) -> list[ChildAsked | TellAsked]:
        """Return the runs that are to be started, and what those are to be told that were."""
        return list(self._todo.children.values())

    def notes(self) -> list[Recorded]:
        """Return what is to be recorded before anything else is done: whatever is begun may rely on it."""
        read = [
            Recorded(type=CLOCK_READ, call=str(row), started_at=shown)
            for row, shown in self._todo.read.items()
        ]
        return [*read, *(Recorded(type=PATCHED, call=name) for name in self._todo.patches)]

    def before_rest(self) -> list[Recorded]:
        """Return what is to be recorded before the function rests, or else whoever goes on could not know the time.

        Timers that it has asked for count from then, and not from when it is next driven.
        """
        read = self._todo.read_in_time.items()
        return [
            Recorded(type=CLOCK_READ, call=str(row), started_at=at) for row, at in read if self._is_new(row)
        ]

    def answers(self) -> list[Answered]:
        """Return what updates have come to, which is to be recorded."""
        return list(self._todo.answers.values())

    def published(self) -> list[Recorded]:
        """Return what the function shows, which is to be recorded."""
        return [
            Recorded(type=PUBLISHED, call=one.name, attempt=one.number, output=Payload(inline=one.text))
            for one in self._todo.published.values()
        ]

    def tries(self) -> list[Try]:
        """Return the steps that have been asked for since the last time, in order."""
        todo = self._todo
        if not todo.new:
            return []
        new, todo.new = todo.new, []
        waits = self._machine.waits_for
        open_ = [one for one in new if waits(one.call) is not None and not self._is_queued(one.call)]
        return [todo.tries.get(one.call) or Try(asked=one) for one in open_]

    def under_way(self, now: Micros) -> list[Try]:
        """Return the tries of steps that are done here, but for those whose time has not come."""
        asked = [one for one in self._open_steps() if not self._is_queued(one.call)]
        tries = [self._todo.tries.get(one.call) or Try(asked=one) for one in asked]
        return [one for one in tries if one.at is None or one.at <= now]

    def dropped(self) -> list[str]:
        """Return the calls that nobody has been interested in since the last time."""
        dropped, self._todo.dropped = self._todo.dropped, []
        return dropped

    def timers(self) -> list[TimerAsked]:
        """Return the timers that the function waits for, the first to fire first."""
        return sorted(self._machine.timers, key=lambda one: one.at)

    def due(self, now: Micros) -> list[Recorded]:
        """Return what is to be recorded of timers whose time has come."""
        return [
            Recorded(type="timer.fired", call=one.call, due=one.at, site=one.site)
            for one in self.timers()
            if one.at <= now
        ]

    def _tell(self, history: Sequence[Known], now: Micros | None, *, past: int = 0, stored: int = 0) -> None:
        """Tell the function rows. Code has come before up to `past`, and has stored what it read up to `stored`."""
        feed, shown_before = self._machine.feed, self._todo.shown
        place, places = 0, len(history)
        try:
            while place < places:
                row, facts = history[place]
                number = row.number
                if self.seen < number <= past and row.type == STEP_COMPLETED and self._made_queues is None:
                    place = self._tell_steps(history, place, past)
                    if self.seen >= number:
                        continue
                place += 1
                if number <= self.seen:
                    continue
                if number > self.stored and is_of_driver(row, facts):
                    self.stored = number
                shown = None
                if number > stored or shown_before:
                    shown = self._shows(number, row.at, now if number > stored else None)
                told = self._told(row, facts)  # before it counts as seen: a blob store may be away
                self.seen = number
                if told is not None:
                    site = facts.get("site", "")
                    told_row = Row(number=number, at=row.at, told=told, site=site, shown=shown)
                    self._note(feed(told_row, more=number < past), number, row.at, shown)
        except UnavailableError:
            raise
        except HoldfastError as error:
            self.fault = error

    def _tell_steps(self, history: Sequence[Known], place: int, past: int) -> int:
        """Tell the function what steps gave, from a place on, as far as that goes; return how far it went.

        Code before has stored what these rows had it ask for: its clock shows then what it showed that.
        """
        machine = self._machine
        try:
            after, turn = machine.feed_steps(history, place, past=past, apart=self._todo.shown)
        finally:
            self.seen = max(self.seen, machine.rows)
        if turn is not None:
            row, _ = history[after - 1]
            self._note(turn, row.number, row.at, None)
        return after

    def _read_before(self, history: Sequence[Known]) -> None:
        """Learn what the clock showed when somebody else told the function these rows, and it looked."""
        for row, facts in history:
            if row.type == CLOCK_READ:
                self._todo.shown[cast("int", facts["row"])] = cast("int", facts["shown"])
                self.stored = max(self.stored, row.number)

    def _shows(self, number: int, at: Micros, now: Micros | None) -> Micros | None:
        """Return what the clock is to show when a row is told that was stored then; None if just that.

        Whoever asks for a minute at the end of an hour in which nobody drove the function is to have it.
        """
        shown = self._todo.shown.get(number)
        if shown is not None:
            return shown if shown > at else None
        return now if now is not None and now - at > BEHIND_MAX else None

    def _is_new(self, number: int) -> bool:
        """Whether no code has stored anything since a row was told, or since the beginning if that is 0."""
        return self.stored < max(number, 1)

    def _note(self, turn: Turn, number: int, at: Micros, shown: Micros | None) -> None:
        todo = self._todo
        if turn.read_clock and shown is not None and number not in todo.shown:
            todo.read[number] = shown
        elif turn.read_clock and self._is_new(number):
            todo.read_in_time = {number: at}
        for one in turn.asked:
            if isinstance(one, StepAsked):
                if one.queue is None:
                    todo.new.append(one)
                else:
                    self.queues.ask(one)
            elif isinstance(one, ChildAsked | TellAsked):
                todo.children[one.call] = one
        for call in turn.dropped:
            if self._made_queues is not None:
                self._made_queues.drop(call)
            todo.dropped.append(call)
        for name in turn.patches:
            todo.patches[name] = None
        for answer in turn.answers:
            todo.answers[answer.call] = answer
        for value in turn.published:
            todo.published[value.name] = value
        self.ended = self.ended or turn.ended

    def _told(self, row: HistoryRow, facts: Facts) -> Told | None:
        """Return what a row tells the function; None if it is not for it."""
        call, step = facts.get("call", ""), facts.get("step", "")
        if row.type == STEP_COMPLETED and self._made_queues is None:  # most rows are that
            return StepCompleted(call=call, step=step, output=self._text(payload_of(row)))
        if row.type.startswith("step."):
            self._step(row.type, call, facts)
        elif row.type.startswith("child."):
            self._todo.children.pop(call, None)
        if row.type == STEP_FAILED and self._not_undone(call, facts):
            return None
        told = told_by(row, facts, self._text)
        if told is None:
            self._learn(row, call, facts)
        return told

    def _learn(self, row: HistoryRow, call: str, facts: Facts) -> None:
        """Take in a row that the function is not told."""
        if row.type == RETRYING and not self._is_queued(call):
            self._try_again(call, facts, row.run)
        elif row.type == PATCHED:
            self._todo.patches.pop(call, None)
        elif row.type == CLOCK_READ:
            self._todo.read.pop(cast("int", facts["row"]), None)
        elif row.type == "run.created" and self._made_queues is not None:
            self.queues.begin_generation(self._machine.waits_for)
        elif row.type == PUBLISHED:
            self._show(str(facts["name"]), cast("int", facts["number"]))
        elif row.type in UPDATE_ANSWERS:
            self._answered(row, call)
        elif row.type == BLOCKED:
            self.queues.not_undone = None
            self._was_full += facts.get("code") == HistoryFullError.code

    def _step(self, kind: str, call: str, facts: Facts) -> None:
        if kind == STEP_QUEUED or self._made_queues is not None:
            self.queues.note(kind, call, facts, is_open=self._machine.waits_for(call) is not None)

    def _is_queued(self, call: str) -> bool:
        return self._made_queues is not None and self._made_queues.has(call)

    def _not_undone(self, call: str, facts: Mapping[str, object]) -> bool:
        """Note that a job of its own could not take back a step, if a row says so. The function is not told of that."""
        asked = self._machine.waits_for(call)
        if "job" not in facts or not isinstance(asked, StepAsked) or not asked.undoes:
            return False
        if raised_from_facts(facts).code == StepResultError.code:
            return False
        self.queues.try_undo_again(asked, facts)
        return True

    def _show(self, name: str, number: int) -> None:
        """Note that something is recorded of what the function shows. Code that shows more, or less, is welcome."""
        self.has_shown = True
        shown = self._todo.published.get(name)
        if shown is not None and shown.number <= number:
            del self._todo.published[name]

    def _answered(self, row: HistoryRow, call: str) -> None:
        """Note that what has come of an update is recorded. NondeterminismError if that was something else."""
        answer = self._todo.answers.pop(call, None)
        came_to = None if answer is None else type_of_answer(answer)
        if came_to != row.type:
            instead = "is not done with it by then" if came_to is None else f"has {came_to} now"
            raise NondeterminismError(
                row=row.number, call=call, recorded=row.type, asked=f"the code {instead}"
            )

    def _try_again(self, call: str, facts: Mapping[str, object], run: str) -> None:
        asked = next((one for one in self._machine.asked if one.call == call), None)
        if isinstance(asked, StepAsked):
            number, at = cast("int", facts["attempt"]) + 1, cast("int", facts["retry_at"])
            before = self._todo.tries.get(call)
            first = before.run if before is not None and before.run is not None else run
            self._todo.tries[call] = Try(asked=asked, number=number, at=at, run=first)
            self._todo.new.append(asked)


def _unread(_: Payload) -> str:
    raise AssertionError("nobody drives this function")
