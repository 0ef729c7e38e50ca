"""Waiting for slots: runs and jobs that wait, and slots that are taken, computed from plain dictionaries."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from holdfast.ports.records.job import Job, JobState
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.searches import SlotPlace, WaitedFor, Waiting
from holdfast.ports.working_set import Tables

_Waiter = tuple[SlotPlace, int, tuple[str, int]]
"""Concurrency key, rank, and key of the run or job. Sorts in the order of admission."""


def waited_for(tables: Tables, waiting: Waiting) -> list[WaitedFor]:
    """Return all concurrency keys for which runs or jobs wait, ascending."""
    taken = used(tables, waiting)
    found: list[WaitedFor] = []
    for place, waiters in groupby(_waiters(tables, waiting), lambda waiter: waiter[0]):
        _, _, (name, number) = next(waiters)
        first = tables.runs[name] if waiting is Waiting.RUNS else tables.jobs[name][number]
        limit = first.concurrency_limit
        if isinstance(first, Job):
            used_of = 0 if limit is None else taken[place]
            found.append(WaitedFor(place, limit, used_of, first.rate_limit, first.rate_period))
        else:
            found.append(WaitedFor(place, limit, taken[place]))
    return found


def queued(tables: Tables) -> Counter[SlotPlace]:
    """Return how many jobs with a rate limit are queued for each key."""
    jobs = (job for job in tables.all_jobs() if job.state is JobState.QUEUED and job.rate_limit is not None)
    return Counter(map(_place, jobs))


def first_waiting(
    tables: Tables, waiting: Waiting, wanted: Sequence[tuple[SlotPlace, int]]
) -> Iterator[tuple[str, int]]:
    """Yield the keys of the first waiting runs or jobs of each concurrency key, as many as requested for it."""
    left = dict(wanted)
    for place, _, name in _waiters(tables, waiting):
        if left.get(place, 0) > 0:
            left[place] -= 1
            yield name


def used(tables: Tables, waiting: Waiting) -> Counter[SlotPlace]:
    """Return how many slots of each key are taken."""
    return Counter(_place(one) for one in _all(tables, waiting) if one.has_slot)


def _waiters(tables: Tables, waiting: Waiting) -> list[_Waiter]:
    return sorted(
        (_place(one), one.queue_position, one.key if isinstance(one, Job) else (one.key, 0))
        for one in _all(tables, waiting)
        if _waits(one)
    )


def _waits(one: Run | Job) -> bool:
    if isinstance(one, Job):
        return one.state is JobState.LIMITED
    return one.concurrency_key is not None and one.status is RunStatus.PENDING and one.start_at is None


def _place(one: Run | Job) -> SlotPlace:
    return SlotPlace(one.namespace, one.concurrency_key or "")


def _all(tables: Tables, waiting: Waiting) -> Iterator[Run | Job]:
    if waiting is Waiting.RUNS:
        yield from tables.runs.values()
    else:
        yield from tables.all_jobs()
