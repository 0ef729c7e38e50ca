"""How many bodies may start in a time: which starts still count, and when there is room for another.

What counts are claims, by the store's clock: in any span of the period there are at most as many as the limit says.
Nothing is smoothed, and nothing is saved up. A span holds its starts in full, so a start counts until a whole period
after it.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final, TypedDict, cast

import attrs

from holdfast.ports.changes import AddRateLimit, Change, UpdateRateLimit
from holdfast.ports.json import canonical, parse
from holdfast.ports.persistence import WaitedFor
from holdfast.ports.records import Job, JobState, Micros, RateName, RateWindow
from holdfast.ports.unreadable import PARSE_ERRORS
from holdfast.ports.working_set import Tables

EXACT_MAX: Final = 100
"""Up to this limit every start is kept. Beyond it a hundredth of the period is one instant, which is its end."""


class _Stored(TypedDict, total=False):
    at: list[tuple[Micros, int]]
    span: Micros


@attrs.frozen
class Starts:
    """When jobs were claimed whose starts are counted together."""

    at: tuple[tuple[Micros, int], ...] = ()
    """Instants, ascending, each with how many."""
    span: Micros = 0
    """The longest period that any of their jobs had: a start counts for jobs of another version, too."""

    def free(self, job: Job, now: Micros) -> int:
        """Return how many more may start now, by the limit of this job; negative if there were too many."""
        return self.capacity(*_rate(job), now)

    def capacity(self, limit: int, period: Micros, now: Micros) -> int:
        """Return the same for a limit and a period."""
        return limit - sum(many for at, many in self.at if at + period > now)

    def free_at(self, job: Job, now: Micros, waiting: int) -> Micros | None:
        """Return when there is room for one more beside those that may start already and are `waiting` for it.

        None if that is not known yet: it depends on when these start.
        """
        limit, period = _rate(job)
        left = waiting + sum(many for at, many in self.at if at + period > now)
        for at, many in self.at:
            if left < limit:
                break
            if at + period > now:
                left -= many
                if left < limit:
                    return at + period
        return now if left < limit else None

    def with_one(self, job: Job, now: Micros) -> "Starts":
        """Return these with a start now, without those that count no more for anybody."""
        limit, period = _rate(job)
        span = max(self.span, period)
        left = [(at, many) for at, many in self.at if at + span > now]
        past = [(at, many) for at, many in left if at + period <= now]  # for this job, but not for all
        grain = max(1, span // EXACT_MAX) if len(past) > EXACT_MAX else 1
        counted = Counter[Micros]()
        for at, many in past:
            counted[min(_up(at, grain), now - period)] += many
        for at, many in left[len(past) :]:
            counted[at] += many
        counted[_up(now, 1 if limit <= EXACT_MAX else max(1, period // EXACT_MAX))] += 1
        return Starts(tuple(sorted(counted.items())), span)

    def to_json(self) -> str:
        """Return the text that is stored."""
        return canonical({"at": self.at, "span": self.span})


def starts_from(window: RateWindow | None) -> Starts:
    """Return the starts that a row says, none if there is none, or if it can't be read: they are counted anew."""
    if window is None:
        return Starts()
    try:
        stored = cast("_Stored", parse(window.starts))
        at = tuple((int(at), int(many)) for at, many in stored.get("at", ()))
        return Starts(at, int(stored.get("span", 0)))
    except PARSE_ERRORS:
        return Starts()


def free_starts(window: RateWindow | None, first: WaitedFor, now: Micros) -> int:
    """Return how many more may start now, by the limit of the first who waits; negative if there were too many."""
    return starts_from(window).capacity(first.rate_limit or 0, first.rate_period or 0, now)


def queued_rates(tables: Tables) -> Counter[RateName]:
    """Return how many jobs of these tables are queued of each rate: they may start at any moment."""
    return Counter(
        job.rate for job in tables.all_jobs() if job.rate is not None and job.state is JobState.QUEUED
    )


class Rates:
    """Counts starts while a decision is made."""

    def __init__(self, tables: Tables, now: Micros) -> None:
        self._tables = tables
        self._now = now
        self._windows: dict[RateName, RateWindow] = {}

    def window(self, name: RateName) -> RateWindow | None:
        """Return the row as decided so far."""
        return self._windows.get(name) or self._tables.rates.get(name)

    def starts(self, name: RateName) -> Starts:
        """Return the starts as decided so far."""
        return starts_from(self.window(name))

    def begin(self, job: Job) -> bool:
        """Count a start of a job now, if it may start. Return whether it may: always, if nobody counts it."""
        name = job.rate
        if name is None:
            return True
        starts, now = self.starts(name), self.at(job)
        if starts.free(job, now) < 1:
            return False
        self._put(name, starts=starts.with_one(job, now).to_json())
        return True

    def at(self, job: Job) -> Micros:
        """Return the instant that a start of this job counts as: now, or when the last was if our clock is behind.

        A start that counted as an earlier one would count no more when it still has to.
        """
        window = None if job.rate is None else self.window(job.rate)
        return self._now if window is None else max(self._now, window.updated_at)

    def wake(self, name: RateName, wakes_at: Micros) -> None:
        """Keep when the first who waits is to wake."""
        self._put(name, wakes_at=wakes_at)

    def changes(self) -> Sequence[Change]:
        """Return what has changed. A row that is not there can't be locked: of two that add it, one counts again."""
        return [
            UpdateRateLimit(window) if name in self._tables.rates else AddRateLimit(window)
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
