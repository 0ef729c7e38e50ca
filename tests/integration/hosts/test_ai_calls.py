"""The log of AI model calls, on every store, with a real worker."""

import random
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any, Literal, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.ai import Price, cost_of, cost_units
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.ports.errors import (
    InvalidCommandError,
    InvalidFilterError,
    RunFailedError,
    RunNotFoundError,
    UnstorableValueError,
)
from holdfast.testing.blobs import MemoryBlobStore
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.pipelines import SIMPLE
from tests.unit.hosts.attempt_harness import Bench

pytestmark = pytest.mark.anyio
SOON = timedelta(minutes=2)
PRICES = {"m-1": Price(input=Decimal("0.15"), output=Decimal("0.6"))}


async def test_calls_are_listed_and_added_up(open_engine: OpenEngine) -> None:
    @stage
    def ask(ctx: StageContext, x: int) -> int:
        ctx.ai.record(
            topic="report.page.1",
            model="m-1",
            input_tokens=10,
            output_tokens=3,
            cost=Decimal("0.1"),
            duration=timedelta(seconds=1.5),
            prompt={"role": "user", "text": "hello"},
            response="hi",
            metadata={"temperature": 0.5},
        )
        ctx.ai.record(topic="report", model="m-1", kind="embed", cost=Decimal("0.2"))
        ctx.ai.record(topic="reports", model="m-2", input_tokens=5)
        return x

    pipeline = Pipeline("w", input=int).pipe(ask)
    async with open_engine(pipeline) as engine, Worker(engine):
        run = await engine.start(pipeline(1))
        await run.result(timeout=SOON)
        calls = [call async for call in run.ai_calls(texts=True)]
        bare = [call async for call in run.ai_calls(topic="report", limit=1)]
        after = [call.topic async for call in run.ai_calls(after=calls[0].cursor)]
        totals, of_report = await run.ai_totals(), await run.ai_totals(topic="report", by="topic")
        with pytest.raises(RunNotFoundError):
            await engine.handle(SIMPLE, "nobody").ai_totals()

    first = calls[0]
    assert [call.topic for call in calls] == ["report.page.1", "report", "reports"]
    assert (first.stage, first.epoch, first.kind, first.model) == ("ask", 1, "text", "m-1")
    assert (first.prompt, first.response) == ({"role": "user", "text": "hello"}, "hi")
    assert (first.cost, first.duration) == (Decimal("0.1"), timedelta(seconds=1.5))
    assert (first.metadata, first.error) == ({"temperature": 0.5}, None)
    assert [(call.topic, call.prompt) for call in bare] == [("report.page.1", None)]
    assert after == ["report", "reports"]
    assert (totals.calls, totals.input_tokens, totals.output_tokens) == (3, 15, 3)
    assert (totals.cost, totals.unpriced, totals.failed) == (Decimal("0.3"), 1, 0), "0.1 + 0.2 is 0.3"
    assert [(part.name, part.calls, part.cost) for part in totals.parts] == [
        ("m-1", 2, Decimal("0.3")),
        ("m-2", 1, Decimal(0)),
    ]
    assert [(part.name, part.calls) for part in of_report.parts] == [("report", 1), ("report.page.1", 1)]


async def test_what_was_paid_for_counts_though_the_body_failed(open_engine: OpenEngine) -> None:
    @stage(retry=Retry(attempts=3, wait=timedelta()))
    def ask(ctx: StageContext, x: int) -> int:
        ctx.ai.record(topic="t", model="m", cost=1)
        raise ValueError

    pipeline = Pipeline("w", input=int).pipe(ask)
    async with open_engine(pipeline) as engine, Worker(engine):
        run = await engine.start(pipeline(1))
        with pytest.raises(RunFailedError):
            await run.result(timeout=SOON)
        assert (await run.ai_totals()).cost == 3


async def test_results_of_a_batch_are_recorded_once_whoever_does_it(open_engine: OpenEngine) -> None:
    @stage(retry=Retry(attempts=2, wait=timedelta()))
    def fetch(ctx: StageContext, x: int) -> int:
        for index in range(x + ctx.attempt):
            ctx.ai.record(topic="t", model="m", kind="batch", cost=1, batch="b-1", batch_index=index)
        if ctx.attempt == 1:
            raise ValueError
        return x

    pipeline = Pipeline("w", input=int).pipe(fetch)
    async with open_engine(pipeline) as engine, Worker(engine):
        run = await engine.start(pipeline(3))
        await run.result(timeout=SOON)
        calls = [(call.batch_index, call.epoch) async for call in run.ai_calls()]

    assert sorted(calls) == [(0, 1), (1, 1), (2, 1), (3, 1), (4, 2)]


@pytest.mark.parametrize("how", ["sync", "async"])
async def test_a_call_is_timed_and_its_failure_logged(how: str) -> None:
    @stage(name="ask", retry=Retry(attempts=1))
    def in_thread(ctx: StageContext, x: int) -> int:
        with ctx.ai.call(topic="t", model="m-1", prompt="p") as call:
            call.input_tokens, call.output_tokens = 1_000_000, 3
            call.response = "r"
            call.metadata["finish"] = "stop"
        with ctx.ai.call(topic="t", model="m-2"):
            raise ValueError("no answer")

    @stage(name="ask", retry=Retry(attempts=1))
    async def on_loop(ctx: StageContext, x: int) -> int:
        async with ctx.aio.ai.call(topic="t", model="m-1", prompt="p") as call:
            call.input_tokens, call.output_tokens = 1_000_000, 3
            call.response = "r"
            call.metadata["finish"] = "stop"
        async with ctx.aio.ai.call(topic="t", model="m-2"):
            raise ValueError("no answer")

    pipeline = Pipeline("w", input=int).pipe(in_thread if how == "sync" else on_loop)
    bench = Bench(pipeline, prices=PRICES)
    bench.start(pipeline(1))
    await bench.drain()
    run = bench.engine.sync.handle(pipeline, "x")
    first, second = run.ai_calls(texts=True)

    assert (first.response, first.metadata, first.error) == ("r", {"finish": "stop"}, None)
    assert first.cost == Decimal("0.1500018"), "as the table of prices has it"
    assert first.duration is not None
    assert (second.error, second.cost) == ("ValueError: no answer", None)
    assert (run.ai_totals().failed, run.ai_totals().unpriced) == (1, 1)


def recording(bench_options: dict[str, Any]) -> tuple[Bench, StageContext[Any]]:
    @stage
    def ask(ctx: StageContext, x: int) -> int:
        return x

    pipeline = Pipeline("w", input=int).pipe(ask)
    bench = Bench(pipeline, **bench_options)
    bench.start(pipeline(1))
    return bench, cast("StageContext[Any]", bench.body().arguments()[0])


def said_by(ctx: StageContext[Any]) -> str:
    return "".join(one.data for one in cast("Any", ctx)._runtime.take_outputs())


def test_what_is_not_to_be_stored_is_taken_out_before_anything_leaves_the_process() -> None:
    def redact(what: Literal["prompt", "response", "error", "metadata"], value: object) -> object:
        return str(value).replace("secret", f"<{what}>")

    blobs = MemoryBlobStore()
    _, ctx = recording({"redact": redact, "blobs": blobs})
    long = "secret " * 5_000
    with pytest.raises(ValueError, match="secret"), ctx.ai.call(topic="t", model="m", prompt=long) as call:
        call.response, call.metadata["key"] = "my secret", "secret"
        raise ValueError("secret")
    stored = said_by(ctx) + "".join(blobs.get(key).decode() for key in blobs.list(""))

    assert "secret" not in stored
    for what in ("prompt", "response", "error", "metadata"):
        assert f"<{what}>" in stored


def test_what_could_not_be_redacted_is_not_kept_but_counted(caplog: pytest.LogCaptureFixture) -> None:
    def redact(what: str, value: object) -> object:
        raise RuntimeError(str(value))

    _, ctx = recording({"redact": redact})
    ctx.ai.record(topic="t", model="m", cost=1, prompt="secret", response="secret", error="secret")
    stored = said_by(ctx)

    assert '\\"cost\\"' in stored or '"cost"' in stored
    assert "secret" not in stored + caplog.text
    assert "it is not stored" in caplog.text


def test_large_texts_are_kept_by_reference() -> None:
    blobs = MemoryBlobStore()
    _, ctx = recording({"blobs": blobs})
    ctx.ai.record(topic="t", model="m", prompt="x" * 5_000, response="short")

    assert len(list(blobs.list(""))) == 1
    assert len(said_by(ctx)) < 1_000


WRONG: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"topic": ""}, InvalidCommandError),
    ({"model": "x" * 201}, InvalidCommandError),
    ({"kind": "song"}, InvalidCommandError),
    ({"input_tokens": -1}, InvalidCommandError),
    ({"output_tokens": 1.5}, InvalidCommandError),
    ({"cost": 0.1}, TypeError),
    ({"cost": True}, TypeError),
    ({"cost": Decimal("NaN")}, TypeError),
    ({"cost": Decimal(-1)}, InvalidCommandError),
    ({"prompt": object()}, UnstorableValueError),
    ({"metadata": {"x": "y" * 20_000}}, InvalidCommandError),
    ({"batch": "b"}, InvalidCommandError),
    ({"tokens": 3}, TypeError),
]


@pytest.mark.parametrize(
    ("options", "error"), WRONG, ids=lambda one: one.__name__ if isinstance(one, type) else next(iter(one))
)
def test_what_can_not_be_a_call_is_refused_at_once(options: dict[str, Any], error: type[Exception]) -> None:
    _, ctx = recording({})
    record: Callable[..., None] = ctx.ai.record
    with pytest.raises(error):
        record(**{"topic": "t", "model": "m", **options})

    assert said_by(ctx) == ""


def test_calls_can_be_asked_for_by_what_there_is() -> None:
    bench, _ = recording({})
    run: Any = bench.engine.sync.handle(SIMPLE, "x")
    for option in ({"limit": 0}, {"after": "x"}):
        with pytest.raises(InvalidFilterError):
            run.ai_calls(**option)
    with pytest.raises(InvalidFilterError):
        run.ai_totals(by="day")
    with pytest.raises(TypeError):
        run.ai_calls(topics="x")


@pytest.mark.parametrize("price", [Decimal("0.0000001"), Decimal(-1), Decimal("NaN"), 0.5, "1"], ids=str)
def test_a_price_is_exact(price: Any) -> None:
    with pytest.raises(ValueError, match="Price: input is"):
        Price(input=price)


@given(st.integers(min_value=0, max_value=10**30))
def test_costs_keep_every_digit(units: int) -> None:
    cost = cost_of(units)

    assert cost == Decimal(units) / Decimal(10**12) or units > 10**27  # beyond that Decimal itself rounds
    assert cost_units(cost) == units


@pytest.mark.slow
@given(st.lists(st.decimals(min_value=0, max_value=1000, places=9), max_size=20))
async def test_totals_are_what_adding_up_by_hand_gives(costs: list[Decimal]) -> None:
    @stage
    def ask(ctx: StageContext, x: int) -> int:
        draw = random.Random(x)
        for cost in costs:
            ctx.ai.record(topic=draw.choice(("a", "a.b", "b")), model="m", cost=cost, input_tokens=1)
        return x

    pipeline = Pipeline("w", input=int).pipe(ask)
    bench = Bench(pipeline)
    bench.start(pipeline(1))
    await bench.drain()
    run = bench.engine.sync.handle(pipeline, "x")
    calls = list(run.ai_calls())

    assert run.ai_totals().cost == sum(costs)
    for topic in ("a", "a.b", "b", "c"):
        below = [call for call in calls if f"{call.topic}.".startswith(f"{topic}.")]
        totals = run.ai_totals(topic=topic)
        assert totals.calls == totals.input_tokens == len(below)
        assert totals.cost == sum((call.cost or Decimal(0)) for call in below)
