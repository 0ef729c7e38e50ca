"""Rules for schedules: create, update, pause, resume, remove, and plan again by newer time zone data."""

from collections.abc import Mapping
from typing import TypeAlias

from holdfast.kernel.commands import (
    RunCreate,
    ScheduleBackfill,
    SchedulePause,
    SchedulePut,
    ScheduleRemove,
    ScheduleRemoved,
    ScheduleReplan,
    ScheduleResume,
    SchedulesReplanned,
    ScheduleStored,
    ScheduleTrigger,
)
from holdfast.kernel.commands.names import check_name
from holdfast.kernel.commands.schedules import Overlap
from holdfast.kernel.composed_searches import NamedSchedules
from holdfast.kernel.limits.start_bounds import with_concurrency
from holdfast.kernel.pipelines.plan import Plan
from holdfast.kernel.rules.starts import check_start
from holdfast.kernel.schedules.row_data import (
    Pause,
    is_over,
    start_text,
    text_of,
    with_change,
)
from holdfast.kernel.schedules.timetable import Timetable, remaining_times, timetable_of
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import Delete, Insert, Update
from holdfast.ports.clock import Ids
from holdfast.ports.errors import (
    CommandError,
    DefinitionError,
    InvalidArgumentError,
    InvalidCommandError,
    ScheduleExistsError,
    ScheduleNotFoundError,
    UnknownWorkflowError,
    UnknownZoneError,
)
from holdfast.ports.records.schedule import ScheduleName, ScheduleRow
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import SchedulesOfOtherZones
from holdfast.ports.structs import evolve
from holdfast.ports.tables import SCHEDULES
from holdfast.ports.unreadable import PARSE_ERRORS

NAME_MAX = 200
"""Maximum length of the name of a schedule. The id of a run has 56 characters more."""
INPUT_MAX = 65_536
"""Maximum length of the input of a schedule as JSON text."""
WITH_SLOT = frozenset({Overlap.QUEUE, Overlap.QUEUE_ONE, Overlap.CANCEL})
"""The policies under which runs wait for each other: they share a concurrency key."""
_NO_RELEASE = "0"
"""The version of time zone data that a process without any has: older than all releases."""

_Named: TypeAlias = (
    SchedulePut | SchedulePause | ScheduleResume | ScheduleRemove | ScheduleTrigger | ScheduleBackfill
)


def reads_of_named(command: _Named) -> Reads:
    """Lock the schedule. Raises InvalidCommandError if its name is not valid."""
    return Reads(search=NamedSchedules((name_of(command),)))


def name_of(command: _Named) -> ScheduleName:
    """Return the name of the schedule that a command is about. Raises InvalidCommandError if it is not valid."""
    name = command.schedule
    check_name("the name of the schedule", name)
    if not 1 <= len(name) <= NAME_MAX or name != name.strip("/") or "//" in name:
        raise InvalidCommandError(
            f"the name of a schedule has 1 to {NAME_MAX} characters, and no / at its ends or beside another one; "
            f"got {name[:NAME_MAX]!r}"
        )
    return ScheduleName(command.namespace, name)


def named_schedule(state: State, command: _Named) -> ScheduleRow:
    """Return the schedule that a command names. Raises ScheduleNotFoundError."""
    row = state.tables.schedule_named(ScheduleName(command.namespace, command.schedule))
    if row is None:
        raise ScheduleNotFoundError(command.schedule)
    return row


def decide_put(state: State, command: SchedulePut, now: Micros, ids: Ids) -> Decision[ScheduleStored]:
    """Create the schedule, or update it. Raises ScheduleExistsError, UnknownWorkflowError, InvalidCommandError."""
    known = state.tables.schedule_named(ScheduleName(command.namespace, command.schedule))
    if known is not None and command.if_exists == "error":
        raise ScheduleExistsError(command.schedule)
    is_declared = known is not None and command.declared is not None and known.declared == command.declared
    if known is not None and is_declared and known.problem is None:
        return Decision(_stored(known, changed=False))
    if (command.start.workflow, command.start.version) not in state.workflows:
        raise UnknownWorkflowError(command.start.workflow, command.start.version)
    _check_put(command, state.workflows)
    timetable = _timetable(state, command.timing)
    cursor = now if known is None else max(now, known.handled_until)
    first = timetable.after(cursor)
    if first is None:
        raise InvalidCommandError(
            f"the schedule {command.schedule!r} never fires after now: its times have ended, are all excluded, or "
            "never come"
        )
    made = ScheduleRow(
        key=ids.new() if known is None else known.key,
        namespace=command.namespace,
        name=command.schedule,
        workflow=command.start.workflow,
        start=start_text(command.start),
        timing=command.timing,
        policy=text_of(command.policy),
        zones=timetable.version,
        next_at=first.at,
        handled_until=cursor,
        declared=command.declared,
        created_at=now,
        updated_at=now,
    )
    if known is None:
        row = with_change(made, "created", now, command.actor)
        return Decision(_stored(row, created=True, changed=True), (Insert(row),))
    row = _updated(state, known, made, command, now)
    return Decision(_stored(row, changed=True), (Update(row),))


def _updated(
    state: State, known: ScheduleRow, made: ScheduleRow, command: SchedulePut, now: Micros
) -> ScheduleRow:
    """Return a stored schedule with what a command changes. What was counted, and a pause, stay."""
    row = evolve(
        known,
        workflow=made.workflow,
        start=made.start,
        timing=made.timing,
        policy=made.policy,
        declared=known.declared if made.declared is None else made.declared,
        problem=None,
        updated_at=max(now, known.updated_at),
    )
    was_over = known.next_at is None and known.paused is None
    if known.timing == made.timing and was_over:
        # The local times that it handled by other time zone data stay handled.
        row = planned(state, evolve(row, handled_until=made.handled_until))
    elif known.timing != made.timing:
        row = evolve(
            row,
            zones=made.zones,
            next_at=made.next_at,
            handled_until=made.handled_until,
            last_local=None,
        )
    if known.paused is not None or is_over(row):
        row = evolve(row, next_at=None)
    return with_change(row, "updated", now, command.actor)


def _check_put(command: SchedulePut, workflows: Mapping[tuple[str, str | None], Plan]) -> None:
    start, policy = command.start, command.policy
    wrong = {
        "namespace": start.namespace != command.namespace,
        "id": start.id is not None,
        "start_at": start.start_at is not None,
        "idempotency_key": start.idempotency_key is not None,
        "scheduled": start.scheduled is not None,
        "signals": bool(start.signals),
    }
    if field := next((name for name, is_wrong in wrong.items() if is_wrong), None):
        raise InvalidCommandError(f"start.{field} is set; the schedule sets it for each run")
    if start.input.inline is None or len(start.input.inline) > INPUT_MAX:
        raise InvalidCommandError(
            f"the input of a schedule is stored with it: it has at most {INPUT_MAX:,} characters as JSON; store more "
            "elsewhere, and pass its key"
        )
    if start.concurrency_key is not None and policy.overlap in WITH_SLOT:
        raise InvalidCommandError(
            f"overlap={policy.overlap.value!r} and a concurrency_key can't be combined: runs wait for one of them"
        )
    check_overlap(policy.overlap, start, workflows)
    check_start(start)


def check_overlap(
    overlap: Overlap, start: RunCreate, workflows: Mapping[tuple[str, str | None], Plan]
) -> None:
    """Raise InvalidCommandError if runs would wait for each other by the schedule and by their workflow's limit."""
    plan = workflows.get((start.workflow, start.version))
    if plan is None or overlap not in WITH_SLOT or with_concurrency(start, plan) is start:
        return
    raise InvalidCommandError(
        f"overlap={overlap.value!r} can't be combined with the concurrency of the workflow {start.workflow!r}: runs "
        "wait for one of them. Use overlap='allow': its concurrency then says how many runs may be under way, how many "
        "may wait, and what happens beyond that"
    )


def _timetable(state: State, timing: str) -> Timetable:
    try:
        return timetable_of(timing, state.zones)
    except CommandError:
        raise
    except (DefinitionError, InvalidArgumentError, *PARSE_ERRORS) as error:
        raise InvalidCommandError(f"timing can't be used: {error}") from error


def decide_pause(state: State, command: SchedulePause, now: Micros, _: Ids) -> Decision[ScheduleStored]:
    """Pause the schedule. A paused one stays as it is. Raises ScheduleNotFoundError."""
    known = named_schedule(state, command)
    if known.paused is not None:
        return Decision(_stored(known, changed=False))
    pause = Pause(since=now, actor=command.actor, reason=command.reason)
    row = with_change(paused(known, pause), "paused", now, command.actor, command.reason)
    return Decision(_stored(row, changed=True), (Update(row),))


def paused(row: ScheduleRow, pause: Pause) -> ScheduleRow:
    """Return a schedule that is paused."""
    return evolve(row, paused=text_of(pause), next_at=None, updated_at=max(pause.since, row.updated_at))


def decide_resume(state: State, command: ScheduleResume, now: Micros, _: Ids) -> Decision[ScheduleStored]:
    """Resume a schedule that is paused, or that could not fire. Raises ScheduleNotFoundError."""
    known = named_schedule(state, command)
    if known.paused is None and known.problem is None:
        return Decision(_stored(known, changed=False))
    row = evolve(known, paused=None, failures=0, updated_at=max(now, known.updated_at))
    if known.paused is not None and not command.make_up:
        row = evolve(row, handled_until=max(now, row.handled_until))
    row = with_change(planned(state, row), "resumed", now, command.actor)
    return Decision(_stored(row, changed=True), (Update(row),))


def planned(state: State, row: ScheduleRow) -> ScheduleRow:
    """Return a schedule with its next nominal time, or with the problem that keeps it from firing."""
    try:
        timetable = remaining_times(row, state.zones)
        found = None if is_over(row) else timetable.after(row.handled_until)
    except (CommandError, DefinitionError, InvalidArgumentError, *PARSE_ERRORS) as error:
        return with_problem(state, row, error)
    return evolve(row, next_at=None if found is None else found.at, zones=timetable.version, problem=None)


def with_problem(state: State, row: ScheduleRow, error: Exception) -> ScheduleRow:
    """Return a schedule that does not fire because of an error.

    If this process does not know the time zone, the row counts as planned by its time zone data, so that a process with
    newer data plans it again.
    """
    if row.zones and state.zones is None:
        row = evolve(row, zones=_NO_RELEASE)
    elif state.zones is not None and isinstance(error, UnknownZoneError):
        row = evolve(row, zones=state.zones.version)
    return evolve(row, next_at=None, problem=f"{type(error).__name__}: {error}"[:1_000])


def decide_remove(state: State, command: ScheduleRemove, _: Micros, __: Ids) -> Decision[ScheduleRemoved]:
    """Remove the schedule."""
    known = state.tables.schedule_named(ScheduleName(command.namespace, command.schedule))
    if known is None or (command.declared is not None and known.declared != command.declared):
        return Decision(ScheduleRemoved(removed=False))
    return Decision(ScheduleRemoved(removed=True), (Delete(SCHEDULES, known.key),))


def reads_of_replan(command: ScheduleReplan) -> Reads:
    """Search for schedules that were planned with other time zone data."""
    return Reads(search=_of_other_zones(command))


def _of_other_zones(command: ScheduleReplan) -> SchedulesOfOtherZones:
    return SchedulesOfOtherZones(
        command.namespace, command.workflows, command.version, command.after, command.limit
    )


def decide_replan(state: State, command: ScheduleReplan, now: Micros, _: Ids) -> Decision[SchedulesReplanned]:
    """Plan again what was planned with older time zone data. A version sorts after older ones."""
    found = state.found[_of_other_zones(command)].schedules
    before = [state.tables.schedules[key] for key in found]
    older = [row for row in before if row.zones < command.version and row.paused is None]
    after = [evolve(planned(state, row), updated_at=max(now, row.updated_at)) for row in older]
    moved = [new.name for old, new in zip(older, after, strict=True) if old.next_at != new.next_at]
    following = found[-1] if len(found) >= command.limit else None
    reply = SchedulesReplanned(replanned=len(after), moved=tuple(moved), next=following)
    return Decision(reply, tuple(map(Update, after)))


def _stored(row: ScheduleRow, *, created: bool = False, changed: bool) -> ScheduleStored:
    return ScheduleStored(schedule=row.name, created=created, changed=changed, next_at=row.next_at)
