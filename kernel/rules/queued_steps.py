"""Rules for queued steps: each is a job, and its end is a history row that wakes the durable function.

See docs/decisions/0031.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from attrs import asdict, evolve

from holdfast.kernel.commands import (
    JobSettle,
    JobSettled,
    QueuedStepCompleted,
    QueuedStepFailed,
    QueuedStepJob,
    RowToRecord,
)
from holdfast.kernel.history import limits
from holdfast.kernel.history.exceptions import raised_from
from holdfast.kernel.pipelines.plan import RatePlan
from holdfast.kernel.rules.signals import wake_driver
from holdfast.kernel.runs.builder import RunDraft
from holdfast.kernel.state import Decision, State
from holdfast.ports.errors import StepLostError
from holdfast.ports.json import parse
from holdfast.ports.records.history import (
    HISTORY_LONG,
    STEP_CANCELLED,
    STEP_COMPLETED,
    STEP_ENDS,
    STEP_FAILED,
    STEP_QUEUED,
    STEP_RETRYING,
    HistoryRow,
)
from holdfast.ports.records.job import Job, JobKey, JobKind, losses_max, step_of
from holdfast.ports.records.run import Run
from holdfast.ports.records.values import Micros, Payload


def steps_in_queues(state: State, run: str) -> list[Job]:
    """Return the run's jobs of queued steps, of the jobs that were read."""
    return [job for job in state.tables.jobs.get(run, {}).values() if job.kind is JobKind.STEP]


def queue_step(draft: RunDraft, driver: Job, recorded: RowToRecord) -> None:
    """Append the `step.queued` row and add the job of the step."""
    queued = recorded.queued
    assert queued is not None
    step = recorded.step or ""
    number = draft.next_job
    facts: dict[str, object] = {
        "call": recorded.call,
        "step": step,
        "queue": queued.queue,
        "job": number,
        "attempt": recorded.attempt,
        "max_attempts": queued.attempts,
    }
    if recorded.site:
        facts["site"] = recorded.site
    if recorded.undoes is not None:
        facts["undoes"] = recorded.undoes
    if queued.priority is not None:
        facts["priority"] = queued.priority
    if queued.max_concurrency is not None:
        facts["max_concurrency"] = queued.max_concurrency
    if queued.rate is not None:
        facts["rate"] = asdict(queued.rate, filter=lambda _, value: value is not None)
    row = draft.append(STEP_QUEUED, node=driver.node, epoch=driver.epoch, payload=queued.input, data=facts)
    draft.open_step(recorded.call, step, row, queued)


def open_steps(rows: Sequence[HistoryRow]) -> Mapping[str, HistoryRow]:
    """Return the `step.queued` rows of calls whose steps have not ended, by call."""
    found: dict[str, HistoryRow] = {}
    for row in rows:
        call = str(_facts(row)["call"])
        if row.type == STEP_QUEUED:
            found[call] = row
        elif row.type in STEP_ENDS:
            found.pop(call, None)
    return found


def is_job_of_row(job: Job, row: HistoryRow) -> bool:
    """Whether a job is the one that this `step.queued` row names."""
    facts = _facts(row)
    return (job.kind, job.number, job.node) == (JobKind.STEP, facts["job"], facts["call"])


def queue_again(draft: RunDraft, lost: HistoryRow) -> None:
    """Replace the missing job of a queued step: append another `step.queued` row, with the next attempt number."""
    facts = {**_facts(lost), "job": draft.next_job}
    facts["attempt"] = cast("int", facts["attempt"]) + 1
    row = draft.append(STEP_QUEUED, node=lost.node, epoch=lost.epoch, payload=lost.payload, data=facts)
    draft.open_step(str(facts["call"]), str(facts["step"]), row, queued_by(lost))


def queued_by(row: HistoryRow) -> QueuedStepJob:
    """Return the job options of a `step.queued` row."""
    facts = _facts(row)
    assert row.payload is not None
    rate = facts.get("rate")
    return QueuedStepJob(
        queue=str(facts["queue"]),
        input=row.payload,
        attempts=cast("int", facts["max_attempts"]),
        priority=cast("int | None", facts.get("priority")),
        max_concurrency=cast("int | None", facts.get("max_concurrency")),
        rate=None if rate is None else RatePlan(**cast("Mapping[str, Any]", rate)),
    )


def _facts(row: HistoryRow) -> dict[str, object]:
    return cast("dict[str, object]", parse(row.data or "{}"))


def cancel_queued_step(state: State, draft: RunDraft, driver: Job, recorded: RowToRecord) -> None:
    """Delete the job of a queued step that its function no longer waits for, and append `step.cancelled`.

    Does nothing if the step has ended. An attempt in progress is fenced.
    """
    job = state.tables.job(JobKey(draft.run_key, recorded.job or 0))
    if job is None or job.kind is not JobKind.STEP or job.node != recorded.call:
        return
    facts: dict[str, object] = {"call": job.node, "step": step_of(job.definition), "job": job.number}
    draft.append(STEP_CANCELLED, node=driver.node, epoch=driver.epoch, data=facts)
    draft.close_job(job)


def settle_step(
    state: State, command: JobSettle, run: Run, job: Job, circumstances: dict[str, object], now: Micros
) -> Decision[JobSettled]:
    """Store the outcome of an attempt of a queued step. If the step has ended, wake its function as well."""
    draft = RunDraft(run, now)
    retry_at: Micros | None = None
    match command.outcome:
        case QueuedStepCompleted(output=output):
            _end(state, draft, run, job, STEP_COMPLETED, circumstances, now, output=output)
        case QueuedStepFailed(error=error, retry_at=int(at)) if job.tries < job.max_attempts:
            retry_at = max(at, now)
            _try_again(state, draft, run, job, {**circumstances, "error": parse(error)}, retry_at)
        case QueuedStepFailed(error=error):
            _end(state, draft, run, job, STEP_FAILED, {**circumstances, "error": parse(error)}, now)
        case other:
            raise AssertionError(f"{other} ends no step")
    reply = JobSettled(
        status="settled", run_status=draft.status, retry_at=retry_at, admits_jobs=draft.admits_jobs
    )
    return Decision(reply, draft.changes(), tuple(draft.hints))


def free_lost_step(state: State, draft: RunDraft, run: Run, job: Job, now: Micros) -> bool:
    """Free the job of a step whose attempt was lost and return True; or fail the step and return False."""
    lost = evolve(job, lost_attempts=job.lost_attempts + 1)
    is_retried = lost.lost_attempts < losses_max(job.max_attempts)
    raised = raised_from(StepLostError(step_of(job.definition) or "", job.attempts, is_retried=is_retried))
    error: dict[str, object] = {"type": raised.type, "message": raised.message, "code": raised.code}
    if is_retried:
        _try_again(
            state, draft, run, lost, {"error": error, "lost": True, "lost_attempts": lost.lost_attempts}, now
        )
        return True
    if raised.arguments is not None:
        error["arguments"] = raised.arguments
    _end(
        state,
        draft,
        run,
        job,
        STEP_FAILED,
        {"error": error, "lost": True, "lost_attempts": lost.lost_attempts},
        now,
    )
    return False


def _end(
    state: State,
    draft: RunDraft,
    run: Run,
    job: Job,
    kind: str,
    details: dict[str, object],
    now: Micros,
    *,
    output: Payload | None = None,
) -> None:
    _append(state, draft, run, job, kind, details, output)
    draft.close_job(job)
    wake_driver(state, draft, run, now)


def _try_again(
    state: State, draft: RunDraft, run: Run, job: Job, details: dict[str, object], retry_at: Micros
) -> None:
    _append(state, draft, run, job, STEP_RETRYING, {**details, "retry_at": retry_at}, None)
    draft.reschedule_job(job, retry_at)


def _append(
    state: State,
    draft: RunDraft,
    run: Run,
    job: Job,
    kind: str,
    details: dict[str, object],
    output: Payload | None,
) -> None:
    facts: dict[str, object] = {
        "call": job.node,
        "step": step_of(job.definition),
        "job": job.number,
        "attempt": job.attempts,
    }
    function = cast("str", state.plan_of(run).function)
    row = draft.append(kind, node=function, epoch=job.epoch, payload=output, data={**facts, **details})
    if limits.gets_long(row - 1, row):
        draft.append(HISTORY_LONG, data={"most": limits.ROWS_MAX})
