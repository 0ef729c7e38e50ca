"""The steps of queues that a function mentions are found without anybody listing them, and without a call."""

import types
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.hosts.mentions import steps_within
from holdfast.kernel.authoring.steps import step


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
