"""Unread messages at the end of a function, closed channels, and messages that wait at its start."""

import asyncio
import threading
from contextlib import suppress

import anyio
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.run_handle import RunHandle
from holdfast.hosts.functions.replay_check import replay
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.authoring.channels import Channel, select
from holdfast.kernel.authoring.continue_as_new import continue_as_new
from holdfast.kernel.authoring.functions import Workflow, workflow
from holdfast.kernel.authoring.queries import expose, update
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.invariants import check
from holdfast.ports.errors import ChannelClosedError, RunFailedError, UnreadMessagesError
from holdfast.ports.records.run import TERMINAL
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until

SOON = 120

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


letters = Channel("letters", int)
bills = Channel("bills", str)
GATE, ARRIVED = threading.Event(), threading.Event()


@step
def wait_for_gate() -> None:
    ARRIVED.set()
    assert GATE.wait(SOON)


@step
async def nothing() -> None: ...


async def drained(channel: Channel[int]) -> list[int]:
    got: list[int] = []
    with suppress(TimeoutError):
        while True:
            got.append(await channel.receive(timeout=0))
    return got


@pytest.fixture(autouse=True)
def _shut() -> None:
    GATE.clear()
    ARRIVED.clear()


def has_ended(engine: Engine, generation: int) -> bool:
    runs = snapshot_of(engine.core.stores.persistence, [engine.core.namespace]).runs.values()
    return any(run.generation == generation and run.status in TERMINAL for run in runs)


def has_row(engine: Engine, kind: str) -> bool:
    history = snapshot_of(engine.core.stores.persistence, [engine.core.namespace]).history
    return any(row.type == kind for rows in history.values() for row in rows)


def sound(engine: Engine) -> None:
    assert check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


async def finished(run: RunHandle[object]) -> object:
    with anyio.fail_after(SOON):
        return await run.result()


async def types(run: RunHandle[object]) -> list[str]:
    return [event.type for event in await run.history()]


# What goes on -----------------------------------------------------------------------------------------------------


@workflow
async def box() -> list[int]:
    got = await drained(letters)
    await wait_for_gate()
    return got


async def send(engine: Engine, number: int) -> RunHandle[list[int]]:
    return await engine.start(
        box(), id="box", if_active="return", if_ended="rerun", signals=[letters(number)]
    )


async def test_what_comes_in_the_last_step_begins_the_next_generation(open_engine: OpenEngine) -> None:
    engine = open_engine(box)
    async with Worker(engine):
        run = await send(engine, 1)
        await until(ARRIVED.is_set)
        await send(engine, 2)
        sent = await run.signal(letters(3), idempotency_key="third")
        GATE.set()

        await until(lambda: has_ended(engine, 2))
        first, second = await run.history(generation=1), await run.messages(generation=1)
        outcome = await run.message(sent)
    assert [one.state for one in second] == ["received", "handed_on", "handed_on"]
    assert (outcome.generation, outcome.state, outcome.key) == (2, "received", "third")
    assert (await run.result(), first[-1].type) == ([2, 3], "run.completed")
    sound(engine)


@workflow
async def busy(fails: bool) -> None:
    await wait_for_gate()
    if fails:
        raise ValueError("it is broken")
    if not GATE.is_set():  # never: it knows the channel, and ends without a look at it
        await letters.receive()


@pytest.mark.parametrize("fails", [False, True])
async def test_a_sender_learns_that_nobody_has_received_its_message(
    open_engine: OpenEngine, fails: bool
) -> None:
    engine = open_engine(busy)
    run = await engine.start(busy(fails), id="x")
    sent = await run.signal(letters(1), idempotency_key="k")
    assert (await run.message(sent)).state == "unread"
    GATE.set()
    async with Worker(engine):
        with suppress(RunFailedError):
            await finished(run)
    assert (await run.message(sent)).state == "never_received"
    assert [(one.channel, one.state, one.key) for one in await run.messages()] == [
        ("letters", "never_received", "k")
    ]
    reasons = {reason.code: reason.text for reason in await run.why()}
    assert reasons["unread_messages"].startswith("1 message was never received (row 2 of its history)")
    await engine.start(busy(False), id="x", if_ended="rerun")
    assert [one.state for one in await run.messages(generation=1)] == ["handed_on"]
    followed = await run.message(sent)
    assert (followed.generation, followed.state, followed.key) == (2, "unread", "k")
    sound(engine)


# Closing ----------------------------------------------------------------------------------------------------------


@workflow
async def closes() -> list[str]:
    told: list[str] = []
    while True:
        told += map(str, await drained(letters))
        if not told:
            await wait_for_gate()
        try:
            await letters.close()
        except UnreadMessagesError:
            told.append("unread")
        else:
            break
    try:
        await letters.receive()
    except ChannelClosedError as error:
        told.append(type(error).__name__)
    told += [str(number) async for number in letters]
    await letters.close()
    told.append(await bills.receive())
    return told


async def test_a_function_that_closes_its_channel_leaves_nothing_unread(open_engine: OpenEngine) -> None:
    engine = open_engine(closes)
    async with Worker(engine):
        run = await engine.start(closes(), id="x")
        await run.signal(letters(1))
        GATE.set()
        await until(lambda: has_row(engine, "channel.closed"))
        with pytest.raises(ChannelClosedError, match="has closed channel 'letters'"):
            await run.signal(letters(2))
        await run.signal(bills("the end"))
        told = await finished(run)
    # Whether it comes before the function looks first is chance; that it is received is not.
    assert told in (["1", "ChannelClosedError", "the end"], ["unread", "1", "ChannelClosedError", "the end"])
    assert {one.state for one in await run.messages()} == {"received"}
    assert replay(await run.export_history(), closes).as_recorded
    sound(engine)


# What is there when it begins -------------------------------------------------------------------------------------


@workflow
async def polls() -> list[int]:
    return await drained(letters)


@workflow
async def polls_by_timeout() -> list[int]:
    got: list[int] = []
    with suppress(TimeoutError):
        while True:
            async with asyncio.timeout(0):
                got.append(await letters.receive())
    return got


@workflow
async def polls_by_select() -> list[int]:
    got: list[int] = []
    with suppress(TimeoutError):
        while True:
            match await select(letters, bills, timeout=0):
                case int(number):
                    got.append(number)
                case str():
                    pass
    return got


@workflow
async def polls_in_tasks() -> list[int]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(drained(letters)) for _ in range(2)]
    return [number for task in tasks for number in task.result()]


@workflow
async def polls_in_each_generation(left: int = 2) -> list[int]:
    if left:
        return await continue_as_new(polls_in_each_generation(left - 1))
    return await drained(letters)


POLLS: list[tuple[Workflow[..., list[int]], Call[list[int]]]] = [
    (polls, polls()),
    (polls_by_timeout, polls_by_timeout()),
    (polls_by_select, polls_by_select()),
    (polls_in_tasks, polls_in_tasks()),
    (polls_in_each_generation, polls_in_each_generation()),
]


@pytest.mark.parametrize(("function", "call"), POLLS, ids=[one.name for one, _ in POLLS])
async def test_what_stands_before_it_begins_is_there_in_its_first_turn(
    open_engine: OpenEngine, function: Workflow[..., list[int]], call: Call[list[int]]
) -> None:
    engine = open_engine(function)
    run = await engine.start(call, id="x", signals=[letters(1)])
    await run.signal(letters(2))
    async with Worker(engine):
        assert await finished(run) == [1, 2]
    replayed = replay(await run.export_history(), function)
    assert (replayed.as_recorded, replayed.output) == (True, "[1,2]")
    sound(engine)


class Counter:
    def __init__(self) -> None:
        self.total = 0

    @update
    def add(self, number: int) -> int:
        self.total += number
        return self.total


@workflow
async def counts() -> int:
    counter = expose(Counter())
    await asyncio.sleep(0)
    first = counter.total
    await nothing()
    return first


async def test_an_update_that_stands_before_it_begins_is_done_in_its_first_turn(
    open_engine: OpenEngine,
) -> None:
    engine = open_engine(counts)
    run = await engine.start(counts(), id="x")
    async with anyio.create_task_group() as group:
        group.start_soon(run.update, Counter.add(5))
        await until(lambda: has_row(engine, "update.received"))
        async with Worker(engine):
            assert await finished(run) == 5
    assert (await types(run))[:3] == ["run.created", "update.received", "function.began"]
    assert replay(await run.export_history(), counts).as_recorded


# Receivers that are cancelled -------------------------------------------------------------------------------------


@workflow
async def gives_up() -> list[int]:
    """A message that arrives at the moment of a cancellation goes to the next receive."""
    got: list[int] = []
    first = asyncio.create_task(letters.receive())
    iterator = aiter(letters)
    with suppress(TimeoutError):
        await asyncio.wait_for(anext(iterator), 0)
    await nothing()
    first.cancel()
    with suppress(asyncio.CancelledError):
        got.append(await first)
    with suppress(TimeoutError):
        while True:
            got.append(await asyncio.wait_for(anext(iterator), 0.05))
    return got


@pytest.mark.slow
async def test_a_message_is_not_lost_with_a_receiver_that_was_cancelled(open_engine: OpenEngine) -> None:
    engine = open_engine(gives_up)
    async with Worker(engine):
        run = await engine.start(gives_up(), id="x")
        for number in range(3):
            await run.signal(letters(number))
        got = await finished(run)
    states = [one.state for one in await run.messages()]
    assert got == list(range(states.count("received")))
    assert states.count("received") + states.count("never_received") == 3
    assert replay(await run.export_history(), gives_up).as_recorded
    sound(engine)
