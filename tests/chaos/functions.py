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
from holdfast.workflows import StepContext
from tests.chaos.execution_log import book, work_seconds
from tests.chaos.faults import reach

PATIENT: Final = Retry(attempts=50, wait=timedelta(0))


@attrs.frozen(kw_only=True)
class Call:
    """An attempt of a step in the terms of the log: each call is a unit of work."""

    run_id: str
    stage: str
    epoch: int
    attempt: int
    idempotency_key: str
    item: int | None = None


def call_of(context: StepContext) -> Call:
    """Return the attempt of the running step."""
    return Call(
        run_id=context.run_id,
        stage=f"{context.workflow}/{context.idempotency_key.rpartition('/')[2]}",
        epoch=context.attempt,
        attempt=context.attempt,
        idempotency_key=context.idempotency_key,
    )


@contextmanager
def written_down() -> Generator[None]:
    """Record the start of a step's body and, if it does not raise, its end."""
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
    """Returns twice its input plus five."""
    number = await one_more(number)
    left, right = await asyncio.gather(one_more_async(number), one_more(number))
    await sleep(3.0)  # the job is parked even if commits take a second on a busy machine
    return await one_more_async(left + right)


ERRAND_STEPS: Final = 4

SEATS: Final = table("test_seats", column("seat"))
"""A table of the application in the store's database."""


@step(retry=PATIENT).in_transaction
def take_seat(db: Connection, seat: str) -> str:
    """Takes a seat; each can be taken once."""
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
    """A queued step with at most two concurrent calls."""
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
    """Returns twice the number after its input, with an inline and a queued step."""
    return await double(await one_more(number))


@workflow
async def survey(width: int) -> list[int]:
    """Runs queued steps, inline steps and child runs concurrently; some are cancelled."""
    async with asyncio.TaskGroup() as group:
        squares = [group.create_task(square(number)) for number in range(width)]
        nexts = [group.create_task(one_more_async(number)) for number in range(width)]
        trips = [group.create_task(trip(number)) for number in range(2)]
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.gather(sleep(3_600), *map(square, range(width))), 0.05)
    return [task.result() for task in (*squares, *nexts, *trips)]


def surveyed(width: int) -> list[int]:
    """Return the expected result of a survey."""
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
    """Pays, waits for an approval with a timeout, and pays back without one."""
    receipt = await pay(number)
    said = await select(approval, withdrawal, timeout=timedelta(days=30))
    if said is not True:
        raise ValueError(f"not approved: {said}")
    await start_child(reminder(number), parent_end="abandon")
    return receipt


coins: Final = Channel("coins", int)
COINS: Final = 12


class Purse:
    """An exposed object to which updates add money."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.is_closed = asyncio.Event()

    @update
    async def put(self, number: int) -> int:
        """Add money after a delay."""
        await asyncio.sleep(0.3)
        self.total += number
        return self.total

    @update
    def close(self) -> int:
        self.is_closed.set()
        return self.total


@workflow
async def saving(total: int = 0, seen: int = 0) -> int:
    """Adds up coins and the money in the purse, over many generations."""
    purse = expose(Purse(total))
    for _ in range(3):
        if seen == COINS:
            await purse.is_closed.wait()
            return purse.total
        coin = await coins.receive()
        purse.total += coin
        seen += 1
    return await continue_as_new(lambda: saving(purse.total, seen))
