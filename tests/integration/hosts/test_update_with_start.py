"""A start and an update in one transaction: the update finds the run that is there, or creates it."""

import asyncio
import threading
from dataclasses import dataclass, field

import pytest

from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.queries import expose, query, update
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.commands import RunCreate
from holdfast.kernel.invariants import check
from holdfast.ports.errors import (
    IdempotencyConflictError,
    InvalidArgumentError,
    InvalidValueError,
    RunExistsError,
    UpdateRejectedError,
)
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine

SOON = 120
ITEMS_MAX = 3

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


@step
def ship(items: list[str]) -> str:
    return f"shipped {', '.join(items)}"


@dataclass
class Cart:
    owner: str
    items: list[str] = field(default_factory=list[str])
    is_paid: asyncio.Event = field(default_factory=asyncio.Event)

    @update
    def add(self, item: str) -> int:
        self.items.append(item)
        return len(self.items)

    @add.validator
    def has_room(self, item: str) -> None:
        if len(self.items) >= ITEMS_MAX:
            raise ValueError(f"no room for {item}")

    @update
    def pay(self) -> list[str]:
        self.is_paid.set()
        return self.items

    @query
    def content(self) -> list[str]:
        return self.items


@workflow
async def shop(owner: str) -> str:
    cart = expose(Cart(owner))
    await cart.is_paid.wait()
    return await ship(cart.items)


@pytest.mark.slow
async def test_the_first_update_creates_the_run_and_later_ones_find_it(open_engine: OpenEngine) -> None:
    engine = open_engine(shop)
    async with Worker(engine):
        for number, item in enumerate(("tea", "milk"), 1):
            found = await engine.update_with_start(
                shop("ann"), Cart.add(item), id="ann", if_active="return", timeout=SOON
            )
            assert found == number
        run = engine.handle(shop, "ann")
        assert await run.query(Cart.content()) == ["tea", "milk"]
        await run.update(Cart.pay(), timeout=SOON)
        assert await run.result(timeout=SOON) == "shipped tea, milk"

        # The run has ended: the next one begins anew, if the options say so.
        with pytest.raises(RunExistsError):
            await engine.update_with_start(shop("ann"), Cart.add("jam"), id="ann", if_active="return")
        again = await engine.update_with_start(
            shop("ann"), Cart.add("jam"), id="ann", if_active="return", if_ended="rerun", timeout=SOON
        )
        assert again == 1
    history = await engine.handle(shop, "ann").history(generation=1)
    assert [row.type for row in history][:2] == ["run.created", "update.received"]
    assert check(snapshot_of(engine.core.stores.persistence)) == []


def test_many_first_updates_at_once_create_one_run(open_engine: OpenEngine) -> None:
    engine = open_engine(shop).sync
    replies: list[int] = []

    def add(item: str) -> None:
        replies.append(
            engine.update_with_start(shop("ann"), Cart.add(item), id="ann", if_active="return", timeout=SOON)
        )

    with engine, Worker(engine):
        threads = [threading.Thread(target=add, args=(f"item {number}",)) for number in range(ITEMS_MAX)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SOON)
        assert sorted(replies) == [1, 2, 3]
        assert [run.generation for run in engine.runs(all_generations=True)] == [1]


async def test_a_refused_update_starts_nothing(open_engine: OpenEngine) -> None:
    engine = open_engine(shop)
    with pytest.raises(RunExistsError):
        await engine.start(shop("ann"), id="ann")
        await engine.update_with_start(shop("ann"), Cart.add("tea"), id="ann")
    assert await engine.handle(shop, "ann").messages() == []
    invalid: list[tuple[dict[str, object], str]] = [
        ({}, "an id is needed"),
        ({"id": "new", "timeout": "soon"}, "timeout"),
        ({"id": "new", "if_active": "replace"}, "if_active"),
        ({"id": "new", "colour": "red"}, "colour"),
    ]
    for options, words in invalid:
        with pytest.raises(InvalidArgumentError, match=words):
            await engine.update_with_start(shop("ann"), Cart.add("tea"), **options)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidArgumentError, match="an update with its arguments"):
        await engine.update_with_start(shop("ann"), "add", id="new")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidArgumentError, match="expects the call of a workflow"):
        await engine.update_with_start(shop, Cart.add("tea"), id="new")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidValueError):
        await engine.update_with_start(shop(1), Cart.add("tea"), id="new")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    assert [run.id async for run in engine.runs()] == ["ann"]


async def test_a_validator_rejects_before_anything_is_stored_or_when_it_is_carried_out(
    open_engine: OpenEngine,
) -> None:
    engine = open_engine(shop)
    async with Worker(engine):
        for item in ("tea", "milk", "jam"):
            await engine.update_with_start(
                shop("ann"), Cart.add(item), id="ann", if_active="return", timeout=SOON
            )
        rows = len(await engine.handle(shop, "ann").history())
        with pytest.raises(UpdateRejectedError, match="no room for bread"):
            await engine.update_with_start(shop("ann"), Cart.add("bread"), id="ann", if_active="return")
        assert len(await engine.handle(shop, "ann").history()) == rows


async def test_the_same_key_starts_once_and_updates_once(open_engine: OpenEngine) -> None:
    engine = open_engine(shop)
    async with Worker(engine):
        for _ in range(2):
            reply = await engine.update_with_start(
                shop("ann"),
                Cart.add("tea"),
                id="ann",
                if_active="return",
                idempotency_key="first",
                timeout=SOON,
            )
            assert reply == 1
        with pytest.raises(IdempotencyConflictError):
            await engine.update_with_start(
                shop("ann"), Cart.add("milk"), id="ann", if_active="return", idempotency_key="first"
            )
        assert await engine.handle(shop, "ann").query(Cart.content()) == ["tea"]


def test_a_caller_that_waits_no_longer_loses_nothing(open_engine: OpenEngine) -> None:
    engine = open_engine(shop).sync
    with engine:
        with pytest.raises(TimeoutError, match=r"has not answered update 'Cart\.add'"):
            engine.update_with_start(shop("ann"), Cart.add("tea"), id="ann", timeout=0.01)
        with Worker(engine):
            reply = engine.update_with_start(
                shop("ann"), Cart.add("milk"), id="ann", if_active="return", timeout=SOON
            )
        assert reply == 2


def test_both_are_one_transaction(open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_engine(shop).sync
    batches: list[list[str]] = []
    with engine:
        engine.core.connect()
        dispatch = engine.core.kernel.dispatch_together

        def noted(commands: list[RunCreate]) -> object:
            batches.append([command.type for command in commands])
            return dispatch(commands)

        monkeypatch.setattr(engine.core.kernel, "dispatch_together", noted)
        with pytest.raises(TimeoutError):
            engine.update_with_start(shop("ann"), Cart.add("tea"), id="ann", timeout=0)
    assert batches == [["run.create", "run.update"]]
