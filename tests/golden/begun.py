"""What the runs were begun with whose histories are kept in `histories/`. Never edited: what was begun goes on so.

A change of the engine that has one of these do something else breaks somebody's runs. More may be added below.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from holdfast import (
    Channel,
    Rate,
    Retry,
    compensate_with,
    continue_as_new,
    expose,
    now,
    patched,
    publish,
    random,
    select,
    side_effect,
    sleep,
    sleep_until,
    start_child,
    step,
    step_context,
    update,
    uuid4,
    workflow,
)
from holdfast.errors import RunCancelledError
from holdfast.workflows import Call, Workflow

MONTH: Final = timedelta(days=30)
ONCE: Final = Retry(attempts=1)


@dataclass(frozen=True)
class Parcel:
    order: str
    weight: float
    sent: datetime | None = None


class DeclinedError(Exception):
    """The bank said no."""

    def __init__(self, order: str, code: int) -> None:
        super().__init__(order, code)
        self.code = code


approval = Channel("approval", bool)
withdrawal = Channel("withdrawal", str)


@step
async def charge(order: str, *, cents: int = 100) -> str:
    return f"{order}-{cents}"


@step(retry=ONCE)
def refund(receipt: str) -> None:
    del receipt


charge.compensate(refund)


@step
def pack(order: str, weight: float = 1.5) -> Parcel:
    return Parcel(order, weight)


@step(retry=Retry(attempts=3, wait=timedelta()))
def flaky(order: str) -> int:
    if step_context().attempt < 3:
        raise ConnectionError(f"{order} is busy")
    return step_context().attempt


@step(retry=ONCE)
def decline(order: str) -> None:
    raise DeclinedError(order, 51)


@step
async def wait_long(order: str) -> None:
    del order
    await asyncio.sleep(600)


@step
def large(size: int) -> str:
    return "x" * size


@workflow
async def in_order(order: str) -> dict[str, object]:
    before = now()
    receipt = await charge(order, cents=5)
    await sleep(timedelta(milliseconds=1))
    await sleep_until(before)
    return {
        "receipt": receipt,
        "took": now() > before,
        "id": str(uuid4()),
        "drawn": random().randrange(1_000_000),
        "effect": await side_effect(lambda: 42),
        "attempts": await flaky(order),
    }


@workflow
async def at_once(orders: list[str]) -> list[Parcel]:
    async def each(order: str) -> Parcel:
        await charge(order)
        return await pack(order, len(order))

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each(order)) for order in orders]
    others = await asyncio.gather(*(pack(order) for order in orders))
    return [*(task.result() for task in tasks), *others]


@workflow
async def races(order: str) -> list[str]:
    slow, quick = asyncio.ensure_future(wait_long(order)), asyncio.ensure_future(charge(order))
    done, pending = await asyncio.wait([slow, quick], return_when=asyncio.FIRST_COMPLETED)
    slow.cancel()
    found = [f"{len(done)} done, {len(pending)} pending"]
    try:
        async with asyncio.timeout(0.01):
            await wait_long(order)
    except TimeoutError:
        found.append("too long")
    try:
        await asyncio.wait_for(approval.receive(), 0.01)
    except TimeoutError:
        found.append("nobody said so")
    return found


@workflow
async def forgives(order: str) -> int:
    try:
        await decline(order)
    except DeclinedError as error:
        return error.code
    return 0


@workflow
async def fails(order: str) -> None:
    await charge(order)
    compensate_with(refund, "by hand")
    await decline(order)


@workflow
async def is_told(order: str) -> list[object]:
    first = await approval.receive()
    second = await select(approval, withdrawal, timeout=60)
    return [order, first, second]


@workflow
async def is_patched(order: str) -> str:
    receipt = await charge(order)
    if patched("parcels"):
        return (await pack(receipt)).order
    return receipt


@workflow
async def is_large(size: int) -> int:
    return len(await large(size))


@workflow
async def sleeps(order: str) -> str:
    receipt = await charge(order)
    await sleep(MONTH)
    return receipt


@workflow
async def listens(order: str) -> str:
    approved = await approval.receive()
    reason = await withdrawal.receive()
    return f"{order}: {approved}, {reason}"


@workflow
async def is_cancelled(order: str) -> str:
    receipt = await charge(order)
    try:
        await sleep(MONTH)
    finally:
        await pack(order)
    return receipt


@workflow
async def is_late(order: str) -> list[bool]:
    """Nobody drives it for a while after it was created."""
    began = now()
    async with asyncio.timeout(60):
        await charge(order)
    return [now() >= began]


@step(queue="far", retry=Retry(attempts=3, wait=timedelta()))
def weigh(order: str) -> int:
    if step_context().attempt < 2:
        raise ConnectionError(f"{order} is busy")
    return len(order)


@step(queue="far", priority=5, max_concurrency=1, rate_limit=Rate(100, per=timedelta(minutes=1)), retry=ONCE)
async def measure(order: str) -> int:
    return len(order)


@step(queue="nobody", retry=ONCE)
def unserved(order: str) -> None:
    del order


@workflow
async def in_queues(order: str) -> list[int]:
    weights = list(await asyncio.gather(weigh(order), measure(order), measure(order * 2)))
    try:
        async with asyncio.timeout(0.3):
            await unserved(order)
    except TimeoutError:
        weights.append(len(await charge(order)))
    return weights


@workflow
async def packs(order: str) -> str:
    return (await pack(order)).order


@workflow
async def has_children(order: str) -> list[str]:
    one, other = await start_child(packs(order)), await start_child(listens(order))
    await other.signal(approval(True))
    await other.cancel(reason="enough")
    try:
        await other.result()
    except RunCancelledError as error:
        return [await one.result(), await packs("inner"), error.reason]
    return []


@dataclass
class Counter:
    count: int = 0
    is_done: asyncio.Event = field(default_factory=asyncio.Event)

    @update
    async def add(self, number: int) -> int:
        await charge(f"add-{number}")
        self.count += number
        return self.count

    @add.validator
    def may_add(self, number: int) -> None:
        if number < 0:
            raise ValueError(number)

    @update
    def finish(self) -> None:
        self.is_done.set()


@workflow
async def is_updated(order: str) -> int:
    counter = expose(Counter())
    publish("order", order)
    await counter.is_done.wait()
    return counter.count


@workflow
async def goes_on(number: int) -> int:
    await pack(str(number))
    if number < 3:
        return await continue_as_new(goes_on(number + 1))
    return number


@workflow
async def is_forked(order: str) -> list[str]:
    drawn = str(uuid4())
    receipt = await charge(order)
    word = await withdrawal.receive()
    return [drawn, receipt, word, (await pack(order)).order, str(uuid4())]


CALLS: Final[Mapping[str, Call[Any]]] = {
    "in_order": in_order("a-1"),
    "at_once": at_once(["b", "bb", "bbb"]),
    "races": races("c-1"),
    "forgives": forgives("d-1"),
    "fails": fails("e-1"),
    "is_told": is_told("f-1"),
    "is_patched": is_patched("g-1"),
    "is_large": is_large(70_000),
    "sleeps": sleeps("h-1"),
    "listens": listens("i-1"),
    "is_cancelled": is_cancelled("j-1"),
    "is_late": is_late("k-1"),
    "in_queues": in_queues("l-1"),
    "has_children": has_children("m-1"),
    "is_updated": is_updated("n-1"),
    "goes_on": goes_on(1),
    "is_forked": is_forked("o-1"),
}
WORKFLOWS: Final[tuple[Workflow[..., Any], ...]] = (
    *(in_order, at_once, races, forgives, fails, is_told, is_patched, is_large),
    *(sleeps, listens, is_cancelled),
    *(is_late, in_queues, packs, has_children, is_updated, goes_on, is_forked),
)
WAITING: Final = frozenset({"sleeps", "listens"})
"""Those that were not at their end when they were written."""
