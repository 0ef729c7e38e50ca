"""A determinism checker: compares the requests of durable functions after each history row across executions.

Live or replayed, a function that receives the same rows in the same order must make the same requests (invariant D2).
A disagreement of any two executions is a problem, whichever of them came first.
"""

import threading
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, NoReturn, TypeAlias, cast

import attrs

from holdfast.hosts.functions.function_events import last_first_turn_row
from holdfast.hosts.functions.history_document import RunHistory, read_history, text_of
from holdfast.hosts.functions.replay import FunctionReplay
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.commands import JobRecorded
from holdfast.kernel.functions.machine import FunctionMachine
from holdfast.kernel.functions.protocol import FunctionFailed, Request, Row, StepCompleted, Turn
from holdfast.kernel.functions.run_facts import RunFacts
from holdfast.kernel.history import events
from holdfast.kernel.history.events.parsed_rows import ParsedRow, completed_step, parse_rows
from holdfast.ports.errors import WorkflowStalledError
from holdfast.ports.queries.runs import FindRun, RunsByKey
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import Run

Code: TypeAlias = Workflow[..., object]
FunctionRun: TypeAlias = tuple[Code, str]
"""A workflow's code, and the key of its first generation."""
Digest: TypeAlias = int
"""A digest of all rows that a function has received. Runs with a common beginning diverge at some row."""

_TRAIL: Final = "trail"
"""The attribute of a watched machine that holds its digest after each row."""

MANY: Final = 20
"""Maximum number of runs of one store that are replayed at every prefix; similar runs add nothing."""


@attrs.frozen
class Seen:
    """The state of a function after a row."""

    row: object
    """The row; None at the start."""
    requests: tuple[Request, ...]
    """Requests without an answer."""
    waits_for_others: bool
    """Whether the function waits for anything."""
    dropped: tuple[str, ...]
    """Calls that the function has dropped."""
    ended: str
    """The result or error; "None" if it continues."""


class DeterminismChecker:
    """A record of the states of functions. `problems` describes disagreements between executions of one run."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._lock = threading.Lock()
        self._seen: dict[tuple[FunctionRun, Digest], Seen] = {}
        self._digests: dict[tuple[FunctionRun, int], set[Digest]] = {}
        """Digests after the row with this number, in all executions."""
        self._unsettled: set[FunctionRun] = set()
        """Functions that did not settle (WorkflowStalledError). Their replays would take too long."""
        self._reached: dict[FunctionRun, set[Digest]] = {}
        """Digests at which a function had received all rows so far. A replay may end only there."""

    @property
    def lives(self) -> tuple[FunctionRun, ...]:
        """The runs to replay with their code, in the order of their first execution, at most `MANY`."""
        return tuple(life for life in self._reached if life not in self._unsettled)[:MANY]

    @contextmanager
    def watching(self) -> Generator[None]:
        """Record the requests of all functions that are driven in this block, in any thread."""
        made = cast("Callable[..., FunctionMachine]", Workflow.machine)  # pyright: ignore[reportUnknownMemberType]

        def machine(code: Code, text: str, *, began_at: int, seed: str, run: RunFacts) -> FunctionMachine:
            begun = made(code, text, began_at=began_at, seed=seed, run=run)
            return self._watched(begun, (code, seed))

        set_machine: Callable[[object], None] = partial(setattr, Workflow, "machine")
        set_machine(machine)
        try:
            yield
        finally:
            set_machine(made)

    def replay(self, core: Core) -> int:
        """Replay the recorded runs of a store at every prefix of their histories. Return the number of replays.

        Call it inside `watching`, so that the replays are recorded too.
        """
        core.open()
        try:
            return self._replay_all(core)
        finally:
            core.close()

    def _replay_all(self, core: Core) -> int:
        replays = 0
        for code, key in self.lives:
            forks = list(_forks(core, key))
            histories = [read_history(core, run) for run in forks]
            replays += sum(self._replay(code, history) for history in histories)
            # A query before the first drive does not know the rows that the function will begin with.
            rows = (row for history in histories for row in history.rows)
            began = max((row.number for row in rows if row.type == events.FunctionBegan.type), default=-1)
            if forks:
                self._check_digests((code, key), len(forks), first=began + 1)
        return replays

    def _check_digests(self, life: FunctionRun, forks: int, *, first: int) -> None:
        """Report a problem if there are more digests than histories: executions of one run received different rows."""
        code, key = life
        for number in (number for known, number in self._digests if known == life and number >= first):
            if len(self._digests[life, number]) > forks:
                where = f"{code.name}@{code.version}, run {key}, row {number}"
                self.problems.append(f"{where}: executions of the run received different rows up to this row")

    def _replay(self, code: Code, history: RunHistory) -> int:
        """Replay a history with new machines: up to each row at the start, and the later rows afterwards."""
        replays = 0
        trail = self._trail(code, history)
        there = last_first_turn_row(parse_rows(history.rows))
        for end in range(len(history.rows) + 1):
            known, new_rows = history.rows[:end], history.rows[end:]
            if end < there or any(row.type == events.FunctionBegan.type for row in new_rows):
                continue  # a start with fewer rows takes another course
            last = _last_applied(known)
            if trail.get(0 if last <= there else last) not in self._reached[code, history.key]:
                continue
            if (
                new_rows and new_rows[0].type in events.RECORDED_FIRST
            ):  # accepted updates are recorded before anything relies on them
                continue
            if any(
                _is_read_before(row, end) for row in new_rows
            ):  # a replay that starts here may read another time
                continue
            replays += 1
            machine = code.machine(
                history.input, began_at=history.began_at, seed=history.key, run=history.facts
            )
            drive = FunctionReplay(machine, text_of)
            try:
                drive.open(known)
                if not drive.is_over and self._could_follow((code, history.key), new_rows, trail):
                    drive.take(JobRecorded(status="recorded", rows=new_rows))
            finally:
                drive.close()
        return replays

    def _trail(self, code: Code, history: RunHistory) -> dict[int, Digest]:
        """Return the digest after each row of a replay of the whole history."""
        machine = code.machine(history.input, began_at=history.began_at, seed=history.key, run=history.facts)
        drive = FunctionReplay(machine, text_of)
        try:
            drive.open(history.rows)
        finally:
            drive.close()
        return cast("dict[int, Digest]", getattr(machine, _TRAIL))

    def _could_follow(
        self, life: FunctionRun, new_rows: Sequence[HistoryRow], trail: Mapping[int, Digest]
    ) -> bool:
        """Return whether a driver could receive these rows only now: all were delivered, none is its own note."""
        applied = [row.number for row in new_rows if row.type in events.FUNCTION_EVENTS]
        is_noted = any(row.type in events.RECORDED_FIRST for row in new_rows)
        return not is_noted and all((life, trail.get(number)) in self._seen for number in applied)

    def _watched(self, machine: FunctionMachine, life: FunctionRun) -> FunctionMachine:
        begin, feed, feed_steps = machine.begin, machine.feed, machine.feed_steps
        trail: dict[int, Digest] = {0: 0}

        def begin_and_note(
            *,
            more: bool = False,
            patches: Collection[str] = (),
            shown: int | None = None,
            refused: str = "",
            inbox: Sequence[Row] = (),
        ) -> Turn:
            there = tuple((row.number, row.at, repr(row.event)) for row in inbox)

            def digest(read: bool) -> Digest:
                seen = shown if read and shown else 0
                trail[0] = hash((seen, refused, there)) if seen or refused or there else 0
                return trail[0]

            begins = partial(begin, more=more, patches=patches, shown=shown, refused=refused, inbox=inbox)
            return self._noted(machine, life, 0, digest, None, more, begins)

        def feed_and_note(row: Row, *, more: bool = False) -> Turn:
            before = next(reversed(trail.values()))

            def digest(read: bool) -> Digest:
                time = (row.at, row.shown) if read else None  # a clock that was not read has no effect
                trail[row.number] = hash((before, row.number, repr(row.event), time))
                return trail[row.number]

            return self._noted(machine, life, row.number, digest, row, more, lambda: feed(row, more=more))

        def feed_steps_and_note(
            rows: Sequence[ParsedRow], place: int, *, past: int, apart: Collection[int]
        ) -> tuple[int, Turn | None]:
            """Feed one row at a time, so that the state is recorded after each."""
            before = next(reversed(trail.values()))
            after, turn = place, None
            come_to: Callable[[], Turn] = Turn
            try:
                after, turn = feed_steps(rows[: place + 1], place, past=past, apart=apart)
            except Exception as error:  # noqa: BLE001  # it is raised again below, once it is recorded
                come_to = partial(_raise, error)
            else:
                if after == place:
                    return place, None
            row = _step_row(rows[place])

            def digest(read: bool) -> Digest:
                time = (row.at, None) if read else None
                trail[row.number] = hash((before, row.number, repr(row.event), time))
                return trail[row.number]

            self._noted(machine, life, row.number, digest, row, row.number < past, lambda: turn or come_to())
            return after, turn

        watched = (("begin", begin_and_note), ("feed", feed_and_note), ("feed_steps", feed_steps_and_note))
        for name, one in (*watched, (_TRAIL, trail)):
            setattr(machine, name, one)
        return machine

    def _noted(
        self,
        machine: FunctionMachine,
        life: FunctionRun,
        number: int,
        upto: Callable[[bool], Digest],
        row: Row | None,
        more: bool,
        turn: Callable[[], Turn],
    ) -> Turn:
        try:
            come_to = turn()
        except Exception as error:
            if isinstance(error, WorkflowStalledError):
                self._unsettled.add(life)
            row = None if row is None else attrs.evolve(row, shown=None, at=0)
            seen = Seen(row, (), False, (), f"{type(error).__name__}: {error}")
            self._note(life, (number, upto(False)), seen, more)
            raise
        ended = come_to.ended
        outcome = repr(ended.error) if isinstance(ended, FunctionFailed) else repr(ended)
        dropped = come_to.dropped
        row = None if row is None else attrs.evolve(row, shown=None, at=row.at if come_to.read_clock else 0)
        seen = Seen(row, machine.pending_requests, machine.waits_for_others, dropped, outcome)
        self._note(life, (number, upto(come_to.read_clock)), seen, more)
        return come_to

    def _note(self, life: FunctionRun, upto: tuple[int, Digest], seen: Seen, more: bool) -> None:
        number, digest = upto
        with self._lock:
            reached = self._reached.setdefault(life, set())
            if not more:
                reached.add(digest)
            self._digests.setdefault((life, number), set()).add(digest)
            before = self._seen.setdefault((life, digest), seen)
            if before != seen:
                code, key = life
                where = f"{code.name}@{code.version}, run {key}, row {number}"
                self.problems.append(f"{where}: one execution reached {before}, another {seen}")


def _step_row(one: ParsedRow) -> Row:
    """Return the row of a step's result in the form in which it is fed singly."""
    row = one.row
    call, step, given = completed_step(one)
    completed = StepCompleted(call=call, step=step, output=text_of(row.payload), given=given)
    return Row(number=row.number, at=row.at, event=completed, site=one.site)


def _raise(error: Exception) -> NoReturn:
    raise error


def _forks(core: Core, key: str) -> Iterator[Run]:
    """Yield the generations whose histories begin with rows of this run, itself first."""
    read = core.stores.persistence.read
    for root in read(RunsByKey((key,))):
        generation = root.generation
        run: Run | None = root
        while run is not None:
            if run.key == key or (run.kept_rows and run.kept_rows[0].run == key):
                yield run
            generation += 1
            run = read(FindRun(run.name, generation))


def _is_read_before(row: HistoryRow, end: int) -> bool:
    """Return whether this row holds a clock reading for a row up to `end`: other rows are in between."""
    return row.type == events.ClockRead.type and events.ClockRead.from_row(row).row <= end


def _last_applied(rows: Sequence[HistoryRow]) -> int:
    return max((row.number for row in rows if row.type in events.FUNCTION_EVENTS), default=0)
