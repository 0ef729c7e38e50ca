"""Reruns of durable functions from a step or a row: what is kept, and which messages repeat."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import attrs
import pytest

from holdfast import (
    Channel,
    Concurrency,
    Pipeline,
    Retry,
    continue_as_new,
    expose,
    publish,
    query,
    sleep,
    stage,
    start_child,
    step,
    step_context,
    update,
    uuid4,
    workflow,
)
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.commands import RunRerun, RunRerunFrom
from holdfast.kernel.invariants import check
from holdfast.ports.errors import (
    InvalidCommandError,
    RerunRefusedError,
    RunCancelledError,
    RunFailedError,
    UpdateRejectedError,
)
from holdfast.ports.json import canonical
from holdfast.ports.queries.runs import FindRun
from holdfast.ports.records.run import RunName, RunStatus
from holdfast.testing import World, replay
from holdfast.testing.snapshots import snapshot_of

words = Channel("words", str)
done: list[str] = []
bugs = {"charge"}
"""The names of failing steps: the code is fixed when it is empty."""


@pytest.fixture(autouse=True)
def _anew() -> None:
    done.clear()
    bugs.add("charge")


@step
def fetch(order: str) -> str:
    done.append(f"fetch {order}")
    return order.upper()


@step(retry=Retry(attempts=1))
def charge(order: str) -> str:
    done.append(f"charge {step_context().idempotency_key.rpartition('/')[2]}")
    if bugs:
        raise ValueError("a bug")
    return f"{order} is paid"


@step
def pack(order: str) -> str:
    done.append(f"pack {order}")
    return f"{order}, packed"


@workflow
async def orders(order: str) -> str:
    found = await fetch(order)
    for one in "ab":
        await pack(one)
    return f"{await charge(found)}, {uuid4()}"


def failed_orders(world: World) -> SyncRunHandle[str]:
    run = world.start(orders("x"), id="x")
    with pytest.raises(RunFailedError):
        run.result()
    assert done == ["fetch x", "pack a", "pack b", "charge 4"]
    done.clear()
    return run


def sound(world: World) -> None:
    assert check(snapshot_of(world.store)) == []


def mended() -> None:
    bugs.clear()


# From where --------------------------------------------------------------------------------------------------------


def test_a_failed_function_goes_on_with_the_step_that_failed() -> None:
    with World() as world:
        run = failed_orders(world)
        mended()
        preview = run.preview_rerun()
        assert (preview.stage, preview.row, preview.runs, preview.again) == ("charge", 5, ("charge",), ())
        assert preview.keeps == {"fetch": 1, "pack#1": 1, "pack#2": 1}
        answer = run.rerun_from(reason="the bug is fixed")
        assert (answer.stage, answer.row, answer.generation) == ("charge", 5, 2)
        assert run.result().startswith("X is paid")
        assert done == ["charge 4"]
        first = run.history()[0]
        assert (first.number, first.type, first.data) == (
            5,
            "run.created",
            {
                "definition": "orders@1",
                "rerun_of": 1,
                "from": "charge",
                "row": 5,
                "reason": "the bug is fixed",
            },
        )
        assert (run.info().rerun_of, run.info().rerun_from) == (1, "charge")
        sound(world)


@pytest.mark.parametrize(
    ("point", "row", "ran"),
    [
        (fetch, None, ["fetch x", "pack a", "pack b", "charge 4"]),
        ("fetch", None, ["fetch x", "pack a", "pack b", "charge 4"]),
        ("pack#1", None, ["pack a", "pack b", "charge 4"]),
        ("pack#2", None, ["pack b", "charge 4"]),
        ("3", None, ["pack b", "charge 4"]),
        (charge, None, ["charge 4"]),
        ("charge#1", None, ["charge 4"]),
        ("orders", None, ["fetch x", "pack a", "pack b", "charge 4"]),
        (None, 1, ["fetch x", "pack a", "pack b", "charge 4"]),
        (None, 2, ["fetch x", "pack a", "pack b", "charge 4"]),
        (None, 4, ["pack b", "charge 4"]),
    ],
)
def test_a_point_is_a_step_a_call_or_a_row(point: Any, row: int | None, ran: list[str]) -> None:
    with World() as world:
        run = failed_orders(world)
        mended()
        assert run.preview_rerun(point, row=row).generation == 2
        run.rerun_from(point, row=row)
        run.result()
        assert done == ran
        sound(world)


@pytest.mark.parametrize(
    ("point", "row", "message"),
    [
        (
            "pack",
            None,
            r"'pack' was called 2 times; name one of pack#1 \(call 2, row 3\), pack#2 \(call 3, row 4\)",
        ),
        ("ship", None, r"no call 'ship'; name a step or a child's workflow in it \(fetch, pack, charge\)"),
        ("pack#3", None, "no call 'pack#3'"),
        (None, 7, "its rows 1 to 5 can be kept: choose a row from 1 to 6"),
    ],
)
def test_where_there_is_nothing_it_says_what_there_is(
    point: str | None, row: int | None, message: str
) -> None:
    with World() as world:
        run = failed_orders(world)
        for call in (run.rerun_from, run.preview_rerun):
            with pytest.raises(RerunRefusedError, match=message):
                call(point, row=row)
        assert run.info().generation == 1
        with pytest.raises(InvalidCommandError, match="one of them"):
            run.rerun_from("fetch", row=2)


def test_a_row_is_of_a_function() -> None:
    @stage
    def one(text: str) -> str:
        return text

    with World() as world:
        run = world.start(Pipeline("line", input=str).pipe(one)("x"), id="x")
        run.result()
        with pytest.raises(RerunRefusedError, match="it is a pipeline; name the stage"):
            run.rerun_from(row=2)


def test_one_that_failed_by_itself_is_driven_on_with_other_code() -> None:
    @workflow
    async def breaks() -> str:
        found = await fetch("x")
        if bugs:
            raise ValueError("a bug")
        return found

    with World() as world:
        run = world.start(breaks(), id="x")
        with pytest.raises(RunFailedError):
            run.result()
        mended()
        assert run.preview_rerun().row == 3
        run.rerun_from()
        assert run.result() == "X"
        assert done == ["fetch x"]


def test_one_that_completed_is_run_again_from_its_start() -> None:
    mended()
    with World() as world:
        run = world.start(orders("x"), id="x")
        before = run.result()
        preview = run.preview_rerun()
        assert (preview.stage, preview.row, preview.keeps) == (None, 1, {})
        assert preview.again == ("fetch", "pack#1", "pack#2", "charge")
        run.rerun_from()
        assert run.result() != before  # what is drawn is another thing
        assert run.info().rerun_from is None


def test_one_that_completed_keeps_what_it_drew_before_the_point() -> None:
    @workflow
    async def draws() -> list[str]:
        drawn = str(uuid4())
        await fetch("x")
        return [drawn, await pack("a")]

    with World() as world:
        run = world.start(draws(), id="x")
        before = run.result()
        run.rerun_from(fetch)
        assert run.result() == before


def test_one_that_is_active_is_terminated() -> None:
    @workflow
    async def waits() -> str:
        await fetch("x")
        return await words.receive()

    with World() as world:
        run = world.start(waits(), id="x")
        world.work()
        assert run.preview_rerun().terminates
        answer = run.rerun_from()
        assert (answer.terminated, answer.row) == (True, 3)
        assert run.info(generation=1).status is RunStatus.CANCELLED
        run.signal(words("go"))
        assert run.result() == "go"
        assert done == ["fetch x"]
        sound(world)


# What is kept ------------------------------------------------------------------------------------------------------


def test_a_fork_of_a_fork_keeps_rows_of_both() -> None:
    with World() as world:
        run = failed_orders(world)
        mended()
        run.rerun_from("pack#2")
        run.result()
        assert run.preview_rerun("charge").keeps == {"fetch": 1, "pack#1": 1, "pack#2": 2}
        run.rerun_from("charge")
        run.result()
        stored = world.store.read(FindRun(RunName("default", "x")))
        keys = [world.store.read(FindRun(RunName("default", "x"), at)) for at in (1, 2)]
        assert stored is not None
        assert [(one.run, one.last) for one in stored.kept_rows] == [
            (key.key, last) for key, last in zip(keys, (3, 5), strict=True) if key is not None
        ]
        run.rerun_from(row=3)  # before what the third has of its own, and what the second has
        run.result()
        stored = world.store.read(FindRun(RunName("default", "x")))
        assert stored is not None
        assert [one.last for one in stored.kept_rows] == [2]
        assert done == ["pack b", "charge 4", "charge 4", "pack a", "pack b", "charge 4"]
        sound(world)
        document = run.export_history()
        assert [row.number for row in document.rows] == list(range(1, len(document.rows) + 1))
        assert replay(document, orders).as_recorded


def test_all_generations_are_removed_together() -> None:
    with World() as world:
        run = failed_orders(world)
        mended()
        run.rerun_from()
        run.result()
        assert run.remove()
        assert not snapshot_of(world.store).runs
        assert not snapshot_of(world.store).history


def test_it_goes_on_from_a_generation_that_went_on() -> None:
    @workflow
    async def rounds(left: int) -> str:
        await pack(str(left))
        if left:
            return await continue_as_new(rounds(left - 1))
        return await charge("x")

    with World() as world:
        run = world.start(rounds(2), id="x")
        with pytest.raises(RunFailedError):
            run.result()
        mended()
        done.clear()
        assert run.rerun_from().generation == 4
        assert run.result() == "x is paid"
        assert done == ["charge 2"]
        run.rerun_from()
        assert run.result() == "x is paid"
        assert done == ["charge 2", "pack 0", "charge 2"]
        sound(world)


def test_a_fork_goes_on_as_a_new_generation_with_all_that_nobody_received() -> None:
    @workflow
    async def rounds(left: int) -> list[str]:
        await pack(str(left))
        if left:
            return await continue_as_new(rounds(left - 1))
        return [await words.receive(), await words.receive()]

    with World() as world:
        run = world.start(rounds(1), id="x", signals=[words("one")])
        world.work()
        run.signal(words("two"))
        assert run.result() == ["one", "two"]
        run.rerun_from(row=2)
        assert run.result() == ["one", "two"]
        sound(world)


def test_a_try_that_is_kept_counts_and_the_next_has_its_key() -> None:
    tries: list[tuple[int, str]] = []

    @step(retry=Retry(attempts=3))
    def flaky() -> int:
        context = step_context()
        tries.append((context.attempt, context.idempotency_key))
        if context.attempt < 3:
            raise ValueError("not yet")
        return context.attempt

    @workflow
    async def tried() -> int:
        return await flaky()

    with World() as world:
        run = world.start(tried(), id="x")
        assert run.result() == 3
        assert [number for number, _ in tries] == [1, 2, 3]
        key = tries[0][1]
        preview = run.preview_rerun(row=3)
        assert (preview.runs, preview.again, preview.keeps) == (("flaky",), ("flaky",), {})
        run.rerun_from(row=3)  # the first try is kept
        assert run.result() == 3
        assert tries[3:] == [(2, key), (3, key)]
        run.rerun_from(flaky)
        assert run.result() == 3
        assert [number for number, _ in tries[5:]] == [1, 2, 3]
        assert key not in {one for _, one in tries[5:]}
        sound(world)


def test_what_was_published_before_the_point_is_still_shown() -> None:
    @workflow
    async def shows() -> str:
        publish("progress", 1)
        await fetch("x")
        found = await words.receive()
        publish("progress", 2)
        await pack(found)
        return found

    with World() as world:
        run = world.start(shows(), id="x", signals=[words("go")])
        run.result()
        assert run.published("progress") == 2
        run.rerun_from(pack)
        assert run.published("progress") in (1, 2)
        run.result()
        assert run.published("progress") == 2


class State:
    def __init__(self) -> None:
        self.told: list[str] = []

    @query
    def heard(self) -> list[str]:
        return self.told

    @update
    async def tell(self, word: str) -> int:
        if word == "no":
            raise ValueError("no")
        self.told.append(word)
        return len(self.told)

    @tell.validator
    def _polite(self, word: str) -> None:
        if word == "damn":
            raise ValueError("rude")


@workflow
async def hears() -> list[str]:
    state = expose(State())
    await fetch("x")
    await words.receive()
    return state.told


def test_a_fork_is_asked_as_any_run() -> None:
    with World() as world:
        run = world.start(hears(), id="x")
        world.work()
        assert run.update(State.tell("one")) == 1
        with pytest.raises(UpdateRejectedError):
            run.update(State.tell("damn"))
        run.rerun_from(row=4)
        assert run.query(State.heard()) == ["one"]
        world.work()
        assert run.update(State.tell("two")) == 2
        run.rerun_from(fetch)  # before all updates: they are told again
        world.work()
        assert run.query(State.heard()) == ["one", "two"]
        assert run.update(State.tell("three")) == 3
        run.signal(words("go"))
        assert run.result() == ["one", "two", "three"]
        sound(world)


@pytest.mark.parametrize(
    ("kept", "row", "invariants"),
    [
        (None, "charge", {"O1"}),
        ([["{first}", 2]], "charge", {"O1"}),
        ([["{first}", 7]], "charge", {"S4", "O1"}),
        ([["{second}", 4]], "charge", {"S4"}),
        ([["{first}", 3], ["{first}", 4]], "charge", {"S4"}),
        ([["elsewhere", 4]], "charge", {"S4"}),
        ([["{first}", 4]], None, {"S4"}),
    ],
)
def test_a_fork_that_keeps_what_it_can_not_is_found_out(
    kept: list[list[Any]] | None, row: str | None, invariants: set[str]
) -> None:
    with World() as world:
        run = failed_orders(world)
        mended()
        run.rerun_from(charge)
        run.result()
        sound(world)
        tables = world.store.dump()
        first, second = sorted(tables.runs.values(), key=lambda one: one.generation)
        text = None if kept is None else canonical(kept)
        text = text and text.replace("{first}", first.key).replace("{second}", second.key)
        tables.runs[second.key] = attrs.evolve(second, inherited=text, rerun_from=row)
        found = check(tables)
        assert {one.where for one in found} == {second.key}
        assert {one.invariant for one in found} >= invariants, found


# What came later ---------------------------------------------------------------------------------------------------


def test_messages_that_came_after_the_point_are_told_again() -> None:
    @workflow
    async def gathers() -> list[str]:
        await fetch("x")
        return [await words.receive() for _ in range(3)]

    with World() as world:
        run = world.start(gathers(), id="x", signals=[words("one")])
        world.work()
        run.signal(words("two"))
        world.work()
        run.signal(words("three"))
        assert run.result() == ["one", "two", "three"]
        assert run.preview_rerun(fetch).messages == 2
        run.rerun_from(fetch)
        assert run.result() == ["one", "two", "three"]
        again = [event.data for event in run.history() if event.type == "signal.received"]
        assert again == [{"channel": "words", "checked": True, "again": number} for number in (4, 5)]
        sound(world)


@workflow
async def child(wait: float) -> str:
    await sleep(wait)
    if bugs:
        raise ValueError("a bug")
    return f"waited {wait:g}"


@workflow
async def parent(wait: float, policy: Any = "cancel") -> list[str]:
    started = await start_child(child(wait), parent_end=policy)
    await pack("a")
    return [await started.result(), await fetch("x")]


def test_an_end_of_a_run_that_came_after_the_point_is_told_again() -> None:
    mended()
    with World([child]) as world:
        run = world.start(parent(5), id="x")
        assert run.result() == ["waited 5", "X"]
        preview = run.preview_rerun(pack)
        assert (preview.children, preview.starts, preview.runs) == ((), (), ("pack", "fetch"))
        run.rerun_from(pack)
        assert run.result() == ["waited 5", "X"]
        assert len(list(world.engine.sync.runs(workflow="child"))) == 1
        sound(world)


@pytest.mark.parametrize("policy", ["cancel", "terminate", "abandon"])
def test_a_run_that_is_under_way_is_taken_over(policy: str) -> None:
    mended()
    with World([child]) as world:
        run = world.start(parent(500, policy), id="x")
        world.advance(timedelta(seconds=5))
        preview = run.preview_rerun(pack)
        assert preview.children == ("x/1",)
        run.rerun_from(pack)
        assert run.result() == ["waited 500", "X"]
        assert world.engine.sync.handle(child, "x/1").info().generation == 1
        sound(world)


def test_a_run_that_ended_after_its_parent_is_taken_over_and_tells_its_end() -> None:
    mended()
    with World([child]) as world:
        run = world.start(parent(500, "abandon"), id="x")
        world.advance(timedelta(seconds=5))
        run.terminate()
        world.advance(timedelta(seconds=600))
        assert world.engine.sync.handle(child, "x/1").info().status is RunStatus.COMPLETED
        run.rerun_from()
        assert run.result() == ["waited 500", "X"]
        sound(world)


def test_what_ends_a_fork_ends_the_runs_that_it_has_taken_over() -> None:
    with World([child]) as world:
        run = world.start(parent(500), id="x")
        world.advance(timedelta(seconds=5))
        run.rerun_from(pack)
        world.advance(timedelta(seconds=5))
        run.terminate()
        world.work()
        assert world.engine.sync.handle(child, "x/1").info().status is RunStatus.CANCELLED
        sound(world)


def test_a_run_that_is_not_there_any_more_can_not_be_kept() -> None:
    mended()
    with World([child]) as world:
        run = world.start(parent(500, "abandon"), id="x")
        world.advance(timedelta(seconds=5))
        run.terminate()
        world.advance(timedelta(seconds=600))
        world.engine.sync.handle(child, "x/1").remove()
        for call in (run.rerun_from, run.preview_rerun):
            with pytest.raises(
                RerunRefusedError, match=r"run 'x/1' is kept, .* start from row 2 or before it"
            ):
                call(pack)
        run.rerun_from(row=2)
        assert run.result() == ["waited 500", "X"]


def test_runs_that_are_not_kept_are_started_anew() -> None:
    mended()
    with World([child]) as world:
        run = world.start(parent(5), id="x")
        run.result()
        assert run.preview_rerun("child").starts == ("x/1",)
        run.rerun_from("child")
        assert run.result() == ["waited 5", "X"]
        assert world.engine.sync.handle(child, "x~2/1").info().status is RunStatus.COMPLETED


@workflow
async def waits_for_child(name: str | None) -> str:
    await fetch("x")
    started = await (start_child(child(500)) if name is None else start_child(child(500), id=name))
    return await started.result()


@workflow
async def cancels_child_as_it_ends() -> str:
    started = await start_child(child(500))
    try:
        return await started.result()
    except asyncio.CancelledError:
        await started.cancel()
        with suppress(RunCancelledError):
            await started.result()
        raise


@workflow
async def pays_beside_child() -> list[str]:
    return list(await asyncio.gather(child(500), charge("x")))


@workflow
async def cancels_child_itself() -> str:
    started = await start_child(child(500))
    await started.cancel()
    try:
        await started.result()
    except RunCancelledError:
        await fetch("x")
    return await charge("x")


def cancel(run: SyncRunHandle[Any]) -> None:
    run.cancel()


def terminate(run: SyncRunHandle[Any]) -> None:
    run.terminate()


@pytest.mark.parametrize("end", [cancel, terminate])
@pytest.mark.parametrize(
    ("call", "child_id", "kept"),
    [(waits_for_child(None), "x/2", {"fetch": 1}), (cancels_child_as_it_ends(), "x/1", {})],
)
def test_a_child_run_that_was_cancelled_with_its_parent_is_started_anew(
    end: Callable[[SyncRunHandle[Any]], None], call: Call[str], child_id: str, kept: dict[str, int]
) -> None:
    mended()
    with World([child]) as world:
        run = world.start(call, id="x")
        world.advance(timedelta(seconds=5))
        end(run)
        world.work()
        first = world.engine.sync.handle(child, child_id)
        assert (run.info().status, first.info().status) == (RunStatus.CANCELLED, RunStatus.CANCELLED)
        preview = run.preview_rerun()
        assert (preview.stage, preview.starts, preview.children) == ("child", (child_id,), ())
        assert preview.keeps == kept
        at = rf"child run '{child_id}' was cancelled, .* start from child \(row {preview.row}\) or before it"
        for rerun in (run.rerun_from, run.preview_rerun):
            with pytest.raises(RerunRefusedError, match=at):
                rerun(row=(preview.row or 0) + 1)

        run.rerun_from()
        assert run.result() == "waited 500"
        again = child_id.replace("x/", "x~2/")
        assert world.engine.sync.handle(child, again).info().status is RunStatus.COMPLETED
        assert first.info().generation == 1
        sound(world)


def test_so_is_one_that_was_cancelled_when_its_parent_failed() -> None:
    with World([child]) as world:
        run = world.start(pays_beside_child(), id="x")
        world.work()
        assert run.info().status is RunStatus.FAILED
        mended()
        assert run.preview_rerun().stage == "child"
        run.rerun_from()
        assert run.result() == ["waited 500", "x is paid"]
        sound(world)


def test_one_whose_id_was_chosen_is_run_again_itself_first() -> None:
    mended()
    with World([child]) as world:
        run = world.start(waits_for_child("mine"), id="x")
        world.advance(timedelta(seconds=5))
        run.cancel()
        world.work()
        with pytest.raises(RerunRefusedError, match=r"'mine' was cancelled, .* be kept; rerun 'mine' first$"):
            run.rerun_from()

        world.engine.sync.handle(child, "mine").rerun_from()
        assert run.preview_rerun().children == ("mine",)
        run.rerun_from()
        assert run.result() == "waited 500"
        sound(world)


def test_a_cancellation_that_the_function_requested_is_kept() -> None:
    with World([child]) as world:
        run = world.start(cancels_child_itself(), id="x")
        world.work()
        assert run.info().status is RunStatus.FAILED
        mended()
        run.rerun_from()
        assert run.result() == "x is paid"
        run.rerun_from(row=4)
        assert run.result() == "x is paid"
        sound(world)


# Ends --------------------------------------------------------------------------------------------------------------


@workflow
async def cleans() -> str:
    await fetch("x")
    try:
        return await words.receive()
    finally:
        await pack("a")


def test_one_that_was_cancelled_goes_on_before_it_heard_of_that() -> None:
    with World() as world:
        run = world.start(cleans(), id="x")
        world.work()
        run.cancel()
        with pytest.raises(RunCancelledError):
            run.result()
        with pytest.raises(
            RerunRefusedError, match="cancelled in row 3, and from row 4 on it would only clean up"
        ):
            run.rerun_from(row=4)
        assert run.rerun_from().row == 3
        run.signal(words("go"))
        assert run.result() == "go"
        sound(world)


@step
def refund(paid: str, order: str) -> None:
    done.append(f"refund {order}")


@step
def reserve(order: str) -> str:
    done.append(f"reserve {order}")
    return order


reserve.compensate(refund)


@workflow
async def saga() -> str:
    await fetch("x")
    await reserve("a")
    await reserve("b")
    return await charge("x")


def test_what_was_taken_back_is_not_kept() -> None:
    with World() as world:
        run = world.start(saga(), id="x")
        with pytest.raises(RunFailedError):
            run.result()
        assert done[-2:] == ["refund b", "refund a"]
        undone = [event.data["undoes"] for event in run.history() if "undoes" in event.data]
        assert undone == ["3", "2"]
        message = r"reserve#1, reserve#2 were compensated, .*start from reserve#1 \(row 3\) or before it"
        for call in (run.rerun_from, run.preview_rerun):
            with pytest.raises(RerunRefusedError, match=message):
                call()
        done.clear()
        mended()
        assert run.preview_rerun("reserve#1").undone == ("refund#1", "refund#2")
        run.rerun_from("reserve#1")
        assert run.result() == "x is paid"
        assert done == ["reserve a", "reserve b", "charge 4"]
        sound(world)


def test_a_fork_takes_back_what_it_keeps() -> None:
    with World() as world:
        mended()
        run = world.start(saga(), id="x")
        run.result()
        done.clear()
        bugs.add("charge")
        run.rerun_from(charge)
        with pytest.raises(RunFailedError):
            run.result()
        assert done == ["charge 4", "refund b", "refund a"]
        sound(world)


# Hosts -------------------------------------------------------------------------------------------------------------


def test_a_fork_waits_for_its_slot() -> None:
    with World() as world:
        run = world.start(orders("x"), id="x", concurrency=Concurrency("one"))
        with pytest.raises(RunFailedError):
            run.result()
        mended()
        done.clear()
        assert run.rerun_from().status is RunStatus.PENDING
        assert run.result().startswith("X is paid")
        assert done == ["charge 4"]
        sound(world)


def test_reruns_of_one_batch_see_each_other() -> None:
    with World() as world:
        run = failed_orders(world)
        mended()
        commands = [RunRerunFrom(run_id="x", stage="charge"), RunRerunFrom(run_id="x", row=4)]
        first, second = world.engine.core.kernel.dispatch_many(commands)
        assert isinstance(first, RunRerun)
        assert isinstance(second, RunRerun)
        assert (first.generation, second.generation, second.rerun_of) == (2, 3, 2)
        run.result()
        assert done == ["pack b", "charge 4"]
        sound(world)
