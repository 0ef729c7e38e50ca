"""Queries and updates in a test world; waiting for a reply lets time pass."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from holdfast.kernel.authoring.functions import sleep, workflow
from holdfast.kernel.authoring.publications import publish
from holdfast.kernel.authoring.queries import expose, query, update
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.invariants import check
from holdfast.ports.errors import UpdateLostError, UpdateRejectedError
from holdfast.testing import World


@pytest.fixture
def world() -> Iterator[World]:
    with World() as world:
        yield world
    assert not check(world.store.dump())


@step
async def weigh(what: str) -> int:
    return len(what)


@dataclass
class Basket:
    articles: list[str] = field(default_factory=list[str])
    paid: asyncio.Event = field(default_factory=asyncio.Event)

    @query
    def listed(self) -> list[str]:
        return self.articles

    @update
    async def add(self, article: str) -> int:
        await sleep(timedelta(days=1))
        self.articles.append(article)
        publish("articles", len(self.articles))
        return await weigh(article)

    @add.validator
    def may_add(self, article: str) -> None:
        if not article:
            raise ValueError("nothing is no article")

    @update
    def pay(self) -> int:
        self.paid.set()
        return len(self.articles)


@workflow
async def shop() -> list[str]:
    basket = expose(Basket())
    await basket.paid.wait()
    return basket.articles


def test_time_passes_until_an_update_is_answered(world: World) -> None:
    run = world.start(shop())
    began = world.now
    assert run.query(Basket.listed()) == []
    assert run.update(Basket.add("bread")) == 5
    assert world.now - began == timedelta(days=1)
    assert run.query(Basket.listed()) == ["bread"]
    assert run.published("articles", int) == 1
    with pytest.raises(UpdateRejectedError, match="nothing is no article"):
        run.update(Basket.add(""))
    assert run.update(Basket.pay()) == 1
    assert run.result() == ["bread"]


def test_a_timeout_is_of_the_world_s_time(world: World) -> None:
    run = world.start(shop())
    began = world.now
    with pytest.raises(TimeoutError):
        run.update(Basket.add("bread"), timeout=timedelta(hours=3))
    assert timedelta(hours=3) - (world.now - began) < timedelta(seconds=1)
    assert world.now - began < timedelta(days=1)
    world.advance(days=1)
    assert run.query(Basket.listed()) == ["bread"]


def test_what_a_function_is_not_done_with_is_lost(world: World) -> None:
    run = world.start(shop())
    reply = run.submit_update(Basket.add("bread"))
    assert run.update(Basket.pay()) == 0
    assert run.result() == []
    with pytest.raises(UpdateLostError):
        reply.read_reply()


async def _asked_in_a_loop(world: World) -> tuple[int, list[str]]:
    world.start(shop(), id="x")
    run = world.engine.handle(shop, "x")
    return await run.update(Basket.add("milk")), await run.query(Basket.listed())


def test_async_code_asks_alike(world: World) -> None:
    assert asyncio.run(_asked_in_a_loop(world)) == (4, ["milk"])
