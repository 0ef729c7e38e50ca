"""Signals reach functions in every state: before the start, while they wait, while steps run."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

import anyio
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.channels import Channel, select
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.signals import Signal
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.invariants import check
from holdfast.ports.errors import (
    InvalidArgumentError,
    InvalidValueError,
    RunNotFoundError,
    SignalRefusedError,
)
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until
from tests.poll_intervals import rest_at_once

SOON = 120

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


@dataclass(frozen=True)
class Decision:
    approved: bool
    by: str


approval = Channel("approval", Decision)
withdrawal = Channel("withdrawal", str)
LET_GO: list[str] = []


@workflow
async def ask() -> str:
    decision = await approval.receive()
    return f"{decision.approved} by {decision.by}"


def sleeping(engine: Engine) -> list[object]:
    jobs = snapshot_of(engine.core.stores.persistence, [engine.core.namespace]).jobs
    return [job for of_run in jobs.values() for job in of_run.values() if job.state == "sleeping"]


def sound(engine: Engine) -> None:
    assert check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


async def test_a_message_wakes_a_function_that_is_parked(open_engine: OpenEngine) -> None:
    engine = open_engine(ask)
    async with Worker(engine):
        run = await engine.start(ask(), id="x")
        await until(lambda: bool(sleeping(engine)))
        sound(engine)
        await run.signal(approval(Decision(True, "ann")))
        with anyio.fail_after(SOON):
            assert await run.result() == "True by ann"
    types = [event.type for event in await run.history()]
    assert types == ["run.created", "signal.received", "stage.completed", "run.completed"]
    sound(engine)


async def test_what_comes_before_the_function_asks_waits_for_it(open_engine: OpenEngine) -> None:
    engine = open_engine(ask)
    run = await engine.start(ask(), id="x", signals=[approval(Decision(True, "bob"))])
    await run.signal(approval(Decision(False, "ann")))
    async with Worker(engine):
        with anyio.fail_after(SOON):
            assert await run.result() == "True by bob"


async def test_a_message_with_a_key_is_stored_once(open_engine: OpenEngine) -> None:
    engine = open_engine(ask)
    run = await engine.start(ask(), id="x")
    first = await run.signal(approval(Decision(True, "ann")), idempotency_key="k")
    assert await run.signal(approval(Decision(True, "ann")), idempotency_key="k") == first
    assert len(await run.history()) == 2


async def test_a_start_that_finds_the_run_sends_it_the_messages(open_engine: OpenEngine) -> None:
    engine = open_engine(ask)
    async with Worker(engine):
        await engine.start(ask(), id="x")
        await until(lambda: bool(sleeping(engine)))
        run = await engine.start(ask(), id="x", if_exists="return", signals=[approval(Decision(True, "ann"))])
        with anyio.fail_after(SOON):
            assert await run.result() == "True by ann"
    with pytest.raises(SignalRefusedError, match="the run has already completed"):
        await engine.start(ask(), id="x", if_exists="return", signals=[approval(Decision(True, "ann"))])


@workflow
async def either(patience: float) -> str:
    try:
        match await select(approval, withdrawal, timeout=timedelta(seconds=patience)):
            case Decision(by=who):
                return f"decided by {who}"
            case str(why):
                return f"withdrawn: {why}"
    except TimeoutError:
        return "nobody came"


async def test_the_first_of_several_channels_is_taken(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest_at_once(monkeypatch)
    engine = open_engine(either)
    async with Worker(engine):
        run = await engine.start(either(600), id="x")
        await until(lambda: bool(sleeping(engine)))
        await run.signal(withdrawal("too dear"))
        with anyio.fail_after(SOON):
            assert await run.result() == "withdrawn: too dear"
            assert await engine.run(either(0.2)) == "nobody came"
    sound(engine)


@step
async def slow() -> str:
    while not LET_GO:  # noqa: ASYNC110  # an event is bound to one loop, and this is for several
        await asyncio.sleep(0.01)
    return "done"


@workflow
async def busy() -> list[str]:
    async def hear() -> str:
        return await withdrawal.receive()

    async with asyncio.TaskGroup() as group:
        told = group.create_task(hear())
        working = group.create_task(slow())
        first = await told
        await tell(first)
    return [first, working.result()]


@step
async def tell(what: str) -> None:
    HEARD.append(what)


HEARD: list[str] = []


async def test_a_message_reaches_a_function_whose_steps_run(open_engine: OpenEngine) -> None:
    HEARD.clear()
    LET_GO.clear()
    engine = open_engine(busy)
    async with Worker(engine):
        run = await engine.start(busy(), id="x")
        await until(lambda: engine.core.run_notifier.is_listened_to)
        await run.signal(withdrawal("hurry"))
        await until(lambda: bool(HEARD))
        LET_GO.append("now")
        with anyio.fail_after(SOON):
            assert await run.result() == ["hurry", "done"]
    sound(engine)


@workflow
async def collect(count: int) -> list[str]:
    found: list[str] = []
    async for message in withdrawal:
        found.append(message)
        if len(found) == count:
            break
    return found


@pytest.mark.slow
async def test_messages_come_in_the_order_in_which_they_were_stored(open_engine: OpenEngine) -> None:
    engine = open_engine(collect)
    run = await engine.start(collect(20), id="x")
    async with Worker(engine):
        for number in range(20):
            await run.signal(withdrawal(str(number)))
        with anyio.fail_after(SOON):
            assert await run.result() == [str(number) for number in range(20)]
    sound(engine)


async def test_a_large_message_goes_to_the_blob_store(open_engine: OpenEngine) -> None:
    engine = open_engine(collect)
    run = await engine.start(collect(1), id="x")
    await run.signal(withdrawal("x" * 200_000))
    async with Worker(engine):
        with anyio.fail_after(SOON):
            (found,) = await run.result()
    assert len(found) == 200_000


async def test_a_paused_run_has_its_message_when_it_is_resumed(open_engine: OpenEngine) -> None:
    engine = open_engine(ask)
    async with Worker(engine):
        run = await engine.start(ask(), id="x")
        await until(lambda: bool(sleeping(engine)))
        await run.pause()
        await run.signal(approval(Decision(True, "ann")))
        sound(engine)
        await run.resume()
        with anyio.fail_after(SOON):
            assert await run.result() == "True by ann"


@stage
async def work(order: str) -> str:
    return order


async def test_who_can_have_no_message(open_engine: OpenEngine) -> None:
    pipeline = Pipeline("plain", input=str).pipe(work)
    engine = open_engine(ask, pipeline)
    decision = approval(Decision(True, "ann"))
    with pytest.raises(RunNotFoundError):
        await engine.handle(ask, "nobody").signal(decision)
    run = await engine.start(pipeline("a"), id="p")
    with pytest.raises(SignalRefusedError, match="'plain' is a pipeline"):
        await run.signal(decision)
    with pytest.raises(SignalRefusedError, match="'plain' is a pipeline"):
        await engine.start(pipeline("a"), signals=[decision])
    asked = await engine.start(ask(), id="x")
    await asked.terminate()
    with pytest.raises(SignalRefusedError, match="the run was cancelled"):
        await asked.signal(decision)
    with pytest.raises(InvalidArgumentError, match="a message with its channel"):
        await asked.signal("approval")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(
        InvalidValueError, match=r"for channel 'approval' \(Decision\): \$: expected Decision, got str"
    ):
        approval("yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidArgumentError, match="a list of signals"):
        await engine.start(ask(), signals="approval")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_what_is_not_of_the_channel_is_passed_over_with_a_row_and_a_line_in_the_log(
    open_engine: OpenEngine, caplog: pytest.LogCaptureFixture
) -> None:
    engine = open_engine(makes_its_channel)
    run = await engine.start(makes_its_channel(), id="x")
    malformed = await run.signal(Signal("approval", '"what?"'))
    await run.signal(approval(Decision(True, "ann")))
    async with Worker(engine):
        with anyio.fail_after(SOON):
            assert await run.result() == "ann"
    (refused,) = [event for event in await run.history() if event.type == "signal.refused"]
    lines = [record for record in caplog.records if "refused message" in record.getMessage()]
    why = "invalid value for Decision: $: expected object (Decision), got string"
    assert [(line.levelname, line.getMessage()) for line in lines] == [
        ("WARNING", f"run x (makes_its_channel@1) refused message 2 for channel 'approval': {why}")
    ]
    assert (refused.data["row"], refused.data["channel"]) == (2, "approval")
    assert "expected object (Decision), got string" in str(refused.data["message"])
    first, second = await run.messages()
    assert (first.state, first.why) == ("refused", refused.data["message"])
    assert (second.state, second.why) == ("received", None)
    assert await run.message(malformed) == first


@workflow
async def makes_its_channel() -> str:
    """Receive from a channel that static analysis cannot find."""
    return (await Channel("approval", Decision).receive()).by
