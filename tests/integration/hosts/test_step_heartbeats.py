"""Heartbeats of steps: missing ones end the attempt, and the next attempt reads the last details."""

import asyncio
import time
from collections import Counter
from datetime import timedelta
from typing import cast

import anyio
import attrs
import pytest

from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.step_context import step_context
from holdfast.kernel.authoring.steps import Step, step
from holdfast.ports.errors import DefinitionError, StepLostError, UnstorableValueError
from tests.integration.hosts.conftest import OpenEngine
from tests.poll_intervals import rest_at_once

SOON = timedelta(minutes=2)
SHORT = timedelta(milliseconds=300)
AT_ONCE = Retry(attempts=3, wait=timedelta(0))

CALLS: Counter[str] = Counter()

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    CALLS.clear()


def short(made: Step[[int], list[int]]) -> Step[[int], list[int]]:
    """Return a step with a shorter timeout than the API allows, so that tests are fast."""
    return attrs.evolve(made, heartbeat_timeout=SHORT)


@step(retry=AT_ONCE, heartbeat_timeout=10)
async def hangs_once(pages: int) -> list[int]:
    context = step_context()
    first = context.last_heartbeat(int, 0)
    for page in range(first, pages):
        context.heartbeat(page)
        if page == 3 and context.attempt == 1:
            await anyio.sleep_forever()
    return [context.attempt, first]


@step(retry=AT_ONCE, heartbeat_timeout=10)
def hangs_in_a_thread(pages: int) -> list[int]:
    context = step_context()
    first = context.last_heartbeat(int, 0)
    for page in range(first, pages):
        context.heartbeat(page)
        if page == 3 and context.attempt == 1:
            time.sleep(1.0)
            context.heartbeat(pages)  # nobody hears that any more
            return [0, 0]
    return [context.attempt, first]


@step
async def neighbour(pages: int) -> int:
    CALLS["neighbour"] += 1
    await anyio.sleep(SHORT.total_seconds() * 2)  # it need not say anything
    return pages


@pytest.mark.slow
@pytest.mark.parametrize("hangs", [hangs_once, hangs_in_a_thread], ids=lambda one: one.name)
async def test_a_silent_step_is_lost_and_the_next_try_goes_on_where_it_was(
    open_engine: OpenEngine, hangs: Step[[int], list[int]]
) -> None:
    hasty = short(hangs)

    @workflow
    async def count(pages: int) -> list[object]:
        return list(await asyncio.gather(hasty(pages), neighbour(pages)))

    engine = open_engine(count)
    async with Worker(engine):
        run = await engine.start(count(8))
        with anyio.fail_after(SOON.seconds):
            assert await run.result() == [[2, 3], 8]
    assert CALLS["neighbour"] == 1
    events = engine.sync.handle(count, run.id).history()
    retried = [event.data for event in events if event.type == "step.retrying"]
    (lost,) = retried
    assert lost["step"] == hangs.name
    assert cast("dict[str, str]", lost["error"])["code"] == "step_lost"
    assert "Retry(attempts=...)" not in str(lost), "it is tried again anyway"


async def test_a_step_that_is_lost_for_the_last_time_says_how(open_engine: OpenEngine) -> None:
    hasty = short(hangs_once.options(retry=Retry(attempts=1)))

    @workflow
    async def count(pages: int) -> str:
        try:
            await hasty(pages)
        except StepLostError as error:
            return str(error)
        return "nothing"

    engine = open_engine(count)
    async with Worker(engine):
        with anyio.fail_after(SOON.seconds):
            assert "it sent no heartbeat for 0:00:00.3" in await engine.run(count(8))


@pytest.mark.slow
async def test_a_step_that_is_heard_from_lives_for_as_long_as_it_likes(open_engine: OpenEngine) -> None:
    @step(retry=Retry(attempts=1), heartbeat_timeout=10)
    def speaks(times: int) -> list[int]:
        for _ in range(times):
            step_context().heartbeat()
            time.sleep(SHORT.total_seconds() / 6)
        return [step_context().attempt]

    patient = short(speaks)

    @workflow
    async def count(times: int) -> list[int]:
        return await patient(times)

    engine = open_engine(count)
    async with Worker(engine):
        with anyio.fail_after(SOON.seconds):
            assert await engine.run(count(12)) == [1]


async def test_whoever_drives_the_function_next_knows_it_too(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest_at_once(monkeypatch)

    @step(retry=Retry(attempts=2, wait=timedelta(seconds=0.2), jitter=0), heartbeat_timeout=10)
    async def fails_once(pages: int) -> list[int]:
        context = step_context()
        first = context.last_heartbeat(int, 0)
        context.heartbeat(first + pages)
        if context.attempt == 1:
            raise ConnectionError("the network")
        return [context.attempt, first]

    @workflow
    async def count(pages: int) -> list[int]:
        return await fails_once(pages)

    engine = open_engine(count)
    async with Worker(engine):
        run = await engine.start(count(8))
        with anyio.fail_after(SOON.seconds):
            assert await run.result() == [2, 8]
    ended = [e for e in engine.sync.handle(count, run.id).history() if e.type == "stage.completed"]
    assert ended[0].data["attempt"] == 1


async def test_details_that_can_not_be_kept_are_refused(open_engine: OpenEngine) -> None:
    @step(retry=Retry(attempts=1))
    async def boasts() -> str:
        step_context().heartbeat("fine")  # nobody listens
        try:
            step_context().heartbeat("x" * 20_000)
        except UnstorableValueError as error:
            return type(error).__name__
        return "nothing"

    @workflow
    async def boast() -> str:
        return await boasts()

    engine = open_engine(boast)
    async with Worker(engine):
        with anyio.fail_after(SOON.seconds):
            assert await engine.run(boast()) == "UnstorableValueError"


def test_a_heartbeat_timeout_has_a_least_length() -> None:
    with pytest.raises(DefinitionError, match="heartbeat_timeout"):
        hangs_once.options(heartbeat_timeout=timedelta(seconds=1))
