"""Queries and updates of an order: what both type checkers must infer."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, assert_type

import attrs

from holdfast import Engine, RunHandle, SyncRunHandle, expose, publish, query, update, workflow
from holdfast.workflows import Query, QueryCall, Update, UpdateCall


@dataclass
class OrderState:
    address: str

    @query
    def destination(self, *, upper: bool = False) -> str:
        return self.address.upper() if upper else self.address

    @query
    def lines(self) -> list[int] | None:
        return None

    @update
    def move_to(self, address: str) -> str:
        self.address, old = address, self.address
        return old

    @move_to.validator
    def may_move(self, address: str) -> None:
        if not address:
            raise ValueError("nowhere")

    @update
    async def weigh(self, *parts: int, exactly: bool = False) -> float:
        await asyncio.sleep(1)
        return sum(parts) + exactly


@attrs.define
class Slim:
    left: int = 3

    @query
    def rest(self) -> int:
        return self.left


@workflow
async def fulfil(address: str) -> None:
    state = expose(OrderState(address))
    assert_type(state, OrderState)
    assert_type(state.destination(upper=True), str)
    assert_type(state.lines(), list[int] | None)
    assert_type(state.move_to("x"), str)
    assert_type(await state.weigh(1, 2, exactly=True), float)
    assert_type(state.may_move("x"), None)
    assert_type(expose(Slim()).rest(), int)
    publish("progress", 3)
    publish("parts", [1, 2], list[int])


assert_type(OrderState.destination(), QueryCall[str])
assert_type(OrderState.lines(), QueryCall[list[int] | None])
assert_type(OrderState.move_to("x"), UpdateCall[str])
assert_type(OrderState.weigh(1, 2), UpdateCall[float])
assert_type(Slim.rest(), QueryCall[int])
as_query: Query[Slim, [], int] = Slim.rest
as_update: Update[OrderState, [str], str, str] = OrderState.move_to
as_method: Callable[[str], str] = OrderState("x").move_to
as_async: Callable[..., Coroutine[Any, Any, float]] = OrderState("x").weigh
as_wider: QueryCall[object] = Slim.rest()


async def outside(engine: Engine, run: RunHandle[None]) -> None:
    assert_type(await run.query(OrderState.destination()), str)
    assert_type(await run.update(OrderState.move_to("x"), timeout=3, idempotency_key="k"), str)
    assert_type(await run.update(OrderState.weigh(1)), float)
    assert_type(await run.published("progress"), object)
    assert_type(await run.published("progress", int), int | None)
    assert_type(await run.published("parts", list[int]), list[int] | None)
    print(engine)


def outside_of_loops(run: SyncRunHandle[None]) -> None:
    assert_type(run.query(Slim.rest()), int)
    assert_type(run.update(OrderState.weigh(1)), float)
    assert_type(run.published("progress", int), int | None)
