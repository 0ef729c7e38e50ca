"""Groups of a topic, as users meet them: on every kind of store, with workers."""

from collections.abc import Sequence
from typing import cast

import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.continue_as_new import continue_as_new
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.topics import Topic
from holdfast.kernel.invariants import check
from holdfast.ports.errors import DefinitionError, InvalidArgumentError
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until

SOON = 30

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]

orders = Topic("orders", str)
numbers = Topic("orders", int)
by_country = Topic("parcels", dict[str, str], keys=("country",))
go = Channel("go", str)


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


@workflow
async def pack(name: str) -> list[str]:
    packed: list[str] = []
    async for order in orders.group("packers"):
        if order == "stop":
            break
        packed.append(order)
    return packed


@workflow
async def patient(seconds: float) -> str | None:
    try:
        return await orders.group("packers").receive(timeout=seconds)
    except TimeoutError:
        return None


def waits(engine: Engine, *ids: str, times: int = 1) -> bool:
    """Whether each of these runs has waited so many times."""
    for one in ids:
        rows = engine.sync.handle(pack, one).history()
        if sum(row.type == "topic.subscribed" for row in rows) < times:
            return False
    return True


def sound(engine: Engine) -> None:
    assert check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


async def published(engine: Engine, *texts: str) -> None:
    for text in texts:
        await engine.publish(orders(text))


async def test_the_members_of_a_group_share_its_messages(open_engine: OpenEngine) -> None:
    engine = open_engine(pack)
    names = ["a", "b", "c"]
    sent = [str(number) for number in range(12)]
    async with engine, Worker(engine):
        runs = [await engine.start(pack(name), id=name) for name in names]
        await until(lambda: waits(engine, *names))
        await published(engine, *sent, *["stop"] * len(names))
        packed = [await run.result(timeout=SOON) for run in runs]
        sound(engine)
    assert sorted(one for some in packed for one in some) == sorted(sent)


async def test_messages_that_come_before_a_member_waits_are_not_lost(open_engine: OpenEngine) -> None:
    """They are those since the start of the run that began the group. Later members find what is left."""
    engine = open_engine(pack, patient)
    async with engine:
        run = await engine.start(pack("a"))
        await published(engine, "early", "stop", "left")
        async with Worker(engine):
            assert await run.result(timeout=SOON) == ["early"]
            assert await (await engine.start(patient(SOON))).result(timeout=SOON) == "left"
            sound(engine)


async def test_a_member_that_has_timed_out_is_handed_nothing(open_engine: OpenEngine) -> None:
    engine = open_engine(patient)
    async with engine, Worker(engine):
        assert await (await engine.start(patient(0.05))).result(timeout=SOON) is None
        await published(engine, "late")
        assert await (await engine.start(patient(SOON))).result(timeout=SOON) == "late"
        sound(engine)


async def test_a_message_goes_back_when_its_member_ends_before_it_read_it(open_engine: OpenEngine) -> None:
    """No worker runs when it is handed out, so the function can't have read it."""
    engine = open_engine(pack)
    async with engine:
        async with Worker(engine):
            await engine.start(pack("a"), id="a")
            await until(lambda: waits(engine, "a"))
        await published(engine, "1", "2")
        handle = engine.handle(pack, "a")
        assert [row.type for row in await handle.history()].count("signal.received") == 1
        await handle.terminate()
        run = await engine.start(pack("b"), id="b")
        await published(engine, "stop")
        async with Worker(engine):
            assert await run.result(timeout=SOON) == ["1", "2"]
        sound(engine)


@workflow
async def one_each(turn: int, packed: list[str]) -> list[str]:
    packed = [*packed, await orders.group("packers").receive(timeout=SOON)]
    return packed if turn == 0 else await continue_as_new(one_each(turn - 1, packed))


async def test_a_member_continues_as_new_between_messages(open_engine: OpenEngine) -> None:
    engine = open_engine(one_each)
    async with engine, Worker(engine):
        run = await engine.start(one_each(3, []))
        await published(engine, "1", "2", "3", "4")
        assert await run.result(timeout=SOON) == ["1", "2", "3", "4"]
        sound(engine)


@workflow
async def several() -> Sequence[str]:
    """Two tasks of one run are two members."""
    import asyncio

    group = orders.group("packers")
    return sorted(await asyncio.gather(group.receive(timeout=SOON), group.receive(timeout=SOON)))


async def test_tasks_of_one_run_wait_each_for_a_message(open_engine: OpenEngine) -> None:
    engine = open_engine(several)
    async with engine, Worker(engine):
        run = await engine.start(several())
        await published(engine, "1", "2")
        assert await run.result(timeout=SOON) == ["1", "2"]


async def test_a_message_of_a_wrong_shape_is_skipped_and_recorded(open_engine: OpenEngine) -> None:
    """The member that gets it waits anew, and holds up no other."""
    engine = open_engine(pack)
    async with engine, Worker(engine):
        run = await engine.start(pack("a"), id="a")
        await engine.publish(numbers(5))
        await published(engine, "1", "stop")
        # The publisher had another type. The first is refused when it is read, as it was checked against that one.
        await until(lambda: engine.sync.handle(pack, "a").row().status.value == "blocked")
        assert "row" in engine.sync.handle(pack, "a").why()[0].text
        await run.terminate()


async def test_an_unchecked_message_of_a_wrong_shape_is_skipped(open_engine: OpenEngine) -> None:
    engine = open_engine(pack)
    async with engine, Worker(engine):
        run = await engine.start(pack("a"), id="a")
        wrong = numbers(5)
        await engine.publish(type(wrong)(wrong.topic, wrong.text))
        await published(engine, "1", "stop")
        assert await run.result(timeout=SOON) == ["1"]
        assert [row.type for row in await run.history()].count("signal.refused") == 1
        sound(engine)


@workflow
async def of_country(country: str) -> str:
    return (await by_country.where(country=country).group("drivers").receive(timeout=SOON))["country"]


async def test_a_group_selects_messages(open_engine: OpenEngine) -> None:
    engine = open_engine(of_country)
    async with engine, Worker(engine):
        runs = [await engine.start(of_country(country)) for country in ("nz", "fr")]
        for country in ("de", "fr", "nz"):
            await engine.publish(by_country({"country": country}))
        assert [await run.result(timeout=SOON) for run in runs] == ["nz", "fr"]


async def test_why_names_the_group(open_engine: OpenEngine) -> None:
    engine = open_engine(pack)
    async with engine, Worker(engine):
        await engine.start(pack("a"), id="a")
        await until(lambda: waits(engine, "a"))
        await until(lambda: "group" in engine.sync.handle(pack, "a").why()[0].text)
        assert "the next message of group 'orders/packers'" in engine.sync.handle(pack, "a").why()[0].text


def test_the_name_of_a_group_is_checked_where_it_is_written() -> None:
    for name in ("", "a\nb", "x" * 65):
        with pytest.raises(DefinitionError):
            orders.group(name)


async def test_only_functions_are_members() -> None:
    with pytest.raises(RuntimeError, match=r"TopicGroup.receive\(\)"):
        await orders.group("packers").receive()


@workflow
async def wrong(_: int) -> str:
    try:
        return await orders.group("packers").receive(timeout=cast("float", "soon"))
    except InvalidArgumentError as error:
        return str(error)


async def test_a_wrong_timeout_is_refused_before_the_run_waits(open_engine: OpenEngine) -> None:
    engine = open_engine(wrong)
    async with engine, Worker(engine):
        run = await engine.start(wrong(1))
        assert "timeout" in await run.result(timeout=SOON)
        assert "topic.subscribed" not in [row.type for row in await run.history()]
