"""Triggers, as users meet them: on every kind of store, with workers."""

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import anyio
import attrs
import pytest
from typing_extensions import override

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.execution.trigger_firer import TriggerFirer
from holdfast.hosts.wiring.services import Core
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.concurrency import Concurrency
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.gather import Gather
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.topics import Topic
from holdfast.kernel.authoring.triggers import Trigger
from holdfast.kernel.commands import Command, TriggerFire, TriggerResume
from holdfast.kernel.topics.trigger_data import trigger_digest
from holdfast.ports.changes import Update
from holdfast.ports.errors import (
    DefinitionError,
    InvalidArgumentError,
    InvalidCommandError,
    TriggerNotFoundError,
    UnknownWorkflowError,
)
from holdfast.ports.persistence import Transaction
from holdfast.ports.queries.triggers import FindTrigger
from holdfast.ports.records.trigger import TriggerName
from holdfast.ports.tables import TRIGGERS
from tests.integration.hosts.conftest import OpenEngine

SOON = 30

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


@attrs.frozen
class Order:
    id: str
    country: str = "nz"


orders = Topic("orders", Order, keys=("country",))
words = Topic("words", str)


@workflow(attributes_from={"country": "order.country"})
async def ship(order: Order, note: str = "none") -> str:
    return f"{order.id} with {note}"


@workflow
async def resell(order: Order) -> None:
    await orders.publish(attrs.evolve(order, id=f"{order.id}-again", country="fr"))


@workflow(gather=Gather(quiet=timedelta(seconds=60), within=timedelta(hours=1)))
async def report(order: Order) -> str:
    return order.id


@stage
def shout(word: str) -> str:
    return word.upper()


loud = Pipeline("loud", input=str).pipe(shout)
SHIP = Trigger("ship-nz", orders.where(country="nz"), ship)


async def published(engine: Engine, *names: str, country: str = "nz") -> None:
    for name in names:
        await engine.publish(orders(Order(name, country)), id=name)


async def ids(engine: Engine) -> list[str]:
    return [run.id async for run in engine.runs(oldest_first=True)]


def nothing(*_: object) -> None:
    """Carries nothing out."""


class IdleFirer(TriggerFirer):
    """Fires nothing."""

    @override
    def try_to_fire(self, topics: Collection[str] | None = None) -> bool:
        return False


async def started(engine: Engine, run_id: str) -> None:
    """Wait until maintenance has started a run."""
    with anyio.fail_after(SOON):
        while run_id not in await ids(engine):  # noqa: ASYNC110  # there is nobody who could set an event
            await anyio.sleep(0.05)


async def test_each_selected_message_starts_a_run(open_engine: OpenEngine) -> None:
    engine = open_engine(ship)
    async with engine, Worker(engine):
        assert (await engine.triggers.put(SHIP)).next_number == 1
        await published(engine, "a")
        await published(engine, "b", country="fr")
        await published(engine, "c", "a")  # the second "a" is there already
        assert await ids(engine) == ["ship-nz/orders/1", "ship-nz/orders/3"]
        run = engine.handle(ship, "ship-nz/orders/3")
        assert await run.result(timeout=SOON) == "c with none"
        assert [one.attributes async for one in engine.runs(limit=1)] == [{"country": "nz"}]
        info = await engine.triggers.get("ship-nz")
    assert (info.next_number, info.behind, info.started, info.refused, info.state) == (4, 0, 2, 0, "active")
    assert [(one.number, one.outcome, one.run) for one in info.recent] == [
        (1, "started", "ship-nz/orders/1"),
        (3, "started", "ship-nz/orders/3"),
    ]


async def test_a_pipeline_takes_the_message_and_the_options_of_the_trigger(open_engine: OpenEngine) -> None:
    engine = open_engine(loud)
    async with engine, Worker(engine):
        await engine.triggers.put(
            Trigger("loudly", words, loud, priority=3, attributes={"kind": "word"}, annotations={"by": "me"})
        )
        await engine.publish(words("hello"))
        run = engine.handle(loud, "loudly/words/1")
        assert await run.result(timeout=SOON) == "HELLO"
        (listed,) = [one async for one in engine.runs(attributes={"kind": "word"}, annotations={"by": "me"})]
    assert listed.id == "loudly/words/1"


async def test_messages_before_the_trigger_start_runs_only_since_an_instant(open_engine: OpenEngine) -> None:
    engine = open_engine(ship)
    async with engine:
        began = datetime.now(UTC) - timedelta(minutes=1)
        await published(engine, "a", "b")
        await engine.triggers.put(SHIP)
        assert await ids(engine) == []
        await published(engine, "c")
        assert await ids(engine) == ["ship-nz/orders/3"]
        info = await engine.triggers.put(attrs.evolve(SHIP, since=began))
        assert await ids(engine) == ["ship-nz/orders/3", "ship-nz/orders/1", "ship-nz/orders/2"]
    assert [(one.number, one.outcome) for one in info.recent] == [
        (3, "started"),
        (1, "started"),
        (2, "started"),
        (3, "existing"),
    ]


async def test_functions_start_runs_by_their_messages_at_once(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without maintenance. The messages of a run that a trigger has started may start other runs."""
    for module in ("maintenance.tick", "worker.store_calls"):
        monkeypatch.setattr(f"holdfast.hosts.{module}.TriggerFirer", IdleFirer)
    engine = open_engine(ship, resell)
    async with engine, Worker(engine):
        await engine.triggers.put(Trigger("resell", orders.where(country="nz"), resell))
        await engine.triggers.put(Trigger("ship", orders.where(country="fr"), ship))
        await published(engine, "a")
        await engine.handle(resell, "resell/orders/1").result(timeout=SOON)
        await started(engine, "ship/orders/2")
        assert await engine.handle(ship, "ship/orders/2").result(timeout=SOON) == "a-again with none"


async def test_a_paused_trigger_keeps_the_messages(open_engine: OpenEngine) -> None:
    engine = open_engine(ship)
    async with engine:
        await engine.triggers.put(SHIP)
        info = await engine.triggers.pause("ship-nz", reason="for a while")
        assert (info.state, info.pause_reason) == ("paused", "for a while")
        await published(engine, "a", "b")
        assert await ids(engine) == []
        assert (await engine.triggers.get("ship-nz")).behind == 2
        assert (await engine.triggers.resume("ship-nz")).state == "active"
        assert len(await ids(engine)) == 2
        await engine.triggers.pause("ship-nz")
        await published(engine, "c")
        await engine.triggers.resume("ship-nz", skip=True)
        await published(engine, "d")
        assert await ids(engine) == [f"ship-nz/orders/{number}" for number in (1, 2, 4)]
        info = await engine.triggers.get("ship-nz")
    assert [one.change for one in info.changes] == ["created", "paused", "resumed", "paused", "resumed"]


async def test_a_message_of_another_type_is_refused_and_holds_up_no_other(open_engine: OpenEngine) -> None:
    engine = open_engine(ship)
    other = Topic("orders", int)
    async with engine:
        await engine.triggers.put(Trigger("ship", orders, ship))
        await engine.publish(other(5))
        await published(engine, "b")
        assert await ids(engine) == ["ship/orders/2"]
        info = await engine.triggers.get("ship")
    assert (info.refused, info.started) == (1, 1)
    assert "message 1 of topic 'orders'" in info.recent[0].reason


async def test_a_start_that_is_refused_is_noted(open_engine: OpenEngine) -> None:
    engine = open_engine(ship)
    async with engine:
        await engine.triggers.put(
            Trigger("one", orders, ship, concurrency=Concurrency("all", limit=1, full="refuse", waiting=0))
        )
        await published(engine, "a", "b")
        info = await engine.triggers.get("one")
        assert await ids(engine) == ["one/orders/1"]
    assert [one.outcome for one in info.recent] == ["started", "refused"]
    assert "all" in info.recent[1].reason


async def test_a_quota_holds_the_trigger_up_until_there_is_room(open_engine: OpenEngine) -> None:
    engine = open_engine(ship)
    async with engine:
        await engine.namespaces.create(engine.core.namespace, max_active_runs=1)
        await engine.triggers.put(Trigger("ship", orders, ship))
        await published(engine, "a", "b")
        info = await engine.triggers.get("ship")
        assert (info.state, info.next_number, info.behind) == ("held", 2, 1)
        assert "may be active" in (info.problem or "")
        await engine.handle(ship, "ship/orders/1").terminate()
        TriggerFirer(engine.core).fire()
        info = await engine.triggers.get("ship")
        assert (info.state, info.next_number, info.started) == ("active", 3, 2)


async def test_starts_that_are_gathered_join_one_run(open_engine: OpenEngine) -> None:
    engine = open_engine(report)
    async with engine:
        await engine.triggers.put(Trigger("report", orders, report))
        await published(engine, "a", "b", "c")
        (run,) = await ids(engine)
        info = await engine.triggers.get("report")
    assert [(one.outcome, one.run) for one in info.recent] == [
        ("started", run),
        ("joined", run),
        ("joined", run),
    ]
    assert info.started == 1


async def test_declared_triggers_are_stored_changed_and_removed(open_engine: OpenEngine) -> None:
    declares = open_engine(ship, loud, triggers=[SHIP, Trigger("loudly", words, loud)])
    async with declares:
        assert [one.name async for one in declares.triggers.list()] == ["loudly", "ship-nz"]
        await declares.triggers.pause("ship-nz")
        assert not declares.sync.apply_triggers()
        # what operators do outlives a deploy without changes
        assert (await declares.triggers.get("ship-nz")).state == "paused"
        await declares.triggers.put(Trigger("by-hand", words, loud))
    changed = open_engine(ship, loud, triggers=[attrs.evolve(SHIP, priority=5)])
    async with changed:
        found = [(one.name, one.declared, one.state) async for one in changed.triggers.list()]
        assert found == [("by-hand", False, "active"), ("ship-nz", True, "paused")]
    silent = open_engine(ship, loud)
    async with silent:
        assert len([one async for one in silent.triggers.list()]) == 2


async def test_hosts_that_fire_at_once_start_each_run_once(open_engine: OpenEngine) -> None:
    engine = open_engine(ship)
    async with engine:
        await engine.triggers.put(SHIP)
        await engine.triggers.pause("ship-nz")
        await published(engine, *(f"o{number}" for number in range(60)))
        resume = TriggerResume(namespace=engine.core.namespace, trigger="ship-nz")
        engine.core.kernel.dispatch(resume)
        firers = [TriggerFirer(engine.core) for _ in range(4)]
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(TriggerFirer.fire, firers))
        assert len(await ids(engine)) == 60
        info = await engine.triggers.get("ship-nz")
    assert (info.started, info.next_number) == (60, 61)


async def behind(engine: Engine) -> Core:
    """Let a trigger be behind by three messages, of which it selects the last two. No process fires it."""
    await engine.triggers.put(SHIP)
    await engine.triggers.pause("ship-nz")
    await published(engine, "a", country="fr")
    await published(engine, "b", "c")
    core = engine.core
    core.kernel.dispatch(TriggerResume(namespace=core.namespace, trigger="ship-nz"))
    return core


async def test_a_host_that_was_overtaken_handles_the_messages_that_the_faster_one_has_not_seen(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The faster one has passed over the only message that it saw. No other fires before the next round."""
    engine = open_engine(ship)
    async with engine:
        core, dispatched = await behind(engine), list[int]()
        entry = core.stores.persistence.read(FindTrigger(TriggerName(core.namespace, "ship-nz")))
        assert entry is not None
        passing_over = TriggerFire(
            namespace=core.namespace,
            trigger="ship-nz",
            expected=1,
            digest=trigger_digest(entry.row),
            next=2,
        )
        dispatch_many = core.kernel.dispatch_many

        def overtaken(commands: Sequence[Command[Any]]) -> list[Any]:
            dispatched.append(len(commands))
            if len(dispatched) == 1:
                dispatch_many([passing_over])
            return dispatch_many(commands)

        monkeypatch.setattr(core.kernel, "dispatch_many", overtaken)
        assert not TriggerFirer(core).fire()
        assert dispatched == [2, 2]
        assert await ids(engine) == ["ship-nz/orders/2", "ship-nz/orders/3"]
        assert (await engine.triggers.get("ship-nz")).next_number == 4


async def test_a_host_that_selected_messages_before_an_update_selects_them_again(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has passed over a message that the trigger selects now."""
    engine = open_engine(ship)
    async with engine:
        core, dispatched = await behind(engine), list[int]()
        dispatch_many = core.kernel.dispatch_many

        def update(tx: Transaction) -> None:
            (row,) = tx.get(TRIGGERS, [TriggerName(core.namespace, "ship-nz")])
            assert row is not None
            tx.apply([Update(attrs.evolve(row, selection="{}"))])

        def updated(commands: Sequence[Command[Any]]) -> list[Any]:
            if not dispatched:
                core.stores.persistence.transact(update)
            dispatched.append(len(commands))
            return dispatch_many(commands)

        monkeypatch.setattr(core.kernel, "dispatch_many", updated)
        assert not TriggerFirer(core).fire()
        assert dispatched == [2, 3]
        assert await ids(engine) == [f"ship-nz/orders/{number}" for number in (1, 2, 3)]


async def test_the_messages_of_a_process_without_the_code_wait_for_one_that_has_it(
    open_engine: OpenEngine,
) -> None:
    """Its maintenance starts the runs: nothing else tells it of the messages."""
    with_code = open_engine(ship)
    async with with_code:
        await with_code.triggers.put(SHIP)
        without = open_engine(loud)
        async with without:
            await published(without, "a")
            assert await ids(without) == []
        async with Worker(with_code):
            await started(with_code, "ship-nz/orders/1")
            assert await with_code.handle(ship, "ship-nz/orders/1").result(timeout=SOON) == "a with none"


async def test_what_a_publisher_left_behind_starts_runs(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ends between its commit and the delivery leaves both to maintenance."""
    engine = open_engine(ship)
    async with engine:
        await engine.triggers.put(SHIP)
        with monkeypatch.context() as patched:
            patched.setattr(type(engine.client), "follow_up", nothing)
            await published(engine, "a")
        assert await ids(engine) == []
        async with Worker(engine):
            await started(engine, "ship-nz/orders/1")
            assert await engine.handle(ship, "ship-nz/orders/1").result(timeout=SOON) == "a with none"


async def test_what_is_wrong_is_refused(open_engine: OpenEngine) -> None:
    engine = open_engine(ship)
    async with engine:
        with pytest.raises(InvalidArgumentError, match="must be a Trigger"):
            await engine.triggers.put(cast("Any", "ship"))
        with pytest.raises(UnknownWorkflowError):
            await engine.triggers.put(Trigger("loudly", words, loud))
        late = datetime.now(UTC) + timedelta(days=1)
        with pytest.raises(InvalidCommandError, match="since is in the future"):
            await engine.triggers.put(attrs.evolve(SHIP, since=late))
        for call in (engine.triggers.get, engine.triggers.pause, engine.triggers.resume):
            with pytest.raises(TriggerNotFoundError, match="there is no trigger 'none'"):
                await call("none")
        assert not await engine.triggers.remove("none")
        assert [one async for one in engine.triggers.list()] == []
    with pytest.raises(DefinitionError, match="two triggers are named 'ship-nz'"):
        open_engine(ship, triggers=[SHIP, SHIP])


async def test_a_removed_trigger_starts_nothing_and_its_runs_stay(open_engine: OpenEngine) -> None:
    engine = open_engine(ship)
    async with engine:
        await engine.triggers.put(SHIP)
        await published(engine, "a")
        assert await engine.triggers.remove("ship-nz")
        await published(engine, "b")
        assert await ids(engine) == ["ship-nz/orders/1"]


async def test_a_purged_namespace_has_no_triggers(open_engine: OpenEngine) -> None:
    engine = open_engine(ship)
    async with engine:
        inside = engine.in_namespace(f"{engine.core.namespace}-x")
        await inside.triggers.put(SHIP)
        assert await engine.namespaces.delete(inside.core.namespace, purge=True) in (True, False)
        assert [one async for one in inside.triggers.list()] == []


@pytest.mark.parametrize("damage", [{"start": "{"}, {"start": "5"}, {"selection": "["}, {"selection": "7"}])
async def test_a_trigger_that_can_not_be_read_loses_no_message_and_holds_up_no_other(
    open_engine: OpenEngine, damage: dict[str, str]
) -> None:
    engine = open_engine(ship)
    async with engine:
        await engine.triggers.put(SHIP)
        await engine.triggers.put(Trigger("whole", orders, ship))
        before = write(engine, **damage)
        await published(engine, "a")
        assert await ids(engine) == ["whole/orders/1"]
        assert (await engine.triggers.get("ship-nz")).behind == 1
        write(engine, **before)
        TriggerFirer(engine.core).fire()
        assert await ids(engine) == ["whole/orders/1", "ship-nz/orders/1"]


def write(engine: Engine, **columns: Any) -> dict[str, Any]:
    """Write texts into the row of the trigger past the rules; return those that it had."""

    def work(tx: Transaction) -> dict[str, Any]:
        (row,) = tx.lock(TRIGGERS, [TriggerName(engine.core.namespace, "ship-nz")])
        tx.apply([Update(attrs.evolve(row, **columns))])
        return {name: getattr(row, name) for name in columns}

    return engine.core.stores.persistence.transact(work)
