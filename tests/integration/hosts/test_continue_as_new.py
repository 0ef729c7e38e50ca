"""Continue-as-new: a new generation with an empty history, and no message lost."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import cast

import anyio
import pytest

from holdfast import Concurrency
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.functions import replay
from holdfast.hosts.serverless.host import ServerlessHost
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.child_runs import start_child
from holdfast.kernel.authoring.continue_as_new import continue_as_new
from holdfast.kernel.authoring.functions import Workflow, patched, sleep, workflow
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.publications import publish
from holdfast.kernel.authoring.queries import expose, update
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.invariants import check
from holdfast.ports.errors import (
    ContinueRefusedError,
    InvalidArgumentError,
    RunCancelledError,
)
from holdfast.ports.records.run import RunStatus
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until
from tests.integration.hosts.test_child_runs import shouting

SOON = 120
words = Channel("words", str)

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick")]


@pytest.fixture
def anyio_backend() -> str:
    """One backend is enough: workers are tested on both elsewhere."""
    return "asyncio"


def sound(engine: Engine) -> None:
    assert check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


@step
async def add(number: int, to: int) -> int:
    return number + to


@workflow
async def count(left: int, total: int = 0) -> int:
    total = await add(left, total)
    if left > 1:
        return await continue_as_new(count(left - 1, total))
    return total


async def test_a_run_goes_on_as_a_new_generation(open_engine: OpenEngine) -> None:
    engine = open_engine(count)
    async with Worker(engine):
        run = await engine.start(count(4), id="x", attributes={"of": "four"})
        with anyio.fail_after(SOON):
            assert await run.result() == 10
    info = await run.info()
    assert (info.generation, info.status, info.attributes) == (4, RunStatus.COMPLETED, {"of": "four"})
    before = await run.info(generation=3)
    assert before.is_continued
    assert (before.status, before.error) == (RunStatus.COMPLETED, None)
    first, *_, last = await run.history(generation=3)
    assert (first.type, first.data["continues"]) == ("run.created", 2)
    assert (last.type, last.data) == ("run.continued", {"generation": 4, "definition": "count@1"})
    assert len(await run.history(generation=4)) == 4
    sound(engine)


async def test_all_its_generations_are_removed_together() -> None:
    async with Engine.open("memory://", workflows=[count]) as engine, Worker(engine):
        run = await engine.start(count(3), id="x")
        with anyio.fail_after(SOON):
            await run.result()
        assert await run.remove()
        assert snapshot_of(engine.core.stores.persistence, [engine.core.namespace]).runs == {}


@workflow
async def deaf(round: int = 1) -> list[str]:
    if round == 1:
        first = await words.receive()
        await sleep(0.05)
        try:
            return await continue_as_new(deaf(2))
        except BaseException:
            await add(1, 1)  # nothing of it runs
            raise
        finally:
            await add(first == "a", 1)
    return [await words.receive() for _ in range(4)]


async def test_messages_that_nobody_has_received_go_on_in_their_order(open_engine: OpenEngine) -> None:
    engine = open_engine(deaf)
    run = await engine.start(deaf(), id="x", signals=[words("a"), words("b"), words("c")])
    async with Worker(engine):
        with anyio.fail_after(SOON):
            await until(lambda: engine.sync.handle(deaf, "x").info().generation == 2)
            await run.signal(words("d"))
            await run.signal(words("e" * 100_000))
            assert await run.result() == ["b", "c", "d", "e" * 100_000]
    assert not [event for event in await run.history(generation=1) if event.type.startswith("step.")]
    sound(engine)


@workflow
async def asks(number: int) -> int:
    return await count(number) + 1


async def test_a_parent_waits_for_the_last_generation_of_its_child(open_engine: OpenEngine) -> None:
    engine = open_engine(asks, count)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            assert await engine.run(asks(3), id="x") == 7
    assert (await engine.handle(count, "x/1").info()).generation == 3
    sound(engine)


@workflow
async def ever(round: int) -> int:
    await sleep(0.01)
    if round == 3:
        await words.receive()
    return await continue_as_new(ever(round + 1))


async def test_what_was_said_of_it_its_deadline_and_its_slot_go_on(open_engine: OpenEngine) -> None:
    engine = open_engine(ever, count)
    run = await engine.start(ever(1), id="x", deadline=timedelta(days=1), concurrency=Concurrency("k"))
    other = await engine.start(count(1), id="y", concurrency=Concurrency("k"))
    await run.annotate({"owner": "Ann"})
    await run.annotate({"owner": "Bob"}, key="once")
    began = (await run.info()).created_at
    async with Worker(engine):
        with anyio.fail_after(SOON):
            await until(lambda: engine.sync.handle(ever, "x").info().generation == 3)
            assert [(one.name, one.value) async for one in run.annotations()] == [("owner", "Bob")]
            assert [one.id async for one in engine.runs(annotations={"owner": "Bob"})] == ["x"]
            deadline = [reason for reason in await run.why() if reason.code == "deadline"]
            assert deadline[0].until == began + timedelta(days=1)
            assert (await other.info()).status is RunStatus.PENDING
            await run.cancel(reason="enough")
            with pytest.raises(RunCancelledError, match="enough"):
                await run.result()
            assert await other.result() == 1
    sound(engine)


@workflow
async def second(text: str) -> str:
    return f"{text}, and as the second"


@workflow
async def first(text: str) -> str:
    return await continue_as_new(second(f"{text} as the first"))


@pytest.mark.slow
async def test_it_may_go_on_as_another_function_whose_code_may_be_missing(tmp_path: Path) -> None:
    async with Engine.open(f"sqlite:///{tmp_path}/x.db", workflows=[first]) as engine, Worker(engine):
        run = await engine.start(first("began"), id="x")
        with anyio.fail_after(SOON):
            await until(lambda: engine.sync.handle(first, "x").info().status is RunStatus.BLOCKED)
        assert "second" in (await run.why())[0].text
    async with Engine.open(f"sqlite:///{tmp_path}/x.db", workflows=[first, second]) as other, Worker(other):
        run = other.handle(first, "x")
        await run.resume()
        with anyio.fail_after(SOON):
            assert await run.result() == "began as the first, and as the second"
        assert (await run.info()).workflow == "second"
        sound(other)


@step
async def slow() -> None:
    await asyncio.sleep(0.2)


@step
async def charge() -> int:
    return 1


@charge.compensate
async def refund(amount: int) -> None:
    del amount


@workflow
async def sleeps() -> int:
    await sleep(timedelta(days=1))
    return 1


@workflow
async def hasty(what: str) -> str:
    tasks: list[asyncio.Task[object]] = []
    if what == "step":
        tasks.append(asyncio.create_task(slow()))
        await asyncio.sleep(0)
    if what == "child":
        await start_child(sleeps())
    if what == "abandoned":
        await start_child(sleeps(), id="alone", parent_end="abandon")
    if what in {"compensation", "forgotten"}:
        await charge()
    if what == "cancelled":
        try:
            await sleep(timedelta(days=1))
        except asyncio.CancelledError:
            what = "as cancelled"
    try:
        return await continue_as_new(hasty("") if what else done(), forget_compensations=what == "forgotten")
    except ContinueRefusedError as error:
        return str(error)


@workflow
async def done() -> str:
    return "done"


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("step", "steps, or starts of child runs, are still running (calls 1)"),
        ("child", "child runs would end with it (x/1)"),
        ("compensation", "the compensations would be lost (step 'charge')"),
        ("cancelled", "the run is cancelled"),
        ("abandoned", "done"),
        ("forgotten", "done"),
        ("", "done"),
    ],
)
async def test_nothing_under_way_is_lost(open_engine: OpenEngine, what: str, said: str) -> None:
    engine = open_engine(hasty, done, sleeps)
    async with Worker(engine):
        run = await engine.start(hasty(what), id="x")
        with anyio.fail_after(SOON):
            if what == "cancelled":
                await until(lambda: engine.sync.handle(hasty, "x").info().status == "running")
                await run.cancel()
            assert said in await run.result()
    sound(engine)


async def test_it_is_cancelled_after_it_has_begun_late(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "BEHIND_MAX", -1)
    await test_nothing_under_way_is_lost(open_engine, "cancelled", "the run is cancelled")


@workflow
async def wrong(what: str) -> str:
    try:
        if what == "pipeline":
            return await continue_as_new(shouting("a"))
        given = cast("Call[str]", "x")
        return await continue_as_new(given)
    except InvalidArgumentError as error:
        return str(error)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("pipeline", "a durable function, not a pipeline"),
        ("", "a call of a durable function"),
    ],
)
async def test_what_it_can_not_go_on_as_is_refused(open_engine: OpenEngine, what: str, said: str) -> None:
    engine = open_engine(wrong, shouting)
    async with Worker(engine):
        with anyio.fail_after(SOON):
            assert said in await engine.run(wrong(what))


class Desk:
    """The object that a continuing function exposes."""

    def __init__(self, shift: int) -> None:
        self.shift = shift
        self.is_over = asyncio.Event()

    @update
    def finish(self) -> int:
        """End the shift."""
        self.is_over.set()
        return self.shift

    @update
    async def weigh(self, number: int) -> int:
        """Take a while, with two steps."""
        await sleep(0.05)
        await add(number, 1)
        await sleep(0.05)
        return await add(number, 10 * self.shift)

    @update
    async def listen(self) -> str:
        """Wait for a message."""
        return f"{self.shift}: {await words.receive()}"

    @update
    async def go_on(self) -> str:
        """Call continue_as_new, which only the function may."""
        try:
            await continue_as_new(shifts(9))
        except ContinueRefusedError as error:
            return str(error)
        return ""


@workflow
async def shifts(shift: int = 1, last: int = 2) -> list[bool]:
    is_new = patched("told")
    publish("shift", shift)
    if shift == 1:
        publish("since", "monday")
    desk = expose(Desk(shift))
    await desk.is_over.wait()
    if shift < last:
        return await continue_as_new(shifts(shift + 1, last))
    return [is_new, patched("later")]


@pytest.mark.slow
@pytest.mark.parametrize("cache", [0, 5])
def test_updates_are_answered_before_it_goes_on_or_by_who_goes_on(
    open_engine: OpenEngine, cache: int
) -> None:
    engine = open_engine(shifts)
    run = engine.sync.start(shifts(), id="x")
    host = ServerlessHost(engine, function_cache=cache)

    def drive() -> None:
        while host.process_available_jobs(max_jobs=5).processed:
            pass

    drive()
    listens, finishes = (run.submit_update(one) for one in (Desk.listen(), Desk.finish()))
    drive()
    late = run.submit_update(Desk.listen())
    drive()
    # The function would go on, and waits for the first, which listens. With the last nobody has begun.
    assert (listens.read_reply(), finishes.read_reply(), late.read_reply()) == (None, "1", None)
    assert run.info().generation == 1
    run.signal(words("a"))
    drive()
    assert (listens.read_reply(), late.read_reply()) == ('"1: a"', None)
    assert run.info().generation == 2
    run.signal(words("b"))
    drive()
    assert late.read_reply() == '"2: b"'
    last = run.submit_update(Desk.finish())
    drive()
    assert last.read_reply() == "2"
    assert run.info().status is RunStatus.COMPLETED
    asked = [row.number for row in run.history(generation=1) if row.type == "update.received"]
    told = [row.data for row in run.history(generation=2) if row.type == "update.received"]
    assert [row.get("again") for row in told] == [asked[2], None]
    sound(engine)


@pytest.mark.slow
async def test_what_it_shows_is_shown_until_something_else_is(open_engine: OpenEngine) -> None:
    engine = open_engine(shifts)
    handle = engine.sync.handle(shifts, "x")
    async with Worker(engine):
        run = await engine.start(shifts(last=3), id="x")
        with anyio.fail_after(SOON):
            for shift in (1, 2, 3):
                await until(lambda shift=shift: handle.published("shift", int) == shift)  # type: ignore[misc]
                assert await run.published("since", str) == "monday"
                assert await run.update(Desk.finish()) == shift
            # What a generation before has shown does not make the new one a replay of old code.
            assert await run.result() == [True, True]
    published = handle.details().published
    assert [(one.name, one.value and one.value.value) for one in published] == [
        ("shift", 3),
        ("since", "monday"),
    ]
    sound(engine)


@pytest.mark.slow
async def test_an_update_can_not_have_it_go_on(open_engine: OpenEngine) -> None:
    engine = open_engine(shifts)
    handle = engine.sync.handle(shifts, "x")
    async with Worker(engine):
        run = await engine.start(shifts(), id="x")
        with anyio.fail_after(SOON):
            await until(lambda: bool(handle.published("shift")))
            assert "an update called it" in await run.update(Desk.go_on())
            assert await run.update(Desk.weigh(1)) == 11
            assert (await run.info()).generation == 1
    sound(engine)


@workflow
async def reluctant() -> str:
    desk = expose(Desk(5))
    publish("shift", 5)
    await desk.is_over.wait()
    task = asyncio.ensure_future(add(1, 2))
    await asyncio.sleep(0)
    try:
        return await continue_as_new(reluctant())
    except ContinueRefusedError:
        await task
        desk.is_over.clear()
        await desk.is_over.wait()
        return "refused"


@pytest.mark.slow
async def test_who_may_not_go_on_takes_updates_again(open_engine: OpenEngine) -> None:
    engine = open_engine(reluctant)
    handle = engine.sync.handle(reluctant, "x")
    async with Worker(engine):
        run = await engine.start(reluctant(), id="x")
        with anyio.fail_after(SOON):
            await until(lambda: bool(handle.published("shift")))
            assert await run.update(Desk.finish()) == 5
            assert await run.update(Desk.weigh(3)) == 53
            assert await run.update(Desk.finish()) == 5
            assert await run.result() == "refused"
    sound(engine)


class Till:
    """State that a function passes on and that updates change."""

    def __init__(self, taken: list[int]) -> None:
        self.taken = taken
        self.is_closed = asyncio.Event()

    @update
    async def pay(self, cents: int) -> int:
        """Take the money when a message arrives."""
        await words.receive()
        self.taken.append(cents)
        return sum(self.taken)

    @update
    def close(self) -> None:
        self.is_closed.set()


@workflow
async def sells(total: int = 0, day: int = 1) -> int:
    till = expose(Till([total]))
    if day == 2:
        return sum(till.taken)
    await till.is_closed.wait()
    return await continue_as_new(lambda: sells(sum(till.taken), day + 1))


@workflow
async def sells_and_lists(taken: list[int], day: int = 1) -> int:
    till = expose(Till(taken))
    if day == 2:
        return sum(till.taken)
    await till.is_closed.wait()
    return await continue_as_new(sells_and_lists(till.taken, day + 1))


@pytest.mark.parametrize("function", [sells(), sells_and_lists([])], ids=["asked for", "handed over"])
@pytest.mark.parametrize("cache", [0, 10], ids=["replayed", "kept"])
def test_what_an_update_changes_while_it_is_waited_for_goes_on_too(
    open_engine: OpenEngine, function: Call[int], cache: int
) -> None:
    engine = open_engine(sells, sells_and_lists)
    run = engine.sync.start(function, id="x")
    host = ServerlessHost(engine, function_cache=cache)

    def drive() -> None:
        while host.process_available_jobs(max_jobs=5).processed:
            pass

    drive()
    pays, _ = run.submit_update(Till.pay(5)), run.submit_update(Till.close())
    drive()
    assert (pays.read_reply(), run.info().generation) == (None, 1)
    run.signal(words("paid"))
    drive()
    assert (pays.read_reply(), run.info().generation) == ("5", 2)
    assert run.result() == 5
    sound(engine)


@workflow
async def asks_late(what: str) -> str:
    desk = expose(Desk(5))
    lates = {"raises": lambda: count(1 // 0), "none": lambda: None, "pipeline": lambda: shouting("x")}
    try:
        return str(await continue_as_new(cast("Call[str]", lates[what])))
    except Exception as error:  # noqa: BLE001  # whatever it is, the test looks at it
        await desk.is_over.wait()
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("raises", "ZeroDivisionError"),
        ("none", "InvalidArgumentError"),
        ("pipeline", "not a pipeline"),
    ],
)
async def test_who_can_not_say_what_to_go_on_as_goes_on_where_he_is(
    open_engine: OpenEngine, what: str, said: str
) -> None:
    engine = open_engine(asks_late, shouting)
    async with Worker(engine):
        run = await engine.start(asks_late(what), id="x")
        with anyio.fail_after(SOON):
            await until(lambda: len(list(engine.sync.handle(asks_late, "x").history())) > 0)
            assert await run.update(Desk.finish()) == 5
            assert said in await run.result()


async def test_outside_of_a_function_it_says_where_it_belongs() -> None:
    with pytest.raises(RuntimeError, match="was called outside of a workflow"):
        await continue_as_new(count(1))


def test_sync_waiters_follow_too(open_engine: OpenEngine) -> None:
    engine = open_engine(count)
    with Worker(engine.sync):
        run = engine.sync.start(count(3), id="x")
        assert run.result(timeout=timedelta(seconds=SOON)) == 6


def test_types(open_engine: OpenEngine) -> None:
    """Both type checkers refuse continue_as_new with a function of another type."""

    @workflow
    async def number() -> int:
        return await continue_as_new(second("x"))  # type: ignore[arg-type]  # pyright: ignore[reportReturnType]

    @workflow
    async def late() -> int:
        return await continue_as_new(lambda: second("x"))  # type: ignore[arg-type,return-value]  # pyright: ignore[reportReturnType]

    assert isinstance(number, Workflow)
    assert isinstance(late, Workflow)
    assert isinstance(shouting, Pipeline)
