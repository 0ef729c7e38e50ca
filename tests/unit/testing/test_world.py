"""A test world does the work of workers, and its time passes only when told."""

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from anyio import to_thread

from holdfast import (
    Concurrency,
    Engine,
    HoldfastError,
    NotReady,
    Pipeline,
    Retry,
    StageContext,
    Suspended,
    stage,
    suspend,
)
from holdfast.kernel.invariants import check
from holdfast.plugins import AttemptLogHandler
from holdfast.ports.errors import RunCancelledError, RunFailedError
from holdfast.testing import MemorySink, RunStuckError, World
from holdfast.testing.clock import DEFAULT_START
from holdfast.workflows import Stage

DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "holdfast.testing")


@pytest.fixture
def world() -> Iterator[World]:
    with World() as world:
        yield world
    assert not check(world.store.dump())


@stage
def double(x: int) -> int:
    return 2 * x


@stage
async def negate(x: int) -> int:
    return -x


@stage(retry=Retry(attempts=3, wait=DAY, backoff=2.0, wait_max=10 * DAY, jitter=0.0))
def stumble(ctx: StageContext, x: int) -> int:
    if ctx.attempt < 3:
        raise ConnectionError(f"attempt {ctx.attempt}")
    return x


@stage.external
def hand_on(ctx: StageContext, x: int) -> Suspended[str, int]:
    return suspend(f"job {x}", check_after=DAY, key=f"key-{x}")


@hand_on.check
def handed_on(ctx: StageContext, job: str) -> int | NotReady:
    return int(job.removeprefix("job ")) if ctx.attempt else NotReady()


@stage
def many(x: int) -> list[int]:
    return list(range(x))


@stage
def total(xs: list[int]) -> int:
    return sum(xs)


SHORT = Pipeline("short", input=int).pipe(double).pipe(negate)
SLOW = Pipeline("slow", input=int).pipe(stumble).pipe(double)
OUTSIDE = Pipeline("outside", input=int).pipe(handed_on)
WIDE = Pipeline("wide", input=int).pipe(many).map(double, limit=3).pipe(total)
PARENT = Pipeline("parent", input=int).pipe(stage(SLOW)).pipe(negate)


# Runs come to their ends ------------------------------------------------------------------------------------------


def test_a_run_comes_to_its_end(world: World) -> None:
    assert world.run(SHORT(3)) == -6
    assert world.now == DEFAULT_START


def test_retries_wait_as_long_as_they_should_and_no_longer_in_fact(world: World) -> None:
    began = time.monotonic()

    assert world.run(SLOW(3)) == 6
    assert world.now == DEFAULT_START + 3 * DAY
    assert time.monotonic() - began < 60
    assert [call.at - DEFAULT_START for call in world.calls(stumble)] == [timedelta(), DAY, 3 * DAY]
    assert [call.attempt for call in world.calls(stumble)] == [1, 2, 3]


def test_children_and_maps_run_as_anywhere(world: World) -> None:
    assert world.run(PARENT(3)) == -6
    assert world.run(WIDE(10)) == 90
    assert [call.item for call in world.calls(double)] == [None, *range(10)]


def test_outside_work_is_asked_about_when_it_is_due(world: World) -> None:
    assert world.run(OUTSIDE(7)) == 7
    assert world.now == DEFAULT_START + DAY
    assert [check.input for check in world.checks(handed_on)] == ["job 7"]


def test_a_run_that_fails_says_so(world: World) -> None:
    world.stub(double).fails(ValueError("no"))
    with pytest.raises(RunFailedError, match="ValueError: no"):
        world.run(SHORT(1))


def test_a_failed_attempt_is_logged_with_where_it_failed(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "holdfast.testing")
    run = world.start(SLOW(3), id="r")
    run.result()

    assert len(caplog.records) == 2
    text = caplog.records[0].getMessage()
    assert text.startswith("stage stumble of run r failed at attempt 1:")
    assert 'raise ConnectionError(f"attempt {ctx.attempt}")' in text
    assert "bodies.py" not in text


def test_what_a_test_wants_to_stop_with_is_no_failure_of_a_stage(world: World) -> None:
    def interrupt(_: object) -> int:
        raise KeyboardInterrupt

    world.stub(double).does(interrupt)
    with pytest.raises(KeyboardInterrupt):
        world.run(SHORT(1))


def test_workflows_need_not_be_named_but_for_code_that_takes_the_engine() -> None:
    async def use(engine: Engine) -> int:
        run = await engine.start(SHORT(4))
        return await run.result(timeout=DAY)

    with World() as world, pytest.raises(HoldfastError):
        asyncio.run(use(world.engine))
    with World([SHORT]) as world:
        assert asyncio.run(use(world.engine)) == -8
        assert world.engine.sync.run(SHORT(1)) == -2


def test_workflows_that_are_met_later_leave_earlier_runs_as_they_are(world: World) -> None:
    first = world.start(SLOW(3))
    world.advance(hours=1)
    second = world.start(SHORT(1))

    assert second.result() == -2
    assert first.result() == 6
    assert first.rerun_from(double).generation == 2
    assert first.result() == 6


def test_runs_with_a_queue_of_their_own_are_run(world: World) -> None:
    assert world.run(SHORT(1), queue="elsewhere") == -2


def test_runs_that_wait_for_a_slot_get_it(world: World) -> None:
    runs = [world.start(SLOW(n), concurrency=Concurrency("one")) for n in (1, 2)]
    world.work()
    assert [run.info().status for run in runs] == ["running", "pending"]
    assert [run.result() for run in runs] == [2, 4]
    assert world.now == DEFAULT_START + 6 * DAY


# Time passes when it is let ---------------------------------------------------------------------------------------


def test_nothing_is_done_before_time_is_let_pass(world: World) -> None:
    run = world.start(SHORT(1))
    assert not world.calls(double)
    world.work()
    assert run.info().status == "completed"
    assert world.now == DEFAULT_START


def test_advance_does_what_becomes_due_at_its_time_and_stops_in_time(world: World) -> None:
    run = world.start(SLOW(3))

    world.advance(days=2, hours=12)
    assert len(world.calls(stumble)) == 2
    assert world.now == DEFAULT_START + 2.5 * DAY

    world.advance(timedelta(hours=12), seconds=-1)
    assert len(world.calls(stumble)) == 2
    world.advance(seconds=1)
    assert run.info().status == "completed"
    assert world.calls(stumble)[2].at == world.now == DEFAULT_START + 3 * DAY


def test_time_does_not_run_backwards(world: World) -> None:
    with pytest.raises(ValueError, match="invalid duration"):
        world.advance(hours=-1)


def test_run_until_quiet_leaves_nothing_to_do(world: World) -> None:
    runs = [world.start(SLOW(1)), world.start(SHORT(1), start_at=DEFAULT_START + 30 * DAY)]
    world.run_until_quiet()
    assert [run.info().status for run in runs] == ["completed", "completed"]
    assert world.now == DEFAULT_START + 30 * DAY


def test_what_is_never_quiet_is_told(world: World) -> None:
    world.stub_check(handed_on).returns(NotReady())
    world.start(OUTSIDE(1))
    with pytest.raises(RunStuckError, match=r"after 3 days.*jobs or timers are still left"):
        world.run_until_quiet(within=3 * DAY)


def test_runs_begin_and_end_when_they_were_told_to(world: World) -> None:
    later = world.start(SHORT(1), start_at=DEFAULT_START + DAY)
    overdue = world.start(SLOW(1), deadline=timedelta(hours=30))

    world.advance(hours=23)
    assert later.info().status == "pending"
    world.advance(hours=1)
    assert later.info().status == "completed"
    with pytest.raises(RunFailedError, match="deadline"):
        overdue.result()
    assert world.now == DEFAULT_START + timedelta(hours=30)


def test_a_result_is_waited_for_as_long_as_was_said(world: World) -> None:
    run = world.start(SLOW(1))
    with pytest.raises(TimeoutError):
        run.result(timeout=2 * DAY)
    assert world.now == DEFAULT_START + 2 * DAY
    assert run.result(timeout=2 * DAY) == 2


def test_what_does_not_end_by_itself_says_what_it_waits_for(world: World) -> None:
    run = world.start(SLOW(1))
    run.pause()
    with pytest.raises(RunStuckError, match=r"(?s)and no timer is left that would end it.*was paused"):
        run.result()
    run.resume()
    assert run.result() == 2


def test_what_goes_on_for_ever_is_waited_for_up_to_a_horizon() -> None:
    with World(horizon=10 * DAY) as world:
        checks = world.stub_check(handed_on).returns(NotReady())
        run = world.start(OUTSIDE(1), id="r")
        with pytest.raises(RunStuckError, match="run 'r' has not ended, after 10 days"):
            run.result()
        assert len(checks.calls) == 10


def test_the_clock_begins_where_it_is_told() -> None:
    start = datetime(2030, 5, 1, tzinfo=UTC)
    with World(start=start) as world:
        run = world.start(SHORT(1))
        assert run.info().created_at == start == world.now


def test_two_worlds_are_the_same_to_the_id_and_two_seeds_are_not() -> None:
    def ids(seed: int) -> list[str]:
        with World(ids=seed) as world:
            return [world.start(SHORT(n)).id for n in (1, 2)]

    assert ids(1) == ids(1)
    assert ids(1) != ids(2)


# What will be, and what was ---------------------------------------------------------------------------------------


def test_what_is_asleep_says_until_when_and_why(world: World) -> None:
    retried = world.start(SLOW(1), id="retried")
    world.start(OUTSIDE(2), id="checked")
    world.start(SHORT(3), id="begun", start_at=DEFAULT_START + 3 * DAY)
    world.advance(hours=12)
    told = [(one.run_id, one.stage, one.why, one.until - DEFAULT_START) for one in world.asleep()]

    assert told == [
        ("checked", "hand_on", "check", DAY),
        ("retried", "stumble", "retry", DAY),
        ("begun", None, "start", 3 * DAY),
    ]
    assert [one.run_id for one in world.asleep(retried)] == ["retried"]


def test_outside_work_can_be_woken(world: World) -> None:
    run = world.start(OUTSIDE(5))
    world.work()
    world.wake("key-5")
    world.work()
    assert run.result() == 5
    assert world.now == DEFAULT_START


def test_inputs_of_calls_are_what_they_were_then(world: World) -> None:
    @stage
    def spoil(xs: list[int]) -> int:
        xs.clear()
        return 0

    world.run(Pipeline("spoiling", input=list[int]).pipe(spoil)([1, 2]))
    assert [call.input for call in world.calls(spoil)] == [[1, 2]]


def test_published_events_are_told_and_brought_to_sinks() -> None:
    @stage
    def tell(ctx: StageContext, x: int) -> int:
        ctx.publish("told", {"x": x})
        ctx.publish("more", {})
        return x

    telling = Pipeline("telling", input=int).pipe(tell)
    sink = MemorySink()
    with World(sinks={"crm": sink}) as world:
        world.engine.sync.register_sink("crm")
        world.run(telling(1))
        world.run(telling(2))
        world.run_until_quiet()

        assert [event.data for event in world.published("told")] == [{"x": 1}, {"x": 2}]
        assert len(world.published()) == 4
        assert [event.type for event in sink.events].count("user.told") == 2


def test_large_values_go_to_the_blob_store_as_in_production(world: World) -> None:
    @stage
    def grow(x: int) -> str:
        return "x" * x

    assert len(world.run(Pipeline("growing", input=int).pipe(grow)(100_000))) == 100_000
    assert len(list(world.blobs.list(""))) == 1


# Within bodies ----------------------------------------------------------------------------------------------------


@stage(timeout=timedelta(minutes=2), retry=Retry(attempts=1))
async def doze(seconds: int) -> int:
    await asyncio.sleep(seconds)
    return seconds


DOZE = Pipeline("doze", input=int).pipe(doze)


def test_async_bodies_sleep_without_waiting(world: World) -> None:
    assert world.run(DOZE(100)) == 100
    assert world.now == DEFAULT_START + timedelta(seconds=100)


def test_async_bodies_time_out_without_waiting(world: World) -> None:
    with pytest.raises(RunFailedError, match=r"took longer than 0:02:00"):
        world.run(DOZE(1_000_000))
    assert world.now == DEFAULT_START + timedelta(minutes=2)


def test_async_bodies_share_an_event_loop(world: World) -> None:
    loops: list[object] = []

    async def look(x: int) -> int:
        loops.append(asyncio.get_running_loop())
        return x

    world.stub(negate).does(look)
    world.run(SHORT(1))
    world.run(SHORT(1))
    assert len(loops) == 2
    assert loops[0] is loops[1]


@pytest.mark.parametrize("call", [to_thread.run_sync, asyncio.to_thread])
def test_a_thread_that_an_async_body_waits_for_is_waited_for_in_real_time(world: World, call: Any) -> None:
    def work() -> int:
        time.sleep(0.1)
        return 7

    async def in_time(_: int) -> int:
        with anyio.fail_after(1_000_000):
            return int(await call(work))

    async def too_late(_: int) -> int:
        with anyio.fail_after(0.01):
            return int(
                await call(work, abandon_on_cancel=True) if call is to_thread.run_sync else await call(work)
            )

    world.stub(negate).does(in_time)
    assert world.run(SHORT(1)) == 7
    assert world.now < DEFAULT_START + DAY
    world.stub(negate).does(too_late)
    with pytest.raises(RunFailedError, match="TimeoutError"):
        world.run(SHORT(1))


def test_idle_threads_do_not_make_time_real(world: World) -> None:
    async def threads_then_sleep(x: int) -> int:
        await to_thread.run_sync(int)
        await asyncio.to_thread(int)
        await asyncio.sleep(100_000)
        return x

    world.stub(negate).does(threads_then_sleep)
    assert world.run(SHORT(1)) == 2
    assert world.now >= DEFAULT_START + timedelta(seconds=100_000)


def test_sync_bodies_run_in_the_thread_of_the_test_and_may_have_a_loop(world: World) -> None:
    threads: list[threading.Thread] = []

    async def nothing() -> int:
        return 5

    def look(_: int) -> int:
        threads.append(threading.current_thread())
        return asyncio.run(nothing())

    world.stub(double).does(look)
    assert world.run(SHORT(1)) == -5
    assert threads == [threading.current_thread()]


def test_a_stage_sees_its_context_its_logs_and_earlier_outputs(world: World) -> None:
    @stage
    async def look(ctx: StageContext, x: int) -> int:
        ctx.log("seen", x=x)
        return ctx.output_of(double) + await ctx.aio.output_of(double)

    run = world.start(Pipeline("looking", input=int).pipe(double).pipe(look)(3))
    assert run.result() == 12
    assert [(line.message, line.fields) for line in run.logs()] == [("seen", {"x": 6})]


@pytest.mark.parametrize("body", [double, negate], ids=["sync", "async"])
def test_what_libraries_log_while_a_body_runs_goes_to_its_log(world: World, body: Stage[int, int]) -> None:
    logger = logging.getLogger("library")
    handler = AttemptLogHandler()
    logger.addHandler(handler)
    pipeline = Pipeline("logging", input=int).pipe(body)

    async def speak(x: int) -> int:
        logger.warning("one moment")
        return x

    def speak_now(x: int) -> int:
        logger.warning("one moment")
        return x

    world.stub(body).does(speak if body is negate else speak_now)
    try:
        run = world.start(pipeline(1))
        run.result()
    finally:
        logger.removeHandler(handler)
    assert [line.message for line in run.logs()] == ["one moment"]


# Async tests ------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_async_tests_can_use_the_same_world(world: World) -> None:
    run = world.start(SLOW(3))
    world.advance(days=1)
    assert run.result() == 6
    assert world.run(SHORT(1)) == -2


@pytest.mark.anyio
async def test_async_tests_can_have_bodies_on_their_own_loop(world: World) -> None:
    here: list[bool] = []
    lock = anyio.Lock()

    async def look(x: int) -> int:
        async with lock:
            here.append(threading.current_thread() is thread)
        return x

    thread = threading.current_thread()
    world.stub(negate).does(look)
    run = world.start(SHORT(3))
    await world.aio.work()
    assert run.info().status == "completed"
    slow = world.start(SLOW(3))
    await world.aio.advance(days=1)
    assert len(world.calls(stumble)) == 2
    await world.aio.run_until_quiet()
    assert slow.info().status == "completed"
    assert await world.aio.run(PARENT(1)) == 2
    assert await world.aio.result(run) == 6
    assert here == [True, True]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_cancelled_run_ends_so(world: World) -> None:
    run = world.start(SLOW(3))
    world.work()
    run.cancel(reason="enough")
    with pytest.raises(RunCancelledError, match="enough"):
        run.result()
    world.run_until_quiet()
    assert len(world.calls(stumble)) == 1
