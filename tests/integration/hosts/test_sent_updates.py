"""Functions that update other runs, with real workers: the reply arrives once, whatever becomes of either run."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.run_handle import RunHandle
from holdfast.hosts.inspection.run_info import RunEvent
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.child_runs import start_child
from holdfast.kernel.authoring.continue_as_new import continue_as_new
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.queries import UpdateCall, expose, update
from holdfast.kernel.authoring.run_info import run_info
from holdfast.kernel.authoring.sent_messages import signal_run, update_run
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.invariants import check
from holdfast.ports.errors import HoldfastError
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until

SOON = 30

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


def sound(engine: Engine) -> None:
    assert check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


question = Channel("question", str)


@step
async def upper(text: str) -> str:
    return text.upper()


@dataclass
class Cart:
    items: list[str] = field(default_factory=list[str])
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    @update
    async def add(self, item: str) -> int:
        self.items.append(await upper(item))
        return len(self.items)

    @add.validator
    def known(self, item: str) -> None:
        if item == "nothing":
            raise ValueError("there is no such item")

    @update
    def cheapest(self) -> str:
        return min(self.items)

    @update
    def dump(self, size: int) -> str:
        return "x" * size

    @update
    async def wait(self) -> None:
        await self.closed.wait()
        await asyncio.sleep(3_600)

    @update
    def close(self) -> None:
        self.closed.set()


class Board:
    @update
    def move(self, square: str) -> None: ...


@workflow
async def cart() -> list[str]:
    state = expose(Cart())
    await state.closed.wait()
    return state.items


def types_of(rows: Sequence[RunEvent]) -> Counter[str]:
    return Counter(row.type for row in rows)


async def events_of(run: "RunHandle[object]", kind: str) -> list[dict[str, object]]:
    return [dict(event.data) for event in await run.history() if event.type == kind]


# Replies ----------------------------------------------------------------------------------------------------------


@workflow
async def shopper(whom: str, items: list[str]) -> list[int]:
    return [await update_run(whom, Cart.add(item)) for item in items]


async def test_a_function_updates_another_run_and_gets_its_replies(open_engine: OpenEngine) -> None:
    engine = open_engine(cart, shopper)
    async with Worker(engine):
        other = await engine.start(cart(), id="cart")
        run = await engine.start(shopper("cart", ["tea", "milk", "rice"]), id="ann")
        with anyio.fail_after(SOON):
            assert await run.result() == [1, 2, 3]
            await other.update(Cart.close())
            assert await other.result() == ["TEA", "MILK", "RICE"]
    counted = types_of(await run.history())
    assert (counted["update.sent"], counted["update.replied"]) == (3, 3)
    assert [one["sender"] for one in (await events_of(other, "update.received"))[:3]] == ["ann"] * 3
    sound(engine)


@workflow
async def meets() -> str:
    message = await question.receive_message()
    assert message.sender is not None
    return await update_run(message.sender, Greeter.greet(message.value))


class Greeter:
    def __init__(self) -> None:
        self.greeted = asyncio.Event()

    @update
    def greet(self, text: str) -> str:
        self.greeted.set()
        return f"hello {text}"


@workflow
async def greeter(whom: str) -> str:
    state = expose(Greeter())
    await signal_run(whom, question("bob"))
    await state.greeted.wait()
    return run_info().id


async def test_the_sender_of_a_message_can_be_updated(open_engine: OpenEngine) -> None:
    engine = open_engine(meets, greeter)
    async with Worker(engine):
        run = await engine.start(meets(), id="meets")
        await engine.start(greeter("meets"), id="greeter")
        with anyio.fail_after(SOON):
            assert await run.result() == "hello bob"
    sound(engine)


@workflow
async def family() -> list[str]:
    child = await start_child(cart())
    total = await update_run(child, Cart.add("tea"))
    await update_run(child, Cart.close())
    return [str(total), *await child.result()]


async def test_a_child_run_can_be_updated(open_engine: OpenEngine) -> None:
    engine = open_engine(cart, family)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            assert await engine.run(family()) == ["1", "TEA"]
    sound(engine)


ROUNDS = 8


class Ball:
    def __init__(self) -> None:
        self.count = 0
        self.enough = asyncio.Event()

    @update
    async def hit(self, number: int) -> int:
        await upper("hit")
        self.count += 1
        if self.count == ROUNDS:
            self.enough.set()
        return number


@workflow
async def player(other: str) -> int:
    """Two that update each other lock two runs in either order."""
    state = expose(Ball())
    for number in range(ROUNDS):
        assert await update_run(other, Ball.hit(number)) == number
    await state.enough.wait()
    return state.count


@pytest.mark.slow
async def test_runs_that_update_each_other_lose_nothing(open_engine: OpenEngine) -> None:
    engine = open_engine(player)
    runs = [  # before the workers: none may update one that is not there
        await engine.start(player(f"{number}-{1 - side}"), id=f"{number}-{side}")
        for number in range(3)
        for side in (0, 1)
    ]
    async with Worker(engine), Worker(engine):
        with anyio.fail_after(SOON):
            assert [await run.result() for run in runs] == [ROUNDS] * 6
    for run in runs:
        counted = types_of(await run.history())
        assert [counted[f"update.{one}"] for one in ("sent", "received", "replied")] == [ROUNDS] * 3
    sound(engine)


@workflow
async def large(size: int) -> int:
    await update_run("cart", Cart.add("tea" * size))
    return len(await update_run("cart", Cart.dump(size)))


@pytest.mark.slow
async def test_large_arguments_and_replies_go_through_the_blob_store(open_engine: OpenEngine) -> None:
    engine = open_engine(cart, large)
    async with Worker(engine):
        other = await engine.start(cart(), id="cart")
        run = await engine.start(large(200_000), id="large")
        with anyio.fail_after(SOON):
            assert await run.result() == 200_000
            await other.update(Cart.close())
            await other.result()
            await other.remove()
        again = engine.sync.handle(large, "large").rerun_from(row=5)
        assert again.row == 5  # the reply is a value of its own: it does not go with the run that has made it
        with anyio.fail_after(SOON):
            assert await run.result() == 200_000
    sound(engine)


# Errors -----------------------------------------------------------------------------------------------------------


@stage
def shout(text: str) -> str:
    return text.upper()


pipe = Pipeline("pipe", input=str).pipe(shout)


@workflow
async def careless() -> list[str]:
    found: list[str] = []
    calls: list[tuple[str, UpdateCall[object]]] = [
        ("cart", Cart.add("nothing")),
        ("cart", Cart.cheapest()),
        ("cart", Board.move("e4")),
        ("gone", Cart.close()),
        ("ended", Cart.close()),
        ("pipe", Cart.close()),
    ]
    for run, call in calls:
        try:
            await update_run(run, call)
        except HoldfastError as error:
            found.append(f"{type(error).__name__} {type(error.__cause__).__name__}")
    return found


async def test_a_run_that_does_not_answer_raises_what_a_program_gets(open_engine: OpenEngine) -> None:
    engine = open_engine(cart, careless, pipe)
    async with Worker(engine):
        ended = await engine.start(cart(), id="ended")
        await ended.update(Cart.close())
        await ended.result()
        await engine.start(cart(), id="cart")
        await engine.start(pipe("x"), id="pipe", start_at=datetime.now(UTC) + timedelta(hours=1))
        with anyio.fail_after(SOON):
            found = await engine.run(careless())
    assert found == [
        "UpdateRejectedError ValueError",
        "UpdateFailedError ValueError",
        "NotExposedError NoneType",
        "RunNotFoundError NoneType",
        "UpdateRefusedError NoneType",
        "UpdateRefusedError NoneType",
    ]
    sound(engine)


@workflow
async def impatient() -> str:
    try:
        await update_run("cart", Cart.wait(), timeout=0.01)
    except TimeoutError as error:
        return str(error)
    return "answered"


async def test_a_time_limit_ends_the_wait_and_not_the_update(open_engine: OpenEngine) -> None:
    engine = open_engine(cart, impatient)
    async with Worker(engine):
        other = await engine.start(cart(), id="cart")
        with anyio.fail_after(SOON):
            assert "will be carried out" in await engine.run(impatient())
    assert len(await events_of(other, "update.received")) == 1
    sound(engine)


@workflow
async def waits(whom: str = "cart") -> str:
    try:
        await update_run(whom, Cart.wait())
    except HoldfastError as error:
        return str(error)
    return "answered"


@pytest.mark.parametrize(("end", "why"), [("close", "has already completed"), ("terminate", "was cancelled")])
async def test_an_update_without_an_answer_is_lost_with_its_run(
    open_engine: OpenEngine, end: str, why: str
) -> None:
    engine = open_engine(cart, waits)
    async with Worker(engine):
        other = await engine.start(cart(), id="cart")
        run = await engine.start(waits(), id="waits")
        await until(lambda: "update.sent" in types_of(engine.sync.handle(waits, "waits").history()))
        if end == "close":
            await other.update(Cart.close())
        else:
            await other.terminate()
        with anyio.fail_after(SOON):
            assert why in await run.result()
    sound(engine)


# Generations ------------------------------------------------------------------------------------------------------


@workflow
async def renewed(rounds: int) -> str:
    if rounds:
        await question.receive()
        return await continue_as_new(renewed(rounds - 1))
    state = expose(Cart())
    await state.closed.wait()
    return "closed"


@workflow
async def patient() -> int:
    total = await update_run("renewed", Cart.add("tea"))
    await update_run("renewed", Cart.close())
    return total


async def test_an_update_that_waits_for_the_next_generation_is_answered_by_it(
    open_engine: OpenEngine,
) -> None:
    engine = open_engine(renewed, patient)
    async with Worker(engine):
        other = await engine.start(renewed(2), id="renewed")
        run = await engine.start(patient(), id="patient")
        await until(lambda: "update.sent" in types_of(engine.sync.handle(patient, "patient").history()))
        for _ in range(2):
            await other.signal(question("more?"))
        with anyio.fail_after(SOON):
            assert await run.result() == 1
            assert await other.result() == "closed"
    assert types_of(await run.history())["update.replied"] == 2
    sound(engine)


@workflow
async def two_steps() -> list[int]:
    first = await update_run("cart", Cart.add("tea"))
    await upper("between")
    second = await update_run("cart", Cart.add("milk"))
    return [first, second]


async def test_a_rerun_keeps_the_replies_in_kept_rows_and_sends_the_others_again(
    open_engine: OpenEngine,
) -> None:
    engine = open_engine(cart, two_steps)
    async with Worker(engine):
        other = await engine.start(cart(), id="cart")
        run = await engine.start(two_steps(), id="two")
        with anyio.fail_after(SOON):
            assert await run.result() == [1, 2]
            again = engine.sync.handle(two_steps, "two").rerun_from(row=5)
            assert again.generation == 2
            assert await run.result() == [1, 3]
    keys = [str(one["key"]).rpartition("/") for one in await events_of(other, "update.received")]
    assert [call for _, _, call in keys] == ["1", "3", "3"]
    assert len({key for key, _, _ in keys}) == 2
    sound(engine)


# What is shown ----------------------------------------------------------------------------------------------------


async def test_why_names_the_update_and_the_run_that_does_not_answer(open_engine: OpenEngine) -> None:
    engine = open_engine(cart, waits)
    async with Worker(engine):
        await engine.start(cart(), id="cart")
        run = await engine.start(waits(), id="waits")
        await until(lambda: "update.sent" in types_of(engine.sync.handle(waits, "waits").history()))
        handle = engine.sync.handle(waits, "waits")
        await until(lambda: any("Cart.wait" in reason.text for reason in handle.why()))
        texts = [reason.text for reason in await run.why()]
    assert any("the reply to update 'Cart.wait' of run 'cart'" in text for text in texts)
