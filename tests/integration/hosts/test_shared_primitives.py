"""asyncio primitives belong to one loop and cannot be shared by runs: each run has its own loop."""

import asyncio
import contextlib
import time

import pytest

from holdfast import Engine, Retry, Worker, step, workflow
from holdfast.kernel.authoring.functions import Workflow
from holdfast.ports.errors import DefinitionError, RunFailedError
from tests.integration.hosts.conftest import OpenEngine

SOON = 120

lock = asyncio.Lock()
event = asyncio.Event()
condition = asyncio.Condition()
semaphore = asyncio.Semaphore(2)
queue: asyncio.Queue[int] = asyncio.Queue()


@workflow
async def with_lock() -> None:
    async with lock:
        pass


@workflow
async def with_event() -> None:
    event.set()


@workflow
async def with_condition() -> None:
    async with condition:
        condition.notify()


@workflow
async def with_semaphore() -> None:
    async def one() -> None:
        async with semaphore:
            pass

    await asyncio.gather(one(), one())


@workflow
async def with_queue() -> int:
    return await queue.get()


@pytest.mark.parametrize(
    "function", [with_lock, with_event, with_condition, with_semaphore, with_queue], ids=lambda one: one.name
)
def test_a_function_that_would_share_one_is_refused(function: Workflow[[], object]) -> None:
    name = function.name.removeprefix("with_")
    with pytest.raises(
        DefinitionError, match=f"uses '{name}', an asyncio.{name.title()} .* create it in the function"
    ):
        Engine.open("memory://", workflows=[function])


def test_one_of_a_closure_is_refused_too() -> None:
    here = asyncio.Lock()

    @workflow
    async def closes_over() -> None:
        async with here:
            pass

    with pytest.raises(DefinitionError, match=r"uses 'here', an asyncio.Lock"):
        Engine.open("memory://", workflows=[closes_over])


@step
async def pause() -> None:
    await asyncio.sleep(0.05)


class Shared:
    """An object that hides a primitive from static checks."""

    def __init__(self) -> None:
        self.event = asyncio.Event()


SHARED = [Shared()]


def shared() -> Shared:
    return SHARED[0]


@workflow
async def waits_beside(seconds: int) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(shared().event.wait())
        if seconds:
            group.create_task(asyncio.sleep(seconds))


@workflow
async def sets() -> None:
    shared().event.set()


def test_who_wakes_another_run_by_one_that_could_not_be_seen_fails() -> None:
    SHARED[:] = [Shared()]
    with Engine.open("memory://", workflows=[waits_beside, sets]).sync as runs, Worker(runs):
        waits = runs.start(waits_beside(3_600))
        while len(waits.history()) < 2:  # `why` would look at it by another loop
            time.sleep(0.01)
        message = r"an asyncio object that was created outside of it .* Make it in the function"
        with pytest.raises(RunFailedError, match=message):
            runs.start(sets()).result(timeout=SOON)
        waits.terminate()


def test_who_waits_for_one_that_could_not_be_seen_is_blocked_and_says_why() -> None:
    SHARED[:] = [Shared()]
    with Engine.open("memory://", workflows=[waits_beside]).sync as runs, Worker(runs):
        waits = runs.start(waits_beside(0))
        while waits.info().status != "blocked":
            time.sleep(0.01)
        assert "can never happen" in waits.why()[0].text
        waits.terminate()


@workflow
async def makes_its_own() -> list[str]:
    own, said = asyncio.Lock(), list[str]()

    async def one(name: str) -> None:
        async with own:
            await pause()
            said.append(name)

    await asyncio.gather(one("a"), one("b"))
    return said


def test_its_own_is_fine(open_engine: OpenEngine) -> None:
    engine = open_engine(makes_its_own)
    with engine.sync as runs, Worker(engine):
        assert runs.start(makes_its_own()).result(timeout=SOON) == ["a", "b"]


@workflow
async def forgets_a_task() -> str:
    async def charge() -> None:
        await pause()
        raise ValueError("card declined")

    async def awaited() -> None:
        raise KeyError("seen")

    forgotten = asyncio.create_task(charge())
    seen = asyncio.create_task(awaited())
    await pause()
    await pause()
    with contextlib.suppress(KeyError):
        await seen
    return "done" if forgotten.get_name() else ""


def test_a_task_that_failed_and_was_never_awaited_is_told_of(
    open_engine: OpenEngine, caplog: pytest.LogCaptureFixture
) -> None:
    engine = open_engine(forgets_a_task)
    with engine.sync as runs, Worker(engine):
        assert runs.start(forgets_a_task(), id="a").result(timeout=SOON) == "done"
    (said,) = [record.getMessage() for record in caplog.records if "never awaited" in record.getMessage()]
    assert said.startswith("run a of forgets_a_task: its task 'charge' failed")
    assert said.endswith("ValueError: card declined")


@workflow
async def fails_beside() -> None:
    async def charge() -> None:
        raise ValueError("card declined")

    forgotten = asyncio.create_task(charge())
    await pause()
    raise KeyError("another", forgotten.get_name())


def test_it_is_told_of_where_the_function_fails_too(
    open_engine: OpenEngine, caplog: pytest.LogCaptureFixture
) -> None:
    engine = open_engine(fails_beside)
    with engine.sync as runs, Worker(engine), pytest.raises(RunFailedError, match="another"):
        runs.start(fails_beside(), id="a").result(timeout=SOON)
    assert "its task 'charge' failed and was never awaited" in caplog.text


@step(retry=Retry(attempts=1))
async def sets_in_a_step() -> None:
    shared().event.set()


@workflow
async def waits_for_its_step() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(shared().event.wait())
        await asyncio.sleep(0)
        await sets_in_a_step()


def test_a_step_that_wakes_its_function_by_one_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    SHARED[:] = [Shared()]
    with Engine.open("memory://", workflows=[waits_for_its_step]).sync as runs, Worker(runs):
        waits = runs.start(waits_for_its_step())
        while waits.info().status != "blocked":
            time.sleep(0.01)
        waits.terminate()
    assert "step 'sets_in_a_step', attempt 1 failed for good" in caplog.text
    assert "an asyncio object that was created outside of it" in caplog.text
