"""Workflows that run on every kind of host: pipelines of each kind, and functions of all shapes."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from holdfast import NotReady, Pipeline, Retry, StageContext, Suspended, stage, step, suspend, workflow
from holdfast.kernel.functions.protocol import Cancelling, FunctionEvent
from holdfast.workflows import Call, PartialResults, TolerateFailures
from tests.sizes import sized
from tests.unit.kernel.functions.corpus import CORPUS, WHEN_CANCELLED, WHEN_SENT, sequence
from tests.virtual_time import Again, Play

SOON: Final = timedelta(seconds=30)


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
def both(x: int, y: int) -> int:
    return x + y


@stage(retry=Retry(attempts=3, wait=timedelta(hours=1), jitter=0.0))
def third_time(ctx: StageContext, x: int) -> int:
    if ctx.attempt < 3:
        raise ConnectionError(f"busy {ctx.attempt}")
    return x


@stage(retry=Retry(attempts=2, wait=SOON, jitter=0.0))
async def never(x: int) -> int:
    raise ValueError(f"no {x}")


@stage(retry=Retry(attempts=1))
def picky(x: int) -> int:
    if x % 3 == 2:
        raise ValueError(f"not {x}")
    return x


@stage
def of_some(part: PartialResults[int]) -> list[int]:
    return [sum(part.results), len(part.failures)]


@stage
def large(x: int) -> str:
    return "a large value " * x


@stage
def size(text: str) -> int:
    return len(text)


@stage
def says(ctx: StageContext, x: int) -> int:
    ctx.publish("said.so", {"x": x})
    return ctx.output_of(double) + x


@stage.external
def hand_on(ctx: StageContext, x: int) -> Suspended[int, int]:
    return suspend(x, check_after=timedelta(days=1))


checks: Final[dict[str, int]] = {}


@hand_on.check
def handed_on(ctx: StageContext, x: int) -> int | NotReady:
    checks[ctx.run_id] = checks.get(ctx.run_id, 0) + 1
    return NotReady() if checks[ctx.run_id] < 3 else 10 * x


@step(queue="far")
async def far(x: int) -> int:
    return 3 * x


@workflow
async def elsewhere(x: int) -> int:
    """A function whose steps are jobs of their own, in a queue of their own."""
    return await far(await far(x))


SIMPLE: Final = Pipeline("simple", input=int).pipe(double)
PIPELINES: Final[list[Any]] = [
    SIMPLE(4),
    Pipeline("chain", input=int)
    .pipe(double)
    .pipe(double.options(name="again"))
    .pipe(double.options(name="and_again"))(1),
    Pipeline("wide", input=int).pipe(up_to).map(double).pipe(total)(12),
    Pipeline("narrow", input=int).pipe(up_to).map(double, limit=2).pipe(total)(7),
    Pipeline("empty", input=int).pipe(up_to).map(double).pipe(total)(0),
    Pipeline("sides", input=int).parallel(double, double.options(name="other")).pipe(both)(3),
    Pipeline("third_time", input=int).pipe(third_time).pipe(double)(5),
    Pipeline("never", input=int).pipe(double).pipe(never)(5),
    Pipeline("some", input=int).pipe(up_to).map(picky, enough=TolerateFailures(count=10)).pipe(of_some)(9),
    Pipeline("large", input=int).pipe(large).pipe(size)(50_000),
    Pipeline("says", input=int).pipe(double).pipe(says)(6),
    Pipeline("outside", input=int).pipe(handed_on).pipe(double)(4),
    Pipeline("parent", input=int).pipe(stage(SIMPLE)).pipe(double.options(name="last"))(8),
    Pipeline("of_functions", input=int).pipe(stage(sequence)).pipe(total)(6),
]

OF_TIME: Final = frozenset({"clocks", "drawn"})
"""Functions that return the time or random values of the run's seed, different at each run."""
ORDER_IS_FREE: Final = frozenset(
    {
        *(
            "deep",
            "first_of",
            "gather_with_exceptions",
            "gathered",
            "gathered_coroutines",
            "goes_on",
            "grouped",
        ),
        *("narrow", "queues", "semaphores", "sides", "some", "wide"),
    }
)
"""Workflows with concurrent bodies, whose rows are in the order in which these end."""
RACES: Final = {
    "as_completed_steps": "it gives the order in which its steps have ended",
    "group_fails": "how long a failed step waits until it is tried again is drawn, and timers fire meanwhile",
    "shielded": "a step that takes no time races with a thousandth of a second",
}
"""Workflows whose result depends on a race, with the reason."""


def _is_exact(call: Call[Any]) -> bool:
    return call.definition.name not in {*OF_TIME, *ORDER_IS_FREE, *RACES}


def _one_by_one(sent: Sequence[tuple[float, FunctionEvent]]) -> list[tuple[float, FunctionEvent]]:
    """Let external events arrive only when nothing else is due, and one at a time."""
    return [(at + 0.5 + number / 1_000, one) for number, (at, one) in enumerate(sent)]


FUNCTIONS: Final = [
    Play(elsewhere(2)),
    *(Play(call) for call in CORPUS if call.definition.name not in OF_TIME),
    *(Play(call, ((5.0, Cancelling(reason="enough")),)) for call in WHEN_CANCELLED),
    *(Play(call, _one_by_one(told)) for call, told in WHEN_SENT),
]
FORKS: Final = [
    Play(elsewhere(3), ((7.5, Again(3)),)),  # a step in a queue is kept as queued, and queued again
    Play(elsewhere(4), ((7.5, Again(2)), (9.5, Again(4)))),
    *(
        Play(call, ((7.5 + number / 1_000, Again(3)),))
        for number, call in list(enumerate(CORPUS))[:: sized(2, 1)]
        if _is_exact(call) and call.definition.name not in {"as_completed", "barrier"}
    ),
]
"""Functions that are forked from their third history row, if any, whether they have ended or not.

Without two of them: timers that are kept are due at once then, so what follows races with a step or runs concurrently.
"""
PLAYS: Final = [*map(Play, PIPELINES), *FUNCTIONS, *FORKS]
