"""Answers to the queries about limits and queues, from plain dictionaries."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from holdfast.adapters.memory.queries.waiting import place_of, waits
from holdfast.ports.queries.limits import (
    BEFORE_MAX,
    COUNTED_MAX,
    LevelState,
    LevelStates,
    LineState,
    LineStates,
    ListLimits,
    QueueState,
    QueueStates,
    RateLines,
)
from holdfast.ports.records.job import PRIORITY_STEP, Job, JobState
from holdfast.ports.records.limits import LimitRow, is_within, levels_of
from holdfast.ports.records.run import Run, outer_limits_of_waiter
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import SleepersUnderRates, SlotPlace, Waiting
from holdfast.ports.working_set import Tables

_One = TypeVar("_One", Run, Job)


def limits_listed(tables: Tables, query: ListLimits) -> tuple[LimitRow, ...]:
    """Answer `ListLimits`."""
    found = sorted(
        (name.name, row)
        for name, row in tables.limits.items()
        if name.namespace == query.namespace and name.name > query.after
    )
    return tuple(row for _, row in found[: max(0, query.limit)])


def rate_lines(tables: Tables, query: RateLines) -> tuple[str, ...]:
    """Answer `RateLines`."""
    found = sorted(
        name.name
        for name in tables.rates
        if name.namespace == query.namespace and _has_ends(name.name, query.start, query.end)
    )
    return tuple(found[: max(0, query.limit)])


def sleepers(tables: Tables, search: SleepersUnderRates, now: Micros) -> Sequence[Job]:
    """Return what `SleepersUnderRates` finds."""
    wakes = {
        name: window.wakes_at
        for name, window in tables.rates.items()
        if name.namespace == search.namespace
        and _has_ends(name.name, search.start, search.end)
        and window.wakes_at is not None
        and window.wakes_at > now
    }
    found = [
        job
        for job in tables.all_jobs()
        if job.state is JobState.SLEEPING and job.rate is not None
        if job.rate in wakes and job.wake_at == wakes[job.rate]
    ]
    return sorted(found, key=lambda job: job.key)[: search.limit]


def _has_ends(text: str, start: str, end: str) -> bool:
    return text.startswith(start) and text.endswith(end)


def line_states(tables: Tables, query: LineStates) -> tuple[LineState, ...]:
    """Answer `LineStates`."""
    return tuple(_line_state(tables, place, query.waiting) for place in sorted(set(query.places)))


def level_states(tables: Tables, query: LevelStates) -> tuple[LevelState, ...]:
    """Answer `LevelStates`."""
    found: list[LevelState] = []
    for level in levels_of(query.place.key):
        runs = _within(tables, query.place.namespace, level)
        holders = [run for run in runs if run.has_slot]
        ranks = ((run.queue_position, run.key) for run in runs if waits(run, Waiting.RUNS))
        before = sum(rank < (query.position, query.run) for rank in ranks)
        oldest = sorted((run.created_at, run.key) for run in holders if run.error is None)
        named = tuple(key for _, key in oldest[: query.holders])
        found.append(LevelState(level, len(holders), min(before, BEFORE_MAX + 1), named))
    return tuple(found)


def _within(tables: Tables, namespace: str, level: str) -> list[Run]:
    return [
        run
        for run in tables.runs.values()
        if run.namespace == namespace and run.concurrency_key is not None
        if is_within(run.concurrency_key, level)
    ]


def _line_state(tables: Tables, place: SlotPlace, kind: Waiting) -> LineState:
    if kind is Waiting.RUNS:
        return _line_of_runs(place, _within(tables, place.namespace, place.key))
    if kind is Waiting.RATED_RUNS:
        rated = [run for run in tables.runs.values() if place_of(run, kind) == place and waits(run, kind)]
        return _line_of_rate(place, rated)
    return _line_of_jobs(place, [job for job in tables.all_jobs() if place_of(job, kind) == place])


def _line_of_runs(place: SlotPlace, runs: Sequence[Run]) -> LineState:
    limit = _highest(run.concurrency_limit for run in _planned(runs, place.key))
    level = len(levels_of(place.key)) - 1
    texts = [run.concurrency_outer for run in _planned(runs) if run.concurrency_outer is not None]
    around = outer_limits_of_waiter(max(texts, default=None))
    if limit is None and level < len(around):
        limit = around[level]
    return LineState(place, *_counts(runs, Waiting.RUNS), limit)


def _line_of_rate(place: SlotPlace, waiting: Sequence[Run]) -> LineState:
    first = min(waiting, key=_rank, default=None)
    if first is None:
        return LineState(place, 0, 0, None, None)
    number = min(len(waiting), COUNTED_MAX)
    return LineState(place, 0, number, _since(first), None, first.rate_limit, first.rate_period)


def _line_of_jobs(place: SlotPlace, jobs: Sequence[Job]) -> LineState:
    planned = _planned(jobs)
    return LineState(
        place,
        *_counts(jobs, Waiting.JOBS),
        _highest(job.concurrency_limit for job in planned),
        _highest(job.rate_limit for job in planned),
        _highest(job.rate_period for job in planned),
    )


def _counts(found: Sequence[Run | Job], kind: Waiting) -> tuple[int, int, Micros | None]:
    """Return how many hold slots, how many wait, and since when."""
    waiting = [one for one in found if waits(one, kind)]
    first = min(waiting, key=_rank, default=None)
    since = None if first is None else _since(first)
    return sum(map(_holds, found)), min(len(waiting), COUNTED_MAX), since


def _planned(found: Sequence[_One], key: str | None = None) -> Sequence[_One]:
    """Return the first that waits, of a key if that is given; if none waits, the holders of slots."""
    ours = [one for one in found if key is None or one.concurrency_key == key]
    waiting = (one for one in ours if waits(one, Waiting.RUNS))  # of a job, in its only line
    first = min(waiting, key=_rank, default=None)
    return [one for one in ours if _holds(one)] if first is None else [first]


def _rank(one: Run | Job) -> tuple[Micros, object]:
    return one.queue_position, one.key


def _highest(numbers: Iterable[int | None]) -> int | None:
    return max((number for number in numbers if number is not None), default=None)


def _holds(one: Run | Job) -> bool:
    return one.state in (JobState.QUEUED, JobState.LEASED) if isinstance(one, Job) else one.has_slot


def _since(one: Run | Job) -> Micros:
    return one.queue_position + one.priority * PRIORITY_STEP


def queue_states(tables: Tables, query: QueueStates) -> tuple[QueueState, ...]:
    """Answer `QueueStates`."""
    found: list[QueueState] = []
    for queue in sorted(set(query.queues)):
        jobs = [job for job in tables.all_jobs() if (job.namespace, job.queue) == (query.namespace, queue)]
        queued = [job for job in jobs if job.state is JobState.QUEUED]
        leased = sum(job.state is JobState.LEASED for job in jobs)
        since = min((_since(job) for job in queued), default=None)
        found.append(QueueState(queue, min(len(queued), COUNTED_MAX), min(leased, COUNTED_MAX), since))
    return tuple(found)
