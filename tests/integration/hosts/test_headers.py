"""Headers of runs and interceptors of starts, on each store."""

import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, TypeAlias

import pytest

from holdfast import (
    Channel,
    Engine,
    Every,
    Pipeline,
    Schedule,
    StageContext,
    Topic,
    Trigger,
    Worker,
    continue_as_new,
    stage,
    start_child,
    step,
    step_context,
    workflow,
)
from holdfast.errors import ChildRefusedError, DefinitionError, InvalidArgumentError, InvalidCommandError
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.plugins import BodyCall, FunctionCall, Interceptor, StartCall
from holdfast.testing import World
from holdfast.workflows import run_info

SOON = 120
TRACE = {"traceparent": "00-1"}
GO = Channel("go", str)
ORDERS = Topic("orders", int)

OpenEngine: TypeAlias = Callable[..., SyncEngine]

trace: ContextVar[str] = ContextVar("trace", default="none")


@pytest.fixture
def open_engine(url: str, namespace: str) -> Iterator[OpenEngine]:
    """Opens engines with interceptors on the store of the test, and closes them at the end."""
    with ExitStack() as opened:

        def open_one(
            *workflows: WorkflowDefinition[object], interceptors: Sequence[Interceptor] = ()
        ) -> SyncEngine:
            engine = Engine.open(url, workflows=workflows, namespace=namespace, interceptors=interceptors)
            return opened.enter_context(engine.sync)

        yield open_one


def working(engine: SyncEngine) -> Worker:
    return Worker(engine, poll_interval=0.05, only_queues=("default", "elsewhere"))


def headers_text() -> str:
    return ",".join(f"{name}={text}" for name, text in sorted(step_context().headers.items()))


@step
async def inline() -> str:
    return headers_text()


@step(queue="elsewhere")
def queued() -> str:
    return headers_text()


@stage
def first(ctx: StageContext, number: int) -> str:
    return f"{number}: {dict(ctx.headers)}"


pipeline = Pipeline("pipeline", input=int).pipe(first)
nested = Pipeline("nested", input=int).pipe(stage(headers={"of": "stage"})(pipeline))


@workflow
async def child() -> list[str]:
    return [str(dict(run_info().headers)), await inline(), await queued()]


@workflow
async def parent() -> list[str]:
    adds = await start_child(child(), headers={"part": "2"})
    return [*await child(), *await adds.result(), await nested(3)]


@workflow
async def gives_too_many() -> str:
    try:
        await start_child(child(), headers={f"name-{number}": "" for number in range(16)})
    except ChildRefusedError as error:
        return str(error)
    return "started"


@workflow
async def refuses_half(option: str) -> str:
    options: Any = {option: {"file": "caf\udce9.txt"}}
    try:
        await start_child(child(), **options)
    except InvalidArgumentError as error:
        return repr(error)
    return "started"


@workflow
async def continues(left: int) -> str:
    return str(dict(run_info().headers)) if left == 0 else await continue_as_new(continues(left - 1))


@workflow
async def waits() -> str:
    text = await GO.receive()
    made = await start_child(child(), id=f"{run_info().id} child")
    return f"{text}: {(await made.result())[0]}"


@workflow
async def on_order(number: int) -> str:
    return f"{number}: {dict(run_info().headers)}"


def test_headers_reach_functions_steps_stages_and_child_runs(open_engine: OpenEngine) -> None:
    engine = open_engine(parent, child, pipeline, nested)
    with working(engine):
        run = engine.start(parent(), headers=TRACE)
        own = [str(TRACE), "traceparent=00-1", "traceparent=00-1"]
        both = "part=2,traceparent=00-1"
        assert run.result(timeout=SOON) == [
            *own,
            *[str({"part": "2", **TRACE}), both, both],
            f"3: { ({'of': 'stage', **TRACE}) }",
        ]
    assert run.details().headers == TRACE
    assert list(engine.runs(attributes=TRACE)) == []
    assert {len(one.attributes) for one in engine.runs()} == {0}


def test_the_headers_of_a_parent_count_for_the_bounds(open_engine: OpenEngine) -> None:
    engine = open_engine(gives_too_many, child)
    with working(engine):
        found = engine.start(gives_too_many(), headers=TRACE).result(timeout=SOON)
    assert "at most 16 texts" in found


@pytest.mark.parametrize("headers", [{"a b": "c"}, {"a": "b" * 4_096}, {"a": 1}, "a=b"])
def test_what_can_be_no_headers_is_refused_before_anything_is_stored(
    open_engine: OpenEngine, headers: dict[str, str]
) -> None:
    engine = open_engine(child)
    with pytest.raises(InvalidArgumentError, match="headers is"):
        engine.start(child(), headers=headers)
    assert list(engine.runs()) == []


@pytest.mark.parametrize("option", ["attributes", "headers"])
def test_half_of_a_surrogate_pair_is_refused_before_anything_is_stored(
    open_engine: OpenEngine, option: str
) -> None:
    """A name of a file that is not UTF-8 has one."""
    options: Any = {option: {"file": os.fsdecode(b"caf\xe9.txt")}}
    engine = open_engine(child, refuses_half, on_order)
    monthly = Every(timedelta(days=30))
    for refused in (
        lambda: engine.start(child(), **options),
        lambda: engine.start_all([child()], **options),
        lambda: engine.create_schedule(Schedule("monthly", child(), when=monthly, **options)),
        lambda: engine.triggers.put(Trigger("orders", ORDERS, on_order, **options)),
        lambda: stage(**options)(pipeline),
    ):
        with pytest.raises((InvalidArgumentError, DefinitionError), match=f"{option} is .* surrogate pair"):
            refused()
    assert [*engine.runs(), *engine.schedules(), *engine.triggers.list()] == []
    with working(engine):
        assert f"{option} is" in engine.start(refuses_half(option)).result(timeout=SOON)


def test_the_next_generation_has_the_same_headers(open_engine: OpenEngine) -> None:
    engine = open_engine(continues)
    with working(engine):
        run = engine.start(continues(2), headers=TRACE)
        assert run.result(timeout=SOON) == str(TRACE)
        again = run.rerun_from()
        assert again.generation == 4
        assert run.result(timeout=SOON) == str(TRACE)


def test_runs_of_schedules_and_triggers_have_the_headers_of_these(open_engine: OpenEngine) -> None:
    engine = open_engine(on_order)
    schedule = engine.create_schedule(
        Schedule("nightly", on_order(1), when=Every(timedelta(days=365)), headers={"of": "schedule"})
    )
    engine.triggers.put(Trigger("orders", ORDERS, on_order, headers={"of": "trigger"}))
    with working(engine):
        by_schedule = schedule.trigger()
        engine.publish(ORDERS(2))
        assert (
            engine.handle(on_order, by_schedule.run_id or "").result(timeout=SOON) == "1: {'of': 'schedule'}"
        )
        assert ended(engine, "orders/orders/1") == "2: {'of': 'trigger'}"


def ended(engine: SyncEngine, run_id: str) -> str:
    """Wait until a run is there and has ended, and return its result."""
    while not list(engine.runs(ids=[run_id])):
        time.sleep(0.02)
    return engine.handle(on_order, run_id).result(timeout=SOON)


@contextmanager
def tracing(name: str) -> Generator[None]:
    token = trace.set(name)
    yield
    trace.reset(token)


class Traces:
    """Sets `trace` from headers, and gives each start a span of its own. Raises while it `refuses` a kind of start."""

    def __init__(self) -> None:
        self.starts: list[StartCall] = []
        self.refuses = ""

    def start(self, call: StartCall) -> StartCall | None:
        if call.kind == self.refuses:
            raise InvalidCommandError(f"no {call.kind} now")
        self.starts.append(call)
        return call.with_headers({"span": f"{trace.get()}/{len(self.starts)}"}).with_attributes({"of": "us"})

    @contextmanager
    def function(self, call: FunctionCall) -> Generator[None]:
        with tracing(call.headers["span"]):
            yield

    @contextmanager
    def body(self, call: BodyCall) -> Generator[None]:
        assert call.headers["span"]
        yield


def test_an_interceptor_adds_to_every_start_from_outside(open_engine: OpenEngine) -> None:
    traces = Traces()
    engine = open_engine(on_order, interceptors=[traces])
    with tracing("request"):
        one = engine.start(on_order(1), id="one", headers=TRACE, attributes={"a": "b"})
        two, three = engine.start_all([on_order(2), on_order(3)])
    assert one.details().headers == {"span": "request/1", **TRACE}
    assert one.info().attributes == {"a": "b", "of": "us"}
    assert [run.details().headers for run in (two, three)] == [{"span": "request/2"}, {"span": "request/3"}]
    call = traces.starts[0]
    assert (call.kind, call.workflow, call.run_id, call.parent) == ("run", "on_order", "one", None)
    assert (call.attributes, call.headers) == ({"a": "b"}, TRACE)
    assert len(list(engine.runs(attributes={"of": "us"}))) == 3


@pytest.mark.anyio
async def test_it_sees_the_context_of_an_async_caller(url: str, namespace: str) -> None:
    async with Engine.open(url, workflows=[on_order], namespace=namespace, interceptors=[Traces()]) as engine:
        with tracing("async request"):
            run = await engine.start(on_order(1))
        assert (await run.details()).headers == {"span": "async request/1"}


def test_what_it_raises_goes_to_the_caller_and_nothing_is_stored(open_engine: OpenEngine) -> None:
    traces = Traces()
    traces.refuses = "run"
    engine = open_engine(on_order, interceptors=[traces])
    for start in (lambda: engine.start(on_order(1)), lambda: engine.start_all([on_order(1)])):
        with pytest.raises(InvalidCommandError, match="no run now"):
            start()
    assert list(engine.runs()) == []


def test_it_adds_to_child_runs_within_the_context_of_their_function(open_engine: OpenEngine) -> None:
    traces = Traces()
    engine = open_engine(parent, child, pipeline, nested, interceptors=[traces])
    with working(engine):
        with tracing("request"):
            run = engine.start(parent(), id="p")
        run.result(timeout=SOON)
    assert run.details().headers == {"span": "request/1"}
    below = [call for call in traces.starts if call.parent == "p"]
    assert sorted(call.workflow for call in below) == ["child", "child", "nested"]
    assert {call.headers["span"] for call in below} == {"request/1"}
    spans = {one.workflow: engine.handle(parent, one.id).details().headers["span"] for one in engine.runs()}
    assert spans["child"].startswith("request/1/")
    assert spans["nested"].startswith("request/1/")
    assert spans["pipeline"].startswith("none/")  # no function is around the stage that starts it


def test_a_replay_needs_no_interceptor_and_starts_nothing_again(open_engine: OpenEngine, url: str) -> None:
    if url == "memory://":
        return
    traces = Traces()
    engine = open_engine(waits, child, interceptors=[traces])
    with working(engine):
        run = engine.start(waits(), id="w")
    other = open_engine(waits, child, interceptors=[traces])
    with working(other):
        handle = other.handle(waits, run.id)
        handle.signal(GO("hello"))
        found = handle.result(timeout=SOON)
    # The child run has the span that the second process gave it.
    assert found == f"hello: {dict(other.handle(child, 'w child').details().headers)}"
    assert [call.kind for call in traces.starts] == ["run", "child"]


def test_a_run_is_blocked_while_an_interceptor_refuses_its_child_run(open_engine: OpenEngine) -> None:
    traces = Traces()
    traces.refuses = "child"
    engine = open_engine(waits, child, pipeline, nested, interceptors=[traces])
    with working(engine):
        function, line = engine.start(waits(), id="w"), engine.start(nested(3), id="n")
        function.signal(GO("hello"))
        for run in (function, line):
            while run.info().status != "blocked":
                time.sleep(0.02)
            why = run.details().blocked or ""
            assert "an interceptor of the start of run" in why
            assert "raised InvalidCommandError: no child now" in why
            assert any("interceptor_failed" in str(row) for row in run.history())
        assert {one.id for one in engine.runs()} == {"w", "n"}
        traces.refuses = ""
        function.resume()
        line.resume()
        assert function.result(timeout=SOON).startswith("hello: {'span'")
        assert "'of': 'stage'" in line.result(timeout=SOON)


def test_a_declared_schedule_is_stored_anew_only_if_its_declaration_changes(url: str, namespace: str) -> None:
    traces = Traces()
    nightly = Schedule("nightly", on_order(1), when=Every(timedelta(days=365)))
    with Engine.open(
        url,
        workflows=[on_order],
        namespace=namespace,
        schedules=[nightly],
        triggers=[Trigger("orders", ORDERS, on_order)],
        interceptors=[traces],
    ).sync as engine:
        assert [one.change for one in engine.apply_schedules()] == ["unchanged"]
        assert engine.apply_triggers() is False
        assert {call.kind for call in traces.starts} == {"schedule", "trigger"}
        started = engine.schedule("nightly").trigger().run_id or ""
        assert engine.handle(on_order, started).details().headers["span"].startswith("none/")


def test_it_is_the_same_in_a_world() -> None:
    traces = Traces()
    with World([parent, child, pipeline, nested], interceptors=[traces]) as world:
        found = world.run(parent(), headers=TRACE)
    assert found[0] == str({"span": "none/1/3", **TRACE})
    assert [call.kind for call in traces.starts] == ["run", *["child"] * 4]
