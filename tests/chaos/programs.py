"""The pipelines of the chaos tests. Their bodies write to the execution log."""

import os
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import anyio

from holdfast import NotReady, Pipeline, Retry, StageContext, Suspended, stage, suspend
from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.workflows import Workflow
from tests.chaos.execution_log import book, work_seconds, written_down
from tests.chaos.external_service import Outside
from tests.chaos.faults import reach
from tests.chaos.functions import booking, errand, purchase, reminder, saving, survey, trip
from tests.chaos.poison import live_on, swallow_beside

PATIENT: Final = Retry(attempts=50, wait=timedelta(0))
"""A retry policy for runs that must complete however often their workers are killed."""
THREE: Final = Retry(attempts=3, wait=timedelta(0))
POLL: Final = 0.005
SLOW_POLL: Final = 0.3
POISON_CODE: Final = 9


@stage
def add_one(ctx: StageContext, number: int) -> int:
    with written_down(ctx):
        reach("body")
        time.sleep(work_seconds())
        return number + 1


@stage
async def add_one_async(ctx: StageContext, number: int) -> int:
    with written_down(ctx):
        reach("body")
        await anyio.sleep(work_seconds())
        return number + 1


@stage
def count_to(ctx: StageContext, number: int) -> list[int]:
    with written_down(ctx):
        return list(range(number))


@stage
async def total(ctx: StageContext, numbers: list[int]) -> int:
    with written_down(ctx):
        return sum(numbers)


@stage
def largest(ctx: StageContext, numbers: list[int]) -> int:
    with written_down(ctx):
        return max(numbers)


ONE: Final = Pipeline("one", input=int, retry=PATIENT).pipe(add_one)
CHAIN: Final = (
    Pipeline("chain", input=int, retry=PATIENT)
    .pipe(add_one.options(name="a"))
    .pipe(add_one_async.options(name="b"))
    .pipe(add_one.options(name="c"))
    .pipe(add_one_async.options(name="d"))
    .pipe(add_one.options(name="e"))
)
"""Five stages, sync and async: returns its input plus five."""


@stage
def sign(ctx: StageContext, signed: list[int]) -> list[int]:
    """Append the epoch of the attempt, so that the output shows which attempt was stored."""
    with written_down(ctx):
        time.sleep(work_seconds())
        return [*signed, ctx.epoch]


@stage
async def sign_async(ctx: StageContext, signed: list[int]) -> list[int]:
    with written_down(ctx):
        await anyio.sleep(work_seconds())
        return [*signed, ctx.epoch]


SIGNED: Final = (
    Pipeline("signed", input=list[int], retry=PATIENT)
    .pipe(sign.options(name="a"))
    .pipe(sign_async.options(name="b"))
    .pipe(sign.options(name="c"))
    .pipe(sign_async.options(name="d"))
)
"""Four stages: returns its input and the epochs of the attempts whose outputs were stored."""
STORM_STAGES: Final = 20


def _storm() -> Pipeline[int, int]:
    storm = Pipeline("storm", input=int, retry=PATIENT).pipe(add_one.options(name="s0"))
    for number in range(1, STORM_STAGES):
        one = add_one_async if number % 2 else add_one
        storm = storm.pipe(one.options(name=f"s{number}"))
    return storm


STORM: Final = _storm()
"""Twenty stages, sync and async: returns its input plus twenty."""
FAN: Final = (
    Pipeline("fan", input=int, retry=PATIENT)
    .pipe(count_to)
    .map(add_one_async, limit=3)
    .parallel(total, largest)
)
"""A map over the numbers below its input: returns 1 + 2 + ... + input, and input."""
FAN_BODIES: Final = 3
"""The number of bodies of a fan besides its items."""


NARROW: Final = (
    Pipeline("narrow", input=int, retry=PATIENT)
    .pipe(add_one.options(name="free"))
    .pipe(add_one.options(name="narrow", max_concurrency=1))
)
"""Two stages, the second with `max_concurrency=1`: returns its input plus two."""


# Bodies that wait -----------------------------------------------------------------------------------------------


def gate_of(folder: Path, run: str) -> Path:
    """Return the file whose existence lets the bodies of this run continue."""
    return folder / f"open-{run}"


def _is_open(run: str) -> bool:
    return gate_of(book().folder, run).exists() or gate_of(book().folder, "all").exists()


@stage
def stand(ctx: StageContext, number: int) -> int:
    """Wait at the gate; stop if cancelled."""
    with written_down(ctx):
        while not _is_open(ctx.run_id):
            if ctx.cancelled:
                book().write("told", ctx)
                ctx.check_cancelled()
            time.sleep(POLL)
        return number


@stage
async def stand_async(ctx: StageContext, number: int) -> int:
    with written_down(ctx):
        try:
            while not _is_open(ctx.run_id):  # noqa: ASYNC110  # it is another process that opens it
                await anyio.sleep(POLL)
        except BaseException:
            book().write("told", ctx)
            raise
        return number


@stage
def stand_slow(ctx: StageContext, number: int) -> int:
    """Wait at the gate, and look only now and then whether to stop."""
    with written_down(ctx):
        while not _is_open(ctx.run_id):
            time.sleep(SLOW_POLL)
            if ctx.cancelled:
                book().write("told", ctx)
                ctx.check_cancelled()
        return number


@stage
def stand_deaf(ctx: StageContext, number: int) -> int:
    """Wait at the gate, ignoring cancellation."""
    with written_down(ctx):
        while not _is_open(ctx.run_id):
            time.sleep(POLL)
        return number


GATE: Final = Pipeline("gate", input=int, retry=THREE).pipe(stand)
GATE_ASYNC: Final = Pipeline("gate_async", input=int, retry=THREE).pipe(stand_async)
GATE_SLOW: Final = Pipeline("gate_slow", input=int, retry=THREE).pipe(stand_slow)
GATE_DEAF: Final = Pipeline("gate_deaf", input=int, retry=THREE).pipe(stand_deaf)
GATE_BOTH: Final = Pipeline("gate_both", input=int, retry=THREE).parallel(stand, stand_async)


@stage
def rest(ctx: StageContext, seconds: float) -> float:
    """Sleep in a thread without any output."""
    with written_down(ctx):
        time.sleep(seconds)
        return seconds


@stage
async def rest_async(ctx: StageContext, seconds: float) -> float:
    with written_down(ctx):
        await anyio.sleep(seconds)
        return seconds


@stage
async def block(ctx: StageContext, seconds: float) -> float:
    """Block the event loop, as no body should."""
    with written_down(ctx):
        time.sleep(seconds)  # noqa: ASYNC251  # on purpose
        return seconds


REST: Final = Pipeline("rest", input=float).parallel(rest, rest_async)
BLOCK: Final = Pipeline("block", input=float).pipe(block)


@stage(retry=Retry(attempts=3, wait=timedelta(milliseconds=200), jitter=0.0))
def stumble(ctx: StageContext, number: int) -> int:
    """Fail at the first attempt."""
    with written_down(ctx):
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return number


STUMBLE: Final = Pipeline("stumble", input=int).pipe(stumble)


# Bodies that are to be heard from ------------------------------------------------------------------------------


@stage(retry=THREE, heartbeat_timeout=timedelta(seconds=5))
def read_pages(ctx: StageContext, pages: int) -> list[int]:
    """Read a page each tenth of a second, with heartbeats; returns the first and the last page."""
    with written_down(ctx):
        first = ctx.last_heartbeat(int, 0)
        for page in range(first, pages):
            ctx.heartbeat(page)
            time.sleep(0.1)
            if page == pages // 2 and ctx.attempt == 1:
                reach("body")
                while not _is_open(ctx.run_id):  # it says nothing more, and does not listen
                    time.sleep(POLL)
        return [first, pages]


PAGES: Final = Pipeline("pages", input=int).pipe(read_pages)


# Bodies that kill -----------------------------------------------------------------------------------------------


@stage(retry=THREE)
def swallow(ctx: StageContext, number: int) -> int:
    """Kill the process, as a fault in a C extension does."""
    with written_down(ctx):
        book().write_fault("poison")
        os._exit(POISON_CODE)
        return number


@stage
async def live_beside(ctx: StageContext, number: int) -> int:
    with written_down(ctx):
        await anyio.sleep(work_seconds())
        return number


POISON: Final = Pipeline("poison", input=int).pipe(swallow)
NEIGHBOUR: Final = Pipeline("neighbour", input=int, retry=THREE).pipe(live_beside)
FRAGILE: Final = Pipeline("fragile", input=int, retry=Retry(attempts=2, wait=timedelta(0))).pipe(live_beside)


# Work that is done elsewhere, and by other runs ----------------------------------------------------------------


@stage.external
def hand_on(ctx: StageContext, number: int) -> Suspended[str, int]:
    with written_down(ctx):
        job = Outside(book().folder).submit(ctx.idempotency_key, number)
        reach("body")
        return suspend(job, check_after=timedelta(milliseconds=20))


@hand_on.check
def handed_on(ctx: StageContext, job: str) -> int | NotReady:
    reach("check")
    done = Outside(book().folder).ask(job)
    return NotReady() if done is None else done


TREE_ODD: Final = "make_even"


def is_odd(number: int) -> bool:
    return number % 2 == 1


LEAF: Final = (
    Pipeline("leaf", input=int, retry=PATIENT)
    .pipe(add_one)
    .when(is_odd, add_one.options(name=TREE_ODD))
    .pipe(handed_on)
)
TREE: Final = Pipeline("tree", input=int, retry=PATIENT).pipe(count_to).map(stage(LEAF), limit=3).pipe(total)
"""A child run for each number below its input: returns the sum of the numbers plus one, odd ones plus two."""


@stage.external
def hand_on_for_ever(ctx: StageContext, number: int) -> Suspended[str, int]:
    with written_down(ctx):
        job = Outside(book().folder).submit(ctx.idempotency_key, number)
        return suspend(job, check_after=timedelta(days=1))


@hand_on_for_ever.check
def handed_on_for_ever(ctx: StageContext, job: str) -> int | NotReady:
    return NotReady()


@handed_on_for_ever.cancel(retry=Retry(attempts=3, wait=timedelta(0)))
def cancelled_outside(ctx: StageContext, job: str) -> None:
    assert ctx.idempotency_key == job
    reach("cancel:before")
    Outside(book().folder).cancel(job)
    reach("cancel:after")


ENDLESS: Final = Pipeline("endless", input=int, retry=THREE).pipe(cancelled_outside)
"""External work that is never done; it must be cancelled."""


# A deploy -------------------------------------------------------------------------------------------------------


@stage(name="say")
def say_1(ctx: StageContext, text: str) -> str:
    with written_down(ctx):
        return f"{text} by 1"


@stage(name="say")
def say_2(ctx: StageContext, text: str) -> str:
    with written_down(ctx):
        return f"{text} by 2"


DEPLOYED_1: Final = Pipeline("deployed", input=str, version="1", retry=THREE).pipe(say_1)
DEPLOYED_2: Final = Pipeline("deployed", input=str, version="2", retry=THREE).pipe(say_2)


@stage(name="write")
def write_1(ctx: StageContext, text: str) -> str:
    with written_down(ctx):
        time.sleep(work_seconds())
        return f"{text}1"


@stage(name="write")
def write_2(ctx: StageContext, text: str) -> str:
    with written_down(ctx):
        time.sleep(work_seconds())
        return f"{text}2"


LETTER_1: Final = (
    Pipeline("letter", input=str, version="1", retry=THREE)
    .pipe(write_1)
    .pipe(write_1.options(name="sign"))
    .pipe(write_1.options(name="post"))
)
LETTER_2: Final = (
    Pipeline("letter", input=str, version="2", retry=THREE)
    .pipe(write_2)
    .pipe(write_2.options(name="check"))
    .pipe(write_2.options(name="sign"))
    .pipe(write_2.options(name="post"))
)
"""The second version: one stage more, and changed code in every stage."""


WORKFLOWS: Final[Mapping[str, WorkflowDefinition[Any]]] = {
    f"{one.name}@{one.version}": one
    for one in (
        ONE,
        CHAIN,
        SIGNED,
        STORM,
        FAN,
        NARROW,
        GATE,
        GATE_ASYNC,
        GATE_SLOW,
        GATE_DEAF,
        GATE_BOTH,
        REST,
        BLOCK,
        STUMBLE,
        PAGES,
        POISON,
        NEIGHBOUR,
        FRAGILE,
        LEAF,
        TREE,
        ENDLESS,
        DEPLOYED_1,
        DEPLOYED_2,
        LETTER_1,
        LETTER_2,
        live_on,
        swallow_beside,
        booking,
        errand,
        purchase,
        reminder,
        saving,
        survey,
        trip,
    )
}
"""All workflows, by `<name>@<version>`."""
FUNCTIONS: Final = frozenset(one.name for one in WORKFLOWS.values() if isinstance(one, Workflow))
"""The names of the durable functions."""
