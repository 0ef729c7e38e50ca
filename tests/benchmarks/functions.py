"""Durable functions: chains of steps, a long one, many steps at once, and wake-ups by messages."""

import asyncio
import time
from datetime import timedelta
from typing import Final

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.queries import expose, update
from holdfast.kernel.authoring.steps import step
from holdfast.ports.queries.runs import FindRun
from holdfast.ports.records.run import RunName
from tests.benchmarks.floors import check
from tests.benchmarks.meter import Meter, Sample, wait_until
from tests.benchmarks.sites import Site

STEPS: Final = 20
_SOON: Final = timedelta(seconds=120)
_LIMIT: Final = 200

more: Final = Channel("more", int)


@step
async def add_one(number: int) -> int:
    """Return the next number."""
    return number + 1


@workflow
async def chain(length: int) -> int:
    """Add one repeatedly, in sequence."""
    number = 0
    for _ in range(length):
        number = await add_one(number)
    return number


@workflow
async def fan(width: int) -> int:
    """Add one to many numbers concurrently."""
    return sum(await asyncio.gather(*(add_one(number) for number in range(width))))


@workflow
async def echoes(length: int, messages: int) -> int:
    """Receive messages after a number of steps."""
    number = 0
    for _ in range(length):
        number = await add_one(number)
    for _ in range(messages):
        number = await add_one(await more.receive())
    return number


class Total:
    """A number that updates add to."""

    def __init__(self) -> None:
        self.number = 0

    @update
    def add(self, number: int) -> int:
        """Add a number, and return the total."""
        self.number += number
        return self.number


@workflow
async def counts(rows: int) -> int:
    """Make a history of so many rows, then take updates until a message arrives."""
    total = Total()
    await asyncio.gather(*(add_one(number) for number in range(rows)))
    expose(total)
    await more.receive()
    return total.number


def update_run(site: Site, rows: int, times: int) -> Sample:
    """Update a run whose history has so many rows, one update after the other."""
    with (
        Meter(site) as meter,
        Engine.open(site.url, workflows=[counts]).sync as engine,
        Worker(engine, concurrency=_LIMIT),
    ):
        run = engine.start(counts(rows))
        run.update(Total.add(1), timeout=_SOON)  # it has begun, and its functions are in memory
        meter.start()
        latencies: list[float] = []
        for _ in range(times):
            began_at = time.perf_counter()
            run.update(Total.add(1))
            latencies.append(time.perf_counter() - began_at)
        meter.stop()
        run.signal(more(0))
        check(run.result(timeout=_SOON) == times + 1, "updates were lost")
    return meter.sample(times, latencies=latencies)


def chains(site: Site, runs: int) -> Sample:
    """Run many runs with steps on one worker."""
    with Meter(site) as meter, Engine.open(site.url, workflows=[chain]).sync as engine:
        handles = [engine.start(chain(STEPS)) for _ in range(runs)]
        meter.start()
        with Worker(engine, concurrency=_LIMIT) as worker:
            results = [one.result(timeout=_SOON) for one in handles]
            meter.stop()
            commits = worker.stats().commits
        check(results == [STEPS] * runs, "a chain gave something else")
    return meter.sample(runs * STEPS, worker_commits=commits)


def long_chain(site: Site, steps: int, *, before: int = 0) -> Sample:
    """Run one function with many steps; the first ones are not measured."""
    with Meter(site) as meter, Engine.open(site.url, workflows=[chain]).sync as engine, Worker(engine):
        handle = engine.start(chain(before + steps), id="x")
        if before:
            _reach(engine, before + 1)
        meter.start()
        result = handle.result(timeout=_SOON)
        meter.stop()
        check(result == before + steps, "the chain gave something else")
    return meter.sample(steps)


def fan_out(site: Site, width: int) -> Sample:
    """Run many steps of one run concurrently."""
    with Meter(site) as meter, Engine.open(site.url, workflows=[fan]).sync as engine, Worker(engine):
        engine.run(fan(1))
        meter.start()
        result = engine.run(fan(width))
        meter.stop()
        check(result == width * (width + 1) // 2, "the fan gave something else")
    return meter.sample(width)


def wake(site: Site, steps: int, messages: int, *, function_cache: int) -> Sample:
    """Send messages to a run with a long history, and wait after each for one step."""
    latencies: list[float] = []
    with Meter(site) as meter, Engine.open(site.url, workflows=[echoes]).sync as engine:
        with Worker(engine, function_cache=function_cache):
            handle = engine.start(echoes(steps, messages), id="x")
            _reach(engine, steps + 1)
            meter.start()
            for number in range(messages):
                time.sleep(0.02)  # it rests by then
                last = _last_row(engine)
                began_at = time.monotonic()
                handle.signal(more(number))
                _reach(engine, last + 2)
                latencies.append(time.monotonic() - began_at)
            meter.stop()
        check(handle.result(timeout=_SOON) == messages, "the function gave something else")
    return meter.sample(messages, latencies=latencies)


def _reach(engine: SyncEngine, row: int) -> None:
    wait_until(lambda: _last_row(engine) >= row)


def _last_row(engine: SyncEngine) -> int:
    run = engine.core.stores.persistence.read(FindRun(RunName("default", "x")))
    return 0 if run is None else run.last_row
