"""The result of a last step is fed before it is stored, and nothing is done about what the function makes of it."""

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta

import anyio
import pytest

from holdfast.hosts.execution.bodies import Body
from holdfast.hosts.execution.last_steps import KNOWN_MAX, PENALTY, LastSteps
from holdfast.hosts.functions import stall_watchdog
from holdfast.hosts.functions.replay import FunctionReplay
from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.functions import now, workflow
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.authoring.workflow_context import workflow_context
from holdfast.kernel.commands import (
    Blocked,
    ChannelMessage,
    Completed,
    CompletedAfterStep,
    EventAppend,
    FunctionWaiting,
    RunSignal,
)
from holdfast.ports.clock import micros
from holdfast.ports.queries.history import HistoryOf
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.values import Micros, Payload
from holdfast.testing.blobs import MemoryBlobStore
from tests.integration.hosts.polling import until
from tests.unit.hosts.attempt_harness import Bench

pytestmark = pytest.mark.anyio

BENCHES: list[Bench] = []
STORED: list[list[str]] = []
"""The types of the rows at the start of each step."""
HELD: list[anyio.Event] = []
STOPS = threading.Event()
"""Ends the function that stalls."""

go = Channel("go", int)


@pytest.fixture(autouse=True)
def _nothing_yet() -> None:
    BENCHES.clear()
    STORED.clear()
    HELD.clear()


def history(id: str) -> Sequence[HistoryRow]:
    (bench,) = BENCHES
    return bench.store.read(HistoryOf(bench.row(id).key))


def rows(id: str) -> list[str]:
    return [row.type for row in history(id)]


@step
async def add(number: int) -> int:
    STORED.append(rows("x"))
    if HELD:
        await HELD[0].wait()
    return number + 1


@workflow
async def one(number: int) -> int:
    return await add(number)


@workflow
async def several(numbers: int) -> int:
    total = 0
    for _ in range(numbers):
        total = await add(total)
    return total


@workflow
async def dated(number: int) -> int:
    await add(number)
    return micros(now())


@workflow
async def logged(number: int) -> int:
    total = await add(number)
    workflow_context().log("done")
    return total


@workflow
async def published(number: int) -> int:
    total = await add(number)
    workflow_context().publish("total", total)
    return total


@workflow
async def large(number: int) -> str:
    return str(await add(number)) * 100_000


@workflow
async def raising(number: int) -> None:
    await add(number)
    raise ValueError("no")


@workflow
async def patient(number: int) -> Sequence[int]:
    """Shows in which order it has received the step and the message."""
    first = await add(number)
    return [first, *([] if number == 0 else [await go.receive()])]


@workflow
async def stalling(number: int) -> int:
    total = await add(number)
    while not STOPS.is_set():
        STOPS.wait(0.01)  # as code that computes for ever
    return total


@pytest.fixture
def bench() -> Bench:
    return new_bench()


def new_bench(blobs: MemoryBlobStore | None = None) -> Bench:
    made = Bench(one, several, dated, logged, published, large, raising, patient, stalling, blobs=blobs)
    BENCHES.append(made)
    return made


def expecting(body: Body, *calls: str) -> Body:
    """Return the body with a driver that expects these calls to be the last ones."""
    for call in calls:
        body.parts.last_steps.confirm(body.attempt.definition, call)
    return body


async def test_a_step_that_was_last_before_is_stored_with_the_end(bench: Bench) -> None:
    bench.start(one(1), id="w")
    bench.start(one(1), id="x")
    first, second = sorted(bench.prepare(), key=lambda body: body.work.run.id)
    outcome = await bench.run(first)
    assert isinstance(outcome, Completed)
    assert not isinstance(outcome, CompletedAfterStep)
    assert rows("w") == ["run.created", "step.completed"]
    bench.settle(first, outcome)

    second.parts.last_steps.confirm("one@1", "1")
    outcome = await bench.run(second)
    assert isinstance(outcome, CompletedAfterStep)
    assert (outcome.seen, outcome.result, outcome.output) == (1, Payload(inline="2"), Payload(inline="2"))
    assert rows("x") == ["run.created"]
    assert bench.settle(second, outcome).run_status == "completed"
    assert rows("x") == rows("w")


async def test_a_wrong_guess_starts_the_next_step_once_the_row_is_stored(bench: Bench) -> None:
    bench.start(several(3))
    body = expecting(bench.body(), "1", "2")
    outcome = await bench.run(body)
    assert outcome == Completed(output=Payload(inline="3"))
    assert [["run.created", *["step.completed"] * before] for before in range(3)] == STORED
    assert not body.parts.last_steps.expects(body.attempt.definition, "1")


@pytest.mark.parametrize("call", [logged(1), published(1)], ids=["log", "publish"])
async def test_a_function_that_does_more_than_return_is_not_ended_with_its_step(
    bench: Bench, call: Call[object]
) -> None:
    """What it does would have to be undone if another row were stored before that of the step."""
    bench.start(call)
    assert type(await bench.run(expecting(bench.body(), "1"))) is Completed
    assert "step.completed" in rows("x")


@pytest.mark.parametrize("blobs", [None, MemoryBlobStore()], ids=["inline", "as a blob"])
async def test_a_large_result_is_stored_with_the_step_unless_it_is_kept_as_a_blob(
    blobs: MemoryBlobStore | None,
) -> None:
    """The blob must be stored before the step is, and a blob store may be down."""
    bench = new_bench(blobs)
    bench.start(large(1))
    outcome = await bench.run(expecting(bench.body(), "1"))
    assert type(outcome) is (CompletedAfterStep if blobs is None else Completed)
    assert ("step.completed" in rows("x")) is (blobs is not None)


async def test_a_function_that_has_read_its_clock_is_replayed(bench: Bench) -> None:
    """The row is stored at another time than the function has read."""
    bench.start(dated(1))
    body = expecting(bench.body(), "1")
    outcome = await bench.run(body)
    assert isinstance(outcome, FunctionWaiting)
    assert rows("x") == ["run.created", "step.completed"]
    bench.clock.advance(timedelta(seconds=5))
    bench.settle(body, outcome)
    (row,) = (row for row in history("x") if row.type == "step.completed")
    assert await bench.run(bench.body()) == Completed(output=Payload(inline=str(row.at)))


async def test_a_function_that_raises_is_not_ended_with_its_step(bench: Bench) -> None:
    bench.start(raising(1))
    failure = await bench.run(expecting(bench.body(), "1"))
    assert failure.tag == "failed"
    assert rows("x") == ["run.created", "step.completed"]


@pytest.mark.parametrize("number", [0, 1])
async def test_a_function_that_was_overtaken_is_replayed(bench: Bench, number: int) -> None:
    """It has received the step first, and the message is stored first."""
    bench.start(patient(number))
    HELD.append(anyio.Event())
    body = expecting(bench.body(), "1")
    outcomes = list[object]()

    async def run() -> None:
        outcomes.append(await bench.run(body))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await until(lambda: bool(STORED))
        message = ChannelMessage(channel="go", payload=Payload(inline="5"))
        bench.engine.kernel.dispatch(RunSignal(run_id="x", signal=message))
        HELD[0].set()
    (outcome,) = outcomes
    if isinstance(outcome, FunctionWaiting | CompletedAfterStep):
        bench.settle(body, outcome)
        HELD.clear()
        body = bench.body()
        outcome = await bench.run(body)
    assert outcome == Completed(output=Payload(inline="[1]" if number == 0 else "[2,5]"))
    assert rows("x") == ["run.created", "signal.received", "step.completed"]


async def test_the_result_of_a_driver_that_is_cancelled_is_stored(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs no second time because its worker leaves between its end and the settle."""
    bench.start(one(1))
    feed, fed, goes_on = FunctionReplay.feed_ahead, threading.Event(), threading.Event()

    def slow(
        drive: FunctionReplay, step: EventAppend, now: Micros, stays_inline: Callable[[str], bool]
    ) -> bool:
        is_over = feed(drive, step, now, stays_inline)
        fed.set()
        goes_on.wait(60)
        return is_over

    monkeypatch.setattr(FunctionReplay, "feed_ahead", slow)
    async with anyio.create_task_group() as group:
        group.start_soon(bench.run, expecting(bench.body(), "1"))
        await until(fed.is_set)
        group.cancel_scope.cancel()
        goes_on.set()
    assert rows("x") == ["run.created", "step.completed"]


async def test_the_step_of_a_function_that_stalls_is_stored(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stall_watchdog, "CHECK_INTERVAL", 0.01)
    STOPS.clear()
    bench.start(stalling(1))
    try:
        outcome = await bench.run(expecting(bench.body(), "1"))
    finally:
        STOPS.set()
    assert isinstance(outcome, Blocked)
    assert outcome.failure.code == "workflow_stalled"
    assert rows("x") == ["run.created", "step.completed"]


def test_a_wrong_guess_is_made_up_for_after_a_while() -> None:
    steps = LastSteps()
    assert not steps.expects("w@1", "1")
    steps.confirm("w@1", "1")
    steps.confirm("w@1", "1")
    assert steps.expects("w@1", "1")
    steps.refute("w@1", "1")
    for _ in range(PENALTY):
        assert not steps.expects("w@1", "1")
        steps.confirm("w@1", "1")
    assert not steps.expects("w@2", "1")
    steps.confirm("w@1", "1")
    assert steps.expects("w@1", "1")


def test_what_is_remembered_is_bounded() -> None:
    steps = LastSteps()
    for number in range(KNOWN_MAX + 1):
        steps.confirm("w@1", str(number))
    assert steps.expects("w@1", str(KNOWN_MAX))
    assert not steps.expects("w@1", "0")
