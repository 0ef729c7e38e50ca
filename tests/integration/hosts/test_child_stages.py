"""Pipelines with child runs as stages, and with conditions, on every store."""

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal, cast

import attrs
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.completion_policies import (
    AtLeast,
    ItemFailure,
    PartialResults,
    TolerateFailures,
)
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.external import NotReady, Suspended, suspend
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.invariants import check
from holdfast.ports.errors import OutputMissingError, RunCancelledError, RunFailedError
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until

SOON = timedelta(minutes=2)
NEVER = timedelta(days=1)
LARGE = 100_000

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


@stage
def double(number: int) -> int:
    return 2 * number


@stage
def repeat(number: int) -> str:
    return "x" * number


@stage
def size(text: str) -> int:
    return len(text)


@stage(retry=Retry(attempts=1))
def risky(number: int) -> int:
    if number % 3 == 0:
        raise ValueError(f"{number} is no number for this")
    return number


@stage.external
def stand(ctx: StageContext, number: int) -> Suspended[int, int]:
    return suspend(number, check_after=NEVER, key=f"stand-{number}")


@stand.check
def stood(ctx: StageContext, number: int) -> int | NotReady:
    return number


WIDENS = Pipeline("widens", input=int).pipe(repeat)
FAILS = Pipeline("fails", input=int).pipe(risky)
STANDS = Pipeline("stands", input=int).pipe(stood)


def sound(engine: Engine) -> None:
    assert check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


def standing(engine: Engine) -> int:
    """Return the number of children that have submitted their work."""
    runs = [engine.sync.handle(STANDS, info.id) for info in engine.sync.runs(workflow="stands")]
    return sum(event.type == "stage.suspended" for run in runs for event in run.history())


def status_of(engine: Engine, id: str) -> str:
    return engine.sync.handle(STANDS, id).info().status


@pytest.mark.slow
async def test_a_run_with_all_of_it(open_engine: OpenEngine) -> None:
    ran: Counter[str] = Counter()

    @attrs.frozen
    class Order:
        numbers: list[int]
        express: bool

    @stage
    def hurry(order: Order) -> Order:
        ran["hurry"] += 1
        return order

    @stage
    def numbers(order: Order) -> list[int]:
        ran["numbers"] += 1
        return order.numbers

    @stage.external
    def hand_on(ctx: StageContext, part: PartialResults[int]) -> Suspended[list[int], int]:
        ran["hand_on"] += 1
        assert part.failures == (ItemFailure(2, "ValueError: 3 is no number for this"),), part
        return suspend(list(part.results), check_after=timedelta(milliseconds=20))

    @hand_on.check
    async def handed_on(ctx: StageContext, numbers: list[int]) -> int | NotReady:
        ran["check"] += 1
        return NotReady() if ran["check"] < 3 else sum(numbers)

    pipeline = (
        Pipeline("all", input=Order)
        .when(lambda order: order.express, hurry)
        .pipe(numbers)
        .map(risky, enough=TolerateFailures(count=1))
        .pipe(handed_on)
        .pipe(stage(WIDENS))
        .pipe(size)
    )
    engine = open_engine(pipeline)
    async with Worker(engine):
        assert await engine.run(pipeline(Order([1, 2, 3, 4], True)), id="x") == 7
        assert ran == {"hurry": 1, "numbers": 1, "hand_on": 1, "check": 3}
        assert await engine.run(pipeline(Order([5, 2, 3], False)), id="y") == 7

    assert ran == {"hurry": 1, "numbers": 2, "hand_on": 2, "check": 4}
    sound(engine)


# Children -------------------------------------------------------------------------------------------------------


async def test_a_stage_is_a_run_of_its_own(open_engine: OpenEngine) -> None:
    pipeline = Pipeline("w", input=int).pipe(stage(WIDENS)).pipe(size)
    engine = open_engine(pipeline)
    async with Worker(engine):
        assert await engine.run(pipeline(LARGE), id="x") == LARGE  # what it gave is no inline value

    child = engine.sync.handle(WIDENS, "x/widens")
    assert child.result() == "x" * LARGE
    assert child.info().workflow == "widens"
    types = [(event.type, event.stage) for event in engine.sync.handle(pipeline, "x").history()]
    assert types == [
        ("run.created", None),
        ("stage.started", "widens"),
        ("stage.completed", "widens"),
        ("stage.completed", "size"),
        ("run.completed", None),
    ]
    sound(engine)


@pytest.mark.slow
async def test_a_map_over_children_over_children(open_engine: OpenEngine) -> None:
    middle = Pipeline("middle", input=int).pipe(double).pipe(stage(WIDENS))
    outer = Pipeline("outer", input=list[int]).map(stage(middle), limit=2)
    engine = open_engine(outer)
    async with Worker(engine):
        assert await engine.run(outer([1, 2, 3]), id="x") == ["xx", "xxxx", "xxxxxx"]

    ids = {info.id for info in engine.sync.runs()}
    items = [f"x/middle/{item}" for item in range(3)]
    assert ids == {"x", *items, *(f"{item}/widens" for item in items)}
    sound(engine)


async def test_a_child_that_fails_fails_its_parent_which_says_which_it_was(open_engine: OpenEngine) -> None:
    pipeline = Pipeline("w", input=int).pipe(stage(FAILS))
    engine = open_engine(pipeline)
    async with Worker(engine):
        with pytest.raises(RunFailedError, match=r"run 'x/fails' failed: 3 is no number for this"):
            await engine.run(pipeline(3), id="x")

    assert status_of(engine, "x/fails") == "failed"
    failed = [event for event in engine.sync.handle(pipeline, "x").history() if event.type == "stage.failed"]
    (event,) = failed
    assert event.data["run"] == "x/fails"
    sound(engine)


async def test_a_child_that_is_cancelled_fails_its_parent(open_engine: OpenEngine) -> None:
    pipeline = Pipeline("w", input=int).pipe(stage(STANDS))
    engine = open_engine(pipeline)
    async with Worker(engine):
        run = await engine.start(pipeline(4), id="x")
        await until(lambda: len(list(engine.sync.runs(workflow="stands"))) == 1)
        engine.sync.handle(STANDS, "x/stands").cancel(reason="not wanted")
        with pytest.raises(RunFailedError, match=r"run 'x/stands' cancelled: not wanted"):
            await run.result(timeout=SOON)
    sound(engine)


@pytest.mark.slow
async def test_maps_may_lose_children(open_engine: OpenEngine) -> None:
    pipeline = Pipeline("w", input=list[int]).map(stage(FAILS), enough=TolerateFailures(share=0.5))
    engine = open_engine(pipeline)
    async with Worker(engine):
        part = await engine.run(pipeline([1, 3, 5, 6]), id="x")
        with pytest.raises(RunFailedError, match="x2/fails"):
            await engine.run(pipeline([3, 6, 9, 1]), id="x2")

    assert part.results == (1, 5)
    assert [failure.index for failure in part.failures] == [1, 3]
    assert "run 'x/fails/1' failed: 3 is no number for this" in part.failures[0].error
    sound(engine)


@pytest.mark.slow
async def test_a_map_that_has_enough_gives_up_the_children_that_are_left(open_engine: OpenEngine) -> None:
    pipeline = Pipeline("w", input=list[int]).map(stage(STANDS), enough=AtLeast(1))
    engine = open_engine(pipeline)
    async with Worker(engine):
        run = await engine.start(pipeline([7, 8, 9]), id="x")
        await until(lambda: standing(engine) == 3)
        engine.sync.wake("stand-8")
        part = await run.result(timeout=SOON)
        assert part == PartialResults(results=(8,), failures=())
        children = [f"x/stands/{item}" for item in range(3)]
        wanted = ["cancelled", "completed", "cancelled"]
        await until(lambda: [status_of(engine, child) for child in children] == wanted)
    sound(engine)


@pytest.mark.parametrize("how", ["cancel", "terminate"])
@pytest.mark.parametrize(
    ("policy", "wanted"), [("cancel", "cancelled"), ("terminate", "cancelled"), ("abandon", "running")]
)
async def test_a_parent_that_ends_ends_its_children_or_lets_them_go(
    open_engine: OpenEngine, policy: Literal["cancel", "terminate", "abandon"], wanted: str, how: str
) -> None:
    pipeline = Pipeline("w", input=list[int]).map(stage(close_policy=policy)(STANDS))
    engine = open_engine(pipeline)
    async with Worker(engine):
        run = engine.sync.start(pipeline([7, 8]), id="x")
        children = ("x/stands/0", "x/stands/1")
        await until(lambda: standing(engine) == 2)
        run.cancel() if how == "cancel" else run.terminate()
        with pytest.raises(RunCancelledError):
            await engine.handle(pipeline, "x").result(timeout=SOON)
        await until(lambda: [status_of(engine, child) for child in children] == [wanted] * 2)
        if policy == "abandon":
            for number, child in zip((7, 8), children, strict=True):
                engine.sync.wake(f"stand-{number}")
                assert await engine.handle(STANDS, child).result(timeout=SOON) == number
    assert run.info().status == "cancelled"
    sound(engine)


@pytest.mark.slow
async def test_cancelling_goes_all_the_way_down(open_engine: OpenEngine) -> None:
    middle = Pipeline("middle", input=int).pipe(stage(STANDS))
    outer = Pipeline("outer", input=int).pipe(stage(middle))
    engine = open_engine(outer)
    async with Worker(engine):
        run = engine.sync.start(outer(7), id="x")
        await until(lambda: standing(engine) == 1)
        run.cancel()
        await until(lambda: [info.status for info in engine.sync.runs()] == ["cancelled"] * 3)
    sound(engine)


async def test_an_id_that_is_taken_by_a_stranger_fails_the_stage(open_engine: OpenEngine) -> None:
    pipeline = Pipeline("w", input=int).pipe(stage(WIDENS))
    engine = open_engine(pipeline)
    async with Worker(engine):
        await engine.run(WIDENS(3), id="x/widens")
        with pytest.raises(RunFailedError, match="there is a run 'x/widens' already"):
            await engine.run(pipeline(4), id="x")
    assert engine.sync.handle(WIDENS, "x/widens").result() == "xxx"
    sound(engine)


# Choices --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "wanted"), [(1, 10), (5, 10)])
async def test_one_of_two_is_done(open_engine: OpenEngine, given: int, wanted: int) -> None:
    ran: list[str] = []

    @stage
    def up(number: int) -> int:
        ran.append("up")
        return number + 9

    @stage
    def twice(number: int) -> int:
        ran.append("twice")
        return 2 * number

    def is_small(number: int) -> bool:
        ran.append("test")
        return number < 3

    pipeline = Pipeline("w", input=int).when(is_small, up, otherwise=twice)
    engine = open_engine(pipeline)
    async with Worker(engine):
        assert await engine.run(pipeline(given), id="x") == wanted

    assert ran == ["test", "up" if given < 3 else "twice"]
    sound(engine)


def _says(answer: object) -> Callable[[int], Any]:
    return lambda number: answer


def _raises(number: int) -> bool:
    raise KeyError("no such thing")


@pytest.mark.parametrize(
    ("test", "problem"),
    [
        (_says(1), "the result of the condition of stage 'double'"),
        (_says(None), "the result of the condition of stage 'double'"),
        (_says("yes"), "the result of the condition of stage 'double'"),
        (_raises, "no such thing"),
    ],
    ids=["a number", "nothing", "a text", "raises"],
)
async def test_a_test_that_does_not_say_yes_or_no_fails_the_run(
    open_engine: OpenEngine, test: Callable[[int], Any], problem: str
) -> None:
    pipeline = Pipeline("w", input=int).when(test, double.options(retry=Retry(attempts=1)))
    engine = open_engine(pipeline)
    async with Worker(engine):
        with pytest.raises(RunFailedError, match=problem):
            await engine.run(pipeline(3), id="x")
    sound(engine)


async def test_what_earlier_stages_gave_that_were_skipped_or_were_children(open_engine: OpenEngine) -> None:
    child = cast("Any", stage(WIDENS))

    @stage(retry=Retry(attempts=1))
    async def look(ctx: StageContext, text: str) -> list[str]:
        with pytest.raises(OutputMissingError, match="double"):
            ctx.output_of(double)
        assert ctx.output_of(double, None) is None
        assert ctx.output_of(double.options(name="done")) == 6
        assert await ctx.aio.output_of(child) == text
        return [ctx.output_of(child), text]

    pipeline = (
        Pipeline("w", input=int)
        .when(lambda number: number > 3, double)
        .when(lambda number: number == 3, double.options(name="done"))
        .pipe(child)
        .pipe(look)
    )
    engine = open_engine(pipeline)
    async with Worker(engine):
        assert await engine.run(pipeline(3), id="x") == ["xxxxxx"] * 2
    skipped = [event.stage for event in engine.sync.handle(pipeline, "x").history() if "skip" in event.type]
    assert skipped == ["double"]
    sound(engine)


@pytest.mark.slow
async def test_why_says_that_nobody_has_the_code_of_a_child(open_engine: OpenEngine, url: str) -> None:
    """A child got a new version and its parent did not, so old workers claim jobs whose child they cannot start."""
    if url == "memory://":
        pytest.skip("two engines in memory have two stores")
    newer = Pipeline("widens", version="2", input=int).pipe(repeat)
    parent = Pipeline("w", input=int).pipe(stage(newer)).pipe(size)
    run = open_engine(parent).sync.start(parent(1))
    old = open_engine(Pipeline("w", input=int).pipe(stage(WIDENS)).pipe(size))
    async with Worker(old):
        await until(lambda: any(reason.code == "no_code" for reason in run.why()))

    assert "widens@2" in run.why()[0].text
