"""Rates of starts over real workers on real stores."""

import time
from collections.abc import Callable
from datetime import timedelta

import pytest

from holdfast import Concurrency, Engine, Rate, Worker, step, workflow
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.kernel.authoring.options import StartOptions
from holdfast.kernel.invariants import check
from holdfast.testing.snapshots import snapshot_of

OpenEngine = Callable[..., Engine]
SOON = timedelta(minutes=2)


@pytest.mark.slow
@pytest.mark.parametrize("key", [None, "k"])
def test_two_workers_start_no_more_than_the_rate_and_at_once_when_it_fits(
    open_engine: OpenEngine, key: str | None
) -> None:
    """Polls and maintenance are rarer than the starts: the workers know when the next one fits."""
    starts: list[float] = []

    @step
    def note() -> float:
        starts.append(time.monotonic())
        return starts[-1]

    @workflow(rate=Rate(4, per=timedelta(seconds=1)))
    async def call() -> float:
        return await note()

    engine = open_engine(call)
    options: StartOptions = {} if key is None else {"concurrency": Concurrency(key, limit=50)}
    runs: list[SyncRunHandle[float]] = []
    for number in range(8):
        options["units"] = 1 + number % 2
        runs.append(engine.sync.start(call(), **options))
    with Worker(engine, poll_interval=5), Worker(engine, poll_interval=5):
        for run in runs:
            run.result(timeout=SOON)

    assert 1.5 < max(starts) - min(starts) < 5
    assert check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


@pytest.mark.slow
def test_a_worker_learns_of_rates_that_only_starts_have(open_engine: OpenEngine) -> None:
    """None of its workflows has a rate, and its next maintenance is later than the last start fits."""
    starts: list[float] = []

    @step
    def note() -> float:
        starts.append(time.monotonic())
        return starts[-1]

    @workflow
    async def call() -> float:
        return await note()

    engine = open_engine(call)
    rate = Rate(1, per=timedelta(milliseconds=600), name="trial")
    runs = [engine.sync.start(call(), rate=rate) for _ in range(3)]
    with Worker(engine, poll_interval=5):
        for run in runs:
            run.result(timeout=SOON)

    assert max(starts) - min(starts) < 4
