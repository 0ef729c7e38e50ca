"""Rules for worker sessions, and for lost jobs of dead sessions."""

from collections.abc import Callable, Mapping
from itertools import groupby
from typing import TypeAlias

from holdfast.kernel.commands import (
    Failure,
    LeaseReapStale,
    LeasesReaped,
    SessionClose,
    SessionOpen,
    SessionOpened,
    SessionReap,
    SessionRenew,
    SessionRenewed,
)
from holdfast.kernel.commands.worker_about import registered
from holdfast.kernel.history import events
from holdfast.kernel.pipelines.plan import Plan
from holdfast.kernel.rules.retries import (
    NO_DETAILS,
    exceeds_total_timeout,
    fail_stage,
    is_given_up,
    lost_worker_failure,
    total_timeout_failure,
)
from holdfast.kernel.runs.builder import RunDraft
from holdfast.kernel.runs.external_work import LOST_WORKER
from holdfast.kernel.runs.transitions import SESSION_TRANSITIONS
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import Change, Delete, Insert
from holdfast.ports.clock import Ids
from holdfast.ports.errors import SessionLostError
from holdfast.ports.records.job import Job, JobKind, JobState
from holdfast.ports.records.run import TERMINAL, Run
from holdfast.ports.records.session import Session, SessionState
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import ExpiredSessions, LostJobs
from holdfast.ports.structs import evolve
from holdfast.ports.tables import REGISTRATIONS
from holdfast.ports.transport import Hint


def reads_of_open(_: SessionOpen) -> Reads:
    """Read nothing."""
    return Reads()


def decide_open(_: State, command: SessionOpen, now: Micros, ids: Ids) -> Decision[SessionOpened]:
    """Store a session under a new id."""
    session = Session(
        id=ids.new(),
        host=command.host,
        state=SessionState.OPEN,
        opened_at=now,
        expires_at=now + command.lease,
        namespace=command.namespace,
        principal=command.principal,
        is_registered=int(command.about is not None),
    )
    reply = SessionOpened(session=session.id, expires_at=session.expires_at)
    return Decision(reply, (Insert(session), *registered(session, command.about, command.lease)))


def reads_of_renew(command: SessionRenew | SessionClose) -> Reads:
    """Lock the session."""
    return Reads(sessions=(command.session,), locks_sessions=True)


def decide_renew(state: State, command: SessionRenew, now: Micros, _: Ids) -> Decision[SessionRenewed]:
    """Extend the session's lease; never shorten it. Raises SessionLostError."""
    session = open_session(state, command.session)
    expires_at = max(session.expires_at, now + command.lease)
    is_registered = max(session.is_registered, int(command.about is not None))
    renewed = evolve(session, expires_at=expires_at, is_registered=is_registered)
    return Decision(
        SessionRenewed(expires_at=expires_at),
        (Insert(renewed), *registered(session, command.about, command.lease)),
    )


def decide_close(state: State, command: SessionClose, now: Micros, _: Ids) -> Decision[SessionRenewed]:
    """Declare the session dead on its own request. Raises SessionLostError."""
    session = open_session(state, command.session)
    return Decision(SessionRenewed(expires_at=now), _declared_dead(evolve(session, expires_at=now)))


def reads_of_reap(command: SessionReap) -> Reads:
    """Search for sessions that were not renewed in time."""
    return Reads(search=ExpiredSessions(command.grace, command.limit))


def decide_reap(state: State, command: SessionReap, now: Micros, _: Ids) -> Decision[LeasesReaped]:
    """Declare expired sessions dead. `lease.reap_stale` frees their jobs after this commit (docs/decisions/0003)."""
    dead = [
        session
        for session in map(
            state.tables.sessions.__getitem__,
            state.found[ExpiredSessions(command.grace, command.limit)].sessions,
        )
        if session.state is SessionState.OPEN and session.expires_at + command.grace < now
    ]
    changes = tuple(change for session in dead for change in _declared_dead(session))
    return Decision(LeasesReaped(sessions=len(dead), freed=0, dead=0), changes)


def reads_of_reap_stale(command: LeaseReapStale) -> Reads:
    """Search for jobs of dead sessions; lock them and their runs."""
    return Reads(search=LostJobs(command.limit), runs_of_found=True, holders=True, exhausted=True)


LostJobRule: TypeAlias = Callable[[State, RunDraft, Run, Job, Micros], bool]
"""Frees a job whose attempt was lost and returns True, or returns False if no attempt is left."""


def reap_stale_decision(
    rules: Mapping[JobKind, LostJobRule],
) -> Callable[[State, LeaseReapStale, Micros, Ids], Decision[LeasesReaped]]:
    """Return the function that frees the jobs of dead sessions, by these rules for the kinds of jobs."""

    def decide_reap_stale(
        state: State, command: LeaseReapStale, now: Micros, _: Ids
    ) -> Decision[LeasesReaped]:
        """Free the jobs of dead sessions, or give up those that were lost too often.

        Each job is checked again under its lock, as its worker may have settled it since the search.
        """
        changes: list[Change] = []
        hints: list[Hint] = []
        freed = dead = 0
        lost = sorted(state.found[LostJobs(command.limit)].jobs)
        for key, keys in groupby(lost, lambda job_key: job_key.run):
            state.current_run = key
            run = state.tables.runs.get(key)
            if run is None:
                continue
            jobs = [job for job in map(state.tables.job, keys) if job is not None and _is_orphan(state, job)]
            draft = RunDraft(run, now)
            for job in jobs:
                if draft.status in TERMINAL and not job.outlives_run:  # the end of the run deleted it
                    continue
                if rules[job.kind](state, draft, run, job, now):
                    freed += 1
                else:
                    dead += 1
            changes.extend(draft.outliving)
            changes.extend(draft.changes() if draft.is_changed else ())
            hints.extend(draft.hints)
        return Decision(LeasesReaped(sessions=0, freed=freed, dead=dead), tuple(changes), tuple(hints))

    return decide_reap_stale


def free_lost_job(state: State, draft: RunDraft, run: Run, job: Job, now: Micros) -> bool:
    """Free a job of a stage whose attempt was lost, and return True; or fail the stage and return False."""
    plan, lost = state.plan_of(run), evolve(job, lost_attempts=job.lost_attempts + 1)
    if is_given_up(lost.lost_attempts, job.max_attempts):
        fail_stage(draft, plan, lost, lost_worker_failure(lost), NO_DETAILS)
        return False
    return retry_lost_job(draft, plan, job, now)


def retry_lost_job(draft: RunDraft, plan: Plan, job: Job, now: Micros) -> bool:
    """Queue a job whose attempt was lost again, unless the time for all of its attempts is over: then it fails."""
    if exceeds_total_timeout(job, now):
        message = f"the worker that held attempt {job.attempts} was lost"
        failure = total_timeout_failure(job, Failure(code=LOST_WORKER, message=message))
        fail_stage(draft, plan, job, failure, NO_DETAILS)
        return False
    lost = evolve(job, lost_attempts=job.lost_attempts + 1)
    draft.append_of(job, events.StageLost(attempt=job.attempts, lost_attempts=lost.lost_attempts))
    draft.reschedule_job(lost, now)
    return True


def _is_orphan(state: State, job: Job) -> bool:
    holder = state.tables.sessions.get(job.session or "")
    return job.state is JobState.LEASED and holder is not None and holder.state is SessionState.DEAD


def _declared_dead(session: Session) -> tuple[Change, ...]:
    """Return the end of a session, and of its row in the worker registry."""
    dead = evolve(session, state=SESSION_TRANSITIONS.check(session.state, SessionState.DEAD), is_registered=0)
    gone = (Delete(REGISTRATIONS, session.id),) if session.is_registered else ()
    return Insert(dead), *gone


def open_session(state: State, session: str) -> Session:
    """Return a session that is open. Raises SessionLostError."""
    known = state.tables.sessions.get(session)
    if known is None or known.state is not SessionState.OPEN:
        raise SessionLostError(session)
    return known
