"""What a failed attempt comes to: another one after a while, or the end of its run."""

from collections.abc import Mapping
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

_EXPONENT_MAX: Final = 64


def fail_attempt(
    draft: RunDraft,
    plan: Plan,
    job: Job,
    failure: Failure,
    now: Micros,
    circumstances: Mapping[str, object],
) -> Micros | None:
    """Put the job to sleep until it is tried again, and return when; or end the run as failed, and return None."""
    if not failure.retryable or job.attempts >= job.max_attempts:
        stage_failed(draft, job, failure, circumstances)
        return None
    retry_at = now + backoff(stage_of(plan.node(job.node)).retry, job.key, job.attempts)
    details = {**failure_facts(job, failure), **circumstances, "retry_at": retry_at}
    draft.append("stage.retrying", node=job.node, item=job.item, epoch=job.epoch, data=details)
    draft.rest_job(evolve(job, losses=0), retry_at)
    return retry_at


def backoff(policy: RetryPolicy, key: JobKey, attempt: int) -> Micros:
    """Return how long to wait after this attempt. The jitter is a hash of job and attempt, so it replays."""
    try:
        wait = policy.wait_us * policy.backoff ** min(attempt - 1, _EXPONENT_MAX)
    except OverflowError:  # more than a float can say
        wait = policy.wait_max_us if policy.wait_us else 0
    spread = crc32(f"{key.text}:{attempt}".encode()) / 2**32 * 2 - 1
    return int(min(wait, policy.wait_max_us) * (1 + policy.jitter * spread))
