"""A test world drives durable functions like workers, in controlled time."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from datetime import timedelta

import attrs
import pytest
from sqlalchemy import Connection

from holdfast.kernel.authoring.continue_as_new import continue_as_new
from holdfast.kernel.authoring.functions import now, sleep, uuid4, workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.step_context import step_context
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.invariants import check
from holdfast.ports.errors import InvalidArgumentError, RunCancelledError, RunFailedError
from holdfast.ports.json import parse
from holdfast.testing import Asleep, RunStuckError, World

DAY = timedelta(days=1)


@pytest.fixture
def world(caplog: pytest.LogCaptureFixture) -> Iterator[World]:
    caplog.set_level(logging.ERROR, "holdfast")
    with World() as world:
        yield world
    assert not check(world.store.dump())


@attrs.frozen
class Order:
    id: str
    cents: int


class DeclinedError(Exception):
    """The bank declined."""


@step(retry=Retry(attempts=3, wait=DAY, backoff=2.0, wait_max=10 * DAY, jitter=0.0))
async def charge(order: Order, *, currency: str = "EUR") -> str:
    raise ConnectionError("there is no bank in a test")


@step
def pack(what: str, *more: str) -> list[str]:
    return [what, *more]


@workflow
async def fulfil(order: Order) -> list[str]:
    receipt = await charge(order)
    return await pack(receipt, "thanks")


@workflow
async def serve(customer: str, days: int = 3) -> str:
    await charge(Order(customer, 1))
    await sleep(300 * DAY)
    return await continue_as_new(serve(customer, days - 1)) if days else customer


def test_a_function_that_goes_on_for_years_is_over_at_once(world: World) -> None:
    world.stub(charge).returns("paid")
    run = world.start(serve("Ann"))
    assert run.result() == "Ann"
    assert run.info().generation == 4
    assert len(world.calls(charge)) == 4


@workflow
async def remind(after: timedelta) -> list[str]:
    began = now()
    await sleep(after)
    await pack("letter")
    return [str(now() - began), str(uuid4())]


@step(retry=Retry(attempts=30, wait=DAY, backoff=2.0, wait_max=3 * DAY, jitter=1.0))
async def dial(number: str) -> str:
    raise ConnectionError(f"{number} does not answer")


@workflow
async def call_up(number: str) -> str:
    return await dial(number)


def test_a_step_waits_no_longer_than_its_longest_wait(world: World) -> None:
    with pytest.raises(RunFailedError):
        world.run(call_up("7"))

    (history,) = world.store.dump().history.values()
    rows = [row for row in history if row.type == "step.retrying"]
    waits = [timedelta(microseconds=parse(row.data or "")["retry_at"] - row.at) for row in rows]
    assert len(waits) == 29
    assert all(wait <= 3 * DAY for wait in waits)
    assert len(set(waits)) == 29


def test_a_stub_stands_in_for_a_step(world: World) -> None:
    charged = world.stub(charge).returns("receipt 7")
    assert world.run(fulfil(Order("a", 5))) == ["receipt 7", "thanks"]
    charged.assert_called_once_with(Order("a", 5))
    charged.assert_called_once_with(Order("a", 5), currency="EUR")
    (call,) = world.calls(pack)
    assert call.arguments == {"what": "receipt 7", "more": ("thanks",)}
    assert (call.workflow, call.step, call.attempt) == ("fulfil", "pack", 1)


@step.in_transaction
def book(db: Connection, seat: str, *, row: int = 1) -> str:
    raise AssertionError("there is no database in a test")


@workflow
async def travel(seat: str) -> str:
    return await book(seat, row=4)


def test_a_stub_stands_in_for_a_step_in_a_transaction_and_gets_no_connection(world: World) -> None:
    booked = world.stub(book).does(lambda seat, *, row=1: f"{seat}{row}")
    assert world.run(travel("a")) == "a4"
    booked.assert_called_once_with("a", row=4)


def test_without_a_stub_a_step_in_a_transaction_says_what_a_world_lacks(world: World) -> None:
    with pytest.raises(RunFailedError, match="can't run in a transaction"):
        world.run(travel("a"))


@step(heartbeat_timeout=timedelta(hours=1), retry=Retry(attempts=2, wait=timedelta(minutes=5), jitter=0.0))
async def count_pages(pages: int) -> list[object]:
    context = step_context()
    first = context.last_heartbeat(int, 0)
    for page in range(first, pages):
        context.heartbeat(page)
        await asyncio.sleep(1_800.0)
        if page == 5 and context.attempt == 1:
            await asyncio.sleep(36_000.0)
    return [context.attempt, first]


@workflow
async def index(pages: int) -> list[object]:
    began = now()
    return [*await count_pages(pages), str(now() - began)]


@pytest.mark.slow
def test_a_silent_step_is_lost_in_a_world_when_its_time_has_come(world: World) -> None:
    # It was last heard of after two and a half hours, and lost an hour later; then five minutes, and five half hours.
    assert world.run(index(10)) == [2, 5, "6:05:00"]


def test_what_was_asserted_of_calls_and_is_not_so_is_an_error_that_tells_of_them(world: World) -> None:
    charged = world.stub(charge).returns("receipt 7")
    with pytest.raises(AssertionError, match="expected one call of step 'charge', got 0"):
        charged.assert_called_once_with(Order("a", 5))
    charged.assert_not_called()
    world.run(fulfil(Order("a", 5)))
    with pytest.raises(
        AssertionError, match=r"with order=.*'USD', got order=Order.id='a', cents=5., currency='EUR'"
    ):
        charged.assert_called_once_with(Order("a", 5), currency="USD")
    with pytest.raises(
        AssertionError, match="expected no call of step 'charge', got 1\n- attempt 1, with order="
    ):
        charged.assert_not_called()
    world.run(fulfil(Order("b", 6)))
    with pytest.raises(AssertionError, match="expected one call of step 'charge', got 2\n"):
        charged.assert_called_once_with(Order("a", 5))


def test_a_step_that_fails_is_tried_again_when_its_time_has_come(world: World) -> None:
    charged = world.stub(charge).fails(ConnectionError("busy"), times=2).returns("receipt 7")
    run = world.start(fulfil(Order("a", 5)), id="x")
    world.work()
    assert run.info().status == "running"
    assert [reason.code for reason in run.why()] == ["retry"]
    assert world.asleep() == (
        Asleep(run_id="x", stage="fulfil", item=None, until=world.now + DAY, why="timer"),
    )
    world.advance(days=1)
    world.advance(days=2)
    assert run.result() == ["receipt 7", "thanks"]
    assert [call.attempt for call in charged.calls] == [1, 2, 3]
    assert charged.calls[2].at - charged.calls[0].at == 3 * DAY
    assert len({call.idempotency_key for call in charged.calls}) == 1


def test_a_step_that_fails_for_good_raises_in_the_function(world: World) -> None:
    @workflow
    async def careful(order: Order) -> str:
        try:
            return await charge(order)
        except DeclinedError as error:
            return f"declined: {error}"

    world.stub(charge).fails(DeclinedError("no funds"))
    assert world.run(careful(Order("a", 5))) == "declined: no funds"
    with pytest.raises(RunFailedError, match="no funds"):
        world.run(fulfil(Order("a", 5)))


def test_a_stub_does_what_it_is_told_sync_or_async(world: World) -> None:
    async def by_card(order: Order, *, currency: str = "EUR") -> str:
        await asyncio.sleep(3_600)
        return f"{order.id} {currency} {step_context().step}"

    def cash(order: Order, *, currency: str = "EUR") -> str:
        return f"cash {order.id}"

    world.stub(charge).does(by_card, times=1).does(cash)
    began = world.now
    assert world.run(fulfil(Order("a", 5))) == ["a EUR charge", "thanks"]
    assert timedelta(hours=1) <= world.now - began < timedelta(hours=1, seconds=1)
    assert world.run(fulfil(Order("b", 5))) == ["cash b", "thanks"]


def test_a_stub_gives_what_the_step_gives_or_fails_it(world: World) -> None:
    world.stub(charge).returns(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(RunFailedError, match="expected str, got int"):
        world.run(fulfil(Order("a", 5)))


def test_a_stub_knows_a_step_by_its_function_whatever_its_options_are(world: World) -> None:
    @workflow
    async def impatient(order: Order) -> str:
        return await charge.options(retry=Retry(attempts=1))(order)

    world.stub(charge).fails(ConnectionError, times=1).returns("receipt")
    with pytest.raises(RunFailedError):
        world.run(impatient(Order("a", 5)))
    assert len(world.calls(charge)) == 1


def test_what_a_stub_does_no_more_the_step_does_again(world: World) -> None:
    world.stub(charge).returns("receipt")
    world.stub(pack).calls_step(times=1).returns(["nothing"])
    assert world.run(fulfil(Order("a", 5))) == ["receipt", "thanks"]
    assert world.run(fulfil(Order("a", 5))) == ["nothing"]


def test_a_function_itself_has_no_body_to_stand_in_for(world: World) -> None:
    with pytest.raises(InvalidArgumentError, match="stub its steps"):
        world.stub(fulfil.bodies["fulfil"])
    with pytest.raises(InvalidArgumentError, match="a stage or a step"):
        world.stub(fulfil)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_a_sleep_is_over_when_the_clock_has_got_there(world: World) -> None:
    run = world.start(remind(30 * DAY))
    world.advance(days=29)
    assert run.info().status == "running"
    assert not world.calls(pack)
    (asleep,) = world.asleep(run)
    assert (asleep.why, asleep.until - world.now) == ("timer", DAY)
    world.advance(days=1)
    assert run.result()[0] == "30 days, 0:00:00"


def test_a_short_sleep_is_one_too(world: World) -> None:
    run = world.start(remind(timedelta(milliseconds=5)))
    world.work()
    assert run.info().status == "running"
    world.advance(seconds=1)
    assert run.result()[0] == "0:00:00.005000"


def test_a_timeout_is_raced_by_a_step(world: World) -> None:
    @step
    async def dawdle(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "done"

    @workflow
    async def race(seconds: float) -> str:
        try:
            async with asyncio.timeout(60):
                return await dawdle(seconds)
        except TimeoutError:
            return "late"

    assert world.run(race(59)) == "done"
    assert world.run(race(61)) == "late"


def test_the_same_world_does_the_same_each_time() -> None:
    def histories() -> list[object]:
        with World() as world:
            world.stub(charge).fails(ConnectionError("busy"), times=1).returns("receipt 7")
            runs = [world.start(fulfil(Order(str(number), 5))) for number in range(3)]
            runs_of_time = [world.start(remind(number * DAY)) for number in range(3)]
            world.run_until_quiet()
            return [[(row.at, row.type, row.data) for row in run.history()] for run in (*runs, *runs_of_time)]

    assert histories() == histories()


def test_steps_run_in_the_thread_of_the_test_and_may_run_a_loop_of_their_own(world: World) -> None:
    where: list[threading.Thread] = []

    @step
    def blocking() -> int:
        where.append(threading.current_thread())

        async def answer() -> int:
            return 42

        return asyncio.run(answer())

    @workflow
    async def asking() -> int:
        return await blocking()

    assert world.run(asking()) == 42
    assert where == [threading.current_thread()]


def test_a_step_may_end_its_own_run(world: World) -> None:
    @step
    def end() -> None:
        run.terminate()

    @workflow
    async def ending() -> list[str]:
        await end()
        return await pack("never")

    run = world.start(ending())
    world.work()
    assert not world.calls(pack)
    with pytest.raises(RunCancelledError):
        run.result()


def test_a_paused_function_starts_nothing_until_it_is_resumed(world: World) -> None:
    world.stub(charge).returns("receipt")
    run = world.start(fulfil(Order("a", 5)))
    run.pause()
    world.advance(days=3)
    assert not world.calls(charge)
    run.resume()
    assert run.result() == ["receipt", "thanks"]


def test_a_function_that_waits_for_nothing_is_stuck_and_says_so(world: World) -> None:
    @workflow
    async def waits_for_nothing() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RunStuckError, match="can never happen"):
        world.run(waits_for_nothing())


def test_an_async_test_has_steps_run_on_its_own_loop(world: World) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()

        async def pay(order: Order, *, currency: str = "EUR") -> str:
            assert asyncio.get_running_loop() is loop
            return currency

        world.stub(charge).does(pay)
        assert await world.aio.run(fulfil(Order("a", 5))) == ["EUR", "thanks"]
        assert (await world.aio.run(remind(30 * DAY)))[0] == "30 days, 0:00:00"

    asyncio.run(test())


def test_a_stage_of_a_world_is_told_from_a_step(world: World) -> None:
    world.stub(charge).returns("one")
    again = world.stub(charge).returns("two")
    assert world.run(fulfil(Order("a", 5)))[0] == "two"
    assert len(again.calls) == 1


@step(queue="gpu", retry=Retry(attempts=3, wait=timedelta(hours=1)))
async def embed(text: str) -> list[int]:
    raise AssertionError("there is no model here")


@workflow
async def index_text(text: str) -> int:
    return sum(await embed(text))


def test_a_step_of_a_queue_is_stubbed_and_tried_again_as_any() -> None:
    with World() as world:
        stub = world.stub(embed).fails(ConnectionError("away"), times=1).returns([3, 4])
        before = world.now
        run = world.start(index_text("ab"))
        world.work()
        (asleep,) = world.asleep()
        assert (asleep.stage, asleep.why) == ("embed", "retry")
        assert run.result() == 7
        assert [call.attempt for call in stub.calls] == [1, 2]
        assert dict(stub.calls[0].arguments) == {"text": "ab"}
        assert len({call.idempotency_key for call in stub.calls}) == 1
        assert timedelta(minutes=4) < world.now - before < timedelta(minutes=6)
