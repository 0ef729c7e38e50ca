"""Interceptors around durable functions, and where context variables reach, on each store."""

import asyncio
import logging
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import TypeAlias

import pytest

from holdfast import (
    Channel,
    Engine,
    Worker,
    compensate_with,
    expose,
    query,
    step,
    update,
    workflow,
)
from holdfast.errors import CancelRun, QueryFailedError, RunCancelledError, RunFailedError
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.plugins import BodyCall, FunctionCall, Interceptor
from holdfast.serverless import ServerlessHost
from holdfast.testing import World

SOON = 120
GO = Channel("go", str)

OpenEngine: TypeAlias = Callable[..., SyncEngine]

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
seen: list[str] = []


class Tenants:
    """Sets the tenant of a run from its attributes, in functions and in bodies. Raises while it `refuses`."""

    def __init__(self) -> None:
        self.calls: list[FunctionCall] = []
        self.left = 0
        self.refuses = False

    @contextmanager
    def function(self, call: FunctionCall) -> Generator[None]:
        if self.refuses:
            raise LookupError("no such tenant")
        self.calls.append(call)
        token = tenant.set(call.attributes.get("tenant", "none"))
        try:
            yield
        finally:
            tenant.reset(token)
            self.left += 1

    @contextmanager
    def body(self, call: BodyCall) -> Generator[None]:
        token = tenant.set(call.attributes.get("tenant", "none"))
        try:
            yield
        finally:
            tenant.reset(token)


class Functions:
    """Sets the tenant in functions only."""

    @contextmanager
    def function(self, call: FunctionCall) -> Generator[None]:
        token = tenant.set(call.attributes["tenant"])
        yield
        tenant.reset(token)


@pytest.fixture
def open_engine(url: str, namespace: str) -> Iterator[OpenEngine]:
    """Opens engines with interceptors on the store of the test, and closes them at the end.

    The histories are not replayed without interceptors afterwards, as the shared fixture does.
    """
    with ExitStack() as opened:

        def open_one(
            *workflows: WorkflowDefinition[object], interceptors: Sequence[Interceptor] = ()
        ) -> SyncEngine:
            engine = Engine.open(url, workflows=workflows, namespace=namespace, interceptors=interceptors)
            return opened.enter_context(engine.sync)

        yield open_one


def working(engine: SyncEngine) -> Worker:
    return Worker(engine, poll_interval=0.05, only_queues=("default", "elsewhere"))


@step
def in_thread() -> str:
    return tenant.get()


@step
async def on_loop() -> str:
    return tenant.get()


@step
async def in_task() -> str:
    return await asyncio.create_task(asyncio.to_thread(tenant.get))


@step(queue="elsewhere")
def queued() -> str:
    return tenant.get()


@workflow
async def child() -> list[str]:
    return [tenant.get(), await on_loop()]


@workflow
async def parent() -> list[str]:
    here = [tenant.get(), await in_thread(), await on_loop(), await in_task(), await queued()]
    return [*here, *await child()]


@workflow
async def own() -> list[str]:
    tenant.set("set in the function")
    one, other = await asyncio.gather(in_thread(), on_loop())
    return [one, other, await in_task(), await queued(), *await child()]


@step
def undo() -> None:
    seen.append(f"undo: {tenant.get()}")


class State:
    @query
    def who(self) -> str:
        return tenant.get()

    @update
    async def note(self) -> str:
        return tenant.get()


@workflow
async def waits() -> str:
    expose(State())
    before = tenant.get()
    text = await GO.receive()
    return f"{before}, {text}, {tenant.get()}, {await in_thread()}"


@workflow
async def gives_up() -> None:
    compensate_with(undo)
    raise CancelRun("no longer wanted")


def test_a_function_its_steps_and_its_children_see_what_interceptors_set(open_engine: OpenEngine) -> None:
    tenants = Tenants()
    engine = open_engine(parent, child, interceptors=[tenants])
    with working(engine):
        found = engine.start(parent(), attributes={"tenant": "acme"}).result(timeout=SOON)
    assert found == ["acme"] * 7
    root, below = (call for call in tenants.calls if call.generation == 1)
    assert (root.workflow, root.parent, dict(root.attributes)) == ("parent", None, {"tenant": "acme"})
    assert (below.workflow, below.parent) == ("child", root.run_id)
    assert tenants.left == len(tenants.calls)


def test_variables_reach_the_steps_that_the_worker_of_the_function_runs_and_nothing_else(
    open_engine: OpenEngine,
) -> None:
    engine = open_engine(own, child)
    with working(engine):
        assert engine.start(own()).result(timeout=SOON) == [
            *["set in the function"] * 3,
            *["nobody"] * 3,
        ]
        assert engine.start(child()).result(timeout=SOON) == ["nobody"] * 2  # nothing leaks into other runs


def test_another_worker_that_replays_enters_again(open_engine: OpenEngine, url: str) -> None:
    first, second = Tenants(), Tenants()
    engine = open_engine(waits, interceptors=[first])
    with working(engine):
        handle = engine.start(waits(), attributes={"tenant": "acme"})
        assert handle.query(State.who()) == "acme"
        assert handle.update(State.note(), timeout=SOON) == "acme"
    if url == "memory://":
        return
    other = open_engine(waits, interceptors=[second])
    with working(other):
        again = other.handle(waits, handle.id)
        again.signal(GO("hello"))
        assert again.result(timeout=SOON) == "acme, hello, acme, acme"
    assert [call.run_id for call in second.calls] == [handle.id] * len(second.calls) != []
    assert first.left == len(first.calls)
    assert second.left == len(second.calls)


def test_compensations_see_what_interceptors_set(open_engine: OpenEngine) -> None:
    seen.clear()
    engine = open_engine(gives_up, interceptors=[Functions()])
    with working(engine):
        handle = engine.start(gives_up(), attributes={"tenant": "acme"})
        with pytest.raises(RunCancelledError, match="no longer wanted"):
            handle.result(timeout=SOON)
    assert seen == ["undo: acme"]


def test_a_run_is_blocked_while_an_interceptor_raises_on_entering(open_engine: OpenEngine) -> None:
    tenants = Tenants()
    tenants.refuses = True
    engine = open_engine(waits, interceptors=[tenants])
    with working(engine):
        handle = engine.start(waits(), attributes={"tenant": "acme"})
        while handle.info().status != "blocked":
            time.sleep(0.02)
        why = handle.details().blocked
        assert why is not None
        assert "an interceptor of the function raised LookupError: no such tenant" in why
        assert any("interceptor_failed" in str(row) for row in handle.history())
        with pytest.raises(QueryFailedError, match="LookupError: no such tenant"):
            handle.query(State.who())
        tenants.refuses = False
        handle.resume()
        handle.signal(GO("hello"))
        assert handle.result(timeout=SOON) == "acme, hello, acme, acme"


def test_an_error_on_leaving_is_logged_and_the_result_stands(
    open_engine: OpenEngine, caplog: pytest.LogCaptureFixture
) -> None:
    class Raises:
        @contextmanager
        def function(self, call: FunctionCall) -> Generator[None]:
            yield
            raise LookupError(call.workflow)

    engine = open_engine(child, interceptors=[Raises()])
    with (
        caplog.at_level(logging.ERROR, "holdfast.interceptors"),
        working(engine),
    ):
        assert engine.start(child()).result(timeout=SOON) == ["nobody"] * 2
    assert "an interceptor raised on the way out" in caplog.text


def test_the_error_of_a_function_is_not_changed(open_engine: OpenEngine) -> None:
    @workflow
    async def fails() -> None:
        raise ValueError(tenant.get())

    engine = open_engine(fails, interceptors=[Functions()])
    with (
        working(engine),
        pytest.raises(RunFailedError, match="acme"),
    ):
        engine.start(fails(), attributes={"tenant": "acme"}).result(timeout=SOON)


def test_it_is_the_same_in_a_serverless_host(url: str, namespace: str) -> None:
    engine = Engine.open(url, workflows=[parent, own, child], namespace=namespace, interceptors=[Tenants()])
    host = ServerlessHost(engine, time_limit=60)
    with engine.sync as runs:
        one = runs.start(parent(), attributes={"tenant": "acme"})
        until = time.monotonic() + SOON
        while one.info().status != "completed":
            assert time.monotonic() < until
            host.process_available_jobs(max_jobs=10)
            host.run_maintenance_tick()
        assert one.result() == ["acme"] * 7


def test_it_is_the_same_in_a_world() -> None:
    world = World([parent, own, child], interceptors=[Tenants()])
    with world:
        assert world.run(parent(), attributes={"tenant": "acme"}) == ["acme"] * 7
    with World([own, child]) as plain:
        assert plain.run(own()) == [*["set in the function"] * 3, *["nobody"] * 3]
