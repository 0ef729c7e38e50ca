"""Whole runs that are retried, options of child runs, and the default policy of an engine, on every store."""

import logging
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.inspection.why import why_of
from holdfast.hosts.serverless.host import ServerlessHost
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.child_runs import start_child
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.functions import now, workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.step_context import step_context
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.invariants import check
from holdfast.ports.clock import micros
from holdfast.ports.errors import GiveUp, InvalidArgumentError, RunFailedError
from holdfast.ports.queries.runs import FindRun
from holdfast.ports.records.run import RunName, RunStatus
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until

SOON = 120
NOTES = Channel("notes", str)
QUICK = Retry(attempts=3, wait=0.05, jitter=0)
ONCE = Retry(attempts=1)

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


@pytest.fixture(autouse=True)
def calls() -> list[str]:
    """The idempotency keys with which the bank was called."""
    CALLS.clear()
    return CALLS


CALLS: list[str] = []


def sound(engine: Engine) -> None:
    assert check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


@step(retry=ONCE)
async def call_bank(succeeds_at: int) -> int:
    CALLS.append(step_context().idempotency_key)
    if len(CALLS) < succeeds_at:
        raise ConnectionError("the bank is away")
    return len(CALLS)


@workflow(retry=QUICK)
async def pay(succeeds_at: int) -> int:
    return await call_bank(succeeds_at)


@workflow
async def order(succeeds_at: int) -> str:
    try:
        return f"paid after {await pay(succeeds_at)} calls"
    except RunFailedError as error:
        return f"not paid: {error.__cause__!r}"


@pytest.mark.slow
async def test_a_run_is_retried_until_it_completes(open_engine: OpenEngine, calls: list[str]) -> None:
    engine = open_engine(pay)
    async with Worker(engine):
        run = await engine.start(pay(3), id="x")
        with anyio.fail_after(SOON):
            assert await run.result() == 3
    assert len(set(calls)) == 3  # each attempt is new to the bank
    first, last = await run.info(generation=1), await run.info()
    assert (first.status, first.is_retried, first.error and first.error.text) == (
        RunStatus.FAILED,
        True,
        "ConnectionError: the bank is away",
    )
    assert (last.generation, last.status, last.is_retried) == (3, RunStatus.COMPLETED, False)
    sound(engine)


@pytest.mark.slow
async def test_a_run_that_uses_up_its_attempts_fails(open_engine: OpenEngine, calls: list[str]) -> None:
    engine = open_engine(pay)
    async with Worker(engine):
        with anyio.fail_after(SOON), pytest.raises(RunFailedError) as caught:
            await engine.run(pay(9), id="x")
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert len(calls) == 3
    sound(engine)


async def test_sync_callers_wait_for_the_last_attempt_too(calls: list[str]) -> None:
    async with Engine.open("memory://", workflows=[pay]) as engine, Worker(engine):
        with anyio.fail_after(SOON):
            assert await anyio.to_thread.run_sync(lambda: engine.sync.run(pay(2))) == 2


@pytest.mark.slow
async def test_a_parent_sees_only_the_last_attempt(open_engine: OpenEngine, calls: list[str]) -> None:
    engine = open_engine(order, pay)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            assert await engine.run(order(3), id="good") == "paid after 3 calls"
            calls.clear()
            lost = await engine.run(order(9), id="bad")
    assert lost == "not paid: ConnectionError('the bank is away')"
    sound(engine)


async def test_a_stage_sees_only_the_last_attempt(open_engine: OpenEngine, calls: list[str]) -> None:
    engine = open_engine(Pipeline("p", input=int).pipe(stage(pay)))
    async with Worker(engine):
        pipeline = engine.core.registry.find_workflow("p")
        assert isinstance(pipeline, Pipeline)
        with anyio.fail_after(SOON):
            assert await engine.run(pipeline(2)) == 2
    sound(engine)


@workflow(retry=Retry(attempts=5, wait=0.05, give_up_on=(KeyError,)))
async def picky(kind: str) -> None:
    raise {"key": KeyError("k"), "final": GiveUp("no"), "value": ValueError("v")}[kind]


@pytest.mark.parametrize(("kind", "generations"), [("key", 1), ("final", 1), ("value", 5)])
async def test_some_errors_are_not_retried(kind: str, generations: int) -> None:
    async with Engine.open("memory://", workflows=[picky]) as engine, Worker(engine):
        with anyio.fail_after(SOON), pytest.raises(RunFailedError):
            await engine.run(picky(kind), id="x")
        assert (await engine.handle(picky, "x").info()).generation == generations


@workflow(retry=QUICK)
async def listens(succeeds_at: int) -> str:
    note = await NOTES.receive()
    await call_bank(succeeds_at)
    return note


async def test_the_next_attempt_receives_the_messages_again(
    open_engine: OpenEngine, calls: list[str]
) -> None:
    engine = open_engine(listens)
    async with Worker(engine):
        run = await engine.start(listens(2), signals=[NOTES("hello")])
        with anyio.fail_after(SOON):
            assert await run.result() == "hello"
    sound(engine)


@workflow(retry=Retry(attempts=2, wait=3_600))
async def slow() -> None:
    raise ValueError("first")


async def test_why_tells_which_attempt_follows_and_when() -> None:
    async with Engine.open("memory://", workflows=[slow]) as engine, Worker(engine):
        run = await engine.start(slow(), id="x")
        with anyio.fail_after(SOON):
            await until(lambda: engine.sync.handle(slow, "x").info().generation == 2)
        (reason,) = await run.why()
        assert reason.code == "retry"
        assert reason.text.startswith("The whole run is retried in ")
        assert reason.text.endswith(": attempt 2 of 2; attempt 1 failed: ValueError: first.")
        first = engine.core.stores.persistence.read(FindRun(RunName("default", "x"), 1))
        assert first is not None
        (before,) = why_of(engine.core, first)
        assert before.text.endswith("ValueError: first. Generation 2 is the next attempt.")
        await run.cancel()


async def test_a_failed_attempt_is_a_warning_and_the_last_one_an_error(
    caplog: pytest.LogCaptureFixture, calls: list[str]
) -> None:
    with caplog.at_level(logging.WARNING, "holdfast.runs"):
        async with Engine.open("memory://", workflows=[pay]) as engine, Worker(engine):
            with anyio.fail_after(SOON), pytest.raises(RunFailedError):
                await engine.run(pay(9), id="x")
    found = [(one.levelname, one.getMessage()) for one in caplog.records if "step" not in one.getMessage()]
    assert [level for level, _ in found] == ["WARNING", "WARNING", "ERROR"]
    assert "the whole run failed, next attempt in" in found[0][1]


async def test_a_serverless_host_retries_whole_runs(calls: list[str], tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/h.db"
    async with Engine.open(url, workflows=[pay], namespace="n") as engine:
        host = ServerlessHost(engine)
        await engine.start(pay(2), id="x")
        handle = engine.sync.handle(pay, "x")

        def work() -> None:
            while handle.info().status is not RunStatus.COMPLETED:
                host.run_maintenance_tick()
                host.process_available_jobs(max_jobs=5)

        with anyio.fail_after(SOON):
            await anyio.to_thread.run_sync(work)
        assert handle.info().generation == 2


# Options of child runs ---------------------------------------------------------------------------------------------


@workflow(queue="own", priority=5, deadline=3_600)
async def errand() -> str:
    return "done"


@workflow
async def parent(later: float) -> str:
    child = await start_child(
        errand(),
        id="errand",
        queue="theirs",
        priority=-1,
        attributes={"of": "child"},
        start_at=now() + timedelta(seconds=later),
        deadline=timedelta(minutes=1),
    )
    return await child.result()


async def test_a_child_gets_the_options_of_its_start(open_engine: OpenEngine) -> None:
    engine = open_engine(parent, errand)
    async with Worker(engine, queues={"theirs": 5}):
        with anyio.fail_after(SOON):
            assert await engine.run(parent(0.2), id="x", attributes={"of": "parent"}) == "done"
    info = await engine.handle(errand, "errand").info()
    assert info.attributes == {"of": "child"}
    runs = snapshot_of(engine.core.stores.persistence, [engine.core.namespace]).runs.values()
    (row,) = (run for run in runs if run.id == "errand")
    assert (row.queue, row.priority) == ("theirs", -1)
    first = (await engine.handle(errand, "errand").history())[0]
    created = first.data
    start, deadline = created["start_at"], created["deadline"]
    assert isinstance(start, int)
    assert deadline == max(start, micros(first.at)) + 60_000_000  # on a busy machine it starts late
    sound(engine)


async def test_why_tells_when_a_child_begins() -> None:
    async with Engine.open("memory://", workflows=[parent, errand]) as engine, Worker(engine):
        run = await engine.start(parent(3_600), id="x")
        with anyio.fail_after(SOON):
            await until(lambda: engine.sync.handle(parent, "x").why()[0].code == "waiting")
        assert "run 'errand', which is pending and starts in " in (await run.why())[0].text
        await run.terminate()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queue": ""}, "queue"),
        ({"start_at": datetime(2026, 1, 1)}, "start_at"),  # noqa: DTZ001  # it must be aware
        ({"deadline": 0}, "deadline"),
        ({"concurrency_key": "k"}, "start_child has no option 'concurrency_key'"),
    ],
)
async def test_options_of_a_child_are_checked(options: dict[str, Any], message: str) -> None:
    @workflow
    async def wrong() -> None:
        await start_child(errand(), **options)

    async with Engine.open("memory://", workflows=[wrong, errand]) as engine, Worker(engine):
        with anyio.fail_after(SOON), pytest.raises(RunFailedError) as caught:
            await engine.run(wrong())
    assert isinstance(caught.value.__cause__, InvalidArgumentError)
    assert message in str(caught.value.__cause__)


async def test_a_start_wins_over_the_options_of_its_workflow() -> None:
    async with Engine.open("memory://", workflows=[errand]) as engine, Worker(engine, queues={"other": 1}):
        with anyio.fail_after(SOON):
            await engine.run(errand(), id="default")
            await engine.run(errand(), id="given", queue="other", priority=0)
        runs = snapshot_of(engine.core.stores.persistence, ["default"]).runs.values()
        assert {run.id: (run.queue, run.priority) for run in runs} == {
            "default": ("own", 5),
            "given": ("other", 0),
        }


@stage
async def inner(number: int) -> int:
    return number + 1


nested = Pipeline("nested", input=int).pipe(inner)
outer = Pipeline("outer", input=int).pipe(stage(deadline=60, attributes={"of": "child"})(nested))


async def test_a_child_stage_gives_its_run_options(open_engine: OpenEngine) -> None:
    engine = open_engine(outer)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            assert await engine.run(outer(1), id="x") == 2
    runs = snapshot_of(engine.core.stores.persistence, [engine.core.namespace]).runs.values()
    (child,) = (run for run in runs if run.workflow == "nested")
    assert (child.attributes, child.deadline) == ('{"of":"child"}', child.created_at + 60_000_000)


# The default policy of an engine -----------------------------------------------------------------------------------


class BusyError(Exception):
    """The other system is busy."""


def answer(kind: str) -> int:
    raise {"busy": BusyError(kind), "key": KeyError(kind), "value": ValueError(kind)}[kind]


@step
async def ask(kind: str) -> int:
    return answer(kind)


@step(queue="questions")
async def ask_queued(kind: str) -> int:
    return answer(kind)


@workflow
async def asks(kind: str, queued: bool = False) -> int:
    return await (ask_queued if queued else ask)(kind)


@stage
async def answer_at_once(kind: str) -> int:
    return answer(kind)


asking = Pipeline("asking", input=str).pipe(answer_at_once)

DEFAULT = Retry(
    attempts=2,
    wait=0,
    give_up_on=(KeyError,),
    by_error={BusyError: Retry(attempts=4, wait=0)},
)


@pytest.mark.parametrize(("kind", "attempts"), [("busy", 4), ("key", 1), ("value", 2)])
@pytest.mark.parametrize("where", ["inline", "queued", "stage"])
async def test_steps_and_stages_have_the_default_of_the_engine(kind: str, attempts: int, where: str) -> None:
    engine = Engine.open("memory://", workflows=[asks, asking], retry=DEFAULT)
    async with engine, Worker(engine):
        call = asking(kind) if where == "stage" else asks(kind, where == "queued")
        with anyio.fail_after(SOON), pytest.raises(RunFailedError):
            await engine.run(call, id="x")
        history = await engine.handle(asks, "x").history()
    found = [one for one in history if one.type in ("step.failed", "step.retrying", "stage.retrying")]
    extra = 1 if where == "stage" else 0  # its last attempt is a `stage.failed`
    assert len(found) + extra == attempts


@pytest.mark.slow
async def test_a_run_keeps_the_default_with_which_it_was_started(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/h.db"
    async with Engine.open(url, workflows=[asks, asking], retry=DEFAULT) as engine:
        await engine.start(asks("value"), id="function")
        await engine.start(asking("value"), id="pipeline")
    other = Engine.open(url, workflows=[asks, asking], retry=Retry(attempts=5, wait=0))
    async with other, Worker(other):
        for name, kind in (("function", "step.retrying"), ("pipeline", "stage.retrying")):
            handle = other.handle(asks, name)
            with anyio.fail_after(SOON), pytest.raises(RunFailedError):
                await handle.result()
            assert [one.type for one in await handle.history()].count(kind) == 1


def test_the_default_must_be_a_policy() -> None:
    with pytest.raises(InvalidArgumentError, match=r"retry is 3; it must be a Retry\(...\)"):
        Engine.open("memory://", retry=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
