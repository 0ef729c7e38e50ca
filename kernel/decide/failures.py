"""What a failed attempt comes to: another one after a while, or the end of its run."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final
from zlib import crc32

from attrs import evolve

from holdfast.kernel.advance import failure_facts, stage_failed
from holdfast.kernel.commands import Failure
from holdfast.kernel.draft import RunDraft
from holdfast.kernel.plan import Plan, RetryPolicy, stage_of
from holdfast.ports.records import Job, JobKey, Micros

LOST_WORKER: Final = "worker_lost"
"""The code of the failure that a lost worker's attempts end with."""

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
    """Put the job to sleep until it is tried again, and return when; or end the run as failed, and return None.

    All attempts count, whatever they failed by: the policy that this failure falls under says whether there is another.
    """
    policy = stage_of(plan.node(job.node)).policy(failure.rule)
    if not failure.retryable or job.attempts >= min(policy.attempts, job.max_attempts):
        stage_failed(draft, job, failure, circumstances)
        return None
    retry_at = now + _wait(policy, job, failure)
    if is_over(job, retry_at):
        stage_failed(draft, job, out_of_time(job, failure), circumstances)
        return None
    details = {**failure_facts(job, failure), **circumstances, "retry_at": retry_at}
    draft.append("stage.retrying", node=job.node, item=job.item, epoch=job.epoch, data=details)
    draft.rest_job(evolve(job, losses=0), retry_at)
    return retry_at


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


def _wait(policy: RetryPolicy, job: Job, failure: Failure) -> Micros:
    if failure.retry_after is None:
        return backoff(policy, job.key, job.attempts)
    return min(max(failure.retry_after, 0), RETRY_AFTER_MAX)


def backoff(policy: RetryPolicy, key: JobKey, attempt: int) -> Micros:
    """Return how long to wait after this attempt. The jitter is a hash of job and attempt, so it replays."""
    try:
        wait = policy.wait_us * policy.backoff ** min(attempt - 1, _EXPONENT_MAX)
    except OverflowError:  # more than a float can say
        wait = policy.wait_max_us if policy.wait_us else 0
    spread = crc32(f"{key.text}:{attempt}".encode()) / 2**32 * 2 - 1
    return int(min(wait, policy.wait_max_us) * (1 + policy.jitter * spread))
