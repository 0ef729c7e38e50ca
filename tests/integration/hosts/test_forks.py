"""Forks of durable functions from a step, on every store, by workers."""

import asyncio

import anyio
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.child_runs import start_child
from holdfast.kernel.authoring.functions import sleep, uuid4, workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.invariants import check
from holdfast.ports.errors import RerunRefusedError, RunCancelledError, RunFailedError
from holdfast.ports.records.run import RunStatus
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until

SOON = 120
words = Channel("words", str)
done: list[str] = []
bugs: set[str] = set()

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _anew() -> None:
    done.clear()
    bugs.clear()


def sound(engine: Engine) -> None:
    assert check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


@step
async def put(what: str) -> str:
    done.append(what)
    return what * 50_000 if what == "large" else what


@step(retry=Retry(attempts=1))
async def charge(order: str) -> str:
    done.append("charge")
    if bugs:
        raise ValueError("a bug")
    return f"{order} is paid"


@workflow
async def later(seconds: float) -> str:
    await sleep(seconds)
    return await put("later")


@workflow
async def buys(order: str) -> list[str]:
    drawn = str(uuid4())
    size = len(await put("large"))
    child = await start_child(later(0.05), parent_end="abandon")
    given, word = await asyncio.gather(put("b"), words.receive())
    paid = await charge(order)
    return [drawn, str(size), given, word, paid, await child.result()]


@pytest.mark.slow
async def test_it_keeps_what_came_before_the_step_that_failed(open_engine: OpenEngine) -> None:
    engine = open_engine(buys, later)
    bugs.add("charge")
    run = await engine.start(buys("x"), id="x", signals=[words("w" * 100_000)])
    async with Worker(engine):
        with anyio.fail_after(SOON):
            with pytest.raises(RunFailedError):
                await run.result()
        before = await run.history(generation=1)
        done.clear()
        bugs.clear()
        preview = await run.preview_rerun(put.name + "#2")
        assert (preview.row, preview.again) == (5, ("put#2",))
        with anyio.fail_after(SOON):
            await run.rerun_from("put#2", reason="the bug is fixed")
            drawn, size, given, word, paid, ended = await run.result()
        assert (size, given, word, paid, ended) == ("250000", "b", "w" * 100_000, "x is paid", "later")
        assert drawn
        assert set(done) - {"later"} == {"b", "charge"}
        assert await run.history(generation=1) == before
        sound(engine)


@pytest.mark.slow
async def test_many_forks_of_many_runs_at_once(open_engine: OpenEngine) -> None:
    engine = open_engine(lines)
    async with Worker(engine):
        with anyio.fail_after(2 * SOON):
            runs = [await engine.start(lines(5), id=f"x-{number}") for number in range(8)]
            first = [await run.result() for run in runs]
            for row in (2, 4, 6, 3):
                for run in runs:
                    await run.rerun_from(row=row)
                assert [await run.result() for run in runs] == first
    assert (await runs[0].info()).generation == 5
    assert (await runs[0].history())[0].number == 3
    sound(engine)
    diagnosis = await engine.doctor(repair=True)
    # Other tests may have left runs that are blocked in a database that is shared, and nothing else that is wrong.
    assert set(diagnosis.found) <= {"blocked"}, diagnosis.findings
    assert not [one for one in diagnosis.findings if one.namespace == engine.core.namespace]


@workflow
async def lines(upto: int) -> list[str]:
    drawn = str(uuid4())
    return [drawn, *[f"{await put(str(number))} {uuid4()}" for number in range(upto)]]


@workflow
async def waits() -> list[str]:
    first = await words.receive()
    await put("a")
    return [first, await words.receive()]


async def test_one_that_is_under_way_is_terminated_and_its_worker_goes_on_with_the_fork(
    open_engine: OpenEngine,
) -> None:
    engine = open_engine(waits)
    run = await engine.start(waits(), id="x", signals=[words("one")])
    async with Worker(engine):
        with anyio.fail_after(SOON):
            await until(lambda: len(engine.sync.handle(waits, "x").history()) == 3)
            answer = await run.rerun_from(put)
            assert (answer.terminated, answer.row) == (True, 3)
            await run.signal(words("two"))
            assert await run.result() == ["one", "two"]
    assert done == ["a", "a"]
    assert (await run.info(generation=1)).status is RunStatus.CANCELLED
    sound(engine)


async def test_a_fork_is_driven_on_by_another_worker_and_from_memory(open_engine: OpenEngine) -> None:
    engine = open_engine(waits)
    run = await engine.start(waits(), id="x", signals=[words("one")])
    with anyio.fail_after(SOON):
        async with Worker(engine):
            await until(lambda: len(engine.sync.handle(waits, "x").history()) == 3)
            await run.rerun_from(row=3)
            await until(lambda: done == ["a", "a"])
        async with Worker(engine):
            await run.signal(words("two"))
            assert await run.result() == ["one", "two"]
    sound(engine)


async def test_it_is_refused_after_it_was_cancelled_and_removed_with_what_it_kept(
    open_engine: OpenEngine,
) -> None:
    engine = open_engine(waits, lines)
    run = await engine.start(waits(), id="x", signals=[words("one")])
    async with Worker(engine):
        with anyio.fail_after(SOON):
            await until(lambda: len(engine.sync.handle(waits, "x").history()) == 3)
            await run.cancel()
            with pytest.raises(RunCancelledError):
                await run.result()
            end = (await run.history())[-1].number
            with pytest.raises(RerunRefusedError, match="was cancelled in row"):
                await run.rerun_from(row=end)
            await run.rerun_from()
            await run.signal(words("two"))
            assert await run.result() == ["one", "two"]
            assert done == ["a"]
            assert await run.remove()
        left = await engine.start(lines(2), id="y")
        await left.result()
    runs = snapshot_of(engine.core.stores.persistence, [engine.core.namespace]).runs
    assert [one.id for one in runs.values()] == ["y"]


async def test_events_of_a_fork_are_numbered_on(open_engine: OpenEngine) -> None:
    engine = open_engine(lines)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            run = await engine.start(lines(3), id="x")
            await run.result()
            await run.rerun_from(row=4)
            await run.result()
    events = await run.history()
    assert [event.number for event in events] == [4, 5, 6, 7]
    assert [event.number for event in await run.history(after=5, limit=2)] == [6, 7]
    whole = await run.export_history()
    assert [row.number for row in whole.rows] == list(range(1, 8))


@workflow
async def answers() -> str:
    return await words.receive()


@workflow
async def asks() -> list[str]:
    first = await put("a")
    return [first, await answers()]


@pytest.mark.slow
async def test_a_child_run_that_was_cancelled_with_its_parent_is_started_anew(
    open_engine: OpenEngine,
) -> None:
    engine = open_engine(asks, answers)
    run = await engine.start(asks(), id="x")
    async with Worker(engine):
        with anyio.fail_after(SOON):
            former = engine.handle(answers, "x/2")
            await until(lambda: sum(engine.sync.count(workflow="answers").values()) == 1)
            await run.cancel()
            with pytest.raises(RunCancelledError):
                await run.result()
            with pytest.raises(RunCancelledError):
                await former.result()
            with pytest.raises(
                RerunRefusedError, match=r"child run 'x/2' was cancelled, .* start from answers"
            ):
                await run.rerun_from(row=4)
            assert (await run.rerun_from()).stage == "answers"
            await until(lambda: sum(engine.sync.count(workflow="answers").values()) == 2)
            await engine.handle(answers, "x~2/2").signal(words("go"))
            assert await run.result() == ["a", "go"]
        assert done == ["a"]
        sound(engine)
