"""A function whose result the store refuses fails and runs its compensations."""

from typing import cast

import pytest

from holdfast.adapters.memory.persistence import MemoryPersistence
from holdfast.kernel.authoring.functions import compensate_with, workflow
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.commands import Completed, Failed, Outcome
from holdfast.ports.errors import StepResultError, StorageRefusedError
from holdfast.ports.json import parse
from holdfast.ports.persistence import Persistence
from holdfast.ports.records.run import RunStatus
from holdfast.testing import replay
from tests.unit.hosts.attempt_harness import Bench
from tests.unit.kernel.dispatch.test_command_batches import Choosy

pytestmark = pytest.mark.anyio
DONE: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    DONE.clear()


@step
async def charge(order: str) -> str:
    DONE.append(f"charge {order}")
    return order


@step
async def refund(order: str) -> None:
    DONE.append(f"refund {order}")


@workflow
async def pays(order: str) -> str:
    compensate_with(refund, await charge(order))
    return "poi" + "son"


@workflow
async def miscounts(order: str) -> int:
    compensate_with(refund, await charge(order))
    return cast("int", object())


@workflow
async def boasts(_: str) -> str:
    return "poi" + "son"


async def driven(bench: Bench) -> Outcome:
    body = bench.body()
    outcome = await bench.run(body)
    assert bench.settle(body, outcome).status == "settled"
    return outcome


async def test_what_it_gives_is_no_value_of_its_type() -> None:
    bench = Bench(miscounts)
    bench.start(miscounts("a"))
    outcome = await driven(bench)

    assert isinstance(outcome, Failed)
    assert outcome.failure.type == "holdfast.ports.errors.InvalidValueError"
    assert DONE == ["charge a", "refund a"]


async def test_what_it_gives_is_refused_by_the_store() -> None:
    bench = Bench(pays, persistence=cast("Persistence", Choosy(MemoryPersistence())))
    bench.start(pays("a"), id="x")
    first = await driven(bench)
    assert isinstance(first, Completed)
    assert DONE == ["charge a"]
    assert bench.engine.sync.handle(pays, "x").info().status is RunStatus.RUNNING

    second = await driven(bench)
    run = bench.engine.sync.handle(pays, "x")
    error = parse(run.row().error or "")
    assert isinstance(second, Failed)
    assert DONE == ["charge a", "refund a"]
    assert (run.info().status, error["type"], error["message"]) == (
        RunStatus.FAILED,
        "holdfast.ports.errors.StorageRefusedError",
        "not in here",
    )


async def test_a_function_that_has_nothing_to_take_back_fails_all_the_same() -> None:
    bench = Bench(boasts, persistence=cast("Persistence", Choosy(MemoryPersistence())))
    bench.start(boasts("a"), id="x")
    outcomes = [await driven(bench), await driven(bench)]

    assert [type(one) for one in outcomes] == [Completed, Failed]
    assert bench.engine.sync.handle(boasts, "x").info().status is RunStatus.FAILED


async def test_its_history_is_replayed_as_it_went() -> None:
    bench = Bench(pays, persistence=cast("Persistence", Choosy(MemoryPersistence())))
    bench.start(pays("a"), id="x")
    for _ in range(2):
        await driven(bench)
    history = bench.engine.sync.handle(pays, "x").export_history()
    types = [row.type for row in history.rows]
    assert types.index("step.completed") < types.index("result.refused") < types.index("run.failed")
    assert types.count("step.completed") == 2

    assert isinstance(replay(history, pays).error, StorageRefusedError)


@step
async def pay(order: str) -> str:
    DONE.append(f"pay {order}")
    return "poi" + "son"


@pay.compensate
async def take_back(receipt: str | None, order: str) -> None:
    DONE.append(f"take back {order}, by {receipt}")


@step
async def miscount(order: str) -> int:
    DONE.append(f"count {order}")
    return cast("int", object())


@miscount.compensate
async def recount(number: int | None) -> None:
    DONE.append(f"recount {number}")
    return cast("None", object())


@workflow
async def goes_on_unpaid(order: str) -> None:
    try:
        await pay(order)
    except StepResultError as error:
        DONE.append(error.reason)
    raise ValueError("the shop is shut")


@workflow
async def goes_on_uncounted(order: str) -> None:
    try:
        await miscount(order)
    except StepResultError as error:
        DONE.append(error.reason.partition(":")[0])
    raise ValueError("the shop is shut")


async def test_a_step_whose_result_is_refused_was_done_and_is_taken_back() -> None:
    bench = Bench(goes_on_unpaid, persistence=cast("Persistence", Choosy(MemoryPersistence())))
    bench.start(goes_on_unpaid("a"), id="x")
    outcome = await driven(bench)

    assert isinstance(outcome, Failed)
    assert outcome.failure.message == "the shop is shut"
    assert DONE == ["pay a", "not in here", "take back a, by None"]
    history = bench.engine.sync.handle(goes_on_unpaid, "x").export_history()
    assert str(replay(history, goes_on_unpaid).error) == "the shop is shut"


async def test_a_step_that_gives_no_value_of_its_type_was_done_and_is_taken_back() -> None:
    """So is its compensation, whatever that returns: the run is not blocked for it."""
    bench = Bench(goes_on_uncounted)
    bench.start(goes_on_uncounted("a"), id="x")
    outcome = await driven(bench)

    assert isinstance(outcome, Failed)
    assert DONE == ["count a", "invalid value for int", "recount None"]
