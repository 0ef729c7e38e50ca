"""Artifacts of runs, on every store, with a real worker."""

import hashlib
from datetime import timedelta

import pytest

from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.ports.errors import (
    ArtifactMissingError,
    BlobCorruptError,
    InvalidCommandError,
    RunFailedError,
    RunNotFoundError,
)
from holdfast.testing.blobs import MemoryBlobStore
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.pipelines import SIMPLE
from tests.unit.hosts.attempt_harness import Bench

pytestmark = pytest.mark.anyio
SOON = timedelta(minutes=2)


@stage
def draw(ctx: StageContext, text: str) -> str:
    ctx.artifacts.put("report.txt", b"not yet")
    ctx.artifacts.put("report.txt", text.encode(), content_type="text/plain")
    ctx.artifacts.put("empty", b"")
    assert ctx.artifacts.get("report.txt") == text.encode()
    return text


@stage
async def check(ctx: StageContext, text: str) -> int:
    await ctx.aio.artifacts.put("size", str(len(text)).encode())
    return len(await ctx.aio.artifacts.get("report.txt", stage="draw"))


DRAWN = Pipeline("drawn", input=str).pipe(draw).pipe(check)


async def test_artifacts_are_listed_and_read(open_engine: OpenEngine) -> None:
    async with open_engine(DRAWN) as engine, Worker(engine):
        run = await engine.start(DRAWN("héllo"))
        assert await run.result(timeout=SOON) == 6
        listed = await run.artifacts()
        data = await run.artifact("report.txt")
        assert await run.artifact("size", stage="check") == b"5"
        with pytest.raises(ArtifactMissingError, match="no completed stage of the run"):
            await run.artifact("size", stage="draw")
        with pytest.raises(RunNotFoundError):
            await engine.handle(SIMPLE, "nobody").artifacts()

    assert [(one.name, one.stage, one.content_type, one.size) for one in listed] == [
        ("empty", "draw", "application/octet-stream", 0),
        ("report.txt", "draw", "text/plain", 6),
        ("size", "check", "application/octet-stream", 1),
    ]
    assert data.decode() == "héllo"
    assert listed[1].sha256 == hashlib.sha256(data).hexdigest()


async def test_attempts_that_failed_leave_none_and_items_have_their_own(open_engine: OpenEngine) -> None:
    @stage(retry=Retry(attempts=2, wait=timedelta()))
    def put(ctx: StageContext, x: int) -> int:
        ctx.artifacts.put("out", f"{x}, attempt {ctx.attempt}".encode())
        if x == 2 and ctx.attempt == 1:
            raise ValueError
        return x

    pipeline = Pipeline("w", input=list[int]).map(put)
    async with open_engine(pipeline) as engine, Worker(engine):
        run = await engine.start(pipeline([1, 2]))
        await run.result(timeout=SOON)
        assert sorted((one.item or 0, one.epoch) for one in await run.artifacts()) == [(0, 1), (1, 2)]
        assert await run.artifact("out", item=1) == b"2, attempt 2"
        with pytest.raises(ArtifactMissingError, match="there are 2 of this name"):
            await run.artifact("out")


async def test_a_run_that_failed_keeps_those_of_its_stages_that_are_done(open_engine: OpenEngine) -> None:
    @stage(retry=Retry(attempts=1))
    def fail(ctx: StageContext, x: str) -> str:
        ctx.artifacts.put("never", b"x")
        raise ValueError

    pipeline = Pipeline("w", input=str).pipe(draw).pipe(fail)
    async with open_engine(pipeline) as engine, Worker(engine):
        run = await engine.start(pipeline("a"))
        with pytest.raises(RunFailedError):
            await run.result(timeout=SOON)
        assert [one.name for one in await run.artifacts()] == ["empty", "report.txt"]


async def test_a_run_that_is_run_again_has_those_of_the_stages_that_it_keeps(open_engine: OpenEngine) -> None:
    async with open_engine(DRAWN) as engine, Worker(engine):
        run = await engine.start(DRAWN("a"))
        await run.result(timeout=SOON)
        await run.rerun_from("check")
        assert await run.result(timeout=SOON) == 1
        assert sorted(one.name for one in await run.artifacts()) == ["empty", "report.txt", "size"]
        assert await run.artifact("report.txt") == b"a"


async def test_bytes_that_are_not_those_that_were_put_are_refused() -> None:
    blobs = MemoryBlobStore()
    bench = Bench(DRAWN, blobs=blobs)
    bench.start(DRAWN("a"))
    await bench.drain()
    run = bench.engine.sync.handle(DRAWN, "x")
    key = next(key for key in blobs.list("") if key.endswith(hashlib.sha256(b"a").hexdigest()))
    blobs.damage(key, b"b")

    with pytest.raises(BlobCorruptError):
        run.artifact("report.txt")


async def test_without_a_blob_store_there_are_no_artifacts() -> None:
    failure = await Bench(DRAWN).failure_of(DRAWN("a"))

    assert failure.code == "no_blob_store"


@pytest.mark.parametrize(
    ("name", "content_type"), [("", "a/b"), ("x" * 201, "a/b"), ("x", ""), ("\0", "a/b")]
)
def test_what_can_not_be_an_artifact_is_refused_at_once(name: str, content_type: str) -> None:
    pipeline = Pipeline("w", input=str).pipe(draw)
    blobs = MemoryBlobStore()
    bench = Bench(pipeline, blobs=blobs)
    bench.start(pipeline("a"))

    with pytest.raises(InvalidCommandError):
        bench.body().runtime.artifacts.put(name, b"x", content_type=content_type)
    assert not list(blobs.list(""))
