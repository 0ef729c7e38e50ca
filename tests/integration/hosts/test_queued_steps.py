"""Queued steps are jobs of their own: a worker of the queue runs them, and the function gets the result."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import timedelta

import anyio
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.serverless.host import ServerlessHost
from holdfast.hosts.wiring.interceptors import BodyCall
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.functions import sleep, workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.step_context import step_context
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.invariants import check
from holdfast.ports.errors import DefinitionError, RunCancelledError, RunFailedError, StepLostError
from holdfast.ports.records.job import Job, JobKind, JobState
from holdfast.ports.records.run import RunStatus
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until

SOON = 120

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]

DONE: list[str] = []
TROUBLE: list[BaseException] = []
go = Channel("go", str)


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    DONE.clear()
    TROUBLE.clear()


class NoSuchTextError(Exception):
    """There is no such text to embed."""


@step(queue="gpu", retry=Retry(attempts=3, wait=timedelta(milliseconds=10)))
async def embed(text: str, *, scale: int = 1) -> list[int]:
    context = step_context()
    DONE.append(f"{context.step} {text} {context.attempt} {context.idempotency_key}")
    if TROUBLE:
        raise TROUBLE.pop()
    return [scale * ord(letter) for letter in text]


@step
def add(numbers: list[int]) -> int:
    return sum(numbers)


@workflow
async def index(text: str) -> int:
    try:
        one, other = await asyncio.gather(embed(text), embed(text, scale=10))
    except NoSuchTextError as error:
        return len(error.args)
    return await add([*one, *other])


def sound(engine: Engine) -> None:
    assert check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


def types_of(engine: Engine) -> list[str]:
    return [event.type for event in engine.sync.handle(index, "x").history()]


def queued(engine: Engine) -> list[JobState]:
    jobs = snapshot_of(engine.core.stores.persistence, [engine.core.namespace]).jobs
    return [one.state for of_run in jobs.values() for one in of_run.values() if one.kind is JobKind.STEP]


async def test_a_step_of_a_queue_gives_its_function_what_any_step_does(open_engine: OpenEngine) -> None:
    engine = open_engine(index)
    async with Worker(engine):
        run = await engine.start(index("ab"), id="x")
        with anyio.fail_after(SOON):
            assert await run.result() == 11 * (97 + 98)
    assert types_of(engine) == [
        "run.created",
        *2 * ["step.queued"],
        *3 * ["step.completed"],
        "stage.completed",
        "run.completed",
    ]
    keys = [one.split()[3].rpartition("/") for one in DONE]
    assert sorted(call for _, _, call in keys) == ["1", "2"]
    assert {where.rpartition("/")[2] for where, _, _ in keys} == {"index"}
    sound(engine)


async def test_a_worker_that_has_the_step_alone_does_it_and_one_without_never_takes_it(
    open_engine: OpenEngine, url: str
) -> None:
    if url.startswith("memory:"):
        pytest.skip("what is in memory can't be opened by other code")
    functions, steps = open_engine(index), open_engine(steps=[embed])
    run = await functions.start(index("ab"), id="x")
    async with Worker(functions, only_queues=["default"]):
        await until(lambda: queued(functions) == [JobState.QUEUED] * 2)
        assert DONE == []
        async with Worker(steps, only_queues=["gpu"]) as other:
            with anyio.fail_after(SOON):
                assert await run.result() == 11 * (97 + 98)
            assert other.stats().claimed == 2
    sound(functions)


@pytest.mark.slow
async def test_what_it_raises_is_tried_again_and_comes_back_as_itself(open_engine: OpenEngine) -> None:
    engine = open_engine(index)
    async with Worker(engine):
        TROUBLE.extend([NoSuchTextError("a", "b"), NoSuchTextError("a", "b"), NoSuchTextError("a", "b")])
        with anyio.fail_after(SOON):
            await engine.run(index("ab"), id="x")
        TROUBLE.extend(NoSuchTextError("a", "b") for _ in range(6))
        with anyio.fail_after(SOON):
            assert await engine.run(index("ab"), id="y") == 2
    assert types_of(engine).count("step.retrying") == 3
    assert sorted(one.split()[2] for one in DONE)[:2] == ["1", "1"]
    sound(engine)


@pytest.mark.slow
@pytest.mark.parametrize(("lost", "gives"), [(1, "done"), pytest.param(5, "lost", marks=pytest.mark.slow)])
async def test_a_worker_that_is_lost_with_it_is_counted(
    open_engine: OpenEngine, lost: int, gives: str
) -> None:
    tries: list[int] = []

    @step(queue="gpu", retry=Retry(attempts=2, wait=timedelta(milliseconds=10)))
    async def hold() -> str:
        tries.append(step_context().attempt)
        if len(tries) <= lost:
            await anyio.sleep_forever()
        return "done"

    @workflow
    async def holds() -> str:
        try:
            return await hold()
        except StepLostError:
            return "lost"

    engine = open_engine(holds)
    run = await engine.start(holds(), id="x")
    with anyio.fail_after(SOON):
        for number in range(lost):
            worker = Worker(engine, lease=1.0)
            async with anyio.create_task_group() as group:
                group.start_soon(worker.serve)
                await until(lambda: len(tries) > number)  # noqa: B023
                worker.stop()
        async with Worker(
            engine, lease=4.0
        ):  # it declares others dead a tenth of that after they have expired
            assert await run.result() == gives
    assert tries == list(range(1, max(2, lost) + 1))
    sound(engine)


async def test_one_that_nobody_waits_for_any_more_is_taken_out_of_its_queue_and_stopped(
    open_engine: OpenEngine,
) -> None:
    started, stopped = anyio.Event(), anyio.Event()

    @step(queue="gpu")
    async def hold() -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    @step(queue="nobody")
    async def wait() -> None:
        raise AssertionError

    @workflow
    async def index() -> str:
        both = asyncio.gather(hold(), wait())
        await go.receive()
        both.cancel()
        await go.receive()
        return "went on"

    engine = open_engine(index)
    async with Worker(engine, only_queues=["default", "gpu"]):
        run = await engine.start(index(), id="x")
        with anyio.fail_after(SOON):
            await started.wait()
            await run.signal(go("on"))
            await stopped.wait()
            await until(lambda: queued(engine) == [])
            await run.signal(go("on"))
            assert await run.result() == "went on"
    assert types_of(engine).count("step.cancelled") == 2
    sound(engine)


@pytest.mark.slow
async def test_a_timeout_of_the_function_and_one_of_the_step(open_engine: OpenEngine) -> None:
    @step(queue="gpu", timeout=timedelta(milliseconds=50), retry=Retry(attempts=1))
    async def hang() -> None:
        await anyio.sleep_forever()

    @workflow
    async def index() -> str:
        with suppress(TimeoutError):
            await hang()
        try:
            async with asyncio.timeout(0.1):
                await forever()
        except TimeoutError:
            return "both"
        return "one"

    @step(queue="gpu")
    async def forever() -> None:
        await anyio.sleep_forever()

    engine = open_engine(index)
    async with Worker(engine):
        run = await engine.start(index(), id="x")
        with anyio.fail_after(SOON):
            assert await run.result() == "both"
    assert queued(engine) == []  # its run has ended with it in the queue
    sound(engine)


async def test_a_paused_run_keeps_what_is_under_way_and_begins_nothing(open_engine: OpenEngine) -> None:
    reached, go_on = anyio.Event(), anyio.Event()

    @step(queue="gpu")
    async def first() -> str:
        reached.set()
        await go_on.wait()
        return "first"

    @step(queue="later")
    async def second() -> str:
        DONE.append("second")
        return "second"

    @workflow
    async def index() -> list[str]:
        return [*await asyncio.gather(first(), second())]

    engine = open_engine(index)
    async with Worker(engine, only_queues=["default", "gpu"]):
        run = await engine.start(index(), id="x")
        with anyio.fail_after(SOON):
            await reached.wait()
            await run.pause()
            assert JobState.PAUSED in queued(engine)
            go_on.set()
            await until(lambda: "step.completed" in types_of(engine))
    sound(engine)
    async with Worker(engine):
        await anyio.sleep(0.1)
        assert DONE == []
        await run.resume()
        with anyio.fail_after(SOON):
            assert await run.result() == ["first", "second"]
    sound(engine)


async def test_what_is_terminated_while_a_step_is_in_a_queue_leaves_no_job(open_engine: OpenEngine) -> None:
    engine = open_engine(index)
    async with Worker(engine, only_queues=["default"]):
        run = await engine.start(index("ab"), id="x")
        with anyio.fail_after(SOON):
            await until(lambda: queued(engine) == [JobState.QUEUED] * 2)
            await run.terminate()
            with pytest.raises(RunCancelledError):
                await run.result()
    assert queued(engine) == []
    sound(engine)


@step(queue="bank", retry=Retry(attempts=1))
async def charge(order: str) -> str:
    DONE.append(f"charge {order}")
    return f"receipt of {order}"


@step(queue="bank", retry=Retry(attempts=2, wait=timedelta(milliseconds=10)))
async def refund(receipt: str, order: str) -> None:
    DONE.append(f"refund {receipt} {order}")
    if TROUBLE:
        raise TROUBLE.pop()


charge.compensate(refund)


@workflow
async def buy(order: str) -> str:
    await charge(order)
    await sleep(timedelta(hours=1)) if order == "slow" else None
    raise RuntimeError("out of stock")


async def test_a_step_of_a_queue_is_taken_back_by_one_of_a_queue(open_engine: OpenEngine) -> None:
    engine = open_engine(buy)
    async with Worker(engine):
        with anyio.fail_after(SOON), pytest.raises(RunFailedError, match="out of stock"):
            await engine.run(buy("a"))
    assert DONE == ["charge a", "refund receipt of a a"]
    sound(engine)


async def test_a_run_that_is_cancelled_while_paused_takes_back_what_it_did(open_engine: OpenEngine) -> None:
    engine = open_engine(buy)
    async with Worker(engine):
        run = await engine.start(buy("slow"))
        with anyio.fail_after(SOON):
            await until(lambda: any(job.state is JobState.SLEEPING for job in jobs(engine)))
            await run.pause()
            await run.cancel()
            with pytest.raises(RunCancelledError):
                await run.result()
    assert DONE == ["charge slow", "refund receipt of slow slow"]
    sound(engine)


def jobs(engine: Engine) -> list[Job]:
    of_runs = snapshot_of(engine.core.stores.persistence, [engine.core.namespace]).jobs.values()
    return [job for of_run in of_runs for job in of_run.values()]


@pytest.mark.slow
async def test_one_that_takes_nothing_back_blocks_its_run_until_somebody_has_looked(
    open_engine: OpenEngine,
) -> None:
    TROUBLE.extend(RuntimeError("the bank is closed") for _ in range(3))
    engine = open_engine(buy)
    async with Worker(engine):
        run = await engine.start(buy("a"), id="x")
        with anyio.fail_after(SOON):
            await until(lambda: engine.sync.handle(buy, "x").info().status is RunStatus.BLOCKED)
            sound(engine)
            await run.resume()
            with pytest.raises(RunFailedError, match="out of stock"):
                await run.result()
    assert DONE.count("refund receipt of a a") == 4
    blocked = [event for event in engine.sync.handle(buy, "x").history() if event.type == "run.blocked"]
    assert "'refund' has failed 2 times: RuntimeError: the bank is closed" in str(blocked[0].data)
    sound(engine)


@pytest.mark.slow
async def test_a_function_that_is_blocked_holds_its_steps_too(open_engine: OpenEngine) -> None:
    @workflow
    async def index() -> None:
        task = asyncio.ensure_future(embed("ab"))
        await sleep(timedelta(milliseconds=20))
        while not DONE:  # noqa: ASYNC110  # it never rests
            await asyncio.sleep(0)
        assert task.done()

    engine = open_engine(index)
    async with Worker(engine, only_queues=["default"]):
        await engine.start(index(), id="x")
        with anyio.fail_after(SOON):
            await until(lambda: engine.sync.handle(index, "x").info().status is RunStatus.BLOCKED)
    assert queued(engine) == [JobState.PAUSED]
    sound(engine)


@step(queue="gpu", heartbeat_timeout=timedelta(seconds=30), retry=Retry(attempts=2, wait=timedelta(0)))
def copy(pages: int) -> int:
    context = step_context()
    first = context.last_heartbeat(int, default=0)
    context.heartbeat(first + 2)
    if first + 2 < pages:
        raise ConnectionError("the line is cut")
    return first


@workflow
async def archive(pages: int) -> int:
    return await copy(pages)


async def test_the_next_attempt_knows_what_the_last_one_said(open_engine: OpenEngine) -> None:
    engine = open_engine(archive)
    async with Worker(engine) as worker:
        with anyio.fail_after(SOON):
            assert await engine.run(archive(4)) == 2
        assert worker.stats().failed == 1
    sound(engine)


class Around:
    """An interceptor that records its calls."""

    def __init__(self) -> None:
        self.calls: list[BodyCall] = []

    @contextmanager
    def body(self, call: BodyCall, /) -> Generator[None]:
        self.calls.append(call)
        yield


async def test_interceptors_are_told_of_it_as_of_any_step() -> None:
    around = Around()
    async with Engine.open("memory://", workflows=[archive], interceptors=[around]) as engine, Worker(engine):
        with anyio.fail_after(SOON):
            await engine.run(archive(4))
    told = [(call.stage, call.step, call.queue, call.attempt, call.max_attempts) for call in around.calls]
    assert told == [("archive", "copy", "gpu", 1, 2), ("archive", "copy", "gpu", 2, 2)]
    assert [call.idempotency_key.partition("/")[2] for call in around.calls] == ["archive/1"] * 2


async def test_a_function_as_a_service_does_it_too(open_engine: OpenEngine) -> None:
    engine = open_engine(index)
    host = ServerlessHost(engine)
    run = engine.sync.start(index("ab"), id="x")
    with anyio.fail_after(SOON):
        while run.info().status is not RunStatus.COMPLETED:
            await anyio.to_thread.run_sync(lambda: host.process_available_jobs(max_jobs=10))
    assert run.result() == 11 * (97 + 98)
    sound(engine)


async def test_a_function_that_is_run_again_from_a_step_in_a_queue_queues_it_again(
    open_engine: OpenEngine,
) -> None:
    engine = open_engine(index)
    async with Worker(engine, only_queues=["default"]):
        run = await engine.start(index("ab"), id="x")
        with anyio.fail_after(SOON):
            await until(lambda: queued(engine) == [JobState.QUEUED] * 2)
            await run.terminate()
    await engine.handle(index, "x").rerun_from(row=4)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            assert await engine.handle(index, "x").result() == 11 * (97 + 98)
    assert types_of(engine)[:3] == ["run.created", "step.queued", "step.queued"]
    assert len(DONE) == 2
    sound(engine)


async def test_two_steps_of_queues_of_one_name_are_refused(open_engine: OpenEngine) -> None:
    @step(name="embed", queue="cpu")
    def other(text: str) -> str:
        return text

    with pytest.raises(DefinitionError, match="two queued steps are called 'embed'"):
        open_engine(index, steps=[other])
    with pytest.raises(DefinitionError, match="step 'add' has no queue"):
        open_engine(steps=[add])
