"""Functions that know their run, signal and cancel other runs, wait for conditions, and end as cancelled."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.child_runs import start_child
from holdfast.kernel.authoring.conditions import updates_done, wait_until
from holdfast.kernel.authoring.continue_as_new import continue_as_new
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.functions import compensate_with, workflow
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.queries import expose, query, update
from holdfast.kernel.authoring.run_info import run_info
from holdfast.kernel.authoring.sent_messages import cancel_run, signal_run
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.invariants import check
from holdfast.ports.errors import (
    CancelRun,
    ChannelClosedError,
    InvalidArgumentError,
    RunCancelledError,
    SignalRefusedError,
)
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until

SOON = 30

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


def sound(engine: Engine) -> None:
    assert check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


question = Channel("question", str)
answer = Channel("answer", str)
ball = Channel("ball", int)


@step
async def upper(text: str) -> str:
    return text.upper()


# Its own run ----------------------------------------------------------------------------------------------------


@workflow
async def child() -> list[object]:
    info = run_info()
    return [info.id, info.generation, info.workflow, info.version, info.parent, dict(info.attributes)]


@workflow
async def parent(again: bool = True) -> list[object]:
    info = run_info()
    if again:
        return await continue_as_new(parent(False))
    kid = await start_child(child(), id="kid", attributes={"size": "small"})
    assert (await kid.result())[4] == info.id
    return [info.id, info.generation, info.parent, dict(info.attributes), await kid.result()]


@pytest.mark.slow
async def test_a_function_knows_its_run_its_generation_and_its_parent(open_engine: OpenEngine) -> None:
    engine = open_engine(parent, child)
    async with Worker(engine):
        run = await engine.start(parent(), id="p", attributes={"tenant": "a"})
        with anyio.fail_after(SOON):
            found = await run.result()
    assert found == ["p", 2, None, {"tenant": "a"}, ["kid", 1, "child", "1", "p", {"size": "small"}]]
    sound(engine)


@workflow
async def counted() -> list[object]:
    info = run_info()
    found: list[object] = [info.history_rows, info.should_continue_as_new]
    await upper("a")
    after = run_info()
    return [*found, after.history_rows, after.started_at == info.started_at]


async def test_a_function_knows_how_long_its_history_is(open_engine: OpenEngine) -> None:
    engine = open_engine(counted)
    async with Worker(engine):
        run = await engine.start(counted(), id="x")
        with anyio.fail_after(SOON):
            assert await run.result() == [0, False, 2, True]


# Messages -------------------------------------------------------------------------------------------------------


@workflow
async def oracle() -> str:
    asked = await question.receive_message()
    assert asked.sender is not None
    await signal_run(asked.sender, answer(await upper(asked.value)))
    return asked.sender


@workflow
async def asker(whom: str) -> str:
    await signal_run(whom, question("why"))
    return await answer.receive()


@pytest.mark.slow
async def test_a_run_replies_to_the_sender_of_a_message(open_engine: OpenEngine) -> None:
    engine = open_engine(oracle, asker)
    async with Worker(engine):
        knows = await engine.start(oracle(), id="oracle")
        asks = await engine.start(asker("oracle"), id="asker")
        with anyio.fail_after(SOON):
            assert await asks.result() == "WHY"
            assert await knows.result() == "asker"
    received = [event for event in await knows.history() if event.type == "signal.received"]
    assert [event.data["sender"] for event in received] == ["asker"]
    assert [message.sender for message in await knows.messages()] == ["asker"]
    assert [event.type for event in await asks.history()].count("signal.sent") == 1
    sound(engine)


@workflow
async def outside() -> str | None:
    return (await question.receive_message()).sender


async def test_a_message_of_a_program_has_no_sender(open_engine: OpenEngine) -> None:
    engine = open_engine(outside)
    async with Worker(engine):
        run = await engine.start(outside(), signals=[question("why")])
        with anyio.fail_after(SOON):
            assert await run.result() is None


ROUNDS = 20


@workflow
async def player(other: str, first: bool) -> int:
    """Two that signal each other lock two runs in either order."""
    for number in range(ROUNDS):
        if first or number:
            await signal_run(other, ball(number))
        await ball.receive()
    if not first:
        await signal_run(other, ball(ROUNDS))
    return ROUNDS


@pytest.mark.slow
async def test_runs_that_signal_each_other_lose_nothing(open_engine: OpenEngine) -> None:
    engine = open_engine(player)
    async with Worker(engine), Worker(engine):
        runs = [
            await engine.start(player(f"{pair}-{1 - side}", side == 0), id=f"{pair}-{side}")
            for pair in range(4)
            for side in (1, 0)  # the one that waits first
        ]
        with anyio.fail_after(SOON):
            assert [await run.result() for run in runs] == [ROUNDS] * 8
    for run in runs:
        types = [event.type for event in await run.history()]
        assert (types.count("signal.sent"), types.count("signal.received")) == (ROUNDS, ROUNDS)
    sound(engine)


@workflow
async def crowded(others: list[str]) -> int:
    async with asyncio.TaskGroup() as tasks:
        for other in others:
            tasks.create_task(signal_run(other, question(other)))
        for number in range(3):
            tasks.create_task(signal_run(run_info().id, ball(number)))
    return sum([await ball.receive() for _ in range(3)])


@pytest.mark.slow
async def test_a_run_signals_many_runs_and_itself_at_once(open_engine: OpenEngine) -> None:
    engine = open_engine(crowded, outside)
    async with Worker(engine):
        ids = [f"o-{number}" for number in range(10)]
        others = [await engine.start(outside(), id=one) for one in ids]
        run = await engine.start(crowded(ids), id="crowded")
        with anyio.fail_after(SOON):
            assert await run.result() == 3
            assert [await one.result() for one in others] == ["crowded"] * 10
    sound(engine)


@workflow
async def closes() -> None:
    await question.close()
    await answer.receive()


@stage
def twice(x: int) -> int:
    return 2 * x


pipeline = Pipeline("pipeline", input=int).pipe(twice)


@workflow
async def refused() -> list[str]:
    found: list[str] = []
    for run in ("gone", "ended", "closes", "pipe"):
        try:
            await signal_run(run, question("x"))
        except ChannelClosedError as error:
            found.append(f"closed {error.channel}")
        except SignalRefusedError as error:
            found.append(error.why)
    await cancel_run("gone")
    return found


async def test_a_message_that_cannot_be_sent_says_why(open_engine: OpenEngine) -> None:
    engine = open_engine(closes, pipeline, refused, outside)
    async with Worker(engine):
        ended = await engine.start(outside(), id="ended", signals=[question("x")])
        await ended.result()
        ready = await engine.start(closes(), id="closes")
        await until(
            lambda: "channel.closed" in [one.type for one in engine.sync.handle(closes, "closes").history()]
        )
        await engine.start(pipeline(1), id="pipe", start_at=datetime.now(UTC) + timedelta(hours=1))
        run = await engine.start(refused(), id="x")
        with anyio.fail_after(SOON):
            gone, over, closed, pipe = await run.result()
        await ready.cancel()
    assert gone == "there is no such run"
    assert over == "the run has already completed"
    assert closed == "closed question"
    assert "is a pipeline" in pipe
    sound(engine)


@workflow
async def canceller(whom: str) -> None:
    await cancel_run(whom, reason="sold out")


async def test_a_function_cancels_another_run(open_engine: OpenEngine) -> None:
    engine = open_engine(canceller, closes)
    async with Worker(engine):
        other = await engine.start(closes(), id="other")
        await engine.run(canceller("other"))
        with anyio.fail_after(SOON), pytest.raises(RunCancelledError, match="sold out"):
            await other.result()
    sound(engine)


@workflow
async def wrong(what: str) -> str:
    calls: dict[str, Callable[[], object]] = {
        "self": lambda: cancel_run(run_info().id),
        "run": lambda: signal_run("", question("x")),
        "signal": lambda: signal_run("x", "x"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        "condition": lambda: wait_until(True),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        "timeout": lambda: wait_until(lambda: False, timeout=-1),
    }
    try:
        await calls[what]()  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
    except InvalidArgumentError as error:
        return str(error)
    return "accepted"


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("self", "raise holdfast.workflows.CancelRun"),
        ("run", "must be the id of a run"),
        ("signal", "must be a message with its channel"),
        ("condition", "must be a function without parameters"),
        ("timeout", "timeout"),
    ],
)
async def test_wrong_arguments_are_refused_where_they_are_given(
    open_engine: OpenEngine, what: str, why: str
) -> None:
    engine = open_engine(wrong)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            assert why in await engine.run(wrong(what))


@pytest.mark.parametrize("call", [run_info, updates_done], ids=["run_info", "updates_done"])
def test_outside_of_a_function_there_is_no_run(call: Callable[[], object]) -> None:
    with pytest.raises(RuntimeError, match="outside of a workflow"):
        call()


# Conditions -----------------------------------------------------------------------------------------------------


class Votes:
    def __init__(self) -> None:
        self.yes = 0
        self.slow = asyncio.Event()

    @query
    def count(self) -> int:
        return self.yes

    @update
    async def vote(self, text: str) -> int:
        self.yes += 1
        await upper(text)
        return self.yes


@workflow
async def election() -> int:
    votes = expose(Votes())
    await wait_until(lambda: votes.yes >= 3)
    await wait_until(updates_done)
    return votes.yes


async def test_a_condition_is_met_by_updates(open_engine: OpenEngine) -> None:
    engine = open_engine(election)
    async with Worker(engine):
        run = await engine.start(election(), id="x")
        with anyio.fail_after(SOON):
            for number in range(3):
                assert (await run.info()).status == "running"
                await run.update(Votes.vote(f"v{number}"))
            assert await run.result() == 3
    types = [event.type for event in await run.history()]
    assert types.index("update.completed") < types.index("run.completed")
    assert types.count("update.completed") == 3
    sound(engine)


@workflow
async def impatient() -> str:
    seen: list[str] = []

    async def works() -> None:
        seen.append(await upper("a"))

    task = asyncio.create_task(works())
    await wait_until(lambda: seen)
    await task
    try:
        await wait_until(lambda: len(seen) > 1, timeout=0.01)
    except TimeoutError:
        return seen[0]
    return "met"


async def test_a_condition_has_a_time_limit(open_engine: OpenEngine) -> None:
    engine = open_engine(impatient)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            assert await engine.run(impatient()) == "A"


@workflow
async def careless(calls: bool) -> str:
    turned = 0

    async def works() -> None:
        nonlocal turned
        await upper("a")
        turned += 1

    task = asyncio.create_task(works())
    try:
        await wait_until(lambda: turned and (upper("b") if calls else 1 // 0))
    except (ZeroDivisionError, RuntimeError) as error:
        await task
        return type(error).__name__
    return "met"


@pytest.mark.parametrize(("calls", "error"), [(False, "ZeroDivisionError"), (True, "RuntimeError")])
async def test_what_a_condition_raises_is_raised_by_the_wait(
    open_engine: OpenEngine, *, calls: bool, error: str
) -> None:
    engine = open_engine(careless)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            assert await engine.run(careless(calls)) == error


@workflow
async def hopeless() -> None:
    await wait_until(lambda: False)


async def test_a_condition_that_nothing_can_meet_blocks_its_run_and_says_where(
    open_engine: OpenEngine,
) -> None:
    engine = open_engine(hopeless)
    async with Worker(engine):
        run = await engine.start(hopeless(), id="x")
        await until(lambda: engine.sync.handle(hopeless, "x").info().status == "blocked")
        (why, *_) = await run.why()
    assert "test_run_messages.py" in why.text


# Ended as cancelled ---------------------------------------------------------------------------------------------

UNDONE: list[str] = []


@step
async def undo(text: str) -> None:
    UNDONE.append(text)


@workflow
async def withdrawn() -> str:
    compensate_with(undo, "booking")
    await upper("a")
    raise CancelRun("the customer withdrew")


async def test_a_function_ends_its_run_as_cancelled(open_engine: OpenEngine) -> None:
    UNDONE.clear()
    engine = open_engine(withdrawn)
    async with Worker(engine):
        run = await engine.start(withdrawn(), id="x")
        with anyio.fail_after(SOON), pytest.raises(RunCancelledError, match="the customer withdrew"):
            await run.result()
    assert UNDONE == ["booking"]
    assert (await run.info()).status == "cancelled"
    sound(engine)
