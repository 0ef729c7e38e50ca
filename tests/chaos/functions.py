"""The durable functions that are put through it. Their steps write down what they do (see `book`)."""

import asyncio
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

import anyio
import attrs
from sqlalchemy import Connection, column, insert, table

from holdfast import Retry, StepContext, sleep, step, step_context, workflow
from tests.chaos.book import book, work_seconds
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
