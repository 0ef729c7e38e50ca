"""The answer to the query for what is due first, from plain dictionaries."""

from collections.abc import Iterator

from holdfast.ports.queries.store import DueKind
from holdfast.ports.records.job import JobState
from holdfast.ports.records.run import TERMINAL, RunStatus
from holdfast.ports.records.values import Micros
from holdfast.ports.working_set import Tables


def earliest_due(tables: Tables) -> dict[DueKind, Micros]:
    """Answer `EarliestDue`."""
    found: dict[DueKind, Micros] = {}
    for kind, at in _due(tables):
        found[kind] = min(at, found.get(kind, at))
    return found


def _due(tables: Tables) -> Iterator[tuple[DueKind, Micros]]:
    for job in tables.all_jobs():
        if job.state is JobState.SLEEPING and job.wake_at is not None:
            yield DueKind.SLEEP, job.wake_at
    for run in tables.runs.values():
        if run.status is RunStatus.PENDING and run.start_at is not None:
            yield DueKind.START, run.start_at
        if run.status not in TERMINAL and run.deadline is not None and run.error is None:
            yield DueKind.DEADLINE, run.deadline
