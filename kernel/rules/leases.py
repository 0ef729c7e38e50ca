"""Rules for leases: which attempt may write for a job, and how it sends output or releases its job.

A worker can freeze, lose its network and wake up an hour later. The store cannot stop its process, so it refuses its
writes. This is how.

**Claims and epochs.** A job is a row. A claim (`kernel/rules/claims.py`, or `take_next` of a settle) sets its state to
LEASED, writes the session, and adds one to `epoch` and to `attempts`. The pair (job id, epoch) is the fencing token of
the attempt. Nothing lowers an epoch, and a run never reuses the number of a job, so no two attempts share a token.

**Fencing.** Every write of an attempt passes `find_leased_job` or, for heartbeats, `is_held`: the job must exist, be
LEASED and have the token's epoch. Whatever takes a job from its attempt breaks one of these: a release or a reaper
changes the state, a later claim changes the epoch, the end of a run or of a map deletes the job, and a poll that
becomes a cancel job is queued (`cancelling` in `ports/records/job.py`). A late write is not an error. Its reply is
`fenced` (`lost` for a heartbeat), it changes nothing, and its output is dropped with it.

**Sessions.** A job row has no expiry. It belongs to a session, and renewing the session row renews all of its leases
with one write, however many there are. A session that is not renewed in time is declared dead, for ever
(`session.reap`); after that commit, `lease.reap_stale` frees its jobs. Two commands, because in a single one a claim
could slip in between the search for jobs and the death of the session (docs/decisions/0003). The token does not name
the session: a worker whose lease has expired may still settle until the reaper has freed its job. That is safe, because
until then no other worker can have started the work.

**Lost attempts.** An attempt whose session died is lost (`free_lost_job` in `kernel/rules/sessions.py`). It counts in
`lost_attempts`, not against `max_attempts`, and leaves a history row, except for a cancel job: when a machine dies, its
jobs have not failed. But a body may be what kills its worker. So losses have a maximum of their own, `losses_max`: as
many as the job has attempts, at least 5 and at most 100. With `attempts=1` it is the first loss, because such a body
must not start twice. A job that drives a durable function is not failed: after ten lost claims in a row without a new
history row, its run is blocked.

**Quarantine.** A store cannot tell which attempt killed a worker. A job that was lost twice (`suspect` in the API) is
therefore not leased to a session that holds another job that was ever lost, nor the other way round. So from its third
start on, a poison job has new neighbours each time: it reaches its maximum of losses, and they normally do not. Claims
decide this from the job's row and from what the worker reports about its session (`pass_over`). Invariant S12 checks
it. docs/decisions/0059 has the reasons and the limits.

**Guaranteed.** One attempt at a time may write for a job. An attempt that is given back does not count, and its epoch
is not used again.

**Ugly, and why it stays.** If the reply to a claim is lost, the session holds jobs that no process runs, and renewing
it keeps them. The worker has to replace its session; an expiry in each job row would cost one write a job for each
renewal. `lost_attempts` means something else for a job that drives a function: the most losses of any step in progress
there, and its own since the last record. It stays because a claim must decide quarantine without reading the history.
For the same jobs `Job.tries` counts losses too, because they are blocked for them and never fail.
"""

from holdfast.kernel.commands import Attempt, FollowUp, JobHeartbeat, JobRelease, JobReleased, JobsHeld
from holdfast.kernel.rules.attempt_output import annotation_keys, known_annotations, output_changes
from holdfast.kernel.runs.builder import heartbeat_deadline, rescheduled
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import Change, Update
from holdfast.ports.clock import Ids
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.records.history import HEARTBEAT
from holdfast.ports.records.job import Job, JobKey, JobState, job_key
from holdfast.ports.records.run import TERMINAL, Run
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import evolve
from holdfast.ports.transport import JobHint


def parse_job_id(job: str) -> JobKey:
    """Return the key of the job with this id. Raises InvalidCommandError if it is not a job id."""
    try:
        return job_key(job)
    except ValueError as error:
        raise InvalidCommandError(str(error)) from None


def find_leased_job(state: State, job_id: str, epoch: int, namespace: str) -> tuple[Run, Job] | None:
    """Return run and job if the attempt with this epoch may write, or None: it is fenced.

    After the end of a run only the jobs that outlive it may write: those that cancel external work.
    """
    key = parse_job_id(job_id)
    run, job = state.tables.runs.get(key.run), state.tables.job(key)
    if run is None or job is None or not is_held(job, epoch, namespace):
        return None
    if run.status in TERMINAL and not job.outlives_run:
        return None
    return run, job


def is_held(job: Job | None, epoch: int, namespace: str) -> bool:
    """Return whether the job exists in the namespace and is leased under this epoch."""
    return (
        job is not None and job.namespace == namespace and job.state is JobState.LEASED and job.epoch == epoch
    )


def attempt_of(job: Job) -> Attempt:
    """Return the attempt that its worker receives for a leased job."""
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
        lost_attempts=job.lost_attempts,
        input=job.input,
        total_until=job.total_until,
    )


def reads_of_release(command: JobRelease) -> Reads:
    """Lock the run, then the job."""
    key = parse_job_id(command.job)
    return Reads(runs=(key.run,), jobs=(key,))


def decide_release(state: State, command: JobRelease, now: Micros, _: Ids) -> Decision[JobReleased]:
    """Queue the job again, or let it sleep for the delay, without counting the attempt."""
    held = find_leased_job(state, command.job, command.epoch, command.namespace)
    if held is None:
        return Decision(JobReleased(status="fenced"))
    run, job = held
    first_claimed_at = job.first_claimed_at if job.attempts > 1 else None
    unused = evolve(job, attempts=job.attempts - 1, first_claimed_at=first_claimed_at)
    free = rescheduled(unused, now + command.delay, now, run.status)
    limited = (free.concurrency_key,) if free.state is JobState.LIMITED and free.concurrency_key else ()
    reply = JobReleased(status="released", follow_up=FollowUp(jobs=limited))
    return Decision(reply, (Update(free),), job_hints(free))


def reads_of_heartbeat(command: JobHeartbeat) -> Reads:
    """Read the jobs, and lock those of attempts that send output. Most send none."""
    return Reads(
        jobs=tuple(parse_job_id(held.job) for held in command.attempts if held.outputs),
        unlocked_jobs=tuple(parse_job_id(held.job) for held in command.attempts if not held.outputs),
        annotation_keys=annotation_keys(command),
    )


def decide_heartbeat(state: State, command: JobHeartbeat, now: Micros, ids: Ids) -> Decision[JobsHeld]:
    """Store the output of attempts that hold their jobs, extend those with a heartbeat, and report the other ones."""
    lost: list[str] = []
    changes: list[Change] = []
    known = known_annotations(state)
    for held in command.attempts:
        job = state.tables.job(parse_job_id(held.job))
        if job is None or not is_held(job, held.epoch, command.namespace):
            lost.append(held.job)
            continue
        if any(one.kind == HEARTBEAT for one in held.outputs) and job.heartbeat_timeout is not None:
            changes.append(Update(evolve(job, heartbeat_by=heartbeat_deadline(job, now))))
        changes.extend(output_changes(job, held.epoch, held.outputs, ids, known))
    return Decision(JobsHeld(lost=tuple(lost)), tuple(changes))


def job_hints(job: Job) -> tuple[JobHint, ...]:
    """Return the hint for a queued job; no hint in any other state."""
    return (
        ()
        if job.state is not JobState.QUEUED
        else (JobHint(job=job.key.text, epoch=job.epoch, queue=job.queue),)
    )
