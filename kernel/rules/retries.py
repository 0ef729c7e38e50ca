"""What a failed attempt comes to: another one after a while, an item that is lost, or the end of its run."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final
from zlib import crc32

from holdfast.kernel.commands import Failure
from holdfast.kernel.pipelines.interpreter import item_failed, open_map
from holdfast.kernel.pipelines.plan import Enough, MapPlan, Plan, RetryPolicy, StagePlan, stage_of
from holdfast.kernel.pipelines.progress import progress_from
from holdfast.kernel.runs.builder import RunDraft
from holdfast.kernel.runs.external_work import LOST_WORKER
from holdfast.kernel.runs.external_work import is_over as is_work_over
from holdfast.ports.json import canonical
from holdfast.ports.records import (
    STAGE_FAILED,
    SUSPECT_AFTER,
    Job,
    JobKey,
    JobKind,
    Micros,
    Payload,
    RunStatus,
)
from holdfast.ports.structs import evolve

TIMEOUT_TOTAL: Final = "timeout_total"
"""The code of the failure of a job whose attempts together took too long."""

RETRY_AFTER_MAX: Final[Micros] = 7 * 86_400_000_000
"""The longest that a body can ask to be left alone before it is tried again: seven days."""

_EXPONENT_MAX: Final = 64


def fail_attempt(
    draft: RunDraft,
    plan: Plan,
    job: Job,
    failure: Failure,
    now: Micros,
    circumstances: Mapping[str, object],
) -> Micros | None:
    """Put the job to sleep until it is tried again, and return when; or end its stage as failed, and return None.

    All attempts count that were not lost, whatever they failed by: the policy that this failure falls under says
    whether there is another.
    """
    policy = policy_of(plan, job, failure.rule)
    if not failure.retryable or job.tries >= min(policy.attempts, job.max_attempts):
        fail_stage(draft, plan, job, failure, circumstances)
        return None
    retry_at = now + wait_of(policy, job, failure)
    if is_over(job, retry_at):
        fail_stage(draft, plan, job, out_of_time(job, failure), circumstances)
        return None
    details = {**failure_facts(job, failure), **circumstances, "retry_at": retry_at}
    draft.append("stage.retrying", node=job.node, item=job.item, epoch=job.epoch, data=details)
    draft.reschedule_job(job, retry_at)
    return retry_at


def lost_for_good(job: Job) -> Failure:
    """Return why a job is given up that was lost once more, with that loss counted."""
    lost = f"the worker that held attempt {job.attempts} was lost"
    if job.lost_attempts > SUSPECT_AFTER:
        alone = job.lost_attempts - SUSPECT_AFTER
        lost += (
            f": {job.lost_attempts} were in all, the last {alone} beside nothing else that was lost before"
        )
    return Failure(code=LOST_WORKER, message=lost, retryable=False)


def is_over(job: Job, at: Micros) -> bool:
    """Return whether an attempt that begins then would begin when the time for all attempts is over."""
    until = job.total_until
    return until is not None and at >= until


def out_of_time(job: Job, last: Failure) -> Failure:
    """Return the failure of a job for whose next attempt no time is left. `last` is how the last one ended."""
    tried = "1 attempt was" if job.attempts == 1 else f"{job.attempts} attempts were"
    allowed = timedelta(microseconds=job.timeout_total or 0)
    why = f"the next would begin after the {allowed} for all of them"
    message = f"{tried} made, and {why}; the last one: {last.message}"
    return evolve(last, code=TIMEOUT_TOTAL, message=message, retryable=False)


def wait_of(policy: RetryPolicy, job: Job, failure: Failure) -> Micros:
    """Return how long to wait after an attempt that failed so: what it asked for itself, or what its policy says."""
    if failure.retry_after is None:
        return backoff(policy, job.key, job.tries)
    return min(max(failure.retry_after, 0), RETRY_AFTER_MAX)


def fail_stage(
    draft: RunDraft, plan: Plan, job: Job, failure: Failure, circumstances: Mapping[str, object]
) -> None:
    """Take into account that a stage failed for good: its run fails, or loses an item where that is tolerated.

    External work that it had waited for is cancelled, unless it is over.
    """
    facts = failure_facts(job, failure)
    node = plan.node(job.node)
    enough = node.enough if isinstance(node, MapPlan) and job.item is not None else None
    what = None if enough is None else _lost_item(job, failure)
    row = draft.append(
        STAGE_FAILED,
        node=job.node,
        item=job.item,
        epoch=job.epoch,
        payload=what,
        data={**facts, **circumstances},
    )
    goes_on = job.kind is JobKind.POLL and not is_work_over(failure.code)
    if enough is not None and not _is_missed(draft, enough, job):
        if goes_on:
            draft.leave_work(job, stage_of(node))
        else:
            draft.close_job(job)
        item_failed(draft, plan, progress_from(draft.progress), job, row)
        return
    if job.kind is JobKind.POLL and not goes_on and stage_of(node).cancel is not None:
        draft.close_job(job)  # or else its work would be cancelled with that of the others
    where: dict[str, object] = (
        {"stage": job.node} if job.item is None else {"stage": job.node, "item": job.item}
    )
    if job.kind is JobKind.WORKFLOW:
        where["function"] = True
    error = {**facts, **where}
    draft.append("run.failed", data=error)
    if failure.arguments is not None:
        error["arguments"] = failure.arguments
    draft.end(RunStatus.FAILED, cancels=plan.cancels, error=error)


def failure_facts(job: Job, failure: Failure) -> dict[str, object]:
    """Return what the history says of an attempt that failed."""
    return {
        "code": failure.code,
        "message": failure.message,
        "type": failure.type,
        "attempt": job.attempts,
        "job": job.number,
    }


def policy_of(plan: Plan, job: Job, rule: int | None) -> RetryPolicy:
    """Return how what a job does is tried again, after a failure that this rule of its stage is for."""
    stage: StagePlan = stage_of(plan.node(job.node))
    if job.kind is JobKind.CANCEL and stage.cancel:
        return stage.cancel.retry
    return stage.check.retry if job.kind is JobKind.POLL and stage.check else stage.policy(rule)


def backoff(policy: RetryPolicy, key: JobKey, attempt: int) -> Micros:
    """Return how long to wait after this attempt. The jitter is a hash of job and attempt, so it replays."""
    try:
        wait = policy.wait_us * policy.backoff ** min(attempt - 1, _EXPONENT_MAX)
    except OverflowError:  # more than a float can say
        wait = policy.wait_max_us if policy.wait_us else 0
    spread = crc32(f"{key.text}:{attempt}".encode()) / 2**32 * 2 - 1
    return int(min(wait, policy.wait_max_us) * (1 + policy.jitter * spread))


def _is_missed(draft: RunDraft, enough: Enough, job: Job) -> bool:
    counters = open_map(progress_from(draft.progress), job)
    return enough.is_missed(total=counters.total, failed=counters.failed + 1)


def _lost_item(job: Job, failure: Failure) -> Payload:
    """Return what the map gives for an item that failed, in the form of an `ItemFailure`."""
    error = f"{failure.type}: {failure.message}" if failure.type else failure.message
    return Payload(inline=canonical({"index": job.item, "error": error or failure.code}))
