"""Published values are waited for and followed: each once, in order, until the run has ended."""

import asyncio
import threading
from collections.abc import AsyncIterator

import anyio
import attrs
import pytest

from holdfast import continue_as_new, publish, workflow
from holdfast.hosts.client.run_handle import RunHandle
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.steps import step
from holdfast.ports.errors import (
    EngineClosedError,
    InvalidArgumentError,
    InvalidValueError,
    RunNotFoundError,
)
from holdfast.ports.records.run import RunStatus
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until

SOON = 120

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]

go_on = Channel("go_on", int)


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


@attrs.frozen
class Progress:
    done: int


@step
def work(number: int) -> int:
    return number


@workflow
async def report(times: int) -> int:
    publish("other", "x")
    for number in range(times):
        publish("progress", Progress(await work(number)))
    return times


@workflow
async def wait_then_publish(*, publishes: bool) -> int:
    number = await go_on.receive()
    if publishes:
        publish("number", number)
    return number


@workflow
async def chapters(number: int) -> int:
    publish("chapter", number)
    await work(number)
    if number < 3:
        return await continue_as_new(chapters(number + 1))
    publish("end", number)
    return number


async def all_of(values: AsyncIterator[object]) -> list[object]:
    return [value async for value in values]


@pytest.mark.slow
async def test_values_are_followed_from_the_first_to_the_end(open_engine: OpenEngine) -> None:
    engine = open_engine(report)
    run = await engine.start(report(5), id="r")
    followed: list[list[object]] = []

    async def follow() -> None:
        followed.append(await all_of(run.published_values("progress", Progress, follow=True)))

    with anyio.fail_after(SOON):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            tasks.start_soon(follow)
            async with Worker(engine):
                await until(lambda: len(followed) == 2)
    expected = [Progress(number) for number in range(5)]
    assert followed == [expected, expected]
    assert await all_of(run.published_values("progress", Progress)) == expected
    assert await all_of(run.published_values("other")) == ["x"]
    assert await all_of(run.published_values("weather", follow=True)) == []


async def test_a_run_is_followed_through_its_generations(open_engine: OpenEngine) -> None:
    engine = open_engine(chapters)
    run = await engine.start(chapters(1), id="r")
    with anyio.fail_after(SOON):
        following = asyncio.create_task(all_of(run.published_values("chapter", int, follow=True)))
        await anyio.sleep(0.1)  # it reads the first generation
        async with Worker(engine):
            assert await run.result() == 3
            assert await following == [1, 2, 3]
    # Later readers begin with the newest generation, which has taken over the last value of the one before.
    assert await run.wait_for_published("end", int) == 3
    assert (await all_of(run.published_values("chapter", int)))[-1] == 3


async def test_a_value_is_waited_for(open_engine: OpenEngine) -> None:
    engine = open_engine(wait_then_publish)
    run = await engine.start(wait_then_publish(publishes=True), id="r")
    async with Worker(engine):
        with pytest.raises(TimeoutError, match="has published nothing as 'number' within"):
            await run.wait_for_published("number", timeout=0.05)
        with anyio.fail_after(SOON):
            waiting = asyncio.create_task(run.wait_for_published("number", int))
            await anyio.sleep(0.05)
            await run.signal(go_on(7))
            assert await waiting == 7
            assert await run.wait_for_published("number", int, timeout=0) == 7


async def test_a_run_that_ends_without_a_value_is_not_waited_for(open_engine: OpenEngine) -> None:
    engine = open_engine(wait_then_publish)
    silent = await engine.start(wait_then_publish(publishes=False), id="silent", signals=[go_on(1)])
    stopped = await engine.start(wait_then_publish(publishes=True), id="stopped")
    async with Worker(engine):
        with anyio.fail_after(SOON):
            assert await silent.wait_for_published("number", int) is None
            waiting = asyncio.create_task(stopped.wait_for_published("number", int))
            await anyio.sleep(0.05)
            await stopped.terminate()
            assert await waiting is None
            assert (await stopped.info()).status is RunStatus.CANCELLED


@pytest.mark.slow
def test_synchronous_code_waits_and_follows_too(open_engine: OpenEngine) -> None:
    engine = open_engine(report, wait_then_publish).sync
    with engine:
        run = engine.start(report(3), id="r")
        with pytest.raises(TimeoutError):
            run.wait_for_published("progress", Progress, timeout=0.05)
        with Worker(engine):
            values = list(run.published_values("progress", Progress, follow=True))
            assert run.wait_for_published("progress", Progress, timeout=SOON) == Progress(2)
            other = engine.start(wait_then_publish(publishes=True), id="other")
            found: list[object] = []
            thread = threading.Thread(
                target=lambda: found.append(other.wait_for_published("number", int, timeout=SOON))
            )
            thread.start()
            other.signal(go_on(5))
            thread.join(SOON)
        assert values == [Progress(0), Progress(1), Progress(2)]
        assert found == [5]


def test_a_wait_ends_with_the_engine(open_engine: OpenEngine) -> None:
    engine = open_engine(wait_then_publish).sync
    errors: list[Exception] = []
    run = engine.start(wait_then_publish(publishes=True), id="r")

    def wait() -> None:
        try:
            run.wait_for_published("number")
        except EngineClosedError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    while thread.is_alive():
        engine.core.close()
        thread.join(0.2)
    assert len(errors) == 1


async def test_invalid_requests_are_refused_at_once(open_engine: OpenEngine) -> None:
    engine = open_engine(report)
    run: RunHandle[int] = engine.handle(report, "none")
    with pytest.raises(RunNotFoundError):
        await run.wait_for_published("progress")
    with pytest.raises(RunNotFoundError):
        await all_of(run.published_values("progress"))
    await engine.start(report(1), id="none")
    async with Worker(engine):
        await run.result(timeout=SOON)
    with pytest.raises(InvalidValueError):
        await run.wait_for_published("progress", int)
    with pytest.raises(InvalidArgumentError):
        await run.wait_for_published("progress", timeout="soon")  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidArgumentError):
        await all_of(run.published_values(1))  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]
