"""Durable functions that use anyio; each result is compared with that of plain code and of replays."""

import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import anyio
import anyio.lowlevel
from anyio import lowlevel

from holdfast import Channel, Retry, step, workflow
from holdfast.kernel.authoring.functions import Workflow

go = Channel("go", str)


@step
async def echo(text: str) -> str:
    return text


@step
async def fail(text: str) -> str:
    raise ValueError(text)


@workflow
async def groups() -> list[str]:
    said: list[str] = []

    async def say(text: str, after: float = 0) -> None:
        await anyio.sleep(after)
        said.append(await echo(text))

    async with anyio.create_task_group() as group:
        group.start_soon(say, "slow", 0.2)
        group.start_soon(say, "quick")
        async with anyio.create_task_group() as inner:
            inner.start_soon(say, "inner", 0.1)
        said.append("between")
    return said


@workflow
async def started() -> str:
    async def serve(*, task_status: anyio.abc.TaskStatus[str] = anyio.TASK_STATUS_IGNORED) -> None:
        task_status.started(await echo("ready"))
        await anyio.sleep_forever()

    said = None
    async with anyio.create_task_group() as group:
        said = await group.start(serve)
        group.cancel_scope.cancel()
    return str(said)


@workflow
async def failing() -> list[str]:
    said: list[str] = []

    async def linger() -> None:
        try:
            await anyio.sleep(60)
        except anyio.get_cancelled_exc_class():
            said.append("cancelled")
            raise
        finally:
            with anyio.CancelScope(shield=True):
                said.append(await echo("tidied up"))

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(linger)
            await fail.options(retry=Retry(attempts=1))("no")
    except* ValueError as errors:
        said += [str(one) for one in errors.exceptions]
    return said


@workflow
async def cancels_siblings() -> list[str]:
    """Cancel many tasks at once, each in its own scope: anyio keeps scopes in sets by address."""
    said: list[str] = []

    async def linger(name: str) -> None:
        try:
            with anyio.move_on_after(900):
                await anyio.sleep(600)
        finally:
            said.append(name)

    try:
        async with anyio.create_task_group() as group:
            for name in "abcdefgh":
                group.start_soon(linger, name)
            await fail.options(retry=Retry(attempts=1))("no")
    except* ValueError:
        await echo("".join(said))
    return said


@workflow
async def scopes() -> list[object]:
    with anyio.move_on_after(0.05) as scope:
        await anyio.sleep(1)
    late = scope.cancelled_caught
    try:
        with anyio.fail_after(0.05):
            await anyio.sleep_forever()
    except TimeoutError:
        late = late and True
    said = shielded = ""
    with anyio.move_on_after(60) as wide:
        said = await echo("in time")
    with anyio.CancelScope() as outer:
        outer.cancel()
        with anyio.CancelScope(shield=True):
            shielded = await echo("shielded")
        await anyio.sleep(1)
    with anyio.CancelScope() as later:
        later.deadline = anyio.current_time() + 0.05
        await anyio.sleep_until(anyio.current_time() + 1)
    return [late, said, wide.cancel_called, shielded, outer.cancelled_caught, later.cancelled_caught]


@workflow
async def locks() -> list[str]:
    said: list[str] = []
    lock, semaphore, limiter = anyio.Lock(), anyio.Semaphore(1), anyio.CapacityLimiter(1)
    event, condition = anyio.Event(), anyio.Condition()

    async def take(name: str) -> None:
        async with lock:
            said.append(f"{name} {await echo('lock')}")
        async with semaphore:
            said.append(f"{name} {await echo('semaphore')}")
        async with limiter:
            said.append(f"{name} {await echo('limiter')}")
        event.set()

    async def wait() -> None:
        await event.wait()
        async with condition:
            condition.notify_all()
        said.append("told")

    async with anyio.create_task_group() as group:
        group.start_soon(take, "a")
        group.start_soon(take, "b")
        group.start_soon(wait)
        async with condition:
            await condition.wait()
    return said


@workflow
async def streams() -> list[str]:
    send, receive = anyio.create_memory_object_stream[str](1)
    said: list[str] = []

    async def produce() -> None:
        async with send:
            for text in "abc":
                await send.send(await echo(text))

    async with anyio.create_task_group() as group:
        group.start_soon(produce)
        async with receive:
            said += [text async for text in receive]
    try:
        send.send_nowait("d")
    except (anyio.ClosedResourceError, anyio.BrokenResourceError):
        said.append("closed")
    return said


@workflow
async def small() -> list[object]:
    began = anyio.current_time()
    await lowlevel.checkpoint()
    await lowlevel.cancel_shielded_checkpoint()
    await anyio.lowlevel.checkpoint()
    has_deadline = False
    with anyio.CancelScope() as scope:
        await lowlevel.checkpoint()
        has_deadline = anyio.current_effective_deadline() == math.inf == scope.deadline
    variable = lowlevel.RunVar[int]("variable", 3)
    return [
        began == anyio.current_time(),
        has_deadline,
        variable.get(),
        anyio.get_current_task().name is not None,
    ]


@asynccontextmanager
async def group_of_its_own() -> AsyncGenerator[anyio.abc.TaskGroup]:
    async with anyio.create_task_group() as group:
        yield group


@workflow
async def generators() -> list[str]:
    said: list[str] = []

    async def say(text: str) -> None:
        said.append(await echo(text))

    async with group_of_its_own() as group:
        for text in "xy":
            group.start_soon(say, text)
    return said


@workflow
async def receives() -> str:
    async with anyio.create_task_group() as group:
        group.start_soon(echo, "beside")
        with anyio.move_on_after(3_600):
            return await go.receive()
    return "nothing came"


GIVES: Final[list[tuple[Workflow[[], object], object]]] = [
    (groups, ["quick", "inner", "between", "slow"]),
    (started, "ready"),
    (failing, ["cancelled", "tidied up", "no"]),
    (cancels_siblings, list("abcdefgh")),
    (scopes, [True, "in time", False, "shielded", True, True]),
    (locks, ["a lock", "b lock", "a semaphore", "b semaphore", "a limiter", "b limiter", "told"]),
    (streams, ["a", "b", "c", "closed"]),
    (small, [True, True, 3, True]),
    (generators, ["x", "y"]),
    (receives, "here"),
]
