"""Rules for external stages: suspend, poll and wake. See docs/decisions/0015."""

from collections.abc import Iterator

from holdfast.kernel.commands import (
    Failed,
    Failure,
    JobSettled,
    JobsWoken,
    PollNotReady,
    StagePollSuspended,
    StageSuspended,
    StagesWoken,
    StageWake,
)
from holdfast.kernel.history import events
from holdfast.kernel.pipelines.plan import policy_of, stage_of
from holdfast.kernel.pipelines.progress import progress_from
from holdfast.kernel.rules.claims import wake_due_jobs
from holdfast.kernel.rules.leases import job_hints
from holdfast.kernel.rules.retries import fail_stage, retry_wait
from holdfast.kernel.rules.settlement import Settlement, fail
from holdfast.kernel.runs.builder import PollSchedule, rescheduled
from holdfast.kernel.runs.external_work import POLLING_EXPIRED
from holdfast.kernel.runs.plan_interpreter import stage_suspended
from holdfast.kernel.runs.transitions import JOB_TRANSITIONS
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import Change, Update
from holdfast.ports.clock import Ids
from holdfast.ports.errors import InvalidCommandError, NothingToWakeError
from holdfast.ports.records.job import Job, JobKind, JobState
from holdfast.ports.records.run import RunName
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import DueJobs, ExternalJobs, StageJobs
from holdfast.ports.structs import evolve
from holdfast.ports.transport import JobHint
from holdfast.ports.working_set import Tables


def suspend_stage(settlement: Settlement) -> Decision[JobSettled]:
    """Replace a job whose body submitted external work by a poll job, which sleeps until the first check."""
    outcome, job, now, details = (
        settlement.command.outcome,
        settlement.job,
        settlement.now,
        settlement.details,
    )
    assert isinstance(outcome, StageSuspended)
    stage = stage_of(settlement.plan.node(job.node))
    if stage.check is None:
        raise InvalidCommandError(f"stage {job.node!r} has no check; it can't be suspended")
    if outcome.check_after <= 0 or not outcome.key:
        raise InvalidCommandError("a suspension has a key, and a check_after of more than 0")
    # `stage.wake` sets `wake_at` on the job of a body that still runs.
    until = now if job.wake_at is not None else _next(now + outcome.check_after, outcome.give_up_at)
    suspended = events.StageSuspended(
        attempt=job.attempts,
        job=job.number,
        check_after=outcome.check_after,
        give_up_at=outcome.give_up_at,
        key=outcome.key,
        started_at=details.started_at,
        host=details.host,
    )
    draft = settlement.draft()
    row = draft.append_of(job, suspended, payload=outcome.state)
    draft.close_job(job)
    waits = PollSchedule(
        until=until, check_after=outcome.check_after, give_up_at=outcome.give_up_at, key=outcome.key
    )
    check = draft.open_poll(stage, row, job.item, waits)
    stage_suspended(draft, progress_from(draft.progress), job, check)
    return settlement.settled(draft, retry_at=until)


def check_again(settlement: Settlement) -> Decision[JobSettled]:
    """Schedule the next check of unfinished external work, or fail the stage. Usually writes only the job."""
    outcome = settlement.command.outcome
    assert isinstance(outcome, PollNotReady)
    return _schedule_check(settlement, None, outcome.check_after)


def fail_check(settlement: Settlement) -> Decision[JobSettled]:
    """Schedule the next check after one that failed, or fail the stage."""
    outcome = settlement.command.outcome
    assert isinstance(outcome, Failed)
    if not outcome.failure.retryable:
        return fail(settlement)
    return _schedule_check(settlement, outcome.failure, None)


def _schedule_check(
    settlement: Settlement, failure: Failure | None, check_after: Micros | None
) -> Decision[JobSettled]:
    found = _next_check(settlement, failure, check_after)
    if isinstance(found, Failure):
        details = settlement.details if failure is None else settlement.details_of(failure)
        draft = settlement.draft()
        fail_stage(draft, settlement.plan, settlement.job, found, details)
        return settlement.settled(draft)
    status, retry_at = settlement.run.status, found.wake_at or settlement.now
    reply = JobSettled(status="settled", run_status=status, retry_at=retry_at)
    return Decision(reply, (Update(found),), job_hints(found))


def _next_check(settlement: Settlement, failure: Failure | None, check_after: Micros | None) -> Job | Failure:
    """Return the poll job for the next check, after one that failed or found the work unfinished; or why to give up.

    A failed check is retried like any body. When its attempts are used up, it is made again after the usual
    `check_after`, with all of its attempts: failed checks alone never fail a run.
    """
    job, now = settlement.job, settlement.now
    assert job.check_after is not None
    if job.give_up_at is not None and now >= job.give_up_at:
        why = "" if failure is None else f"; the last check failed: {failure.type} {failure.message}"
        return Failure(code=POLLING_EXPIRED, message=f"the external work was not done in time{why}")
    if failure is None:
        attempts, losses, wait = 0, 0, check_after or job.check_after
    else:
        attempts, losses = job.attempts, job.lost_attempts
        wait = retry_wait(policy_of(settlement.plan, job, None), failure.retry_after, job.key, job.tries)
        if job.tries >= job.max_attempts:
            attempts, losses, wait = 0, 0, max(wait, job.check_after)
    until = now if job.wake_at is not None else _next(now + wait, job.give_up_at)
    return rescheduled(
        evolve(job, attempts=attempts, lost_attempts=losses), until, now, settlement.run.status
    )


def _next(at: Micros, give_up_at: Micros | None) -> Micros:
    return at if give_up_at is None else min(at, give_up_at)


def reads_of_poll(command: StagePollSuspended) -> Reads:
    """Search for poll jobs that are due."""
    return Reads(search=DueJobs(command.limit, JobKind.POLL))


def decide_poll(state: State, command: StagePollSuspended, now: Micros, _: Ids) -> Decision[JobsWoken]:
    """Queue the poll jobs that are due."""
    return wake_due_jobs(state, DueJobs(command.limit, JobKind.POLL), now)


def reads_of_wake(command: StageWake) -> Reads:
    """Search for the jobs that the command means; lock them."""
    return Reads(search=_search_for(command))


def decide_wake(state: State, command: StageWake, now: Micros, _: Ids) -> Decision[StagesWoken]:
    """Queue the poll jobs. Mark bodies and checks that run, so that a check follows as soon as they end."""
    meant = _search_for(command)
    keys = state.found[meant].jobs
    found = [job for key in keys if (job := state.tables.job(key)) is not None and _is_wakeable(job)]
    if len(found) < len(keys) or not keys:
        # A command of the same batch may have settled the body and opened a poll job since the search.
        found += (job for job in _checks(state.tables, meant) if job.key not in keys)
    if not found:
        raise NothingToWakeError(command.key or f"{command.run_id}/{command.stage}")
    changes: list[Change] = []
    hints: list[JobHint] = []
    early = 0
    for job in found:
        if job.kind is JobKind.STAGE or job.state is JobState.LEASED:
            changes.append(Update(evolve(job, wake_at=now)))
            early += 1
        elif job.state is JobState.PAUSED:
            changes.append(Update(evolve(job, wake_at=None)))
        else:
            awake = evolve(job, state=JOB_TRANSITIONS.check(job.state, JobState.QUEUED), wake_at=None)
            changes.append(Update(awake))
            hints.extend(job_hints(awake))
    return Decision(StagesWoken(woken=len(changes) - early, early=early), tuple(changes), tuple(hints))


def _is_wakeable(job: Job) -> bool:
    return job.kind is JobKind.POLL or (job.kind is JobKind.STAGE and job.state is JobState.LEASED)


def _checks(tables: Tables, meant: StageJobs | ExternalJobs) -> Iterator[Job]:
    """Yield the poll jobs in the tables that the search means."""
    for job in tables.all_jobs():
        if job.kind is JobKind.POLL and job.namespace == meant.namespace and _is_meant(tables, job, meant):
            yield job


def _is_meant(tables: Tables, job: Job, meant: StageJobs | ExternalJobs) -> bool:
    if isinstance(meant, ExternalJobs):
        return job.waiting_for == meant.key
    run = tables.run_named(RunName(meant.namespace, meant.run_id))
    is_of_stage = run is not None and (job.run, job.node) == (run.key, meant.stage)
    return is_of_stage and meant.item in (None, job.item)


def _search_for(command: StageWake) -> StageJobs | ExternalJobs:
    if command.key and (command.run_id, command.stage, command.item) == (None, None, None):
        return ExternalJobs(command.namespace, command.key)
    if command.key is None and command.run_id and command.stage:
        return StageJobs(command.namespace, command.run_id, command.stage, command.item)
    raise InvalidCommandError("stage.wake takes either the key of external work, or a run_id with a stage")
