"""Liveness checks (T3, L1). They hold only while maintenance runs."""

from collections.abc import Collection, Iterator

from holdfast.kernel.invariants.snapshots import Snapshot
from holdfast.kernel.invariants.violations import Violation
from holdfast.ports.records.job import Job, JobState
from holdfast.ports.records.run import TERMINAL, Run, RunStatus
from holdfast.ports.records.session import Session
from holdfast.ports.records.values import Micros


def overdue(snapshot: Snapshot, *, runs: Collection[str], before: Micros) -> list[Violation]:
    """Return what was due before an instant in these runs and has not happened.

    T3: starts, deadlines and sleeping jobs. L1: leases of dead sessions and undelivered results. Violations are normal
    right after a time without workers.
    """
    found: list[Violation] = []
    for key in sorted(runs):
        run = snapshot.runs.get(key)
        if run is None:
            continue
        jobs = [job for _, job in sorted(snapshot.jobs.get(key, {}).items())]
        found += [Violation("T3", key, what) for what in _due(run, jobs, before)]
        found += [Violation("L1", key, what) for what in _left(run, jobs, snapshot, before)]
    return found


def _due(run: Run, jobs: Collection[Job], before: Micros) -> Iterator[str]:
    if run.status is RunStatus.PENDING and run.start_at is not None and run.start_at < before:
        yield f"the run should have started at {run.start_at}, but is still pending"
    is_ending = run.status in TERMINAL or run.is_ending
    if not is_ending and run.deadline is not None and run.deadline < before:
        yield f"the run should have failed at its deadline, {run.deadline}, but is {run.status}"
    for job in jobs:
        if job.state is JobState.SLEEPING and job.wake_at is not None and job.wake_at < before:
            yield (
                f"job {job.number} of {job.node!r} should have woken at {job.wake_at}, but is still sleeping"
            )


def _left(run: Run, jobs: Collection[Job], snapshot: Snapshot, before: Micros) -> Iterator[str]:
    for job in jobs:
        holder = snapshot.sessions.get(job.session or "")
        if job.state is JobState.LEASED and holder is not None and holder.expires_at < before:
            yield (
                f"job {job.number} of {job.node!r} is leased to {_named(holder)}; the job must be queued"
                " again"
            )
        if job.state is JobState.PENDING_DELIVERY and run.ended_at is not None and run.ended_at < before:
            yield f"the run ended at {run.ended_at}, but job {job.number} has not delivered its result yet"


def _named(session: Session) -> str:
    return f"session {session.id} on {session.host}, which expired at {session.expires_at}"
