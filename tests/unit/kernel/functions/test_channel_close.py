"""Closing channels: a message comes before the close or not at all, live and in replays."""

import asyncio
from collections.abc import Sequence

import pytest

from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.authoring.channels import Channel, select
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.functions.machine import FunctionMachine
from holdfast.kernel.functions.protocol import (
    ChannelClosed,
    CloseRequest,
    FunctionEvent,
    FunctionReturned,
    Row,
    SignalReceived,
)
from holdfast.ports.errors import ChannelClosedError, UnreadMessagesError
from tests.unit.kernel.functions.player import BEGAN_AT, new_machine

words = Channel("words", str)
more = Channel("more", str)


def fed_machine(call: Call[object], rows: Sequence[FunctionEvent], *, inbox: int = 0) -> FunctionMachine:
    """A machine that was fed rows, the first `inbox` of which were there at its start."""
    made = [Row(number=number, at=BEGAN_AT + number, event=one) for number, one in enumerate(rows, 2)]
    machine = new_machine(call)
    machine.begin(inbox=made[:inbox])
    for row in made[inbox:]:
        machine.feed(row)
    return machine


def gave(machine: FunctionMachine) -> str:
    ended = machine.feed(
        Row(number=99, at=BEGAN_AT + 99, event=SignalReceived(channel="more", text='"end"'))
    ).ended
    assert isinstance(ended, FunctionReturned)
    return ended.output


def word(text: str, channel: str = "words") -> SignalReceived:
    return SignalReceived(channel=channel, text=f'"{text}"')


def closed(call: str = "1") -> ChannelClosed:
    return ChannelClosed(call=call, channel="words")


@workflow
async def closes() -> list[str]:
    got: list[str] = []
    while True:
        try:
            await words.close()
            break
        except UnreadMessagesError:
            got.append(await words.receive())
    return [*got, await more.receive()]


def test_a_message_that_comes_before_the_row_is_the_answer() -> None:
    machine = fed_machine(closes(), [word("late")])
    assert [one.call for one in machine.pending_requests if isinstance(one, CloseRequest)] == ["2"]
    machine = fed_machine(closes(), [word("late"), closed("2")])
    assert (machine.pending_requests, machine.received) == ((), [2])
    assert gave(machine) == '["late","end"]'


def test_what_is_there_already_is_the_answer_without_a_row() -> None:
    machine = fed_machine(closes(), [word("early"), closed("1")], inbox=1)
    assert machine.received == [2]
    assert gave(machine) == '["early","end"]'


def test_a_message_for_another_channel_says_nothing() -> None:
    machine = fed_machine(closes(), [word("other", "more"), closed()])
    assert isinstance(
        machine.feed(Row(number=9, at=BEGAN_AT + 9, event=word("x", "more"))).ended, FunctionReturned | None
    )
    assert machine.received == [2]


@workflow
async def waits() -> list[str]:
    """Tasks that wait for a message while another closes the channel."""

    async def one() -> str:
        try:
            return await words.receive()
        except ChannelClosedError as error:
            return error.channel

    async def each() -> str:
        return "".join([word async for word in words])

    async def either() -> str:
        return await select(words, more)

    tasks = [asyncio.create_task(make()) for make in (one, each, either)]
    await words.close()
    with pytest.raises(ChannelClosedError, match="channel 'words' is closed"):
        await words.receive(timeout=5)
    await words.close()
    return [await task for task in tasks]


def test_who_waits_for_a_message_is_told_that_none_comes_any_more() -> None:
    machine = fed_machine(waits(), [closed("4")])
    assert machine.pending_requests == ()
    assert gave(machine) == '["words","","end"]'


def test_what_comes_for_a_closed_channel_is_for_the_next_generation() -> None:
    machine = fed_machine(waits(), [closed("4"), word("for another")])
    assert machine.received == []
    assert gave(machine) == '["words","","end"]'
