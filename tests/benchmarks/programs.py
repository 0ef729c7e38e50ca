"""The measured workflows. Their bodies do almost no work, so that the engine is measured."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.external import NotReady, Suspended, suspend
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stage_context import StageContext

STAGES: Final = 20
LONG: Final = timedelta(days=30)


@stage
async def add_one(value: int) -> int:
    return value + 1


@stage
async def count_to(number: int) -> list[int]:
    return list(range(number))


@stage
async def total(values: list[int]) -> int:
    return sum(values)


@stage.external
async def hand_on(ctx: StageContext[None], value: int) -> Suspended[int, int]:
    del ctx
    return suspend(value, check_after=LONG)


async def look(ctx: StageContext[None], state: int) -> int | NotReady:
    del ctx
    return state + 1


def _chain(stages: int) -> Pipeline[int, int]:
    chain = Pipeline("chain", input=int).pipe(add_one.options(name="add_1"))
    for number in range(2, stages + 1):
        chain = chain.pipe(add_one.options(name=f"add_{number}"))
    return chain


ONE: Final = Pipeline("one", input=int).pipe(add_one)
"""One stage, which returns the next number."""
CHAIN: Final = _chain(STAGES)
"""Twenty stages in sequence, each of which adds one."""
FAN: Final = Pipeline("fan", input=int).pipe(count_to).map(add_one).pipe(total)
"""A map over the numbers below its input. The result is 1 + 2 + ... + input."""
ELSEWHERE: Final = Pipeline("elsewhere", input=int).pipe(hand_on.check(look))
"""External work with a late first poll. The result is the next number."""

ALL: Final[Mapping[str, Pipeline[int, int]]] = {
    "one": ONE,
    "chain": CHAIN,
    "fan": FAN,
    "elsewhere": ELSEWHERE,
}
