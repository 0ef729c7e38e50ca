"""A small scenario: four runs of three stages, one of them slow."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from random import Random

from holdfast import Pipeline, Retry, stage
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.testing.simulation import ClientAction, Scenario, Sizes


@stage
def add_one(number: int) -> int:
    return number + 1


@stage
async def double(number: int) -> int:
    await asyncio.sleep(2)
    return 2 * number


CHAIN = (
    Pipeline("chain", input=int, retry=Retry(attempts=5, wait=timedelta(seconds=1)))
    .pipe(add_one)
    .pipe(double)
    .pipe(add_one.options(name="again"))
)


def start(engine: SyncEngine, number: int) -> str:
    return engine.start(CHAIN(number), id=f"run-{number}", idempotency_key=f"key-{number}").id


def chain(_: Random) -> tuple[Scenario, Sizes]:
    """Start a run each second; two workers and one function do them."""
    deeds = [
        ClientAction(
            at=number * 1_000_000, what=f"start {number}", do=partial(start, number=number), is_keyed=True
        )
        for number in range(4)
    ]
    return Scenario(workflows=[CHAIN], clients=[deeds]), Sizes(workers=2, functions=1)


Make = Callable[[Random], tuple[Scenario, Sizes]]
