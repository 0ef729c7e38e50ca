"""The runtime of a running attempt: the services that its context reaches."""

import threading
from datetime import timedelta
from typing import Any, cast

import pytest
from anyio import to_thread
from typing_extensions import override

from holdfast.hosts.execution.attempt_runtime import (
    LINE_MAX,
    LINES_MAX,
    AttemptRuntime,
)
from holdfast.hosts.execution.bodies import Body
from holdfast.hosts.execution.output_buffer import ANNOTATIONS_MAX, BUFFERED_LINES_MAX
from holdfast.hosts.text import printable
from holdfast.kernel.authoring.attempt_context import BlobRef
from holdfast.kernel.authoring.decorators import each, stage
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.commands import AnnotationOutput, AttemptOutput, JobWakeDue
from holdfast.kernel.commands.codec import from_data
from holdfast.ports.actors import Actor
from holdfast.ports.attempt_output import AnnotationScope
from holdfast.ports.clock import micros
from holdfast.ports.errors import (
    BlobCorruptError,
    BlobMissingError,
    InvalidArgumentError,
    InvalidCommandError,
    InvalidKeyError,
    NoBlobStoreError,
    OutputMissingError,
    StageCancelledError,
    UnstorableValueError,
)
from holdfast.ports.json import parse
from holdfast.ports.queries.history import LastHeartbeat
from holdfast.testing.blobs import MemoryBlobStore
from holdfast.testing.conformance.nasty_keys import NASTY_KEYS
from tests.unit.hosts.attempt_harness import Bench


@stage
def pages(x: int) -> list[int]:
    return list(range(x))


@stage
def double(x: int) -> int:
    return 2 * x


@stage
def total(doubled: list[int]) -> int:
    return sum(doubled)


@stage
def never(x: int) -> int:
    return x


@stage
def last(ctx: StageContext, x: int) -> int:
    return x


PIPELINE = Pipeline("w", input=int).pipe(pages).map(double).pipe(total).pipe(last)


def context_of(body: Body) -> StageContext[Any]:
    return cast("StageContext[Any]", body.arguments()[0])


def waiting(blobs: MemoryBlobStore | None = None) -> tuple[Bench, Body]:
    """A run whose last stage, which takes a context, is about to start."""
    pipeline = Pipeline("w", input=int).pipe(last)
    bench = Bench(pipeline, blobs=blobs)
    bench.start(pipeline(1))
    return bench, bench.body()


@pytest.fixture
def bench() -> Bench:
    """A bench with a run of the whole pipeline, at its start."""
    bench = Bench(PIPELINE)
    bench.start(PIPELINE(3))
    return bench


async def run_to_the_last(bench: Bench) -> Body:
    while True:
        bodies = bench.prepare()
        if bodies[0].attempt.node == "last":
            return bodies[0]
        for body in bodies:
            bench.settle(body, await bench.run(body))


# Outputs of earlier stages --------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_stage_sees_what_earlier_stages_gave(bench: Bench) -> None:
    ctx = context_of(await run_to_the_last(bench))

    def look() -> None:
        assert ctx.output_of(pages) == [0, 1, 2]
        assert ctx.output_of(total) == 6
        assert ctx.outputs_of(double) == [0, 2, 4]

    await to_thread.run_sync(look)


@pytest.mark.anyio
async def test_outputs_of_a_map_are_in_the_order_of_its_items_however_they_ended(bench: Bench) -> None:
    (first,) = bench.prepare()
    bench.settle(first, await bench.run(first))
    (expansion,) = bench.prepare()
    bench.settle(expansion, await bench.run(expansion))
    for body in reversed(bench.prepare()):
        bench.settle(body, await bench.run(body))

    ctx = context_of(await run_to_the_last(bench))

    assert await ctx.aio.outputs_of(double) == [0, 2, 4]


@pytest.mark.anyio
async def test_what_is_not_there_is_said_to_be_missing_and_why(bench: Bench) -> None:
    ctx = context_of(await run_to_the_last(bench))

    with pytest.raises(OutputMissingError, match="not an earlier stage"):
        await ctx.aio.output_of(never)
    with pytest.raises(OutputMissingError, match="not an earlier stage"):
        await ctx.aio.outputs_of(never)
    with pytest.raises(OutputMissingError, match="use outputs_of"):
        await ctx.aio.output_of(double)
    with pytest.raises(OutputMissingError, match="use output_of"):
        await ctx.aio.outputs_of(pages)
    assert await ctx.aio.output_of(never, default=None) is None


@pytest.mark.anyio
async def test_an_output_is_read_from_its_blob() -> None:
    @stage
    def long(x: int) -> str:
        return "x" * x

    @stage
    def look(ctx: StageContext, text: str) -> int:
        return len(ctx.output_of(long))

    pipeline = Pipeline("w", input=int).pipe(long).pipe(look)
    bench = Bench(pipeline, blobs=MemoryBlobStore())
    bench.start(pipeline(100_000))
    await bench.drain()

    assert bench.engine.sync.handle(pipeline, "x").result() == 100_000


@pytest.mark.slow
@pytest.mark.anyio
async def test_outputs_of_wide_maps_are_read_with_two_questions() -> None:
    @stage
    def look(ctx: StageContext, doubled: list[int]) -> int:
        return len(ctx.outputs_of(double))

    pipeline = Pipeline("w", input=list[int]).pipe(each(double)).pipe(look)
    bench = Bench(pipeline)
    bench.start(pipeline(list(range(200))))
    for _ in range(2):
        for body in bench.prepare():
            bench.settle(body, await bench.run(body))
    body = bench.body()
    bench.store.asked.clear()

    assert await context_of(body).aio.outputs_of(double) == [2 * x for x in range(200)]
    assert len(bench.store.asked) == 2


# In async bodies ------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_an_async_body_awaits_what_earlier_stages_gave_and_blobs() -> None:
    """The event loop keeps running meanwhile: only calls from sync bodies read the store on their own thread."""
    threads: list[int] = []

    class Watched(MemoryBlobStore):
        @override
        def put(self, key: str, data: bytes, /) -> None:
            threads.append(threading.get_ident())
            super().put(key, data)

        @override
        def get(self, key: str, /) -> bytes:
            threads.append(threading.get_ident())
            return super().get(key)

    @stage
    async def look(ctx: StageContext, x: int) -> int:
        ref = await ctx.aio.blobs.put("picture", b"bytes")
        assert await ctx.aio.blobs.get(ref) == b"bytes"
        assert await ctx.aio.output_of(never, default=None) is None
        return await ctx.aio.output_of(double) + x

    pipeline = Pipeline("w", input=int).pipe(double).pipe(look)
    bench = Bench(pipeline, blobs=Watched())
    bench.start(pipeline(3))
    await bench.drain()

    assert bench.engine.sync.handle(pipeline, "x").result() == 12
    assert len(threads) == 2
    assert threading.get_ident() not in threads


@pytest.mark.anyio
async def test_an_async_body_may_also_make_the_calls_that_block() -> None:
    @stage
    async def look(ctx: StageContext, x: int) -> int:
        ref = ctx.blobs.put("picture", b"bytes")
        return ctx.output_of(double) + len(ctx.blobs.get(ref)) + x

    pipeline = Pipeline("w", input=int).pipe(double).pipe(look)
    bench = Bench(pipeline, blobs=MemoryBlobStore())
    bench.start(pipeline(3))
    await bench.drain()

    assert bench.engine.sync.handle(pipeline, "x").result() == 17


@pytest.mark.anyio
async def test_an_async_body_may_call_a_thread_of_its_own() -> None:
    @stage
    async def look(ctx: StageContext, x: int) -> int:
        return x + await to_thread.run_sync(ctx.output_of, double)

    pipeline = Pipeline("w", input=int).pipe(double).pipe(look)
    bench = Bench(pipeline)
    bench.start(pipeline(3))
    await bench.drain()

    assert bench.engine.sync.handle(pipeline, "x").result() == 12


@pytest.mark.anyio
async def test_a_large_output_of_an_async_body_is_stored_off_the_loop() -> None:
    threads: list[int] = []

    class Watched(MemoryBlobStore):
        @override
        def put(self, key: str, data: bytes, /) -> None:
            threads.append(threading.get_ident())
            super().put(key, data)

    @stage
    async def long(x: int) -> str:
        return "x" * x

    pipeline = Pipeline("w", input=int).pipe(long)
    await Bench(pipeline, blobs=Watched()).outcome_of(pipeline(100_000))

    assert len(threads) == 1
    assert threading.get_ident() not in threads


# What it says ---------------------------------------------------------------------------------------------------


def said_by(body: Body) -> list[tuple[str, Any]]:
    """Return the output without its origin."""
    told: list[tuple[str, Any]] = [(said.kind, parse(said.data)) for said in body.runtime.take_outputs()]
    for _, data in told:
        assert (data.pop("stage", "last"), data.pop("attempt", 1)) == ("last", 1)
    return told


def test_what_was_said_is_taken_once_with_the_last_progress_only() -> None:
    _, body = waiting()
    ctx = context_of(body)
    ctx.log("hello", n=1, ok=True, who="me", share=0.5)
    for done in range(3):
        ctx.progress(done, 10, f"at {done}")

    assert said_by(body) == [
        ("log", {"message": "hello", "fields": {"n": 1, "ok": True, "who": "me", "share": 0.5}}),
        ("progress", {"done": 2, "of": 10, "message": "at 2"}),
    ]
    assert said_by(body) == []


def test_the_last_heartbeat_is_taken_with_its_details() -> None:
    _, body = waiting()
    ctx = context_of(body)
    for page in range(3):
        ctx.heartbeat({"page": page})
    ctx.log("hello")

    taken = body.runtime.take_outputs()
    assert [(said.kind, said.data) for said in taken[1:]] == [("heartbeat", '{"page":2}')]
    body.runtime.put_back(taken)
    assert body.runtime.take_outputs() == taken
    body.runtime.put_back(taken)
    ctx.heartbeat({"page": 3})
    assert [said.data for said in body.runtime.take_outputs()[1:]] == ['{"page":3}']


@pytest.mark.anyio
async def test_an_attempt_reads_once_what_the_last_one_said() -> None:
    pipeline = Pipeline("w", input=int).pipe(last)
    bench = Bench(pipeline)
    bench.start(pipeline(1))
    first = bench.body()
    context_of(first).heartbeat([1, 2])
    assert context_of(first).last_heartbeat(list[int]) is None
    assert not any(isinstance(query, LastHeartbeat) for query in bench.store.asked)
    bench.settle(first, first.failed(ValueError()))
    bench.clock.advance(timedelta(minutes=1))
    bench.engine.kernel.dispatch(JobWakeDue())
    second = bench.body()
    ctx = context_of(second)
    ctx.heartbeat([3])

    assert ctx.last_heartbeat(list[int]) == [1, 2]
    assert await ctx.aio.last_heartbeat(list[int]) == [1, 2]
    assert sum(isinstance(query, LastHeartbeat) for query in bench.store.asked) == 1


def test_of_a_long_log_the_last_lines_are_kept() -> None:
    _, body = waiting()
    for number in range(BUFFERED_LINES_MAX + 5):
        context_of(body).log(str(number))

    lines = said_by(body)
    assert len(lines) == BUFFERED_LINES_MAX + 1
    assert lines[0][1]["message"].startswith("5 lines before this one were dropped")
    assert [lines[1][1]["message"], lines[-1][1]["message"]] == ["5", str(BUFFERED_LINES_MAX + 4)]


def test_what_could_not_be_stored_is_said_again_before_what_followed() -> None:
    _, body = waiting()
    ctx = context_of(body)
    for number in range(BUFFERED_LINES_MAX):
        ctx.log(str(number))
    ctx.progress(1, 2)
    ctx.annotate("a", 1)
    taken = body.runtime.take_outputs()
    ctx.log("later")
    ctx.progress(2, 2)
    ctx.annotate("b", 2)
    body.runtime.put_back(taken)

    told = body.runtime.take_outputs()
    messages = [parse(one.data)["message"] for one in told if one.kind == "log"]
    assert messages[0].startswith("1 lines before")
    assert [*messages[1:3], messages[-1]] == ["1", "2", "later"]
    assert [parse(one.data)["done"] for one in told if one.kind == "progress"] == [2]
    assert [parse(one.data)["name"] for one in told if one.kind == "annotation"] == ["a", "b"]


@pytest.mark.slow
def test_an_attempt_logs_so_many_lines_and_no_more() -> None:
    _, body = waiting()
    kept: list[str] = []
    for number in range(LINES_MAX + 10):
        context_of(body).log(str(number))
        if number % BUFFERED_LINES_MAX == BUFFERED_LINES_MAX - 1:
            kept += [parse(one.data)["message"] for one in body.runtime.take_outputs()]
    kept += [parse(one.data)["message"] for one in body.runtime.take_outputs()]

    assert kept[:LINES_MAX] == [str(number) for number in range(LINES_MAX)]
    assert kept[LINES_MAX:] == [f"this attempt has logged {LINES_MAX} lines: further lines are dropped"]


def test_of_a_long_line_the_beginning_is_kept() -> None:
    _, body = waiting()
    context_of(body).log("x" * 10_000, a="y" * 3_000, b="z" * 3_000, c="gone")

    ((_, data),) = said_by(body)
    assert data["message"] == "x" * LINE_MAX
    assert sum(len(name) + len(text) for name, text in data["fields"].items()) == LINE_MAX
    assert list(data["fields"]) == ["a", "b"]


def test_a_line_has_a_level() -> None:
    _, body = waiting()
    context_of(body).log("careful", level="warning", n=1)

    assert said_by(body) == [("log", {"message": "careful", "fields": {"n": 1}, "level": "warning"})]
    with pytest.raises(InvalidArgumentError, match="level is 'loud'; it must be one of 'debug', 'info'"):
        context_of(body).log("careful", level=cast("Any", "loud"))


def test_an_annotation_says_who_says_it() -> None:
    _, body = waiting()
    context_of(body).annotate("score", {"a": [1]}, scope="run", reason="so", key="k")
    context_of(body).annotate("by", "me", actor=Actor("model", "m", "2"))

    first, second = (from_data(parse(one.data), AnnotationOutput) for one in body.runtime.take_outputs())
    assert first == AnnotationOutput(
        name="score",
        value='{"a":[1]}',
        scope=AnnotationScope.RUN,
        actor=Actor("stage", "w/last", "1"),
        reason="so",
        key="k",
    )
    assert (second.scope, second.actor) == (AnnotationScope.ATTEMPT, Actor("model", "m", "2"))


def test_what_can_not_be_an_annotation_is_refused_at_once() -> None:
    _, body = waiting()
    ctx = context_of(body)
    with pytest.raises(UnstorableValueError):
        ctx.annotate("n", object())
    with pytest.raises(InvalidCommandError):
        ctx.annotate("", 1)
    with pytest.raises(ValueError, match="nobody"):
        ctx.annotate("n", 1, scope=cast("Any", "nobody"))
    for number in range(ANNOTATIONS_MAX):
        ctx.annotate(str(number), 1)
    with pytest.raises(InvalidCommandError, match="1000 annotations"):
        ctx.annotate("more", 1)


def test_a_line_says_when_it_was_said_by_the_store_s_clock() -> None:
    bench, body = waiting()
    context_of(body).log("now")
    (said,) = body.runtime.take_outputs()

    assert said == AttemptOutput(kind="log", at=micros(bench.clock.now()), data=said.data)


def test_what_no_database_can_keep_is_replaced_in_what_is_said() -> None:
    _, body = waiting()
    context_of(body).log("a\0b", text="half \ud83d")
    context_of(body).progress(1, 2, "c\0")

    assert said_by(body) == [
        ("log", {"message": "a\ufffdb", "fields": {"text": "half \ufffd"}}),
        ("progress", {"done": 1, "of": 2, "message": "c\ufffd"}),
    ]
    assert printable("plain ünïcödé 😀") == "plain ünïcödé 😀"


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_json_does_not_have_can_be_logged(number: float) -> None:
    """Logging that a loss became NaN must not fail the stage."""
    _, body = waiting()
    context_of(body).log("loss", value=number)

    assert said_by(body) == [("log", {"message": "loss", "fields": {"value": str(number)}})]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1.0])
def test_progress_must_be_a_number_that_there_is(number: float) -> None:
    _, body = waiting()

    with pytest.raises(ValueError, match="finite"):
        context_of(body).progress(number, 10)
    with pytest.raises(ValueError, match="finite"):
        context_of(body).progress(1, number)


def test_many_threads_may_log_at_once() -> None:
    _, body = waiting()
    ctx = context_of(body)

    def log() -> None:
        for _ in range(50):
            ctx.log("line")

    threads = [threading.Thread(target=log) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(said_by(body)) == 500


def test_what_was_said_last_goes_with_the_settle() -> None:
    _, body = waiting()
    context_of(body).log("the end")

    (said,) = body.settle(body.stored(body.encoded_result(1))).outputs
    assert parse(said.data)["message"] == "the end"


# Cancellation ---------------------------------------------------------------------------------------------------


def test_a_body_can_ask_whether_to_stop() -> None:
    _, body = waiting()
    ctx = context_of(body)
    ctx.check_cancelled()
    assert not ctx.cancelled
    body.runtime.cancel()

    assert ctx.cancelled
    with pytest.raises(StageCancelledError, match="last"):
        ctx.check_cancelled()


# Blobs ----------------------------------------------------------------------------------------------------------


def runtime_with(blobs: MemoryBlobStore | None) -> AttemptRuntime:
    return waiting(blobs)[1].runtime


def test_bytes_are_put_away_and_had_back() -> None:
    blobs = MemoryBlobStore()
    runtime = runtime_with(blobs)
    ref = runtime.blobs.put("picture", b"bytes")

    assert (ref.size, ref.key.rpartition("/")[2]) == (5, ref.sha256)
    assert runtime.blobs.get(ref) == b"bytes"
    assert list(blobs.list("")) == [ref.key]


def test_bytes_of_another_run_of_the_namespace_can_be_had() -> None:
    """A reference is a value like any other: it may come with the input."""
    blobs = MemoryBlobStore()
    ref = runtime_with(blobs).blobs.put("picture", b"bytes")

    assert runtime_with(blobs).blobs.get(ref) == b"bytes"


def test_bytes_that_are_not_those_that_were_put_away_are_refused() -> None:
    blobs = MemoryBlobStore()
    runtime = runtime_with(blobs)
    ref = runtime.blobs.put("picture", b"bytes")
    other = runtime.blobs.put("picture", b"other")

    with pytest.raises(BlobCorruptError):
        runtime.blobs.get(BlobRef(key=ref.key, sha256=other.sha256, size=5))
    blobs.damage(ref.key, b"spoilt")
    with pytest.raises(BlobCorruptError):
        runtime.blobs.get(ref)
    blobs.delete(ref.key)
    with pytest.raises(BlobMissingError):
        runtime.blobs.get(ref)


@pytest.mark.parametrize("key", NASTY_KEYS)
def test_a_reference_can_not_lead_out_of_the_namespace(key: str) -> None:
    runtime = runtime_with(MemoryBlobStore())

    for forged in (key, f"default/{key}", f"other/{'a' * 64}"):
        with pytest.raises((BlobCorruptError, InvalidKeyError, BlobMissingError)):
            runtime.blobs.get(BlobRef(key=forged, sha256="a" * 64, size=1))


def test_without_a_blob_store_bytes_are_refused_with_what_to_do() -> None:
    runtime = runtime_with(None)

    with pytest.raises(NoBlobStoreError, match="blobs="):
        runtime.blobs.put("picture", b"bytes")
    with pytest.raises(NoBlobStoreError, match="blobs="):
        runtime.blobs.get(BlobRef(key="default/a", sha256="a" * 64, size=1))
