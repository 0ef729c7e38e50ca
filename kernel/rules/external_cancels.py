"""Rules for cancel jobs: they retry the cancellation of external work, and one history row records the outcome.

They never change the status or result of the run.
"""

from holdfast.kernel.commands import Failure, JobSettled
from holdfast.kernel.history import events
from holdfast.kernel.pipelines.plan import Plan
from holdfast.kernel.rules.leases import job_hints
from holdfast.kernel.rules.retries import (
    NO_DETAILS,
    AttemptDetails,
    is_given_up,
    lost_worker_failure,
    next_attempt_at,
)
from holdfast.kernel.runs.builder import RunDraft, rescheduled
from holdfast.kernel.state import Decision
from holdfast.ports.changes import Update
from holdfast.ports.records.job import Job
from holdfast.ports.records.run import Run
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import evolve


def record_cancelled(run: Run, job: Job, details: AttemptDetails, now: Micros) -> Decision[JobSettled]:
    """Record that the external work is cancelled."""
    draft = RunDraft(run, now)
    cancelled = events.StageCancelled(
        attempt=job.attempts,
        job=job.number,
        key=job.waiting_for,
        started_at=details.started_at,
        host=details.host,
    )
    draft.append_of(job, cancelled)
    draft.delete_outliving_job(job)
    return Decision(JobSettled(status="settled", run_status=run.status), draft.changes())


def retry_cancel(
    run: Run, plan: Plan, job: Job, failure: Failure, details: AttemptDetails, now: Micros
) -> Decision[JobSettled]:
    """Schedule another attempt, which changes only the job; or record that the cancellation is given up."""
    if (retry_at := next_attempt_at(plan, job, failure, now)) is not None:
        retried = rescheduled(job, retry_at, now, run.status)
        reply = JobSettled(status="settled", run_status=run.status, retry_at=retry_at)
        return Decision(reply, (Update(retried),), job_hints(retried))
    draft = RunDraft(run, now)
    _append_cancel_failed(draft, job, failure, details)
    return Decision(JobSettled(status="settled", run_status=run.status), draft.changes())


def free_lost_cancel(draft: RunDraft, job: Job, now: Micros) -> Job | None:
    """Free a cancel job whose attempt was lost, or record that it is given up because it was lost too often.

    Returns the freed job, which is not in the draft: a retry leaves the row of the ended run unchanged.
    """
    lost = evolve(job, lost_attempts=job.lost_attempts + 1)
    if not is_given_up(lost.lost_attempts, job.max_attempts):
        return rescheduled(lost, now, now, draft.status)
    _append_cancel_failed(draft, lost, lost_worker_failure(lost), NO_DETAILS)
    return None


def _append_cancel_failed(draft: RunDraft, job: Job, failure: Failure, details: AttemptDetails) -> None:
    failed = events.StageCancelFailed(
        code=failure.code,
        message=failure.message,
        error_type=failure.type,
        attempt=job.attempts,
        job=job.number,
        key=job.waiting_for,
        lost_attempts=job.lost_attempts,
        started_at=details.started_at,
        host=details.host,
        traceback=details.traceback,
    )
    draft.append_of(job, failed)
    draft.delete_outliving_job(job)
