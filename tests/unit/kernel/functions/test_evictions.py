"""Eviction of a function from memory without side effects of its code."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from typing import cast

import anyio
import pytest

from holdfast.kernel.authoring.functions import now, sleep_until, workflow
from holdfast.kernel.authoring.steps import step
from tests.unit.kernel.functions.corpus import CORPUS
from tests.unit.kernel.functions.player import new_machine

EFFECTS: list[str] = []


@step
async def effect(name: str) -> str:
    EFFECTS.append(name)
    return name


@workflow
async def tidies_up() -> None:
    try:
        await effect("forward")
    finally:
        await effect("refund")


@workflow
async def tidies_up_in_tasks() -> None:
    async def one(name: str) -> None:
        try:
            await asyncio.sleep(10)
        except BaseException:
            await effect(name)
            raise

    async with asyncio.TaskGroup() as group:
        for name in "abc":
            group.create_task(one(name))


@workflow
async def tidies_up_in_a_generator() -> None:
    async def numbers() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            await effect("generator")

    async for _ in numbers():
        await effect("forward")


@workflow
async def will_not_go() -> None:
    while True:
        try:
            await effect("again")
        except BaseException:  # noqa: BLE001
            EFFECTS.append("swallowed") if not EFFECTS else None


@workflow
async def waits_while_it_goes() -> None:
    try:
        await effect("forward")
    finally:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def _no_effects() -> None:
    EFFECTS.clear()


@pytest.mark.parametrize("call", [tidies_up(), tidies_up_in_tasks(), tidies_up_in_a_generator()], ids=repr)
def test_no_step_is_done_by_code_that_tidies_up(call: object) -> None:
    machine = new_machine(call)
    machine.begin()
    before = machine.pending_requests
    machine.evict()
    del machine
    gc.collect()
    assert before
    assert EFFECTS == []


@pytest.mark.parametrize("call", [will_not_go(), waits_while_it_goes()], ids=repr)
def test_code_that_refuses_to_end_is_left_alone(call: object) -> None:
    machine = new_machine(call)
    machine.begin()
    machine.evict()
    gc.collect()
    assert "again" not in EFFECTS


@pytest.mark.parametrize("call", CORPUS, ids=lambda call: call.definition.name)
def test_everything_can_be_evicted_where_it_first_waits(call: object) -> None:
    machine = new_machine(call)
    machine.begin()
    machine.evict()
    gc.collect()


def test_outside_of_a_workflow_a_step_is_just_the_function() -> None:
    assert asyncio.run(effect("called")) == "called"
    assert EFFECTS == ["called"]


def test_what_only_a_workflow_can_say_is_refused_elsewhere() -> None:
    with pytest.raises(RuntimeError, match=r"holdfast\.now\(\) was called outside of a workflow"):
        now()
    with pytest.raises(RuntimeError, match="sleep_until"):
        asyncio.run(sleep_until(None))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


WAITING: list["weakref.ref[asyncio.Task[None]]"] = []


@workflow
async def waits_in_scopes() -> None:
    async def wait() -> None:
        WAITING.append(weakref.ref(cast("asyncio.Task[None]", asyncio.current_task())))
        with anyio.move_on_after(10):
            await effect("in a task")

    WAITING.append(weakref.ref(cast("asyncio.Task[None]", asyncio.current_task())))
    with anyio.move_on_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await effect("in a scope")


def test_what_waits_in_a_scope_of_anyio_is_freed() -> None:
    machine = new_machine(waits_in_scopes())
    machine.begin()
    machine.evict()
    del machine
    gc.collect()
    assert [task() for task in WAITING] == [None, None]
