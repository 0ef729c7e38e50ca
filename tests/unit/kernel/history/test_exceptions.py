"""Step exceptions: stored in the history and raised again in the function."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Self

import pytest
from typing_extensions import override

from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.functions.protocol import FunctionFailed, FunctionReturned, Row, TimerFired, TimerRequest
from holdfast.kernel.history.exceptions import error_from, message_of, raised_from
from holdfast.ports.errors import CompensationError, StepFailedError
from tests.unit.kernel.functions.player import BEGAN_AT, new_machine, play


class WithNewError(Exception):
    """Its `__new__` requires an argument."""

    def __new__(cls, code: int) -> Self:  # pyright: ignore[reportInconsistentConstructor]
        """Create an instance, which a look-up cannot do."""
        return super().__new__(cls, code)


class Unprintable:
    @override
    def __repr__(self) -> str:
        raise RuntimeError("no")


def _recursive() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    "error",
    [
        ExceptionGroup("several", [ValueError("a"), TypeError("b")]),
        WithNewError(5),
        ValueError(Unprintable()),
        ValueError(_recursive()),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"),
        FileNotFoundError(2, "no such file", "x.txt"),
        StopIteration(3),
        StopAsyncIteration(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_any_exception_of_a_step_comes_back(error: Exception) -> None:
    back = error_from(raised_from(error))
    assert type(back) in (type(error), StepFailedError)
    assert str(back) or repr(back)


def test_one_whose_class_makes_it_otherwise_comes_back_as_itself() -> None:
    back = error_from(raised_from(WithNewError(5)))
    assert isinstance(back, WithNewError)
    assert back.args == (5,)


def test_an_oserror_keeps_what_it_knows() -> None:
    back = error_from(raised_from(FileNotFoundError(2, "no such file", "x.txt")))
    assert isinstance(back, FileNotFoundError)
    assert (back.errno, back.filename) == (2, "x.txt")
    assert str(back) == "[Errno 2] no such file: 'x.txt'"


async def _fails(text: str) -> None:
    raise ValueError(text)


@step
async def in_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_fails("a"))


@step
def ends_iteration() -> None:
    next(iter(()))


@workflow
async def told_of_a_group() -> str:
    found = "?"
    try:
        await in_a_group()
    except* ValueError as group:
        found = repr(group.exceptions)
    return found


@workflow
async def told_of_an_iteration() -> str:
    try:
        await ends_iteration()
    except StepFailedError as error:
        return f"{error}; {error.type}, {error.__cause__!r}"
    return "?"


def test_an_error_of_a_group_is_caught_by_its_class() -> None:
    assert play(told_of_a_group()).ended == FunctionReturned("\"(ValueError('a'),)\"")


def test_what_can_not_be_raised_is_told_by_its_name_and_is_the_cause() -> None:
    assert play(told_of_an_iteration()).ended == FunctionReturned(
        '"StopIteration (known, but no future accepts it, so it is the __cause__ of this);'
        ' StopIteration, StopIteration()"'
    )


@workflow
async def many_generators() -> int:
    async def one() -> AsyncIterator[int]:
        yield 1

    total = 0
    for _ in range(1000):
        async for each in one():
            total += each
        await asyncio.sleep(1)
    return total


def nested(error: Exception, depth: int) -> Exception:
    for _ in range(depth):
        error = ExceptionGroup("g", [error])
    return error


@workflow
async def nest_errors(depth: int) -> None:
    raise nested(ValueError("x"), depth)


def test_groups_may_be_nested_however_deep() -> None:
    assert message_of(nested(ValueError("x"), 5_000)) == "ValueError: x (1 of 1 in group 'g')"
    turn = new_machine(nest_errors(5_000)).begin()
    assert isinstance(turn.ended, FunctionFailed)


def test_generators_that_are_exhausted_are_not_kept() -> None:
    machine = new_machine(many_generators())
    machine.begin()
    for number in range(500):
        (timer,) = machine.pending_requests
        assert isinstance(timer, TimerRequest)
        machine.feed(Row(number=number + 1, at=max(BEGAN_AT, timer.at), event=TimerFired(call=timer.call)))
    kept = machine.kept
    machine.evict()
    assert kept < 50


@step
def pay(cents: int) -> str:
    raise TimeoutError("the bank does not answer")


@pay.compensate
def refund(receipt: str) -> None:
    pass


@step
def decline() -> None:
    raise ValueError("no")


@workflow
async def order() -> None:
    await pay(5)


@workflow
async def order_that_goes_on() -> None:
    try:
        await pay(5)
    except TimeoutError:
        await decline()


@pytest.mark.parametrize("call", [order(), order_that_goes_on()], ids=["at once", "later"])
def test_what_timed_out_and_can_not_be_taken_back_without_its_result_is_told_so(call: Call[None]) -> None:
    with pytest.raises(CompensationError, match="it is unknown whether it happened"):
        play(call)
