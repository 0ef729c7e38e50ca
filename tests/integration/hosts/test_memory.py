"""The memory of a worker does not grow with its runs, once its caches are filled."""

import gc
import itertools
import logging
import random
import resource
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

import attrs
import pytest

from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.decorators import each, stage
from holdfast.kernel.authoring.external import NotReady, Suspended, suspend
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.commands import RunCreate, StageOverride
from holdfast.ports.errors import CommandError
from holdfast.ports.events import Event
from holdfast.ports.records.run import RunStatus
from holdfast.ports.records.values import Payload
from tests.chaos.figures import pick, report
from tests.integration.hosts.conftest import OpenEngine
from tests.sizes import only_full, sized

RUNS: Final = pick(sized(6_000, 15_000), 100_000)
WARM: Final = RUNS // 5
"""Runs until all caches are filled: plans, connections, statements, threads."""
BATCH: Final = 500
SOON: Final = timedelta(milliseconds=1)

BLOCKS_A_RUN: Final = sized(50, 25) / 100
"""Anything kept for a run takes at least one block of Python's allocator. Caches that are still filled take 1,200."""
GROWTH_MAX: Final = 16 * 1024 * 1024
"""The growth allowed for allocators and the database's own caches: some 600 bytes a run in the shorter form."""


@attrs.frozen
class Settings:
    plus: int = 0


@stage
async def plain(x: int) -> int:
    return x + 1


@stage
def numbers(x: int) -> list[int]:
    return [x, x + 1, x + 2]


@stage(retry=Retry(attempts=2, wait=SOON))
def second_try(ctx: StageContext[Settings], x: int) -> int:
    ctx.log("trying", attempt=ctx.attempt)
    ctx.progress(1, 2)
    if ctx.attempt == 1:
        raise ValueError("not at first")
    ctx.annotate("tried", ctx.attempt)
    ctx.publish("user.tried", {"x": x})
    return x + ctx.config.plus


@stage.external
def hand_on(ctx: StageContext[None], x: int) -> Suspended[int, int]:
    del ctx
    return suspend(x, check_after=SOON)


def look(ctx: StageContext[None], state: int) -> int | NotReady:
    del ctx
    return NotReady() if random.random() < 0.5 else state


PLAIN = Pipeline("plain", input=int).pipe(plain)
MAP = Pipeline("map", input=int).pipe(numbers).pipe(each(plain))
AGAIN = Pipeline("again", input=int).pipe(second_try)
ELSEWHERE = Pipeline("elsewhere", input=int).pipe(hand_on.check(look))
PARENT = Pipeline("parent", input=int).pipe(stage(PLAIN))
MIX: Final = (*[PLAIN] * 5, MAP, AGAIN, ELSEWHERE, PARENT, PLAIN)


class CountingSink:
    """Counts events without keeping them."""

    def __init__(self) -> None:
        self.events = 0

    def emit(self, events: Sequence[Event], /) -> None:
        self.events += len(events)


@attrs.frozen
class Memory:
    """Memory in use: blocks of Python's allocator, and bytes of the whole process."""

    blocks: int
    bytes: int


@pytest.mark.slow
@pytest.mark.parametrize(
    "url",
    [pytest.param("sqlite", marks=only_full), pytest.param("postgres", marks=pytest.mark.service)],
    indirect=True,
)
def test_a_worker_s_memory_does_not_grow_with_the_runs_that_it_has_done(
    open_engine: OpenEngine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "holdfast.runs")  # pytest keeps what is logged of each try that failed
    sink = CountingSink()
    engine = open_engine(*{pipeline.name: pipeline for pipeline in MIX}.values()).sync
    engine.register_sink("counted")
    numbers = itertools.count()
    with engine, Worker(engine, concurrency=200, sinks={"counted": sink}) as worker:
        while do_some(numbers, engine, worker) < WARM:
            pass
        warm = taken(sink)
        while do_some(numbers, engine, worker) < RUNS:
            pass
        end = taken(sink)
        stats = worker.stats()

    blocks = (end.blocks - warm.blocks) / (RUNS - WARM)
    grown = end.bytes - warm.bytes
    report(
        f"{RUNS} runs, {blocks:.3f} blocks more for each after the first {WARM}, {grown >> 10} KiB more in all"
    )
    assert stats.settled > RUNS
    assert sink.events > RUNS
    assert blocks < BLOCKS_A_RUN
    assert grown < GROWTH_MAX


def do_some(numbers: "itertools.count[int]", engine: SyncEngine, worker: Worker) -> int:
    """Complete a batch of runs, and wait for the last few. Return the number of runs."""
    drawn = list(itertools.islice(numbers, BATCH))
    commands = [
        RunCreate(
            namespace=engine.core.namespace,
            workflow=workflow.name,
            input=Payload(inline=str(number)),
            id=f"run-{number}",
            idempotency_key=f"key-{number}",
            overrides=changed(number) if workflow is AGAIN else (),
        )
        for number, workflow in zip(drawn, itertools.cycle(MIX), strict=False)
    ]
    assert not [one for one in engine.kernel.dispatch_many(commands) if isinstance(one, CommandError)]
    for number, workflow in [*zip(drawn, itertools.cycle(MIX), strict=False)][-2 * len(MIX) :]:
        engine.handle(workflow, f"run-{number}").result(timeout=timedelta(minutes=2))
    while (
        engine.count(status="running")[RunStatus.RUNNING]
        or worker.stats().unsettled
        or worker.stats().running
    ):
        time.sleep(0.01)
    return drawn[-1] + 1


def changed(number: int) -> tuple[StageOverride, ...]:
    """Give some runs one of a few plans of their own: the number of cached plans is bounded elsewhere."""
    return (StageOverride(stage="second_try", config=f'{{"plus":{number % 7}}}'),)


def taken(sink: CountingSink) -> Memory:
    """Measure once nothing happens any more."""
    seen = -1
    while seen != sink.events:
        seen = sink.events
        time.sleep(2)
    gc.collect()
    return Memory(sys.getallocatedblocks(), resident())


def resident() -> int:
    """Return the resident bytes of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
