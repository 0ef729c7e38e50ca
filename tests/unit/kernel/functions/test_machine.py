"""The function machine: inputs, forbidden calls, and histories that do not fit."""

import asyncio
import json
import re
from bdb import BdbQuit
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import pytest

from holdfast.kernel.authoring.child_runs import start_child
from holdfast.kernel.authoring.functions import now, workflow
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.functions import call_sites
from holdfast.kernel.functions.protocol import (
    Cancelling,
    ChildEnded,
    ChildStarted,
    FunctionEvent,
    FunctionFailed,
    FunctionReturned,
    Row,
    StepCompleted,
    StepFailed,
    StepRequest,
    TimerFired,
    TimerRequest,
)
from holdfast.kernel.functions.tasks import RunTask
from holdfast.kernel.history.raised import Raised
from holdfast.ports.errors import (
    DebuggerLeftError,
    InvalidValueError,
    NondeterminismError,
    NotDurableError,
    StepFailedError,
    WorkflowStalledError,
)
from tests.unit.kernel.functions.corpus import sequence
from tests.unit.kernel.functions.player import BEGAN_AT, new_machine, play


@step
def give(number: int) -> int:
    return number


def row(event: FunctionEvent, number: int = 1, seconds: float = 1) -> Row:
    return Row(number=number, at=BEGAN_AT + int(seconds * 1_000_000), event=event, site="old.py:7")


@workflow
async def watches_the_clock() -> list[float]:
    times = [now().timestamp()]
    loop_times = [asyncio.get_running_loop().time()]
    for _ in range(3):
        await give(1)
        times.append(now().timestamp())
        loop_times.append(asyncio.get_running_loop().time())
    assert loop_times == sorted(loop_times)
    return times


@pytest.mark.parametrize("seconds", [(2, 1, 3), (5, 5, -1), (-3, -2, -1)])
def test_the_clock_of_a_function_never_goes_back(seconds: tuple[int, ...]) -> None:
    """Hosts with different clocks write the rows: one may be earlier than the row before it."""
    machine = new_machine(watches_the_clock())
    machine.begin()
    turn = None
    for number, second in enumerate(seconds, 1):
        told = StepCompleted(call=str(number), step="give", output="1")
        turn = machine.feed(row(told, number, second))
    assert turn is not None
    assert isinstance(turn.ended, FunctionReturned), turn.ended
    times = json.loads(turn.ended.output)
    shown = [0, *accumulate(seconds, max, initial=0)][1:]
    assert times == [BEGAN_AT / 1_000_000 + one for one in shown]


def test_what_a_step_gives_comes_back_as_it_was_stored() -> None:
    machine = new_machine(sequence(1))
    (asked,) = machine.begin().requests
    assert isinstance(asked, StepRequest)
    assert (asked.call, asked.step, asked.arguments) == ("1", "double", '{"number":0}')
    assert asked.site.startswith("corpus.py:")
    ended = machine.feed(row(StepCompleted(call="1", step="double", output="41"))).ended
    assert str(ended) == "FunctionReturned(output='[41]')"


def test_a_row_about_another_step_is_refused_with_both_sides() -> None:
    machine = new_machine(sequence(1))
    machine.begin()
    with pytest.raises(NondeterminismError) as caught:
        machine.feed(row(StepCompleted(call="1", step="charge", output="1"), number=5))
    said = str(caught.value)
    assert "row 5 of the history records step 'charge' (old.py:7) as call 1" in said
    assert "the code requests step 'double' (corpus.py:" in said


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (TimerFired(call="1"), "records a timer .* as call 1, but the code requests step 'double'"),
        (
            StepCompleted(call="2", step="double", output="1"),
            r"it waits for step 'double' \(corpus.py:\d+\) as 1",
        ),
        (StepCompleted(call="1.1", step="double", output="1"), "has not requested it"),
    ],
)
def test_a_row_about_what_was_not_asked_for_is_refused(told: FunctionEvent, said: str) -> None:
    machine = new_machine(sequence(1))
    machine.begin()
    with pytest.raises(NondeterminismError, match=said):
        machine.feed(row(told))


def test_a_row_after_the_end_is_refused() -> None:
    machine = new_machine(sequence(0))
    assert machine.begin().ended is not None
    with pytest.raises(NondeterminismError, match="the function has ended without it"):
        machine.feed(row(StepCompleted(call="1", step="double", output="1")))


@workflow
async def gives_up_a_step() -> str:
    task = asyncio.create_task(give(1))
    await asyncio.sleep(5)
    task.cancel()
    await asyncio.sleep(5)
    return "done"


def test_a_row_about_a_call_that_was_given_up_is_passed_over() -> None:
    machine = new_machine(gives_up_a_step())
    step_asked, timer = sorted(machine.begin().requests, key=lambda one: isinstance(one, TimerRequest))
    assert isinstance(timer, TimerRequest)
    turn = machine.feed(row(TimerFired(call=timer.call), seconds=5))
    assert turn.dropped == (step_asked.call,)
    waited = machine.pending_requests
    machine.feed(row(StepCompleted(call=step_asked.call, step="give", output="1"), number=2, seconds=6))
    assert machine.pending_requests == waited
    with pytest.raises(NondeterminismError):
        machine.feed(row(StepCompleted(call=step_asked.call, step="other", output="1"), number=3, seconds=7))


def test_an_error_whose_class_nobody_knows_says_what_it_was() -> None:
    machine = new_machine(sequence(1))
    machine.begin()
    raised = Raised(type="shop.gone.NoSuchError", message="it is gone")
    ended = machine.feed(row(StepFailed(call="1", step="double", error=raised))).ended
    assert isinstance(ended, FunctionFailed)
    assert isinstance(ended.error, StepFailedError)
    assert str(ended.error) == "shop.gone.NoSuchError: it is gone"


def test_a_cancelled_run_raises_where_it_waits() -> None:
    machine = new_machine(sequence(1))
    machine.begin()
    turn = machine.feed(row(Cancelling(reason="enough")))
    assert isinstance(turn.ended, FunctionFailed)
    assert isinstance(turn.ended.error, asyncio.CancelledError)
    assert turn.dropped == ("1",)


def test_the_clock_stands_at_what_was_told_last() -> None:
    @workflow
    async def time() -> list[float]:
        loop = asyncio.get_running_loop()
        before = loop.time()
        await give(1)
        return [before, loop.time()]

    machine = new_machine(time())
    machine.begin()
    ended = machine.feed(row(StepCompleted(call="1", step="give", output="1"), seconds=7.5)).ended
    assert str(ended) == "FunctionReturned(output='[0.0,7.5]')"


# What is refused ------------------------------------------------------------------------------------------------------


@workflow
async def to_thread() -> None:
    await asyncio.to_thread(print)


@workflow
async def opens_a_connection() -> None:
    await asyncio.open_connection("localhost", 80)


@workflow
async def runs_a_program() -> None:
    await asyncio.create_subprocess_exec("true")


@workflow
async def is_called_from_a_thread() -> None:
    asyncio.get_running_loop().call_soon_threadsafe(print)


@workflow
async def as_completed_of_a_set() -> None:
    async def one() -> None: ...

    both = {one(), one()}
    try:
        for each in asyncio.as_completed(both):
            await each
    finally:
        for coroutine in both:
            coroutine.close()


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (to_thread(), "run_in_executor"),
        (opens_a_connection(), "getaddrinfo|create_connection"),
        (runs_a_program(), "subprocess_exec|child_watcher|add_child"),
        (is_called_from_a_thread(), "call_soon_threadsafe"),
        (as_completed_of_a_set(), "as_completed"),
    ],
    ids=lambda one: getattr(getattr(one, "definition", None), "name", ""),
)
def test_what_reaches_out_is_refused_by_name(call: Any, named: str) -> None:
    error = play(call).error
    assert isinstance(error, NotDurableError)
    assert re.search(named, str(error))
    assert "@step" in str(error)


def test_a_timer_that_never_ends_asks_for_nothing() -> None:
    @workflow
    async def for_ever() -> str:
        async with asyncio.timeout(5):
            await asyncio.sleep(float("inf"))
        return "never"

    machine = new_machine(for_ever())
    (timer,) = machine.begin().requests
    assert isinstance(timer, TimerRequest)
    assert timer.at == machine.began_at + 5_000_000


def test_a_timer_that_is_too_far_ahead_is_refused() -> None:
    @workflow
    async def too_long() -> None:
        await asyncio.sleep(1_001 * 366 * 86_400)

    assert isinstance(play(too_long()).error, ValueError)


@pytest.mark.slow
def test_a_loop_that_never_rests_blocks_and_says_so() -> None:
    @workflow
    async def busy() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    with pytest.raises(WorkflowStalledError, match="100,000"):
        new_machine(busy()).begin()


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_what_would_end_a_program_ends_the_function(error: type[BaseException]) -> None:
    @workflow
    async def leaves() -> None:
        await give(1)
        raise error

    assert isinstance(play(leaves()).error, error)


@step
def buy(number: int) -> int:
    return number


@buy.compensate
def give_back(number: int) -> None:
    del number


@workflow
async def stops() -> None:
    await buy(1)
    raise BdbQuit


@workflow
async def stops_in_a_task() -> None:
    async def inner() -> None:
        await buy(1)
        raise BdbQuit

    async with asyncio.TaskGroup() as group:
        group.create_task(inner())


@pytest.mark.parametrize(("call", "name"), [(stops(), "1"), (stops_in_a_task(), "1.1")])
def test_a_debugger_that_is_left_fails_nothing_and_takes_nothing_back(call: Any, name: str) -> None:
    machine = new_machine(call)
    machine.begin()
    with pytest.raises(DebuggerLeftError):
        machine.feed(row(StepCompleted(call=name, step="buy", output="1")))
    assert machine.pending_requests == ()
    machine.evict()


def test_what_has_another_type_fails_where_it_is_asked_for() -> None:
    @workflow
    async def wrong() -> str:
        try:
            await give("one")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        except InvalidValueError as error:
            return str(error)
        return "?"

    assert "number" in str(play(wrong()).value)


def test_it_is_not_driven_where_a_loop_runs() -> None:
    async def inside() -> None:
        with pytest.raises(RuntimeError, match="event loop runs"):
            new_machine(sequence(1)).begin()

    asyncio.run(inside())


def test_functions_in_memory_cost_a_new_one_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one set of all tasks in asyncio: tasks with equal hashes there would be compared with each other."""
    compared: list[object] = []

    def is_same(self: object, other: object) -> bool:
        compared.append(other)
        return self is other

    monkeypatch.setattr(RunTask, "__eq__", is_same)
    machines = [new_machine(sequence(1)) for _ in range(100)]
    for machine in machines:
        machine.begin()
    assert not compared


@workflow
async def errand(number: int) -> int:
    return number


@workflow
async def leaves_its_child() -> int:
    started = await start_child(errand(1))
    left = asyncio.ensure_future(started.result())
    given = await give(1)
    return given if not left.done() else 0


def test_the_end_of_a_run_that_nobody_waits_for_any_more_changes_nothing() -> None:
    """It may come again after the function's result was refused, behind other rows."""
    machine = new_machine(leaves_its_child())
    machine.begin()
    (asked,) = machine.feed(row(ChildStarted(call="1", workflow="errand", run="x/1"))).requests
    assert isinstance(asked, StepRequest)
    given = machine.feed(row(StepCompleted(call=asked.call, step="give", output="1"), number=2))
    assert str(given.ended) == "FunctionReturned(output='1')"
    assert machine.feed(row(ChildEnded(run="x/1", output="1"), number=3)).requests == ()


@workflow
async def calls_in_places() -> None:
    calls = [give(1), give(2)]
    calls += [give(number) for number in (3, 4)]
    more = give(5), \
        give(6)  # fmt: skip
    await asyncio.gather(*calls, *more)


def test_each_call_has_its_own_line_each_time() -> None:
    first = min(lines_of_calls())
    for _ in range(3):
        assert [line - first for line in lines_of_calls()] == [0, 0, 1, 1, 2, 3]


def test_places_are_forgotten_before_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    before = lines_of_calls()
    monkeypatch.setattr(call_sites, "_PLACES_MAX", 2)
    assert lines_of_calls() == before
    made: dict[str, Callable[[], str]] = {}
    for _ in range(5):  # each is other code, in the same place
        exec(
            "from holdfast.kernel.functions.call_sites import call_site\ndef site():\n return call_site(0)",
            made,
        )
        assert made["site"]() == "<string>:3"
    assert len(vars(call_sites)["_PLACES"]) <= 2


def lines_of_calls() -> list[int]:
    machine = new_machine(calls_in_places())
    asked = machine.begin().requests
    machine.evict()
    assert all(one.site.startswith("test_machine.py:") for one in asked)
    return [int(one.site.rpartition(":")[2]) for one in asked]


@workflow
async def makes_futures() -> list[int]:
    loop = asyncio.get_running_loop()
    before = loop.create_future()
    await give(1)
    return [hash(before), hash(loop.create_future())]


def test_calls_are_counted_among_the_futures_by_whose_numbers_sets_are_ordered() -> None:
    assert play(makes_futures()).value == "[2,4]"
