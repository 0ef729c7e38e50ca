"""Updates that write only a few columns of a row, if no other column differs from the version that was locked.

A step changes three of a run's thirty columns. Writing all of them would take longer than the rest of the step
(docs/decisions/0010).
"""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeVar

import attrs

from holdfast.adapters.sql.dialect import Write
from holdfast.adapters.sql.rows import JOB, RUN, Row, values_of
from holdfast.ports.records.job import Job, JobKey
from holdfast.ports.records.run import Run

RecordKey = TypeVar("RecordKey", str, JobKey)

OF_RUNS: Final = (
    ("updated_at", "last_row", "reported_row"),
    (
        *("status", "updated_at", "ended_at", "last_row", "last_job", "open_jobs", "progress", "result"),
        *("error", "children", "reported_row"),
    ),
    ("updated_at", "last_row", "mailbox", "reported_row"),
)
"""Columns of a run that change: with a new history row, with the end of a job, and with messages."""
OF_JOBS: Final = (
    (
        *(
            "state",
            "epoch",
            "attempts",
            "session",
            "wake_at",
            "leased_at",
            "lost_attempts",
            "first_claimed_at",
        ),
        "heartbeat_by",
    ),
)
"""Columns of a job that change when it is claimed, released, or put to sleep."""


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


def run_updates(
    writes: Sequence[Write], runs: Mapping[str, Run], known: LockedRows
) -> list[tuple[Write, list[Row]]]:
    """Return the updates of runs, keys ascending. The last write has all columns, for rows that were not locked."""
    return _updates(Run, writes, RUN, runs, known.runs)


def job_updates(
    writes: Sequence[Write], jobs: Mapping[JobKey, Job], known: LockedRows
) -> list[tuple[Write, list[Row]]]:
    """Return the updates of jobs, as `run_updates`."""
    return _updates(Job, writes, JOB, jobs, known.jobs)


def _updates(
    record: type[attrs.AttrsInstance],
    writes: Sequence[Write],
    columns: tuple[str, ...],
    changed: Mapping[RecordKey, object],
    known: Mapping[RecordKey, object],
) -> list[tuple[Write, list[Row]]]:
    if not changed:
        return []
    narrow = [
        (values_of(record, _without(columns, write.columns)), values_of(record, write.columns))
        for write in writes[:-1]
    ]
    whole = values_of(record, writes[-1].columns)
    made: list[list[Row]] = [[] for _ in writes]
    for key in sorted(changed):
        after, before = changed[key], known.get(key)
        for rows, (others, values) in zip(made, narrow, strict=False):
            if before is not None and others(before) == others(after):
                rows.append(values(after))
                break
        else:
            made[-1].append(whole(after))
    return list(zip(writes, made, strict=True))


@lru_cache
def _without(columns: tuple[str, ...], left_out: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in columns if name not in left_out)
