"""Pipelines that the tests of hosts share."""

from datetime import timedelta

from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline


@stage
async def double(x: int) -> int:
    return 2 * x


@stage
def up_to(x: int) -> list[int]:
    return list(range(x))


@stage
def total(xs: list[int]) -> int:
    return sum(xs)


@stage
def size(text: str) -> int:
    return len(text)


@stage(retry=Retry(attempts=1))
async def fail(x: int) -> int:
    raise ValueError(f"no {x}")


@stage(retry=Retry(attempts=2, wait=timedelta(hours=1), jitter=0.0))
def fail_slowly(x: int) -> int:
    raise ValueError(f"not yet {x}")


SIMPLE = Pipeline("simple", input=int).pipe(double)
TEXT = Pipeline("text", input=str).pipe(size)
WIDE = Pipeline("wide", input=int).pipe(up_to).map(double).pipe(total)
FAILING = Pipeline("failing", input=int).pipe(fail)
PATIENT = Pipeline("patient", input=int).pipe(fail_slowly)
