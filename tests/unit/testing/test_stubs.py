"""Stubs are treated like the stages that they replace."""

import logging
from collections.abc import Iterator
from datetime import timedelta

import attrs
import pytest

from holdfast import GiveUp, NotReady, Pipeline, Retry, StageContext, Suspended, stage, suspend
from holdfast.ports.errors import InvalidArgumentError, RunFailedError
from holdfast.testing import World


@pytest.fixture
def world(caplog: pytest.LogCaptureFixture) -> Iterator[World]:
    caplog.set_level(logging.ERROR, "holdfast.testing")
    with World() as world:
        yield world


@attrs.frozen
class Order:
    id: str
    cents: int


@stage(retry=Retry(attempts=4, wait=timedelta(hours=1)))
def charge(ctx: StageContext, order: Order) -> str:
    return f"{order.id} charged at attempt {ctx.attempt}"


@stage
def join(left: str, right: int) -> str:
    return f"{left}{right}"


@stage
def now() -> int:
    return 1


@stage.external
def render(ctx: StageContext, film: str) -> Suspended[str, str]:
    return suspend(f"job of {film}", check_after=timedelta(hours=1))


@render.check
def rendered(ctx: StageContext, job: str) -> str | NotReady:
    return f"{job} is done"


CHARGING = Pipeline("charging", input=Order).pipe(charge)
RENDERING = Pipeline("rendering", input=str).pipe(rendered)
ORDER = Order("a", 5)


def test_values_are_given_one_a_call_and_the_last_from_then_on(world: World) -> None:
    stub = world.stub(charge).returns("one", "two")
    assert [world.run(CHARGING(ORDER)) for _ in range(4)] == ["one", "two", "two", "two"]
    assert len(stub.calls) == 4


def test_failures_are_counted_and_then_comes_what_follows(world: World) -> None:
    stub = world.stub(charge).fails(ConnectionError, times=2).returns("paid")
    assert world.run(CHARGING(ORDER)) == "paid"
    assert [call.attempt for call in stub.calls] == [1, 2, 3]
    assert [call.input for call in stub.calls] == [ORDER] * 3


def test_after_the_last_comes_the_stage_itself(world: World) -> None:
    world.stub(charge).fails(ConnectionError("away"), times=2)
    assert world.run(CHARGING(ORDER)) == "a charged at attempt 3"
    assert world.run(CHARGING(ORDER)) == "a charged at attempt 1"


def test_the_stage_itself_can_come_first(world: World) -> None:
    world.stub(charge).calls_stage(times=1).returns("stub")
    assert [world.run(CHARGING(ORDER)) for _ in range(2)] == ["a charged at attempt 1", "stub"]


def test_a_failure_for_ever_uses_up_all_attempts(world: World) -> None:
    stub = world.stub(charge).fails(ConnectionError("away"))
    with pytest.raises(RunFailedError, match="attempt 4: ConnectionError: away"):
        world.run(CHARGING(ORDER))
    assert len(stub.calls) == 4


def test_errors_are_treated_as_those_of_bodies(world: World) -> None:
    stub = world.stub(charge).fails(GiveUp("no use"))
    with pytest.raises(RunFailedError, match="no use"):
        world.run(CHARGING(ORDER))
    assert len(stub.calls) == 1


def test_a_function_is_given_what_the_stage_is_given(world: World) -> None:
    world.stub(charge).does(lambda order: f"{order.cents} cents")
    assert world.run(CHARGING(ORDER)) == "5 cents"

    async def pay(order: Order) -> str:
        return f"{order.cents} euros"

    world.stub(charge).does(pay)
    assert world.run(CHARGING(ORDER)) == "5 euros"


def test_what_a_stub_gives_is_checked(world: World) -> None:
    world.stub(charge).returns(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(RunFailedError, match="InvalidValueError"):
        world.run(CHARGING(ORDER))


def test_several_values_come_as_a_tuple_and_none_as_none(world: World) -> None:
    joining = Pipeline("joining", input=tuple[str, int]).pipe(join)
    world.stub(join).does(lambda both: f"{both[1]}{both[0]}")
    assert world.run(joining(("a", 1))) == "1a"
    assert [call.input for call in world.calls(join)] == [("a", 1)]

    asking = Pipeline("asking").pipe(now)
    given: list[object] = []

    def note(value: object) -> int:
        given.append(value)
        return 2

    world.stub(now).does(note)
    assert world.run(asking()) == 2
    assert given == [None]
    assert [call.input for call in world.calls(now)] == [None]


def test_a_stub_is_for_the_stage_of_its_name(world: World) -> None:
    again = charge.options(name="again")
    both = Pipeline("both", input=Order).parallel(charge, again)
    world.stub(again).returns("stub")
    assert world.run(both(ORDER)) == ("a charged at attempt 1", "stub")


def test_a_stub_is_for_a_stage_that_was_changed_in_the_pipeline(world: World) -> None:
    changed = Pipeline("changed", input=Order, queue="q").pipe(charge.options(timeout=timedelta(hours=1)))
    world.stub(charge).returns("stub")
    assert world.run(changed(ORDER)) == "stub"


def test_a_later_stub_takes_the_place_of_an_earlier_one(world: World) -> None:
    world.stub(charge).returns("first")
    world.stub(charge).returns("second")
    assert world.run(CHARGING(ORDER)) == "second"


def test_an_external_stage_is_done_at_once_or_suspended(world: World) -> None:
    world.stub(rendered).returns("film")
    assert world.run(RENDERING("x")) == "film"
    assert not world.checks(rendered)

    world.stub(rendered).does(lambda film: suspend(f"{film}!", check_after=timedelta(days=2)))
    assert world.run(RENDERING("x")) == "x! is done"
    assert [call.input for call in world.checks(rendered)] == ["x!"]


def test_an_external_stage_can_fail_and_be_a_coroutine(world: World) -> None:
    async def film(name: str) -> str:
        return name.upper()

    world.stub(rendered).fails(ConnectionError("busy"), times=1).does(film)
    assert world.run(RENDERING("x")) == "X"


def test_a_check_can_be_stubbed(world: World) -> None:
    stub = world.stub_check(rendered).returns(NotReady(), "film")
    assert world.run(RENDERING("x")) == "film"
    assert [call.input for call in stub.calls] == ["job of x"] * 2
    assert len(world.calls(rendered)) == 1


def test_items_of_a_map_are_calls_of_their_own(world: World) -> None:
    mapped = Pipeline("mapped", input=list[Order]).map(charge)
    stub = world.stub(charge).returns("one", "two")
    assert world.run(mapped([ORDER, ORDER, ORDER])) == ["one", "two", "two"]
    assert [call.item for call in stub.calls] == [0, 1, 2]


def test_what_can_not_be_stubbed_is_refused(world: World) -> None:
    with pytest.raises(TypeError, match="stub its stages"):
        world.stub(stage(CHARGING))
    with pytest.raises(TypeError, match="has no check"):
        world.stub_check(render)
    with pytest.raises(TypeError, match="returns needs at least one value"):
        world.stub(charge).returns()
    with pytest.raises(ValueError, match="would never be used"):
        world.stub(charge).returns("x").fails(ConnectionError)
    with pytest.raises(ValueError, match="times is 0"):
        world.stub(charge).fails(ConnectionError, times=0)


@rendered.cancel(retry=Retry(attempts=2, wait=timedelta(hours=1), jitter=0.0))
def cancelled(ctx: StageContext, job: str) -> None:
    pass


ENDLESS = Pipeline("endless", input=str).pipe(cancelled)


def test_what_cancels_external_work_is_called_after_the_end(world: World) -> None:
    run = world.start(ENDLESS("x"))
    world.work()
    run.cancel()
    assert not world.cancels(cancelled)

    world.work()
    (call,) = world.cancels(cancelled)
    assert (call.input, call.attempt) == ("job of x", 1)
    assert call.idempotency_key == world.calls(cancelled)[0].idempotency_key


def test_what_cancels_can_be_stubbed(world: World) -> None:
    stub = world.stub_cancel(cancelled).fails(ConnectionError, times=1).returns(None)
    run = world.start(ENDLESS("x"))
    world.work()
    run.cancel()
    world.run_until_quiet()

    assert [call.attempt for call in stub.calls] == [1, 2]
    assert [event.type for event in run.history()][-2:] == ["run.cancelled", "stage.cancelled"]


def test_what_is_not_there_can_not_be_stubbed(world: World) -> None:
    with pytest.raises(InvalidArgumentError, match="has no cancel function"):
        world.stub_cancel(rendered)
    with pytest.raises(InvalidArgumentError, match="has no cancel function"):
        world.cancels(rendered)
