"""Steps in sequence that wake no other run: what they pass on, and what stops them."""

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import anyio
import pytest

from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.hosts.functions import driver
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.commands import JobRecord
from holdfast.ports.errors import UnavailableError
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until

SOON = timedelta(minutes=2)
LENGTH = 10
WHO: ContextVar[str] = ContextVar("who", default="nobody")

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


@step
async def introduce(name: str) -> str:
    before = WHO.get()
    WHO.set(name)
    await asyncio.sleep(0)
    return before


@workflow
async def guests(table: int) -> list[str]:
    return [await introduce(f"{table}/{number}") for number in range(LENGTH)]


@step
async def add(number: int) -> int:
    return number + 1


@workflow
async def count(most: int) -> int:
    number = 0
    while number < most:
        number = await add(number)
    return number


@step
async def add_slowly(number: int) -> int:
    await asyncio.sleep(0.02)
    return number + 1


@workflow
async def count_slowly(most: int) -> int:
    number = 0
    while number < most:
        number = await add_slowly(number)
    return number


ENOUGH = Channel("enough", str)


@workflow
async def count_until_told() -> int:
    """Count until a message arrives, which happens between steps."""
    told = asyncio.create_task(ENOUGH.receive())
    number = 0
    while not told.done():
        number = await add(number)
    return number


class Looks:
    """Counts how often drivers were woken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        private: Any = driver
        wait = private._Driver._wait

        async def waiting(driver: Any, *given: Any) -> None:
            await wait(driver, *given)
            self.times += 1

        monkeypatch.setattr(private._Driver, "_wait", waiting)


async def test_what_a_step_sets_in_its_context_no_other_sees(open_engine: OpenEngine) -> None:
    engine = open_engine(guests)
    async with Worker(engine, concurrency=5):
        handles = [await engine.start(guests(table)) for table in range(5)]
        for handle in handles:
            assert await handle.result(timeout=SOON) == ["nobody"] * LENGTH


@pytest.mark.slow
async def test_nobody_is_woken_for_steps_that_follow_each_other(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Looks(monkeypatch)
    engine = open_engine(count)
    async with Worker(engine):
        assert await (await engine.start(count(100))).result(timeout=SOON) == 100
    assert looks.times < 10


async def test_a_message_is_heard_between_them(open_engine: OpenEngine) -> None:
    engine = open_engine(count_until_told)
    async with Worker(engine):
        handle = await engine.start(count_until_told())
        run = engine.sync.handle(count_until_told, handle.id)
        await until(lambda: rows(run) > 5)
        await handle.signal(ENOUGH("it is"))
        assert await handle.result(timeout=SOON) > 1


@pytest.mark.slow
async def test_a_pause_holds_the_next_one(open_engine: OpenEngine) -> None:
    engine = open_engine(count_slowly)
    async with Worker(engine):
        handle = await engine.start(count_slowly(60))
        run = engine.sync.handle(count_slowly, handle.id)
        await until(lambda: rows(run) > 5)
        await handle.pause()
        # A step that is under way ends, and no other begins.
        await until(lambda: rows(run) == paused_at(run) + (run.history()[-1].type == "step.completed"))
        await anyio.sleep(0.1)
        assert rows(run) <= paused_at(run) + 1
        assert rows(run) < 60
        await handle.resume()
        assert await handle.result(timeout=SOON) == 60


def rows(run: SyncRunHandle[Any]) -> int:
    """Return the length of a history."""
    return len(run.history())


def paused_at(run: SyncRunHandle[Any]) -> int:
    """Return the number of the row that paused a run."""
    return next(row.number for row in run.history() if row.type == "run.paused")


@pytest.mark.slow
async def test_what_the_store_does_not_answer_is_sent_again_and_stored_once(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every third commit is stored but its response is lost."""
    engine = open_engine(count)
    lost: set[int] = set()
    dispatch_many = engine.core.kernel.dispatch_many

    def losing(commands: Sequence[Any]) -> Any:
        answers: Any = dispatch_many(commands)
        records = (command for command in commands if isinstance(command, JobRecord))
        new = {command.seen for command in records if command.seen % 3 == 0} - lost
        lost.update(new)
        if new:
            raise UnavailableError("the answer is lost")
        return answers

    monkeypatch.setattr(engine.core.kernel, "dispatch_many", losing)
    async with Worker(engine):
        handle = await engine.start(count(30))
        assert await handle.result(timeout=SOON) == 30
    assert len(lost) >= 5
    run = engine.sync.handle(count, handle.id)
    assert sum(row.type == "step.completed" for row in run.history()) == 30
