"""Lines for slots and rates: runs and jobs that wait, and slots that are taken, from plain dictionaries."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby, islice

from holdfast.ports.records.job import Job, JobState
from holdfast.ports.records.limits import levels_of, run_limit
from holdfast.ports.records.run import Run, RunStatus, outer_limits_of_waiter
from holdfast.ports.searches import KeySpan, OpenRunsOfKey, SlotPlace, WaitedFor, Waiting
from holdfast.ports.working_set import Tables

_Waiter = tuple[SlotPlace, int, tuple[str, int]]
"""Concurrency key, rank, and key of the run or job. Sorts in the order of admission."""


def waited_for(tables: Tables, waiting: Waiting) -> list[WaitedFor]:
    """Return all concurrency keys for which runs or jobs wait, ascending."""
    taken = used(tables, waiting)
    has_limits = bool(tables.limits)
    found: list[WaitedFor] = []
    for place, waiters in groupby(_waiters(tables, waiting), lambda waiter: waiter[0]):
        _, position, (name, number) = next(waiters)
        first = tables.jobs[name][number] if waiting is Waiting.JOBS else tables.runs[name]
        limit = None if waiting is Waiting.RATED_RUNS else first.concurrency_limit
        if waiting is not Waiting.RUNS or isinstance(first, Job):
            used_of = 0 if limit is None else taken[place]
            rates = first.rate_limit, first.rate_period
            found.append(WaitedFor(place, limit, used_of, *rates, has_limits, position=position))
        else:
            outer = outer_limits_of_waiter(first.concurrency_outer)
            used_of = 0 if first.concurrency_outer is not None else taken[place]
            found.append(WaitedFor(place, limit, used_of, None, None, has_limits, outer, position))
    return found


def waited_for_in_spans(tables: Tables, spans: Collection[KeySpan], limit: int) -> list[WaitedFor]:
    """Return the first concurrency keys for which runs wait of each span, ascending."""
    every = waited_for(tables, Waiting.RUNS)
    found: dict[SlotPlace, WaitedFor] = {}
    for namespace, first, beyond in spans:
        ours = (one for one in every if one.place.namespace == namespace and first <= one.place.key < beyond)
        found.update((one.place, one) for one in islice(ours, limit))
    return [found[place] for place in sorted(found)]


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
    holders = () if waiting is Waiting.RATED_RUNS else _all(tables, waiting)
    return Counter(
        SlotPlace(one.namespace, level) for one in holders if one.has_slot for level in _levels(one)
    )


def used_in_spans(tables: Tables, spans: Collection[KeySpan]) -> Counter[SlotPlace]:
    """Return how many runs hold a slot by each key of these spans."""
    return Counter(
        _place(run)
        for run in tables.runs.values()
        if run.has_slot
        for namespace, first, beyond in spans
        if run.namespace == namespace and first <= (run.concurrency_key or "") < beyond
    )


def _levels(one: Run | Job) -> Sequence[str]:
    key = one.concurrency_key or ""
    return (key,) if isinstance(one, Job) else levels_of(key)


def _slots_set(tables: Tables, place: SlotPlace) -> int | None:
    row = tables.limits.get(run_limit(*place))
    return None if row is None else row.slots


def open_runs(tables: Tables, wanted: Sequence[tuple[SlotPlace, int]]) -> dict[SlotPlace, OpenRunsOfKey]:
    """Return the open runs of those concurrency keys that have any."""
    most_of = dict(wanted)
    by_place: dict[SlotPlace, list[Run]] = {}
    for run in tables.runs.values():
        if run.counts_for_starts and (place := _place(run)) in most_of:
            by_place.setdefault(place, []).append(run)
    found: dict[SlotPlace, OpenRunsOfKey] = {}
    for place, runs in by_place.items():
        ordered = sorted(runs, key=lambda run: (run.created_at, run.key))
        under_way = [run.key for run in ordered if run.has_slot]
        waiting = [run.key for run in ordered if not run.has_slot]
        found[place] = OpenRunsOfKey(
            under_way=len(under_way),
            waiting=len(waiting),
            oldest_under_way=tuple(under_way[: most_of[place]]),
            oldest_waiting=tuple(waiting[: most_of[place]]),
            newest=ordered[-1].key,
            newest_id=ordered[-1].id,
            slots=_slots_set(tables, place),
        )
    return found


def _waiters(tables: Tables, waiting: Waiting) -> list[_Waiter]:
    return sorted(
        (place_of(one, waiting), one.queue_position, one.key if isinstance(one, Job) else (one.key, 0))
        for one in _all(tables, waiting)
        if waits(one, waiting)
    )


def waits(one: Run | Job, waiting: Waiting) -> bool:
    """Return whether a run or job waits in a line of this kind."""
    if isinstance(one, Job):
        return one.state is JobState.LIMITED
    is_rated = waiting is Waiting.RATED_RUNS
    has_line = (
        one.in_rate_line == 1 if is_rated else one.in_rate_line == 0 and one.concurrency_key is not None
    )
    return has_line and one.status is RunStatus.PENDING and one.start_at is None


def place_of(one: Run | Job, waiting: Waiting) -> SlotPlace:
    """Return the key of the line of this kind of a run or job; "" if it has none."""
    key = one.rate_key if isinstance(one, Run) and waiting is Waiting.RATED_RUNS else one.concurrency_key
    return SlotPlace(one.namespace, key or "")


def _place(one: Run | Job) -> SlotPlace:
    return SlotPlace(one.namespace, one.concurrency_key or "")


def _all(tables: Tables, waiting: Waiting) -> Iterator[Run | Job]:
    if waiting is Waiting.JOBS:
        yield from tables.all_jobs()
    else:
        yield from tables.runs.values()
