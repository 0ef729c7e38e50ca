"""Durable functions start child runs, wait for them, or abandon them."""

import asyncio
from datetime import timedelta

import anyio
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.child_runs import start_child
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.functions import Workflow, sleep, workflow
from holdfast.kernel.authoring.options import Fair, Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.invariants import check
from holdfast.ports.errors import (
    ChildRefusedError,
    DefinitionError,
    InvalidArgumentError,
    RunCancelledError,
    RunFailedError,
    SignalRefusedError,
)
from holdfast.ports.records.limits import FairKeyName
from holdfast.ports.records.run import RunStatus
from holdfast.ports.tables import FAIR_KEYS
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until

SOON = 120

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


def sound(engine: Engine) -> None:
    assert check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


@step
async def double(number: int) -> int:
    return 2 * number


@workflow
async def doubled(number: int) -> int:
    if number < 0:
        raise ValueError(f"no {number}")
    return await double(number)


@stage
async def shout(text: str) -> str:
    return f"{text}!"


shouting = Pipeline("shouting", input=str).pipe(shout)


@workflow
async def family(numbers: list[int]) -> list[int]:
    return list(await asyncio.gather(*(doubled(number) for number in numbers)))


@workflow
async def shouts(text: str) -> str:
    return await shouting(await shouting(text))


async def test_a_call_that_is_awaited_is_a_run(open_engine: OpenEngine) -> None:
    engine = open_engine(family, doubled)
    async with Worker(engine):
        run = await engine.start(family([1, 2, 3]), id="x")
        with anyio.fail_after(SOON):
            assert await run.result() == [2, 4, 6]
        assert await engine.handle(doubled, "x/3.1").result() == 6
    types = [event.type for event in await run.history()]
    assert types[:4] == ["run.created", *3 * ["child.started"]]
    assert sorted(types[4:7]) == 3 * ["child.completed"]
    sound(engine)


async def test_so_is_that_of_a_pipeline(open_engine: OpenEngine) -> None:
    engine = open_engine(shouts, shouting)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            assert await engine.run(shouts("hey")) == "hey!!"
    sound(engine)


@workflow(fair=Fair(by="tenant"))
async def order(name: str) -> str:
    return name


@workflow
async def orders(tenant: str) -> str:
    child = await start_child(order(tenant), weight=4, attributes={"tenant": tenant})
    return await child.result()


ordering = Pipeline("ordering", input=str).pipe(stage(weight=3, attributes={"tenant": "staged"})(order))


@workflow
async def heavy_without_turns(name: str) -> None:
    await start_child(sleeps(name), weight=4)


async def test_a_child_may_have_a_weight(open_engine: OpenEngine) -> None:
    engine = open_engine(order, orders, ordering)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            assert await engine.run(orders("called")) == "called"
            assert await engine.run(ordering("x")) == "x"
    names = [FairKeyName(engine.core.namespace, "order/default", key) for key in ("called", "staged")]
    rows = engine.core.stores.persistence.transact(lambda tx: tx.get(FAIR_KEYS, names))
    assert sorted((row.key, row.weight) for row in rows) == [("called", 4), ("staged", 3)]
    sound(engine)


async def test_a_weight_needs_turns(open_engine: OpenEngine) -> None:
    with pytest.raises(DefinitionError, match=r"'doubled' has no fair=Fair\(by=\.\.\.\)"):
        stage(weight=2)(doubled)
    engine = open_engine(heavy_without_turns, sleeps)
    async with Worker(engine):
        with anyio.fail_after(SOON), pytest.raises(RunFailedError, match="'sleeps' has no fair"):
            await engine.run(heavy_without_turns("x"))
    sound(engine)


@workflow
async def lenient(number: int) -> str:
    try:
        return str(await doubled(number))
    except RunFailedError as error:
        return f"{error.run_id}: {error.error}"


async def test_a_child_that_fails_raises_why(open_engine: OpenEngine) -> None:
    engine = open_engine(lenient, doubled)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            assert await engine.run(lenient(-1), id="x") == "x/1: no -1"
    sound(engine)


@workflow
async def sleeps(name: str) -> str:
    await sleep(timedelta(days=1))
    return name


@workflow
async def leaves(policy: str, end: str) -> str:
    if policy == "abandon":
        child = await start_child(sleeps("a"), id="mine", parent_end="abandon")
    elif policy == "terminate":
        child = await start_child(sleeps("a"), id="mine", parent_end="terminate")
    else:
        child = await start_child(sleeps("a"), id="mine")
    if end == "wait":
        return await child.result()
    return child.id


@pytest.mark.parametrize(
    ("policy", "status"),
    [
        ("cancel", RunStatus.CANCELLED),
        ("terminate", RunStatus.CANCELLED),
        ("abandon", RunStatus.RUNNING),
    ],
)
async def test_what_becomes_of_a_child_that_is_left(
    open_engine: OpenEngine, policy: str, status: RunStatus
) -> None:
    engine = open_engine(leaves, sleeps)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            assert await engine.run(leaves(policy, "now")) == "mine"
        child = engine.sync.handle(sleeps, "mine")
        await until(lambda: child.info().status is status)
    sound(engine)


async def test_a_child_that_is_cancelled_says_so(open_engine: OpenEngine) -> None:
    engine = open_engine(leaves, sleeps)
    async with Worker(engine):
        run = await engine.start(leaves("cancel", "wait"), id="x")
        child = engine.handle(sleeps, "mine")
        await until(
            lambda: any(one.type == "child.started" for one in engine.sync.handle(leaves, "x").history())
        )
        await child.cancel(reason="not now")
        with anyio.fail_after(SOON), pytest.raises(RunFailedError, match="'mine' was cancelled: not now"):
            await run.result()
    sound(engine)


async def test_cancelling_the_parent_cancels_the_child(open_engine: OpenEngine) -> None:
    engine = open_engine(leaves, sleeps)
    async with Worker(engine):
        run = await engine.start(leaves("cancel", "wait"), id="x")
        child = engine.handle(sleeps, "mine")
        await until(
            lambda: any(one.type == "child.started" for one in engine.sync.handle(leaves, "x").history())
        )
        await run.cancel()
        with anyio.fail_after(SOON):
            with pytest.raises(RunCancelledError):
                await run.result()
            with pytest.raises(RunCancelledError):
                await child.result()
    sound(engine)


@workflow
async def asks_twice() -> str:
    await start_child(sleeps("a"), id="taken")
    try:
        await start_child(sleeps("b"), id="somebody's")
    except ChildRefusedError as error:
        return error.run_id
    return "?"


async def test_an_id_that_is_taken_is_an_error(open_engine: OpenEngine) -> None:
    engine = open_engine(asks_twice, sleeps)
    await engine.start(sleeps("c"), id="somebody's")
    async with Worker(engine):
        with anyio.fail_after(SOON):
            assert await engine.run(asks_twice()) == "somebody's"
    assert (await engine.handle(sleeps, "somebody's").info()).status is RunStatus.RUNNING
    sound(engine)


@workflow
async def asks_wrongly(id: str, end: str) -> None:
    await start_child(sleeps("a"), id=id, parent_end=end)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("id", "end"), [("", "cancel"), ("x" * 300, "cancel"), ("fine", "forget")])
async def test_what_can_not_be_asked_for(open_engine: OpenEngine, id: str, end: str) -> None:
    engine = open_engine(asks_wrongly, sleeps)
    async with Worker(engine):
        with anyio.fail_after(SOON), pytest.raises(RunFailedError, match=InvalidArgumentError.__name__):
            await engine.run(asks_wrongly(id, end))


async def test_a_child_without_code_blocks_the_run_until_there_is_some(open_engine: OpenEngine) -> None:
    engine = open_engine(family)
    async with Worker(engine):
        run = await engine.start(family([1]), id="x")
        await until(lambda: engine.sync.handle(family, "x").info().status is RunStatus.BLOCKED)
        (why, *_) = await run.why()
        assert "doubled" in why.text
    sound(engine)


async def test_a_call_can_only_be_awaited_in_a_function() -> None:
    with pytest.raises(RuntimeError, match="pass it to an engine"):
        await doubled(1)
    with pytest.raises(RuntimeError, match="was called outside of a workflow"):
        await start_child(doubled(1))


@workflow
async def grandparent(depth: int) -> int:
    if depth == 0:
        return 1
    below: Workflow[[int], int] = grandparent
    return 1 + await below(depth - 1)


@pytest.mark.slow
async def test_children_have_children(open_engine: OpenEngine) -> None:
    engine = open_engine(grandparent)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            assert await engine.run(grandparent(4), id="x") == 5
        assert await engine.handle(grandparent, "x/1/1/1/1").result() == 1
    sound(engine)


async def test_a_large_input_goes_to_the_blob_store(open_engine: OpenEngine) -> None:
    engine = open_engine(shouts, shouting)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            assert len(await engine.run(shouts("x" * 100_000))) == 100_002
    sound(engine)


@workflow
async def adds(one: int, other: int, *, twice: bool = False) -> int:
    return await double(one + other) if twice else one + other


@stage
def pair(number: int) -> tuple[int, int]:
    return number, 10


mixed = Pipeline("mixed", input=int).pipe(stage(doubled)).pipe(pair).pipe(stage(adds))


async def test_a_function_can_be_a_stage(open_engine: OpenEngine) -> None:
    engine = open_engine(mixed, doubled, adds)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            assert await engine.run(mixed(3), id="x") == 16
        assert await engine.handle(adds, "x/adds").result() == 16
        with anyio.fail_after(SOON), pytest.raises(RunFailedError, match="no -3"):
            await engine.run(mixed(-3))
    sound(engine)


def test_what_can_be_no_stage() -> None:
    @workflow
    async def by_name(one: int, *, other: int) -> int:
        return one + other

    with pytest.raises(DefinitionError, match="'other' must be given by name"):
        stage(by_name)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]


words = Channel("words", str)


@workflow
async def listens(count: int) -> list[str]:
    return [await words.receive() for _ in range(count)]


@workflow
async def tells(large: int) -> list[str]:
    child = await start_child(listens(3))
    await asyncio.gather(child.signal(words("a")), child.signal(words("b" * large)))
    await child.signal(words("c"))
    heard = await child.result()
    try:
        await child.signal(words("too late"))
    except SignalRefusedError as error:
        heard.append(error.why)
    return heard


@pytest.mark.slow
@pytest.mark.parametrize("large", [1, 100_000])
async def test_a_child_is_sent_messages(open_engine: OpenEngine, large: int) -> None:
    engine = open_engine(tells, listens)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            heard = await engine.run(tells(large), id="x")
    assert sorted(heard[:2]) == ["a", "b" * large]
    assert heard[2:] == ["c", "the run has already completed"]
    rows = await engine.handle(tells, "x").history()
    told = [event.data for event in rows if event.type == "signal.sent"]
    assert [one["run"] for one in told] == 4 * ["x/1"]
    sound(engine)


@stage(retry=Retry(attempts=9, wait=timedelta(days=1)))
async def order_taxi(text: str) -> str:
    raise ConnectionError(text)


taxi = Pipeline("taxi", input=str).pipe(order_taxi)


@workflow
async def gives_up(what: str) -> str:
    child = await start_child(sleeps("a") if what == "function" else taxi("a"))
    if what == "pipeline":
        with pytest.raises(SignalRefusedError, match="is a pipeline"):
            await child.signal(words("a"))
    await child.cancel(reason="enough")
    try:
        return await child.result()
    except RunCancelledError as error:
        await child.cancel()  # it has ended: nothing is done
        return str(error)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["function", "pipeline"])
async def test_a_child_is_cancelled(open_engine: OpenEngine, what: str) -> None:
    engine = open_engine(gives_up, sleeps, taxi)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            assert "enough" in await engine.run(gives_up(what), id="x")
    assert (await engine.handle(sleeps, "x/1").info()).status is RunStatus.CANCELLED
    sound(engine)
