"""Rules for failed attempts: retry later, give up a map item, or fail the run.

**What counts.** `Job.tries` is the number of attempts so far, without claims that were given back and without attempts
that were lost with their worker. All tries count together, whichever error each of them had. The error of the last one
chooses the policy, and the policy says whether there is another and after which wait. So a stage with three attempts in
general and ten for `RateLimited` gets its fourth attempt only if the third failed with `RateLimited`.

**Who knows the error class.** The kernel never sees the exception of a body and imports no class by name. The host that
ran the body matches the error to one of the plan's retry rules and sends the rule's index (`Failure.rule`), or
`retryable=False` for errors that another attempt would only repeat, `GiveUp` first of all
(`hosts/execution/failures.py`). The policies themselves are in the plan, which is stored with the run: a deploy may
change which errors are final or match a rule, but not the attempts and waits of runs in progress.

**Waits.** A body may set the wait itself (`RetryAfter`, at most seven days). Otherwise it grows exponentially up to a
maximum, with jitter, so that jobs that failed together do not return together. The jitter is a hash of job and attempt
instead of a random number: the kernel is pure, and the same state and command give the same decision. No wait exceeds
the maximum: waits that have reached it are spread below it only. The job sleeps in the store meanwhile and needs no
process. If the next attempt would start after `timeout_total`, counted from the first claim, the stage fails at once
with the code `timeout_total`: waiting would change nothing.

**Giving up.** In a map that tolerates failures the item is given up, and its error takes the place of its output.
Otherwise the run fails, its other jobs are deleted, and so their attempts are fenced. External work that is still
waited for is cancelled, unless the failed check has shown that it is over.

**Where else retries are decided.** This module decides for stages, conditions, maps and child runs, and for attempts
that missed their heartbeat (`kernel/rules/heartbeats.py`). Not decided here:

- Steps, inline and queued: `_retry_at` in `hosts/functions/step_runner.py`. The policy of a step is an option in the
  code and in no plan, and with it the classes of its `by_error`. The row `step.retrying` has the instant. The module
  shares `backoff` and `RETRY_AFTER_MAX` with this one, and nothing else.
- Queued steps again: `settle_step` in `kernel/rules/queued_steps.py` takes the host's instant only if the job has
  attempts left, by the maximum that the caller stored in `step.queued`.
- Lost attempts: `free_lost_job` in `kernel/rules/sessions.py` for jobs of stages, `free_lost_step` in
  `kernel/rules/queued_steps.py`, `hosts/functions/lost_steps.py` for inline steps.
- Checks of external work: `checked` in `kernel/rules/external_work.py`. They use these policies, but begin anew when
  their attempts are used up: an outage of the other system must not fail the run.
- Cancellations of external work: `kernel/rules/external_cancels.py`. They fail no run.
- A durable function itself is never retried: the policy in its plan has one attempt.

That is ugly: one question, and answers in hosts and kernel. It stays because the policy of a step follows the deployed
code, as its body does. To decide it here, each error would have to be sent with the policy that it falls under.
"""

from datetime import timedelta
from typing import Final
from zlib import crc32

from holdfast.kernel.commands import Failure
from holdfast.kernel.history import events
from holdfast.kernel.pipelines.plan import Enough, MapPlan, Plan, RetryPolicy, StagePlan, stage_of
from holdfast.kernel.pipelines.progress import progress_from
from holdfast.kernel.runs.builder import RunDraft
from holdfast.kernel.runs.external_work import LOST_WORKER
from holdfast.kernel.runs.external_work import has_external_work_ended as is_work_over
from holdfast.kernel.runs.plan_interpreter import item_failed, open_map
from holdfast.ports.json import canonical
from holdfast.ports.records.job import SUSPECT_AFTER, Job, JobKey, JobKind
from holdfast.ports.records.run import RunStatus
from holdfast.ports.records.values import Micros, Payload
from holdfast.ports.structs import evolve, frozen

TIMEOUT_TOTAL: Final = "timeout_total"
"""Code of the failure of a job whose attempts took too long together."""

RETRY_AFTER_MAX: Final[Micros] = 7 * 86_400_000_000
"""Longest wait that a body can set with `RetryAfter`: seven days."""

_EXPONENT_MAX: Final = 64


@frozen(kw_only=True)
class AttemptDetails:
    """What the history row of an attempt records of the body besides its outcome."""

    started_at: Micros | None = None
    """When the body began, by the clock of its host."""
    host: str | None = None
    """The worker's process and machine."""
    traceback: str | None = None
    child_run: str | None = None
    """The id of the child run, if the stage is another pipeline."""


NO_DETAILS: Final = AttemptDetails()


def fail_attempt(
    draft: RunDraft,
    plan: Plan,
    job: Job,
    failure: Failure,
    now: Micros,
    details: AttemptDetails,
) -> Micros | None:
    """Schedule the next attempt of a job and return its instant, or fail its stage and return None.

    All attempts that were not lost count, whichever error they had. The policy that matches this failure decides
    whether another one follows. The history row has the details.
    """
    policy = policy_of(plan, job, failure.rule)
    if not failure.retryable or job.tries >= min(policy.attempts, job.max_attempts):
        fail_stage(draft, plan, job, failure, details)
        return None
    retry_at = now + retry_wait(policy, job, failure)
    if exceeds_total_timeout(job, retry_at):
        fail_stage(draft, plan, job, total_timeout_failure(job, failure), details)
        return None
    draft.append_of(
        job,
        events.StageRetrying(
            code=failure.code,
            message=failure.message,
            error_type=failure.type,
            attempt=job.attempts,
            job=job.number,
            retry_at=retry_at,
            started_at=details.started_at,
            host=details.host,
            traceback=details.traceback,
        ),
    )
    draft.reschedule_job(job, retry_at)
    return retry_at


def lost_worker_failure(job: Job) -> Failure:
    """Return the failure of a job that was lost too often. `job` includes the last loss."""
    lost = f"the worker that held attempt {job.attempts} was lost"
    if job.lost_attempts > SUSPECT_AFTER:
        alone = job.lost_attempts - SUSPECT_AFTER
        lost += f": {job.lost_attempts} attempts in all, the last {alone} without another quarantined job beside it"
    return Failure(code=LOST_WORKER, message=lost, retryable=False)


def exceeds_total_timeout(job: Job, at: Micros) -> bool:
    """Return whether an attempt that starts at this instant would exceed the time for all attempts."""
    until = job.total_until
    return until is not None and at >= until


def total_timeout_failure(job: Job, last: Failure) -> Failure:
    """Return the failure of a job that has no time left for another attempt, after the failure `last`."""
    tried = "1 attempt was" if job.attempts == 1 else f"{job.attempts} attempts were"
    allowed = timedelta(microseconds=job.timeout_total or 0)
    why = f"the next would begin after the {allowed} for all of them"
    message = f"{tried} made, and {why}; the last one: {last.message}"
    return evolve(last, code=TIMEOUT_TOTAL, message=message, retryable=False)


def retry_wait(policy: RetryPolicy, job: Job, failure: Failure) -> Micros:
    """Return the wait after a failed attempt: the one that the body set, or else the one of the policy."""
    if failure.retry_after is None:
        return backoff(policy, job.key, job.tries)
    return min(max(failure.retry_after, 0), RETRY_AFTER_MAX)


def fail_stage(draft: RunDraft, plan: Plan, job: Job, failure: Failure, details: AttemptDetails) -> None:
    """Fail the stage of a job for good: fail its run or, in a map that tolerates it, give up the item.

    External work that the stage waited for is cancelled, unless it is over.
    """
    node = plan.node(job.node)
    enough = node.enough if isinstance(node, MapPlan) and job.item is not None else None
    what = None if enough is None else _failed_item_output(job, failure)
    failed = events.StageFailed(
        code=failure.code,
        message=failure.message,
        error_type=failure.type,
        attempt=job.attempts,
        job=job.number,
        started_at=details.started_at,
        host=details.host,
        traceback=details.traceback,
        run=details.child_run,
    )
    row = draft.append_of(job, failed, payload=what)
    goes_on = job.kind is JobKind.POLL and not is_work_over(failure.code)
    if enough is not None and not _is_missed(draft, enough, job):
        if goes_on:
            draft.cancel_external_work(job, stage_of(node))
        else:
            draft.close_job(job)
        item_failed(draft, plan, progress_from(draft.progress), job, row)
        return
    if job.kind is JobKind.POLL and not goes_on and stage_of(node).cancel is not None:
        draft.close_job(job)  # its work is over: ending the run must not cancel it
    run_failed = events.RunFailed(
        code=failure.code,
        message=failure.message,
        error_type=failure.type,
        attempt=job.attempts,
        job=job.number,
        stage=job.node,
        item=job.item,
        function=job.kind is JobKind.WORKFLOW,
    )
    draft.append(run_failed)
    error = run_failed.facts
    if failure.arguments is not None:
        error["arguments"] = failure.arguments
    draft.end(RunStatus.FAILED, cancels=plan.cancels, error=error)


def policy_of(plan: Plan, job: Job, rule: int | None) -> RetryPolicy:
    """Return the retry policy of a job for errors that match this rule of its stage (None: no rule)."""
    stage: StagePlan = stage_of(plan.node(job.node))
    if job.kind is JobKind.CANCEL and stage.cancel:
        return stage.cancel.retry
    return stage.check.retry if job.kind is JobKind.POLL and stage.check else stage.policy(rule)


def backoff(policy: RetryPolicy, key: JobKey, attempt: int) -> Micros:
    """Return the exponential wait after this attempt, with a jitter that is a hash of job and attempt."""
    try:
        wait = policy.wait_us * policy.backoff ** min(attempt - 1, _EXPONENT_MAX)
    except OverflowError:  # too large for a float
        wait = policy.wait_max_us if policy.wait_us else 0
    wait = min(wait, policy.wait_max_us)
    shortest = wait * (1 - policy.jitter)
    # The range ends at the maximum. If longer waits were cut off instead, half of all jobs would return together.
    longest = min(wait * (1 + policy.jitter), policy.wait_max_us)
    share = crc32(f"{key.text}:{attempt}".encode()) / 2**32
    # Floats of this size may be rounded up.
    return min(int(shortest + (longest - shortest) * share), policy.wait_max_us)


def _is_missed(draft: RunDraft, enough: Enough, job: Job) -> bool:
    counters = open_map(progress_from(draft.progress), job)
    return enough.is_missed(total=counters.total, failed=counters.failed + 1)


def _failed_item_output(job: Job, failure: Failure) -> Payload:
    """Return the output of a map item that failed, in the form of an `ItemFailure`."""
    error = f"{failure.type}: {failure.message}" if failure.type else failure.message
    return Payload(inline=canonical({"index": job.item, "error": error or failure.code}))
