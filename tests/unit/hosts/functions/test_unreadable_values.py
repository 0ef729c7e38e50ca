"""Unreadable values block a function; errors of a sender do not. In memory, row by row."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from holdfast.hosts.functions.replay import FunctionReplay
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.queries import expose, update
from holdfast.kernel.authoring.steps import step
from holdfast.kernel.functions.protocol import FunctionReturned
from holdfast.kernel.functions.run_facts import RunFacts
from holdfast.kernel.history import events
from holdfast.ports.errors import UnreadableValueError
from holdfast.ports.json import canonical
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.values import Payload
from tests.unit.kernel.functions.player import BEGAN_AT, new_machine

F = TypeVar("F", bound=Callable[..., object])

CREATED = "run.created"


def annotated(**hints: object) -> Callable[[F], F]:
    """Give a function other annotations, its return type included, as a deploy would."""

    def annotate(function: F) -> F:
        function.__annotations__ |= {
            "return" if name == "returns" else name: hint for name, hint in hints.items()
        }
        return function

    return annotate


def row(number: int, kind: str, payload: str | None = None, **facts: object) -> HistoryRow:
    return HistoryRow(
        run="r",
        number=number,
        type=kind,
        at=BEGAN_AT + number,
        payload=None if payload is None else Payload(inline=payload),
        data=canonical(facts),
    )


def replay_of(call: Any, *rows: HistoryRow) -> FunctionReplay:
    def text(payload: Payload) -> str:
        assert payload.inline is not None
        return payload.inline

    drive = FunctionReplay(new_machine(call), text)
    drive.open([row(1, CREATED, definition="w@1"), *rows])
    drive.close()
    return drive


def requested_steps(drive: FunctionReplay) -> list[tuple[str, str]]:
    return [(one.request.step, one.request.arguments) for one in drive.tries()]


def misread(drive: FunctionReplay) -> UnreadableValueError:
    assert isinstance(drive.fault, UnreadableValueError), drive.fault
    return drive.fault


# Messages ---------------------------------------------------------------------------------------------------------


def receives(form: Any, count: int = 1) -> Any:
    channel: Channel[Any] = Channel("go", form)

    @workflow
    async def receiver() -> list[str]:
        return [str(await channel.receive()) for _ in range(count)]

    return receiver()


UNCHECKED = row(2, "signal.received", '"five"', channel="go")
NUMBER = row(3, "signal.received", "5", channel="go", checked=True)


def test_a_message_that_nobody_checked_is_passed_over_with_a_row() -> None:
    drive = replay_of(receives(int), UNCHECKED)
    assert drive.fault is None
    assert drive.ended is None
    (note,) = drive.notes()
    assert isinstance(note.event, events.SignalRefused)
    assert note.event.row == 2
    assert "expected integer, got string" in note.event.message


def test_the_next_message_is_received_then() -> None:
    drive = replay_of(receives(int), UNCHECKED, NUMBER)
    assert drive.ended == FunctionReturned('["5"]')
    assert [one.event.type for one in drive.notes()] == ["signal.refused"]


def test_once_that_is_recorded_code_that_could_read_it_does_not_get_it_either() -> None:
    refused = row(4, "signal.refused", row=2, channel="go", message="expected int, got str")
    drive = replay_of(receives(object), UNCHECKED, NUMBER, refused)
    assert drive.ended == FunctionReturned('["5"]')
    assert drive.notes() == []


def test_a_message_that_was_right_when_it_was_sent_halts_code_that_cannot_read_it() -> None:
    checked = row(2, "signal.received", '"five"', channel="go", checked=True)
    error = misread(replay_of(receives(int), checked, NUMBER))
    assert (error.what, error.row) == ("a message for the channel 'go'", 2)
    assert error.problems == ("$: expected integer, got string",)
    assert replay_of(receives(object, 2), checked, NUMBER).ended == FunctionReturned('["five","5"]')


def test_what_is_passed_over_leaves_those_who_wait_in_their_order() -> None:
    channel: Channel[int] = Channel("go", int)

    @workflow
    async def two() -> dict[str, int]:
        got: dict[str, int] = {}

        async def wait(name: str) -> None:
            got[name] = await channel.receive()

        await asyncio.gather(wait("a"), wait("b"))
        return got

    more = row(4, "signal.received", "6", channel="go", checked=True)
    refused = row(5, "signal.refused", row=2, channel="go", message="expected int, got str")
    live, replayed = (
        replay_of(two(), UNCHECKED, NUMBER, more),
        replay_of(two(), UNCHECKED, NUMBER, more, refused),
    )
    assert live.ended == replayed.ended == FunctionReturned('{"a":5,"b":6}')


# Updates ----------------------------------------------------------------------------------------------------------


def takes(form: Any) -> Any:
    class Board:
        def __init__(self) -> None:
            self.moves: list[str] = []

        @update
        @annotated(to=form)
        async def move(self, to: Any) -> str:
            self.moves.append(str(to))
            return str(to)

    board_over: Channel[str] = Channel("over", str)

    @workflow
    async def play() -> list[str]:
        board = expose(Board())
        await board_over.receive()
        return board.moves

    return play()


WRONG = row(2, "update.received", '{"to":"e4"}', update="Board.move")
OVER = row(3, "signal.received", '"over"', channel="over", checked=True)


def test_an_update_that_nobody_checked_is_rejected() -> None:
    drive = replay_of(takes(int), WRONG)
    (answer,) = drive.answers()
    assert answer.rejected is not None
    assert answer.rejected.code == "invalid_value"
    assert drive.fault is None


def test_it_stays_so_for_code_that_could_carry_it_out() -> None:
    error = {"type": "holdfast.ports.errors.InvalidValueError", "message": "no int", "code": "invalid_value"}
    rejected = row(3, "update.rejected", call="update2", error=error)
    over = row(4, "signal.received", '"over"', channel="over", checked=True)
    drive = replay_of(takes(object), WRONG, rejected, over)
    assert drive.ended == FunctionReturned("[]")


def test_one_that_was_right_when_it_was_asked_for_halts_code_that_cannot_read_it() -> None:
    checked = row(2, "update.received", '{"to":"e4"}', update="Board.move", checked=True)
    error = misread(replay_of(takes(int), checked, OVER))
    assert (error.what, error.row) == ("the arguments of update 'Board.move'", 2)
    assert error.problems == ("$.to: expected integer, got string",)


# What is taken back -------------------------------------------------------------------------------------------------


def trip(cents: int, number: Any = int) -> Any:
    """Return a function whose step has this default and returns this type."""

    @step
    async def book(city: str) -> str:
        return city

    @book.compensate
    async def unbook(booked: str) -> None: ...

    @step
    @annotated(returns=number)
    async def charge(cents: int = cents) -> Any:
        return cents

    @charge.compensate
    @annotated(charged=number)
    async def refund(charged: Any, cents: int) -> None: ...

    @step
    async def fails() -> None: ...

    @workflow(name="trip")
    async def function() -> None:
        await book("Oslo")
        task = asyncio.ensure_future(charge())
        try:
            await fails()
        finally:
            task.cancel()

    return function()


BOOKED = row(2, "step.completed", '"Oslo"', call="1", step="book", attempt=1)
ERROR = {"type": "ValueError", "message": "no", "code": "body_error"}
FAILED = row(3, "step.failed", call="4", step="fails", attempt=1, error=ERROR)
CHARGED = row(4, "step.completed", "500", call="2", step="charge", attempt=1, given='{"cents":500}')


def test_a_step_is_taken_back_with_the_arguments_that_it_was_called_with() -> None:
    drive = replay_of(trip(700), BOOKED, FAILED)
    assert drive.fault is None
    drive = replay_of(trip(700), BOOKED, FAILED, CHARGED)
    assert drive.fault is None
    assert requested_steps(drive) == [("refund", '{"charged":500,"cents":500}')]


def test_nothing_is_taken_back_before_what_a_step_gave_can_be_read() -> None:
    drive = replay_of(trip(500, str), BOOKED, FAILED, CHARGED)
    error = misread(drive)
    assert (error.what, error.row) == ("the result of step 'charge'", 4)
    assert requested_steps(drive) == []


def test_so_it_is_with_the_arguments_of_the_step() -> None:
    renamed = row(4, "step.completed", "500", call="2", step="charge", attempt=1, given='{"amount":500}')
    error = misread(replay_of(trip(500), BOOKED, FAILED, renamed))
    assert error.what == "the arguments of step 'charge'"
    assert len(error.problems) == 1
    assert error.problems[0].startswith("$.amount:")


def test_no_code_of_the_function_runs_that_waits_for_what_cannot_be_read() -> None:
    ran: list[str] = []

    @workflow(name="child")
    async def child() -> int:
        return 1

    @workflow
    async def parent() -> int:
        try:
            return await child()
        except Exception:
            ran.append("handled")
            raise

    started = row(2, "child.started", call="1", workflow="child", run="r/1")
    error = misread(replay_of(parent(), started, row(3, "child.completed", '"one"', run="r/1")))
    assert (error.what, error.row) == ("what the run 'r/1' of 'child' gave", 3)
    assert ran == []


def test_what_a_function_was_given_is_named() -> None:
    @workflow
    async def pay(cents: int) -> int:
        return cents

    with pytest.raises(
        UnreadableValueError, match=r"what the run was given, row 1 of the history, can't be read"
    ):
        pay.machine(
            '{"amount":5}', began_at=BEGAN_AT, seed="s", run=RunFacts(id="s", workflow="w", version="1")
        )
