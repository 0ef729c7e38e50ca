"""Faulty functions and steps affect only their own runs."""

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Callable, Collection
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from holdfast.adapters.system.clock import SystemClock
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.functions import driver, loader, stall_watchdog, store_retries
from holdfast.hosts.functions.committer import Recorder
from holdfast.hosts.functions.replay import FunctionReplay
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.functions import Workflow, workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.commands import FollowUp, JobRecord, JobRecorded
from holdfast.kernel.functions.machine import FunctionMachine, in_memory
from holdfast.ports.errors import RunFailedError, UnavailableError
from holdfast.ports.records.run import RunStatus
from holdfast.ports.records.values import Payload
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until

SOON = 120
ONCE = Retry(attempts=1)

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


@pytest.fixture
def url() -> str:
    """One store is enough: the faults are in front of it."""
    return "memory://"


async def _fails() -> None:
    raise ValueError("a")


@step(retry=ONCE)
async def in_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_fails())


@step(retry=ONCE)
async def waits_for_what_it_cancelled() -> None:
    task = asyncio.create_task(asyncio.sleep(10))
    await asyncio.sleep(0)
    task.cancel()
    await task


@step(retry=ONCE)
async def exits() -> None:
    sys.exit(3)


@step(retry=ONCE)
def exits_in_a_thread() -> None:
    sys.exit(3)


@step
async def fine(number: int = 1) -> int:
    return number


@workflow
async def grouped() -> None:
    await in_a_group()


@workflow
async def cancelled() -> None:
    await waits_for_what_it_cancelled()


@workflow
async def exited() -> None:
    await exits()


@workflow
async def exited_in_a_thread() -> None:
    await exits_in_a_thread()


@workflow
async def neighbour() -> int:
    return sum([await fine() for _ in range(10)])


@pytest.mark.parametrize("wrong", [grouped, cancelled, exited, exited_in_a_thread], ids=lambda one: one.name)
async def test_what_a_step_raises_fails_its_run_and_no_other(
    open_engine: OpenEngine, wrong: Workflow[[], None]
) -> None:
    engine = open_engine(wrong, neighbour)
    async with Worker(engine):
        good = [await engine.start(neighbour()) for _ in range(5)]
        bad = await engine.start(wrong())
        with anyio.fail_after(SOON):
            assert [await one.result() for one in good] == [10] * 5
            with pytest.raises(RunFailedError):
                await bad.result()


@workflow
async def two() -> list[int]:
    return list(await asyncio.gather(fine(1), fine(2)))


async def test_a_blob_store_that_is_away_for_a_moment_has_nothing_recorded_twice(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two results are recorded together; the function gets the first, and the second cannot be read yet."""
    asked: list[Payload] = []

    def drive(machine: FunctionMachine, text: Callable[[Payload], str]) -> FunctionReplay:
        def once_away(payload: Payload) -> str:
            asked.append(payload)
            if len(asked) == 2:
                raise UnavailableError("the blob store is away")
            return text(payload)

        return FunctionReplay(machine, once_away)

    monkeypatch.setattr(loader, "FunctionReplay", drive)
    engine = open_engine(two)
    async with Worker(engine):
        run = await engine.start(two())
        with anyio.fail_after(SOON):
            assert await run.result() == [1, 2]
    assert [event.type for event in await run.history()].count("step.completed") == 2
    assert len(asked) > 2


@step
async def large(letter: str) -> str:
    return letter * 100_000


go_on = Channel("go_on", str)


@workflow
async def reads_what_is_large() -> int:
    texts = [await large("a"), await large("b")]
    return sum(map(len, texts)) + len(await go_on.receive())


async def test_a_value_that_is_gone_blocks_its_run_whatever_else_its_history_has(
    open_engine: OpenEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readable values before it in the history must not cause repeated reads."""
    monkeypatch.setattr(store_retries, "MISREAD_MAX", 2)
    engine = open_engine(reads_what_is_large)
    async with Worker(engine, function_cache=0):
        run = await engine.start(reads_what_is_large())
        await until(lambda: _rests(engine))
        second = max((path for path in (tmp_path / "blobs").rglob("*") if path.is_file()), key=_written)
        aside = second.rename(tmp_path / "aside")
        await run.signal(go_on("now"))
        await until(lambda: _is_blocked(engine))
        aside.rename(second)
        await run.resume()
        with anyio.fail_after(SOON):
            assert await run.result() == 200_003


def _rests(engine: Engine) -> bool:
    jobs = snapshot_of(engine.core.stores.persistence, [engine.core.namespace]).jobs
    return any(job.state == "sleeping" for of_run in jobs.values() for job in of_run.values())


def _is_blocked(engine: Engine) -> bool:
    runs = snapshot_of(engine.core.stores.persistence, [engine.core.namespace]).runs
    return any(run.status is RunStatus.BLOCKED for run in runs.values())


def _written(path: Path) -> int:
    return path.stat().st_mtime_ns


NEIGHBOURS_ARE_DONE = threading.Event()


@workflow
async def computes() -> bool:
    await fine()
    return NEIGHBOURS_ARE_DONE.wait(SOON)  # stands for what takes a processor that long


@pytest.mark.slow
async def test_a_function_that_computes_for_long_holds_up_no_other(open_engine: OpenEngine) -> None:
    NEIGHBOURS_ARE_DONE.clear()
    engine = open_engine(computes, neighbour)
    async with Worker(engine):
        slow = await engine.start(computes())
        good = [await engine.start(neighbour()) for _ in range(5)]
        with anyio.fail_after(SOON):
            assert [await one.result() for one in good] == [10] * 5
            NEIGHBOURS_ARE_DONE.set()
            assert await slow.result()


@pytest.mark.slow
async def test_a_function_whose_opening_is_given_up_is_not_kept_in_memory(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    may, opens, opened = threading.Event(), threading.Event(), threading.Event()
    real: Any = loader.load_function

    def slow(*args: Any, **options: Any) -> Any:
        opens.set()
        may.wait(SOON)
        try:
            return real(*args, **options)
        finally:
            opened.set()

    monkeypatch.setattr(driver, "load_function", slow)
    engine = open_engine(neighbour)
    before = in_memory()
    async with Worker(engine, drain_grace=timedelta(milliseconds=50)):
        await engine.start(neighbour())
        await until(opens.is_set)
    may.set()
    await until(opened.is_set)
    gc.collect()
    await until(lambda: in_memory() == before)


class _Kernel:
    """A kernel that answers on command."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.may = threading.Semaphore(0)
        self.asked: list[int] = []

    def dispatch_many(self, commands: list[object]) -> list[JobRecorded]:
        self.asked.append(len(commands))
        self.may.acquire()
        return [JobRecorded(status="recorded") for _ in commands]

    def admit(self, _: str, follow_up: FollowUp) -> None:
        assert not follow_up, "nothing of what was recorded frees a slot"


class _Drive:
    def __init__(self, error: Exception | None = None) -> None:
        self.took = 0
        self.error = error

    def take(self, _: JobRecorded, *, now: int, received: Collection[int] = ()) -> None:
        self.took += 1
        if self.error is not None:
            raise self.error


async def test_what_has_been_sent_is_waited_for_whoever_is_cancelled() -> None:
    kernel: Any = _Kernel()
    recorder = Recorder()
    left: list[int] = []
    scopes = [anyio.CancelScope() for _ in range(3)]

    async def one(number: int) -> None:
        drive: Any = _Drive()
        command = JobRecord(job="r.1", epoch=1, seen=0)
        with scopes[number]:
            try:
                await recorder.record(kernel, drive, command, lambda: 0)
            finally:
                left.append(number)

    async with anyio.create_task_group() as group:
        group.start_soon(one, 0)
        await until(lambda: kernel.asked == [1])
        group.start_soon(one, 1)
        group.start_soon(one, 2)
        await anyio.wait_all_tasks_blocked()
        kernel.may.release()
        await until(lambda: kernel.asked == [1, 2])  # 1 and 2 are sent together
        scopes[2].cancel()
        await anyio.wait_all_tasks_blocked()
        assert 2 not in left
        kernel.may.release()
    assert set(left) == {0, 1, 2}


async def test_a_function_that_can_not_take_what_is_recorded_is_the_only_one_to_hear_of_it() -> None:
    kernel: Any = _Kernel()
    recorder = Recorder()
    drives: list[Any] = [_Drive(), _Drive(TypeError("no")), _Drive()]
    answers: dict[int, object] = {}

    async def one(number: int) -> None:
        command = JobRecord(job="r.1", epoch=1, seen=0)
        try:
            answers[number] = await recorder.record(kernel, drives[number], command, lambda: 0)
        except TypeError as error:
            answers[number] = error

    async with anyio.create_task_group() as group:
        group.start_soon(one, 0)
        await until(lambda: kernel.asked == [1])
        group.start_soon(one, 1)
        group.start_soon(one, 2)
        await anyio.wait_all_tasks_blocked()
        for _ in range(3):
            kernel.may.release()
    assert isinstance(answers[2], JobRecorded)
    assert isinstance(answers[1], TypeError)


LET_GO: list[bool] = []


@workflow
async def spins(at_first: bool) -> int:
    if not at_first:
        await fine()
    while not LET_GO:
        time.sleep(0.001)  # noqa: ASYNC251  # stands for what takes a processor that long
    return await fine(7)


@pytest.mark.slow
@pytest.mark.parametrize("at_first", [True, False], ids=["from the start", "after a step"])
async def test_a_function_that_computes_without_end_blocks_its_run_and_no_other(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch, at_first: bool
) -> None:
    monkeypatch.setattr(stall_watchdog, "CHECK_INTERVAL", 0.02)
    LET_GO.clear()
    before = in_memory()
    engine = open_engine(spins, neighbour)
    async with Worker(engine):
        bad = await engine.start(spins(at_first))
        good = [await engine.start(neighbour()) for _ in range(5)]
        with anyio.fail_after(SOON):
            assert [await one.result() for one in good] == [10] * 5
            await until(lambda: engine.sync.handle(spins, bad.id).info().status is RunStatus.BLOCKED)
        facts = str((await bad.history())[-1].data)
        assert "workflow_stalled" in facts
        assert "test_function_faults.py:" in facts
        LET_GO.append(True)
        await until(lambda: in_memory() == before)  # its thread has ended, and what was in it too
        await bad.resume()
        with anyio.fail_after(SOON):
            assert await bad.result() == 7
