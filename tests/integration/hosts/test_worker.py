"""A worker in this process, on every store."""

import threading
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import anyio
import attrs
import pytest
from anyio import lowlevel, to_thread

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.execution.output_buffer import BUFFERED_LINES_MAX
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.authoring.decorators import each, stage
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.invariants import check
from holdfast.ports.errors import RunCancelledError, RunFailedError
from holdfast.ports.json import parse
from holdfast.ports.queries.history import HistoryOf, NotesOf
from holdfast.ports.queries.runs import FindRun
from holdfast.ports.records.history import HistoryRow, OutputRow
from holdfast.ports.records.run import Run, RunName, RunStatus
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.pipelines import FAILING, SIMPLE, double, total, up_to
from tests.integration.hosts.polling import until

pytestmark = pytest.mark.anyio

SOON = timedelta(minutes=2)
AT_ONCE = Retry(attempts=3, wait=timedelta(0))


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: the unit tests run the worker on trio too."""
    return "asyncio"


def run_of(engine: Engine, id: str) -> Run:
    run = engine.core.stores.persistence.read(FindRun(RunName(engine.core.namespace, id)))
    assert run is not None
    return run


def history(engine: Engine, id: str) -> Sequence[HistoryRow]:
    return engine.core.stores.persistence.read(HistoryOf(run_of(engine, id).key))


def notes(engine: Engine, id: str) -> Sequence[OutputRow]:
    return engine.core.stores.persistence.read(NotesOf(run_of(engine, id).key))


async def done(engine: Engine, call: Call[object], **options: object) -> str:
    """Complete a run; return its id."""
    handle = await engine.start(call, **options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await handle.result(timeout=SOON)
    return handle.id


# Plans ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_map_a_thousand_wide_gives_its_outputs_in_order(open_engine: OpenEngine) -> None:
    pipeline = Pipeline("wide", input=int).pipe(up_to).map(double, limit=150)
    async with open_engine(pipeline) as engine, Worker(engine) as worker:
        handle = await engine.start(pipeline(1_000))
        assert await handle.result(timeout=SOON) == [2 * x for x in range(1_000)]

        assert check(snapshot_of(engine.core.stores.persistence, [run_of(engine, handle.id).key])) == []

    # A caller may have the result before the worker has counted what it stored with the end.
    assert worker.stats().settled == 1_002


async def test_no_more_items_of_a_map_have_jobs_at_once_than_its_limit(open_engine: OpenEngine) -> None:
    running: list[int] = []
    seen: list[int] = []

    @stage
    async def body(x: int) -> int:
        running.append(x)
        seen.append(len(running))
        await anyio.sleep(0.001)
        running.remove(x)
        return x

    pipeline = Pipeline("w", input=int).pipe(up_to).map(body, limit=3)
    async with open_engine(pipeline) as engine, Worker(engine):
        await done(engine, pipeline(20))

    assert max(seen) <= 3
    assert len(seen) == 20


async def test_an_empty_map_gives_an_empty_list(open_engine: OpenEngine) -> None:
    pipeline = Pipeline("w", input=int).pipe(up_to).map(double).pipe(total)
    async with open_engine(pipeline) as engine, Worker(engine):
        assert await engine.run(pipeline(0)) == 0


async def test_a_map_goes_over_what_an_earlier_stage_gave_while_the_rest_goes_on(
    open_engine: OpenEngine,
) -> None:
    @stage
    def count(xs: list[int]) -> int:
        return len(xs)

    @stage
    def report(counted: int, doubled: list[int]) -> list[object]:
        return [counted, doubled]

    pipeline = (
        Pipeline("w", input=int).pipe(up_to).parallel(count, each(double, over=up_to, limit=2)).pipe(report)
    )
    async with open_engine(pipeline) as engine, Worker(engine):
        assert await engine.run(pipeline(5)) == [5, [0, 2, 4, 6, 8]]


async def test_stages_of_a_parallel_group_run_at_the_same_time(open_engine: OpenEngine) -> None:
    met: list[str] = []
    everybody = anyio.Event()

    async def meet(name: str) -> str:
        met.append(name)
        if len(met) == 3:
            everybody.set()
        await everybody.wait()
        return name

    @stage
    async def a(x: int) -> str:
        return await meet("a")

    @stage
    async def b(x: int) -> str:
        return await meet("b")

    @stage
    async def c(x: int) -> str:
        return await meet("c")

    pipeline = Pipeline("w", input=int).parallel(a, b, c)
    async with open_engine(pipeline) as engine, Worker(engine):
        assert await engine.run(pipeline(1)) == ("a", "b", "c")


async def test_configs_reach_the_stages_as_they_were_when_the_run_began(open_engine: OpenEngine) -> None:
    @attrs.frozen
    class Config:
        factor: int = 2

    @stage
    def scale(ctx: StageContext[Config], x: int) -> int:
        return ctx.config.factor * x

    by_default = Pipeline("w", input=int).pipe(scale)
    by_seven = Pipeline("w", input=int, version="2").pipe(scale.configure(Config(7)))
    async with open_engine(by_default, by_seven) as engine, Worker(engine):
        assert await engine.run(by_default(3)) == 6
        assert await engine.run(by_seven(3)) == 21


# Retries --------------------------------------------------------------------------------------------------------


async def test_retries_wait_ever_longer_and_are_written_down(open_engine: OpenEngine) -> None:
    @stage(retry=Retry(attempts=4, wait=timedelta(milliseconds=10), backoff=3.0, jitter=0.0))
    def flaky(ctx: StageContext, x: int) -> int:
        if ctx.attempt < 4:
            raise OSError(f"attempt {ctx.attempt}")
        return x

    pipeline = Pipeline("w", input=int).pipe(flaky)
    async with open_engine(pipeline) as engine, Worker(engine):
        run = await done(engine, pipeline(1))
        rows = [row for row in history(engine, run) if row.type == "stage.retrying"]
        facts = [parse(row.data or "") for row in rows]

        assert [fact["message"] for fact in facts] == ["attempt 1", "attempt 2", "attempt 3"]
        assert [fact["retry_at"] - row.at for fact, row in zip(facts, rows, strict=True)] == [
            10_000,
            30_000,
            90_000,
        ]
        (completed,) = [row for row in history(engine, run) if row.type == "stage.completed"]
        assert completed.epoch == 4
        assert all(
            following.at >= fact["retry_at"]
            for fact, following in zip(facts, [*rows[1:], completed], strict=True)
        )


async def test_what_can_never_be_stored_is_not_tried_again(open_engine: OpenEngine) -> None:
    attempts: list[int] = []

    @stage(retry=Retry(attempts=5, wait=timedelta(0)))
    def body(ctx: StageContext, x: int) -> dict[str, object]:
        attempts.append(ctx.attempt)
        return {"a": [float("nan")]}

    pipeline = Pipeline("w", input=int).pipe(body)
    async with open_engine(pipeline) as engine, Worker(engine):
        with pytest.raises(RunFailedError, match=r"\$\.a\[0\]: expected a finite number, got nan"):
            await engine.run(pipeline(1))

    assert attempts == [1]


async def test_nasty_texts_come_through_as_they_are(open_engine: OpenEngine) -> None:
    text = "ünïcödé 😀 \u2028 \x01 \x7f '\";-- %s :x \\u0000 {}"

    @stage
    def echo(ctx: StageContext, said: str) -> str:
        ctx.log(said, field=said)
        ctx.progress(1, 1, said)
        return said

    pipeline = Pipeline("w", input=str).pipe(echo)
    async with open_engine(pipeline) as engine, Worker(engine):
        run = await done(engine, pipeline(text))
        assert await engine.handle(pipeline, run).result() == text
        said = [parse(note.data) for note in notes(engine, run)]
        assert {one["message"] for one in said} == {text}


async def test_messages_that_no_database_can_keep_do_not_keep_a_failure_from_being_stored(
    open_engine: OpenEngine,
) -> None:
    @stage(retry=AT_ONCE)
    def body(x: int) -> int:
        raise ValueError("nul \0, half \ud800, and long" + "!" * 100_000)

    pipeline = Pipeline("w", input=int).pipe(body)
    async with open_engine(pipeline) as engine, Worker(engine):
        with pytest.raises(RunFailedError, match="nul \ufffd, half \ufffd"):
            await engine.run(pipeline(1))


async def test_large_values_pass_from_stage_to_stage(open_engine: OpenEngine) -> None:
    @stage
    def grow(text: str) -> str:
        return text * 2

    @stage
    def parts(text: str) -> list[str]:
        return [text, text]

    @stage
    def size(text: str) -> int:
        return len(text)

    pipeline = Pipeline("w", input=str).pipe(grow).pipe(parts).map(size)
    async with open_engine(pipeline) as engine, Worker(engine):
        assert await engine.run(pipeline("x" * 100_000)) == [200_000, 200_000]


# Queues and priorities ------------------------------------------------------------------------------------------


async def test_what_has_priority_is_done_first(open_engine: OpenEngine) -> None:
    order: list[int] = []

    @stage
    async def note(x: int) -> int:
        order.append(x)
        return x

    pipeline = Pipeline("w", input=int).pipe(note)
    async with open_engine(pipeline) as engine:
        handles = [await engine.start(pipeline(x), priority=x % 3) for x in range(9)]
        async with Worker(engine, concurrency=1):
            for handle in handles:
                await handle.result(timeout=SOON)

    assert order == [2, 5, 8, 1, 4, 7, 0, 3, 6]


async def test_a_queue_s_limit_holds_and_other_queues_go_on_beside_it(open_engine: OpenEngine) -> None:
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    together = anyio.Event()

    async def work(queue: str) -> None:
        running[queue] += 1
        most[queue] = max(most[queue], running[queue])
        if running["gpu"] == 2 and running["cpu"] > 2:
            together.set()
        with anyio.fail_after(60):
            await together.wait()
        running[queue] -= 1

    @stage(queue="gpu")
    async def gpu(x: int) -> int:
        await work("gpu")
        return x

    @stage(queue="cpu")
    async def cpu(x: int) -> int:
        await work("cpu")
        return x

    pipeline = Pipeline("w", input=int).pipe(up_to).parallel(each(gpu), each(cpu))
    async with open_engine(pipeline) as engine, Worker(engine, queues={"gpu": 2}, concurrency=50):
        await done(engine, pipeline(10))

    assert most["gpu"] == 2
    assert most["cpu"] > 2


async def test_a_worker_serves_just_the_queues_that_it_is_told_to(open_engine: OpenEngine) -> None:
    @stage(queue="gpu")
    async def gpu(x: int) -> int:
        return x

    pipeline = Pipeline("w", input=int).pipe(double).pipe(gpu)
    async with open_engine(pipeline) as engine:
        handle = await engine.start(pipeline(1))
        async with Worker(engine, only_queues=("default",)) as worker:
            await until(lambda: worker.stats().settled == 1)
            with pytest.raises(TimeoutError):
                await handle.result(timeout=timedelta(milliseconds=50))
        async with Worker(engine, only_queues=("gpu",)):
            assert await handle.result(timeout=SOON) == 2


# What is said, and cancellation ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick")
async def test_what_a_body_says_can_be_read_while_it_runs_and_afterwards(open_engine: OpenEngine) -> None:
    go_on = threading.Event()

    @stage
    def talk(ctx: StageContext, x: int) -> int:
        ctx.log("hello", n=x, share=0.5, ok=True)
        ctx.progress(1, 4, "a quarter")
        assert go_on.wait(20)
        ctx.progress(4, 4, "all")
        return x

    pipeline = Pipeline("w", input=int).pipe(talk)
    async with open_engine(pipeline) as engine, Worker(engine):
        handle = await engine.start(pipeline(7))
        await until(lambda: len(notes(engine, handle.id)) == 2)
        assert [(note.kind, parse(note.data)) for note in notes(engine, handle.id)] == [
            (
                "log",
                {
                    "message": "hello",
                    "fields": {"n": 7, "share": 0.5, "ok": True},
                    "stage": "talk",
                    "attempt": 1,
                },
            ),
            ("progress", {"done": 1, "of": 4, "message": "a quarter", "stage": "talk", "attempt": 1}),
        ]
        go_on.set()
        await handle.result(timeout=SOON)
        last = notes(engine, handle.id)[-1]
        assert parse(last.data) == {"done": 4, "of": 4, "message": "all", "stage": "talk", "attempt": 1}
        assert (last.job, last.epoch) == (1, 1)


@pytest.mark.slow
async def test_of_a_flood_of_lines_the_last_are_kept(open_engine: OpenEngine) -> None:
    @stage
    def talk(ctx: StageContext, x: int) -> int:
        for number in range(x):
            ctx.log(str(number))
        return x

    pipeline = Pipeline("w", input=int).pipe(talk)
    async with open_engine(pipeline) as engine, Worker(engine):
        run = await done(engine, pipeline(BUFFERED_LINES_MAX + 500))
        kept = [line.message async for line in engine.handle(pipeline, run).logs()]

    assert len(kept) == BUFFERED_LINES_MAX + 1
    assert kept[0].startswith("500 lines before this one were dropped")
    assert kept[-1] == str(BUFFERED_LINES_MAX + 499)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
async def test_cancelling_a_run_reaches_the_body_that_runs(open_engine: OpenEngine, sync: bool) -> None:
    begun, ended = threading.Event(), threading.Event()

    @stage(name="body")
    async def on_loop(ctx: StageContext, x: int) -> int:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            assert ctx.cancelled
            ended.set()
        return x

    @stage(name="body")
    def in_thread(ctx: StageContext, x: int) -> int:
        begun.set()
        while not ctx.cancelled:
            threading.Event().wait(0.005)
        ended.set()
        return x

    pipeline = Pipeline("w", input=int).pipe(in_thread if sync else on_loop)
    async with open_engine(pipeline) as engine, Worker(engine) as worker:
        handle = await engine.start(pipeline(1))
        assert await to_thread.run_sync(begun.wait, 20)
        assert (await handle.cancel(reason="enough")).changed
        with pytest.raises(RunCancelledError, match="enough"):
            await handle.result(timeout=SOON)
        assert await to_thread.run_sync(ended.wait, 20)
        await until(lambda: worker.stats().running == 0)

    assert worker.stats().settled == 0
    assert (worker.stats().fenced, worker.stats().failed) == (0, 0)


async def test_a_result_that_comes_after_its_run_was_cancelled_is_refused_and_counted(
    open_engine: OpenEngine,
) -> None:
    begun, go_on = anyio.Event(), anyio.Event()

    @stage
    async def body(x: int) -> int:
        begun.set()
        with anyio.CancelScope(shield=True):  # it may be cancelled before it gives its result, or after
            await go_on.wait()
        return x

    pipeline = Pipeline("w", input=int).pipe(body)
    async with open_engine(pipeline) as engine, Worker(engine) as worker:
        handle = await engine.start(pipeline(1))
        await begun.wait()
        await handle.cancel()
        go_on.set()
        await until(lambda: worker.stats().fenced == 1)
        assert (await handle.info()).status is RunStatus.CANCELLED


# Several workers ------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_workers_that_share_a_store_do_every_job_once(open_engine: OpenEngine, url: str) -> None:
    bodies: Counter[int] = Counter()

    @stage
    async def body(x: int) -> int:
        bodies[x] += 1
        await lowlevel.checkpoint()
        return x

    pipeline = Pipeline("w", input=int).pipe(up_to).map(body)
    one = open_engine(pipeline)
    other = one if url == "memory://" else open_engine(pipeline)
    first, second = Worker(one, concurrency=10), Worker(other, concurrency=10)
    async with first, second:
        await done(one, pipeline(300))

    assert bodies == dict.fromkeys(range(300), 1)
    assert first.stats().settled + second.stats().settled == 302
    assert first.stats().fenced == second.stats().fenced == 0


async def test_what_one_process_starts_another_s_worker_is_told_of(open_engine: OpenEngine, url: str) -> None:
    """And in the other direction: by a hint, long before the poll interval is over."""
    if url == "memory://":
        pytest.skip("a store in memory has one process")
    ours, theirs = open_engine(SIMPLE), open_engine(SIMPLE)
    async with Worker(theirs, poll_interval=60.0) as worker:
        await until(lambda: worker.stats().session is not None)
        is_heard = False
        while not is_heard:  # whoever does not listen yet is told nothing
            with anyio.move_on_after(1):
                is_heard = await ours.run(SIMPLE(0)) == 0
        with anyio.fail_after(60):
            for x in range(5):
                assert await ours.run(SIMPLE(x)) == 2 * x


@pytest.mark.slow
async def test_runs_that_fail_do_not_keep_others_from_being_done(open_engine: OpenEngine) -> None:
    async with open_engine(SIMPLE, FAILING) as engine, Worker(engine):
        bad = [await engine.start(FAILING(x)) for x in range(10)]
        good = [await engine.start(SIMPLE(x)) for x in range(10)]
        assert [await handle.result(timeout=SOON) for handle in good] == [2 * x for x in range(10)]
        for handle in bad:
            with pytest.raises(RunFailedError):
                await handle.result(timeout=SOON)
