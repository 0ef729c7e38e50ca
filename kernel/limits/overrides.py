"""The limits in force: those that operators have set, else those of plans (docs/decisions/0084).

Whatever admits or starts something under a limit asks here. Without rows, the plan decides.
"""

from collections.abc import Iterable, Mapping

import attrs

from holdfast.kernel.limits.levels import level_limits, with_outer_in_force
from holdfast.kernel.limits.limit_names import names_of_place
from holdfast.ports.records.job import Job
from holdfast.ports.records.limits import LimitName, LimitRow, SlotName, levels_of, queue_limit, run_limit
from holdfast.ports.records.run import Run
from holdfast.ports.searches import SlotPlace, WaitedFor, Waiting
from holdfast.ports.structs import evolve


def names_of(one: Run | Job) -> tuple[LimitName, ...]:
    """Return the names of the limits that a run or a job is under, the most specific first; none without a key."""
    rated: tuple[LimitName, ...] = ()
    if isinstance(one, Run) and one.rate is not None:
        rated = names_of_place(SlotPlace(*one.rate), Waiting.RATED_RUNS)
    key = one.concurrency_key
    if key is None:
        return rated
    if isinstance(one, Job):
        return names_of_place(SlotPlace(one.namespace, key), Waiting.JOBS)
    return (*(run_limit(one.namespace, level) for level in reversed(levels_of(key))), *rated)


def rate_in_force(rows: Mapping[LimitName, LimitRow], run: Run) -> tuple[int, int]:
    """Return the limit and the period of the rate of starts of a run that has one."""
    assert run.rate_limit is not None
    assert run.rate_period is not None
    found = _rate(_rows_of(rows, names_of(run))) if rows else None
    return found or (run.rate_limit, run.rate_period)


def applied(rows: Mapping[LimitName, LimitRow], job: Job) -> Job:
    """Return a job with the limits in force in place of those of its plan: to decide by, never to store.

    A limit that the plan does not have is not added: who holds its slots, and when it started, is not known.
    """
    if not rows or job.concurrency_key is None:
        return job
    found = _rows_of(rows, names_of(job))
    slots, rate = _slots(found), _rate(found)
    if slots is not None and job.concurrency_limit is not None:
        job = evolve(job, concurrency_limit=slots)
    if rate is not None and job.rate_limit is not None:
        job = evolve(job, rate_limit=rate[0], rate_period=rate[1])
    return job


def slots_in_force(rows: Mapping[LimitName, LimitRow], one: Run | Job) -> tuple[tuple[SlotName, int], ...]:
    """Return the slots that a run or a job needs at once, the outermost first, each with how many may hold it.

    ValueError if the limits of a run are damaged.
    """
    if isinstance(one, Run):
        return level_limits(rows, one)
    slot, limit = one.slot, one.concurrency_limit
    if slot is None:
        return ()
    slots = _slots(_rows_of(rows, names_of(one))) if rows and limit is not None else None
    return ((slot, (limit or 0) if slots is None else slots),)


def waited_for_in_force(rows: Mapping[LimitName, LimitRow], waiting: Waiting, one: WaitedFor) -> WaitedFor:
    """Return a concurrency key that is waited for with the limits in force in place of those of its first waiter."""
    one = with_outer_in_force(rows, one)
    found = _rows_of(rows, names_of_place(one.place, waiting))
    slots, rate = _slots(found), _rate(found)
    if slots is not None and one.limit is not None:
        one = attrs.evolve(one, limit=slots)
    if rate is not None and one.rate_limit is not None:
        one = attrs.evolve(one, rate_limit=rate[0], rate_period=rate[1])
    return one


def is_queue_paused(rows: Mapping[LimitName, LimitRow], namespace: str, queue: str) -> bool:
    """Return whether nothing may be claimed from a queue."""
    row = rows.get(queue_limit(namespace, queue)) if rows else None
    return row is not None and row.is_paused != 0


def _rows_of(rows: Mapping[LimitName, LimitRow], names: Iterable[LimitName]) -> list[LimitRow]:
    return [row for row in map(rows.get, names) if row is not None]


def _slots(found: Iterable[LimitRow]) -> int | None:
    return next((row.slots for row in found if row.slots is not None), None)


def _rate(found: Iterable[LimitRow]) -> tuple[int, int] | None:
    return next(
        (
            (row.rate_limit, row.rate_period)
            for row in found
            if row.rate_limit is not None and row.rate_period is not None
        ),
        None,
    )
