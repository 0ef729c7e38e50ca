"""Functions that fail or are cancelled run their cleanup and compensations."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

import anyio
import pytest

from holdfast import Concurrency
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.functions.replay_check import replay
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.functions import compensate_with, sleep, workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.commands import RunCancel, RunTerminate
from holdfast.kernel.invariants import check
from holdfast.ports.errors import RunCancelledError, RunFailedError
from holdfast.ports.records.run import RunStatus
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until

SOON = 120
ONCE = Retry(attempts=1)
TWICE = Retry(attempts=2, wait=timedelta(milliseconds=10))

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]

DONE: list[str] = []
TROUBLE: list[str] = []
"""Each name in it makes the next call of that step fail."""
go = Channel("go", bool)


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    DONE.clear()
    TROUBLE.clear()


@dataclass(frozen=True)
class Receipt:
    number: str


def do(name: str, what: str) -> None:
    DONE.append(f"{name} {what}")
    if name in TROUBLE:
        TROUBLE.remove(name)
        raise RuntimeError(f"no {name}")


@step(retry=ONCE)
async def charge(order: str, *, currency: str = "EUR") -> Receipt:
    do("charge", f"{order} {currency}")
    return Receipt(f"r-{order}")


@step(retry=TWICE)
async def refund(receipt: Receipt, order: str, currency: str) -> None:
    do("refund", f"{receipt.number} {order} {currency}")


charge.compensate(refund)


@step(retry=ONCE)
async def reserve(order: str) -> str:
    do("reserve", order)
    if order == "slow":
        await asyncio.sleep(600)
    return f"place of {order}"


@reserve.compensate
async def release(place: str | None, order: str) -> None:
    do("release", f"{place} {order}")


@step(retry=ONCE)
def ship(order: str) -> None:
    do("ship", order)


@step
async def mail(order: str, *, text: str) -> None:
    do("mail", f"{order} {text}")


@workflow
async def fulfil(order: str) -> str:
    await charge(order, currency="USD")
    await reserve(order)
    compensate_with(mail, order, text="sorry")
    await ship(order)
    return "shipped"


def types_of(engine: Engine) -> list[str]:
    return [event.type for event in engine.sync.handle(fulfil, "x").history()]


def sound(engine: Engine) -> None:
    assert check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


async def test_what_goes_well_is_not_taken_back(open_engine: OpenEngine) -> None:
    engine = open_engine(fulfil)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            assert await engine.run(fulfil("a")) == "shipped"
    assert DONE == ["charge a USD", "reserve a", "ship a"]


@pytest.mark.slow
async def test_a_failure_takes_back_what_was_done_in_reverse_order(open_engine: OpenEngine) -> None:
    TROUBLE.append("ship")
    engine = open_engine(fulfil)
    async with Worker(engine):
        with anyio.fail_after(SOON), pytest.raises(RunFailedError, match="no ship"):
            await engine.run(fulfil("a"), id="x")
    assert DONE[3:] == ["mail a sorry", "release place of a a", "refund r-a a USD"]
    assert types_of(engine)[3:] == ["step.failed", *3 * ["step.completed"], "stage.failed", "run.failed"]
    sound(engine)


@pytest.mark.slow
async def test_a_step_that_failed_is_not_taken_back(open_engine: OpenEngine) -> None:
    TROUBLE.append("reserve")
    engine = open_engine(fulfil)
    async with Worker(engine):
        with anyio.fail_after(SOON), pytest.raises(RunFailedError, match="no reserve"):
            await engine.run(fulfil("a"), id="x")
    assert DONE == ["charge a USD", "reserve a", "refund r-a a USD"]


async def test_a_compensation_is_tried_again_and_then_blocks_the_run(open_engine: OpenEngine) -> None:
    TROUBLE.extend(["ship", "refund", "refund"])
    engine = open_engine(fulfil)
    async with Worker(engine):
        run = await engine.start(fulfil("a"), id="x")
        await until(lambda: engine.sync.handle(fulfil, "x").info().status is RunStatus.BLOCKED)
        (why, *_) = await run.why()
        assert "'refund' has failed 2 times: RuntimeError: no refund" in why.text
        sound(engine)
        await run.resume()
        with anyio.fail_after(SOON), pytest.raises(RunFailedError, match="no ship"):
            await run.result()
    assert DONE[3:] == ["mail a sorry", "release place of a a", *3 * ["refund r-a a USD"]]
    sound(engine)


@workflow
async def waits(order: str) -> str:
    await charge(order)
    await reserve(order)
    await go.receive()
    return "went"


async def test_a_run_that_is_cancelled_takes_back_what_it_has_done(open_engine: OpenEngine) -> None:
    engine = open_engine(waits)
    async with Worker(engine):
        run = await engine.start(waits("a"), id="x")
        await until(lambda: len(DONE) == 2 and sleeping(engine))
        ended = await run.cancel(reason="changed my mind")
        assert (ended.status, ended.changed) == (RunStatus.CANCELLING, True)
        with anyio.fail_after(SOON), pytest.raises(RunCancelledError, match="changed my mind"):
            await run.result()
    assert DONE[2:] == ["release place of a a", "refund r-a a EUR"]
    types = [event.type for event in await run.history()]
    assert types[3:] == ["run.cancelling", *2 * ["step.completed"], "run.cancelled"]
    sound(engine)


def sleeping(engine: Engine) -> bool:
    jobs = snapshot_of(engine.core.stores.persistence, [engine.core.namespace]).jobs
    return any(job.state == "sleeping" for of_run in jobs.values() for job in of_run.values())


async def test_what_was_under_way_when_it_was_cancelled_is_taken_back_too(open_engine: OpenEngine) -> None:
    engine = open_engine(waits)
    async with Worker(engine):
        run = await engine.start(waits("slow"), id="x")
        await until(lambda: "reserve slow" in DONE)
        await run.cancel()
        with anyio.fail_after(SOON), pytest.raises(RunCancelledError):
            await run.result()
    assert DONE[2:] == ["release None slow", "refund r-slow slow EUR"]
    sound(engine)


LET_GO: list[str] = []


@step(retry=ONCE)
async def pay(order: str) -> Receipt:
    do("pay", order)
    while not LET_GO:  # noqa: ASYNC110  # an event is bound to one loop, and this is for several
        await asyncio.sleep(0.01)
    return Receipt(f"p-{order}")


@pay.compensate
async def pay_back(receipt: Receipt) -> None:
    do("pay_back", receipt.number)


@workflow
async def pays(order: str) -> None:
    await pay(order)


async def test_what_can_only_be_taken_back_with_its_result_is_waited_for(open_engine: OpenEngine) -> None:
    LET_GO.clear()
    engine = open_engine(pays)
    async with Worker(engine):
        run = await engine.start(pays("a"), id="x")
        await until(lambda: "pay a" in DONE)
        await run.cancel()
        await until(
            lambda: any(one.type == "run.cancelling" for one in engine.sync.handle(pays, "x").history())
        )
        LET_GO.append("now")
        with anyio.fail_after(SOON), pytest.raises(RunCancelledError):
            await run.result()
    assert DONE == ["pay a", "pay_back p-a"]
    sound(engine)


@workflow
async def tidies(order: str) -> str:
    try:
        await sleep(timedelta(days=30))
    except asyncio.CancelledError:
        await mail(order, text="bye")
        if order == "stubborn":
            return "stayed"
        raise
    return "slept"


async def test_a_function_that_is_cancelled_may_tidy_up(open_engine: OpenEngine) -> None:
    engine = open_engine(tidies)
    async with Worker(engine):
        run = await engine.start(tidies("a"), id="x")
        await until(lambda: sleeping(engine))
        await run.cancel()
        with anyio.fail_after(SOON), pytest.raises(RunCancelledError):
            await run.result()
    assert DONE == ["mail a bye"]
    sound(engine)


async def test_a_function_that_goes_on_all_the_same_has_its_result(open_engine: OpenEngine) -> None:
    engine = open_engine(tidies)
    async with Worker(engine):
        run = await engine.start(tidies("stubborn"), id="x")
        await until(lambda: sleeping(engine))
        await run.cancel()
        assert not (await run.cancel()).changed
        with anyio.fail_after(SOON):
            assert await run.result() == "stayed"
    sound(engine)


@pytest.mark.slow
async def test_a_run_past_its_deadline_takes_back_what_it_has_done_and_fails(open_engine: OpenEngine) -> None:
    """The deadline ends a function like a cancellation: it runs its compensations."""
    engine = open_engine(waits)
    async with Worker(engine):
        run = await engine.start(waits("a"), id="x", deadline=timedelta(seconds=1))
        with anyio.fail_after(SOON), pytest.raises(RunFailedError, match="deadline"):
            await run.result()
    assert DONE[2:] == ["release place of a a", "refund r-a a EUR"]
    types = [event.type for event in await run.history()]
    assert types[3:] == ["run.cancelling", *2 * ["step.completed"], "run.failed"]
    sound(engine)
    replayed = replay(await run.export_history(), waits)
    assert replayed.as_recorded


async def test_a_run_that_has_not_begun_is_cancelled_at_once(open_engine: OpenEngine) -> None:
    engine = open_engine(tidies)
    run = await engine.start(tidies("a"), concurrency=Concurrency("k"))
    waiting = await engine.start(tidies("b"), concurrency=Concurrency("k"))
    assert (await waiting.cancel()).status is RunStatus.CANCELLED
    assert (await run.cancel()).status is RunStatus.CANCELLING


async def test_a_paused_run_that_is_cancelled_cleans_up(open_engine: OpenEngine) -> None:
    engine = open_engine(tidies)
    async with Worker(engine):
        run = await engine.start(tidies("a"), id="x")
        await until(lambda: sleeping(engine))
        await run.pause()
        await run.cancel(reason="enough")
        with anyio.fail_after(SOON), pytest.raises(RunCancelledError, match="enough"):
            await run.result()
    assert DONE == ["mail a bye"]
    sound(engine)


@pytest.mark.slow
async def test_a_worker_that_takes_over_goes_on_taking_back(open_engine: OpenEngine) -> None:
    TROUBLE.extend(["ship", "refund"])
    engine = open_engine(fulfil)
    async with Worker(engine):
        run = await engine.start(fulfil("a"), id="x")
        await until(lambda: "refund r-a a USD" in DONE)
    async with Worker(engine):
        with anyio.fail_after(SOON), pytest.raises(RunFailedError, match="no ship"):
            await run.result()
    assert DONE.count("mail a sorry") == 1
    assert DONE.count("release place of a a") == 1
    sound(engine)


async def test_terminate_cleans_nothing_up(open_engine: OpenEngine) -> None:
    engine = open_engine(tidies)
    async with Worker(engine):
        run = await engine.start(tidies("a"), id="x")
        await until(lambda: sleeping(engine))
        namespace = engine.core.namespace
        # At once, or else a quick worker has cleaned up before.
        engine.client.dispatch_all(
            [
                RunCancel(namespace=namespace, run_id="x"),
                RunTerminate(namespace=namespace, run_id="x", reason="now"),
            ]
        )
        with pytest.raises(RunCancelledError, match="now"):
            await run.result()
    assert DONE == []
    sound(engine)


# Functions that end as cancelled by themselves --------------------------------------------------------------------


@step
async def take_seat(row: str) -> str:
    do("seat", row)
    return row


@take_seat.compensate
async def leave_seat(row: str) -> None:
    do("leave", row)


@workflow
async def gives_up(reason: str) -> None:
    await take_seat("7A")
    raise asyncio.CancelledError(*([reason] if reason else []))


@workflow
async def waits_for_one_that_gives_up() -> str:
    try:
        await gives_up("the shop is closed")
    except RunCancelledError as error:
        return str(error)
    return "it did not"


@pytest.mark.parametrize("reason", ["the shop is closed", ""])
async def test_one_that_raises_its_own_cancellation_ends_as_cancelled(
    open_engine: OpenEngine, reason: str
) -> None:
    engine = open_engine(gives_up)
    async with engine, Worker(engine):
        run = await engine.start(gives_up(reason), id="a")
        with anyio.fail_after(SOON), pytest.raises(RunCancelledError) as caught:
            await run.result()
        assert reason in str(caught.value)
        assert (await run.info()).status is RunStatus.CANCELLED
        last = (await run.history())[-1]
        assert (last.type, last.data.get("reason", "")) == ("run.cancelled", reason)
        assert DONE == ["seat 7A", "leave 7A"]
        assert check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []
        replayed = replay(await run.export_history(), gives_up)
        assert replayed.as_recorded


async def test_who_waits_for_such_a_child_is_told_that_it_was_cancelled(open_engine: OpenEngine) -> None:
    engine = open_engine(gives_up, waits_for_one_that_gives_up)
    async with engine, Worker(engine):
        with anyio.fail_after(SOON):
            assert "the shop is closed" in await engine.run(waits_for_one_that_gives_up())
