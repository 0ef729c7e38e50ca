"""The memory of a function: a few kilobytes while it waits, and nothing after its end."""

import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final

import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.execution.attempt_runtime import AttemptRuntime
from holdfast.hosts.execution.bodies import Body
from holdfast.hosts.serverless.host import ServerlessHost
from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.functions import sleep, workflow
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.functions.loop import FunctionLoop
from holdfast.kernel.functions.machine import in_memory
from holdfast.kernel.functions.tasks import RunTask
from holdfast.ports.records.job import job_key
from tests.sizes import sized

WARM: Final = sized(30, 50)
"""Runs until all shared caches are filled: statements, plans, connections."""
BATCH: Final = sized(30, 50)
FUNCTIONS: Final = 5 * BATCH
BYTES_MAX: Final = 6_400
"""Measured: 5,300 to 6,010 on Python 3.11, a tenth of it in the store, which keeps rows for a while."""

go = Channel("go", int)


@step
async def add(number: int) -> int:
    return number + 1


@workflow
async def receives(number: int) -> int:
    return await add(number) + await go.receive()


@workflow
async def sleeps(number: int) -> int:
    total = await add(number)
    await sleep(86_400)
    return total


@workflow
async def works(number: int) -> int:
    total = number
    for _ in range(5):
        total = await add(total)
    return total + await go.receive()


@workflow
async def add_twice(number: int) -> int:
    return await add(await add(number))


@pytest.fixture
def _traced() -> Iterator[None]:
    for number in range(job_key.cache_info().maxsize or 0):  # full, as after a while: it grows by leaps
        job_key(f"{number:026}.1")
    tracemalloc.start(1)
    yield
    tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.sized
@pytest.mark.usefixtures("_traced")
@pytest.mark.skipif(sys.gettrace() is not None, reason="who measures coverage keeps objects of its own")
@pytest.mark.parametrize("function", [receives, sleeps, works], ids=lambda one: one.name)
def test_a_function_that_rests_takes_a_few_kilobytes(
    function: Callable[[int], Call[int]], tmp_path: Path
) -> None:
    database = f"sqlite:///{tmp_path / 'runs.db'}"
    others = len(in_memory())
    opened = Engine.open(database, workflows=[receives, sleeps, works])
    with opened.sync as engine:
        host = ServerlessHost(opened, function_cache=FUNCTIONS + WARM)

        def rest(functions: int) -> int:
            """Let so many more of them go to sleep; return the memory in use."""
            engine.start_all([function(n) for n in range(functions)])
            while host.process_available_jobs(max_jobs=100).processed:
                pass
            gc.collect()
            return tracemalloc.get_traced_memory()[0]

        taken = [rest(WARM), *(rest(BATCH) for _ in range(FUNCTIONS // BATCH))]
        assert len(in_memory()) - others == FUNCTIONS + WARM
    # What is there for all, and grows by leaps, does so in one of the batches.
    each = median(after - before for before, after in pairwise(taken)) / BATCH
    assert each < BYTES_MAX, taken


@pytest.mark.slow
def test_of_a_function_that_has_ended_nothing_is_left_for_python_to_look_for(tmp_path: Path) -> None:
    opened = Engine.open(f"sqlite:///{tmp_path / 'runs.db'}", workflows=[add_twice])
    kept = (FunctionLoop, RunTask, AttemptRuntime, Body)

    def alive() -> int:
        return sum(isinstance(one, kept) for one in gc.get_objects())

    with opened.sync as engine:
        host = ServerlessHost(opened)
        gc.collect()
        before = alive()
        gc.disable()
        try:
            handles = engine.start_all([add_twice(number) for number in range(20)])
            while host.process_available_jobs(max_jobs=100).processed:
                pass
            assert [one.result() for one in handles] == list(range(2, 22))
            assert alive() - before <= 1  # a thread may have the last one in hand still
        finally:
            gc.enable()
