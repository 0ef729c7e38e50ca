"""Repair of cancel jobs: abandoned external work without one, and cancel jobs without such work. Only after faults."""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import attrs

from holdfast.kernel.history import events
from holdfast.kernel.pipelines.plan import Plan, stage_of
from holdfast.kernel.pipelines.progress import Progress
from holdfast.kernel.runs.builder import RunDraft, rescheduled
from holdfast.kernel.runs.external_work import has_external_work_ended
from holdfast.kernel.state import State
from holdfast.ports.changes import Change, Delete, Update
from holdfast.ports.records.job import Job, JobKind, JobState
from holdfast.ports.records.run import Run
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import CompletedRow
from holdfast.ports.structs import frozen
from holdfast.ports.tables import JOBS

Item: TypeAlias = tuple[str, int | None]

_WORK_ENDS: Final = events.CANCELLATION_OUTCOMES | {events.StageCompleted.type}
"""Types of rows after which external work is over. After `stage.failed`, it may still run."""


@frozen(kw_only=True)
class CleanupFaults:
    """Faults in the cancel jobs of a run."""

    lacking: dict[Item, int]
    """Abandoned work without a cancel job: the number of its `stage.suspended` row, by stage and item."""
    extra: Sequence[Job]
    """Cancel jobs without abandoned work."""
    stuck: Sequence[Job]
    """Cancel jobs that no worker will ever claim."""

    def __bool__(self) -> bool:
        """Whether there is a fault."""
        return bool(self.lacking or self.extra or self.stuck)


def find_cleanup_faults(state: State, run: Run, plan: Plan, progress: Progress | None) -> CleanupFaults:
    """Compare the cancel jobs of a run with its history. `progress` is its place in the plan; None if it has ended."""
    rows = state.completed.get(run.key, ())
    left = {
        item: row for item, row in _left(state, run, plan, rows) if not _is_waited_for(item, progress, rows)
    }
    jobs = [job for job in state.tables.jobs.get(run.key, {}).values() if job.kind is JobKind.CANCEL]
    first: dict[Item, Job] = {}
    for job in jobs:
        if (job.node, job.item) in left:
            first.setdefault((job.node, job.item), job)
    there = list(first.values())
    return CleanupFaults(
        lacking={item: row for item, row in left.items() if item not in first},
        extra=[job for job in jobs if job not in there],
        stuck=[job for job in there if _is_stuck(state, job)],
    )


def repair_cancel_jobs(
    draft: RunDraft, state: State, run: Run, plan: Plan, faults: CleanupFaults, now: Micros
) -> Sequence[Change]:
    """Add missing cancel jobs, delete extra ones and free stuck ones. Returns changes besides the draft."""
    for (name, item), row in faults.lacking.items():
        draft.open_cancel(stage_of(plan.node(name)), row, item, _key(state, run, name, item, row))
    # A stuck job may have used its last attempt: it gets another, or no worker could claim it.
    retryable = (
        attrs.evolve(job, attempts=min(job.attempts, job.lost_attempts + job.max_attempts - 1))
        for job in faults.stuck
    )
    return (
        *(Delete(JOBS, job.key) for job in faults.extra),
        *(Update(rescheduled(job, now, now, run.status, is_damaged=True)) for job in retryable),
    )


def _left(state: State, run: Run, plan: Plan, rows: Sequence[CompletedRow]) -> Iterator[tuple[Item, int]]:
    """Yield submitted work that, by the history, is neither over nor cancelled, with its `stage.suspended` row."""
    done = {(row.node, row.item) for row in rows if row.type in _WORK_ENDS}
    failed = {(row.node, row.item): row.number for row in rows if row.type == events.StageFailed.type}
    for row in rows:
        item = (row.node, row.item)
        if row.type != events.StageSuspended.type or row.node not in plan.cancels or item in done:
            continue
        if item not in failed or not has_external_work_ended(_code(state, run, failed[item])):
            yield item, row.number


def _is_waited_for(item: Item, progress: Progress | None, rows: Sequence[CompletedRow]) -> bool:
    node = None if progress is None else progress.nodes.get(item[0])
    if node is None or node.output is not None:
        return False
    return not any((row.node, row.item) == item and row.type == events.StageFailed.type for row in rows)


def _code(state: State, run: Run, number: int) -> str:
    """Return the error code of a failed stage."""
    row = state.suspensions.get((run.key, number))
    return "" if row is None else events.StageFailed.from_row(row).code


def _key(state: State, run: Run, name: str, item: int | None, row: int) -> str:
    suspension = state.suspensions.get((run.key, row))
    if suspension is not None:
        return events.StageSuspended.from_row(suspension).key
    return f"{run.key}/{name}" if item is None else f"{run.key}/{name}/{item}"


def _is_stuck(state: State, job: Job) -> bool:
    """Whether the job is in a state that no worker or maintenance ever changes."""
    match job.state:
        case JobState.LEASED:
            return job.session not in state.tables.sessions
        case JobState.SLEEPING:
            return job.wake_at is None or job.session is not None
        case JobState.QUEUED:
            return job.wake_at is not None or job.session is not None
        case _:
            return True
