"""Operations on schedules. A schedule is created by the code that declares it, or by the command `schedule.put`."""

from datetime import datetime
from itertools import islice
from typing import Any, Final, Literal

import attrs

from holdfast.hosts.client.sync_schedule_handle import SyncScheduleHandle
from holdfast.hosts.http.operations import (
    NAMESPACE,
    Hint,
    Invocation,
    Nothing,
    Operation,
    Reason,
    Table,
    Wait,
)
from holdfast.hosts.http.principals import Scope
from holdfast.hosts.http.run_actions import Removed
from holdfast.hosts.inspection.schedules import (
    ScheduleInfo,
    ScheduleReasons,
    read_schedule,
    schedule_info,
    schedule_reasons,
    schedule_rows,
)
from holdfast.kernel.commands import SchedulePause, ScheduleRemove, ScheduleResume, ScheduleTrigger
from holdfast.kernel.commands.schedules import Overlap
from holdfast.ports.errors import (
    IdempotencyConflictError,
    InvalidArgumentError,
    InvalidCommandError,
    ScheduleNotFoundError,
    UnknownWorkflowError,
)

_SCHEDULES: Final = f"{NAMESPACE}/schedules"
_SCHEDULE: Final = f"{_SCHEDULES}/{{name}}"


@attrs.frozen(kw_only=True)
class SchedulesQuery:
    """The query parameters of the list of schedules."""

    after: str | None = None
    """Only schedules whose names sort after this one."""
    limit: int = attrs.field(default=50, validator=[attrs.validators.ge(1), attrs.validators.le(1_000)])
    """The maximum number of schedules, at most 1,000."""


@attrs.frozen(kw_only=True)
class SchedulePage:
    """A page of the schedules, by name."""

    items: tuple[ScheduleInfo, ...]
    """The schedules."""
    next: str | None
    """The `after` of the next page; null on the last one."""


@attrs.frozen(kw_only=True)
class NextQuery:
    """The query parameters of the next times."""

    count: int = attrs.field(default=1, validator=[attrs.validators.ge(1), attrs.validators.le(1_000)])
    """How many, 1 to 1,000."""


@attrs.frozen(kw_only=True)
class NextTimes:
    """The next nominal times of a schedule."""

    items: tuple[datetime, ...]
    """The times. There are fewer than requested if the schedule ends."""


@attrs.frozen(kw_only=True)
class ScheduleResumption:
    """How a schedule resumes."""

    make_up: bool = False
    """Whether the times that passed during the pause count as missed; otherwise they are left out."""


@attrs.frozen(kw_only=True)
class Trigger:
    """A start beside the plan."""

    overlap: Overlap | None = None
    """What happens if runs of the schedule have not ended; by default the policy of the schedule."""


@attrs.frozen(kw_only=True)
class TriggeredRun:
    """The outcome of a trigger."""

    run_id: str | None
    """The id of the run; null if the overlap policy started none."""
    skipped_for: str | None
    """The id of the run because of which none was started."""


@attrs.frozen(kw_only=True)
class Backfill:
    """A range of past nominal times."""

    start: datetime
    """The first instant."""
    end: datetime
    """The range ends before this instant. It has at most 10,000 nominal times."""
    overlap: Literal["queue", "allow"] = "queue"
    """Whether the runs start one after the other, or all at once."""
    dry_run: bool = False
    """Whether nothing is started, and the ids of the runs are returned that would be."""


@attrs.frozen(kw_only=True)
class BackfilledRuns:
    """The outcome of a backfill."""

    run_ids: tuple[str, ...]
    """The ids of the runs that were started, or would be."""


def list_schedules(call: Invocation[SchedulesQuery, Nothing]) -> SchedulePage:
    """List the schedules, by name."""
    query = call.query
    rows = schedule_rows(call.engine.core, after=query.after or "")
    found = tuple(map(schedule_info, islice(rows, query.limit + 1)))
    items = found[: query.limit]
    return SchedulePage(items=items, next=items[-1].name if len(found) > query.limit else None)


def get_schedule(call: Invocation[Nothing, Nothing]) -> ScheduleInfo:
    """Get a schedule: what it starts, when it fires next, and the outcomes of its last times."""
    return schedule_info(read_schedule(call.engine.core, call.path["name"]))


def why_schedule(call: Invocation[Nothing, Nothing]) -> ScheduleReasons:
    """Explain why a schedule waits."""
    return schedule_reasons(call.engine.core, read_schedule(call.engine.core, call.path["name"]))


def next_times(call: Invocation[NextQuery, Nothing]) -> NextTimes:
    """List the next nominal times of a schedule, as if it were not paused."""
    return NextTimes(items=_handle(call).next(call.query.count))


def pause_schedule(call: Invocation[Nothing, Reason]) -> ScheduleInfo:
    """Pause a schedule: nothing starts until it is resumed."""
    name = call.path["name"]
    call.engine.client.dispatch(
        SchedulePause(
            namespace=call.namespace,
            idempotency_key=call.idempotency_key,
            schedule=name,
            reason=call.body.reason,
        )
    )
    return schedule_info(read_schedule(call.engine.core, name))


def resume_schedule(call: Invocation[Nothing, ScheduleResumption]) -> ScheduleInfo:
    """Resume a schedule."""
    name = call.path["name"]
    call.engine.client.dispatch(
        ScheduleResume(
            namespace=call.namespace,
            idempotency_key=call.idempotency_key,
            schedule=name,
            make_up=call.body.make_up,
        )
    )
    return schedule_info(read_schedule(call.engine.core, name))


def trigger_schedule(call: Invocation[Nothing, Trigger]) -> TriggeredRun:
    """Start a run of a schedule now, beside its plan."""
    started = call.engine.client.dispatch(
        ScheduleTrigger(
            namespace=call.namespace,
            idempotency_key=call.idempotency_key,
            schedule=call.path["name"],
            overlap=call.body.overlap,
        )
    )
    return TriggeredRun(run_id=started.run_id, skipped_for=started.skipped_for)


def backfill_schedule(call: Invocation[Nothing, Backfill]) -> BackfilledRuns:
    """Start the runs of past nominal times that have none. Repeating it starts nothing twice."""
    body = call.body
    found = _handle(call).backfill(body.start, body.end, overlap=body.overlap, dry_run=body.dry_run)
    return BackfilledRuns(run_ids=found)


def remove_schedule(call: Invocation[Nothing, Nothing]) -> Removed:
    """Remove a schedule. Its runs stay."""
    command = ScheduleRemove(
        namespace=call.namespace, idempotency_key=call.idempotency_key, schedule=call.path["name"]
    )
    return Removed(removed=call.engine.client.dispatch(command).removed)


def _handle(call: Invocation[Any, Any]) -> SyncScheduleHandle:
    return call.engine.schedule(call.path["name"])


OPERATIONS: Final[Table] = (
    Operation(
        name="schedule.list",
        method="GET",
        path=_SCHEDULES,
        scope=Scope.READ,
        query=SchedulesQuery,
        reply=SchedulePage,
        handler=list_schedules,
        wait=Wait.CHANGE,
    ),
    Operation(
        name="schedule.get",
        method="GET",
        path=_SCHEDULE,
        scope=Scope.READ,
        reply=ScheduleInfo,
        handler=get_schedule,
        wait=Wait.CHANGE,
        errors=(ScheduleNotFoundError,),
    ),
    Operation(
        name="schedule.why",
        method="GET",
        path=f"{_SCHEDULE}/why",
        scope=Scope.READ,
        reply=ScheduleReasons,
        handler=why_schedule,
        wait=Wait.CHANGE,
        errors=(ScheduleNotFoundError,),
    ),
    Operation(
        name="schedule.next",
        method="GET",
        path=f"{_SCHEDULE}/next",
        scope=Scope.READ,
        query=NextQuery,
        reply=NextTimes,
        handler=next_times,
        errors=(ScheduleNotFoundError,),
    ),
    Operation(
        name="schedule.pause",
        method="POST",
        path=f"{_SCHEDULE}/pause",
        scope=Scope.OPERATE,
        body=Reason,
        reply=ScheduleInfo,
        handler=pause_schedule,
        hint=Hint.CHANGES,
        idempotent=True,
        errors=(ScheduleNotFoundError, InvalidCommandError, IdempotencyConflictError),
    ),
    Operation(
        name="schedule.resume",
        method="POST",
        path=f"{_SCHEDULE}/resume",
        scope=Scope.OPERATE,
        body=ScheduleResumption,
        reply=ScheduleInfo,
        handler=resume_schedule,
        hint=Hint.CHANGES,
        idempotent=True,
        errors=(ScheduleNotFoundError, IdempotencyConflictError),
    ),
    Operation(
        name="schedule.trigger",
        method="POST",
        path=f"{_SCHEDULE}/trigger",
        scope=Scope.OPERATE,
        body=Trigger,
        reply=TriggeredRun,
        handler=trigger_schedule,
        hint=Hint.CHANGES,
        idempotent=True,
        errors=(ScheduleNotFoundError, UnknownWorkflowError, IdempotencyConflictError),
    ),
    Operation(
        name="schedule.backfill",
        method="POST",
        path=f"{_SCHEDULE}/backfill",
        scope=Scope.OPERATE,
        body=Backfill,
        reply=BackfilledRuns,
        handler=backfill_schedule,
        hint=Hint.CHANGES,
        errors=(ScheduleNotFoundError, UnknownWorkflowError, InvalidArgumentError),
    ),
    Operation(
        name="schedule.remove",
        method="DELETE",
        path=_SCHEDULE,
        scope=Scope.OPERATE,
        reply=Removed,
        handler=remove_schedule,
        hint=Hint.DESTROYS,
        idempotent=True,
        errors=(IdempotencyConflictError,),
    ),
)
