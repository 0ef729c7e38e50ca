"""Debounce and batches: gathered starts, on every store."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import attrs
import pytest

from holdfast import Concurrency, Every, Gather, Retry, Schedule, Worker, step, workflow
from holdfast.hosts.client.engine import Engine
from holdfast.kernel.commands import RunClaimPending
from holdfast.kernel.invariants import check
from holdfast.ports.errors import (
    DefinitionError,
    InvalidArgumentError,
    InvalidValueError,
    RunFailedError,
)
from holdfast.ports.records.run import RunStatus
from holdfast.testing import replay
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine

SOON = timedelta(minutes=2)
QUIET = Gather(by="document", quiet=0.3, within=5)
FULL = Gather(by="tenant", within=3_600, most=3, keep="all")


@step
def keep(text: str) -> str:
    return text


@workflow(gather=QUIET)
async def reindex(document: str) -> str:
    return await keep(document)


@workflow(gather=FULL)
async def insert(rows: list[str]) -> list[str]:
    return [await keep(row) for row in rows]


@attrs.frozen
class Refused:
    why: str


@workflow(gather=attrs.evolve(FULL, split=True))
async def prices(names: list[str]) -> list[int | Refused]:
    done: list[int | Refused] = [len(name) if name else Refused("it has no name") for name in names]
    names.clear()
    return done


@workflow(gather=attrs.evolve(FULL, most=1, split=True))
async def short(names: list[str]) -> list[str]:
    return names[1:]


def sound(engine: Engine) -> bool:
    return check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


# Debounce.


@pytest.mark.slow
def test_a_debounced_run_begins_when_no_start_comes_and_gets_the_last_input(open_engine: OpenEngine) -> None:
    engine = open_engine(reindex)
    handles = [
        engine.sync.start(reindex(f"{name}{number}"), attributes={"document": name})
        for number in range(3)
        for name in ("a", "b")
    ]

    assert [handle.joined for handle in handles] == [False, False, True, True, True, True]
    assert len({handle.id for handle in handles}) == 2
    with Worker(engine, poll_interval=0.1):
        assert [handle.result(timeout=SOON) for handle in handles] == ["a2", "b2"] * 3
    assert handles[0].input() == {"document": "a2"}
    assert not engine.sync.start(reindex("a3"), attributes={"document": "a"}).joined
    assert sound(engine)


# Batches.


def test_a_batch_gets_the_lists_of_all_starts(open_engine: OpenEngine) -> None:
    engine = open_engine(insert)
    large = "x" * 100_000  # in a blob
    with Worker(engine):
        handles = [
            engine.sync.start(insert(rows), attributes={"tenant": "acme"})
            for rows in (["a"], [], [large, "c"])
        ]
        assert [handle.joined for handle in handles] == [False, True, True]
        assert handles[0].result(timeout=SOON) == ["a", large, "c"]
    assert handles[2].input() == {"rows": ["a", large, "c"]}
    assert replay(handles[0].export_history(), insert).as_recorded
    assert [event.type for event in handles[0].history()][:4] == [
        "run.created",
        "run.gathered",
        "run.gathered",
        "run.admitted",
    ]
    assert sound(engine)


def test_each_start_of_a_batch_gets_its_own_results_and_errors(open_engine: OpenEngine) -> None:
    engine = open_engine(prices)
    with Worker(engine):
        handles = engine.sync.start_all([prices(["pear", "fig"]), prices([]), prices(["", "plum"])])
        assert [handle.result(timeout=SOON) for handle in handles] == [
            [4, 3],
            [],
            [Refused("it has no name"), 4],
        ]
        whole = engine.sync.handle(prices, handles[0].id)
        assert whole.result() == [4, 3, Refused("it has no name"), 4]


def test_a_result_that_cannot_be_split_fails_the_run(open_engine: OpenEngine) -> None:
    engine = open_engine(short)
    with (
        Worker(engine),
        pytest.raises(RunFailedError, match=r"one element for each item .* 3 here, .* has 2"),
    ):
        engine.sync.run(short(["a", "b", "c"]))


def test_a_batch_can_be_run_again(open_engine: OpenEngine) -> None:
    engine = open_engine(insert)
    with Worker(engine):
        handles = engine.sync.start_all([insert([text]) for text in ("a", "b", "c")])
        handles[0].result(timeout=SOON)
        handles[0].rerun_from()
        assert handles[1].result(timeout=SOON) == ["a", "b", "c"]
        again = handles[0].steps()[1]
        handles[0].rerun_from(again.call)
        assert handles[1].result(timeout=SOON) == ["a", "b", "c"]
    assert handles[0].input() == {"rows": ["a", "b", "c"]}
    assert handles[0].input(generation=1) == {"rows": ["a", "b", "c"]}
    assert replay(handles[0].export_history(), insert).as_recorded
    assert sound(engine)


def test_a_batch_that_fails_is_tried_again_with_all_of_its_starts(open_engine: OpenEngine) -> None:
    seen: list[str] = []

    @step(retry=Retry(attempts=1))
    def take(rows: list[str]) -> int:
        seen.append(",".join(rows))
        if len(seen) == 1:
            raise ValueError("once")
        return len(rows)

    @workflow(gather=FULL, retry=Retry(attempts=2, wait=0))
    async def fragile(rows: list[str]) -> int:
        return await take(rows)

    engine = open_engine(fragile)
    with Worker(engine):
        handles = engine.sync.start_all([fragile([text]) for text in ("a", "b", "c")])
        assert [handle.result(timeout=SOON) for handle in handles] == [3, 3, 3]
    assert seen == ["a,b,c"] * 2


def test_a_child_run_and_a_run_of_a_schedule_are_runs_of_their_own(open_engine: OpenEngine) -> None:
    @workflow
    async def parent() -> list[str]:
        return await insert(["child"])

    engine = open_engine(parent, insert)
    waiting = engine.sync.start(insert(["start"]))
    when = Every(timedelta(days=1), anchor=datetime(2026, 1, 1, tzinfo=UTC))
    schedule = engine.sync.create_schedule(Schedule("daily", insert(["nightly"]), when=when))
    with Worker(engine):
        assert engine.sync.run(parent()) == ["child"]
        run_id = schedule.trigger().run_id
        assert run_id is not None
        found = engine.sync.handle(insert, run_id)
        assert found.result(timeout=SOON) == ["nightly"]
    assert waiting.info().status is RunStatus.PENDING
    assert sound(engine)


# Concurrent starts, lost commits.


@pytest.mark.slow
def test_no_start_of_many_threads_and_engines_is_lost_or_gathered_twice(open_engine: OpenEngine) -> None:
    """Engines have connections of their own, as processes do. Runs begin meanwhile."""

    @workflow(gather=Gather(within=0.05, most=7, keep="all"))
    async def collect(rows: list[int]) -> list[int]:
        return rows

    engines = [open_engine(collect) for _ in range(3)]
    if engines[0].core.stores.persistence.__class__.__name__ == "MemoryPersistence":
        engines = engines[:1]

    def begin(number: int) -> str:
        engine = engines[number % len(engines)]
        if number % 5 == 0:
            engine.kernel.dispatch(RunClaimPending(namespace=engine.core.namespace))
        return engine.sync.start(collect([number]), idempotency_key=f"key-{number % 150}-{number}").id

    with ThreadPoolExecutor(8) as threads, Worker(engines[0], poll_interval=0.1):
        ids = list(threads.map(begin, range(200)))
        handles = [engines[0].sync.handle(collect, one) for one in dict.fromkeys(ids)]
        found = Counter(row for handle in handles for row in handle.result(timeout=SOON))
    assert found == Counter(range(200))
    assert len(handles) >= 200 // 7
    for number, told in enumerate(ids[:20]):
        assert engines[0].sync.start(collect([number]), idempotency_key=f"key-{number}-{number}").id == told
    assert sound(engines[0])


# What is said.


def test_why_says_until_when_a_run_gathers(open_engine: OpenEngine) -> None:
    engine = open_engine(reindex, insert)
    first = engine.sync.start(reindex("a"))
    second = engine.sync.start(insert(["a"]))
    engine.sync.start(insert(["b"]))

    (quiet,) = first.why()
    (batch,) = second.why()

    assert (quiet.code, batch.code) == ("gathering", "gathering")
    assert "at the latest" in quiet.text
    assert "1 start of at most 10,000 so far" in quiet.text
    assert "2 starts of at most 3 so far" in batch.text


def test_a_start_that_cannot_be_gathered_is_refused_before_anything_is_stored(
    open_engine: OpenEngine,
) -> None:
    engine = open_engine(reindex, insert)
    now = datetime.now(UTC)
    with pytest.raises(InvalidArgumentError, match=r"a start has no id: leave it out; an idempotency_key"):
        engine.sync.start(reindex("a"), id="x")
    with pytest.raises(InvalidArgumentError, match=r"a start has no start_at: leave it out"):
        engine.sync.start(reindex("a"), start_at=now)
    with pytest.raises((InvalidArgumentError, InvalidValueError)):
        engine.sync.start(insert("row"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert list(engine.sync.runs()) == []


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "within"),
        ({"within": 0}, "at least 0.001 seconds"),
        ({"within": timedelta(days=400)}, "at most"),
        ({"within": "soon"}, "must be a timedelta"),
        ({"within": 1, "quiet": 2}, "quiet can't be longer than within"),
        ({"within": 1, "by": ""}, "the name of an attribute"),
        ({"within": 1, "most": 0}, "from 1 to 10000"),
        ({"within": 1, "most": 10_001}, "from 1 to 10000"),
        ({"within": 1, "keep": "some"}, "'first', 'last' or 'all'"),
        ({"within": 1, "split": True}, "only the result of keep='all' can be split"),
        ({"within": 1, "keep": "all", "split": 1}, "True or False"),
    ],
)
def test_a_gather_that_cannot_be_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises((DefinitionError, TypeError), match=why):
        Gather(**options)


def test_a_function_whose_inputs_cannot_be_joined_is_refused() -> None:
    async def two(rows: list[str], more: int) -> None: ...
    async def text(row: str) -> None: ...
    async def many(*rows: list[str]) -> None: ...
    async def one_result(rows: list[str]) -> int:
        return len(rows)

    for function, why in (
        (two, "exactly one parameter, a list, such as `rows: list"),
        (text, "must be a list, such as `list"),
        (many, "exactly one parameter"),
    ):
        with pytest.raises(DefinitionError, match=why):
            workflow(gather=FULL)(cast("Any", function))
    with pytest.raises(DefinitionError, match="must return a list with one element"):
        workflow(gather=attrs.evolve(FULL, split=True))(one_result)
    with pytest.raises(DefinitionError, match=r"gather is 5; it must be a Gather"):
        workflow(gather=cast("Any", 5))(one_result)


def test_a_workflow_that_gathers_has_no_bound_on_its_starts() -> None:
    with pytest.raises(
        DefinitionError, match="it gathers its starts, so its concurrency can't have full='refuse'"
    ):

        @workflow(gather=FULL, concurrency=Concurrency("rows", full="refuse"))
        async def insert(rows: list[int]) -> list[int]:
            return rows
