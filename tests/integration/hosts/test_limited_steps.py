"""Limits of queued steps: concurrency and rate, across any number of workers."""

import asyncio
import time
from datetime import timedelta

import anyio
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.serverless.host import ServerlessHost
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.child_runs import start_child
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.functions import sleep, workflow
from holdfast.kernel.authoring.options import Rate
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.invariants import check
from holdfast.ports.records.run import RunStatus
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until
from tests.sizes import sized

SOON = 120
now: list[int] = []
most: list[int] = []
began: list[float] = []

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    for noted in (now, most, began):
        noted.clear()


@step(queue="gpu", max_concurrency=2)
async def embed(number: int) -> int:
    now.append(number)
    most.append(len(now))
    await asyncio.sleep(0.02)
    now.remove(number)
    return number


@workflow
async def index(upto: int) -> int:
    return sum(await asyncio.gather(*map(embed, range(upto))))


@workflow
async def search(upto: int) -> int:
    """Calls the same step several times, with a timeout."""
    first = asyncio.create_task(embed(100))
    await sleep(0.01)
    first.cancel()
    return sum(await asyncio.gather(*map(embed, range(upto))))


def sound(engine: Engine) -> None:
    assert check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


@pytest.mark.slow
async def test_so_many_calls_of_all_workflows_are_under_way_at_a_time(open_engine: OpenEngine) -> None:
    engine = open_engine(index, search)
    async with Worker(engine), Worker(engine):
        one, other = await engine.start(index(8)), await engine.start(search(8))
        with anyio.fail_after(SOON):
            assert (await one.result(), await other.result()) == (28, 28)
    assert max(most) == 2
    sound(engine)


async def test_functions_as_a_service_keep_the_limit(open_engine: OpenEngine) -> None:
    engine = open_engine(index)
    host = ServerlessHost(engine)
    run = engine.sync.start(index(5))
    with anyio.fail_after(SOON):
        while run.info().status is not RunStatus.COMPLETED:
            await anyio.to_thread.run_sync(lambda: host.process_available_jobs(max_jobs=10))
    assert max(most) <= 2
    sound(engine)


@stage(max_concurrency=1)
async def alone(number: int) -> int:
    return number


lonely = Pipeline("lonely", input=int).pipe(alone)


@workflow
async def starts(number: int) -> int:
    child = await start_child(lonely(number))
    return await child.result()


async def test_a_limited_stage_of_a_run_that_a_function_starts_waits_for_no_maintenance(
    open_engine: OpenEngine,
) -> None:
    engine = open_engine(starts, lonely)
    host = ServerlessHost(engine)
    run = engine.sync.start(starts(7))
    for _ in range(4):
        await anyio.to_thread.run_sync(lambda: host.process_available_jobs(max_jobs=10))
    assert run.result() == 7


async def test_why_says_that_it_waits_for_a_call_of_the_same_step(open_engine: OpenEngine) -> None:
    engine = open_engine(index)
    async with Worker(engine, only_queues=["default"]):
        run = engine.sync.start(index(3))
        with anyio.fail_after(SOON):
            await until(
                lambda: (
                    [reason.code for reason in run.why()]
                    == ["waiting", "concurrency_limit", "queued", "queued"]
                )
            )
        text = run.why()[1].text
    assert text == "Step 'embed', call 3, waits until fewer than 2 calls of this step are running."


PERIOD = timedelta(seconds=1)


@step(queue="model", rate_limit=Rate(3, per=PERIOD, name="model"))
async def ask(number: int) -> int:
    began.append(time.monotonic())
    return number


@workflow
async def chat(upto: int) -> int:
    return sum(await asyncio.gather(*map(ask, range(upto))))


@pytest.mark.slow
@pytest.mark.sized
async def test_no_more_start_in_a_time_than_the_rate_says(open_engine: OpenEngine) -> None:
    calls = sized(5, 7)
    engine = open_engine(chat)
    async with Worker(engine), Worker(engine):
        with anyio.fail_after(SOON):
            assert await engine.run(chat(calls)) == sum(range(calls))
    spans = [after - before for before, after in zip(began, began[3:], strict=False)]
    assert len(spans) == calls - 3
    assert min(spans) > PERIOD.total_seconds() - 0.3  # claims are counted, and bodies begin a little later
    sound(engine)
