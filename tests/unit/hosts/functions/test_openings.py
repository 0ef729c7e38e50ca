"""Short histories of functions that are woken together are read together, and fed only while they are fresh."""

import threading
from collections.abc import Callable
from typing import TypeVar

import anyio
import pytest
from typing_extensions import override

from holdfast.hosts.execution.bodies import Body
from holdfast.hosts.functions import loader, stall_watchdog
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.commands import ChannelMessage, RunSignal
from holdfast.ports.errors import UnavailableError
from holdfast.ports.persistence import Query
from holdfast.ports.queries.history import HistoriesOf, HistoryOf
from holdfast.ports.records.values import Payload
from holdfast.testing.blobs import MemoryBlobStore
from tests.unit.hosts.attempt_harness import Bench, CountingPersistence, value

pytestmark = pytest.mark.anyio

R = TypeVar("R")

RUNS = 12
SOON = 10.0
"""How many seconds threads wait for each other."""

go = Channel("go", int)


@step
async def add(number: int) -> int:
    return number + 1


@step
async def write(number: int) -> str:
    return "x" * number


@workflow
async def waits(steps: int, number: int) -> int:
    for _ in range(steps):
        number = await add(number)
    return number + await go.receive()


@workflow
async def writes_and_waits(number: int) -> int:
    return len(await write(number)) + await go.receive()


class HookedStore(CountingPersistence):
    """A store that calls a function before it answers a read of several histories."""

    def __init__(self, hook: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.hook = hook

    @override
    def read(self, query: Query[R], /) -> R:
        asked: object = query
        if isinstance(asked, HistoriesOf):
            try:
                self.hook()
            except UnavailableError:
                self.asked.append(query)
                raise
        return super().read(query)


async def woken(bench: Bench, number: int) -> list[Body]:
    """Let so many runs wait for their message, send it, and return the bodies of the woken functions."""
    await bench.drain()
    for at in range(number):
        signal = ChannelMessage(channel="go", payload=Payload(inline="100"))
        bench.engine.kernel.dispatch(RunSignal(namespace="default", run_id=f"x{at}", signal=signal))
    return bench.prepare()


async def results(bench: Bench, bodies: list[Body]) -> list[object]:
    """Run bodies at once, and return their results in their order."""
    found: dict[int, object] = {}

    async def run(at: int) -> None:
        found[at] = value(await bench.run(bodies[at]))

    async with anyio.create_task_group() as group:
        for at in range(len(bodies)):
            group.start_soon(run, at)
    return [found[at] for at in range(len(bodies))]


def reads(store: CountingPersistence) -> tuple[int, int]:
    """Return how often several histories were read together, and how often one alone."""
    together = sum(isinstance(one, HistoriesOf) for one in store.asked)
    return together, sum(isinstance(one, HistoryOf) for one in store.asked)


async def prepared(store: CountingPersistence, lengths: list[int]) -> tuple[Bench, list[Body], list[int]]:
    """Return woken functions with so many steps, and their results."""
    bench = Bench(waits, persistence=store)
    for at, steps in enumerate(lengths):
        bench.start(waits(steps, at), id=f"x{at}")
    bodies = await woken(bench, len(lengths))
    wanted = {bench.row(f"x{at}").key: steps + at + 100 for at, steps in enumerate(lengths)}
    store.asked.clear()
    return bench, bodies, [wanted[body.work.run.key] for body in bodies]


async def test_functions_that_are_woken_together_share_a_read() -> None:
    store = HookedStore()
    bench, bodies, wanted = await prepared(store, [at % 5 for at in range(RUNS)])
    assert await results(bench, bodies) == wanted
    assert reads(store) == (1, 0)


async def test_a_long_history_is_read_alone() -> None:
    store = HookedStore()
    bench, bodies, wanted = await prepared(store, [1, loader.SHORT, 2])
    assert await results(bench, bodies) == wanted
    assert reads(store) == (1, 1)


async def test_one_statement_reads_so_many_rows_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    store = HookedStore()
    bench, bodies, wanted = await prepared(store, [2] * RUNS)  # four rows each
    monkeypatch.setattr(loader, "_TOGETHER_MAX", 13)
    assert await results(bench, bodies) == wanted
    assert reads(store) == (RUNS // 3, 0)


async def test_a_history_that_has_become_too_long_for_the_read_is_read_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows that others append meanwhile are read with the rest: at the limit, those of the last run may be missing."""
    store = HookedStore()
    bench, bodies, wanted = await prepared(store, [2] * RUNS)  # four rows each
    grown = [0, 0]

    def grow() -> None:
        for at in grown:
            signal = ChannelMessage(channel="go", payload=Payload(inline="1"))
            bench.engine.kernel.dispatch(RunSignal(namespace="default", run_id=f"x{at}", signal=signal))
        grown.clear()

    store.hook = grow
    monkeypatch.setattr(loader, "_TOGETHER_MAX", 4 * RUNS + 1)
    assert await results(bench, bodies) == wanted
    assert reads(store) == (1, 1)


async def test_rows_that_were_read_too_long_ago_are_read_again() -> None:
    store = HookedStore()
    bench, bodies, wanted = await prepared(store, [1] * RUNS)
    store.hook = lambda: bench.clock.advance(loader.FRESH_SECONDS)
    assert await results(bench, bodies) == wanted
    assert reads(store) == (1, RUNS)


async def test_each_reads_its_own_if_the_read_of_all_fails() -> None:
    """So that the error of one history is not that of all."""

    def fail() -> None:
        raise UnavailableError("down")

    store = HookedStore()
    bench, bodies, wanted = await prepared(store, [1] * RUNS)
    store.hook = fail
    assert await results(bench, bodies) == wanted
    assert reads(store) == (1, RUNS)


class MeetingBlobStore(MemoryBlobStore):
    """A blob store whose reads wait for each other."""

    def __init__(self) -> None:
        super().__init__()
        self.meeting = threading.Barrier(1)

    @override
    def get(self, key: str) -> bytes:
        self.meeting.wait(SOON)
        return super().get(key)


async def test_values_in_the_blob_store_are_read_by_each_in_a_thread_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A blob store may be slow: the functions behind would have to wait until it is noticed."""
    monkeypatch.setattr(stall_watchdog, "CHECK_INTERVAL", 10 * SOON)
    store, blobs = HookedStore(), MeetingBlobStore()
    bench = Bench(writes_and_waits, persistence=store, blobs=blobs)
    for at in range(3):
        bench.start(writes_and_waits(1_000_000 + at), id=f"x{at}")
    bodies = await woken(bench, 3)
    store.asked.clear()
    blobs.meeting = threading.Barrier(3)
    assert sorted(map(str, await results(bench, bodies))) == ["1000100", "1000101", "1000102"]
    assert reads(store) == (1, 0)
