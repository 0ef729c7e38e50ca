"""Code that is deployed later reads the recorded values; where it can't, the run is blocked until code can."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import Enum
from typing import Any, TypeVar, cast

import anyio
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.functions.upgrade_check import UpgradeVerdict
from holdfast.hosts.serverless.host import ServerlessHost
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.continue_as_new import continue_as_new
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.queries import expose, update
from holdfast.kernel.authoring.stages import Stage
from holdfast.kernel.authoring.step_context import step_context
from holdfast.kernel.authoring.steps import Step, step
from holdfast.kernel.invariants import check
from holdfast.ports.records.run import RunStatus
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until

SOON = 120

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


@pytest.fixture
def url(database_url: str) -> str:
    """Without the in-memory store, which other code cannot open."""
    return database_url


class Old(Enum):
    COURIER = "courier"
    POST = "post"


class New(Enum):
    COURIER = "courier"
    STANDARD = "standard"


GO = Channel("go", str)
DONE: list[str] = []
"""The steps that ran and the compensations that did."""
ASKED: list[Callable[[], Any]] = []
"""Makers of the functions' updates; the last is that of the function under test."""


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    DONE.clear()


Made = tuple[Sequence[Any], Sequence[Step[..., Any]]]


F = TypeVar("F", bound=Callable[..., object])


def annotated(**hints: object) -> Callable[[F], F]:
    """Give a function other annotations, its return type included, as a deploy would."""

    def annotate(function: F) -> F:
        function.__annotations__ |= {
            "return" if name == "returns" else name: hint for name, hint in hints.items()
        }
        return function

    return annotate


def of_step(shipping: Any) -> Made:
    @step
    async def charge(cents: int) -> str:
        return "receipt"

    @charge.compensate
    async def refund(receipt: str) -> None:
        DONE.append(f"refunded {receipt}")

    @step
    @annotated(returns=shipping)
    async def choose() -> Any:
        return list(shipping)[1]

    @step
    async def send() -> None:
        DONE.append("sent")

    @workflow(name="order")
    async def order() -> str:
        await charge(500)
        how = await choose()
        await GO.receive()
        await send()
        return str(how.name)

    return [order], []


def of_child(shipping: Any) -> Made:
    @workflow(name="child")
    @annotated(returns=shipping)
    async def child() -> Any:
        return list(shipping)[1]

    @step
    async def note() -> None:
        DONE.append("noted")

    @workflow(name="order")
    async def order() -> str:
        how = await child()
        await GO.receive()
        await note()
        return str(how.name)

    return [order, child], []


def of_input(shipping: Any) -> Made:
    @step
    async def note() -> None:
        DONE.append("noted")

    @workflow(name="order")
    @annotated(how=shipping)
    async def order(how: Any = list(shipping)[1]) -> str:
        await GO.receive()
        await note()
        return str(how.name)

    return [order], []


def of_continued(shipping: Any) -> Made:
    @workflow(name="order")
    @annotated(how=shipping | None)
    async def order(how: Any = None) -> str:
        if how is None:
            return await continue_as_new(order(list(shipping)[1]))
        await GO.receive()
        DONE.append("went on")
        return str(how.name)

    return [order], []


def of_message(shipping: Any) -> Made:
    how_to = Channel("how", shipping)

    @workflow(name="order")
    async def order() -> str:
        await GO.receive()
        how = await how_to.receive()
        DONE.append("received")
        return str(how.name)

    return [order], []


def of_message_kept(shipping: Any) -> Made:
    """Return a function that got a message in the generation before and did not receive it there."""
    how_to = Channel("how", shipping)
    kept = Channel("kept", str)

    @workflow(name="order")
    async def order(again: bool = True) -> str:
        if again:
            await kept.receive()
            return await continue_as_new(order(again=False))
        await GO.receive()
        how = await how_to.receive()
        DONE.append("received")
        return str(how.name)

    return [order], []


def of_update(shipping: Any) -> Made:
    class Order:
        def __init__(self) -> None:
            self.how: Any = None

        @update
        @annotated(how=shipping)
        async def send_by(self, how: Any) -> str:
            self.how = how
            return str(how.name)

    @workflow(name="order")
    async def order() -> str:
        state = expose(Order())
        await GO.receive()
        DONE.append("went on")
        return str(state.how.name)

    ASKED.append(lambda: Order.send_by(list(shipping)[1]))
    return [order], []


def prepared(kind: Callable[[Any], Made], run: Any, shipping: Any) -> None:
    """Bring the run's history to the row under test."""
    if kind in (of_message, of_message_kept):
        run.signal(Channel("how", shipping)(list(shipping)[1]))
    if kind is of_message_kept:
        run.signal(Channel("kept", str)("it is"))
    if kind is of_update:
        run.update(ASKED[-1](), timeout=SOON)


def statuses(engine: Engine) -> RunStatus:
    return engine.sync.handle(engine.core.registry.workflows[0], "x").row().status


ROWS: dict[Callable[[Any], Made], int] = {
    of_step: 3,
    of_child: 3,
    of_input: 1,
    of_continued: 1,
    of_message: 2,
    of_message_kept: 2,
    of_update: 2,
}
"""The number of the history row with the unreadable value."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(ROWS))
async def test_a_run_waits_for_code_that_reads_what_is_recorded(
    open_engine: OpenEngine, kind: Callable[[Any], Made]
) -> None:
    old = kind(Old)
    engine = open_engine(*old[0])
    order = old[0][0]
    run = engine.sync.start(order(), id="x")
    async with Worker(engine):
        await until(lambda: run.why()[0].code == "waiting" and statuses(engine) is RunStatus.RUNNING)
        await anyio.to_thread.run_sync(prepared, kind, run, Old)
        await until(lambda: kind is not of_child or "child.completed" in [one.type for one in run.history()])
        await until(lambda: run.info().generation == (2 if kind in (of_continued, of_message_kept) else 1))
        await until(lambda: run.why()[0].code == "waiting")
    run.signal(GO("on"))
    rows = len(list(run.history()))

    new = kind(New)
    changed = open_engine(*new[0])
    (upgrade,) = [one for one in changed.sync.check_upgrade() if one.run_id == "x"]
    assert (upgrade.verdict, upgrade.row) == (UpgradeVerdict.BLOCKED, ROWS[kind]), upgrade
    assert "$" in upgrade.message
    assert "got 'post'" in upgrade.message
    async with Worker(changed):
        await until(lambda: statuses(changed) is RunStatus.BLOCKED)
    history = list(run.history())
    assert [event.type for event in history[rows:]] == ["run.blocked"]
    assert history[-1].data["code"] == "unreadable_value"
    assert "got 'post'" in str(history[-1].data["message"])
    assert DONE == []

    again = open_engine(*kind(Old)[0])
    async with Worker(again):
        with anyio.fail_after(SOON):
            assert await again.handle(order, "x").result() == "POST"
    assert "refunded receipt" not in DONE


def of_queue(name: str) -> Made:
    """Return a queued step with a parameter of this name."""
    if name == "cents":

        @step(queue="slow")
        async def charge(cents: int) -> str:
            return f"charged {cents}"

        @workflow(name="order")
        async def order() -> str:
            return await charge(cents=500)

        return [order], [charge]

    @step(name="charge", queue="slow")
    async def charge_of(amount: int) -> str:
        return f"charged {amount}"

    @workflow(name="order")
    async def order_of() -> str:
        return await charge_of(amount=500)

    return [order_of], [charge_of]


@pytest.mark.slow
async def test_a_step_in_a_queue_whose_parameter_was_renamed_is_asked_for_again(
    open_engine: OpenEngine,
) -> None:
    (order,), _ = of_queue("cents")
    engine = open_engine(order)
    run = engine.sync.start(order(), id="x")
    async with Worker(engine, only_queues=["default"]):
        await until(lambda: "step.queued" in [event.type for event in run.history()])
    changed = open_engine(*of_queue("amount")[0])
    (upgrade,) = changed.sync.check_upgrade()
    assert upgrade.verdict is UpgradeVerdict.BLOCKED
    assert "the arguments of step 'charge'" in upgrade.message
    assert "$.amount: required field is missing" in upgrade.message
    async with Worker(changed, only_queues=["default", "slow"]):
        await until(lambda: statuses(changed) is RunStatus.BLOCKED)
    blocked = list(run.history())[-1]
    assert (blocked.type, blocked.data["code"]) == ("run.blocked", "unreadable_input")
    async with Worker(open_engine(*of_queue("amount")[0]), only_queues=["default", "slow"]):
        with anyio.fail_after(SOON):
            assert await changed.handle(changed.core.registry.workflows[0], "x").result() == "charged 500"


def of_stage(shipping: Any) -> Pipeline[Any, Any]:
    @stage
    @annotated(returns=shipping)
    async def choose(order: str) -> Any:
        return list(shipping)[1]

    @stage(queue="slow")
    @annotated(how=shipping)
    async def send(how: Any) -> str:
        DONE.append("sent")
        return str(how.name)

    return Pipeline("order", input=str).pipe(choose).pipe(cast("Stage[Any, str]", send))


async def ready_in_slow_queue(open_engine: OpenEngine, pipeline: Pipeline[Any, Any]) -> Engine:
    engine = open_engine(pipeline)
    engine.sync.start(pipeline("a"), id="x")
    async with Worker(engine, only_queues=["default"]):
        await until(
            lambda: "stage.completed" in [one.type for one in engine.sync.handle(pipeline, "x").history()]
        )
    return engine


@pytest.mark.slow
async def test_a_stage_that_cannot_read_what_it_is_given_waits_for_code_that_can(
    open_engine: OpenEngine,
) -> None:
    await ready_in_slow_queue(open_engine, of_stage(Old))
    changed = open_engine(of_stage(New))
    (upgrade,) = changed.sync.check_upgrade()
    assert (upgrade.verdict, upgrade.row) == (UpgradeVerdict.BLOCKED, 2), upgrade
    host = ServerlessHost(changed)
    await anyio.to_thread.run_sync(lambda: host.process_available_jobs(max_jobs=5))
    assert statuses(changed) is RunStatus.BLOCKED
    run = changed.sync.handle(changed.core.registry.workflows[0], "x")
    blocked = list(run.history())[-1]
    assert blocked.type == "run.blocked"
    assert "the input of stage 'send', row 2 of the history, can't be read" in str(blocked.data["message"])
    assert check(snapshot_of(changed.core.stores.persistence, [changed.core.namespace])) == []
    assert DONE == []
    again = open_engine(of_stage(Old))
    async with Worker(again, only_queues=["slow"]):
        with anyio.fail_after(SOON):
            assert await again.handle(again.core.registry.workflows[0], "x").result() == "POST"


def of_beats(shipping: Any) -> Made:
    @step(heartbeat_timeout=30, retry=Retry(attempts=2, wait=timedelta(0)))
    async def send() -> str:
        context = step_context()
        if context.attempt == 1:
            context.heartbeat("post")
            raise RuntimeError("the parcel is lost")
        DONE.append(str(context.last_heartbeat(shipping)))
        return DONE[-1]

    @workflow(name="order")
    async def order() -> str:
        try:
            return await send()
        except Exception:
            DONE.append("gave up")
            raise

    return [order], []


@pytest.mark.slow
async def test_a_step_that_cannot_read_its_last_heartbeat_blocks_its_run_and_does_not_fail(
    open_engine: OpenEngine,
) -> None:
    (order,), _ = of_beats(New)
    engine = open_engine(order)
    run = engine.sync.start(order(), id="x")
    async with Worker(engine):
        await until(lambda: statuses(engine) is RunStatus.BLOCKED)
    assert "the details of the last heartbeat can't be read" in str(list(run.history())[-1].data["message"])
    assert [event.type for event in run.history()] == ["run.created", "step.retrying", "run.blocked"]
    assert DONE == []
    run.resume()
    again = open_engine(*of_beats(Old)[0])
    async with Worker(again):
        with anyio.fail_after(SOON):
            await again.handle(order, "x").result()
