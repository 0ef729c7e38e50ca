"""Rules for what is leased: who may write for an attempt, what is heard of it, and how it is given back."""

from holdfast.kernel.commands import Attempt, JobHeartbeat, JobRelease, JobReleased, JobsHeld
from holdfast.kernel.rules.attempt_output import annotation_keys, known_annotations, output_changes
from holdfast.kernel.runs.builder import heartbeat_deadline, rescheduled
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import Change, UpdateJob
from holdfast.ports.clock import Ids
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.records import HEARTBEAT, TERMINAL, Job, JobKey, JobState, Micros, Run, job_key
from holdfast.ports.structs import evolve
from holdfast.ports.transport import JobHint


def named_job(job: str) -> JobKey:
    """Return the key of a job. InvalidCommandError if it can be none."""
    try:
        return job_key(job)
    except ValueError as error:
        raise InvalidCommandError(str(error)) from None


def held_job(state: State, job_id: str, epoch: int, namespace: str) -> tuple[Run, Job] | None:
    """Return run and job if this attempt may write: that is the guard of every write of an attempt.

    Once a run has ended, only what it owes is done.
    """
    key = named_job(job_id)
    run, job = state.tables.runs.get(key.run), state.tables.job(key)
    if run is None or job is None or not is_held(job, epoch, namespace):
        return None
    if run.status in TERMINAL and not job.outlives_run:
        return None
    return run, job


def is_held(job: Job | None, epoch: int, namespace: str) -> bool:
    """Return whether this attempt holds the job."""
    return (
        job is not None and job.namespace == namespace and job.state is JobState.LEASED and job.epoch == epoch
    )


def attempt_of(job: Job) -> Attempt:
    """Return the attempt that a leased job stands for, as its holder is told of it."""
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
    """Read the run, then the job."""
    key = named_job(command.job)
    return Reads(runs=(key.run,), jobs=(key,))


def decide_release(state: State, command: JobRelease, now: Micros, _: Ids) -> Decision[JobReleased]:
    """Queue the job again, with the attempt not counted."""
    held = held_job(state, command.job, command.epoch, command.namespace)
    if held is None:
        return Decision(JobReleased(status="fenced"))
    run, job = held
    first_claimed_at = job.first_claimed_at if job.attempts > 1 else None
    unused = evolve(job, attempts=job.attempts - 1, first_claimed_at=first_claimed_at)
    free = rescheduled(unused, now + command.delay, now, run.status)
    waits = free.state is JobState.LIMITED and free.concurrency_key is not None
    admits = (free.concurrency_key,) if waits and free.concurrency_key else ()
    reply = JobReleased(status="released", admits_jobs=admits)
    return Decision(reply, (UpdateJob(free),), hints_of(free))


def reads_of_heartbeat(command: JobHeartbeat) -> Reads:
    """Read the jobs. Only those about which there is something to store are locked: mostly there is nothing."""
    return Reads(
        jobs=tuple(named_job(held.job) for held in command.attempts if held.outputs),
        seen=tuple(named_job(held.job) for held in command.attempts if not held.outputs),
        annotation_keys=annotation_keys(command),
    )


def decide_heartbeat(state: State, command: JobHeartbeat, now: Micros, ids: Ids) -> Decision[JobsHeld]:
    """Store what the attempts said that are still held, and name the others. A heartbeat keeps its attempt."""
    lost: list[str] = []
    changes: list[Change] = []
    known = known_annotations(state)
    for held in command.attempts:
        job = state.tables.job(named_job(held.job))
        if job is None or not is_held(job, held.epoch, command.namespace):
            lost.append(held.job)
            continue
        if any(one.kind == HEARTBEAT for one in held.outputs) and job.heartbeat_timeout is not None:
            changes.append(UpdateJob(evolve(job, heartbeat_by=heartbeat_deadline(job, now))))
        changes.extend(output_changes(job, held.epoch, held.outputs, ids, known))
    return Decision(JobsHeld(lost=tuple(lost)), tuple(changes))


def hints_of(job: Job) -> tuple[JobHint, ...]:
    """Return what tells of a job: nothing, if nobody can have it yet."""
    return (
        ()
        if job.state is not JobState.QUEUED
        else (JobHint(job=job.key.text, epoch=job.epoch, queue=job.queue),)
    )
