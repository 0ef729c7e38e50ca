"""Annotations, logs, progress and heartbeat details of runs, on every store, with a real worker."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from typing_extensions import override

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.execution.logging_bridge import AttemptLogHandler, ReplayFilter
from holdfast.hosts.inspection.logs import LogLine
from holdfast.hosts.inspection.value_filters import OneOf, Prefix, Range, ValueFilter
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.authoring.step_context import step_context
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.authoring.workflow_context import workflow_context
from holdfast.ports.actors import Actor
from holdfast.ports.attempt_output import AnnotationScope
from holdfast.ports.errors import (
    InvalidCommandError,
    InvalidFilterError,
    RunFailedError,
    RunNotFoundError,
    UnstorableValueError,
)
from holdfast.ports.records.job import JobState
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.pipelines import SIMPLE, WIDE
from tests.integration.hosts.polling import until

pytestmark = pytest.mark.anyio
SOON = timedelta(minutes=2)


class Gate:
    """Lets bodies through one after the other, on command."""

    def __init__(self) -> None:
        self._may_go = threading.Semaphore(0)

    def wait(self) -> None:
        assert self._may_go.acquire(timeout=20)

    def open(self) -> None:
        self._may_go.release()


# Annotations ----------------------------------------------------------------------------------------------------


def test_a_run_is_annotated_and_found(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE).sync
    run = engine.start(SIMPLE(1), id="a", annotations={"source": "web", "score": 0.5})
    engine.start(SIMPLE(2), id="b", annotations={"source": "app"})
    ann = Actor("person", "ann")
    assert (
        run.annotate({"reviewed": "yes", "notes": {"n": [1]}}, actor=ann, reason="fine", key="k").stored == 2
    )
    assert run.annotate({"reviewed": "no"}, key="k").stored == 0
    before = datetime.now(UTC) + timedelta(minutes=1)
    said = list(run.annotations())

    assert [(one.name, one.value, one.scope) for one in said] == [
        ("source", "web", AnnotationScope.RUN),
        ("score", 0.5, AnnotationScope.RUN),
        ("reviewed", "yes", AnnotationScope.RUN),
        ("notes", {"n": [1]}, AnnotationScope.RUN),
    ]
    assert (said[2].actor, said[2].reason, said[2].key, said[2].epoch) == (ann, "fine", "k", None)
    assert said[0].at.utcoffset() == timedelta(0)
    assert [one.name for one in run.annotations(after=said[1].cursor, limit=1)] == ["reviewed"]
    assert [one.name for one in run.annotations(prefix="s", until=before)] == ["source", "score"]
    assert [one.name for one in run.annotations(actor_kind="person", actor_id="ann", name="notes")] == [
        "notes"
    ]
    assert list(run.annotations(scope="stage")) == list(run.annotations(since=before)) == []
    assert [info.id for info in engine.runs(annotations={"reviewed": "yes"})] == ["a"]
    assert [info.id for info in engine.runs(annotations={"source": "app"}, workflow=SIMPLE)] == ["b"]
    assert sum(engine.count(annotations={"source": "web", "reviewed": "yes"}).values()) == 1
    assert list(engine.runs(annotations={"reviewed": "no"})) == []


def test_many_annotations_are_read_page_by_page(open_engine: OpenEngine) -> None:
    run = open_engine(SIMPLE).sync.start(SIMPLE(1))
    for start in range(0, 500, 100):
        run.annotate({str(number): number for number in range(start, start + 100)})

    assert [one.value for one in run.annotations()] == list(range(500))
    assert [one.value for one in run.annotations(limit=250)] == list(range(250))


def test_runs_are_found_by_values_of_each_kind(open_engine: OpenEngine) -> None:
    """By those of their starts, of clients, and of functions; an instant is stored as a text in UTC."""
    when = datetime(2026, 12, 1, 8, tzinfo=timezone(timedelta(hours=2)))

    @workflow
    async def quote(cents: int) -> str:
        workflow_context().annotate("cents", cents)
        workflow_context().annotate("due", when + timedelta(days=cents))
        return await packed(cents)

    @step
    def packed(cents: int) -> str:
        step_context().annotate("tags", ["new", f"of {cents}"])
        step_context().annotate("packed", when, scope="run")
        return "packed"

    engine = open_engine(quote).sync
    with Worker(engine):
        for cents in (5, 15):
            assert engine.start(
                quote(cents), id=str(cents), annotations={"weight": 0.5, "sent": when}
            ).result()
    run = engine.handle(quote, "5")
    run.annotate({"cents": 25, "open": True})

    assert {one.name: one.value for one in run.annotations()}["due"] == "2026-12-06T06:00:00.000000Z"
    cases: list[tuple[list[str], dict[str, ValueFilter]]] = [
        (["15"], {"cents": Range(at_least=10, below=20)}),
        (["15", "5"], {"cents": Range(at_least=10)}),
        (["5"], {"cents": 5, "open": True, "weight": 0.5}),
        (["5"], {"due": Range(below=when + timedelta(days=6))}),
        (["15", "5"], {"packed": when, "sent": when.astimezone(UTC), "tags": "new"}),
        (["15"], {"tags": OneOf("of 15", "of 16")}),
        ([], {"tags": Prefix("of 2")}),
    ]
    for found, annotations in cases:
        assert [info.id for info in engine.runs(annotations=annotations)] == found, annotations
        assert sum(engine.count(annotations=annotations).values()) == len(found)
    with pytest.raises(UnstorableValueError, match="has no time zone"):
        run.annotate({"due": datetime(2026, 1, 1)})  # noqa: DTZ001
    assert engine.cancel_all(annotations={"cents": Range(at_least=10)}).changed == 0


def test_what_can_not_be_said_or_asked_for_is_refused(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE).sync
    run = engine.start(SIMPLE(1))
    wrong: Any = object()
    with pytest.raises(UnstorableValueError):
        run.annotate({"n": wrong})
    with pytest.raises(UnstorableValueError):
        engine.start(SIMPLE(1), id="never", annotations={"n": wrong})
    with pytest.raises(InvalidCommandError):
        run.annotate({"": 1})
    with pytest.raises(InvalidCommandError, match="no stage 'x'"):
        run.annotate({"n": 1}, stage="x")
    with pytest.raises(RunNotFoundError):
        engine.handle(SIMPLE, "never").annotate({"n": 1})
    with pytest.raises(RunNotFoundError):
        engine.handle(SIMPLE, "never").annotations()
    options: list[dict[str, Any]] = [
        {"name": 1},
        {"scope": "x"},
        {"item": -1},
        {"limit": 0},
        {"after": "x"},
        {"since": datetime(2026, 1, 1)},  # noqa: DTZ001
    ]
    misspelt: dict[str, Any] = {"nam": "x"}
    for option in options:
        with pytest.raises(InvalidFilterError):
            run.annotations(**option)
    with pytest.raises(TypeError, match="did you mean 'name'"):
        run.annotations(**misspelt)
    with pytest.raises(InvalidFilterError):
        engine.count(annotations={"n": wrong})
    assert list(run.annotations()) == []


async def test_a_stage_annotates_its_run_while_it_runs_and_when_it_ends(
    open_engine: OpenEngine, quick: None
) -> None:
    gate = Gate()

    @stage
    def judge(ctx: StageContext, x: int) -> int:
        ctx.annotate("early", "yes", scope="run")
        gate.wait()
        ctx.annotate("late", {"x": x}, reason="at last", actor=Actor("model", "m"))
        return x

    pipeline = Pipeline("judged", input=int).pipe(judge)
    async with open_engine(pipeline) as engine, Worker(engine):
        run = await engine.start(pipeline(7))
        sync = engine.sync.handle(pipeline, run.id)
        await until(lambda: len(list(sync.annotations())) == 1)
        assert [info.id async for info in engine.runs(annotations={"early": "yes"})] == [run.id]
        gate.open()
        await run.result(timeout=SOON)
        early, late = [one async for one in run.annotations()]

    assert (early.scope, early.stage, early.actor) == (
        AnnotationScope.RUN,
        None,
        Actor("stage", "judged/judge", "1"),
    )
    assert (late.scope, late.stage, late.value, late.reason) == (
        AnnotationScope.ATTEMPT,
        "judge",
        {"x": 7},
        "at last",
    )
    assert (late.actor, late.epoch) == (Actor("model", "m"), 1)


async def test_attempts_that_fail_say_what_they_say_under_a_key_once(open_engine: OpenEngine) -> None:
    @stage(retry=Retry(attempts=3, wait=timedelta()))
    def fail(ctx: StageContext, x: int) -> int:
        ctx.annotate("begun", ctx.attempt, key="begun")
        ctx.annotate("attempt", ctx.attempt)
        raise ValueError

    pipeline = Pipeline("w", input=int).pipe(fail)
    async with open_engine(pipeline) as engine, Worker(engine):
        run = await engine.start(pipeline(1))
        with pytest.raises(RunFailedError):
            await run.result(timeout=SOON)
        said = [(one.name, one.value) async for one in run.annotations()]

    assert said == [("begun", 1), ("attempt", 1), ("attempt", 2), ("attempt", 3)]


# Logs and progress ----------------------------------------------------------------------------------------------


async def test_logs_and_progress_are_read_while_a_stage_runs(open_engine: OpenEngine, quick: None) -> None:
    gate = Gate()

    @stage
    def talk(ctx: StageContext, x: int) -> int:
        ctx.log("hello", n=x)
        ctx.progress(1, 4, "a quarter")
        gate.wait()
        ctx.log("careful", level="warning")
        ctx.progress(4, 4)
        return x

    pipeline = Pipeline("w", input=int).pipe(talk)
    async with open_engine(pipeline) as engine, Worker(engine):
        run = await engine.start(pipeline(7))
        sync = engine.sync.handle(pipeline, run.id)
        await until(lambda: bool(sync.progress()))
        (line,) = list(sync.logs())
        (now,) = await run.progress()
        gate.open()
        await run.result(timeout=SOON)
        (then,) = sync.progress()
        lines = [line async for line in run.logs()]
        warnings = [line.message async for line in run.logs(level="warning")]
        after = [line.message async for line in run.logs(after=lines[0].cursor)]

    assert (line.message, line.fields, line.level) == ("hello", {"n": 7}, "info")
    assert (line.stage, line.item, line.attempt, line.epoch) == ("talk", None, 1, 1)
    assert (now.stage, now.item, now.done, now.of, now.message) == ("talk", None, 1, 4, "a quarter")
    assert (then.done, then.of, then.message) == (4, 4, "")
    assert [one.message for one in lines] == ["hello", "careful"]
    assert warnings == after == ["careful"]


async def test_the_newest_progress_of_each_item_is_told(open_engine: OpenEngine) -> None:
    @stage
    def walk(ctx: StageContext, x: int) -> int:
        for done in range(x + 1):
            ctx.progress(done, x)
        return x

    pipeline = Pipeline("w", input=list[int]).map(walk)
    async with open_engine(pipeline) as engine, Worker(engine):
        run = await engine.start(pipeline([3, 1, 2]))
        await run.result(timeout=SOON)

        assert sorted((one.item or 0, one.done, one.of) for one in await run.progress()) == [
            (0, 3, 3),
            (1, 1, 1),
            (2, 2, 2),
        ]


@pytest.mark.parametrize("how", ["sync", "async"])
async def test_a_log_is_followed_to_the_end_of_the_run(
    open_engine: OpenEngine, quick: None, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    from holdfast.hosts.client import async_bodies, sync_run_handle

    monkeypatch.setattr(async_bodies, "FOLLOW_INTERVAL", 0.02)
    monkeypatch.setattr(sync_run_handle, "FOLLOW_INTERVAL", 0.02)
    gate = Gate()

    @stage
    def talk(ctx: StageContext, x: int) -> int:
        for number in range(3):
            ctx.log(f"line {number} of {x}")
            gate.wait()
        ctx.log("the end")
        return x

    pipeline = Pipeline("w", input=list[int]).map(talk)
    heard: list[LogLine] = []

    def hear(lines: Iterator[LogLine]) -> None:
        for line in lines:
            heard.append(line)
            gate.open()

    async with open_engine(pipeline) as engine, Worker(engine):
        run = await engine.start(pipeline([1, 2]))
        with anyio.fail_after(60):
            if how == "sync":
                lines = engine.sync.handle(pipeline, run.id).logs(follow=True)
                await anyio.to_thread.run_sync(hear, lines)
            else:
                async for line in run.logs(follow=True):
                    hear(iter([line]))
        assert (await run.info()).status == "completed"
        everything = [line async for line in run.logs()]

    assert sorted(line.cursor for line in heard) == sorted(line.cursor for line in everything)
    assert len(heard) == 8
    for item in (0, 1):
        told = [line.message for line in heard if line.item == item]
        assert told == [*(f"line {number} of {item + 1}" for number in range(3)), "the end"]


def test_logs_of_a_run_that_is_not_there(open_engine: OpenEngine) -> None:
    nobody = open_engine(SIMPLE).sync.handle(SIMPLE, "nobody")
    for ask in _questions(nobody):
        with pytest.raises(RunNotFoundError):
            ask()


def test_logs_can_be_asked_for_by_what_there_is(open_engine: OpenEngine) -> None:
    run = open_engine(WIDE).sync.start(WIDE(1))
    options: list[dict[str, Any]] = [{"level": "loud"}, {"item": "x"}, {"after": "x"}]
    for option in options:
        with pytest.raises(InvalidFilterError):
            run.logs(**option)
    assert not list(run.logs())
    assert not run.progress()


def _questions(run: Any) -> list[Callable[[], object]]:
    return [run.logs, lambda: run.logs(follow=True), run.progress]


def test_an_engine_of_another_process_hears_them(open_engine: OpenEngine, quick: None) -> None:
    """Two engines share nothing but the store; in memory there is no other process."""
    gate = Gate()

    @stage
    def talk(ctx: StageContext, x: int) -> int:
        ctx.log("hello")
        ctx.progress(1, 2)
        gate.wait()
        return x

    pipeline = Pipeline("w", input=int).pipe(talk)
    working: Engine = open_engine(pipeline)
    if working.core.stores.url == "memory://":
        return
    looking = open_engine(pipeline)
    run = looking.sync.start(pipeline(1))
    with Worker(working):
        anyio.run(until, lambda: bool(run.progress()))
        assert [line.message for line in run.logs()] == ["hello"]
        gate.open()
        run.result(timeout=SOON)


@pytest.mark.parametrize("how", ["sync", "async"])
async def test_what_libraries_log_goes_to_the_attempt_whose_body_runs(
    open_engine: OpenEngine, how: str
) -> None:
    library = logging.getLogger("some.library")
    handler = AttemptLogHandler(level=logging.WARNING)

    @stage(name="talk")
    def in_thread(x: int) -> int:
        library.warning("item %s", x)
        library.debug("never")
        return x

    @stage(name="talk")
    async def on_loop(x: int) -> int:
        await anyio.lowlevel.checkpoint()
        library.error("item %s", x)
        logging.getLogger("holdfast.worker").error("never")
        return x

    pipeline = Pipeline("w", input=list[int]).map(in_thread if how == "sync" else on_loop)
    library.addHandler(handler)
    try:
        async with open_engine(pipeline) as engine, Worker(engine):
            run = await engine.start(pipeline([5, 6]))
            await run.result(timeout=SOON)
            library.critical("of no body")
            lines = [line async for line in run.logs()]
    finally:
        library.removeHandler(handler)

    level = "warning" if how == "sync" else "error"
    assert sorted((line.item or 0, line.message, line.level, line.fields["logger"]) for line in lines) == [
        (0, "item 5", level, "some.library"),
        (1, "item 6", level, "some.library"),
    ]


@pytest.mark.parametrize("cache", [0, 10])
async def test_what_a_function_logs_is_kept_by_the_attempt_that_drives_it_and_not_again_in_replays(
    cache: int, open_engine: OpenEngine
) -> None:
    go = Channel("go", int)
    code, everything = logging.getLogger("some.code"), list[str]()
    kept, told = AttemptLogHandler(level=logging.INFO), _Noting(everything)
    told.addFilter(ReplayFilter())

    @step
    async def note(number: int) -> int:
        return number

    @workflow
    async def talk(number: int) -> int:
        code.warning("begun with %s", number)
        await note(number)

        async def listen() -> int:
            heard = await go.receive()
            code.warning("heard %s", heard)
            return await note(heard)

        for _ in range(2):
            number += await asyncio.ensure_future(listen())
        return number

    code.addHandler(kept)
    code.addHandler(told)
    try:
        async with open_engine(talk) as engine, Worker(engine, function_cache=cache):
            run = await engine.start(talk(1))
            for heard in (10, 100):
                await until(lambda: _rests(engine))
                await run.signal(go(heard))
            assert await run.result(timeout=SOON) == 111
            lines = [(line.message, line.epoch) async for line in run.logs()]
    finally:
        code.removeHandler(kept)
        code.removeHandler(told)

    assert everything == ["begun with 1", "heard 10", "heard 100"]
    assert [message for message, _ in lines] == everything
    assert lines == sorted(lines, key=lambda line: line[1])


def _rests(engine: Engine) -> bool:
    jobs = snapshot_of(engine.core.stores.persistence, [engine.core.namespace]).jobs
    return all(job.state is JobState.SLEEPING for of_run in jobs.values() for job in of_run.values())


class _Noting(logging.Handler):
    """Records the output that it receives."""

    def __init__(self, messages: list[str]) -> None:
        super().__init__()
        self._messages = messages

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self._messages.append(record.getMessage())
