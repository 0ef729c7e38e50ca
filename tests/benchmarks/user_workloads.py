"""What users do: values of some size, steps that take time, signals in random order, mixed load, and cold starts.

The floor of most is the same workload without what is measured: with small values, without an engine, or alone.
"""

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Final

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.steps import step
from tests.benchmarks import floors, workloads
from tests.benchmarks.floors import check
from tests.benchmarks.meter import Meter, Sample, wait_until
from tests.benchmarks.processes import helper, pauses
from tests.benchmarks.programs import ALL, CHAIN, FAN, ONE
from tests.benchmarks.sites import Site

SMALL: Final = 10
"""Characters of a small value."""
STEPS: Final = 10
STEP_SECONDS: Final = 0.005
CONCURRENCY: Final = 50
SENDERS: Final = 4
ITEMS: Final = 100
QUEUE: Final = "default"
_VALUES_AT_ONCE: Final = 20
_LOAD_SECONDS: Final = 0.1
"""How often a load begins anew."""
_SOON: Final = timedelta(seconds=300)

approvals: Final = Channel("approvals", int)


@step
async def echo(text: str) -> str:
    """Return the text."""
    return text


@workflow
async def carry(text: str) -> str:
    """Return a text that a step has returned."""
    return await echo(text)


@step
async def wait_and_add(number: int) -> int:
    """Return the next number, after a while."""
    await asyncio.sleep(STEP_SECONDS)
    return number + 1


@workflow
async def slow_chain(length: int) -> int:
    """Call slow steps in sequence."""
    number = 0
    for _ in range(length):
        number = await wait_and_add(number)
    return number


@workflow
async def approved(number: int) -> int:
    """Wait for a message."""
    return number + await approvals.receive()


def values(site: Site, runs: int, size: int) -> Sample:
    """Run all runs of a step that takes and returns a text of this size, as the runs do."""
    with Meter(site) as meter, _engine(site) as engine:
        texts = [f"{number:0{size}}" for number in range(runs)]
        handles = [
            handle
            for at in range(0, runs, _VALUES_AT_ONCE)
            for handle in engine.start_all([carry(text) for text in texts[at : at + _VALUES_AT_ONCE]])
        ]
        meter.start()
        with Worker(engine, concurrency=CONCURRENCY) as worker:
            wait_until(lambda: worker.stats().settled >= runs)
            meter.stop()
            commits = worker.stats().commits
        check([one.result(timeout=_SOON) for one in handles] == texts, "a text has changed")
    return meter.sample(runs, worker_commits=commits)


def slow_steps(site: Site, runs: int) -> Sample:
    """Run runs whose steps take five milliseconds, on one worker."""
    with Meter(site) as meter, _engine(site) as engine:
        handles = engine.start_all([slow_chain(STEPS) for _ in range(runs)])
        meter.start()
        with Worker(engine, concurrency=CONCURRENCY) as worker:
            results = [one.result(timeout=_SOON) for one in handles]
            meter.stop()
            commits = worker.stats().commits
        check(results == [STEPS] * runs, "a chain gave something else")
    return meter.sample(runs * STEPS, worker_commits=commits)


def sleeps(site: Site, runs: int) -> Sample:
    """Sleep as those steps do, as many at a time, and do nothing else."""

    async def chain(slots: asyncio.Semaphore) -> None:
        async with slots:
            for _ in range(STEPS):
                await asyncio.sleep(STEP_SECONDS)

    async def all_chains() -> None:
        slots = asyncio.Semaphore(CONCURRENCY)
        await asyncio.gather(*(chain(slots) for _ in range(runs)))

    floors.set_up(site)
    with Meter(site) as meter:
        meter.start()
        asyncio.run(all_chains())
        meter.stop()
    return meter.sample(runs * STEPS)


def signals(site: Site, runs: int) -> Sample:
    """Signal waiting runs one by one, in random order and from several threads, until all have ended."""
    with (
        Meter(site) as meter,
        _engine(site) as engine,
        Worker(engine, concurrency=CONCURRENCY, function_cache=0) as worker,
    ):
        handles = engine.start_all([approved(number) for number in range(runs)])
        wait_until(lambda: worker.stats().settled >= runs)  # each waits, and no function is in memory
        shuffled = random.Random(20).sample(handles, runs)

        def signal(place: int) -> None:
            shuffled[place].signal(approvals(1))

        meter.start()
        with ThreadPoolExecutor(SENDERS) as pool:
            list(pool.map(signal, range(runs)))
        results = [one.result(timeout=_SOON) for one in handles]
        meter.stop()
        check(results == [number + 1 for number in range(runs)], "a run gave something else")
    return meter.sample(runs)


def beside_load(site: Site, runs: int) -> Sample:
    """Start a run and wait for its result, while the same worker does chains of stages and maps of items."""
    with Meter(site) as meter, Engine.open(site.url, workflows=ALL.values()).sync as engine:
        engine.count()  # the tables are there
        with helper("worker", site.url, "100") as pid, _load(engine):
            meter.include(pid)
            latencies: list[float] = []
            meter.start()
            for value, pause in zip(range(runs + floors.WARM_UP), pauses(), strict=False):
                time.sleep(pause)
                latencies.append(_seconds_of(partial(engine.run, ONE(value))))
            meter.stop()
    return meter.sample(runs + floors.WARM_UP, latencies=latencies[floors.WARM_UP :])


def cold_worker(site: Site, times: int) -> Sample:
    """Start a worker's process where a run is queued, and wait for the result of the run."""
    with Meter(site) as meter, Engine.open(site.url, workflows=ALL.values()).sync as engine:
        latencies: list[float] = []
        meter.start()
        for value in range(times):
            handle = engine.start(ONE(value))
            began_at = time.perf_counter()
            with helper("worker", site.url, "10"):
                check(handle.result(timeout=_SOON) == value + 1, "the run gave something else")
                latencies.append(time.perf_counter() - began_at)
        meter.stop()
    return meter.sample(times, latencies=latencies)


def cold_handler(site: Site, times: int) -> Sample:
    """Start a process that handles the message of a job, as a serverless function does at its first call."""
    with Meter(site) as meter, Engine.open(site.url, workflows=ALL.values()).sync as engine:
        latencies: list[float] = []
        meter.start()
        for value in range(times):
            handle = engine.start(ONE(value))
            latencies.append(_seconds_until_ready("handler", site.url, f"{handle.id}.1"))
            check(handle.result(timeout=_SOON) == value + 1, "the run gave something else")
        meter.stop()
    return meter.sample(times, latencies=latencies)


def imports(site: Site, times: int) -> Sample:
    """Start a process that imports the libraries which Holdfast needs, and connects."""
    floors.set_up(site)
    with Meter(site) as meter:
        meter.start()
        latencies = [_seconds_until_ready("imports", site.url) for _ in range(times)]
        meter.stop()
    return meter.sample(times, latencies=latencies)


def drain_by(site: Site, runs: int, processes: int) -> Sample:
    """Run all jobs on workers in processes of their own, from the moment at which their queue is resumed."""
    with (
        Meter(site) as meter,
        Engine.open(site.url, workflows=ALL.values()).sync as engine,
        contextlib.ExitStack() as stack,
    ):
        engine.limits.set(f"queue:{QUEUE}", paused=True)
        handles = [
            handle
            for at in range(0, runs, floors.BATCH)
            for handle in engine.start_all([ONE(value) for value in range(at, min(at + floors.BATCH, runs))])
        ]
        for _ in range(processes):
            meter.include(stack.enter_context(helper("worker", site.url, str(workloads.CONCURRENCY))))
        meter.start()
        engine.limits.clear(f"queue:{QUEUE}")
        results = [one.result(timeout=_SOON) for one in handles]
        meter.stop()
        check(results == [value + 1 for value in range(runs)], "a run gave something else")
    return meter.sample(runs)


@contextlib.contextmanager
def _engine(site: Site) -> Generator[SyncEngine]:
    with Engine.open(site.url, workflows=[carry, slow_chain, approved]).sync as engine:
        yield engine


@contextlib.contextmanager
def _load(engine: SyncEngine) -> Generator[None]:
    """Start two chains and a map ten times a second until the end of the block. RuntimeError if that fails."""
    is_over, failures = threading.Event(), list[Exception]()

    def start() -> None:
        try:
            while not is_over.wait(_LOAD_SECONDS):
                engine.start_all([CHAIN(1), CHAIN(2), FAN(ITEMS)])
        except Exception as error:  # noqa: BLE001  # raised again in the caller
            failures.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    if failures:
        raise RuntimeError("there was no load") from failures[0]


def _seconds_until_ready(*arguments: str) -> float:
    """Return the seconds from the start of a helper until it is ready."""
    began_at = time.perf_counter()
    with helper(*arguments):
        return time.perf_counter() - began_at


def _seconds_of(call: Callable[[], object]) -> float:
    began_at = time.perf_counter()
    call()
    return time.perf_counter() - began_at
