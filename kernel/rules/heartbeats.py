"""Rules for heartbeats: they store output, and an attempt that sends none in time fails, and its job is retried."""

from datetime import timedelta
from itertools import groupby
from typing import Final

from holdfast.kernel.commands import Failure, JobHeartbeat, JobReapUnresponsive, JobsHeld, UnresponsiveReaped
from holdfast.kernel.rules.attempt_output import annotation_keys, known_annotations, output_changes
from holdfast.kernel.rules.leases import is_held, parse_job_id
from holdfast.kernel.rules.retries import NO_DETAILS, fail_attempt
from holdfast.kernel.runs.builder import RunDraft, heartbeat_deadline
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import Change, Update
from holdfast.ports.clock import Ids
from holdfast.ports.records.history import HEARTBEAT
from holdfast.ports.records.job import Job, JobState
from holdfast.ports.records.run import TERMINAL
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import OverdueHeartbeats
from holdfast.ports.structs import evolve
from holdfast.ports.transport import Hint

HEARTBEAT_TIMEOUT: Final = "heartbeat_timeout"
"""Code of the failure of an attempt that missed its heartbeat timeout."""


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


def reads_of_reap_unresponsive(command: JobReapUnresponsive) -> Reads:
    """Search for jobs whose heartbeat is overdue; lock them and their runs."""
    return Reads(search=_searched(command), runs_of_found=True)


def decide_reap_unresponsive(
    state: State, command: JobReapUnresponsive, now: Micros, _: Ids
) -> Decision[UnresponsiveReaped]:
    """Fail the attempts whose heartbeat is overdue. They are fenced from then on.

    Each job is checked again under its lock, as its body may have sent a heartbeat or ended since the search.
    """
    changes: list[Change] = []
    hints: list[Hint] = []
    freed = dead = 0
    overdue = sorted(state.found[_searched(command)].jobs)
    for key, keys in groupby(overdue, lambda job_key: job_key.run):
        state.current_run = key
        run = state.tables.runs.get(key)
        if run is None or run.status in TERMINAL:
            continue
        plan = state.plan_of(run)
        draft = RunDraft(run, now)
        touched = False
        for job_key in keys:
            job = state.tables.job(job_key)
            if job is None or draft.status in TERMINAL or not _is_overdue(job, now - command.grace):
                continue
            touched = True
            retry_at = fail_attempt(draft, plan, job, _heartbeat_failure(job), now, NO_DETAILS)
            freed, dead = (freed, dead + 1) if retry_at is None else (freed + 1, dead)
        if touched:
            changes.extend(draft.changes())
            hints.extend(draft.hints)
    return Decision(UnresponsiveReaped(freed=freed, dead=dead), tuple(changes), tuple(hints))


def _searched(command: JobReapUnresponsive) -> OverdueHeartbeats:
    return OverdueHeartbeats(command.grace, command.limit)


def _is_overdue(job: Job, before: Micros) -> bool:
    return job.state is JobState.LEASED and job.heartbeat_by is not None and job.heartbeat_by < before


def _heartbeat_failure(job: Job) -> Failure:
    allowed = timedelta(microseconds=job.heartbeat_timeout or 0)
    return Failure(
        code=HEARTBEAT_TIMEOUT, message=f"no heartbeat of attempt {job.attempts} was stored for {allowed}"
    )
