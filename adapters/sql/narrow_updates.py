"""Updates that write only a few columns of a row, if no other column differs from the version that was locked.

A step changes three of a run's thirty columns. Writing all of them would take longer than the rest of the step
(docs/decisions/0010).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from holdfast.ports.changes import AnyTable
from holdfast.ports.records.job import Job, JobKey
from holdfast.ports.records.run import Run
from holdfast.ports.tables import JOBS, RUNS

NARROW: Final[Mapping[AnyTable, Sequence[Sequence[str]]]] = {
    # With a new history row, with the end of a job, and with messages.
    RUNS: (
        ("updated_at", "last_row", "reported_row"),
        (
            *("status", "updated_at", "ended_at", "last_row", "last_job", "open_jobs", "progress", "result"),
            *("error", "children", "reported_row"),
        ),
        ("updated_at", "last_row", "mailbox", "reported_row"),
    ),
    # When a job is claimed, released, or put to sleep.
    JOBS: (
        (
            *("state", "epoch", "attempts", "session", "wake_at", "leased_at", "lost_attempts"),
            *("first_claimed_at", "heartbeat_by"),
        ),
    ),
}
"""Columns that change together, by table."""


@attrs.define(init=False)
class LockedRows:
    """The rows that a transaction has locked, as they are in the database."""

    runs: dict[str, Run]
    jobs: dict[JobKey, Job]

    def __init__(self) -> None:
        self.runs = {}
        self.jobs = {}

    def note_runs(self, runs: Sequence[Run]) -> Sequence[Run]:
        """Record locked runs, and return them."""
        self.runs.update((run.key, run) for run in runs)
        return runs

    def note_jobs(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Record locked jobs, and return them."""
        self.jobs.update((job.key, job) for job in jobs)
        return jobs

    def of(self, table: AnyTable) -> Mapping[Any, object]:
        """Return the locked rows of a table by key."""
        return self.runs if table is RUNS else self.jobs if table is JOBS else {}
