"""Rate limits: which starts still count, and when the next job may start (docs/decisions/0023).

Claims count, by the store's clock: no span of the period's length contains more of them than the limit. Starts are not
smoothed, and unused ones are not saved. A start counts for one whole period.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, TypedDict, cast

import attrs

from holdfast.ports.changes import Change, Insert, Update
from holdfast.ports.json import canonical, parse
from holdfast.ports.records.job import Job, JobState
from holdfast.ports.records.limits import RateName, RateWindow
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import WaitedFor
from holdfast.ports.unreadable import PARSE_ERRORS
from holdfast.ports.working_set import Tables

EXACT_MAX: Final = 100
"""Up to this limit, each start is stored with its instant. Above it, starts are rounded up to 1/100 of the period."""


class _Stored(TypedDict, total=False):
    at: list[tuple[Micros, int]]
    span: Micros


@attrs.frozen
class Starts:
    """The starts of jobs that share a rate limit."""

    at: tuple[tuple[Micros, int], ...] = ()
    """Instants in ascending order, each with its number of starts."""
    span: Micros = 0
    """The longest period of any of the jobs, in microseconds: a start also counts for jobs of other versions."""

    def free(self, job: Job, now: Micros) -> int:
        """Return how many more jobs may start now, by the limit of this job; negative if there were too many."""
        return self.capacity(*_rate(job), now)

    def capacity(self, limit: int, period: Micros, now: Micros) -> int:
        """Return how many more jobs may start now, by a limit and a period."""
        return limit - sum(many for at, many in self.at if at + period > now)

    def free_at(self, job: Job, now: Micros, waiting: int) -> Micros | None:
        """Return when one more job may start beside the `waiting` ones that may start before it.

        None if that depends on when those start.
        """
        return self.free_for_at(*_rate(job), now, waiting + 1)

    def free_for_at(self, limit: int, period: Micros, now: Micros, units: int) -> Micros | None:
        """Return when so many more may start under a limit; None if that is more than the limit."""
        left = units + sum(many for at, many in self.at if at + period > now)
        for at, many in self.at:
            if left <= limit:
                break
            if at + period > now:
                left -= many
                if left <= limit:
                    return at + period
        return now if left <= limit else None

    def with_one(self, job: Job, now: Micros) -> "Starts":
        """Return the starts with one more now, without those that no longer count for any job."""
        return self.with_units(*_rate(job), now, 1)

    def with_units(self, limit: int, period: Micros, now: Micros, units: int) -> "Starts":
        """Return the starts with so many more now, without those that no longer count for any period."""
        span = max(self.span, period)
        left = [(at, many) for at, many in self.at if at + span > now]
        past = [(at, many) for at, many in left if at + period <= now]  # they count for longer periods only
        grain = max(1, span // EXACT_MAX) if len(past) > EXACT_MAX else 1
        counted = Counter[Micros]()
        for at, many in past:
            counted[min(_up(at, grain), now - period)] += many
        for at, many in left[len(past) :]:
            counted[at] += many
        counted[_up(now, 1 if limit <= EXACT_MAX else max(1, period // EXACT_MAX))] += units
        return Starts(tuple(sorted(counted.items())), span)

    def to_json(self) -> str:
        """Return the starts as stored JSON text."""
        return canonical({"at": self.at, "span": self.span})


def starts_from(window: RateWindow | None) -> Starts:
    """Return the starts in a row; none without a row, or if it can't be read (docs/decisions/0062)."""
    if window is None:
        return Starts()
    try:
        stored = cast("_Stored", parse(window.starts))
        at = tuple((int(at), int(many)) for at, many in stored.get("at", ()))
        return Starts(at, int(stored.get("span", 0)))
    except PARSE_ERRORS:
        return Starts()


def free_starts(window: RateWindow | None, first: WaitedFor, now: Micros) -> int:
    """Return how many more jobs may start now, by the limit of the first waiter; negative if there were too many."""
    return starts_from(window).capacity(first.rate_limit or 0, first.rate_period or 0, now)


def queued_rates(tables: Tables) -> Counter[RateName]:
    """Return how many jobs of each rate limit are queued in these tables: they may start at any moment."""
    return Counter(
        job.rate for job in tables.all_jobs() if job.rate is not None and job.state is JobState.QUEUED
    )


class Rates:
    """Counts the starts of one decision."""

    def __init__(self, tables: Tables, now: Micros) -> None:
        self._tables = tables
        self._now = now
        self._windows: dict[RateName, RateWindow] = {}
        self._noted: dict[RateName, RateWindow] = {}

    def window(self, name: RateName) -> RateWindow | None:
        """Return the row of a rate limit as changed by this decision."""
        return self._windows.get(name) or self._noted.get(name) or self._tables.rates.get(name)

    def starts(self, name: RateName) -> Starts:
        """Return the starts under a rate limit as changed by this decision."""
        return starts_from(self.window(name))

    def try_start(self, job: Job) -> bool:
        """Count a start of a job and return True, if it may start now. A job without a rate limit always may."""
        name = job.rate
        if name is None:
            return True
        starts, now = self.starts(name), self.at(job)
        if starts.free(job, now) < 1:
            return False
        self._put(name, starts=starts.with_one(job, now).to_json())
        return True

    def at(self, job: Job) -> Micros:
        """Return the instant that a start of this job counts as: now, or the last update if this clock is behind.

        With an earlier instant, the start would stop counting too early.
        """
        return self._now if job.rate is None else self.instant(job.rate)

    def instant(self, name: RateName) -> Micros:
        """Return the instant that a start under a limit counts as now."""
        window = self.window(name)
        return self._now if window is None else max(self._now, window.updated_at)

    def count(self, name: RateName, starts: Starts) -> None:
        """Set the starts under a rate limit."""
        self._put(name, starts=starts.to_json())

    def admit_at(self, name: RateName, at: Micros | None) -> None:
        """Set when the first waiting run may begin; None if none waits. Adds no row just for that."""
        window = self.window(name)
        if (None if window is None else window.admits_at) != at:
            self._put(name)
            self._windows[name] = attrs.evolve(self._windows[name], admits_at=at)

    def note(self, changes: Iterable[Change]) -> None:
        """Note the rows that earlier changes of the same command have stored."""
        for change in changes:
            if isinstance(change, Insert | Update) and isinstance(change.record, RateWindow):
                self._noted[change.record.rate_name] = change.record

    def wake(self, name: RateName, wakes_at: Micros) -> None:
        """Set when the first waiter of a rate limit wakes up."""
        self._put(name, wakes_at=wakes_at)

    def changes(self) -> Sequence[Change]:
        """Return the changed rows. A new row can't be locked: if two transactions add it, one of them is repeated."""
        return [
            Update(window) if name in self._tables.rates or name in self._noted else Insert(window)
            for name, window in sorted(self._windows.items())
        ]

    def _put(self, name: RateName, *, starts: str | None = None, wakes_at: Micros | None = None) -> None:
        known = self.window(name) or RateWindow(
            namespace=name.namespace, name=name.name, updated_at=self._now
        )
        self._windows[name] = attrs.evolve(
            known,
            starts=known.starts if starts is None else starts,
            wakes_at=known.wakes_at if wakes_at is None else wakes_at,
            updated_at=max(known.updated_at, self._now),
        )


def _up(at: Micros, grain: Micros) -> Micros:
    return -(-at // grain) * grain


def _rate(job: Job) -> tuple[int, Micros]:
    assert job.rate_limit is not None
    assert job.rate_period is not None
    return job.rate_limit, job.rate_period
