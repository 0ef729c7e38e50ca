"""Queries, which need no worker, and updates, which are recorded."""

import asyncio
import threading
from dataclasses import dataclass, field

import anyio
import pytest
from attrs import define

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.queries import StoredUpdate, UpdateReplyReader
from holdfast.hosts.client.run_handle import RunHandle
from holdfast.hosts.wiring.services import Core
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.functions import sleep, workflow
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.queries import UpdateCall, expose, query, update
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.commands import RunUpdate
from holdfast.kernel.invariants import check
from holdfast.ports.errors import (
    IdempotencyConflictError,
    InvalidArgumentError,
    InvalidValueError,
    NondeterminismError,
    NotExposedError,
    QueryFailedError,
    RunNotFoundError,
    UnknownWorkflowError,
    UpdateFailedError,
    UpdateLostError,
    UpdateRefusedError,
    UpdateRejectedError,
)
from holdfast.ports.queries.runs import JobsOfRun
from holdfast.ports.records.job import JobState
from holdfast.ports.records.values import Payload
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until

SOON = 120

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


class TooFarError(Exception):
    """A piece cannot move so far."""

    def __init__(self, by: int) -> None:
        super().__init__(by)
        self.by = by


@step
async def weigh(field: str) -> int:
    return len(field)


@dataclass
class Board:
    """The object that a game exposes."""

    at: str = "a1"
    moves: list[str] = field(default_factory=list[str])
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @query
    def status(self, *, loud: bool = False) -> str:
        text = f"at {self.at} after {len(self.moves)}"
        return text.upper() if loud else text

    @query
    def cheat(self) -> int:
        self.moves.append("cheat")
        return len(self.moves)

    @query
    def divide(self, by: int) -> int:
        return 1 // by

    @query
    def peek(self) -> int:
        return asyncio.ensure_future(weigh("x")).done()

    @update
    def move_to(self, field: str) -> str:
        self.moves.append(field)
        self.at, old = field, self.at
        return old

    @move_to.validator
    def may_move(self, field: str) -> None:
        if field == self.at:
            raise ValueError(f"it is at {field} already")

    @update
    async def weighed(self, field: str) -> int:
        weight = await weigh(field)
        self.moves.append(f"{field}:{weight}")
        return weight

    @update
    async def slow(self) -> None:
        await sleep(600)

    @update
    def stop(self) -> int:
        self.over.set()
        return len(self.moves)

    @update
    def break_it(self, by: int) -> None:
        raise TooFarError(by)

    @update
    def grow(self, text: str) -> str:
        return text * 2


@workflow
async def game(start: str = "a1") -> list[str]:
    board = expose(Board(start))
    await board.over.wait()
    return board.moves


def beside(engine: Engine, *workflows: WorkflowDefinition[object]) -> Engine:
    """Return an engine on the same stores with other code."""
    core = engine.core
    return Engine(
        Core(core.stores, workflows, namespace=core.namespace, migrate=False, listener=core.listener)
    )


def sound(engine: Engine) -> None:
    assert check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


def is_parked(engine: Engine, run: RunHandle[object]) -> bool:
    key = engine.sync.handle(game, run.id).row().key
    return [job.state for job in engine.core.stores.persistence.read(JobsOfRun(key))] == [JobState.SLEEPING]


async def types(run: RunHandle[object]) -> list[str]:
    return [event.type for event in await run.history()]


# Queries ----------------------------------------------------------------------------------------------------------


async def test_a_query_is_answered_without_a_worker_and_without_a_write(open_engine: OpenEngine) -> None:
    engine = open_engine(game)
    run = await engine.start(game("b2"), id="x")
    before = snapshot_of(engine.core.stores.persistence, [engine.core.namespace])
    assert await run.query(Board.status()) == "at b2 after 0"
    assert await run.query(Board.status(loud=True)) == "AT B2 AFTER 0"
    assert snapshot_of(engine.core.stores.persistence, [engine.core.namespace]) == before


async def test_a_query_sees_all_that_is_recorded_and_also_what_has_ended(open_engine: OpenEngine) -> None:
    engine = open_engine(game)
    async with Worker(engine):
        run = await engine.start(game(), id="x")
        assert await run.update(Board.move_to("e4")) == "a1"
        assert await run.query(Board.status()) == "at e4 after 1"
        assert await run.update(Board.stop()) == 1
        with anyio.fail_after(SOON):
            assert await run.result() == ["e4"]
    assert await run.query(Board.status()) == "at e4 after 1"
    sound(engine)


async def test_what_a_query_must_not_do(open_engine: OpenEngine) -> None:
    engine = open_engine(game)
    run = await engine.start(game(), id="x")
    with pytest.raises(QueryFailedError, match=r"'Board.cheat' of run 'x' .* changes what is exposed"):
        await run.query(Board.cheat())
    with pytest.raises(QueryFailedError, match="a query or a condition only reads; make it an update"):
        await run.query(Board.peek())
    with pytest.raises(QueryFailedError, match="ZeroDivisionError") as raised:
        await run.query(Board.divide(0))
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert await run.query(Board.status()) == "at a1 after 0"


@define
class Other:
    """An object that no function here exposes."""

    @query
    def status(self) -> str:
        return "other"


@workflow
async def silent() -> None:
    await sleep(1_000)


@stage
async def work(order: str) -> str:
    return order


async def test_who_can_be_asked_nothing(open_engine: OpenEngine) -> None:
    pipeline = Pipeline("plain", input=str).pipe(work)
    engine = open_engine(game, silent, pipeline)
    run = await engine.start(game(), id="x")
    with pytest.raises(RunNotFoundError):
        await engine.handle(game, "nobody").query(Board.status())
    with pytest.raises(NotExposedError, match=r"no 'Other.status': it exposes Board.break_it, Board.cheat"):
        await run.query(Other.status())
    with pytest.raises(NotExposedError, match="it has not exposed anything yet"):
        await (await engine.start(silent())).query(Board.status())
    with pytest.raises(NotExposedError, match="'plain' is a pipeline"):
        await (await engine.start(pipeline("a"))).query(Board.status())
    with pytest.raises(InvalidArgumentError, match="a query with its arguments"):
        await run.query(Board.status)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidArgumentError, match="an update with its arguments"):
        await run.update(Board.status())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    without = beside(engine)
    with pytest.raises(UnknownWorkflowError, match=r"pass it to Engine.open\(..., workflows="):
        await without.handle(game, "x").query(Board.status())


async def test_code_that_does_otherwise_answers_nothing(open_engine: OpenEngine) -> None:
    engine = open_engine(stepping)
    async with Worker(engine):
        run = await engine.start(stepping(), id="x")
        await until(lambda: len(engine.sync.handle(stepping, "x").history()) > 1)

    @workflow(name="stepping")
    async def other() -> None:
        expose(Board())
        await sleep(1)

    changed = beside(engine, other)
    with pytest.raises(NondeterminismError):
        await changed.handle(other, "x").query(Board.status())
    with pytest.raises(NondeterminismError):
        await changed.handle(other, "x").update(Board.move_to("e4"))
    assert await run.query(Board.status()) == "at a1 after 0"


@workflow
async def stepping() -> None:
    await weigh("x")
    await expose(Board()).over.wait()


# Updates ----------------------------------------------------------------------------------------------------------


async def test_an_update_wakes_a_function_that_is_parked(open_engine: OpenEngine) -> None:
    engine = open_engine(game)
    async with Worker(engine):
        run = await engine.start(game(), id="x")
        await until(lambda: is_parked(engine, run))
        sound(engine)
        assert await run.update(Board.move_to("e4"), timeout=SOON) == "a1"
        assert await run.update(Board.weighed("abc"), timeout=SOON) == 3
        await until(lambda: is_parked(engine, run))
    assert await types(run) == [
        "run.created",
        "update.received",
        "update.completed",
        "update.received",
        "step.completed",
        "update.completed",
    ]
    assert await run.query(Board.status()) == "at e4 after 2"
    sound(engine)


async def test_what_is_rejected_is_recorded_nowhere(open_engine: OpenEngine) -> None:
    engine = open_engine(game)
    run = await engine.start(game(), id="x")
    with pytest.raises(
        UpdateRejectedError, match=r"run 'x' rejects update 'Board\.move_to': ValueError"
    ) as raised:
        await run.update(Board.move_to("a1"))
    assert isinstance(raised.value.__cause__, ValueError)
    assert await types(run) == ["run.created"]


async def test_what_has_become_wrong_meanwhile_is_rejected_when_it_is_carried_out(
    open_engine: OpenEngine,
) -> None:
    engine = open_engine(game)
    run = await engine.start(game(), id="x")
    without = beside(engine)  # nothing is checked there
    replies = [await submit_update(without, run, Board.move_to("e4")) for _ in range(2)]
    with pytest.raises(UpdateRejectedError, match="it is at e4 already"):
        await run.update(Board.move_to("e4"))  # it is to be there by then
    async with Worker(engine):
        await until(lambda: engine.sync.handle(game, "x").row().last_row == 6)
    assert replies[0].read_reply() == '"a1"'
    with pytest.raises(UpdateRejectedError, match="it is at e4 already"):
        replies[1].read_reply()
    sound(engine)


async def submit_update(
    engine: Engine, run: RunHandle[object], call: UpdateCall[object]
) -> UpdateReplyReader:
    """Send an update without waiting for the reply."""
    return await anyio.to_thread.run_sync(engine.sync.handle(game, run.id).submit_update, call)


async def test_an_error_of_an_update_comes_back(open_engine: OpenEngine) -> None:
    engine = open_engine(game)
    async with Worker(engine):
        run = await engine.start(game(), id="x")
        with pytest.raises(UpdateFailedError, match="TooFarError") as raised:
            await run.update(Board.break_it(7), timeout=SOON)
        assert isinstance(raised.value.__cause__, TooFarError)
        assert raised.value.__cause__.by == 7
        assert await run.update(Board.move_to("e4"), timeout=SOON) == "a1"
    sound(engine)


async def test_an_update_with_a_key_is_carried_out_once(open_engine: OpenEngine) -> None:
    engine = open_engine(game)
    async with Worker(engine):
        run = await engine.start(game(), id="x")
        assert await run.update(Board.move_to("e4"), idempotency_key="k", timeout=SOON) == "a1"
        # The validator would say no by now.
        assert await run.update(Board.move_to("e4"), idempotency_key="k", timeout=SOON) == "a1"
        with pytest.raises(IdempotencyConflictError):
            await run.update(Board.move_to("e5"), idempotency_key="k", timeout=SOON)
        assert await run.update(Board.stop(), timeout=SOON) == 1
        await run.result()
        assert await run.update(Board.move_to("e4"), idempotency_key="k", timeout=SOON) == "a1"
    sound(engine)


async def test_large_values_go_to_the_blob_store(open_engine: OpenEngine) -> None:
    engine = open_engine(game)
    async with Worker(engine):
        run = await engine.start(game(), id="x")
        with anyio.fail_after(SOON):
            assert await run.update(Board.grow("x" * 150_000)) == "x" * 300_000
    sound(engine)


async def test_who_has_ended_takes_no_update(open_engine: OpenEngine) -> None:
    pipeline = Pipeline("plain", input=str).pipe(work)
    engine = open_engine(game, pipeline)
    run = await engine.start(game(), id="x")
    await run.terminate()
    with pytest.raises(UpdateRefusedError, match="the run was cancelled"):
        await run.update(Board.stop())
    with pytest.raises(RunNotFoundError):
        await engine.handle(game, "nobody").update(Board.stop())
    with pytest.raises(NotExposedError, match="'plain' is a pipeline"):
        await (await engine.start(pipeline("a"), id="p")).update(Board.stop())
    without = beside(engine)
    with pytest.raises(UpdateRefusedError, match="'plain' is a pipeline"):
        await without.handle(pipeline, "p").update(Board.stop())


async def test_an_update_that_a_run_is_not_done_with_when_it_ends_is_lost_and_does_not_hang(
    open_engine: OpenEngine,
) -> None:
    engine = open_engine(game)
    async with Worker(engine):
        run = await engine.start(game(), id="x")
        reply = await submit_update(engine, run, Board.slow())
        await until(lambda: is_parked(engine, run))
        assert reply.read_reply() is None
        await run.update(Board.stop(), timeout=SOON)
        with anyio.fail_after(SOON):
            await run.result()
    with pytest.raises(UpdateLostError, match="ended, with the status 'completed', before update"):
        reply.read_reply()
    sound(engine)


async def test_a_caller_waits_only_so_long(open_engine: OpenEngine) -> None:
    engine = open_engine(game)
    run = await engine.start(game(), id="x")
    with pytest.raises(TimeoutError, match="it is stored, and will be carried out"):
        await run.update(Board.move_to("e4"), timeout=0.05, idempotency_key="k")
    with pytest.raises(TimeoutError, match="it is stored, and will be carried out"):
        await anyio.to_thread.run_sync(
            lambda: engine.sync.handle(game, "x").update(
                Board.move_to("e4"), timeout=0.05, idempotency_key="k"
            )
        )
    async with Worker(engine):
        assert await run.update(Board.move_to("e4"), timeout=SOON, idempotency_key="k") == "a1"


async def test_sync_code_asks_alike(open_engine: OpenEngine) -> None:
    engine = open_engine(game)

    def ask() -> tuple[str, str]:
        run = engine.sync.start(game(), id="x")
        return run.update(Board.move_to("e4"), timeout=SOON), run.query(Board.status())

    async with Worker(engine):
        assert await anyio.to_thread.run_sync(ask) == ("a1", "at e4 after 1")


async def test_an_update_without_code_here_is_checked_by_whoever_carries_it_out(
    open_engine: OpenEngine,
) -> None:
    engine = open_engine(game)
    without = beside(engine)
    async with Worker(engine):
        await engine.start(game(), id="x")
        run = without.handle(game, "x")
        with pytest.raises(UpdateRejectedError, match="it is at a1 already"):
            await run.update(Board.move_to("a1"), timeout=SOON)
        assert await run.update(Board.move_to("e4"), timeout=SOON) == "a1"


async def test_what_comes_before_anything_is_exposed_waits_for_that(open_engine: OpenEngine) -> None:
    engine = open_engine(stepping)
    without = beside(engine)
    run = await engine.start(stepping(), id="x")
    with pytest.raises(NotExposedError, match="not exposed anything yet"):
        await run.update(Board.move_to("e4"))
    reply = await anyio.to_thread.run_sync(
        without.sync.handle(stepping, "x").submit_update, Board.move_to("e4")
    )
    async with Worker(engine):
        await until(lambda: reply.read_reply() is not None)
    assert reply.read_reply() is None  # it has looked at that already
    assert await run.query(Board.status()) == "at e4 after 1"


async def test_what_nothing_takes_is_rejected(open_engine: OpenEngine) -> None:
    engine = open_engine(game)
    await engine.start(game(), id="x")
    command = RunUpdate(
        namespace=engine.core.namespace,
        run_id="x",
        update="Board.nothing",
        arguments=Payload(inline="{}"),
    )
    told = engine.client.dispatch(command)
    bad = engine.client.dispatch(
        RunUpdate(
            namespace=engine.core.namespace,
            run_id="x",
            update="Board.move_to",
            arguments=Payload(inline='{"field": 3}'),
        )
    )
    replies = [
        UpdateReplyReader(engine.core, StoredUpdate(run_id="x", run=one.run, update="u", number=one.number))
        for one in (told, bad)
    ]
    async with Worker(engine):
        await until(lambda: engine.sync.handle(game, "x").row().last_row == 6)
    with pytest.raises(NotExposedError, match="exposed nothing with that name"):
        replies[0].read_reply()
    with pytest.raises(UpdateRejectedError, match="InvalidValueError") as raised:
        replies[1].read_reply()
    assert isinstance(raised.value.__cause__, InvalidValueError)


@pytest.mark.slow
async def test_many_ask_at_once(open_engine: OpenEngine) -> None:
    engine = open_engine(game)
    async with Worker(engine):
        run = await engine.start(game(), id="x")
        gave: list[str] = []

        async def ask(number: int) -> None:
            gave.append(await run.update(Board.move_to(f"f{number}"), timeout=SOON))

        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(ask, number)
        assert await run.update(Board.stop(), timeout=SOON) == 8
        moves = await run.result()
    assert sorted(moves) == [f"f{number}" for number in range(8)]
    assert sorted(gave) == sorted(["a1", *moves[:-1]])
    sound(engine)


async def test_a_query_is_not_answered_on_the_caller_s_event_loop(open_engine: OpenEngine) -> None:
    engine = open_engine(threaded)
    run = await engine.start(threaded(), id="x")
    assert await run.query(Where.thread()) != threading.get_ident()


class Where:
    """An object whose query returns the process that answers it."""

    @query
    def thread(self) -> int:
        return threading.get_ident()


@workflow
async def threaded() -> None:
    expose(Where())
    await sleep(1_000)
