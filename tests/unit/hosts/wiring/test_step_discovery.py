"""Queued steps that a function uses are found without a list and without a call."""

import types
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Engine, Worker, start_child, step, workflow
from holdfast.hosts.wiring.step_discovery import steps_within, with_children, workflows_within
from holdfast.testing import World


@step(queue="gpu")
def embed(text: str) -> str:
    return text


@step(queue="gpu")
def unembed(result: str | None) -> None: ...


embed.compensate(unembed)


@step(queue="gpu")
def search(text: str) -> str:
    return text


@step
def here(text: str) -> str:
    return text


MODELS = types.ModuleType("models")
vars(MODELS)["embed"] = embed
BY_NAME = {"embed": embed, "search": search}
NOTHING: dict[str, object] = {}


async def by_name() -> None:
    await embed("a")
    await here("a")


async def by_module() -> None:
    await MODELS.embed("a")


async def through_another() -> None:
    await by_name()
    await through_itself()


async def through_itself() -> None:
    await through_itself()


async def within() -> Any:
    return [one async for one in (await embed(text) for text in "ab")]


async def by_dict() -> None:
    await BY_NAME["search"]("a")


async def nothing() -> None:
    NOTHING["embed"] = 1


def closure() -> Callable[[], Any]:
    local = search

    async def inner() -> None:
        await local("a")

    return inner


@pytest.mark.parametrize("function", [by_name, by_module, through_another, within])
def test_a_step_is_found_with_what_takes_it_back(function: Callable[..., Any]) -> None:
    assert set(steps_within(function)) == {embed, unembed}


def test_one_in_a_dict_or_a_closure_is_found() -> None:
    assert set(steps_within(by_dict)) == {embed, unembed, search}
    assert list(steps_within(closure())) == [search]


def test_a_function_without_any_has_none() -> None:
    assert list(steps_within(nothing)) == []
    assert list(steps_within(through_itself)) == []


@workflow
async def parcel(order: int) -> int:
    return order


@workflow
async def ship(order: int) -> int:
    child = await start_child(parcel(order))
    return await child.result()


@workflow
async def sell(order: int) -> int:
    return await ship(order)


@workflow
async def rings() -> int:
    return await rings() if NOTHING else 0


def test_the_workflows_that_a_function_starts_are_found() -> None:
    assert list(workflows_within(sell.function)) == [ship]
    assert list(workflows_within(parcel.function)) == []
    assert with_children([sell]) == [sell, ship, parcel]
    assert with_children([rings]) == [rings]


def test_of_one_name_and_version_the_one_that_was_given_counts() -> None:
    function: Any = parcel.function
    other: Any = workflow(name="ship")(function)
    assert with_children([sell, other]) == [sell, other]


def test_a_worker_says_which_children_its_engine_lacks(caplog: pytest.LogCaptureFixture) -> None:
    Worker(Engine.open("memory://", workflows=[sell, parcel]))
    assert [one.getMessage() for one in caplog.records] == [
        (
            "sell@1 uses ship@1, which this engine does not have: its runs wait for a worker that has it; add it to"
            " Engine.open(..., workflows=[...]) if this worker should run it"
        )
    ]


def test_a_worker_whose_engine_has_all_children_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    Worker(Engine.open("memory://", workflows=[sell, ship, parcel, rings]))
    assert not caplog.records


def test_a_world_knows_children_by_itself() -> None:
    with World() as world:
        assert world.run(sell(3)) == 3
