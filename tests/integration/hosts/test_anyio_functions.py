"""anyio in durable functions. `open_engine` replays each function at every prefix of its history."""

from typing import cast

import anyio
import pytest

from holdfast import Worker, workflow
from holdfast.kernel.authoring.functions import Workflow
from holdfast.ports.errors import RunFailedError
from tests.integration.hosts import anyio_functions
from tests.integration.hosts.anyio_functions import GIVES, go
from tests.integration.hosts.conftest import OpenEngine

SOON = 120


@pytest.mark.parametrize("kept", [1_000, 0], ids=["in memory", "replayed each time"])
@pytest.mark.parametrize(("function", "gives"), GIVES, ids=lambda one: getattr(one, "name", ""))
def test_it_works_and_replays(
    open_engine: OpenEngine, function: Workflow[[], object], gives: object, kept: int
) -> None:
    engine = open_engine(function)
    with engine.sync as runs, Worker(engine, function_cache=kept):
        run = runs.start(function())
        if function is anyio_functions.receives:
            run.signal(go("here"))
        given = run.result(timeout=SOON)
    if function is anyio_functions.locks:  # which of the two is first with what is up to their steps
        given, gives = sorted(map(str, cast("list[str]", given))), sorted(map(str, cast("list[str]", gives)))
    assert given == gives


@workflow
async def in_threads() -> None:
    await anyio.to_thread.run_sync(print)


@workflow
async def of_processes() -> None:
    await anyio.run_process("true")


@workflow
async def by_sockets() -> None:
    await anyio.connect_tcp("127.0.0.1", 9)


@pytest.mark.parametrize("function", [in_threads, of_processes, by_sockets], ids=lambda one: one.name)
def test_what_reaches_out_is_refused(open_engine: OpenEngine, function: Workflow[[], None]) -> None:
    engine = open_engine(function)
    with (
        engine.sync as runs,
        Worker(engine),
        pytest.raises(RunFailedError, match=r"has an outside effect.* Make it a step"),
    ):
        runs.start(function()).result(timeout=SOON)
