"""Heartbeats of bodies: missing ones end the attempt, and the next attempt reads the last details."""

import time
from datetime import timedelta
from threading import Event

import anyio
import attrs
import pytest

from holdfast.hosts.serverless.host import ServerlessHost
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stage_context import StageContext
from tests.integration.hosts.conftest import OpenEngine
from tests.sizes import sized

SOON = timedelta(minutes=2)
SHORT = timedelta(milliseconds=400)
AT_ONCE = Retry(attempts=3, wait=timedelta(0))

told = Event()
left: list[int] = []


@stage(retry=AT_ONCE)
async def hangs_once(ctx: StageContext, pages: int) -> list[int]:
    """Send heartbeats with the page; hang at page 3 of the first attempt."""
    first = ctx.last_heartbeat(int, 0)
    for page in range(first, pages):
        ctx.heartbeat(page)
        await anyio.sleep(0.02)
        if page == 3 and ctx.attempt == 1:
            try:
                await anyio.sleep_forever()
            finally:
                told.set()
    return [ctx.attempt, first]


@stage(retry=AT_ONCE)
def hangs_in_a_thread(ctx: StageContext, pages: int) -> list[int]:
    """The same in a thread, which can only be asked to stop."""
    first = ctx.last_heartbeat(int, 0)
    for page in range(first, pages):
        ctx.heartbeat(page)
        time.sleep(0.02)
        while page == 3 and ctx.attempt == 1:
            if ctx.cancelled:
                told.set()
                left.append(page)
                ctx.check_cancelled()
            time.sleep(0.01)
    return [ctx.attempt, first]


# Shorter than a stage can be told to, so that these tests need not wait for long.
ON_LOOP = Pipeline("on_loop", input=int).pipe(attrs.evolve(hangs_once, heartbeat_timeout=SHORT))
IN_THREAD = Pipeline("in_thread", input=int).pipe(attrs.evolve(hangs_in_a_thread, heartbeat_timeout=SHORT))


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("pipeline", [ON_LOOP, IN_THREAD], ids=lambda one: one.name)
def test_a_body_that_hangs_is_cancelled_and_the_next_attempt_goes_on_where_it_was(
    open_engine: OpenEngine, pipeline: Pipeline[int, list[int]]
) -> None:
    told.clear()
    engine = open_engine(pipeline).sync
    with engine, Worker(engine, lease=1.0, poll_interval=0.1) as worker:
        run = engine.start(pipeline(8))
        attempt, first = run.result(timeout=SOON)
        assert told.wait(5)
        while worker.stats().running:
            time.sleep(0.01)
        lost = [event for event in run.history() if event.type == "stage.retrying"]

    assert (attempt, first) == (2, 3)
    assert [event.data["code"] for event in lost] == ["heartbeat_timeout"]
    assert worker.stats().settled == 1  # what the silent body gave was not


@pytest.mark.slow
@pytest.mark.sized
@pytest.mark.usefixtures("quick")
def test_a_body_that_is_heard_from_lives_for_as_long_as_it_likes(open_engine: OpenEngine) -> None:
    @stage(retry=Retry(attempts=1))
    async def speaks(ctx: StageContext, times: int) -> int:
        for _ in range(times):
            ctx.heartbeat()
            await anyio.sleep(0.1)
        return ctx.attempt

    pipeline = Pipeline("speaks", input=int).pipe(attrs.evolve(speaks, heartbeat_timeout=SHORT))
    engine = open_engine(pipeline).sync
    with engine, Worker(engine, lease=1.0, poll_interval=0.1):
        assert engine.start(pipeline(sized(10, 20))).result(timeout=SOON) == 1


def test_what_a_body_says_right_before_it_fails_is_not_lost(open_engine: OpenEngine) -> None:
    @stage(retry=AT_ONCE)
    def fails(ctx: StageContext, x: int) -> dict[str, int] | None:
        said = ctx.last_heartbeat(dict[str, int])
        if ctx.attempt == 1:
            ctx.heartbeat({"page": x})
            raise ConnectionError
        return said

    pipeline = Pipeline("fails", input=int).pipe(fails)
    engine = open_engine(pipeline)
    with engine.sync:
        run = engine.sync.start(pipeline(7))
        ServerlessHost(engine).process_available_jobs(max_jobs=5)

        assert run.result(timeout=SOON) == {"page": 7}
