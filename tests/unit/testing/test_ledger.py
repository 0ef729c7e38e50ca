"""The ledger finds functions that make different calls in different lives."""

from collections.abc import Iterator
from itertools import count

import anyio
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.functions import patched, workflow
from holdfast.kernel.authoring.steps import step
from holdfast.testing.ledger import DeterminismChecker

DRAWN = count()


@step
def double(number: int) -> int:
    return 2 * number


@workflow
async def chain(length: int) -> int:
    for number in range(length):
        await double(number)
    return length


@workflow
async def changed(length: int) -> int:
    if patched("twice"):
        length *= 2
    await double(length)
    return length


@workflow
async def moody(length: int) -> int:
    await double(length)
    return await double(next(DRAWN))


@pytest.fixture
def ledger() -> Iterator[DeterminismChecker]:
    ledger = DeterminismChecker()
    with ledger.watching():
        yield ledger


def ran(call: object) -> Engine:
    async def run() -> Engine:
        async with Engine.open("memory://", workflows=[chain, changed, moody]) as engine:
            async with Worker(engine):
                await engine.run(call)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            return engine

    return anyio.run(run)


def test_a_run_is_replayed_at_every_prefix_of_its_history(ledger: DeterminismChecker) -> None:
    engine = ran(chain(5))
    # Nothing at all, the row of its creation, one for each step, and two for its end.
    assert ledger.replay(engine.core) == 9
    assert ledger.problems == []


def test_a_run_with_patches_is_so_too(ledger: DeterminismChecker) -> None:
    engine = ran(changed(2))
    assert ledger.replay(engine.core) == 5
    assert ledger.problems == []


def test_a_function_that_asks_for_something_else_is_found_out(ledger: DeterminismChecker) -> None:
    engine = ran(moody(1))
    ledger.replay(engine.core)
    assert ledger.problems
    assert all(problem.startswith("moody@1, run ") for problem in ledger.problems)
    assert "row 2: one execution reached" in ledger.problems[0]
