"""Decorated functions, methods and context variables as bodies of all kinds."""

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar, cast

import anyio
import anyio.lowlevel
import pytest

from holdfast import (
    Pipeline,
    Retry,
    Worker,
    compensate_with,
    expose,
    side_effect,
    stage,
    step,
    update,
    workflow,
)
from holdfast.ports.errors import RunFailedError, UpdateRejectedError
from tests.integration.hosts.conftest import OpenEngine

SOON = 120
ONCE = Retry(attempts=1)

A = TypeVar("A")
R = TypeVar("R")

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
notes: list[str] = []


def in_thread(fn: Callable[[A], R]) -> Callable[[A], Coroutine[Any, Any, R]]:
    """Make a sync function async."""

    @functools.wraps(fn)
    async def wrapper(value: A) -> R:
        return await asyncio.to_thread(fn, value)

    return wrapper


def plain(fn: Callable[[A], Coroutine[Any, Any, R]]) -> Callable[[A], Coroutine[Any, Any, R]]:
    """Wrap an async function in a sync one that returns the awaitable."""

    @functools.wraps(fn)
    def wrapper(value: A) -> Coroutine[Any, Any, R]:
        notes.append(threading.current_thread().name)
        return fn(value)

    return wrapper


def read(number: int) -> str:
    return f"read {number}"


async def fetch(number: int) -> str:
    await anyio.lowlevel.checkpoint()
    return f"read {number}"


def forget(gave: str) -> None:
    notes.append(f"forgot {gave}")


async def forget_later(gave: str) -> None:
    await anyio.lowlevel.checkpoint()
    notes.append(f"forgot {gave} later")


KINDS = [
    step(retry=ONCE, name="async_of_sync")(in_thread(read)),
    step(retry=ONCE, name="sync_of_async")(plain(fetch)),
    step(retry=ONCE, name="queued_async_of_sync", queue="q")(in_thread(read)),
    step(retry=ONCE, name="queued_sync_of_async", queue="q")(plain(fetch)),
    step(retry=ONCE, name="in_time", timeout=10)(plain(fetch)),
]
forgets = step(name="forgets")(in_thread(forget))
forgets_later = step(name="forgets_later")(plain(forget_later))


@workflow
async def calls_all(number: int) -> list[str]:
    return [
        *[await one(number) for one in KINDS],
        cast("str", await side_effect(lambda: fetch(number))),
    ]


@workflow
async def takes_back(number: int) -> str:
    gave = await KINDS[0](number)
    compensate_with(forgets, gave)
    compensate_with(forgets_later, gave)
    raise ValueError("no")


piped = (
    Pipeline("piped", input=int)
    .pipe(stage(name="one")(in_thread(read)))
    .pipe(stage(name="two")(plain(forget_later)))
)


@pytest.mark.slow
def test_the_outermost_function_says_how_it_is_called(open_engine: OpenEngine) -> None:
    notes.clear()
    engine = open_engine(calls_all, takes_back, piped, steps=KINDS[2:4])
    with engine.sync as runs, Worker(engine):
        assert runs.start(calls_all(1)).result(timeout=SOON) == ["read 1"] * 6
        assert notes.count("holdfast-body") == len(notes) == 3
        notes.clear()
        with pytest.raises(RunFailedError, match="no"):
            runs.start(takes_back(1)).result(timeout=SOON)
        assert [note for note in notes if note.startswith("forgot")] == [
            "forgot read 1 later",
            "forgot read 1",
        ]
        notes.clear()
        assert runs.start(piped(2)).result(timeout=SOON) is None
        assert notes[1:] == ["forgot read 2 later"]


class Counter:
    def __init__(self) -> None:
        self.value = 0

    @update
    def add(self, number: int) -> int:
        self.value += number
        return self.value

    @add.validator
    def _check(self, number: int) -> None:
        return cast("None", _later())


async def _later() -> None:
    """Return a coroutine that is never awaited."""


@workflow
async def counts() -> int:
    counter = expose(Counter())
    await anyio.lowlevel.checkpoint()
    await asyncio.sleep(60)
    return counter.value


def test_a_validator_whose_answer_would_have_to_be_awaited_says_no(open_engine: OpenEngine) -> None:
    engine = open_engine(counts)
    with engine.sync as runs, Worker(engine):
        run = runs.start(counts())
        with pytest.raises(UpdateRejectedError, match="returned an awaitable"):
            run.update(Counter.add(1), timeout=SOON)


class Bank:
    """A service object with settings of its own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.charges: list[int] = []

    def charge(self, amount: int) -> str:
        self.charges.append(amount)
        return f"{self.name} charged {amount}"

    async def refund(self, gave: str) -> None:
        self.charges.clear()

    @classmethod
    def currency(cls) -> str:
        return "EUR"

    @staticmethod
    def rounded(amount: float) -> int:
        return round(amount)


BANKS = Bank("A"), Bank("B")
charge_a = step(retry=ONCE)(BANKS[0].charge)
charge_b = step(name="charge_b", queue="q")(BANKS[1].charge)
refund_a = charge_a.compensate(BANKS[0].refund)
currency = step(Bank.currency)
rounded = step(Bank.rounded)


@workflow
async def pays(amount: float) -> list[str]:
    whole = await rounded(amount)
    return [await charge_a(whole), await charge_b(whole), await currency()]


def test_methods_of_objects_are_steps(open_engine: OpenEngine) -> None:
    engine = open_engine(pays)
    with engine.sync as runs, Worker(engine):
        assert runs.start(pays(6.7)).result(timeout=SOON) == ["A charged 7", "B charged 7", "EUR"]
    assert (charge_a.name, refund_a.name, rounded.name) == ("charge", "refund", "rounded")


# Context variables ------------------------------------------------------------------------------------------------


@step
async def whose() -> str:
    seen, _ = tenant.get(), tenant.set("a step's own")
    return seen


@step
def whose_in_thread() -> str:
    seen, _ = tenant.get(), tenant.set("a step's own")
    return seen


@workflow
async def sets(name: str) -> list[str]:
    before = tenant.get()
    tenant.set(name)
    seen = [before, await whose(), await whose_in_thread(), tenant.get()]
    tenant.set(name.upper())

    async def in_task() -> str:
        tenant.set("a task's own")
        return await whose()

    return [*seen, await asyncio.create_task(in_task()), await whose(), await side_effect(tenant.get)]


def test_steps_see_the_context_variables_of_their_function(open_engine: OpenEngine) -> None:
    engine = open_engine(sets)
    tenant.set("the application's")
    with engine.sync as runs, Worker(engine):
        handles = [runs.start(sets(name)) for name in ("ann", "bob")]
        given = [handle.result(timeout=SOON) for handle in handles]
    assert given == [
        ["nobody", name, name, name, "a task's own", name.upper(), name.upper()] for name in ("ann", "bob")
    ]
    tenant.set("nobody")
