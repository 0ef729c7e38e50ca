"""A durable function with a poison step, which kills its worker at every attempt, beside harmless steps."""

import asyncio
from datetime import timedelta
from random import Random
from typing import cast

from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.steps import Step, step
from holdfast.ports.errors import StepLostError
from holdfast.testing.simulation.fibers import current
from holdfast.testing.simulation.process_life import FaultyProcess
from holdfast.testing.simulation.programs import Program, mixed


def draw_poison(draw: Random, name: str) -> Program:
    """Draw such a function. It catches `StepLostError`, so its result is known."""
    salt, is_queued = draw.randrange(1_000), draw.random() < 0.25
    kills = _step(draw, f"{name}.kills", salt, is_queued=is_queued, kills=True)
    others = [
        _step(draw, f"{name}.beside{place}", salt, is_queued=is_queued, kills=False)
        for place in range(draw.choice((0, 1, 1, 3)))
    ]
    steps = [*others, kills] if draw.random() < 0.5 else [kills, *others]

    async def careful(one: Step[[int], int], number: int) -> int:
        try:
            return await one(number)
        except StepLostError:
            return mixed(salt, number)

    @workflow(name=name)
    async def poisoned(number: int) -> int:
        return sum(await asyncio.gather(*(careful(one, number) for one in steps)))

    return Program(workflow=poisoned, model=lambda number: mixed(salt, number) * len(steps), nodes=())


def _step(draw: Random, name: str, salt: int, *, is_queued: bool, kills: bool) -> Step[[int], int]:
    seconds = draw.choice((0.1, 0.5, 2.0) if kills else (0.0, 0.5, 2.0, 6.0))
    attempts = draw.choice((2, 3, 6) if kills else (1, 2, 2, 3))
    decorate = step(name=name, retry=Retry(attempts=attempts, wait=timedelta(seconds=0.5)))
    if is_queued:
        decorate = decorate(queue="default")

    @decorate
    async def body(number: int) -> int:
        await asyncio.sleep(seconds)
        if kills:
            cast("FaultyProcess", current().process).reach_poison_step()
        return mixed(salt, number)

    return body
