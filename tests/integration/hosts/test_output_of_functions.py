"""What steps and functions report: logs, progress, annotations, events, artifacts and calls of AI models, each once."""

import logging
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from holdfast.hosts.client.run_handle import RunHandle
from holdfast.hosts.execution.logging_bridge import AttemptLogHandler
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.continue_as_new import continue_as_new
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.queries import expose, query
from holdfast.kernel.authoring.step_context import step_context
from holdfast.kernel.authoring.steps import Step, step
from holdfast.kernel.authoring.workflow_context import CALL_MAX, workflow_context
from holdfast.kernel.functions.outputs import OUTPUTS_MAX
from holdfast.ports.actors import Actor
from holdfast.ports.attempt_output import AnnotationScope
from holdfast.ports.errors import (
    InvalidArgumentError,
    InvalidCommandError,
    NotDurableError,
    UnstorableValueError,
)
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until

SOON = timedelta(minutes=2)
AT_ONCE = Retry(attempts=3, wait=timedelta(0))
go = Channel("go", int)

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


def report(number: int) -> None:
    """Report one thing of each kind in a step; fail in the first attempt of number 1."""
    ctx = step_context()
    ctx.log("counted", number=number, level="warning")
    ctx.progress(number, 3, "counting")
    ctx.annotate("seen", number)
    ctx.annotate("of the run", number, scope="run", key="once")
    ctx.publish("number.counted", {"number": number, "attempt": ctx.attempt})
    ctx.artifacts.put("number.txt", f"{number}".encode(), content_type="text/plain")
    assert ctx.artifacts.get("number.txt") == f"{number}".encode()
    ctx.ai.record(topic="count", model="m", input_tokens=number)
    logging.getLogger("some.library").warning("library %s", number)
    if number == 1 and ctx.attempt == 1:
        raise ConnectionError("try again")


@step(retry=AT_ONCE)
async def in_loop(number: int) -> int:
    ctx = step_context()
    report(number)
    await ctx.aio.artifacts.put("async.txt", b"async")
    return number


@step(name="in_thread", retry=AT_ONCE)
def in_thread(number: int) -> int:
    report(number)
    return number


@step(name="elsewhere", retry=AT_ONCE, queue="others")
def elsewhere(number: int) -> int:
    report(number)
    return number


async def events_of(run: RunHandle[Any]) -> list[tuple[str, object]]:
    return [(row.type, row.data) for row in await run.history() if row.type.startswith("user.")]


@pytest.mark.parametrize("kind", [in_loop, in_thread, elsewhere], ids=["in_loop", "in_thread", "elsewhere"])
async def test_steps_report_as_stages_do(kind: Step[[int], int], open_engine: OpenEngine) -> None:
    @workflow
    async def count() -> int:
        return await kind(1) + await kind(2)

    handler, library = AttemptLogHandler(), logging.getLogger("some.library")
    library.addHandler(handler)
    try:
        async with (
            open_engine(count, steps=[elsewhere]) as engine,
            Worker(engine),
        ):
            run = await engine.start(count())
            assert await run.result(timeout=SOON) == 3
            lines = [line async for line in run.logs()]
            annotations = [one async for one in run.annotations()]
            artifacts = await run.artifacts()
            calls = [one async for one in run.ai_calls()]
            progress = await run.progress()
            published = await events_of(run)
            actor = Actor("step", f"count/{kind.name}", "1")
    finally:
        library.removeHandler(handler)

    own = [line for line in lines if line.message == "counted"]
    assert [(line.stage, line.attempt, line.level, line.fields["number"]) for line in own] == [
        (kind.name, 1, "warning", 1),
        (kind.name, 2, "warning", 1),
        (kind.name, 1, "warning", 2),
    ]
    assert {(line.message, line.stage) for line in lines} - {("counted", kind.name)} == {
        ("library 1", kind.name),
        ("library 2", kind.name),
    }
    assert [(one.name, one.value, one.scope, one.stage) for one in annotations if one.name == "seen"] == [
        ("seen", number, AnnotationScope.ATTEMPT, kind.name) for number in (1, 1, 2)
    ]
    assert [(one.value, one.stage, one.actor) for one in annotations if one.name == "of the run"] == [
        (1, None, actor)
    ]
    extra = 2 if kind is in_loop else 0
    assert Counter(one.name for one in artifacts) == Counter({"number.txt": 2, "async.txt": extra})
    assert {one.stage for one in artifacts} == {kind.name}
    assert [(one.topic, one.stage, one.input_tokens) for one in calls] == [
        ("count", kind.name, number) for number in (1, 1, 2)
    ]
    assert sorted((one.stage, one.done, one.attempt) for one in progress) == [
        (kind.name, 1, 2),
        (kind.name, 2, 1),
    ]
    # Events of the attempt that failed are dropped.
    assert published == [
        ("user.number.counted", {"number": 1, "attempt": 2}),
        ("user.number.counted", {"number": 2, "attempt": 1}),
    ]


@step
async def double(number: int) -> int:
    return 2 * number


@workflow
async def reports(turns: int) -> int:
    ctx = workflow_context()
    ctx.log("begun", of=ctx.workflow)
    total = 0
    for turn in range(turns):
        number = await double(await go.receive())
        logging.getLogger("some.code").warning("got %s", number)
        ctx.log("doubled", number=number)
        ctx.progress(turn + 1, turns)
        ctx.annotate("number", number)
        ctx.publish("number.doubled", number)
        ctx.ai.record(topic="double", model="m", input_tokens=number, prompt=["hello", number])
        total += number
    ctx.log("ended", level="warning")
    ctx.publish("all.doubled")
    return total


@pytest.mark.parametrize("cache", [0, 10])
async def test_what_a_function_reports_is_stored_once(cache: int, open_engine: OpenEngine) -> None:
    """Without a cache each message is a replay from the first line."""
    handler, library = AttemptLogHandler(), logging.getLogger("some.code")
    library.addHandler(handler)
    try:
        async with open_engine(reports) as engine, Worker(engine, function_cache=cache):
            run = await engine.start(reports(3), id="x")
            for number in (1, 2, 3):
                await run.signal(go(number))
                done = engine.sync.handle(reports, "x")
                await until(
                    lambda: sum(row.type == "step.completed" for row in done.history()) == number  # noqa: B023
                )
            assert await run.result(timeout=SOON) == 12
            lines = [line async for line in run.logs()]
            annotations = [one async for one in run.annotations()]
            calls = [one async for one in run.ai_calls(texts=True)]
            published = await events_of(run)
            (progress,) = await run.progress()
    finally:
        library.removeHandler(handler)

    assert [(line.message, line.fields.get("number")) for line in lines] == [
        ("begun", None),
        *(one for number in (2, 4, 6) for one in ((f"got {number}", None), ("doubled", number))),
        ("ended", None),
    ]
    assert {line.stage for line in lines} == {"reports"}
    assert [(one.value, one.scope, one.actor) for one in annotations] == [
        (number, AnnotationScope.RUN, Actor("workflow", "reports", "1")) for number in (2, 4, 6)
    ]
    assert [(one.input_tokens, one.prompt) for one in calls] == [(n, ["hello", n]) for n in (2, 4, 6)]
    assert [kind for kind, _ in published] == [*["user.number.doubled"] * 3, "user.all.doubled"]
    assert [data for _, data in published[:3]] == [{"data": number} for number in (2, 4, 6)]
    assert (progress.stage, progress.done, progress.of) == ("reports", 3, 3)


@workflow
async def goes_on(left: int) -> str:
    workflow_context().log("turn", left=left)
    workflow_context().annotate("left", left)
    await double(left)
    if left:
        await continue_as_new(goes_on(left - 1))
    return workflow_context().run_id


async def test_each_generation_reports_for_itself(open_engine: OpenEngine) -> None:
    async with open_engine(goes_on) as engine, Worker(engine):
        run = await engine.start(goes_on(1), id="x")
        assert await run.result(timeout=SOON) == "x"
        lines = [line.fields["left"] async for line in run.logs()]
        values = [one.value async for one in run.annotations()]

    assert lines == [0]  # of the newest generation
    assert values == [1, 0]  # an annotation of the run moves to the next one


async def test_a_rerun_does_not_repeat_what_the_kept_part_has_reported(open_engine: OpenEngine) -> None:
    @workflow
    async def twice() -> int:
        ctx = workflow_context()
        ctx.log("begun")
        first = await double(1)
        ctx.log("first")
        ctx.publish("first.done")
        second = await double(first)
        ctx.log("second")
        return second

    async with open_engine(twice) as engine, Worker(engine):
        run = await engine.start(twice(), id="x")
        assert await run.result(timeout=SOON) == 4
        rows = [row.type for row in await run.history()]
        await run.rerun_from(row=rows.index("step.completed", 2) + 1)
        again = engine.handle(twice, "x")
        assert await again.result(timeout=SOON) == 4
        lines = [line.message async for line in again.logs()]
        published = await events_of(again)

    assert lines == ["second"]
    assert published == []  # the earlier generation has published it


class Counting:
    @query
    def total(self) -> int:
        workflow_context().log("in a query")
        return 1


@pytest.mark.slow
async def test_wrong_arguments_are_refused_in_each_replay(open_engine: OpenEngine) -> None:
    refused: list[str] = []

    def refuses(error: type[Exception], call: Any) -> None:
        with pytest.raises(error) as caught:
            call()
        refused.append(type(caught.value).__name__)

    @workflow
    async def wrong() -> int:
        ctx: Any = workflow_context()
        refuses(InvalidArgumentError, lambda: ctx.log(1))
        refuses(InvalidArgumentError, lambda: ctx.annotate("a", 1, scope="attempt"))
        refuses(InvalidCommandError, lambda: ctx.annotate("", 1))
        refuses(UnstorableValueError, lambda: ctx.annotate("a", object()))
        refuses(InvalidCommandError, lambda: ctx.ai.record(topic="t", model="m", input_tokens=-1))
        refuses(UnstorableValueError, lambda: ctx.ai.record(topic="t", model="m", prompt="x" * CALL_MAX))
        refuses(NotDurableError, lambda: ctx.artifacts)
        await go.receive()
        for number in range(OUTPUTS_MAX):
            ctx.annotate(f"n{number}", number)
        refuses(InvalidCommandError, lambda: ctx.annotate("one more", 1))
        return await double(1)

    async with open_engine(wrong) as engine, Worker(engine, function_cache=0):
        run = await engine.start(wrong())
        await run.signal(go(1))
        assert await run.result(timeout=SOON) == 2
        assert len([one async for one in run.annotations()]) == OUTPUTS_MAX

    assert len(refused) >= 8


async def test_contexts_exist_in_their_bodies_only(open_engine: OpenEngine) -> None:
    @step
    async def inside() -> int:
        with pytest.raises(RuntimeError, match="outside of a workflow"):
            workflow_context()
        return 1

    @workflow
    async def outside() -> int:
        expose(Counting())
        with pytest.raises(RuntimeError, match="step_context"):
            step_context()
        return await inside() + await go.receive()

    with pytest.raises(RuntimeError, match="outside of a workflow"):
        workflow_context()
    async with open_engine(outside) as engine, Worker(engine):
        run = await engine.start(outside())
        handle = engine.sync.handle(outside, run.id)
        await until(lambda: "step.completed" in [row.type for row in handle.history()])
        with pytest.raises(Exception, match="a query or a condition only reads"):
            await run.query(Counting.total())
        await run.signal(go(1))
        assert await run.result(timeout=SOON) == 2
        assert [line async for line in run.logs()] == []
