"""Rules for schedules that start runs: those that are due, by hand, and for past times."""

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any, Final

import attrs

from holdfast.kernel.calendars.occurrences import Occurrence
from holdfast.kernel.commands import (
    FollowUp,
    RunCancel,
    RunCreate,
    RunTerminate,
    ScheduleBackfill,
    ScheduleBackfilled,
    ScheduleFire,
    SchedulesFired,
    ScheduleStarted,
    ScheduleTrigger,
    merge,
)
from holdfast.kernel.commands.schedules import FIRE_LIMIT, Overlap, SchedulePolicy, StartKind
from holdfast.kernel.composed_searches import FiringSchedules, NamedSchedules
from holdfast.kernel.rules.cancels import decide_cancel
from holdfast.kernel.rules.fair_starts import after_turns
from holdfast.kernel.rules.runs import decide_terminate
from holdfast.kernel.rules.schedules import (
    WITH_SLOT,
    check_overlap,
    name_of,
    named_schedule,
    paused,
    with_problem,
)
from holdfast.kernel.rules.starts import decide_create
from holdfast.kernel.schedules.open_runs import (
    DEPENDING,
    ENDING,
    has_open_runs,
    open_run_ids,
    open_runs_text,
)
from holdfast.kernel.schedules.row_data import (
    RECENT_MAX,
    NominalOutcome,
    Outcome,
    Pause,
    ScheduledStart,
    is_over,
    policy_of,
    start_of,
    text_of,
    values_of,
    with_change,
)
from holdfast.kernel.schedules.timetable import (
    DueTime,
    Timetable,
    due_times,
    jitter_of,
    local_text,
    manual_run_id,
    remaining_times,
    run_id_of,
    timetable_of,
)
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import Change, Insert, Update
from holdfast.ports.clock import Ids
from holdfast.ports.errors import (
    CommandError,
    ConcurrencyFullError,
    DefinitionError,
    InvalidArgumentError,
    InvalidCommandError,
    RateExceededError,
    UnreadableRowError,
)
from holdfast.ports.records.run import TERMINAL, Run, RunName, RunStatus
from holdfast.ports.records.schedule import ScheduleRow
from holdfast.ports.records.values import Micros, PlanRow
from holdfast.ports.structs import evolve
from holdfast.ports.transport import Hint
from holdfast.ports.unreadable import PARSE_ERRORS

BACKFILL_PRIORITY: Final = -1_440
"""How much lower the priority of a backfilled run is: it starts like one that was stored a day later."""


@attrs.define
class _Starts:
    """The runs that one command starts and ends, with the changes, hints and follow-ups."""

    state: State
    now: Micros
    ids: Ids
    changes: list[Change] = attrs.field(factory=list[Change])
    hints: list[Hint] = attrs.field(factory=list[Hint])
    follow_ups: list[FollowUp] = attrs.field(factory=list[FollowUp])
    runs: list[str] = attrs.field(factory=list[str])
    unreadable: Collection[RunName] = ()
    """Runs whose rows can't be read. They exist, and they have not ended: maintenance blocks them."""
    _plans: set[str] = attrs.field(factory=set[str])

    def mark(self) -> tuple[int, int, int, int]:
        """Return the present position, for `undo`."""
        return len(self.changes), len(self.hints), len(self.follow_ups), len(self.runs)

    def undo(self, mark: tuple[int, int, int, int]) -> None:
        """Forget all since a position."""
        parts: tuple[list[Any], ...] = (self.changes, self.hints, self.follow_ups, self.runs)
        for part, length in zip(parts, mark, strict=True):
            del part[length:]
        records = (change.record for change in self.changes if isinstance(change, Insert))
        self._plans = {one.fingerprint for one in records if isinstance(one, PlanRow)}

    def create(self, command: RunCreate) -> str | None:
        """Start a run. CommandError if the command can't be carried out.

        Return the id of the run that prevents it, the newest of its concurrency key, if that is full.
        """
        try:
            decision = decide_create(self.state, command, self.now, self.ids, earlier=self.changes)
        except ConcurrencyFullError as error:
            return error.newest or error.key
        except RateExceededError as error:
            return error.name
        if not decision.reply.created:
            return decision.reply.run_id
        self.state = after_turns(self.state, decision.changes)
        self._add(decision)
        self.follow_ups.append(decision.reply.follow_up)
        self.runs.append(decision.reply.run_id)
        return None

    def end(self, run: Run, overlap: Overlap, reason: str) -> None:
        """Cancel or terminate a run, unless this command has done so."""
        if any(isinstance(one, Update) and _key_of_run(one.record) == run.key for one in self.changes):
            return
        if overlap is Overlap.TERMINATE:
            terminate = RunTerminate(namespace=run.namespace, run_id=run.id, reason=reason)
            ended = decide_terminate(self.state, terminate, self.now, self.ids)
        else:
            cancel = RunCancel(namespace=run.namespace, run_id=run.id, reason=reason)
            ended = decide_cancel(self.state, cancel, self.now, self.ids)
        self._add(ended)
        self.follow_ups.append(ended.reply.follow_up)

    def _add(self, decision: Decision[object]) -> None:
        for change in decision.changes:
            # The runs of one command share their plan, which each of them would store.
            if isinstance(change, Insert) and isinstance(change.record, PlanRow):
                if change.record.fingerprint in self._plans:
                    continue
                self._plans.add(change.record.fingerprint)
            self.changes.append(change)
        self.hints.extend(decision.hints)


def _key_of_run(record: object) -> str | None:
    return record.key if isinstance(record, Run) else None


class _Firing:
    """The progress of one schedule while it starts runs."""

    def __init__(self, starts: _Starts, row: ScheduleRow, overlap: Overlap | None = None) -> None:
        self.row = row
        self.policy: SchedulePolicy = policy_of(row)
        self.overlap = self.policy.overlap if overlap is None else overlap
        self._starts = starts
        self._start = start_of(row)
        self._outcomes = list(values_of(row.recent, NominalOutcome))
        self._open, self._unreadable, self.failures = _still_open(starts, row)
        self.started = 0
        self.skipped = 0

    @property
    def is_over(self) -> bool:
        """Whether the schedule has started as many runs as it may."""
        most = self.policy.runs_max
        return most is not None and self.row.started + self.started >= most

    def previous_to(self, at: Micros) -> Micros | None:
        """Return the last nominal time before an instant for which the schedule started a run."""
        return max((one.at for one in self._outcomes if one.at < at and _is_nominal_start(one)), default=None)

    def start(self, due: DueTime, run_id: str, *, priority: int = 0) -> str | None:
        """Start the run for a nominal time, or note why not. Return the id of the run that prevents it."""
        one, namespace = due.occurrence, self.row.namespace
        name = RunName(namespace, run_id)
        if name in self._starts.unreadable or self._starts.state.tables.run_named(name) is not None:
            return self._note(due, "existing", run_id)
        if self.overlap in DEPENDING and self._unreadable:
            self.skipped += 1
            return self._note(due, "skipped", self._unreadable[-1])
        if self.overlap is Overlap.SKIP and self._open:
            self.skipped += 1
            return self._note(due, "skipped", self._open[-1].id)
        mark = self._starts.mark()
        self._end_replaced_runs(run_id)
        command = evolve(
            self._start,
            namespace=namespace,
            id=run_id,
            start_at=self._start_at(due),
            scheduled=text_of(
                ScheduledStart(
                    schedule=self.row.name,
                    at=one.at,
                    zone=one.zone,
                    offset=one.offset,
                    previous=self.previous_to(one.at),
                    kind=due.kind,
                )
            ),
        )
        if priority:
            command = evolve(command, priority=(command.priority or 0) + priority)
        if self.overlap in WITH_SLOT:
            check_overlap(self.overlap, command, self._starts.state.workflows)
            command = evolve(command, concurrency_key=_slot_of(self.row), concurrency_limit=1)
        full_of = self._starts.create(command)
        if full_of is not None:
            self._starts.undo(mark)  # nothing takes the place of the runs that were ended
            self.skipped += 1
            return self._note(due, "skipped", full_of)
        self.started += 1
        self._note(due, "started", run_id)
        return None

    def _start_at(self, due: DueTime) -> Micros | None:
        """Return when the run starts, if that is later than now."""
        if not self.policy.jitter or due.kind in {StartKind.MANUAL, StartKind.BACKFILL}:
            return None
        return due.occurrence.at + jitter_of(self.row, self.policy, due.occurrence.at)

    def _end_replaced_runs(self, run_id: str) -> None:
        """End the runs that the new one replaces."""
        if self.overlap not in ENDING:
            return
        reason = f"{run_id} took its place (overlap={self.overlap.value})"
        for run in self._open:
            if self.overlap is not Overlap.QUEUE_ONE or run.status is RunStatus.PENDING:
                self._starts.end(run, self.overlap, reason)

    def supersede(self, due: DueTime, by: str) -> None:
        """Note that a later time of the same firing comes instead."""
        self.skipped += 1
        self._note(due, "superseded", by)

    def _note(self, due: DueTime, outcome: Outcome, run: str) -> str:
        self._outcomes.append(
            NominalOutcome(
                at=due.occurrence.at, handled_at=self._starts.now, outcome=outcome, kind=due.kind, run=run
            )
        )
        return run

    def fired_row(self) -> ScheduleRow:
        """Return the row with what was started and noted."""
        new = self._starts.runs[len(self._starts.runs) - self.started :] if self.started else []
        still_open = [*self._unreadable, *(run.id for run in self._open)]
        tracked = [*still_open, *new] if has_open_runs(self.policy) else []
        row = evolve(
            self.row,
            started=self.row.started + self.started,
            skipped=self.row.skipped + self.skipped,
            failures=self.failures,
            recent=text_of(_recent(self._outcomes)),
            open_runs=open_runs_text(tracked),
            updated_at=max(self._starts.now, self.row.updated_at),
        )
        return evolve(row, next_at=None) if is_over(row) else row


def _is_nominal_start(outcome: NominalOutcome) -> bool:
    return outcome.outcome == "started" and outcome.kind is not StartKind.MANUAL


def _recent(outcomes: Sequence[NominalOutcome]) -> Sequence[NominalOutcome]:
    """Return the last outcomes, and in any case the last start: the next run gets its nominal time."""
    recent = outcomes[-RECENT_MAX:]
    if any(map(_is_nominal_start, recent)):
        return recent
    last = [one for one in outcomes if _is_nominal_start(one)][-1:]
    return [*last, *outcomes[len(last) - RECENT_MAX :]]


def _still_open(starts: _Starts, row: ScheduleRow) -> tuple[list[Run], list[str], int]:
    """Return the runs of a schedule that have not ended, unreadable ones, and the number of failures in a row."""
    still_open: list[Run] = []
    unreadable: list[str] = []
    failures = row.failures
    for run_id in open_run_ids(row):
        name = RunName(row.namespace, run_id)
        if name in starts.unreadable:
            unreadable.append(run_id)
            continue
        run = starts.state.tables.run_named(name)
        if run is None:
            continue
        if run.status not in TERMINAL:
            still_open.append(run)
        elif run.status is RunStatus.FAILED:
            failures += 1
        elif run.status is RunStatus.COMPLETED:
            failures = 0
    return still_open, unreadable, failures


def _slot_of(row: ScheduleRow) -> str:
    return f"schedule:{row.name}"


def reads_of_fire(command: ScheduleFire) -> Reads:
    """Search for due schedules, with the runs that they started."""
    return Reads(search=_firing(command), drivers=True)


def _firing(command: ScheduleFire) -> FiringSchedules:
    return FiringSchedules(command.namespace, command.workflows, command.limit)


def decide_fire(state: State, command: ScheduleFire, now: Micros, ids: Ids) -> Decision[SchedulesFired]:
    """Start the runs that are due. A schedule that can't fire keeps its problem, and holds up no other."""
    found = state.found[_firing(command)]
    starts = _Starts(state, now, ids, unreadable=frozenset(found.unreadable))
    fired: list[ScheduleRow] = []
    skipped = missed = 0
    more = len(found.schedules) >= command.limit > 0
    for key in found.schedules:
        row = state.tables.schedules[key]
        left = command.limit - len(starts.runs)
        if row.next_at is None or row.next_at > now:
            continue
        if left <= 0:
            more = True
            break
        mark = starts.mark()
        try:
            row, more_of_it = _fire(starts, row, left)
        except UnreadableRowError:
            raise
        except (CommandError, DefinitionError, InvalidArgumentError, *PARSE_ERRORS) as error:
            starts.undo(mark)
            row, more_of_it = with_problem(state, row, error), False
        before = state.tables.schedules[key]
        skipped += row.skipped - before.skipped
        missed += row.missed - before.missed
        more = more or more_of_it
        fired.append(row)
    times = [row.next_at for row in fired if row.next_at is not None]
    if found.next_at is not None:
        times.append(found.next_at)
    reply = SchedulesFired(
        runs=tuple(starts.runs),
        skipped=skipped,
        missed=missed,
        next_at=min(times, default=None),
        more=more,
        follow_up=merge(*starts.follow_ups),
    )
    return Decision(reply, (*map(Update, fired), *starts.changes), tuple(starts.hints))


def _fire(starts: _Starts, row: ScheduleRow, limit: int) -> tuple[ScheduleRow, bool]:
    """Start the runs that are due of one schedule. Return its row, and whether more of them are due."""
    timetable = remaining_times(row, starts.state.zones)
    firing = _Firing(starts, row)
    policy, now = firing.policy, starts.now
    if policy.pause_after_failures is not None and firing.failures >= policy.pause_after_failures:
        reason = f"{firing.failures} runs in a row failed"
        pause = Pause(since=now, reason=reason, by_failures=True)
        return with_change(paused(firing.fired_row(), pause), "paused", now, None, reason), False
    due = due_times(row, timetable, now, limit)
    times, handled_until = due.times, due.handled_until
    handled = _start_each(firing, times)
    if handled < len(times):
        times = times[:handled]
        handled_until = times[-1].occurrence.at if times else row.handled_until
    row = evolve(
        firing.fired_row(),
        missed=row.missed + due.missed,
        handled_until=handled_until,
        last_local=local_text(times[-1].occurrence) if times else row.last_local,
        zones=timetable.version,
    )
    following = None if is_over(row) else timetable.after(handled_until)
    row = evolve(row, next_at=None if following is None else following.at)
    return row, following is not None and following.at <= now


def _start_each(firing: _Firing, times: Sequence[DueTime]) -> int:
    """Start a run for each time; for the last one only, if it takes the place of the others.

    Return how many of the times were handled: fewer than all if the schedule has started as many runs as it may.
    """
    if firing.is_over:
        return 0
    handled = len(times)
    ids = [run_id_of(firing.row.name, due.occurrence.at) for due in times]
    if firing.overlap in ENDING:
        for due in times[:-1]:
            firing.supersede(due, ids[-1])
        times, ids = times[-1:], ids[-1:]
    first: str | None = None
    for index, (due, run_id) in enumerate(zip(times, ids, strict=True)):
        if firing.is_over:
            return index
        if firing.overlap is Overlap.SKIP and first is not None:
            firing.supersede(due, first)
        elif firing.start(due, run_id) is None:
            first = run_id
    return handled


def reads_of_trigger(command: ScheduleTrigger) -> Reads:
    """Lock the schedule and the runs that it started."""
    return Reads(search=NamedSchedules((name_of(command),), with_runs=True), drivers=True)


def decide_trigger(
    state: State, command: ScheduleTrigger, now: Micros, ids: Ids
) -> Decision[ScheduleStarted]:
    """Start a run now. Raises ScheduleNotFoundError, UnknownWorkflowError."""
    row = named_schedule(state, command)
    starts = _Starts(state, now, ids, unreadable=_unreadable(state, reads_of_trigger(command)))
    firing = _Firing(starts, row, command.overlap)
    due = DueTime(occurrence=Occurrence(now, "UTC"), kind=StartKind.MANUAL)
    run_id = manual_run_id(row.name, ids.new())
    in_its_way = firing.start(due, run_id)
    after = with_change(firing.fired_row(), "triggered", now, command.actor)
    reply = ScheduleStarted(
        run_id=None if in_its_way else run_id,
        skipped_for=in_its_way,
        follow_up=merge(*starts.follow_ups),
    )
    return Decision(reply, (Update(after), *starts.changes), tuple(starts.hints))


def reads_of_backfill(command: ScheduleBackfill) -> Reads:
    """Lock the schedule, the runs that it started, and those that exist for the times. Raises InvalidCommandError."""
    name = name_of(command)
    if len(command.times) > FIRE_LIMIT:
        raise InvalidCommandError(f"a command backfills at most {FIRE_LIMIT} times, not {len(command.times)}")
    runs = tuple(RunName(command.namespace, run_id_of(command.schedule, at)) for at in command.times)
    return Reads(search=NamedSchedules((name,), with_runs=True, run_names=runs))


def decide_backfill(
    state: State, command: ScheduleBackfill, now: Micros, ids: Ids
) -> Decision[ScheduleBackfilled]:
    """Start the runs of past times that have none. Raises ScheduleNotFoundError, InvalidCommandError."""
    row = named_schedule(state, command)
    timetable = _timetable(state, row)
    starts = _Starts(state, now, ids, unreadable=_unreadable(state, reads_of_backfill(command)))
    firing = _Firing(starts, row, Overlap(command.overlap))
    existing = 0
    if any(one >= other for one, other in pairwise(command.times)):
        raise InvalidCommandError("the times of a backfill are ascending, and each is given once")
    for at in command.times:
        if at > now:
            raise InvalidCommandError("a backfill covers past times; the schedule itself fires in the future")
        if not timetable.is_nominal(at):
            raise InvalidCommandError(f"{at} is no nominal time of the schedule {row.name!r}")
        found = timetable.after(at - 1)
        assert found is not None
        due = DueTime(occurrence=found, kind=StartKind.BACKFILL)
        in_its_way = firing.start(due, run_id_of(row.name, at), priority=BACKFILL_PRIORITY)
        existing += in_its_way is not None
    reply = ScheduleBackfilled(
        runs=tuple(starts.runs), existing=existing, follow_up=merge(*starts.follow_ups)
    )
    return Decision(reply, (Update(firing.fired_row()), *starts.changes), tuple(starts.hints))


def _unreadable(state: State, reads: Reads) -> Collection[RunName]:
    search = reads.search
    assert search is not None
    return frozenset(state.found[search].unreadable)


def _timetable(state: State, row: ScheduleRow) -> Timetable:
    try:
        return timetable_of(row.timing, state.zones)
    except (DefinitionError, InvalidArgumentError, *PARSE_ERRORS) as error:
        raise InvalidCommandError(f"the schedule {row.name!r} can't be read: {error}") from error
