"""Rules for commands on jobs: the lease protocol."""

from collections.abc import Mapping
from typing import Final
from zlib import crc32

from attrs import evolve

from holdfast.kernel.advance import failure_facts, map_expanded, stage_completed, stage_failed
from holdfast.kernel.commands import (
    Attempt,
    Completed,
    Expanded,
    Failed,
    Failure,
    IgnoredReason,
    JobClaim,
    JobClaimed,
    JobClaimOne,
    JobHeartbeat,
    JobRelease,
    JobReleased,
    JobsClaimed,
    JobSettle,
    JobSettled,
    JobsHeld,
    JobsWoken,
    JobWakeDue,
    Said,
)
from holdfast.kernel.draft import RunDraft, Taker, leased, rested
from holdfast.kernel.plan import Plan, RetryPolicy, stage_of
from holdfast.kernel.progress import MapProgress, progress_from
from holdfast.kernel.state import Claimable, Decision, Due, Reads, State
from holdfast.ports.changes import AddItems, AddNote, Change, UpdateJob
from holdfast.ports.clock import Ids
from holdfast.ports.errors import InvalidCommandError, SessionLostError
from holdfast.ports.json import compact
from holdfast.ports.records import (
    STAGE_COMPLETED,
    TERMINAL,
    ItemPage,
    Job,
    JobKey,
    JobKind,
    JobState,
    Micros,
    Note,
    Payload,
    Run,
    SessionState,
    job_key,
)
from holdfast.ports.transport import JobHint

PAGE_BYTES_MAX: Final = 32_768
PAGE_ITEMS_MAX: Final = 100
LOST_WORKER: Final = "worker_lost"
_RETRY_LATER: Final = 5_000_000
_EXPONENT_MAX: Final = 64
_WRONG_OUTCOME: Final = {JobKind.STAGE: Expanded, JobKind.EXPAND: Completed}


# Claiming -------------------------------------------------------------------------------------------------------


def reads_of_claim(command: JobClaim) -> Reads:
    """Search the queues that the session asks for."""
    return Reads(sessions=(command.session,), search=_searched(command))


def decide_claim(state: State, command: JobClaim, now: Micros, _: Ids) -> Decision[JobsClaimed]:
    """Lease what was found, but beside a suspect nothing else that was lost: the first of these decides.

    A session is asked for only where there is something.
    """
    found = state.found[_searched(command)].jobs
    if found:
        _require_session(state, command.session)
    attempts: list[Attempt] = []
    changes: list[Change] = []
    pass_over = command.pass_over
    for key in found:
        job = state.tables.job(key)
        if job is None or job.state is not JobState.QUEUED or job.attempts >= job.max_attempts:
            continue
        if job.is_passed_over(pass_over):
            continue
        held = leased(job, command.session, now)
        changes.append(UpdateJob(held))
        attempts.append(_attempt(held))
        if held.losses:
            pass_over = attempts[-1].pass_over
    return Decision(JobsClaimed(attempts=tuple(attempts)), tuple(changes))


def _searched(command: JobClaim) -> Claimable:
    return Claimable(command.namespace, command.lanes, command.limit, command.pass_over)


def reads_of_claim_one(command: JobClaimOne) -> Reads:
    """Read the job."""
    return Reads(sessions=(command.session,), jobs=(_key(command.job),))


def decide_claim_one(state: State, command: JobClaimOne, now: Micros, _: Ids) -> Decision[JobClaimed]:
    """Lease the job, or say why not and what to do with the message."""
    _require_session(state, command.session)
    job = state.tables.job(_key(command.job))
    if job is None or job.namespace != command.namespace:
        return Decision(JobClaimed(attempt=None, ignored="closed"))
    ignored = _why_ignored(job, command)
    if ignored is not None:
        reason, retry_after = ignored
        if reason == "not_due" and job.wake_at is not None:
            retry_after = max(job.wake_at - now, 1)
        return Decision(JobClaimed(attempt=None, ignored=reason, retry_after=retry_after))
    claimed = leased(job, command.session, now)
    return Decision(JobClaimed(attempt=_attempt(claimed)), (UpdateJob(claimed),))


def _why_ignored(job: Job, command: JobClaimOne) -> tuple[IgnoredReason, Micros | None] | None:
    if job.definition not in command.definitions:
        return "unknown_code", _RETRY_LATER
    if job.attempts >= job.max_attempts and job.state is not JobState.LEASED:
        return "closed", None
    match job.state:
        case JobState.LEASED:
            return "held", None
        case JobState.SLEEPING:
            return "not_due", _RETRY_LATER
        case JobState.HELD:
            return "paused", _RETRY_LATER
        case JobState.QUEUED:
            return None if command.epoch == job.epoch else ("stale", None)


# Settling -------------------------------------------------------------------------------------------------------


def reads_of_settle(command: JobSettle) -> Reads:
    """Read the run, then the job, and the session that is to have the next one."""
    key = _key(command.job)
    sessions = () if command.take_next is None else (command.take_next,)
    return Reads(runs=(key.run,), jobs=(key,), sessions=sessions)


def decide_settle(state: State, command: JobSettle, now: Micros, ids: Ids) -> Decision[JobSettled]:
    """End an attempt and let the run go on; if the attempt is not held any more, change nothing."""
    held = _held(state, command.job, command.epoch, command.namespace)
    if held is None:
        return Decision(JobSettled(status="fenced"))
    run, job = held
    if isinstance(command.outcome, _WRONG_OUTCOME[job.kind]):
        raise InvalidCommandError(
            f"job {command.job} is of kind {job.kind}; it can't be settled as {type(command.outcome).__name__}"
        )
    decision = _ended(state, command, run, job, now)
    if command.said:
        notes = _notes(job.key, command.epoch, command.said, ids)
        return evolve(decision, changes=(*decision.changes, *notes))
    return decision


def _ended(state: State, command: JobSettle, run: Run, job: Job, now: Micros) -> Decision[JobSettled]:
    match command.outcome:
        case Completed(output=output):
            return _completed(state, command, run, job, output, now)
        case Expanded(items=items):
            return _expanded(state, command, run, job, items, now)
        case Failed(failure=failure):
            return _failed(state, command, run, job, failure, now)


def _completed(
    state: State, command: JobSettle, run: Run, job: Job, output: Payload, now: Micros
) -> Decision[JobSettled]:
    draft = RunDraft(run, now, taker=_taker(state, command, job))
    facts: dict[str, object] = {"attempt": job.attempts, "job": job.number, **_circumstances(command)}
    row = draft.append(
        STAGE_COMPLETED, node=job.node, item=job.item, epoch=job.epoch, payload=output, data=facts
    )
    draft.close_job(job)
    stage_completed(draft, state.plan_of(run), progress_from(run.progress), job, row)
    return _settled(draft, row=row)


def _expanded(
    state: State, command: JobSettle, run: Run, job: Job, items: tuple[Payload, ...], now: Micros
) -> Decision[JobSettled]:
    draft = RunDraft(run, now, taker=_taker(state, command, job))
    size = _page_size(items)
    row = draft.append("stage.expanded", node=job.node, epoch=job.epoch, data={"items": len(items)})
    draft.close_job(job)
    counters = MapProgress(total=len(items), next=0, done=0, page_size=size, first_row=row)
    map_expanded(draft, state.plan_of(run), progress_from(run.progress), job.node, counters)
    pages = [
        AddItems(
            ItemPage(run=run.key, node=job.node, page=start // size, items=_page(items[start : start + size]))
        )
        for start in range(0, len(items), size)
    ]
    decision = _settled(draft)
    return Decision(decision.reply, (*decision.changes, *pages), decision.hints)


def _failed(
    state: State, command: JobSettle, run: Run, job: Job, failure: Failure, now: Micros
) -> Decision[JobSettled]:
    draft = RunDraft(run, now)
    circumstances = _circumstances(command)
    if failure.traceback:
        circumstances["traceback"] = failure.traceback
    retry_at = fail_attempt(draft, state.plan_of(run), job, failure, now, circumstances)
    return _settled(draft, retry_at=retry_at)


def _circumstances(command: JobSettle) -> dict[str, object]:
    """Return when the body started and where, as far as the command says."""
    told = {"started_at": command.started_at, "host": command.host or None}
    return {name: value for name, value in told.items() if value is not None}


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


# Releasing, heartbeats, waking -----------------------------------------------------------------------------------


def reads_of_release(command: JobRelease) -> Reads:
    """Read the run, then the job."""
    key = _key(command.job)
    return Reads(runs=(key.run,), jobs=(key,))


def decide_release(state: State, command: JobRelease, now: Micros, _: Ids) -> Decision[JobReleased]:
    """Queue the job again, with the attempt not counted."""
    held = _held(state, command.job, command.epoch, command.namespace)
    if held is None:
        return Decision(JobReleased(status="fenced"))
    run, job = held
    free = rested(evolve(job, attempts=job.attempts - 1), now + command.delay, now, run.status)
    return Decision(JobReleased(status="released"), (UpdateJob(free),), _hints(free))


def reads_of_heartbeat(command: JobHeartbeat) -> Reads:
    """Read the jobs. Only those about which there is something to store are locked: mostly there is nothing."""
    return Reads(
        jobs=tuple(_key(held.job) for held in command.attempts if held.said),
        seen=tuple(_key(held.job) for held in command.attempts if not held.said),
    )


def decide_heartbeat(state: State, command: JobHeartbeat, _: Micros, ids: Ids) -> Decision[JobsHeld]:
    """Store what the attempts said that are still held, and name the others."""
    lost: list[str] = []
    changes: list[Change] = []
    for held in command.attempts:
        job = state.tables.job(_key(held.job))
        if not _is_held(job, held.epoch, command.namespace):
            lost.append(held.job)
            continue
        changes.extend(_notes(_key(held.job), held.epoch, held.said, ids))
    return Decision(JobsHeld(lost=tuple(lost)), tuple(changes))


def reads_of_wake_due(command: JobWakeDue) -> Reads:
    """Search for sleepers that are due."""
    return Reads(search=Due(command.limit))


def decide_wake_due(state: State, command: JobWakeDue, now: Micros, _: Ids) -> Decision[JobsWoken]:
    """Queue them."""
    changes: list[Change] = []
    hints: list[JobHint] = []
    for key in state.found[Due(command.limit)].jobs:
        job = state.tables.job(key)
        if (
            job is not None
            and job.state is JobState.SLEEPING
            and job.wake_at is not None
            and job.wake_at <= now
        ):
            awake = evolve(job, state=JobState.QUEUED, wake_at=None)
            changes.append(UpdateJob(awake))
            hints.extend(_hints(awake))
    return Decision(JobsWoken(woken=len(changes)), tuple(changes), tuple(hints))


def _held(state: State, job_id: str, epoch: int, namespace: str) -> tuple[Run, Job] | None:
    """Return run and job if this attempt may write: that is the guard of every write of an attempt."""
    key = _key(job_id)
    run, job = state.tables.runs.get(key.run), state.tables.job(key)
    if run is None or run.status in TERMINAL or job is None or not _is_held(job, epoch, namespace):
        return None
    return run, job


def _is_held(job: Job | None, epoch: int, namespace: str) -> bool:
    return (
        job is not None and job.namespace == namespace and job.state is JobState.LEASED and job.epoch == epoch
    )


def _attempt(job: Job) -> Attempt:
    return Attempt(
        job=job.key.text,
        epoch=job.epoch,
        run=job.run,
        definition=job.definition,
        queue=job.queue,
        kind=job.kind,
        node=job.node,
        item=job.item,
        attempt=job.attempts,
        max_attempts=job.max_attempts,
        losses=job.losses,
        input=job.input,
    )


def _taker(state: State, command: JobSettle, job: Job) -> Taker | None:
    """Return who takes the next job: a session must be open for that, as for any claim."""
    session = state.tables.sessions.get(command.take_next or "")
    if session is None or session.state is not SessionState.OPEN:
        return None
    return Taker(session.id, job.queue)


def _settled(
    draft: RunDraft, *, retry_at: Micros | None = None, row: int | None = None
) -> Decision[JobSettled]:
    reply = JobSettled(status="settled", run_status=draft.status, retry_at=retry_at)
    if draft.taken is not None:
        reply = evolve(reply, next=_attempt(draft.taken), row=row, more=bool(draft.hints))
    return Decision(reply, draft.changes(), tuple(draft.hints))


def _hints(job: Job) -> tuple[JobHint, ...]:
    return (
        ()
        if job.state is not JobState.QUEUED
        else (JobHint(job=job.key.text, epoch=job.epoch, queue=job.queue),)
    )


def _notes(key: JobKey, epoch: int, said: tuple[Said, ...], ids: Ids) -> list[Change]:
    return [
        AddNote(
            Note(
                id=ids.new(),
                run=key.run,
                job=key.number,
                epoch=epoch,
                at=one.at,
                kind=one.kind,
                data=one.data,
            )
        )
        for one in said
    ]


def _page_size(items: tuple[Payload, ...]) -> int:
    longest = max((len(item.inline or item.blob or "") for item in items), default=0)
    return max(1, min(PAGE_ITEMS_MAX, PAGE_BYTES_MAX // (longest + 1)))


def _page(items: tuple[Payload, ...]) -> str:
    return compact([[item.inline, item.blob] for item in items])


def _require_session(state: State, session: str) -> None:
    known = state.tables.sessions.get(session)
    if known is None or known.state is not SessionState.OPEN:
        raise SessionLostError(session)


def _key(job: str) -> JobKey:
    try:
        return job_key(job)
    except ValueError as error:
        raise InvalidCommandError(str(error)) from None
