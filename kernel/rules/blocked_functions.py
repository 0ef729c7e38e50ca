"""Rules that block the run of a durable function, or try it again after its worker was lost."""

from holdfast.kernel.commands import Blocked, Failure, JobSettled
from holdfast.kernel.rules.retries import NO_DETAILS, AttemptDetails
from holdfast.kernel.rules.sessions import retry_lost_job
from holdfast.kernel.rules.settlement import Settlement, blocked, blocked_event
from holdfast.kernel.runs.builder import RunDraft
from holdfast.kernel.runs.external_work import LOST_WORKER
from holdfast.kernel.state import Decision, State
from holdfast.ports.records.job import Job, JobState
from holdfast.ports.records.run import Run
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import evolve


def block_function(settlement: Settlement) -> Decision[JobSettled]:
    """Block the run of a function that cannot continue."""
    outcome = settlement.command.outcome
    assert isinstance(outcome, Blocked)
    return block_function_with(settlement, outcome.failure, settlement.details_of(outcome.failure))


def block_function_with(
    settlement: Settlement, failure: Failure, details: AttemptDetails
) -> Decision[JobSettled]:
    """Block the run of a function for this failure."""
    draft = settlement.draft()
    _block_run(settlement.state, draft, settlement.job, failure, settlement.now, details)
    return blocked(draft)


def free_lost_function(state: State, draft: RunDraft, run: Run, job: Job, now: Micros) -> bool:
    """Queue a function whose worker was lost again and return True.

    If it was lost too often without progress, its run is blocked; if its time is over, it fails: then return False.
    """
    if job.attempts >= job.max_attempts:
        message = f"{job.attempts} workers in a row were lost with it, and it made no progress"
        _block_run(state, draft, job, Failure(code=LOST_WORKER, message=message), now, NO_DETAILS)
        return False
    return retry_lost_job(draft, state.plan_of(run), job, now)


def _block_run(
    state: State, draft: RunDraft, job: Job, failure: Failure, now: Micros, details: AttemptDetails
) -> None:
    """Block the run of a function: hold its job, and its queued steps that are not leased."""
    draft.append_of(job, blocked_event(job, failure, details))
    draft.block()
    draft.reschedule_job(evolve(job, attempts=0), now)  # `lost_attempts` stays: it may still be a suspect
    for step in state.queued_steps(draft.run_key):
        if step.state is not JobState.LEASED:
            draft.reschedule_job(step, step.wake_at or now)
