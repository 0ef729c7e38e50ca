"""What can be read of a run: its parent, child runs, input, steps and results, on every store."""

from datetime import timedelta
from typing import Any

import anyio
import pytest
from attrs import frozen

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.hosts.inspection import run_details
from holdfast.hosts.inspection.bounds import PREVIEW_MAX
from holdfast.hosts.inspection.run_details import read_run
from holdfast.hosts.inspection.run_info import ParentRun
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.steps import step
from holdfast.ports.errors import (
    InvalidFilterError,
    InvalidValueError,
    ResultMissingError,
    RunFailedError,
    RunNotFoundError,
)
from holdfast.ports.records.run import RunStatus
from tests.integration.hosts.conftest import OpenEngine

pytestmark = pytest.mark.anyio


@frozen
class Order:
    number: int
    customer: str


@step(retry=Retry(attempts=1))
def charge(amount: int) -> str:
    if amount > 100:
        raise ValueError("too much")
    return f"{amount} EUR"


@step
def label(text: str) -> str:
    return text * 10


@workflow
async def parcel(number: int) -> int:
    return number


@workflow
async def sell(order: Order, parcels: int = 3) -> str:
    for number in range(parcels):
        await parcel(number)
    await charge(order.number)
    return await charge(order.number + 1)


@workflow
async def print_label(text: str) -> int:
    return len(await label(text))


@stage
def split(text: str) -> list[str]:
    return text.split()


@stage
def shout(word: str) -> str:
    return word.upper()


@stage
def join(words: list[str]) -> str:
    return "+".join(words)


WORDS = Pipeline("words", input=str).pipe(split).map(shout).pipe(join)
OUTER = Pipeline("outer", input=str).pipe(stage(WORDS))


def run_of(engine: Engine, id: str) -> SyncRunHandle[object]:
    return SyncRunHandle(engine.sync.client, id, object)


@pytest.mark.slow
async def test_child_runs_and_parents_are_listed(open_engine: OpenEngine) -> None:
    engine = open_engine(sell, parcel)
    async with Worker(engine):
        run = await engine.start(sell(Order(1, "Ann")), id="a")
        assert await run.result() == "2 EUR"

    children = [child async for child in run.children()]

    assert [(child.id, child.workflow, child.version, child.status) for child in children] == [
        (f"a/{number}", "parcel", "1", RunStatus.COMPLETED) for number in (3, 2, 1)
    ]
    first = children[0]
    assert (first.call, first.stage, first.generation) == ("3", None, 1)
    assert first.site.startswith("test_read_model.py:")
    assert first.ended_at is not None
    assert first.started_at <= first.ended_at
    after = [child.id async for child in run.children(after=first.cursor, limit=1)]
    assert after == ["a/2"]
    details = await run.details()
    assert details.children == tuple(children)
    assert (details.has_more_children, details.parent) == (False, None)

    child = run_of(engine, "a/2")
    assert child.info().parent == ParentRun(id="a", generation=1)
    listed = {info.id: info.parent async for info in engine.runs()}
    assert listed["a"] is None
    assert listed["a/1"] == ParentRun(id="a", generation=1)
    assert list(child.children()) == []
    child.remove()
    assert [(one.status, one.workflow, one.version) for one in run_of(engine, "a").children(limit=2)] == [
        (RunStatus.COMPLETED, "parcel", "1"),
        (None, "parcel", None),
    ]


@pytest.mark.slow
async def test_a_rerun_lists_the_child_runs_that_it_keeps(open_engine: OpenEngine) -> None:
    engine = open_engine(sell, parcel)
    async with Worker(engine):
        run = await engine.start(sell(Order(1, "Ann")), id="a")
        await run.result()
        await run.rerun_from("charge#1")
        await run.result()
        await run.rerun_from("2")
        await run.result()

    def listed(generation: int) -> list[str]:
        return [child.id for child in run_of(engine, "a").children(generation=generation)]

    assert listed(1) == listed(2) == ["a/3", "a/2", "a/1"]
    assert listed(3)[-1] == "a/1"
    assert len(set(listed(3))) == 3
    assert not {"a/2", "a/3"} & set(listed(3))
    details = run_of(engine, "a").details(generation=2)
    assert [(one.step, one.kept_of) for one in details.steps or ()] == [("charge", None), ("charge", None)]
    assert details.rerun_of == 1


async def test_a_stage_that_is_a_pipeline_is_a_child_run(open_engine: OpenEngine) -> None:
    engine = open_engine(OUTER, WORDS)
    async with Worker(engine):
        run = await engine.start(OUTER("a b"), id="o")
        assert await run.result() == "A+B"

    (child,) = run_of(engine, "o").children()

    assert (child.stage, child.call, child.item, child.workflow) == ("words", None, None, "words")
    assert run_of(engine, child.id).info().parent == ParentRun(id="o", generation=1)


async def test_inputs_and_results_are_read_by_name(open_engine: OpenEngine) -> None:
    engine = open_engine(sell, parcel, WORDS)
    async with Worker(engine):
        run = await engine.start(sell(Order(1, "Ann"), parcels=0), id="a")
        await run.result()
        words = await engine.start(WORDS("x y"), id="w")
        await words.result()

    assert await run.input() == {"order": {"number": 1, "customer": "Ann"}, "parcels": 0}
    assert await words.input(str) == "x y"
    with pytest.raises(InvalidValueError):
        await words.input(int)
    steps = await run.steps()
    assert [(one.call, one.step, one.result and one.result.value) for one in steps] == [
        ("1", "charge", "1 EUR"),
        ("2", "charge", "2 EUR"),
    ]
    assert await run.result_of("charge#2", str) == "2 EUR"
    assert await run.result_of("1") == "1 EUR"
    assert await words.result_of(split) == ["x", "y"]
    assert await words.result_of("shout") == ["X", "Y"]
    assert await words.result_of("join", str) == "X+Y"
    for handle, point, why in (
        (run, charge, r"it was called 2 times; name one of charge#1 \(call 1\), charge#2 \(call 2\)"),
        (run, "charge#3", "the steps in its history are charge"),
        (run, "pay", "the steps in its history are charge"),
        (words, "pay", "its stages are split, shout, join"),
    ):
        with pytest.raises(ResultMissingError, match=why):
            await handle.result_of(point)
    assert await words.steps() == ()
    with pytest.raises(RunNotFoundError):
        await run.input(generation=2)


async def test_a_stage_that_was_kept_has_its_result(open_engine: OpenEngine) -> None:
    engine = open_engine(WORDS)
    async with Worker(engine):
        words = await engine.start(WORDS("x y"), id="w")
        await words.result()
        await words.rerun_from(join)
        await words.result()

    assert await words.result_of("shout") == ["X", "Y"]
    assert await words.input() == "x y"
    stages = (await words.details()).stages
    assert [(one.name, one.state, one.kept_of) for one in stages] == [
        ("split", "kept", 1),
        ("shout", "kept", 1),
        ("join", "done", None),
    ]


async def test_a_step_without_a_result_says_so(open_engine: OpenEngine) -> None:
    engine = open_engine(sell)
    async with Worker(engine):
        run = await engine.start(sell(Order(101, "Ann"), parcels=0), id="a")
        with pytest.raises(RunFailedError):
            await run.result()

    with pytest.raises(ResultMissingError, match="the step is failed"):
        await run.result_of(charge)
    info = await run.info()
    assert info.error is not None
    assert (info.error.type, info.error.message) == ("ValueError", "too much")
    assert info.error.text == info.end_cause == "ValueError: too much"


async def test_a_long_value_is_shortened_in_lists_and_whole_by_name(open_engine: OpenEngine) -> None:
    engine = open_engine(print_label)
    text = "x" * 10_000
    async with Worker(engine):
        run = await engine.start(print_label(text), id="a")
        await run.result()

    (one,) = await run.steps()
    assert one.result is not None
    if one.result.blob is None:
        assert (one.result.size, len(one.result.text or "")) == (100_002, PREVIEW_MAX)
    assert one.result.value is None
    assert await run.result_of("label") == text * 10
    created = (await run.history(limit=1))[0]
    assert created.payload is not None
    assert (created.payload.value, created.payload.size) == (None, len(text) + len('{"text":""}'))


@pytest.mark.parametrize("options", [{"after": "x"}, {"after": "1.5"}, {"limit": 0}, {"after": 3}])
def test_wrong_options_are_refused(open_engine: OpenEngine, options: dict[str, object]) -> None:
    engine = open_engine(parcel)
    run = engine.sync.start(parcel(1), id="a")

    with pytest.raises(InvalidFilterError):
        run.children(**options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_an_active_run_lasts_until_now(open_engine: OpenEngine) -> None:
    engine = open_engine(parcel)
    run = await engine.start(parcel(1), id="a")
    first = await run.info()
    await anyio.sleep(0.01)

    assert (await run.info()).duration > first.duration >= timedelta()
    details = await run.details()
    assert [(job.kind, job.state, job.host) for job in details.jobs] == [("workflow", "queued", None)]
    assert (details.job_count, details.steps, details.history, details.is_whole) == (1, (), None, True)


@pytest.mark.slow
async def test_the_number_of_queries_does_not_grow_with_the_run(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(sell, parcel)
    async with Worker(engine):
        for children in (1, 40):
            await (await engine.start(sell(Order(1, "Ann"), parcels=children), id=f"r{children}")).result()
    persistence: Any = engine.core.stores.persistence
    read, transact = persistence.read, persistence.transact
    queries: list[object] = []

    def counting_read(query: object) -> Any:
        queries.append(query)
        return read(query)

    def counting_transact(work: object) -> Any:
        queries.append(work)
        return transact(work)

    monkeypatch.setattr(persistence, "read", counting_read)
    monkeypatch.setattr(persistence, "transact", counting_transact)

    def count(id: str) -> int:
        queries.clear()
        run_of(engine, id).details()
        return len(queries)

    assert 5 < count("r1") == count("r40") < 20


async def test_a_document_is_cut_at_its_bounds(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(sell, parcel)
    async with Worker(engine):
        await (await engine.start(sell(Order(1, "Ann"), parcels=2), id="a")).result()
    monkeypatch.setattr(run_details, "ENTRIES_MAX", 1)
    monkeypatch.setattr(run_details, "CHILDREN_SHOWN", 1)
    details = run_of(engine, "a").details()
    assert [step.call for step in details.steps or ()] == ["4"]
    assert (details.step_count, details.is_whole) == (2, True)
    assert run_of(engine, "a").result_of("charge#1") == run_of(engine, "a").result_of("3") == "1 EUR"
    assert ([child.id for child in details.children], details.has_more_children) == (["a/2"], True)

    monkeypatch.setattr(run_details, "HISTORY_ROWS_MAX", 2)
    details = read_run(engine.core, run_of(engine, "a").row(), history=True)
    assert (details.step_count, details.is_whole) == (0, False)
    assert [event.number for event in details.history or ()] == [1, 2]
    assert details.history_rows == 9
    assert run_of(engine, "a").result_of("charge#2") == "2 EUR"
