"""Topics, as users meet them: on every kind of store, with workers."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import attrs
import pytest
from sqlalchemy.orm import Session

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.maintenance.topics import TopicSweeper
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.channels import Channel, select
from holdfast.kernel.authoring.continue_as_new import continue_as_new
from holdfast.kernel.authoring.functions import now, sleep, workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.step_context import step_context
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.authoring.topics import Topic
from holdfast.kernel.commands import TopicDeliver, TopicPublish
from holdfast.kernel.invariants import check
from holdfast.ports.errors import (
    ChannelClosedError,
    DefinitionError,
    InvalidArgumentError,
    InvalidValueError,
)
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until

SOON = 30

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


@attrs.frozen
class Address:
    country: str


@attrs.frozen
class Order:
    id: str
    address: Address
    express: bool = False


def order(name: str, country: str = "nz") -> Order:
    return Order(name, Address(country))


orders = Topic("orders", Order, keys={"country": "address.country", "express": "express"})
plain = Topic("plain", str)
stop = Channel("stop", str)


@workflow
async def first_of(country: str) -> str:
    return (await orders.where(country=country).receive(timeout=timedelta(seconds=SOON))).id


@workflow
async def collect(most: int) -> list[str]:
    found: list[str] = []
    async for one in orders:
        found.append(one.id)
        if len(found) == most:
            break
    return found


@workflow
async def ship(names: Sequence[str]) -> None:
    for name in names:
        await orders.publish(order(name), id=name)


async def published(engine: Engine, *names: str, country: str = "nz") -> None:
    for name in names:
        await engine.publish(orders(order(name, country)), id=name)


def types_of(engine: Engine, run_id: str) -> Counter[str]:
    """How many rows of each type the history of a run has."""
    return Counter(row.type for row in engine.sync.handle(collect, run_id).history())


def sound(engine: Engine) -> None:
    assert check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


@pytest.mark.slow
async def test_every_subscriber_gets_every_message_in_one_order(open_engine: OpenEngine) -> None:
    engine = open_engine(collect, ship)
    async with engine, Worker(engine):
        runs = [await engine.start(collect(6)) for _ in range(3)]
        ships = [await engine.start(ship([f"{name}{number}" for number in range(3)])) for name in "ab"]
        for one in ships:
            await one.result(timeout=SOON)
        found = [await run.result(timeout=SOON) for run in runs]
        sound(engine)
    assert sorted(found[0]) == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert found[1] == found[2] == found[0]
    for name in "ab":
        assert [one for one in found[0] if one[0] == name] == [f"{name}{number}" for number in range(3)]


async def test_messages_of_functions_do_not_wait_for_maintenance(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows from the commits of publishers and subscribers delivers them."""
    of_another = TopicDeliver(topic="another")
    monkeypatch.setattr(TopicSweeper, "command", property(lambda _: of_another))
    engine = open_engine(collect, ship)
    async with engine, Worker(engine):
        run = await engine.start(collect(2))
        await engine.start(ship(["a", "b"]))
        assert await run.result(timeout=SOON) == ["a", "b"]


async def test_maintenance_delivers_what_a_publisher_left_behind(open_engine: OpenEngine) -> None:
    """Its process ended between the commit and the delivery."""
    engine = open_engine(collect)
    async with engine, Worker(engine):
        run = await engine.start(collect(2))
        await until(lambda: types_of(engine, run.id)["topic.subscribed"] == 1)
        await published(engine, "first")
        await until(lambda: types_of(engine, run.id)["signal.received"] == 1)
        message = orders(order("left")).as_new()
        engine.sync.kernel.dispatch(TopicPublish(namespace=engine.core.namespace, message=message))
        assert await run.result(timeout=SOON) == ["first", "left"]


async def test_a_subscriber_gets_only_what_it_selects(open_engine: OpenEngine) -> None:
    engine = open_engine(first_of)
    async with engine, Worker(engine):
        nz, fr = [await engine.start(first_of(country)) for country in ("nz", "fr")]
        await published(engine, "paris", country="fr")
        await published(engine, "nelson")
        assert (await nz.result(timeout=SOON), await fr.result(timeout=SOON)) == ("nelson", "paris")


async def test_a_message_just_before_the_wait_is_not_missed(open_engine: OpenEngine) -> None:
    """What is published after the run started, and before its code subscribes."""
    engine = open_engine(first_of)
    async with engine:
        run = await engine.start(first_of("nz"))
        await published(engine, "early")
        async with Worker(engine):
            assert await run.result(timeout=SOON) == "early"


async def test_a_message_with_an_id_is_published_once(open_engine: OpenEngine) -> None:
    engine = open_engine(collect)
    async with engine, Worker(engine):
        run = await engine.start(collect(2))
        first = await engine.publish(orders(order("a")), id="a")
        again = await engine.publish(orders(order("a")), id="a")
        await published(engine, "b")
        assert (first.published, again.published) == (True, False)
        assert await run.result(timeout=SOON) == ["a", "b"]


@workflow
async def since_an_hour(country: str) -> list[str]:
    subscription = await orders.where(country=country).subscribe(since=now() - timedelta(hours=1))
    return [(await subscription.receive(timeout=SOON)).id for _ in range(2)]


async def test_stored_messages_are_replayed_from_an_instant(open_engine: OpenEngine) -> None:
    engine = open_engine(since_an_hour)
    async with engine, Worker(engine):
        await published(engine, "a", "b")
        assert await (await engine.start(since_an_hour("nz"))).result(timeout=SOON) == ["a", "b"]


@workflow
async def generations(rounds: int, found: list[str]) -> list[str]:
    subscription = await plain.subscribe()
    found = [*found, await subscription.receive(timeout=SOON)]
    if rounds == 1:
        return found
    return await continue_as_new(generations(rounds - 1, found))


@pytest.mark.slow
async def test_a_run_that_continues_as_new_misses_nothing(open_engine: OpenEngine) -> None:
    engine = open_engine(generations)
    async with engine, Worker(engine):
        run = await engine.start(generations(5, []))
        for number in range(5):
            await engine.publish(plain(str(number)))
        assert await run.result(timeout=SOON) == list("01234")
        sound(engine)


@workflow
async def closing() -> list[str]:
    found: list[str] = []
    subscription = await plain.subscribe()
    found.append(await subscription.receive(timeout=SOON))
    await subscription.close()
    await subscription.close()
    try:
        await subscription.receive()
    except ChannelClosedError:
        found.append("closed")
    await stop.receive()
    again = await plain.subscribe(since=now())
    found.append(await again.receive(timeout=SOON))
    return found


@pytest.mark.slow
async def test_a_closed_subscription_gets_nothing_and_can_begin_again(open_engine: OpenEngine) -> None:
    engine = open_engine(closing)
    async with engine, Worker(engine):
        run = await engine.start(closing())
        await engine.publish(plain("a"))
        await until(lambda: types_of(engine, run.id)["topic.unsubscribed"] == 1)
        await engine.publish(plain("b"))
        await asyncio.sleep(0.01)
        await run.signal(stop("go on"))
        await until(lambda: types_of(engine, run.id)["topic.subscribed"] == 2)
        await engine.publish(plain("c"))
        assert await run.result(timeout=SOON) == ["a", "closed", "c"]
        sound(engine)


@workflow
async def either() -> str:
    got = await select(stop, await plain.subscribe(), timeout=SOON)
    return f"got {got}"


@pytest.mark.slow
async def test_a_subscription_is_one_of_several_channels(open_engine: OpenEngine) -> None:
    engine = open_engine(either)
    async with engine, Worker(engine):
        first, second = [await engine.start(either()) for _ in range(2)]
        await first.signal(stop("stop"))
        assert await first.result(timeout=SOON) == "got stop"
        await engine.publish(plain("message"))
        assert await second.result(timeout=SOON) == "got message"


@workflow
async def patient() -> str:
    try:
        return await plain.receive(timeout=0.01)
    except TimeoutError:
        await sleep(0)
        return await plain.receive(timeout=SOON)


async def test_a_receive_that_has_timed_out_leaves_the_subscription(open_engine: OpenEngine) -> None:
    engine = open_engine(patient)
    async with engine, Worker(engine):
        run = await engine.start(patient())
        await until(lambda: types_of(engine, run.id)["timer.fired"] == 1)
        await engine.publish(plain("late"))
        assert await run.result(timeout=SOON) == "late"


async def test_messages_of_a_wrong_shape_are_skipped_and_recorded(open_engine: OpenEngine) -> None:
    """They hold up neither the function nor the messages after them."""
    other = Topic("orders", dict[str, str])
    engine = open_engine(collect, first_of)
    async with engine, Worker(engine):
        run = await engine.start(collect(1))
        message = attrs.evolve(other({"no": "order"}))
        command = attrs.evolve(message.as_new(), checked=False)
        engine.sync.client.dispatch(TopicPublish(namespace=engine.core.namespace, message=command))
        await published(engine, "right")
        assert await run.result(timeout=SOON) == ["right"]
        assert types_of(engine, run.id)["signal.refused"] == 1


async def test_why_names_the_topic(open_engine: OpenEngine) -> None:
    engine = open_engine(first_of)
    async with engine, Worker(engine):
        run = await engine.start(first_of("nz"))
        handle = engine.sync.handle(first_of, run.id)
        await until(lambda: "a message of topic 'orders'" in str(handle.why()))
        await published(engine, "a")
        await run.result(timeout=SOON)


async def test_what_cannot_be_published_is_refused_before_anything_is_stored(open_engine: OpenEngine) -> None:
    engine = open_engine()
    async with engine:
        with pytest.raises(InvalidValueError, match="topic 'plain'"):
            plain(cast("Any", 5))
        with pytest.raises(InvalidArgumentError, match="262,144"):
            plain("x" * 300_000)
        with pytest.raises(InvalidArgumentError, match="topic\\(message\\)"):
            await engine.publish(cast("Any", "hello"))
        for wrong in ("", "x" * 257, 5):
            with pytest.raises(InvalidArgumentError):
                await engine.publish(plain("a"), id=cast("Any", wrong))


def test_topics_are_checked_where_they_are_defined() -> None:
    with pytest.raises(DefinitionError):
        Topic("", str)
    with pytest.raises(DefinitionError, match="at most 100 characters"):
        Topic("x" * 101, str)
    with pytest.raises(DefinitionError, match="at most 4"):
        Topic("t", Order, keys=["a", "b", "c", "d", "e"])
    with pytest.raises(DefinitionError):
        Topic("t", asyncio.Event)
    for wrong in ([""], 5, {"a": ""}):
        with pytest.raises(InvalidArgumentError):
            Topic("t", Order, keys=cast("Any", wrong))
    for keep in (0, -1, timedelta(days=400), "week"):
        with pytest.raises(InvalidArgumentError):
            Topic("t", str, keep=cast("Any", keep))
    with pytest.raises(InvalidArgumentError, match="has no key 'city'; it has country, express"):
        orders.where(city="Nelson")
    with pytest.raises(InvalidArgumentError):
        orders.where(country=cast("Any", 5))
    with pytest.raises(InvalidArgumentError, match="the key 'city' comes from 'address' of the message"):
        Topic("t", Order, keys={"city": "address"})(order("a"))
    assert dict(orders(order("a")).attributes) == {"country": "nz", "express": "false"}


@pytest.mark.parametrize(
    "call",
    [
        plain.receive,
        plain.subscribe,
        lambda: plain.publish("a"),
        lambda: orders.where(country="nz").subscribe(since=datetime.now(UTC)),
    ],
)
async def test_only_functions_subscribe(call: Callable[[], Coroutine[object, object, object]]) -> None:
    with pytest.raises(RuntimeError):
        await call()


async def test_a_step_publishes_in_its_transaction(open_engine: OpenEngine, url: str) -> None:
    """The message is stored with the result of the step: an attempt that fails leaves none."""
    if url == "memory://":
        pytest.skip("a store in memory has no transactions")
    attempts: list[str] = []

    @step(retry=Retry(attempts=2, wait=timedelta())).in_transaction
    def charge(session: Session, name: str) -> str:
        attempts.append(engine.sync.within(session).publish(orders(order(name)), id=name).id)
        if len(attempts) == 1:
            raise ConnectionError("the first attempt fails")
        return name

    @workflow
    async def place(name: str) -> str:
        return await charge(name)

    engine = open_engine(place, first_of)
    async with engine, Worker(engine):
        waiting = await engine.start(first_of("nz"))
        assert await (await engine.start(place("a"))).result(timeout=SOON) == "a"
        assert await waiting.result(timeout=SOON) == "a"
        (topic,) = [one async for one in engine.topics()]
    assert attempts == ["a", "a"]
    assert topic.messages == 1


async def test_a_step_publishes_once_over_its_attempts(open_engine: OpenEngine) -> None:
    attempts: list[bool] = []

    @step(retry=Retry(attempts=2, wait=timedelta()))
    def charge(name: str) -> str:
        sent = engine.sync.publish(orders(order(name)), id=step_context().idempotency_key)
        attempts.append(sent.published)
        if len(attempts) == 1:
            raise ConnectionError("the first attempt fails")
        return name

    @workflow
    async def place(name: str) -> str:
        return await charge(name)

    engine = open_engine(place)
    async with engine, Worker(engine):
        await (await engine.start(place("a"))).result(timeout=SOON)
    assert attempts == [True, False]
