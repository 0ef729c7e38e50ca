"""Instants at which maintenance has work to do in a store."""

from collections.abc import Iterator
from typing import Final

from holdfast.ports.records.job import JobState
from holdfast.ports.records.run import ACTIVE, RunStatus
from holdfast.ports.records.session import SessionState
from holdfast.ports.records.values import Micros
from holdfast.ports.working_set import Tables

NOW: Final[Micros] = 0


def due_instants(tables: Tables) -> Iterator[Micros]:
    """Yield the instants at which maintenance has work to do; `NOW` for work that is already due."""
    for job in tables.all_jobs():
        if job.state is JobState.SLEEPING and job.wake_at is not None:
            yield job.wake_at
        elif job.state in (JobState.LIMITED, JobState.PENDING_DELIVERY):
            yield NOW
    for run in tables.runs.values():
        if run.status is RunStatus.PENDING:
            window = tables.rates.get(run.rate) if run.rate is not None and run.in_rate_line else None
            yield run.start_at or (NOW if window is None else window.admits_at) or NOW
        if run.status in ACTIVE and not run.is_ending and run.deadline is not None:
            yield run.deadline
    for stream in tables.streams.values():
        retry_at = tables.sinks[stream.sink].retry_at if stream.sink in tables.sinks else None
        if stream.due_at is not None:
            yield stream.due_at if retry_at is None else max(retry_at, stream.due_at)


def lapses(tables: Tables) -> Iterator[Micros]:
    """Yield the instants at which leases of jobs expire unless renewed; `NOW` for those of dead sessions."""
    for job in tables.all_jobs():
        session = tables.sessions.get(job.session or "") if job.state is JobState.LEASED else None
        if session is not None:
            yield session.expires_at if session.state is SessionState.OPEN else NOW
