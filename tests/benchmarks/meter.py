"""Measurement of one sample: duration and costs."""

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self, TypeVar

import attrs

from tests.benchmarks.processes import cpu_seconds
from tests.benchmarks.sites import Counts, Site, Spent

Number = TypeVar("Number", int, float)


@attrs.frozen(kw_only=True)
class Sample:
    """One measurement.

    Attributes:
        items: How many of what the figure counts (runs, stages, items, minutes) were done in `seconds`.
        latencies: Seconds that each took from asking to answer, where that is what is measured.
        worker_commits: How many transactions the worker says it has made for claims and settles.
        calls: How often the worker called its store, for whatever.
        bytes: How large tables and indexes are in the end.
    """

    items: float
    seconds: float
    latencies: tuple[float, ...] = ()
    python_cpu: float = 0.0
    server_cpu: float | None = None
    wal_bytes: int | None = None
    commits: int | None = None
    statements: int | None = None
    worker_commits: int | None = None
    calls: int | None = None
    bytes: int | None = None


class Meter:
    """A meter for a site. No connection may be open at the start and end of its block."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._others: tuple[int, ...] = ()
        self._counts = (Counts(), Counts())
        self._spent = (Spent(), Spent())
        self._python = 0.0
        self._seconds = 0.0
        self._started_at = 0.0

    def __enter__(self) -> Self:
        self._counts = (self._site.counts(), Counts())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if error is None:
            self._counts = (self._counts[0], self._site.counts())

    def include(self, pid: int) -> None:
        """Count the processor time of another process too, from `start` on."""
        self._others = (*self._others, pid)

    def start(self) -> None:
        """Start measuring time."""
        self._spent = (self._site.spent(), Spent())
        self._python = -self._python_cpu()
        self._started_at = time.perf_counter()

    def stop(self) -> None:
        """Stop measuring time."""
        self._seconds = time.perf_counter() - self._started_at
        self._python += self._python_cpu()
        self._spent = (self._spent[0], self._site.spent())

    def sample(
        self,
        items: float,
        *,
        latencies: Sequence[float] = (),
        worker_commits: int | None = None,
        calls: int | None = None,
    ) -> Sample:
        """Return the sample, after the block."""
        (counts, counted), (spent, used) = self._counts, self._spent
        return Sample(
            items=items,
            seconds=self._seconds,
            latencies=tuple(latencies),
            python_cpu=self._python,
            server_cpu=_difference(spent.server_cpu, used.server_cpu),
            wal_bytes=_difference(spent.wal_bytes, used.wal_bytes),
            commits=_difference(counts.commits, counted.commits),
            statements=_difference(counts.statements, counted.statements),
            worker_commits=worker_commits,
            calls=calls,
            bytes=self._site.size(),
        )

    def _python_cpu(self) -> float:
        return time.process_time() + sum(map(cpu_seconds, self._others))


def wait_until(done: Callable[[], bool], *, seconds_max: float = 120.0) -> None:
    """Wait until a condition holds, by frequent cheap checks. Raises TimeoutError."""
    until = time.monotonic() + seconds_max
    while not done():
        if time.monotonic() > until:
            raise TimeoutError(f"not done within {seconds_max:g} s")
        time.sleep(0.002)


def _difference(before: Number | None, after: Number | None) -> Number | None:
    return None if before is None or after is None else after - before
