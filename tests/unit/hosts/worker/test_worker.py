"""The worker on an in-memory store, on both kinds of event loop."""

import asyncio
import gc
import logging
import signal
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from random import Random
from typing import TypeVar

import anyio
import pytest
from anyio import lowlevel, to_thread
from typing_extensions import override

from holdfast.adapters.memory.persistence import MemoryPersistence, MemoryTransaction
from holdfast.adapters.memory.transport import MemoryTransport
from holdfast.adapters.system.clock import SystemClock
from holdfast.adapters.system.ids import UlidIds
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.wiring.stores import Stores
from holdfast.hosts.worker import runner as runner_module
from holdfast.hosts.worker import worker as worker_module
from holdfast.hosts.worker.settings import Settings
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.commands import LeaseReapStale, SessionClose
from holdfast.kernel.dispatch.job_execution import UNKNOWN_CODE_DELAY
from holdfast.kernel.invariants import check
from holdfast.ports.clock import Clock, micros
from holdfast.ports.errors import InvalidArgumentError, RunCancelledError, RunFailedError, UnavailableError
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.history import NotesOf
from holdfast.ports.records.job import Job, JobState
from holdfast.ports.records.run import RunStatus
from holdfast.testing.faults import Fault, FaultPlan, FaultyPersistence
from holdfast.testing.snapshots import snapshot_of
from tests.sizes import sized

R = TypeVar("R")

pytestmark = pytest.mark.anyio


@stage
async def double(x: int) -> int:
    return 2 * x


@stage
def up_to(x: int) -> list[int]:
    return list(range(x))


@stage
def total(xs: list[int]) -> int:
    return sum(xs)


SIMPLE = Pipeline("simple", input=int).pipe(double)
WIDE = Pipeline("wide", input=int).pipe(up_to).map(double, limit=7).pipe(total)


OPENED: list[Engine] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Check that every engine was closed."""
    yield
    while OPENED:
        OPENED.pop().core.close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the intervals at which workers check bodies and sessions."""
    monkeypatch.setattr(worker_module, "Settings", partial(Settings, heartbeat_interval=0.05))
    monkeypatch.setattr(worker_module, "MAINTENANCE_INTERVAL", 0.05)


def engine_on(
    *workflows: WorkflowDefinition[object], persistence: Persistence | None = None, clock: Clock | None = None
) -> Engine:
    stores = Stores(
        persistence=persistence or MemoryPersistence(),
        transport=MemoryTransport(),
        blobs=None,
        clock=clock or SystemClock(),
        ids=UlidIds(),
    )
    OPENED.append(Engine.on(stores, workflows=workflows))
    return OPENED[-1]


@asynccontextmanager
async def at_work(engine: Engine, **options: float) -> AsyncGenerator[Worker]:
    """An engine and its worker, with a time limit for the test."""
    with anyio.fail_after(60):
        async with engine, Worker(engine, **options) as worker:  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            yield worker


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not condition():  # noqa: ASYNC110  # there is nobody who could set an event
            await anyio.sleep(0.002)


def jobs(engine: Engine) -> list[Job]:
    store = engine.core.adapters.persistence
    assert isinstance(store, MemoryPersistence)
    return list(store.dump().all_jobs())


# Work -----------------------------------------------------------------------------------------------------------


async def test_a_run_is_carried_out() -> None:
    async with at_work(engine := engine_on(WIDE, SIMPLE)) as worker:
        assert await engine.run(WIDE(30)) == sum(2 * x for x in range(30))
        assert await engine.run(SIMPLE(4)) == 8

    stats = worker.stats()
    assert (stats.phase, stats.running, stats.unsettled) == ("stopped", 0, 0)
    assert stats.claimed == stats.started == stats.settled == 1 + 1 + 30 + 1 + 1
    assert (stats.failed, stats.fenced, stats.released, stats.store_errors) == (0, 0, 0, 0)
    assert check(snapshot_of(engine.core.adapters.persistence, [engine.core.namespace])) == []


def parts_of_workers(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[object]]:
    """Return the list to which the parts of an engine are added from here on."""
    own = engine.core.own
    owned: list[weakref.ref[object]] = []

    def noted(part: R) -> R:
        owned.append(weakref.ref(part))
        return own(part)

    monkeypatch.setattr(engine.core, "own", noted)
    return owned


async def until_collected(owned: list[weakref.ref[object]], number: int) -> None:
    """Wait until none of so many objects exists: idle threads of trio keep their last call for some seconds."""
    assert len(owned) == number
    with anyio.fail_after(60):
        while any(one() is not None for one in owned):
            await anyio.sleep(0.02)
            gc.collect()


async def test_an_open_engine_keeps_nothing_of_workers_that_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = engine_on(SIMPLE)
    owned = parts_of_workers(engine, monkeypatch)
    async with engine:
        for _ in range(2):
            async with at_work(engine):
                assert owned[-1]() is not None
        await until_collected(owned, 2)


async def test_an_open_engine_keeps_nothing_of_starts_that_could_not_connect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = engine_on(SIMPLE, persistence=Unreachable())
    owned = parts_of_workers(engine, monkeypatch)
    worker = Worker(engine)
    for _ in range(2):
        with pytest.raises(UnavailableError):
            await worker.serve()
    del worker
    await until_collected(owned, 2)


async def test_what_was_stored_before_it_began_is_carried_out() -> None:
    engine = engine_on(SIMPLE)
    handles = [await engine.start(SIMPLE(x)) for x in range(10)]
    async with at_work(engine):
        assert [await handle.result() for handle in handles] == [2 * x for x in range(10)]


async def test_a_failed_body_is_tried_again_after_its_wait() -> None:
    attempts: list[int] = []

    @stage(retry=Retry(attempts=3, wait=timedelta(milliseconds=20), jitter=0.0))
    async def flaky(ctx: StageContext, x: int) -> int:
        attempts.append(ctx.attempt)
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return x

    pipeline = Pipeline("w", input=int).pipe(flaky)
    async with at_work(engine := engine_on(pipeline)) as worker:
        assert await engine.run(pipeline(1)) == 1

    assert attempts == [1, 2, 3]
    assert (worker.stats().failed, worker.stats().settled) == (2, 3)


async def test_a_run_whose_attempts_are_used_up_fails_with_the_last_error() -> None:
    @stage(retry=Retry(attempts=2, wait=timedelta(0)))
    def hopeless(x: int) -> int:
        raise ValueError("never")

    pipeline = Pipeline("w", input=int).pipe(hopeless)
    async with at_work(engine := engine_on(pipeline)):
        with pytest.raises(RunFailedError, match="stage 'hopeless', attempt 2: ValueError: never"):
            await engine.run(pipeline(1))


async def test_no_more_bodies_run_at_once_than_were_allowed() -> None:
    running: list[int] = []
    seen: list[int] = []

    @stage
    async def body(x: int) -> int:
        running.append(x)
        seen.append(len(running))
        await anyio.sleep(0.001)
        running.remove(x)
        return x

    pipeline = Pipeline("w", input=int).pipe(up_to).map(body)
    async with at_work(engine := engine_on(pipeline), concurrency=5):
        await engine.run(pipeline(40))

    assert max(seen) == 5


async def test_a_poisonous_body_does_no_harm_to_its_neighbours() -> None:
    class Poison(BaseException):
        pass

    @stage(retry=Retry(attempts=1))
    async def poison(x: int) -> int:
        raise Poison

    @stage(retry=Retry(attempts=1))
    def poison_in_thread(x: int) -> int:
        raise BaseExceptionGroup("all", [Poison(), KeyboardInterrupt()])

    one = Pipeline("one", input=int).pipe(poison)
    other = Pipeline("other", input=int).pipe(poison_in_thread)
    async with at_work(engine := engine_on(one, other, SIMPLE)) as worker:
        bad = [await engine.start(pipeline(1)) for pipeline in (one, other)]
        good = [await engine.start(SIMPLE(x)) for x in range(20)]
        assert [await handle.result() for handle in good] == [2 * x for x in range(20)]
        for handle in bad:
            with pytest.raises(RunFailedError):
                await handle.result()
        assert worker.stats().sessions_lost == 0


async def test_a_stage_that_it_has_no_code_for_is_given_back_and_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The workflow is known by name and version, but was changed without a new version."""
    store = MemoryPersistence()
    await engine_on(OLD, persistence=store).start(OLD(1))
    async with at_work(engine := engine_on(NEW, SIMPLE, persistence=store)) as worker:
        assert await engine.run(SIMPLE(1)) == 2
        await until(lambda: worker.stats().released == 1)

    (job,) = jobs(engine)
    assert (job.state, job.attempts, job.node) == (JobState.SLEEPING, 0, "gone")
    assert job.wake_at is not None
    assert 0 < job.wake_at - micros(SystemClock().now()) <= UNKNOWN_CODE_DELAY
    assert "lacks the code of stage 'gone'" in caplog.text


OLD = Pipeline("changed", input=int).pipe(double.options(name="gone"))
NEW = Pipeline("changed", input=int).pipe(double)


async def test_a_run_of_a_workflow_that_it_does_not_know_is_left_alone() -> None:
    store = MemoryPersistence()
    await engine_on(OLD, persistence=store).start(OLD(1))
    async with at_work(engine := engine_on(SIMPLE, persistence=store)) as worker:
        assert await engine.run(SIMPLE(1)) == 2
        assert worker.stats().claimed == 1

    (job,) = jobs(engine)
    assert (job.state, job.epoch, job.attempts) == (JobState.QUEUED, 0, 0)


async def test_what_a_body_says_is_stored_while_it_runs() -> None:
    go_on = anyio.Event()

    @stage
    async def talk(ctx: StageContext, x: int) -> int:
        ctx.log("hello", n=1)
        ctx.progress(1, 2, "half")
        await go_on.wait()
        return x

    pipeline = Pipeline("w", input=int).pipe(talk)
    async with at_work(engine := engine_on(pipeline)):
        handle = await engine.start(pipeline(1))
        key = (await to_thread.run_sync(engine.sync.handle(pipeline, handle.id).row)).key
        store = engine.core.adapters.persistence
        await until(lambda: len(store.read(NotesOf(key))) == 2)
        assert {note.kind for note in store.read(NotesOf(key))} == {"log", "progress"}
        go_on.set()
        await handle.result()


# Cancellation ---------------------------------------------------------------------------------------------------


async def test_cancelling_a_run_reaches_its_async_body() -> None:
    begun, ended = anyio.Event(), anyio.Event()

    @stage
    async def body(ctx: StageContext, x: int) -> int:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            assert ctx.cancelled
            ended.set()
        return x

    pipeline = Pipeline("w", input=int).pipe(body)
    async with at_work(engine := engine_on(pipeline)) as worker:
        handle = await engine.start(pipeline(1))
        await begun.wait()
        await handle.cancel(reason="enough")
        with pytest.raises(RunCancelledError, match="enough"):
            await handle.result()
        await ended.wait()
        await until(lambda: worker.stats().running == 0)
        assert worker.stats().settled == 0


async def test_cancelling_a_run_reaches_its_sync_body() -> None:
    begun, told = threading.Event(), threading.Event()

    @stage
    def body(ctx: StageContext, x: int) -> int:
        begun.set()
        while not ctx.cancelled:
            threading.Event().wait(0.002)
        told.set()
        ctx.check_cancelled()
        return x

    pipeline = Pipeline("w", input=int).pipe(body)
    async with at_work(engine := engine_on(pipeline)) as worker:
        handle = await engine.start(pipeline(1))
        await to_thread.run_sync(begun.wait)
        await handle.cancel()
        assert await to_thread.run_sync(told.wait, 10)
        await until(lambda: worker.stats().running == 0)


async def test_that_a_run_was_cancelled_reaches_its_body_long_before_the_next_heartbeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_module, "Settings", partial(Settings, heartbeat_interval=10_000.0))
    begun, ended = anyio.Event(), anyio.Event()

    @stage
    async def body(x: int) -> int:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        return x

    pipeline = Pipeline("w", input=int).pipe(body)
    async with at_work(engine := engine_on(pipeline)):
        handle = await engine.start(pipeline(1))
        await begun.wait()
        await handle.cancel()
        await ended.wait()


async def test_what_a_cancelled_body_gives_all_the_same_is_counted_as_fenced() -> None:
    go_on = anyio.Event()
    begun: list[StageContext] = []

    @stage
    async def stubborn(ctx: StageContext, x: int) -> int:
        begun.append(ctx)
        with anyio.CancelScope(shield=True):
            await go_on.wait()
        return x

    pipeline = Pipeline("w", input=int).pipe(stubborn)
    async with at_work(engine := engine_on(pipeline)) as worker:
        handle = await engine.start(pipeline(1))
        await until(lambda: len(begun) == 1)
        await handle.cancel()
        await until(lambda: begun[0].cancelled)
        go_on.set()
        await until(lambda: worker.stats().running == 0)

    assert (worker.stats().fenced, worker.stats().settled) == (1, 0)


async def test_a_sync_body_can_run_an_event_loop_of_its_own(anyio_backend_name: str) -> None:
    @stage
    def body(x: int) -> int:
        async def inner() -> int:
            await lowlevel.checkpoint()
            return x + 1

        return anyio.run(inner, backend=anyio_backend_name)

    pipeline = Pipeline("w", input=int).pipe(body)
    async with at_work(engine := engine_on(pipeline)):
        assert await engine.run(pipeline(1)) == 2


# Sessions -------------------------------------------------------------------------------------------------------


async def test_when_its_session_is_lost_it_begins_another_and_does_the_work_again() -> None:
    epochs: list[int] = []
    cancelled = anyio.Event()

    @stage
    async def body(ctx: StageContext, x: int) -> int:
        epochs.append(ctx.epoch)
        if ctx.epoch == 1:
            try:
                await anyio.sleep_forever()
            finally:
                cancelled.set()
        return x

    pipeline = Pipeline("w", input=int).pipe(body)
    async with at_work(engine := engine_on(pipeline), poll_interval=0.05) as worker:
        handle = await engine.start(pipeline(1))
        await until(lambda: epochs == [1])
        first = worker.stats().session
        assert first is not None
        await to_thread.run_sync(engine.kernel.dispatch, SessionClose(session=first))
        await to_thread.run_sync(engine.kernel.dispatch, LeaseReapStale())
        assert await handle.result() == 1
        await cancelled.wait()
        assert worker.stats().session != first

    assert epochs == [1, 2]
    assert worker.stats().sessions_lost == 1
    assert worker.stats().settled == 1


async def test_a_body_that_is_slow_to_obey_does_not_keep_its_job_from_being_done_again() -> None:
    """By the same worker, while the lost attempt still runs."""
    obey = anyio.Event()
    epochs: list[int] = []

    @stage
    async def body(ctx: StageContext, x: int) -> int:
        epochs.append(ctx.epoch)
        if ctx.epoch == 1:
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await obey.wait()
        return x

    pipeline = Pipeline("w", input=int).pipe(body)
    async with at_work(engine := engine_on(pipeline), poll_interval=0.05) as worker:
        handle = await engine.start(pipeline(1))
        await until(lambda: epochs == [1])
        session = worker.stats().session
        assert session is not None
        await to_thread.run_sync(engine.kernel.dispatch, SessionClose(session=session))
        await to_thread.run_sync(engine.kernel.dispatch, LeaseReapStale())
        assert await handle.result() == 1
        assert worker.stats().running == 1
        obey.set()
        await until(lambda: worker.stats().running == 0)


@pytest.mark.sized
async def test_a_store_that_fails_now_and_then_delays_and_loses_nothing() -> None:
    """Nor does it keep a job that was leased by a claim whose response was lost."""
    plan = FaultPlan(Random(3).choices([None, *Fault], weights=[6, 1, 1, 1], k=sized(40, 80)))
    patient = Pipeline("patient", input=int).pipe(double.options(retry=Retry(attempts=50)))
    store = MemoryPersistence()
    for x in range(20):
        await engine_on(patient, persistence=store).start(patient(x))
    engine = engine_on(patient, persistence=FaultyPersistence(store, plan))
    worker = Worker(engine, concurrency=2, poll_interval=0.02, lease=1.0)
    async with anyio.create_task_group() as group:
        group.start_soon(partial(serve_whatever_happens, worker))
        await until(lambda: all(run.status is RunStatus.COMPLETED for run in store.dump().runs.values()))
        worker.drain()

    assert sum(plan.fired.values()) > 5
    assert check(snapshot_of(store)) == []


async def test_jobs_of_a_claim_whose_answer_was_lost_are_done_while_other_bodies_go_on() -> None:
    go_on = anyio.Event()

    @stage
    async def long(x: int) -> int:
        await go_on.wait()
        return x

    slow = Pipeline("slow", input=int).pipe(long)
    store = LosesAnAnswer()
    async with at_work(engine := engine_on(slow, SIMPLE, persistence=store), poll_interval=0.02) as worker:
        running = await engine.start(slow(1))
        await until(lambda: worker.stats().running == 1)
        first = worker.stats().session
        store.lose_next_claim.set()
        other = await engine.start(SIMPLE(4))
        await until(lambda: worker.stats().store_errors == 1)
        await until(lambda: worker.stats().session != first)
        go_on.set()
        assert await running.result() == 1
        assert await other.result() == 8

    assert not store.lose_next_claim.is_set()
    assert worker.stats().fenced == worker.stats().sessions_lost == 0


async def test_a_job_that_was_taken_by_a_settle_whose_answer_was_lost_is_done_all_the_same() -> None:
    """The settle is stored once, and a live session does not hold the job for ever."""
    chain = Pipeline("chain", input=int).pipe(double).pipe(double.options(name="again"))
    store = LosesAnAnswer()
    store.lose_next_settle.set()
    async with at_work(engine := engine_on(chain, persistence=store), poll_interval=0.02) as worker:
        with anyio.fail_after(60):
            assert await engine.run(chain(1)) == 4

    assert not store.lose_next_settle.is_set()
    assert (worker.stats().fenced, worker.stats().sessions_lost, worker.stats().store_errors) == (1, 0, 1)


class LosesAnAnswer(MemoryPersistence):
    """A store that, when told, loses the response of the next claim or settle that leased jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.lose_next_claim = threading.Event()
        self.lose_next_settle = threading.Event()

    @override
    def transact(self, work: Callable[[MemoryTransaction], R], /) -> R:
        result = super().transact(work)
        for kind, lose in (("JobsClaimed", self.lose_next_claim), ("JobSettled", self.lose_next_settle)):
            if lose.is_set() and kind in repr(result) and "Attempt(" in repr(result):
                lose.clear()
                raise UnavailableError("it was stored, but who knows")
        return result


async def serve_whatever_happens(worker: Worker) -> None:
    """Connecting may fail too, and is then retried by the caller."""
    while True:
        try:
            return await worker.serve()
        except UnavailableError:
            continue


# In sync programs ------------------------------------------------------------------------------------------------


async def test_a_sync_program_has_a_worker_in_a_thread() -> None:
    def program() -> int:
        engine = engine_on(SIMPLE)
        with engine.sync, Worker(engine) as worker:
            given = engine.sync.run(SIMPLE(4))
        assert worker.stats().phase == "stopped"
        return given

    assert await to_thread.run_sync(program) == 8


async def test_an_error_of_a_sync_program_is_raised_as_it_is() -> None:
    def program() -> None:
        engine = engine_on(FAILING)
        with engine.sync, Worker(engine):
            engine.sync.run(FAILING(1))

    with pytest.raises(RunFailedError):
        await to_thread.run_sync(program)


# Started again --------------------------------------------------------------------------------------------------


async def test_a_worker_that_has_ended_can_be_started_again() -> None:
    """With its engine, as by a server that restarts in one process. Its counters continue."""
    engine = engine_on(SIMPLE)
    worker = Worker(engine)
    sessions: list[str | None] = []
    with anyio.fail_after(60):
        for use in (1, 2):
            async with engine, worker:
                assert worker.stats().phase == "running"
                assert await engine.run(SIMPLE(4)) == 8
                sessions.append(worker.stats().session)
            assert worker.stats().phase == "stopped"
            assert worker.stats().settled == use

    assert None not in sessions
    assert sessions[0] != sessions[1]


async def test_a_worker_in_a_thread_can_be_started_again() -> None:
    def program() -> list[int]:
        engine = engine_on(SIMPLE)
        worker = Worker(engine)
        given: list[int] = []
        with engine.sync:
            for x in range(2):
                with worker:
                    given.append(engine.sync.start(SIMPLE(x)).result(timeout=60))
        return given

    assert await to_thread.run_sync(program) == [0, 2]


async def test_a_drain_after_its_end_does_not_end_the_next_start() -> None:
    engine = engine_on(SIMPLE)
    worker = Worker(engine)
    with anyio.fail_after(60):
        async with engine:
            async with worker:
                pass
            worker.drain()
            worker.stop()
            async with worker:
                assert await engine.run(SIMPLE(4)) == 8


async def test_a_worker_that_could_not_connect_can_be_started_again() -> None:
    engine = engine_on(SIMPLE, persistence=(store := Unreachable()))
    worker = Worker(engine)

    def program() -> None:
        with worker:
            pytest.fail("the block has begun")

    with anyio.fail_after(60):
        with pytest.raises(UnavailableError):
            await worker.serve()
        with pytest.raises(UnavailableError):
            await to_thread.run_sync(program)
        with pytest.raises(UnavailableError):
            async with worker:
                pytest.fail("the block has begun")
        store.is_back = True
        async with worker:
            assert await engine.run(SIMPLE(4)) == 8


async def test_a_worker_that_runs_is_not_started_a_second_time() -> None:
    async with at_work(engine := engine_on(SIMPLE)) as worker:
        with pytest.raises(InvalidArgumentError, match="already running"):
            await worker.serve()
        with pytest.raises(InvalidArgumentError, match="already running"):
            async with worker:
                pytest.fail("the block has begun")
        with pytest.raises(InvalidArgumentError, match="already running"), worker:
            pytest.fail("the block has begun")
        with pytest.raises(InvalidArgumentError, match="already running"):
            worker.run()
        assert await engine.run(SIMPLE(4)) == 8


# Errors of its own -----------------------------------------------------------------------------------------------


class Unreachable(MemoryPersistence):
    """A store that cannot be reached until it is back."""

    is_back = False

    @override
    def setup(self) -> None:
        if not self.is_back:
            raise UnavailableError("nobody is there")


class BreakingClock(SystemClock):
    """A clock that fails once, in a chosen thread."""

    def __init__(self) -> None:
        super().__init__()
        self.breaks_in: int | None = None

    @override
    def monotonic(self) -> float:
        if self.breaks_in == threading.get_ident():
            self.breaks_in = None
            raise RuntimeError("a bug")
        return super().monotonic()


def threads_of_workers() -> list[int | None]:
    return [thread.ident for thread in threading.enumerate() if thread.name == "holdfast-worker"]


async def test_what_keeps_it_from_connecting_is_raised_before_the_block_begins() -> None:
    """As it is: neither in a group, nor as a cancellation of the block."""
    with anyio.fail_after(60), pytest.raises(UnavailableError, match="nobody is there"):
        async with Worker(engine_on(SIMPLE, persistence=Unreachable())):
            pytest.fail("the block has begun")


async def test_what_keeps_it_from_connecting_is_raised_in_a_sync_program_too() -> None:
    def program() -> None:
        with Worker(engine_on(SIMPLE, persistence=Unreachable()).sync):
            pytest.fail("the block has begun")

    with pytest.raises(UnavailableError, match="nobody is there"):
        await to_thread.run_sync(program)
    assert threads_of_workers() == []


async def test_an_error_that_ends_it_later_cancels_the_block_is_logged_and_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = engine_on(SIMPLE, clock=(clock := BreakingClock()))
    with anyio.fail_after(60), pytest.raises(ExceptionGroup) as raised:
        async with Worker(engine) as worker:
            await until(lambda: worker.stats().session is not None)
            clock.breaks_in = threading.get_ident()
            await anyio.sleep_forever()

    assert raised.group_contains(RuntimeError, match="a bug")
    assert "the worker stopped with an error" in caplog.text


async def test_an_error_of_the_block_is_raised_rather_than_its_own(caplog: pytest.LogCaptureFixture) -> None:
    engine = engine_on(SIMPLE, clock=(clock := BreakingClock()))
    with anyio.fail_after(60), pytest.raises(KeyError):
        async with Worker(engine) as worker:
            await until(lambda: worker.stats().session is not None)
            clock.breaks_in = threading.get_ident()
            raise KeyError

    assert "the worker stopped with an error" in caplog.text


@pytest.mark.parametrize("error", [None, KeyError()])
async def test_an_error_that_ends_it_later_is_raised_when_a_sync_block_ends_unless_that_raised_one(
    error: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    def program() -> None:
        engine = engine_on(SIMPLE, clock=(clock := BreakingClock()))
        with Worker(engine.sync):
            (clock.breaks_in,) = threads_of_workers()
            while threads_of_workers():
                threading.Event().wait(0.002)
            if error is not None:
                raise error

    with pytest.raises(ExceptionGroup if error is None else KeyError) as raised:
        await to_thread.run_sync(program)

    assert raised.value is error or raised.group_contains(RuntimeError, match="a bug")
    assert "the worker stopped with an error" in caplog.text


# An end while it connects ----------------------------------------------------------------------------------------


class NotAnswering(MemoryPersistence):
    """A store that does not answer the first call until it is let go."""

    def __init__(self, when_reached: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.let_go = threading.Event()
        self._when_reached = when_reached

    @override
    def setup(self) -> None:
        self.reached.set()
        self._when_reached()
        if not self.let_go.wait(10):
            raise UnavailableError("it did not answer in time")


@pytest.fixture
def not_answering() -> Iterator[NotAnswering]:
    store = NotAnswering()
    yield store
    store.let_go.set()


@pytest.mark.parametrize("how", ["drain", "stop", "cancel"])
async def test_a_worker_that_connects_ends_at_once(how: str, not_answering: NotAnswering) -> None:
    """It does not wait for a store that does not answer."""
    worker = Worker(engine_on(SIMPLE, persistence=not_answering))
    async with anyio.create_task_group() as group:
        group.start_soon(worker.serve)
        await to_thread.run_sync(not_answering.reached.wait)
        match how:
            case "drain":
                worker.drain()
            case "stop":
                worker.stop()
            case _:
                group.cancel_scope.cancel()

    assert how == "cancel" or worker.stats().phase == "stopped"
    assert not not_answering.let_go.is_set()


async def test_a_block_whose_worker_connects_can_be_cancelled(not_answering: NotAnswering) -> None:
    async def block() -> None:
        async with Worker(engine_on(SIMPLE, persistence=not_answering)):
            pytest.fail("the block has begun")

    async with anyio.create_task_group() as group:
        group.start_soon(block)
        await to_thread.run_sync(not_answering.reached.wait)
        group.cancel_scope.cancel()


async def test_a_drain_before_the_start_ends_it_without_a_connection(not_answering: NotAnswering) -> None:
    worker = Worker(engine_on(SIMPLE, persistence=not_answering))
    worker.drain()
    await worker.serve()

    assert worker.stats().phase == "stopped"
    assert not not_answering.reached.is_set()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, also in a process that was started with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_while_a_worker_in_a_thread_connects_ends_the_thread() -> None:
    def interrupt() -> None:
        time.sleep(0.1)  # a signal just before the main thread waits would not interrupt the wait
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    store = NotAnswering(interrupt)
    engine = engine_on(SIMPLE, persistence=store)
    worker = Worker(engine)
    try:
        with pytest.raises(KeyboardInterrupt), worker:
            pytest.fail("the block has begun")
        assert threads_of_workers() == []
    finally:
        store.let_go.set()

    with engine.sync, worker:
        assert engine.sync.start(SIMPLE(4)).result(timeout=60) == 8


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_connects_ends_at_a_signal(number: signal.Signals) -> None:
    store = NotAnswering(lambda: signal.pthread_kill(threading.main_thread().ident or 0, number))
    worker = Worker(engine_on(SIMPLE, persistence=store))
    try:
        worker.run()
    finally:
        store.let_go.set()

    assert worker.stats().phase == "stopped"


def test_a_process_that_cannot_connect_raises_the_error_as_it_is() -> None:
    with pytest.raises(UnavailableError, match="nobody is there"):
        Worker(engine_on(SIMPLE, persistence=Unreachable())).run()


# The end --------------------------------------------------------------------------------------------------------


async def drain_in_the_middle(engine: Engine, begun: anyio.Event, go_on: anyio.Event) -> None:
    """Drain a worker while a body runs that ends only when told after that."""
    worker = Worker(engine)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.serve)
        await begun.wait()
        worker.drain()
        await until(lambda: worker.stats().phase == "draining")
        go_on.set()


async def test_when_it_drains_what_runs_may_end() -> None:
    begun, go_on = anyio.Event(), anyio.Event()

    @stage
    async def body(x: int) -> int:
        begun.set()
        await go_on.wait()
        return x

    pipeline = Pipeline("w", input=int).pipe(body)
    engine = engine_on(pipeline)
    handle = await engine.start(pipeline(1))
    with anyio.fail_after(60):
        await drain_in_the_middle(engine, begun, go_on)

    assert (await handle.info()).status is RunStatus.COMPLETED


@pytest.mark.parametrize("sleeps", [False, True])
async def test_a_draining_worker_begins_no_step_and_another_worker_goes_on(*, sleeps: bool) -> None:
    begun, go_on, done = anyio.Event(), anyio.Event(), list[int]()

    @step
    async def count(number: int) -> int:
        begun.set()
        await go_on.wait()
        done.append(number)
        return number

    @workflow
    async def counts() -> int:
        total = await count(1)
        if sleeps:
            await asyncio.sleep(0.2)
        return total + await count(2)

    engine = engine_on(counts)
    handle = await engine.start(counts())
    with anyio.fail_after(60):
        await drain_in_the_middle(engine, begun, go_on)
        assert done == [1]
        assert (await handle.info()).status is RunStatus.RUNNING
        async with Worker(engine):
            assert await handle.result() == 3
    assert done == [1, 2]
    assert check(snapshot_of(engine.core.adapters.persistence, [engine.core.namespace])) == []


async def test_what_does_not_end_in_time_is_given_back_and_costs_no_attempt() -> None:
    begun = anyio.Event()

    @stage
    async def body(x: int) -> int:
        begun.set()
        await anyio.sleep_forever()
        return x

    pipeline = Pipeline("w", input=int).pipe(body)
    async with at_work(engine := engine_on(pipeline), drain_grace=0.02) as worker:
        await engine.start(pipeline(1))
        await begun.wait()

    counts = worker.stats()
    assert (counts.started, counts.settled) == (1, 0)
    # A claim that was under way may return the released job once more, and releases it again.
    assert counts.released == counts.claimed >= 1
    (job,) = jobs(engine)
    assert (job.state, job.attempts, job.epoch, job.lost_attempts) == (JobState.QUEUED, 0, counts.released, 0)


async def test_a_cancelled_sync_body_may_clean_up_while_its_job_is_free_already() -> None:
    begun, released, ended = threading.Event(), threading.Event(), threading.Event()

    @stage
    def body(ctx: StageContext, x: int) -> int:
        begun.set()
        while not ctx.cancelled:
            threading.Event().wait(0.002)
        while jobs(engine)[0].state is not JobState.QUEUED:
            threading.Event().wait(0.002)
        released.set()
        threading.Event().wait(0.1)
        ended.set()
        ctx.check_cancelled()
        return x

    pipeline = Pipeline("w", input=int).pipe(body)
    async with at_work(engine := engine_on(pipeline), drain_grace=0.02) as worker:
        await engine.start(pipeline(1))
        await to_thread.run_sync(begun.wait)

    assert (released.is_set(), ended.is_set(), worker.stats().released) == (True, True, 1)


@pytest.mark.parametrize("stops", [False, True], ids=["deaf", "stopped"])
async def test_a_sync_body_that_does_not_listen_is_not_waited_for_longer(
    stops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only for its time, and not after the second signal."""
    monkeypatch.setattr(runner_module, "THREAD_GRACE", 60.0 if stops else 0.2)
    begun, release = threading.Event(), threading.Event()

    @stage
    def body(x: int) -> int:
        begun.set()
        release.wait(20)
        return x

    pipeline = Pipeline("w", input=int).pipe(body)
    engine = engine_on(pipeline)
    worker = Worker(engine, drain_grace=0.0)
    try:
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(worker.serve)
                await engine.start(pipeline(1))
                await to_thread.run_sync(begun.wait)
                worker.drain()
                await until(lambda: worker.stats().phase == "stopped")
                if stops:
                    await anyio.sleep(0.1)
                    worker.stop()
    finally:
        release.set()

    counts = worker.stats()
    assert (counts.started, counts.settled) == (1, 0)
    # A claim that was under way may return the released job once more, and releases it again.
    assert counts.released == counts.claimed >= 1


async def test_an_error_beside_it_is_raised_as_it_is() -> None:
    """Not in a group, which users of a plain `async with` do not expect."""
    with pytest.raises(RunFailedError):
        async with at_work(engine := engine_on(FAILING)):
            await engine.run(FAILING(1))


@stage(retry=Retry(attempts=1))
async def fail(x: int) -> int:
    raise ValueError


FAILING = Pipeline("failing", input=int).pipe(fail)


async def test_when_it_is_cancelled_what_runs_is_given_back() -> None:
    begun = anyio.Event()

    @stage
    async def body(x: int) -> int:
        begun.set()
        await anyio.sleep_forever()
        return x

    pipeline = Pipeline("w", input=int).pipe(body)
    engine = engine_on(pipeline)
    worker = Worker(engine)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(worker.serve)
            await engine.start(pipeline(1))
            await begun.wait()
            group.cancel_scope.cancel()

    (job,) = jobs(engine)
    assert (job.state, job.attempts, job.lost_attempts) == (JobState.QUEUED, 0, 0)


class Gate(MemoryPersistence):
    """A store that commits the next claim with jobs, and responds when the gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.opened = threading.Event()

    @override
    def transact(self, work: Callable[[MemoryTransaction], R], /) -> R:
        result = super().transact(work)
        if any(job.state is JobState.LEASED for job in self.dump().all_jobs()) and not self.reached.is_set():
            self.reached.set()
            self.opened.wait(10)
        return result


@pytest.mark.parametrize("how", ["cancel", "drain"])
async def test_jobs_that_come_back_from_a_claim_while_it_ends_are_given_back(how: str) -> None:
    engine = engine_on(SIMPLE, persistence=(gate := Gate()))
    for x in range(3):
        await engine.start(SIMPLE(x))
    worker = Worker(engine)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(worker.serve)
            assert await to_thread.run_sync(gate.reached.wait, 10)
            if how == "cancel":
                group.cancel_scope.cancel()
            else:
                worker.drain()
                await until(lambda: worker.stats().phase == "draining")
            gate.opened.set()

    assert [(job.state, job.attempts, job.lost_attempts) for job in jobs(engine)] == [
        (JobState.QUEUED, 0, 0)
    ] * 3


async def test_stopping_at_once_does_not_wait_for_bodies() -> None:
    begun = threading.Event()
    release = threading.Event()

    @stage
    def body(x: int) -> int:
        begun.set()
        release.wait(20)
        return x

    pipeline = Pipeline("w", input=int).pipe(body)
    engine = engine_on(pipeline)
    worker = Worker(engine)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(worker.serve)
            await engine.start(pipeline(1))
            await to_thread.run_sync(begun.wait)
            worker.stop()
    release.set()

    (job,) = jobs(engine)
    assert (job.state, job.attempts) == (JobState.LEASED, 1)


async def test_a_worker_without_workflows_waits_without_trying(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with at_work(engine_on()) as worker:
        await until(lambda: worker.stats().session is not None)

    assert worker.stats().claimed == 0
    assert caplog.text == ""


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"queues": {"a": 0}},
        {"lease": 0.5},
        {"lease": float("nan")},
        {"poll_interval": 0.0},
        {"drain_grace": -1.0},
    ],
)
async def test_what_can_not_be_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"at least|longer than nothing|not negative"):
        Worker(engine_on(SIMPLE), **options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "options",
    [
        {"lease": "3"},
        {"drain_grace": "20"},
        {"only_queues": "default"},
        {"concurrency": "5"},
        {"queues": ["llm"]},
        {"sinks": ["log"]},
        {"retention": "30d"},
    ],
)
async def test_what_is_of_another_type_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidArgumentError, match=f"Worker: {next(iter(options))} is .*; it must be"):
        Worker(engine_on(SIMPLE), **options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_lengths_of_time_may_be_timedeltas() -> None:
    every = timedelta(seconds=0.1)
    async with Worker(engine_on(SIMPLE), lease=timedelta(seconds=3), poll_interval=every, drain_grace=every):
        pass


async def test_a_queue_that_no_stage_names_is_served_and_pointed_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    Worker(engine_on(SIMPLE), queues={"defualt": 3})
    Worker(engine_on(SIMPLE), only_queues=("gpu",))

    assert [record.args for record in caplog.records] == [("defualt",), ("gpu",)]
