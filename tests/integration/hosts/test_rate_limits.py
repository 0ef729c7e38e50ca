"""Rate limits over several real workers on real stores."""

import re
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import pytest

from holdfast import Engine, Pipeline, Rate, Worker, each, stage
from holdfast.kernel.invariants import check
from holdfast.testing.snapshots import snapshot_of
from tests.sizes import sized

OpenEngine = Callable[..., Engine]
SOON = timedelta(minutes=2)


class Starts:
    """The start times of bodies, on the machine's monotonic clock."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self._lock = threading.Lock()

    def now(self) -> None:
        with self._lock:
            self.at.append(time.monotonic())

    def nearest(self, limit: int) -> float:
        """Return the least seconds between a start and the `limit`-th after it."""
        at = sorted(self.at)
        return min(later - earlier for earlier, later in zip(at, at[limit:], strict=False))


# How many are started, more than twice as many as may start in a time, or more than four times as many.
CALLS: Final = sized(25, 45)


@pytest.mark.slow
@pytest.mark.sized
@pytest.mark.parametrize("map_limit", [1_000, pytest.param(7, marks=pytest.mark.slow)])
def test_two_workers_together_start_no_more_than_the_limit(open_engine: OpenEngine, map_limit: int) -> None:
    starts = Starts()

    @stage
    def numbers(count: int) -> list[int]:
        return list(range(count))

    @stage(rate_limit=Rate(10, per=timedelta(seconds=0.5)))
    def call(number: int) -> int:
        starts.now()
        return number

    pipeline = Pipeline("calls", input=int).pipe(numbers).pipe(each(call, limit=map_limit))
    engine = open_engine(pipeline)
    run = engine.sync.start(pipeline(CALLS))
    began = time.monotonic()
    with Worker(engine, poll_interval=0.5), Worker(engine, poll_interval=0.5):
        assert run.result(timeout=SOON) == list(range(CALLS))

    # A body starts a moment after its claim, and not every one as long after it as the others.
    assert starts.nearest(10) > 0.5 - 0.2
    assert CALLS // 10 * 0.5 - 0.2 < max(starts.at) - began < 15
    assert check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


@pytest.mark.slow
@pytest.mark.sized
def test_workers_that_come_late_start_no_more_than_the_limit(open_engine: OpenEngine) -> None:
    """A backlog does not start at once. Tenants do not wait for each other."""
    starts: dict[str, Starts] = {"acme": Starts(), "other": Starts()}

    @stage(rate_limit=Rate(3, per=timedelta(seconds=1), by="tenant"))
    def call(tenant: str) -> str:
        starts[tenant].now()
        return tenant

    pipeline = Pipeline("late", input=str).pipe(call)
    engine = open_engine(pipeline)
    runs = [engine.sync.start(pipeline("acme"), attributes={"tenant": "acme"}) for _ in range(sized(4, 7))]
    runs += [engine.sync.start(pipeline("other"), attributes={"tenant": "other"}) for _ in range(2)]
    with Worker(engine, poll_interval=0.5), Worker(engine, poll_interval=0.5):
        for run in runs:
            run.result(timeout=SOON)

    assert starts["acme"].nearest(3) > 1 - 0.3
    assert max(starts["other"].at) < sorted(starts["acme"].at)[3]  # which waits for the next second


def test_who_waits_is_told_when_it_is_its_turn(open_engine: OpenEngine) -> None:
    @stage(rate_limit=Rate(1, per=timedelta(hours=1)))
    def call(number: int) -> int:
        return number

    pipeline = Pipeline("told", input=int).pipe(call)
    engine = open_engine(pipeline)
    runs = [engine.sync.start(pipeline(number)) for number in range(3)]
    with Worker(engine, poll_interval=0.5):
        assert runs[0].result(timeout=SOON) == 0
        until = time.monotonic() + 10
        while runs[1].why()[0].until is None and time.monotonic() < until:
            time.sleep(0.05)

    asleep, waits = (run.why()[0] for run in runs[1:])
    assert (asleep.code, waits.code) == ("rate_limit", "rate_limit")
    assert re.search(r"the rate limit of 1 per 1h: it may start in (59m|1h)", asleep.text)
    assert "the next attempt may start in " in waits.text
