"""The engine that the benchmarked server serves, at the URL in `HOLDFAST_BENCH_URL`."""

import os
from typing import Final

from holdfast import Channel, Engine, Pipeline, stage, step, workflow

URL_VARIABLE: Final = "HOLDFAST_BENCH_URL"

signals = Channel("signals", int)


@step
async def add(number: int) -> int:
    """Return the next number."""
    return number + 1


@workflow
async def one(number: int) -> int:
    """Add one, in a step."""
    return await add(number)


@workflow
async def waiting(number: int) -> int:
    """Wait for messages until one is negative."""
    while (received := await signals.receive()) >= 0:
        number += received
    return number


@workflow
async def many_steps(number: int) -> int:
    """Call a step so many times."""
    for at in range(number):
        await add(at)
    return number


@stage
def numbers(number: int) -> list[int]:
    """Return the items of the map."""
    return list(range(number))


@stage
def next_number(number: int) -> int:
    """Return the next number."""
    return number + 1


many_items = Pipeline("many-items", input=int).pipe(numbers).map(next_number)

WORKFLOWS: Final = (one, waiting, many_steps, many_items)
if URL_VARIABLE in os.environ:
    engine = Engine.open(os.environ[URL_VARIABLE], workflows=WORKFLOWS)
