"""Published values: the last value of each name, stored with the next commit."""

import asyncio
from dataclasses import dataclass

import anyio
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.functions import driver
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.functions import sleep, workflow
from holdfast.kernel.authoring.publications import publish
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.invariants import check
from holdfast.ports.errors import DefinitionError, InvalidValueError, RunNotFoundError, UnstorableValueError
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until

SOON = 120

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


@dataclass(frozen=True)
class Progress:
    done: int
    of: int


go = Channel("go", bool)


@step
async def work(number: int) -> int:
    return number


@workflow
async def busy(steps: int) -> str:
    for number in range(steps):
        publish("progress", Progress(number, steps))
        await work(number)
    publish("progress", Progress(steps, steps))
    publish("names", ["a", "b"])
    return "done"


@workflow
async def waits() -> None:
    publish("state", "waiting")
    publish("state", "waiting for go")
    await go.receive()
    publish("pages", [Progress(1, 2)], list[Progress])
    await go.receive()


def sound(engine: Engine) -> None:
    assert check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


async def test_the_last_value_is_there_when_the_run_has_ended(open_engine: OpenEngine) -> None:
    engine = open_engine(busy)
    async with Worker(engine):
        run = await engine.start(busy(3), id="x")
        with anyio.fail_after(SOON):
            assert await run.result() == "done"
    assert await run.published("progress", Progress) == Progress(3, 3)
    assert await run.published("progress") == {"done": 3, "of": 3}
    assert await run.published("names", list[str]) == ["a", "b"]
    assert await run.published("nothing", Progress) is None
    assert engine.sync.handle(busy, "x").published("progress", Progress) == Progress(3, 3)
    with pytest.raises(InvalidValueError):
        await run.published("names", Progress)
    with pytest.raises(RunNotFoundError):
        await engine.handle(busy, "nobody").published("progress")
    sound(engine)


async def test_what_is_shown_goes_with_what_is_recorded(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "PUBLISH_WITHIN", 60_000_000)  # however slow the machine is
    engine = open_engine(busy)
    async with Worker(engine):
        run = await engine.start(busy(2), id="x")
        with anyio.fail_after(SOON):
            await run.result()
    events = await run.history()
    assert [event.type for event in events] == [
        "run.created",
        "step.completed",
        "value.published",
        "step.completed",
        "value.published",
        "value.published",
        "value.published",
        "stage.completed",
        "run.completed",
    ]
    shown = [event.data for event in events if event.type == "value.published"]
    assert shown == [
        {"name": "progress", "number": 1},
        {"name": "progress", "number": 2},
        {"name": "progress", "number": 3},
        {"name": "names", "number": 1},
    ]


async def test_what_a_function_shows_before_it_rests_is_there_while_it_does(open_engine: OpenEngine) -> None:
    engine = open_engine(waits)
    async with Worker(engine):
        run = await engine.start(waits(), id="x")
        handle = engine.sync.handle(waits, "x")
        await until(lambda: handle.published("state") == "waiting for go")
        await run.signal(go(True))
        await until(lambda: handle.published("pages", list[Progress]) == [Progress(1, 2)])
        assert await run.published("state", str) == "waiting for go"
    numbers = [event.data for event in await run.history() if event.type == "value.published"]
    assert numbers[0] == {"name": "state", "number": 2}  # of two at once, the last
    sound(engine)


LET_GO: list[str] = []


@step
async def slow() -> None:
    while not LET_GO:  # noqa: ASYNC110  # an event is bound to one loop, and this is for several
        await asyncio.sleep(0.01)


@workflow
async def long() -> None:
    publish("state", "begun")
    await slow()


async def test_what_a_function_shows_does_not_wait_for_a_step_that_takes_long(
    open_engine: OpenEngine,
) -> None:
    LET_GO.clear()
    engine = open_engine(long)
    async with Worker(engine):
        run = await engine.start(long(), id="x")
        handle = engine.sync.handle(long, "x")
        await until(lambda: handle.published("state", str) == "begun")
        assert (await run.info()).status == "running"
        LET_GO.append("now")
        with anyio.fail_after(SOON):
            await run.result()


@workflow
async def wrong() -> list[str]:
    said: list[str] = []
    for name, value in (("large", "x" * 20_000), ("no name", 1), ("odd", object())):
        try:
            publish(name, value)
        except (UnstorableValueError, DefinitionError) as error:
            said.append(str(error))
    await sleep(0.01)
    return said


async def test_what_can_t_be_shown_is_an_error_where_it_is_published(open_engine: OpenEngine) -> None:
    engine = open_engine(wrong)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            large, name, odd = await engine.run(wrong())
    assert "the maximum is 16,384" in large
    assert "the name of a published value is 'no name'" in name
    assert "object" in odd
    with pytest.raises(RuntimeError, match=r"holdfast.publish\(\) was called outside of a workflow"):
        publish("progress", 1)
