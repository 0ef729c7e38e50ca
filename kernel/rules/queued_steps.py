"""Rules for steps that a function has put into a queue: each is a job of its own, whose end its function is told."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from attrs import asdict, evolve

from holdfast.kernel.commands import (
    JobSettle,
    JobSettled,
    Queued,
    QueuedStepCompleted,
    QueuedStepFailed,
    Recorded,
)
from holdfast.kernel.history import limits
from holdfast.kernel.history.exceptions import raised_from
from holdfast.kernel.pipelines.plan import RatePlan
from holdfast.kernel.rules.signals import wake_driver
from holdfast.kernel.runs.builder import RunDraft
from holdfast.kernel.state import Decision, State
from holdfast.ports.errors import StepLostError
from holdfast.ports.json import parse
from holdfast.ports.records import (
    HISTORY_LONG,
    STEP_CANCELLED,
    STEP_COMPLETED,
    STEP_ENDS,
    STEP_FAILED,
    STEP_QUEUED,
    STEP_RETRYING,
    HistoryRow,
    Job,
    JobKey,
    JobKind,
    Micros,
    Payload,
    Run,
    losses_max,
    step_of,
)


def steps_in_queues(state: State, run: str) -> list[Job]:
    """Return the jobs of steps that a run has, of those that were read."""
    return [job for job in state.tables.jobs.get(run, {}).values() if job.kind is JobKind.STEP]


def queue_step(draft: RunDraft, driver: Job, recorded: Recorded) -> None:
    """Note that a step is to be done, and add the job that does it."""
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
    """Return the calls whose steps are in queues, each with the row that put it there."""
    found: dict[str, HistoryRow] = {}
    for row in rows:
        call = str(_facts(row)["call"])
        if row.type == STEP_QUEUED:
            found[call] = row
        elif row.type in STEP_ENDS:
            found.pop(call, None)
    return found


def is_of(job: Job, row: HistoryRow) -> bool:
    """Whether a job is the one that does the step which a row has put into a queue."""
    facts = _facts(row)
    return (job.kind, job.number, job.node) == (JobKind.STEP, facts["job"], facts["call"])


def queue_again(draft: RunDraft, lost: HistoryRow) -> None:
    """Give a step another job whose own is not there, by another row like this one."""
    facts = {**_facts(lost), "job": draft.next_job}
    facts["attempt"] = cast("int", facts["attempt"]) + 1
    row = draft.append(STEP_QUEUED, node=lost.node, epoch=lost.epoch, payload=lost.payload, data=facts)
    draft.open_step(str(facts["call"]), str(facts["step"]), row, queued_by(lost))


def queued_by(row: HistoryRow) -> Queued:
    """Return how a row says that a step was put into its queue."""
    facts = _facts(row)
    assert row.payload is not None
    rate = facts.get("rate")
    return Queued(
        queue=str(facts["queue"]),
        input=row.payload,
        attempts=cast("int", facts["max_attempts"]),
        priority=cast("int | None", facts.get("priority")),
        max_concurrency=cast("int | None", facts.get("max_concurrency")),
        rate=None if rate is None else RatePlan(**cast("Mapping[str, Any]", rate)),
    )


def _facts(row: HistoryRow) -> dict[str, object]:
    return cast("dict[str, object]", parse(row.data or "{}"))


def take_back_step(state: State, draft: RunDraft, driver: Job, recorded: Recorded) -> None:
    """Take the job of a step away in which nobody is interested any more: whoever holds it can write no more.

    If it has ended meanwhile there is nothing to take away.
    """
    job = state.tables.job(JobKey(draft.run_key, recorded.job or 0))
    if job is None or job.kind is not JobKind.STEP or job.node != recorded.call:
        return
    facts: dict[str, object] = {"call": job.node, "step": step_of(job.definition), "job": job.number}
    draft.append(STEP_CANCELLED, node=driver.node, epoch=driver.epoch, data=facts)
    draft.close_job(job)


def step_settled(
    state: State, command: JobSettle, run: Run, job: Job, circumstances: dict[str, object], now: Micros
) -> Decision[JobSettled]:
    """Note how an attempt at a step ended. If the step has, its function is woken in the same commit."""
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
    """Free the job of a step whose holder is gone; return False if it was lost too often: the step has failed."""
    raised = raised_from(StepLostError(step_of(job.definition) or "", job.attempts))
    error: dict[str, object] = {"type": raised.type, "message": raised.message, "code": raised.code}
    lost = evolve(job, lost_attempts=job.lost_attempts + 1)
    if lost.lost_attempts < losses_max(job.max_attempts):
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
