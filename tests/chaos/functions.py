"""The durable functions of the chaos tests. Their steps write to the execution log."""

import asyncio
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Final

import anyio
import attrs
from sqlalchemy import Connection, column, insert, table

from holdfast import (
    Channel,
    Retry,
    StepContext,
    continue_as_new,
    expose,
    select,
    sleep,
    start_child,
    step,
    step_context,
    update,
    workflow,
)
from tests.chaos.execution_log import book, work_seconds
from tests.chaos.faults import reach

PATIENT: Final = Retry(attempts=50, wait=timedelta(0))


@attrs.frozen(kw_only=True)
class Call:
    """A try of a step, as the book has attempts of stages: each call is a piece of work, each try is its own."""

    run_id: str
    stage: str
    epoch: int
    attempt: int
    idempotency_key: str
    item: int | None = None


def call_of(context: StepContext) -> Call:
    """Return the try of which a step's body is one."""
    return Call(
        run_id=context.run_id,
        stage=f"{context.workflow}/{context.idempotency_key.rpartition('/')[2]}",
        epoch=context.attempt,
        attempt=context.attempt,
        idempotency_key=context.idempotency_key,
    )


@contextmanager
def written_down() -> Generator[None]:
    """Write down that the body of a step starts and, if it does not raise, that it ends."""
    call = call_of(step_context())
    book().write("start", call)
    yield
    book().write("end", call)


@step(retry=PATIENT)
def one_more(number: int) -> int:
    with written_down():
        reach("body")
        time.sleep(work_seconds())
        return number + 1


@step(retry=PATIENT)
async def one_more_async(number: int) -> int:
    with written_down():
        reach("body")
        await anyio.sleep(work_seconds())
        return number + 1


@workflow
async def errand(number: int) -> int:
    """Gives twice its input, and five."""
    number = await one_more(number)
    left, right = await asyncio.gather(one_more_async(number), one_more(number))
    await sleep(1.2)  # long enough to be parked
    return await one_more_async(left + right)


ERRAND_STEPS: Final = 4

SEATS: Final = table("test_seats", column("seat"))
"""A table of the user's own, in the store's database."""


@step(retry=PATIENT).in_transaction
def take_seat(db: Connection, seat: str) -> str:
    """Takes a seat, which can't be taken twice."""
    with written_down():
        db.execute(insert(SEATS).values(seat=seat))
        reach("body")
    return seat


@workflow
async def booking(seat: str) -> str:
    return await take_seat(seat)


# What a newcomer would write ------------------------------------------------------------------------------------


@step(queue="far", retry=PATIENT, max_concurrency=2)
async def square(number: int) -> int:
    """Is done by whoever serves the queue, two at a time."""
    with written_down():
        reach("body")
        await anyio.sleep(work_seconds())
        return number * number


@step(queue="far", retry=PATIENT)
def double(number: int) -> int:
    with written_down():
        reach("body")
        time.sleep(work_seconds())
        return 2 * number


@workflow
async def trip(number: int) -> int:
    """Gives twice the number after its input: a step here, and one in a queue."""
    return await double(await one_more(number))


@workflow
async def survey(width: int) -> list[int]:
    """Steps in queues, steps here and runs of its own, all at once; and some that are given up."""
    async with asyncio.TaskGroup() as group:
        squares = [group.create_task(square(number)) for number in range(width)]
        nexts = [group.create_task(one_more_async(number)) for number in range(width)]
        trips = [group.create_task(trip(number)) for number in range(2)]
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.gather(sleep(3_600), *map(square, range(width))), 0.05)
    return [task.result() for task in (*squares, *nexts, *trips)]


def surveyed(width: int) -> list[int]:
    """Return what a survey gives."""
    return [*(number * number for number in range(width)), *range(1, width + 1), 2, 4]


approval: Final = Channel("approval", bool)
withdrawal: Final = Channel("withdrawal", str)


@step(retry=PATIENT)
async def pay(number: int) -> str:
    with written_down():
        reach("body")
        await anyio.sleep(work_seconds())
        return f"receipt {number}"


@pay.compensate
@step(queue="far", retry=PATIENT)
async def pay_back(receipt: str) -> None:
    with written_down():
        reach("body")
        await anyio.sleep(work_seconds())


@workflow
async def reminder(number: int) -> int:
    await sleep(1.2)
    return await one_more(number)


@workflow
async def purchase(number: int) -> str:
    """Pays, waits for somebody to approve it, and asks after a while; or pays back."""
    receipt = await pay(number)
    said = await select(approval, withdrawal, timeout=timedelta(days=30))
    if said is not True:
        raise ValueError(f"not approved: {said}")
    await start_child(reminder(number), parent_end="abandon")
    return receipt


coins: Final = Channel("coins", int)
COINS: Final = 12


class Purse:
    """What others put money into."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.is_closed = asyncio.Event()

    @update
    async def put(self, number: int) -> int:
        """Add some, after a while."""
        await asyncio.sleep(0.3)
        self.total += number
        return self.total

    @update
    def close(self) -> int:
        self.is_closed.set()
        return self.total


@workflow
async def saving(total: int = 0, seen: int = 0) -> int:
    """Adds up coins, and what is put into the purse, over many generations."""
    purse = expose(Purse(total))
    for _ in range(3):
        if seen == COINS:
            await purse.is_closed.wait()
            return purse.total
        coin = await coins.receive()
        purse.total += coin
        seen += 1
    return await continue_as_new(lambda: saving(purse.total, seen))
