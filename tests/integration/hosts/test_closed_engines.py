"""A closed engine refuses every call, and works again once it is reopened."""

import time
from collections.abc import Callable
from typing import cast

import anyio
import pytest
from attrs import evolve

from holdfast import Engine, Worker, step, workflow
from holdfast.hosts.serverless.host import ServerlessHost
from holdfast.hosts.serverless.job_messages import JobMessage
from holdfast.hosts.wiring.stores import open_stores
from holdfast.kernel.authoring.queries import UpdateCall
from holdfast.ports.errors import BlockedLoopError, EngineClosedError
from holdfast.ports.transport import JobHint, JobTransport, Reopenable
from tests.integration.hosts.conftest import OpenEngine

SOON = 120


@step
async def add_one(number: int) -> int:
    return number + 1


@workflow
async def adds(number: int) -> int:
    return await add_one(number)


async def _run_once(engine: Engine, number: int) -> float:
    async with engine, Worker(engine):
        began = time.monotonic()
        with anyio.fail_after(SOON):
            assert await engine.run(adds(number)) == number + 1
        return time.monotonic() - began


@pytest.mark.slow
@pytest.mark.anyio
async def test_an_engine_that_is_opened_again_is_as_new(open_engine: OpenEngine) -> None:
    engine = open_engine(adds)
    first = engine.core.listener
    for number in range(3):
        await _run_once(engine, number)
    # It heard of the ends each time: the listener is the one that the transport was opened again for.
    assert engine.core.listener is first
    with pytest.raises(EngineClosedError):
        await engine.count()


USES: list[Callable[[Engine], object]] = [
    lambda engine: engine.sync.start(adds(1)),
    lambda engine: engine.sync.start_all([adds(1)]),
    lambda engine: engine.sync.run(adds(1)),
    lambda engine: engine.sync.count(),
    lambda engine: list(engine.sync.runs()),
    lambda engine: engine.sync.doctor(),
    lambda engine: engine.sync.cancel_all(status="running"),
    lambda engine: engine.sync.sinks(),
    lambda engine: engine.sync.handle(adds, "a").info(),
    lambda engine: engine.sync.handle(adds, "a").result(),
    lambda engine: engine.sync.handle(adds, "a").messages(),
    lambda engine: engine.sync.handle(adds, "a").why(),
    lambda engine: engine.sync.handle(adds, "a").cancel(),
    lambda engine: engine.kernel,
    lambda engine: ServerlessHost(engine).process_available_jobs(max_jobs=1),
    lambda engine: ServerlessHost(engine).handle_job(
        JobMessage(job_id="01ARZ3NDEKTSV4RRFFQ69G5FAV.1", epoch=0)
    ),
    lambda engine: Worker(engine).__enter__(),
]


@pytest.mark.parametrize("use", USES)
def test_whatever_uses_a_closed_engine_is_refused(
    open_engine: OpenEngine, use: Callable[[Engine], object]
) -> None:
    engine = open_engine(adds)
    with engine.sync as runs:
        runs.start(adds(1), id="a")
    with pytest.raises(EngineClosedError, match="open it again with `async with engine:`"):
        use(engine)
    with engine.sync as runs:
        assert runs.handle(adds, "a").info().id == "a"


def test_its_transport_carries_hints_again(open_engine: OpenEngine) -> None:
    engine = open_engine(adds)
    with engine.sync:
        pass
    transport, hint = (
        engine.core.adapters.transport,
        JobHint(job="01ARZ3NDEKTSV4RRFFQ69G5FAV.1", epoch=0, queue="q"),
    )
    transport.announce([hint])
    assert list(transport.receive(1, 0.0)) == []
    with engine.sync:
        transport.receive(1, 0.0)  # from here on PostgreSQL's listens
        transport.announce([hint])
        assert [one.hint for one in transport.receive(1, SOON)] == [hint]


def test_it_is_closed_when_all_have_left_that_opened_it(open_engine: OpenEngine) -> None:
    engine = open_engine(adds)
    with engine.sync:
        with engine.sync:
            pass
        assert engine.sync.count() is not None
    with pytest.raises(EngineClosedError):
        engine.sync.count()


@pytest.mark.anyio
async def test_it_is_closed_after_its_last_worker(open_engine: OpenEngine) -> None:
    engine = open_engine(adds)
    worker = Worker(engine)
    async with worker:
        async with engine:
            handle = await engine.start(adds(1))
            with anyio.fail_after(SOON):
                assert await handle.result() == 2
        assert worker.stats().phase == "running"
        with anyio.fail_after(SOON):
            assert await engine.run(adds(2)) == 3
    with pytest.raises(EngineClosedError):
        await engine.count()


class OnceOnly:
    """A user's transport that cannot be reopened."""

    def __init__(self, inner: object) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        if name == "reopen":
            raise AttributeError(name)
        return getattr(self._inner, name)


def test_one_whose_transport_cannot_be_opened_again_says_so() -> None:
    stores = open_stores("memory://")
    once = cast("JobTransport", OnceOnly(stores.transport))
    assert not isinstance(once, Reopenable)
    engine = Engine.on(evolve(stores, transport=once), workflows=[adds])
    with engine.sync:
        pass
    with (
        pytest.raises(EngineClosedError, match=r"OnceOnly .* can't be opened again; open another"),
        engine.sync,
    ):
        pass


@pytest.mark.anyio
@pytest.mark.parametrize("call", ["run", "result", "update"])
async def test_what_would_stop_its_own_worker_is_refused(open_engine: OpenEngine, call: str) -> None:
    engine = open_engine(adds)
    async with engine, Worker(engine):
        with anyio.fail_after(SOON):
            handle = await engine.start(adds(1))
        waits = {
            "run": lambda: engine.sync.run(adds(1)),
            "result": lambda: engine.sync.handle(adds, handle.id).result(),
            "update": lambda: engine.sync.handle(adds, handle.id).update(cast("UpdateCall[int]", None)),
        }
        with pytest.raises(BlockedLoopError, match=f"{call}.* await the engine's own method"):
            waits[call]()
        with anyio.fail_after(SOON):
            assert await anyio.to_thread.run_sync(engine.sync.handle(adds, handle.id).result) == 2
        assert sum((await engine.count()).values()) == 1


@pytest.mark.anyio
async def test_threads_of_the_application_are_not_waited_for(open_engine: OpenEngine) -> None:
    engine = open_engine(adds)
    limiter = anyio.to_thread.current_default_thread_limiter()
    async with engine, Worker(engine):
        for number in range(int(limiter.total_tokens)):
            limiter.acquire_on_behalf_of_nowait(number)
        try:
            with anyio.fail_after(SOON):
                assert await engine.run(adds(1)) == 2
                assert [one.status async for one in engine.runs()] == ["completed"]
        finally:
            for number in range(int(limiter.total_tokens)):
                limiter.release_on_behalf_of(number)


@pytest.mark.slow
@pytest.mark.anyio
async def test_sync_code_of_many_threads_can_ask_the_async_engine(open_engine: OpenEngine) -> None:
    engine = open_engine(adds)
    given: list[int] = []

    def endpoint(number: int) -> None:
        given.append(anyio.from_thread.run(engine.run, adds(number)))

    async with engine, Worker(engine):
        with anyio.fail_after(SOON):
            async with anyio.create_task_group() as group:
                for number in range(60):
                    group.start_soon(anyio.to_thread.run_sync, endpoint, number)
    assert sorted(given) == list(range(1, 61))
