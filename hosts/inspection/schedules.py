"""Schedules as typed documents: what they are, the outcomes of their times, and why they wait."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal, TypeAlias

import attrs

from holdfast.hosts.inspection.bounds import SCHEDULES_PAGE
from holdfast.hosts.inspection.why import WaitReason
from holdfast.hosts.text import counted, format_duration, format_instant
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.calendars.occurrences import next_after
from holdfast.kernel.calendars.specs import Cron, Every, Spec
from holdfast.kernel.commands import Missed, Overlap, SchedulePolicy
from holdfast.kernel.schedules.row_data import (
    NominalOutcome,
    OperatorChange,
    is_over,
    pause_of,
    policy_of,
    specs_of,
    start_of,
    values_of,
)
from holdfast.kernel.schedules.timetable import timetable_of
from holdfast.ports.clock import instant, micros
from holdfast.ports.errors import HoldfastError, ScheduleNotFoundError
from holdfast.ports.queries.schedules import FindSchedule, ListSchedules
from holdfast.ports.records.schedule import ScheduleName, ScheduleRow
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import evolve
from holdfast.ports.unreadable import PARSE_ERRORS

ScheduleState: TypeAlias = Literal["active", "paused", "over", "blocked"]

SCHEDULE_LATE_AFTER: Micros = 60_000_000
"""A schedule that is overdue for longer than this is late: hosts with its code fire it within seconds."""


@attrs.frozen(kw_only=True)
class NominalTime:
    """The outcome of one nominal time of a schedule. Instants are aware, in UTC."""

    at: datetime
    """The nominal time; of a triggered run, when it was triggered."""
    handled_at: datetime
    """When it was handled."""
    outcome: str
    """`started`; `skipped` because of the overlap policy; `superseded` by a later time of the same firing; or
    `existing`: its run existed already."""
    kind: str
    """`due`, `made_up`, `backfill` or `manual`."""
    run_id: str | None
    """The run that was started or existed; for `skipped` and `superseded`, the run because of which none was."""


@attrs.frozen(kw_only=True)
class ScheduleChanged:
    """A change of a schedule. Instants are aware, in UTC."""

    at: datetime
    """When it was made."""
    change: str
    """`created`, `updated`, `paused`, `resumed` or `triggered`."""
    actor: str
    """Who made it, for people; "" if unknown."""
    reason: str
    """Why, for people."""


@attrs.frozen(kw_only=True)
class ScheduleInfo:
    """A schedule as it was when it was read. Instants are aware, in UTC."""

    name: str
    """Its name, unique in the namespace."""
    workflow: str
    """The name of the workflow that it starts."""
    input: str
    """The input of each run as JSON text; "" if it can't be read."""
    when: tuple[str, ...]
    """Its cron expressions, each with its zone, and intervals."""
    state: ScheduleState
    """`active`; `paused`; `over`: no more times come; or `blocked`: it can't fire, see `problem`."""
    next_at: datetime | None
    """The next nominal time; None unless it is active."""
    overlap: str
    """What happens at a nominal time while earlier runs have not ended, such as `skip`."""
    missed: str
    """What happens about missed times: `last`, `all` or `none`."""
    missed_within: timedelta | None
    """How late a missed time may be to be made up for; None for the default of `missed`."""
    jitter: timedelta
    """A run starts up to this long after its nominal time."""
    pause_after_failures: int | None
    """It is paused once so many runs in a row have failed; None for never."""
    max_runs: int | None
    """It stops after so many runs; None for no limit."""
    paused_at: datetime | None
    """When it was paused; None if it is not."""
    paused_by: str
    """Who paused it, for people; "" if unknown."""
    pause_reason: str
    """Why it was paused, for people; "" if it was not, or without a reason."""
    problem: str | None
    """Why it can't fire, if it can't."""
    runs_started: int
    """How many runs it has started."""
    times_skipped: int
    """How many nominal times were skipped because of the overlap policy."""
    times_missed: int
    """How many nominal times were missed and not made up for; of one downtime, 1,000 are counted at most."""
    failures: int
    """How many runs failed in a row, if `pause_after_failures` is set."""
    declared: bool
    """Whether the code of an engine declares it."""
    recent: tuple[NominalTime, ...]
    """The outcomes of the last 20 nominal times, oldest first."""
    changes: tuple[ScheduleChanged, ...]
    """The last 20 changes, oldest first."""
    created_at: datetime
    """When it was created."""
    updated_at: datetime
    """When it last changed, or fired."""

    def is_late(self, now: datetime) -> bool:
        """Return whether it is overdue for longer than a minute at an instant: hosts fire it within seconds."""
        return self.next_at is not None and micros(now) - micros(self.next_at) > SCHEDULE_LATE_AFTER


@attrs.frozen(kw_only=True)
class ScheduleReasons:
    """Why a schedule waits."""

    name: str
    """Its name."""
    state: ScheduleState
    """Its state: `active`, `paused`, `over` or `blocked`."""
    reasons: tuple[WaitReason, ...]
    """One for each cause."""


def read_schedule(core: Core, name: str) -> ScheduleRow:
    """Return the row of a schedule. ScheduleNotFoundError."""
    core.connect()
    row = core.stores.persistence.read(FindSchedule(ScheduleName(core.namespace, name)))
    if row is None:
        raise ScheduleNotFoundError(name)
    return row


def schedule_rows(
    core: Core, namespace: str | None = None, *, declared: bool = False, after: str = ""
) -> Iterator[ScheduleRow]:
    """Yield the schedules of a namespace, by default that of the engine, by name, page by page.

    With `after`, only those whose names sort after it.
    """
    core.connect()
    query = ListSchedules(
        namespace=namespace or core.namespace, limit=SCHEDULES_PAGE, declared=declared, after=after
    )
    while True:
        page = core.stores.persistence.read(query)
        yield from page
        if len(page) < SCHEDULES_PAGE:
            return
        query = evolve(query, after=page[-1].name)


def schedule_info(row: ScheduleRow) -> ScheduleInfo:
    """Return a schedule as a document."""
    policy, pause = _policy(row), pause_of(row)
    return ScheduleInfo(
        name=row.name,
        workflow=row.workflow,
        input=_input(row),
        when=tuple(map(spec_text, _specs(row))),
        state=state_of(row),
        next_at=None if row.next_at is None else instant(row.next_at),
        overlap=policy.overlap.value,
        missed=policy.missed.value,
        missed_within=None if policy.window is None else timedelta(microseconds=policy.window),
        jitter=timedelta(microseconds=policy.jitter),
        pause_after_failures=policy.pause_after_failures,
        max_runs=policy.runs_max,
        paused_at=None if pause is None else instant(pause.since),
        paused_by="" if pause is None or pause.actor is None else pause.actor.text,
        pause_reason="" if pause is None else pause.reason,
        problem=row.problem,
        runs_started=row.started,
        times_skipped=row.skipped,
        times_missed=row.missed,
        failures=row.failures,
        declared=row.declared is not None,
        recent=tuple(map(_nominal_time, values_of(row.recent, NominalOutcome))),
        changes=tuple(map(_change, values_of(row.changes, OperatorChange))),
        created_at=instant(row.created_at),
        updated_at=instant(row.updated_at),
    )


def state_of(row: ScheduleRow) -> ScheduleState:
    """Return the state of a schedule."""
    if row.problem is not None:
        return "blocked"
    if row.paused is not None:
        return "paused"
    return "over" if row.next_at is None else "active"


def spec_text(spec: Spec) -> str:
    """Return a cron expression with its zone, or an interval, for people."""
    if isinstance(spec, Every):
        return f"every {_exact(spec.length)}"
    options = [spec.zone]
    options += [f"gap={spec.gap}"] if spec.gap != "shift" else []
    options += [f"fold={spec.fold}"] if spec.fold is not None else []
    options += [f"except {len(spec.except_on)} dates"] if spec.except_on else []
    return f"{' | '.join(spec.text)} ({', '.join(options)})"


def _exact(length: timedelta) -> str:
    """Return a duration as text, with all of its units."""
    minutes, seconds = divmod(length.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    parts = [
        f"{number}{unit}" for number, unit in ((length.days, "d"), (hours, "h"), (minutes, "m")) if number
    ]
    exact = seconds + length.microseconds / 1_000_000
    return " ".join([*parts, f"{exact:g}s"] if exact or not parts else parts)


def next_times(core: Core, row: ScheduleRow, count: int) -> tuple[datetime, ...]:
    """Return the next nominal times of a schedule from now on, in UTC, as if it were not paused."""
    table = timetable_of(row.timing, core.stores.zones)
    after = max(micros(core.clock.now()), row.handled_until)
    if row.next_at is not None:
        after = min(after, row.next_at - 1)
    found: list[datetime] = []
    policy = _policy(row)
    left = count if policy.runs_max is None else min(count, policy.runs_max - row.started)
    while len(found) < left and (one := next_after(table.specs, table.zones, after)) is not None:
        found.append(instant(one.at))
        after = one.at
    return tuple(found)


def schedule_reasons(core: Core, row: ScheduleRow, zone: tzinfo | None = UTC) -> ScheduleReasons:
    """Return why a schedule waits, and the outcome of its last time.

    Instants in the texts are in this time zone, the local one if None.
    """
    now = micros(core.clock.now())
    found = _reasons(row, now, zone, has_code=_has_code(core, row))
    return ScheduleReasons(name=row.name, state=state_of(row), reasons=tuple(found))


def _has_code(core: Core, row: ScheduleRow) -> bool:
    return core.registry.find_workflow(row.workflow) is not None


def _reasons(row: ScheduleRow, now: Micros, zone: tzinfo | None, *, has_code: bool) -> Iterator[WaitReason]:
    pause = pause_of(row)
    if row.problem is not None:
        advice = "Update the schedule, or install what is missing and resume it."
        text = f"It can't fire: {row.problem}. {advice}"
        yield WaitReason(code="blocked", text=text)
    if pause is not None:
        by = "" if pause.actor is None else f" by {pause.actor.text}"
        why = f", because {pause.reason!r}" if pause.reason else ""
        since = format_duration(now - pause.since)
        yield WaitReason(
            code="paused", text=f"It was paused {since} ago{by}{why}. Nothing starts until it is resumed."
        )
    elif row.problem is None and row.next_at is None:
        yield WaitReason(code="over", text=_over(row))
    elif row.next_at is not None and now - row.next_at > SCHEDULE_LATE_AFTER:
        late = f"{format_duration(now - row.next_at)} ago (at {format_instant(row.next_at, zone)})"
        text = f"It was due {late}. Workers that have the code of {row.workflow} fire it: start one"
        yield WaitReason(
            code="late", text=f"{text}." if has_code else f"{text}; this process lacks that code."
        )
    elif row.next_at is not None:
        wait = format_duration(max(0, row.next_at - now))
        jitter = _policy(row).jitter
        later = f", or up to {format_duration(jitter)} later" if jitter else ""
        text = f"The next run starts in {wait} (at {format_instant(row.next_at, zone)}){later}."
        yield WaitReason(code="next", text=text, until=instant(row.next_at))
    yield from _last(row, zone)


def _over(row: ScheduleRow) -> str:
    if is_over(row):
        return f"It has started {row.started:,} runs, as many as it may."
    return "No more times come: its cron expressions and intervals have ended."


def _last(row: ScheduleRow, zone: tzinfo | None) -> Iterator[WaitReason]:
    recent = values_of(row.recent, NominalOutcome)
    if recent and recent[-1].outcome == "skipped":
        last = recent[-1]
        at = format_instant(last.at, zone)
        text = f"The run for {at} was skipped, because {last.run} had not ended, and overlap is skip."
        yield WaitReason(code="skipped", text=text)
    if row.missed:
        yield WaitReason(
            code="missed",
            text=f"{counted(row.missed, 'time')} passed while no host fired it, without being made up for.",
        )


def _policy(row: ScheduleRow) -> SchedulePolicy:
    try:
        return policy_of(row)
    except (HoldfastError, *PARSE_ERRORS):
        return SchedulePolicy(overlap=Overlap.SKIP, missed=Missed.LAST)


def _specs(row: ScheduleRow) -> tuple[Cron | Every, ...]:
    try:
        return specs_of(row.timing)
    except (HoldfastError, *PARSE_ERRORS):
        return ()


def _input(row: ScheduleRow) -> str:
    try:
        return start_of(row).input.inline or ""
    except (HoldfastError, *PARSE_ERRORS):
        return ""


def _nominal_time(one: NominalOutcome) -> NominalTime:
    return NominalTime(
        at=instant(one.at),
        handled_at=instant(one.handled_at),
        outcome=one.outcome,
        kind=one.kind.value,
        run_id=one.run,
    )


def _change(one: OperatorChange) -> ScheduleChanged:
    return ScheduleChanged(
        at=instant(one.at),
        change=one.change,
        actor="" if one.actor is None else one.actor.text,
        reason=one.reason,
    )
