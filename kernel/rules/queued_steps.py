"""Rules for queued steps: each is a job, and its end is a history row that wakes the durable function.

See docs/decisions/0031.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from attrs import asdict, evolve

from holdfast.kernel.commands import (
    JobSettled,
    QueuedStepCompleted,
    QueuedStepFailed,
    QueuedStepJob,
    StepCancel,
    StepFail,
    StepQueue,
)
from holdfast.kernel.history import events, limits
from holdfast.kernel.history.exceptions import raised_from
from holdfast.kernel.pipelines.plan import RatePlan, SlotsPlan
from holdfast.kernel.rules.retries import NO_DETAILS, AttemptDetails, retry_of_step
from holdfast.kernel.rules.settlement import Settlement
from holdfast.kernel.rules.signals import wake_driver
from holdfast.kernel.runs.builder import RunDraft
from holdfast.kernel.state import Decision, State
from holdfast.ports.errors import StepLostError
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job, JobKey, JobKind, step_of
from holdfast.ports.records.run import Run
from holdfast.ports.records.values import Micros, Payload


def queue_step(draft: RunDraft, driver: Job, record: StepQueue) -> None:
    """Append the `step.queued` row and add the job of the step."""
    queued = record.queued
    event = events.StepQueued(
        call=record.call,
        step=record.step,
        queue=queued.queue,
        job=draft.next_job,
        attempt=record.attempt,
        max_attempts=queued.attempts,
        site=record.site,
        undoes=record.undoes,
        priority=queued.priority,
        max_concurrency=queued.max_concurrency,
        rate=None if queued.rate is None else asdict(queued.rate, filter=lambda _, value: value is not None),
        slots=None
        if queued.slots is None
        else asdict(queued.slots, filter=lambda _, value: value is not None),
    )
    row = draft.append(event, node=driver.node, epoch=driver.epoch, payload=queued.input)
    draft.open_step(record.call, record.step, row, queued)


def open_steps(rows: Sequence[HistoryRow]) -> Mapping[str, HistoryRow]:
    """Return the `step.queued` rows of calls whose steps have not ended, by call."""
    found: dict[str, HistoryRow] = {}
    for row in rows:
        match events.event_of(row):
            case events.StepQueued(call=call):
                found[call] = row
            case (
                events.StepCompleted(call=call)
                | events.StepFailed(call=call)
                | events.StepCancelled(call=call)
            ):
                found.pop(call, None)
            case _:
                pass
    return found


def is_job_of_row(job: Job, row: HistoryRow) -> bool:
    """Whether a job is the one that this `step.queued` row names."""
    event = events.StepQueued.from_row(row)
    return (job.kind, job.number, job.node) == (JobKind.STEP, event.job, event.call)


def queue_again(draft: RunDraft, lost: HistoryRow) -> None:
    """Replace the missing job of a queued step: append another `step.queued` row, with the next attempt number."""
    event = events.StepQueued.from_row(lost)
    again = evolve(event, job=draft.next_job, attempt=event.attempt + 1)
    row = draft.append(again, node=lost.node, epoch=lost.epoch, payload=lost.payload)
    draft.open_step(event.call, event.step, row, queued_by(lost))


def queued_by(row: HistoryRow) -> QueuedStepJob:
    """Return the job options of a `step.queued` row."""
    event = events.StepQueued.from_row(row)
    assert row.payload is not None
    return QueuedStepJob(
        queue=event.queue,
        input=row.payload,
        attempts=event.max_attempts,
        priority=event.priority,
        max_concurrency=event.max_concurrency,
        rate=None if event.rate is None else RatePlan(**cast("Mapping[str, Any]", event.rate)),
        slots=None if event.slots is None else SlotsPlan(**cast("Mapping[str, Any]", event.slots)),
    )


def cancel_queued_step(state: State, draft: RunDraft, driver: Job, record: StepCancel) -> None:
    """Delete the job of a queued step that its function no longer waits for, and append `step.cancelled`.

    Does nothing if the step has ended. An attempt in progress is fenced.
    """
    job = state.tables.job(JobKey(draft.run_key, record.job))
    if job is None or job.kind is not JobKind.STEP or job.node != record.call:
        return
    event = events.StepCancelled(call=job.node, step=step_of(job.definition), job=job.number)
    draft.append(event, node=driver.node, epoch=driver.epoch)
    draft.close_job(job)


def settle_step(settlement: Settlement) -> Decision[JobSettled]:
    """Store the outcome of an attempt of a queued step. If the step has ended, wake its function as well."""
    state, command, run, job = settlement.state, settlement.command, settlement.run, settlement.job
    details, now, draft = settlement.details, settlement.now, settlement.draft()
    retry_at: Micros | None = None
    match command.outcome:
        case QueuedStepCompleted(output=output):
            for event in command.events:
                function = state.plan_of(run).function
                draft.append_user_event(job, event, node=function, call=job.node)
            completed = events.StepCompleted(
                call=job.node,
                step=step_of(job.definition) or "",
                job=job.number,
                attempt=job.attempts,
                started_at=details.started_at,
                host=details.host,
            )
            _end(state, draft, run, job, completed, now, output=output)
        case QueuedStepFailed(error=error, retry=retry, retry_after=retry_after):
            failed = _failed(job, events.RecordedError.from_text(error), details)
            fail = StepFail(
                event=failed, retry=retry, retry_after=retry_after, lost_attempts=job.lost_attempts
            )
            retry_at = _retry_or_fail(state, draft, run, job, fail, now)
        case other:
            raise AssertionError(f"{other} ends no step")
    reply = JobSettled(
        status="settled", run_status=draft.status, retry_at=retry_at, follow_up=draft.follow_up
    )
    return Decision(reply, draft.changes(), tuple(draft.hints))


def free_lost_step(state: State, draft: RunDraft, run: Run, job: Job, now: Micros) -> bool:
    """Free the job of a step whose attempt was lost and return True; or fail the step and return False."""
    lost = evolve(job, lost_attempts=job.lost_attempts + 1)
    raised = raised_from(StepLostError(step_of(job.definition) or "", job.attempts))
    error = events.RecordedError(
        type=raised.type, message=raised.message, code=raised.code, arguments=raised.arguments
    )
    failed = evolve(_failed(job, error, NO_DETAILS), lost=True, lost_attempts=lost.lost_attempts)
    fail = StepFail(event=failed, retry=None, lost_attempts=lost.lost_attempts)
    return _retry_or_fail(state, draft, run, lost, fail, now) is not None


def _retry_or_fail(
    state: State, draft: RunDraft, run: Run, job: Job, fail: StepFail, now: Micros
) -> Micros | None:
    """Put the job of a failed or lost attempt to sleep and return until when, or fail its step and return None."""
    retrying = retry_of_step(fail, job, now)
    if retrying is None:
        _end(state, draft, run, job, fail.event, now)
        return None
    _append(state, draft, run, job, retrying, None)
    draft.reschedule_job(job, retrying.retry_at)
    return retrying.retry_at


def _failed(job: Job, error: events.RecordedError, details: AttemptDetails) -> events.StepFailed:
    return events.StepFailed(
        call=job.node,
        step=step_of(job.definition) or "",
        job=job.number,
        attempt=job.attempts,
        error=error,
        started_at=details.started_at,
        host=details.host,
    )


def _end(
    state: State,
    draft: RunDraft,
    run: Run,
    job: Job,
    event: events.HistoryEvent,
    now: Micros,
    *,
    output: Payload | None = None,
) -> None:
    _append(state, draft, run, job, event, output)
    draft.close_job(job)
    wake_driver(state, draft, run, now)


def _append(
    state: State, draft: RunDraft, run: Run, job: Job, event: events.HistoryEvent, output: Payload | None
) -> None:
    function = state.plan_of(run).function
    row = draft.append(event, node=function, epoch=job.epoch, payload=output)
    if limits.gets_long(row - 1, row):
        draft.append(events.HistoryLong(most=limits.ROWS_MAX))
