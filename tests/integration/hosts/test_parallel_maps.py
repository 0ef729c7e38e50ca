"""`parallel_map`: so many calls at a time, results in order, completion policies, and cancellations."""

import asyncio

import anyio
import pytest

from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.completion_policies import AtLeast, TolerateFailures
from holdfast.kernel.authoring.functions import sleep, workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.parallel_maps import parallel_map
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.invariants import check
from holdfast.ports.errors import InvalidArgumentError, RunCancelledError
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


class Load:
    """How many bodies are running, and the most that ever were."""

    now = 0
    most = 0
    begun = 0


@pytest.fixture(autouse=True)
def _no_load() -> None:
    Load.now = Load.most = Load.begun = 0


@step(retry=ONCE)
async def halve(number: int) -> float:
    Load.now += 1
    Load.begun += 1
    Load.most = max(Load.most, Load.now)
    try:
        await asyncio.sleep(0.01 * (number % 3))
        if number < 0:
            raise ValueError(f"{number} is negative")
        return number / 2
    finally:
        Load.now -= 1


@workflow
async def halves(numbers: list[int], limit: int | None) -> list[float]:
    return await parallel_map(halve, numbers, limit=limit)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, 3, 100, None])
async def test_results_are_in_the_order_of_the_items(open_engine: OpenEngine, limit: int | None) -> None:
    engine = open_engine(halves)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            assert await engine.run(halves([*range(20)], limit)) == [number / 2 for number in range(20)]
    assert Load.begun == 20
    assert Load.most <= (limit or 20)
    assert limit == 1 or Load.most > 1
    assert check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


async def test_of_no_items_there_are_no_results(open_engine: OpenEngine) -> None:
    engine = open_engine(halves)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            assert await engine.run(halves([], 3)) == []


@workflow
async def fragile(numbers: list[int]) -> str:
    try:
        await parallel_map(halve, numbers, limit=1)
    except ValueError as error:
        return f"{error}, {Load.now} under way"
    return "all"


async def test_the_first_failure_ends_a_map_without_a_policy(open_engine: OpenEngine) -> None:
    engine = open_engine(fragile)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            assert await engine.run(fragile([1, -1, *range(50)])) == "-1 is negative, 0 under way"
    assert Load.begun == 2


@workflow
async def tolerant(numbers: list[int], tolerated: int) -> tuple[list[float], list[tuple[int, str]]]:
    found = await parallel_map(halve, numbers, limit=4, enough=TolerateFailures(count=tolerated))
    return list(found.results), [(one.index, one.error) for one in found.failures]


@pytest.mark.slow
async def test_a_policy_tolerates_failures_and_tries_every_item(open_engine: OpenEngine) -> None:
    engine = open_engine(tolerant)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            results, failures = await engine.run(tolerant([4, -1, 2, -3, 6], 2))
    assert results == [2, 1, 3]
    assert failures == [(1, "ValueError: -1 is negative"), (3, "ValueError: -3 is negative")]


@workflow
async def intolerant(numbers: list[int]) -> list[str]:
    try:
        await parallel_map(halve, numbers, limit=1, enough=TolerateFailures(count=1))
    except ExceptionGroup as group:
        return [group.message, *map(str, group.exceptions)]
    return ["tolerated"]


async def test_more_failures_than_are_tolerated_end_the_map_with_their_errors(
    open_engine: OpenEngine,
) -> None:
    engine = open_engine(intolerant)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            found = await engine.run(intolerant([-1, 2, -3, *range(50)]))
    assert found == ["2 of 53 items have failed", "-1 is negative", "-3 is negative"]
    assert Load.begun == 3


@workflow
async def enough(numbers: list[int], wanted: int) -> int:
    return len((await parallel_map(halve, numbers, limit=2, enough=AtLeast(wanted))).results)


async def test_a_map_ends_when_enough_items_have_completed(open_engine: OpenEngine) -> None:
    engine = open_engine(enough)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            assert await engine.run(enough([-1, *range(100)], 5)) in {5, 6}
    assert Load.begun < 20


@workflow
async def wrong(what: str) -> str:
    numbers: list[int] = [1, 2]
    try:
        match what:
            case "limit":
                await parallel_map(halve, numbers, limit=0)
            case "items":
                await parallel_map(halve, 3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
            case "call":
                await parallel_map(3, numbers)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
            case _:
                await parallel_map(halve, numbers, enough=AtLeast(3))
    except InvalidArgumentError as error:
        return str(error)
    return "accepted"


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("limit", "limit is 0"),
        ("items", "must be a list of items"),
        ("call", "must be a step"),
        ("enough", "enough is AtLeast(count=3), but the number of items is 2"),
    ],
)
async def test_wrong_arguments_are_refused(open_engine: OpenEngine, what: str, why: str) -> None:
    engine = open_engine(wrong)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            assert why in await engine.run(wrong(what))


async def test_outside_of_a_function_there_is_no_map() -> None:
    with pytest.raises(RuntimeError, match="outside of a workflow"):
        await parallel_map(halve, [1])


@workflow
async def first_of(hours: list[int]) -> int:
    async def wait(hour: int) -> int:
        await sleep(3_600 * hour)
        return hour

    return (await parallel_map(wait, hours, enough=AtLeast(1))).results[0]


async def test_calls_that_are_not_needed_any_more_are_cancelled(open_engine: OpenEngine) -> None:
    engine = open_engine(first_of)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            assert await engine.run(first_of([5, 0, 7])) == 0


@workflow
async def endless(numbers: list[int]) -> list[float]:
    async def wait(number: int) -> float:
        await sleep(3_600)
        return number

    return await parallel_map(wait, numbers, limit=2)


async def test_a_cancelled_function_cancels_the_calls_of_its_map(open_engine: OpenEngine) -> None:
    engine = open_engine(endless)
    async with Worker(engine):
        run = await engine.start(endless([1, 2, 3]), id="x")
        await until(lambda: engine.sync.handle(endless, "x").why()[0].code != "queued")
        await run.cancel(reason="enough")
        with anyio.fail_after(SOON), pytest.raises(RunCancelledError, match="enough"):
            await run.result()
    assert check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []
