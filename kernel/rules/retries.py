"""Rules for failed attempts: retry later, give up a map item, or fail the run.

**What counts.** `Job.tries` is the number of attempts so far, without claims that were given back and without attempts
that were lost with their worker. All tries count together, whichever error each of them had. The error of the last one
chooses the policy, and the policy says whether there is another and after which wait. So a stage with three attempts in
general and ten for `RateLimited` gets its fourth attempt only if the third failed with `RateLimited`.

**Where.** Here it is decided for stages, conditions, maps, child runs, checks, cancellations, and steps, inline and
queued alike: whether there is another attempt, and when. A durable function is retried as a whole run: if its policy
allows another attempt, its next generation is that attempt (docs/decisions/0076). By default it allows one.

**Who knows the error class.** The kernel never sees the exception of a body, and knows no class of a user. The host
that ran the body finds out which policy the error falls under (`hosts/execution/failures.py`), and reports that, never
when the body is tried again. For a stage it sends the index of the plan's rule (`Failure.rule`), as the policies are
stored with the run: a deploy may change which errors are final or match a rule, but not the attempts and waits of runs
in progress. The policy of a step follows the deployed code, as its body does, so it is sent whole (`StepFail.retry`,
`QueuedStepFailed.retry`). Errors that another attempt would only repeat are final: `NEVER_AGAIN`.

**Waits.** They count from the commit that records the failure, by the clock of the store. A body may set the wait
itself (`RetryAfter`, at most seven days). Otherwise it grows exponentially up to a maximum, with jitter, so that jobs
that failed together do not return together. The jitter is a hash of job and attempt instead of a random number: the
kernel is pure, and the same state and command give the same decision. No wait exceeds the maximum: waits that have
reached it are spread below it only. The job sleeps in the store meanwhile and needs no process. If the next attempt
would start after `timeout_total`, counted from the first claim, the stage fails at once with the code `timeout_total`:
waiting would change nothing. A policy with a `total_time` makes no attempt whose wait would end later than that after
the start of the first one. For a stage or queued step that is its first claim; for an inline step it is the start that
its first row records, by the clock of its host.

**Lost attempts** are counted apart and retried at once, until `is_given_up` (docs/decisions/0059).

**Giving up.** In a map that tolerates failures the item is given up, and its error takes the place of its output.
Otherwise the run fails, its other jobs are deleted, and so their attempts are fenced. External work that is still
waited for is cancelled, unless the failed check has shown that it is over. A step that fails is a row, whose error is
raised where its function awaits it. An inline compensation must not fail: it is retried, and the driver is told to
block the run (`JobRecorded.failure`).

**Two exceptions.** Checks of external work begin anew when their attempts are used up, since an outage of the other
system must not fail the run (`kernel/rules/external_work.py`). A compensation in a queue fails like any step, and its
driver blocks the run and queues it again.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final
from zlib import crc32

from holdfast.kernel.commands import Failure, StepFail
from holdfast.kernel.history import events
from holdfast.kernel.history.exceptions import MESSAGE_MAX
from holdfast.kernel.pipelines.plan import Enough, MapPlan, Plan, RetryPolicy, policy_of, stage_of
from holdfast.kernel.pipelines.progress import progress_from
from holdfast.kernel.runs.builder import RunDraft
from holdfast.kernel.runs.external_work import LOST_WORKER
from holdfast.kernel.runs.external_work import has_external_work_ended as is_work_over
from holdfast.kernel.runs.plan_interpreter import item_failed, open_map
from holdfast.ports.errors import (
    BlobMissingError,
    CompensationError,
    GiveUp,
    InvalidValueError,
    NoTransactionError,
    StepResultError,
    StorageRefusedError,
    TransactionEndedError,
    UnstorableValueError,
)
from holdfast.ports.json import canonical
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import LOSSES_MIN, SUSPECT_AFTER, Job, JobKey, JobKind, losses_max
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.records.values import Micros, Payload
from holdfast.ports.structs import evolve, frozen

TIMEOUT_TOTAL: Final = "timeout_total"
"""Code of the failure of a job whose attempts took too long together."""

RETRY_AFTER_MAX: Final[Micros] = 7 * 86_400_000_000
"""Longest wait that a body can set with `RetryAfter`: seven days."""

NEVER_AGAIN: Final = (
    GiveUp,
    BlobMissingError,
    InvalidValueError,
    NoTransactionError,
    StepResultError,
    StorageRefusedError,
    TransactionEndedError,
    UnstorableValueError,
)
"""Errors that another attempt would only repeat: final, unless the policy has a rule for these very classes. `GiveUp`
is final in any case."""

_EXPONENT_MAX: Final = 64
_NEVER_ALONE: Final = 4
"""How many times the limit a step may be lost without having run alone, before its run is blocked."""


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
    retry_at = next_attempt_at(plan, job, failure, now)
    if retry_at is None:
        fail_stage(draft, plan, job, failure, details)
        return None
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


def next_attempt_at(plan: Plan, job: Job, failure: Failure, now: Micros) -> Micros | None:
    """Return when a job is tried again after this failure; None if it is not."""
    policy = policy_of(plan, job, failure.rule) if failure.retryable else None
    return _retry_at(
        policy, failure.retry_after, job.key, job.tries, job.max_attempts, job.first_claimed_at, now
    )


def _retry_at(
    policy: RetryPolicy | None,
    retry_after: Micros | None,
    key: JobKey,
    tries: int,
    attempts_max: int | None,
    began: Micros | None,
    now: Micros,
) -> Micros | None:
    """Return when a body is tried again after it has failed `tries` times, the last one under `policy`.

    `began` is when the first attempt began; None if that is not known, and then this moment stands in for it.
    """
    if policy is None:
        return None
    most = policy.attempts if attempts_max is None else min(policy.attempts, attempts_max)
    if tries >= most:
        return None
    at, total = now + retry_wait(policy, retry_after, key, tries), policy.total_time_us
    return None if total is not None and at > (now if began is None else began) + total else at


def retry_wait(policy: RetryPolicy, retry_after: Micros | None, key: JobKey, tries: int) -> Micros:
    """Return the wait after a failed attempt: the one that the body set, or else the one of the policy."""
    if retry_after is None:
        return backoff(policy, key, tries)
    return min(max(retry_after, 0), RETRY_AFTER_MAX)


def is_given_up(losses: int, attempts: int, *, alone: bool = True, must_succeed: bool = False) -> bool:
    """Return whether a body that allows so many attempts is given up after so many losses.

    One that was lost beside others that may have killed the worker is not, unless it allows one attempt.
    """
    most = _losses_max(attempts, must_succeed=must_succeed)
    return losses >= most and (alone or most == 1)


def _losses_max(attempts: int, *, must_succeed: bool) -> int:
    return max(attempts, LOSSES_MIN) if must_succeed else losses_max(attempts)


def retry_of_step(fail: StepFail, job: Job, now: Micros) -> events.StepRetrying | None:
    """Return the event of a step's failed or lost attempt if it is tried again; None if the step fails.

    `job` is the job of the step itself or, for an inline step, that of its function.
    """
    failed = fail.event
    attempts_max = job.max_attempts if job.kind is JobKind.STEP else None
    if failed.lost:
        attempts = attempts_max or (1 if fail.retry is None else fail.retry.attempts)
        must = attempts_max is None and failed.undoes is not None
        is_over = is_given_up(fail.lost_attempts, attempts, alone=fail.is_alone, must_succeed=must)
        at = None if is_over else now
    else:
        key, tries = JobKey(f"{job.run}/{failed.call}", job.number), failed.attempt - fail.lost_attempts
        began = job.first_claimed_at if job.kind is JobKind.STEP else fail.first_started_at
        at = _retry_at(fail.retry, fail.retry_after, key, tries, attempts_max, began, now)
    return None if at is None else _retrying(failed, at)


def fail_inline_step(
    fail: StepFail, job: Job, now: Micros
) -> tuple[events.StepFailed | events.StepRetrying, Failure | None]:
    """Return the event of an inline step's failed or lost attempt, and why the run must be blocked, if it must.

    A compensation that uses up its attempts blocks the run, and is tried again once that is resumed. So does a step
    that was lost too often without ever having run alone.
    """
    failed, retrying = fail.event, retry_of_step(fail, job, now)
    if retrying is None and (not failed.undoes or failed.error.code == StepResultError.code):
        return failed, None
    event = retrying or _retrying(failed, now)
    if not failed.lost:
        return event, compensation_failure(failed) if retrying is None else None
    attempts = 1 if fail.retry is None else fail.retry.attempts
    most = _NEVER_ALONE * _losses_max(attempts, must_succeed=failed.undoes is not None)
    is_blocked = retrying is None or fail.lost_attempts >= most
    return event, _lost_step_failure(failed) if is_blocked else None


def compensation_failure(failed: events.StepFailed) -> Failure:
    """Return why a run must be blocked whose compensation has failed for good."""
    error, what = failed.error, f"the compensation {failed.step!r} has failed {_times(failed.attempt)}"
    message = f"{what}: {error.type}: {error.message}; `run resume` retries it"
    return Failure(code=CompensationError.code, message=message[:MESSAGE_MAX])


def _lost_step_failure(failed: events.StepFailed) -> Failure:
    what = f"the compensation {failed.step!r} was" if failed.undoes else f"step {failed.step!r} was"
    message = f"{what} lost with its worker {_times(failed.lost_attempts)}; `run resume` retries it"
    return Failure(code=CompensationError.code if failed.undoes else LOST_WORKER, message=message)


def _retrying(failed: events.StepFailed, at: Micros) -> events.StepRetrying:
    """Return the event of an attempt that is retried. Its error is not raised, so it has no arguments."""
    return events.StepRetrying(
        call=failed.call,
        step=failed.step,
        attempt=failed.attempt,
        error=evolve(failed.error, arguments=None),
        job=failed.job,
        retry_at=at,
        host=failed.host,
        site=failed.site,
        started_at=failed.started_at,
        undoes=failed.undoes,
        lost=failed.lost,
        lost_attempts=failed.lost_attempts,
    )


def _times(number: int) -> str:
    return f"{number} time" if number == 1 else f"{number} times"


@frozen(kw_only=True)
class RunAttempt:
    """An attempt of a run that may be retried as a whole."""

    number: int
    """1 for the first."""
    first_at: Micros
    """When the first attempt began."""


def attempt_of_run(run: Run, history: Sequence[HistoryRow]) -> RunAttempt:
    """Return which attempt a run is, from its history."""
    own = [row for row in history if row.run == run.key]
    created = events.RunCreated.from_row(own[0])
    if created.attempt is not None and created.first_attempt_at is not None:
        return RunAttempt(number=created.attempt, first_at=created.first_attempt_at)
    admitted = next((row.at for row in own if row.type == events.RunAdmitted.type), own[0].at)
    return RunAttempt(number=1, first_at=admitted)


def next_run_at(
    plan: Plan, run: Run, job: Job, attempt: RunAttempt, failure: Failure, now: Micros
) -> Micros | None:
    """Return when the run of a durable function is tried again as a whole after this failure; None if it is not.

    `job` drives the function. A run that was told to end is not, nor is one whose deadline would pass before.
    """
    if run.is_ending or not failure.retryable:
        return None
    policy = policy_of(plan, job, failure.rule)
    at = _retry_at(policy, failure.retry_after, job.key, attempt.number, None, attempt.first_at, now)
    return None if at is None or (run.deadline is not None and at >= run.deadline) else at


def fail_stage(
    draft: RunDraft,
    plan: Plan,
    job: Job,
    failure: Failure,
    details: AttemptDetails,
    *,
    retry_run_at: Micros | None = None,
) -> None:
    """Fail the stage of a job for good: fail its run or, in a map that tolerates it, give up the item.

    External work that the stage waited for is cancelled, unless it is over. `retry_run_at` is when the next generation
    tries the whole run again, if one does.
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
        retry_at=retry_run_at,
    )
    draft.append(run_failed)
    error = run_failed.facts
    if failure.arguments is not None:
        error["arguments"] = failure.arguments
    draft.end(RunStatus.FAILED, cancels=plan.cancels, error=error)


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
