"""Rules for claims: sleeping jobs that are due are queued, and queued jobs are leased to sessions."""

from typing import Final

from holdfast.kernel.commands import (
    Attempt,
    FollowUp,
    IgnoredReason,
    JobClaim,
    JobClaimed,
    JobClaimOne,
    JobsClaimed,
    JobsWoken,
    JobWakeDue,
    pass_over_for,
)
from holdfast.kernel.limits.overrides import applied, is_queue_paused
from holdfast.kernel.limits.rates import Rates
from holdfast.kernel.rules.leases import attempt_of, job_hints, parse_job_id
from holdfast.kernel.runs.builder import leased, ready_state
from holdfast.kernel.runs.transitions import JOB_TRANSITIONS
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import Change, Update
from holdfast.ports.clock import Ids
from holdfast.ports.errors import SessionLostError
from holdfast.ports.records.job import Job, JobState
from holdfast.ports.records.session import SessionState
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import ClaimableJobs, DueJobs
from holdfast.ports.structs import evolve
from holdfast.ports.transport import JobHint

_RETRY_LATER: Final = 5_000_000
"""Microseconds after which a hint whose job cannot be leased yet is delivered again."""


def reads_of_claim(command: JobClaim) -> Reads:
    """Search the queues that the command names."""
    return Reads(sessions=(command.session,), search=_searched(command), if_found=True)


def decide_claim(state: State, command: JobClaim, now: Micros, _: Ids) -> Decision[JobsClaimed]:
    """Lease the jobs of the search, but never a quarantined job together with another lost job.

    The first lost job of the search decides which of the two kinds is leased. The session is checked only if the search
    returned jobs. Raises SessionLostError.
    """
    found = state.found[_searched(command)].jobs
    if found:
        _require_session(state, command.session)
    attempts: list[Attempt] = []
    changes: list[Change] = []
    starts = Rates(state.tables, now)
    first: dict[str, None] = {}
    pass_over = command.pass_over
    for key in found:
        job = state.tables.job(key)
        if job is None or job.state is not JobState.QUEUED or job.tries >= job.max_attempts:
            continue
        if job.is_passed_over(pass_over):
            continue
        if not try_start(starts, applied(state.tables.limits, job), first):
            changes.append(Update(_limited(job)))
            continue
        held = leased(job, command.session, starts.at(job))
        changes.append(Update(held))
        attempts.append(attempt_of(held))
        if held.lost_attempts:
            pass_over = attempts[-1].pass_over
    reply = JobsClaimed(attempts=tuple(attempts), follow_up=FollowUp(jobs=tuple(first)))
    return Decision(reply, (*changes, *starts.changes()))


def try_start(starts: Rates, job: Job, admits: dict[str, None]) -> bool:
    """Return whether the rate limit of a job allows its start now, and count the start if so.

    Adds the job's key to `admits` where `job.admit` is due: after the first counted start, as from then on the instant
    of the next one is known, and if the job must wait again, because its limit or a clock changed after it was queued.
    """
    name, key = job.rate, job.concurrency_key
    if name is None or key is None:
        return True
    is_first = starts.starts(name).free(job, starts.at(job)) == job.rate_limit
    may = starts.try_start(job)
    if is_first or not may:
        admits[key] = None
    return may


def _searched(command: JobClaim) -> ClaimableJobs:
    return ClaimableJobs(
        command.namespace, command.queue_claims, command.limit, command.pass_over, command.session
    )


def reads_of_claim_one(command: JobClaimOne) -> Reads:
    """Lock the job and its rate limit; read the session."""
    key = parse_job_id(command.job)
    return Reads(sessions=(command.session,), jobs=(key,), starts=(key,))


def decide_claim_one(state: State, command: JobClaimOne, now: Micros, _: Ids) -> Decision[JobClaimed]:
    """Lease the job, or return why it is ignored and when to deliver its hint again. Raises SessionLostError."""
    _require_session(state, command.session)
    job = state.tables.job(parse_job_id(command.job))
    if job is None or job.namespace != command.namespace:
        return Decision(JobClaimed(attempt=None, ignored="closed"))
    changes: list[Change] = []
    if _is_due(job, command, now):  # the hint may be a wake-up that was scheduled for this instant
        job = _woken(job)
        changes.append(Update(job))
    ignored = _why_ignored(job, command)
    if ignored is None and is_queue_paused(state.tables.limits, job.namespace, job.queue):
        ignored = "paused", _RETRY_LATER
    if ignored is None and _is_passed_over(state, job, command):
        ignored = "suspect", _RETRY_LATER
    if ignored is not None:
        reason, retry_after = ignored
        if reason == "not_due" and job.wake_at is not None:
            retry_after = max(job.wake_at - now, 1)
        waits_for_slot = (job.concurrency_key,) if changes and job.concurrency_key is not None else ()
        refusal = JobClaimed(
            attempt=None, ignored=reason, retry_after=retry_after, follow_up=FollowUp(jobs=waits_for_slot)
        )
        return Decision(refusal, tuple(changes))
    starts = Rates(state.tables, now)
    first: dict[str, None] = {}
    if not try_start(starts, applied(state.tables.limits, job), first):
        refused = JobClaimed(
            attempt=None, ignored="limited", retry_after=_RETRY_LATER, follow_up=FollowUp(jobs=tuple(first))
        )
        return Decision(refused, (*changes, Update(_limited(job))))
    claimed = leased(job, command.session, starts.at(job))
    reply = JobClaimed(attempt=attempt_of(claimed), follow_up=FollowUp(jobs=tuple(first)))
    return Decision(reply, (*changes, Update(claimed), *starts.changes()))


def _is_passed_over(state: State, job: Job, command: JobClaimOne) -> bool:
    """Return whether the session must leave a lost job to others, by the command and by earlier claims of its batch."""
    if not job.lost_attempts:
        return False
    here = [one for one in state.tables.all_jobs() if one.session == command.session and one.lost_attempts]
    beside = {command.pass_over, *(pass_over_for(one.lost_attempts) for one in here)}
    return any(job.is_passed_over(one) for one in beside)


def _is_due(job: Job, command: JobClaimOne, now: Micros) -> bool:
    """Return whether the job that a hint names sleeps, is due, and can be woken by this session."""
    return (
        job.state is JobState.SLEEPING
        and job.wake_at is not None
        and job.wake_at <= now
        and job.epoch == command.epoch
        and job.definition in command.definitions
        and (job.tries < job.max_attempts or job.waits_for_child)
    )


def _why_ignored(job: Job, command: JobClaimOne) -> tuple[IgnoredReason, Micros | None] | None:
    if job.definition not in command.definitions:
        return "unknown_code", _RETRY_LATER
    is_used_up = job.tries >= job.max_attempts and not job.waits_for_child
    if is_used_up and job.state is not JobState.LEASED:
        return "closed", None
    match job.state:
        case JobState.LEASED:
            return "leased", None
        case JobState.SLEEPING:
            return ("waiting", None) if job.wake_at is None else ("not_due", _RETRY_LATER)
        case JobState.PAUSED:
            return "paused", _RETRY_LATER
        case JobState.LIMITED:
            return "limited", _RETRY_LATER
        case JobState.PENDING_DELIVERY:
            return "closed", None
        case JobState.QUEUED:
            return None if command.epoch == job.epoch else ("stale", None)


def reads_of_wake_due(command: JobWakeDue) -> Reads:
    """Search for sleeping jobs that are due."""
    return Reads(search=DueJobs(command.limit))


def decide_wake_due(state: State, command: JobWakeDue, now: Micros, _: Ids) -> Decision[JobsWoken]:
    """Wake the sleeping jobs that are due."""
    return wake_due_jobs(state, DueJobs(command.limit), now)


def wake_due_jobs(state: State, search: DueJobs, now: Micros) -> Decision[JobsWoken]:
    """Wake the sleeping jobs of a search that are due: queue them, or let them wait for their limits."""
    changes: list[Change] = []
    hints: list[JobHint] = []
    limited: dict[str, None] = {}
    for key in state.found[search].jobs:
        job = state.tables.job(key)
        if (
            job is not None
            and job.state is JobState.SLEEPING
            and job.wake_at is not None
            and job.wake_at <= now
        ):
            woken = _woken(job)
            changes.append(Update(woken))
            hints.extend(job_hints(woken))
            if woken.state is JobState.LIMITED and woken.concurrency_key is not None:
                limited[woken.concurrency_key] = None
    reply = JobsWoken(woken=len(changes), follow_up=FollowUp(jobs=tuple(limited)))
    return Decision(reply, tuple(changes), tuple(hints))


def _woken(job: Job) -> Job:
    return evolve(job, state=JOB_TRANSITIONS.check(job.state, ready_state(job)), wake_at=None)


def _limited(job: Job) -> Job:
    return evolve(job, state=JOB_TRANSITIONS.check(job.state, JobState.LIMITED))


def _require_session(state: State, session: str) -> None:
    known = state.tables.sessions.get(session)
    if known is None or known.state is not SessionState.OPEN:
        raise SessionLostError(session)
