"""Tasks of remote workers: queued steps and remote stages, which programs without the store claim and settle over HTTP.

**Who may act on a session.** A session that is opened here keeps its namespace and its principal, which never change,
so a check before the command is as good as one within it. `worker_of` makes it for whatever names a session.

**Who may settle.** A token names a job, an epoch and a session. It is opaque but no secret. `authorised_task` reads the
session and the job. If the job is leased under this epoch, its session is the one that was read for as long as the
epoch lasts: an epoch belongs to one claim. If it is not leased under it, it never will be again, and the command is
fenced. A token with a later epoch than the job's is refused, because that epoch may yet come. So nothing that happens
between the check and the command can let a worker settle what another one holds, and the kernel's own check of the
epoch (kernel/rules/leases.py) does the rest, in the transaction of the command.

**Lost replies.** A claim under an idempotency key is stored with its reply. It is dispatched only once there is
something to claim, because an empty reply would use up the key. A settle has its token as the key. What a worker has
leased and does not list in its heartbeats is given back after the length of a lease: no request is under way for so
long, so the worker does not know of it. Such a job counts no attempt.

**Timeouts.** A worker of Holdfast ends the body of a stage itself. Of a remote stage, the server sees at each heartbeat
which attempts have exceeded their time, by the clock of the store, and settles them. A worker without heartbeats loses
its session.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Final, TypeAlias

import attrs

from holdfast.hosts.http.principals import Principal
from holdfast.hosts.http.task_outcomes import not_to_start, timed_out, token_of, token_of_job
from holdfast.hosts.http.task_tokens import TaskToken, token_from
from holdfast.hosts.remote.protocol import HELD_MAX, LARGE
from holdfast.hosts.wiring.input_loader import LoadedAttempt
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import (
    Attempt,
    AttemptOutput,
    AttemptReport,
    JobClaim,
    JobHeartbeat,
    JobRelease,
    JobsClaimed,
    JobSettle,
    JobSettled,
    Outcome,
    SessionClose,
    SessionRenew,
    WorkerAbout,
    pass_over_for,
)
from holdfast.kernel.commands.codec import reply_from
from holdfast.kernel.commands.follow_ups import WithFollowUp
from holdfast.kernel.commands.worker_about import about_from
from holdfast.kernel.values import MAX_VALUE_BYTES
from holdfast.ports.clock import micros
from holdfast.ports.errors import (
    CommandError,
    HoldfastError,
    LeaseLostError,
    SessionLostError,
)
from holdfast.ports.persistence import Transaction
from holdfast.ports.queries.runs import RunsByKey
from holdfast.ports.queries.workers import HeldJob, HeldJobs
from holdfast.ports.records.history import HEARTBEAT
from holdfast.ports.records.job import Job, JobState, PassOver
from holdfast.ports.records.session import Session, SessionState
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import ClaimableJobs, QueueClaim
from holdfast.ports.tables import JOBS, REGISTRATIONS, REPLIES, RUNS, SESSIONS

KEY_PREFIX: Final = "task/"
"""The beginning of the idempotency keys of claims and settles. Clients can't use such keys."""


def principal_text(principal: Principal) -> str:
    """Return what a session keeps of the principal that opened it."""
    return f"{principal.kind}:{principal.id}"


@attrs.frozen(kw_only=True)
class RemoteSession:
    """An open session of a remote worker."""

    session: Session
    about: WorkerAbout
    lease: Micros

    def queue_claims(self, limit: int) -> tuple[QueueClaim, ...]:
        """Return a claim for each of its queues."""
        return tuple(
            QueueClaim(queue=queue.name, definitions=self.about.definitions, limit=limit)
            for queue in self.about.queues
        )


def worker_of(core: Core, principal: Principal, session: str) -> RemoteSession:
    """Return the open session of a worker. SessionLostError if it is not open, or not this principal's."""
    core.connect()
    return core.stores.persistence.transact(lambda tx: _worker(tx, core.namespace, principal, session))


def queues_of(core: Core, principal: Principal, session: str) -> frozenset[str]:
    """Return the queues that a worker serves. Raises as `worker_of`."""
    return frozenset(queue.name for queue in worker_of(core, principal, session).about.queues)


def _session(tx: Transaction, namespace: str, principal: Principal, session: str) -> Session | None:
    """Return a session of this principal in this namespace, open or dead."""
    found = next(iter(tx.get(SESSIONS, (session,))), None)
    return found if found is not None and _is_of(found, namespace, principal) else None


def _is_of(session: Session, namespace: str, principal: Principal) -> bool:
    return (session.namespace, session.principal) == (namespace, principal_text(principal))


def _worker(tx: Transaction, namespace: str, principal: Principal, session: str) -> RemoteSession:
    found = _session(tx, namespace, principal, session)
    row = next(iter(tx.get(REGISTRATIONS, (session,))), None)
    if found is None or found.state is not SessionState.OPEN or row is None:
        raise SessionLostError(session)
    return RemoteSession(session=found, about=about_from(row.about), lease=row.lease)


def renew(core: Core, worker: RemoteSession) -> Micros:
    """Renew a session, and return when it expires. SessionLostError."""
    command = SessionRenew(namespace=core.namespace, session=worker.session.id, lease=worker.lease)
    return core.kernel.dispatch(command).expires_at


def _renew_if_due(core: Core, worker: RemoteSession) -> None:
    """Renew a session of which a third of the lease is over: a worker that polls often writes seldom."""
    if worker.session.expires_at - micros(core.clock.now()) < worker.lease * 2 // 3:
        renew(core, worker)


@attrs.frozen(kw_only=True)
class ClaimedTask:
    """A task that a worker has just claimed, with its input, unless that is large and has an address."""

    token: TaskToken
    work: LoadedAttempt


def claim(
    core: Core,
    principal: Principal,
    session: str,
    limit: int,
    key: str | None,
    *,
    addresses: bool = False,
) -> Sequence[ClaimedTask]:
    """Claim tasks for a worker and renew its session. SessionLostError.

    Args:
        core: The engine.
        principal: Who asks.
        session: The worker's session.
        limit: The most tasks.
        key: The idempotency key of the worker. A claim that is repeated under it returns the same tasks, without those
            that the session does not hold any more.
        addresses: Whether large inputs are left out, because the worker gets them by their addresses.
    """
    core.connect()
    held = held_jobs(core, session)
    pass_over, limit = _pass_over(held), min(limit, HELD_MAX - len(held))

    def look(tx: Transaction) -> tuple[RemoteSession, ClaimKey | None, bool]:
        worker = _worker(tx, core.namespace, principal, session)
        found = None if key is None else claim_key(tx, core.namespace, session, key)
        search = ClaimableJobs(core.namespace, worker.queue_claims(1), 1, pass_over)
        is_due = (found is not None and found.is_used) or (limit > 0 and bool(tx.find(search).jobs))
        return worker, found, is_due

    worker, stored, is_due = core.stores.persistence.transact(look)
    _renew_if_due(core, worker)
    if not is_due:
        return ()
    command = JobClaim(
        namespace=core.namespace,
        idempotency_key=None if stored is None else stored.text,
        session=session,
        queue_claims=worker.queue_claims(limit),
        limit=limit,
        pass_over=pass_over,
    )
    reply = core.kernel.dispatch(command)
    _admit(core, reply)
    is_repeated = stored is not None and stored.is_used
    attempts = _still_held(core, session, reply.attempts) if is_repeated else reply.attempts
    loaded = core.inputs.load(attempts, lambda _: True, length_max=LARGE if addresses else None)
    return tuple(_within_bounds(core, session, loaded))


@attrs.frozen
class ClaimKey:
    """The idempotency key of a claim in the store."""

    text: str
    is_used: bool
    """Whether a claim under it has leased something."""


def claim_key(tx: Transaction, namespace: str, session: str, key: str) -> ClaimKey:
    """Return the stored key for a key of a worker: the first one that no claim without a result has used up.

    A claim finds nothing if another worker was faster. Then the same request claims again, under the next key.
    """
    base = f"{KEY_PREFIX}claim/{session}/{hashlib.sha256(key.encode()).hexdigest()}"
    for number in count():
        text = f"{base}/{number}"
        reply = next(iter(tx.get(REPLIES, ((namespace, text),))), None)
        if reply is None or reply_from(reply.body, JobsClaimed).attempts:
            return ClaimKey(text, reply is not None)
    raise AssertionError("there is always a next number")


def _pass_over(held: Iterable[HeldJob]) -> PassOver:
    """Return which jobs must not run beside those that a session holds (docs/decisions/0059)."""
    wanted = {pass_over_for(one.job.lost_attempts) for one in held}
    return next((one for one in (PassOver.LOST, PassOver.SUSPECTS) if one in wanted), PassOver.NOTHING)


def _still_held(core: Core, session: str, attempts: Sequence[Attempt]) -> Sequence[Attempt]:
    held = {(one.job.key.text, one.job.epoch) for one in held_jobs(core, session)}
    return [one for one in attempts if (one.job, one.epoch) in held]


def _within_bounds(core: Core, session: str, loaded: Iterable[LoadedAttempt]) -> Iterable[ClaimedTask]:
    """Yield the tasks whose inputs fit into one answer, at least one. The others are given back."""
    size = 0
    for work in loaded:
        token = token_of(work.attempt, session)
        length = len(work.input.encode())
        outcome = not_to_start(core, token, work)
        if outcome is not None:
            settle(core, token, outcome)
        elif size and size + length > MAX_VALUE_BYTES:
            release(core, token, 0)
        else:
            size += length
            yield ClaimedTask(token=token, work=work)


def held_jobs(core: Core, session: str) -> Sequence[HeldJob]:
    """Return the jobs that a session holds."""
    return core.stores.persistence.read(HeldJobs(sessions=(session,), limit=HELD_MAX))


def keep_listed(core: Core, worker: RemoteSession, listed: Iterable[str]) -> frozenset[TaskToken]:
    """Note that a worker runs these tasks, and return what it still holds.

    What it has held for longer than a lease and does not list is released. What has exceeded its time is settled.
    """
    session, known = worker.session.id, set(listed)
    held = {token_of_job(one.job, session): one.job for one in held_jobs(core, session)}
    before = micros(core.clock.now()) - worker.lease
    unlisted = [
        token for token, job in held.items() if token.text not in known and (job.leased_at or 0) < before
    ]
    for token in unlisted:
        release(core, token, 0)
    stages = {token: job for token, job in held.items() if token.text in known and token.stage is not None}
    late = _end_late(core, stages, worker.session.host)
    beating = [one for one in stages.items() if one[0] not in late and one[1].heartbeat_timeout is not None]
    if beating:
        _send_heartbeats(core, beating)
    return frozenset(held.keys() - set(unlisted) - late)


def _end_late(core: Core, stages: Mapping[TaskToken, Job], host: str) -> set[TaskToken]:
    """Settle the attempts of remote stages that have exceeded their time, and return their tokens."""
    if not stages:
        return set()
    runs = core.stores.persistence.read(RunsByKey(tuple({job.run for job in stages.values()})))
    plans = {run.key: core.inputs.plan(run.plan) for run in runs}
    now = micros(core.clock.now())
    late: set[TaskToken] = set()
    for token, job in stages.items():
        outcome = None if job.run not in plans else timed_out(job, plans[job.run], now)
        if outcome is not None:
            late.add(token)
            # Without a key, as the worker has the key for what it sends itself. It may do so at this moment.
            with suppress(LeaseLostError):
                _settled(core, core.kernel.dispatch(_settle_command(core, token, outcome, host, None)))
    return late


def _send_heartbeats(core: Core, beating: Iterable[tuple[TaskToken, Job]]) -> None:
    at = micros(core.clock.now())
    reports = (AttemptReport(job=token.job, epoch=token.epoch, outputs=(_beat(at),)) for token, _ in beating)
    core.kernel.dispatch(JobHeartbeat(namespace=core.namespace, attempts=tuple(reports)))


def _beat(at: Micros) -> AttemptOutput:
    return AttemptOutput(kind=HEARTBEAT, at=at, data="null")


def leave(core: Core, principal: Principal, session: str) -> int:
    """Release all tasks of a worker, close its session, and return how many it held. Can be repeated."""
    core.connect()
    found = core.stores.persistence.transact(lambda tx: _session(tx, core.namespace, principal, session))
    if found is None:
        raise SessionLostError(session)
    released = 0
    if found.state is SessionState.OPEN:
        while held := held_jobs(core, session):
            for one in held:
                release(core, token_of_job(one.job, session), 0)
            released += len(held)
        with suppress(SessionLostError):  # it was closed or reaped meanwhile
            core.kernel.dispatch(SessionClose(namespace=core.namespace, session=session))
    return released


@attrs.frozen(kw_only=True)
class AuthorisedTask:
    """A task that a principal may settle, unless its attempt has ended."""

    token: TaskToken
    host: str
    """Where it runs."""
    job: Job | None
    """Its job, leased under this attempt; None if the attempt has ended."""


def authorised_task(core: Core, principal: Principal, text: str) -> AuthorisedTask:
    """Return the task of a token. LeaseLostError if it is not one of this principal's workers."""
    (found,) = authorised_tasks(core, principal, [text])
    if isinstance(found, LeaseLostError):
        raise found
    return found


def authorised_tasks(
    core: Core, principal: Principal, texts: Sequence[str]
) -> list[AuthorisedTask | LeaseLostError]:
    """Return the task of each token, read together; an error for those that are not of this principal's workers."""
    core.connect()
    tokens = [_token(text) for text in texts]

    def look(tx: Transaction) -> list[AuthorisedTask | LeaseLostError]:
        valid = [one for one in tokens if one is not None]
        sessions = {one.id: one for one in tx.get(SESSIONS, sorted({one.session for one in valid}))}
        jobs = {one.key: one for one in tx.get(JOBS, sorted({one.key for one in valid}))}
        ended = {one.key.run for one in valid if not _is_held(jobs.get(one.key), one)}
        runs = {one.key for one in tx.get(RUNS, sorted(ended))} if ended else set[str]()
        return [
            LeaseLostError()
            if one is None
            else _authorised(
                core,
                principal,
                one,
                sessions.get(one.session),
                jobs.get(one.key),
                has_run=one.key.run in runs,
            )
            for one in tokens
        ]

    return core.stores.persistence.transact(look)


def _token(text: str) -> TaskToken | None:
    with suppress(LeaseLostError):
        return token_from(text)
    return None


def _is_held(job: Job | None, token: TaskToken) -> bool:
    return job is not None and job.state is JobState.LEASED and job.epoch == token.epoch


def _authorised(
    core: Core,
    principal: Principal,
    token: TaskToken,
    session: Session | None,
    job: Job | None,
    *,
    has_run: bool,
) -> AuthorisedTask | LeaseLostError:
    if session is None or not _is_of(session, core.namespace, principal):
        return LeaseLostError()
    if job is not None and job.epoch < token.epoch:
        return LeaseLostError()
    if job is None or not _is_held(job, token):
        return AuthorisedTask(token=token, host=session.host, job=None) if has_run else LeaseLostError()
    is_own = job.session == token.session and job.definition == token.definition
    if not is_own or job.namespace != core.namespace:
        return LeaseLostError()
    return AuthorisedTask(token=token, host=session.host, job=job)


Dispatch: TypeAlias = Callable[[JobSettle], JobSettled]
"""Dispatches the command of a settle, perhaps in a transaction with others."""


def settle(
    core: Core, token: TaskToken, outcome: Outcome, host: str = "", *, dispatch: Dispatch | None = None
) -> JobSettled:
    """Settle a task, once: its token is the idempotency key. LeaseLostError if the worker does not hold it any more.

    IdempotencyConflictError if it was settled in another way.
    """
    command = _settle_command(core, token, outcome, host, _key_of(token))
    return _settled(core, core.kernel.dispatch(command) if dispatch is None else dispatch(command))


def settle_together(
    core: Core, outcomes: Iterable[tuple[AuthorisedTask, Outcome]]
) -> list[JobSettled | CommandError]:
    """Settle tasks in one transaction, each once. The error of a task that is refused does not affect the others."""
    commands = [
        _settle_command(core, task.token, outcome, task.host, _key_of(task.token))
        for task, outcome in outcomes
    ]
    return [_reply_or_error(core, answer) for answer in core.kernel.dispatch_many(commands)]


def _key_of(token: TaskToken) -> str:
    return f"{KEY_PREFIX}{token.text}"


def _settle_command(core: Core, token: TaskToken, outcome: Outcome, host: str, key: str | None) -> JobSettle:
    return JobSettle(
        namespace=core.namespace,
        idempotency_key=key,
        job=token.job,
        epoch=token.epoch,
        outcome=outcome,
        host=host,
    )


def _settled(core: Core, reply: JobSettled) -> JobSettled:
    """Do what follows a settle. LeaseLostError if the worker does not hold the task any more."""
    if reply.status == "fenced":
        raise LeaseLostError
    _admit(core, reply)
    return reply


def _reply_or_error(core: Core, answer: JobSettled | CommandError) -> JobSettled | CommandError:
    if isinstance(answer, CommandError):
        return answer
    try:
        return _settled(core, answer)
    except LeaseLostError as error:
        return error


def release(core: Core, token: TaskToken, delay: Micros) -> bool:
    """Give a task back without counting the attempt; return whether the worker held it."""
    command = JobRelease(namespace=core.namespace, job=token.job, epoch=token.epoch, delay=delay)
    reply = core.kernel.dispatch(command)
    _admit(core, reply)
    return reply.status == "released"


def _admit(core: Core, reply: WithFollowUp) -> None:
    with suppress(HoldfastError):  # maintenance admits the same runs and jobs
        core.kernel.admit(core.namespace, reply.follow_up)
