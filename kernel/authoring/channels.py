"""Channels: typed mailboxes of runs, from which durable functions receive messages."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Generic, cast, overload

import attrs
from typing_extensions import TypeForm, TypeVar, override

from holdfast.kernel.authoring.body_types import check_storable
from holdfast.kernel.authoring.options import check_name
from holdfast.kernel.authoring.signals import Signal
from holdfast.kernel.functions.call_sites import call_site
from holdfast.kernel.functions.inboxes import Message
from holdfast.kernel.functions.loop import loop_for
from holdfast.kernel.functions.protocol import CloseRequest
from holdfast.kernel.values import decode, decode_input, encode
from holdfast.kernel.values.type_forms import Form, show
from holdfast.ports.durations import NO_TIME, Duration
from holdfast.ports.errors import (
    ChannelClosedError,
    InvalidValueError,
    UnreadMessagesError,
    UnstorableValueError,
)
from holdfast.ports.validation import duration

T = TypeVar("T")
Out = TypeVar("Out", covariant=True)
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")


@attrs.frozen(kw_only=True)
class ReceivedMessage(Generic[Out]):
    """A message that a durable function has received.

    Attributes:
        value: The message.
        sender: The id of the run whose function sent it; None if no function did.
    """

    value: Out
    sender: str | None


class Inbox(Generic[Out]):
    """The receiving side of a channel. It is covariant in the type of the messages, which a `Channel` can't be."""

    def __init__(self, name: str, form: Form) -> None:
        self.name = name
        self._form = form

    @property
    def message_type(self) -> object:
        """The type of its messages, as an annotation."""
        return self._form

    async def receive(self, *, timeout: Duration | None = None) -> Out:
        """Wait for the next message and return it: `await approval.receive(timeout=timedelta(days=3))`.

        A message that was sent by the channel's name only, and does not have the channel's type, is skipped and
        recorded. A message that had the type when it was sent, but does not have it in the current code, blocks the
        run.

        Raises:
            TimeoutError: No message came within `timeout`, a timedelta or a number of seconds.
            ChannelClosedError: The function has closed the channel.
            InvalidArgumentError: The timeout is not a duration.
            RuntimeError: It was not called by a durable function.
        """
        return _message(await _take((self,), timeout), self)[0]

    async def receive_message(self, *, timeout: Duration | None = None) -> "ReceivedMessage[Out]":
        """Wait for the next message and return it with the run that sent it. Raises as `receive`.

        `message = await question.receive_message()`, and then `await signal_run(message.sender, answer(42))`.
        """
        value, message = _message(await _take((self,), timeout), self)
        return ReceivedMessage(value=value, sender=message.sender)

    def __aiter__(self) -> AsyncIterator[Out]:
        """Iterate over the messages until the channel is closed: `async for message in letters`."""
        return _Messages(self)

    async def close(self) -> None:
        """Close the channel: later senders get a ChannelClosedError.

        Close a channel when the function has received its last message, so that no message is unread when the run ends.
        The store decides the order: a message that was stored before makes `close` fail. Closing a closed channel does
        nothing.

        Raises:
            UnreadMessagesError: There are messages that the function has not received. Receive them first.
            RuntimeError: It was not called by a durable function.
        """
        loop = loop_for("Channel.close()")
        inboxes = loop.inboxes
        if inboxes.has(self.name):
            raise UnreadMessagesError(self.name)
        if inboxes.is_closed(self.name):
            return
        request = CloseRequest(call=loop.next_call(), channel=self.name, site=call_site())
        inboxes.closed_by(self.name, request.call)
        await loop.submit(request)  # a cancellation does not withdraw the request

    def decoded(self, text: str) -> Out:
        """Return a message from its JSON text. Raises InvalidValueError."""
        return cast("Out", decode(text, self._form))

    def recoded(self, text: str) -> str:
        """Return the JSON text of a message with missing defaults added. Raises InvalidValueError."""
        return encode(decode_input(text, self._form), self._form)

    @property
    def takes(self) -> str:
        """Type of the messages, as it is written in code."""
        return show(self._form)


class _Messages(AsyncIterator[Out]):
    """An iterator over the messages of a channel. After a cancelled `__anext__` it continues without losing one."""

    def __init__(self, inbox: Inbox[Out]) -> None:
        self._inbox = inbox

    @override
    async def __anext__(self) -> Out:
        try:
            return await self._inbox.receive()
        except ChannelClosedError:
            raise StopAsyncIteration from None


class Channel(Inbox[T], Generic[T]):
    """A typed mailbox of a run: `approval = Channel("approval", Decision)`.

    Each run has a mailbox for each channel name from its start. Messages that arrive early wait in it. They are
    received in the order in which they were stored, each once.

    Args:
        name: Name of the channel for senders.
        type: Type of the messages; any storable type.

    Raises:
        DefinitionError: The name is invalid, or values of the type can't be stored.
    """

    def __init__(self, name: str, type: TypeForm[T], /) -> None:
        check_name(name, "the name of a channel")
        super().__init__(name, type)
        check_storable(self._form, f"channel {name!r} can't have messages of this type")

    def __call__(self, message: T, /) -> Signal:
        """Return a message to send: `await run.signal(approval(decision))`.

        Raises:
            InvalidValueError: The message does not have the type of the channel.
            UnstorableValueError: It can't be stored.
        """
        try:
            text = encode(message, self._form)
        except InvalidValueError as error:
            raise InvalidValueError(f"channel {self.name!r} ({self.takes})", error.problems) from None
        except UnstorableValueError as error:
            raise UnstorableValueError(error.path, f"{error.reason}; channel {self.name!r}") from None
        return Signal(self.name, text, checked=True)


@overload
async def select(a: Inbox[A], b: Inbox[B], /, *, timeout: Duration | None = None) -> A | B: ...
@overload
async def select(
    a: Inbox[A], b: Inbox[B], c: Inbox[C], /, *, timeout: Duration | None = None
) -> A | B | C: ...
@overload
async def select(
    a: Inbox[A], b: Inbox[B], c: Inbox[C], d: Inbox[D], /, *, timeout: Duration | None = None
) -> A | B | C | D: ...
async def select(*channels: Inbox[Any], timeout: Duration | None = None) -> object:
    """Wait for the next message of two to four channels; the one stored first wins. Raises as `Channel.receive`."""
    return _message(await _take(channels, timeout), channels[0])[0]


def _take(
    channels: tuple[Inbox[T], ...], timeout: Duration | None
) -> Coroutine[Any, Any, tuple[tuple[T, Message]] | None]:
    """Return the wait for the next message of any of these channels. As a plain function, it keeps no frame waiting."""
    inboxes = loop_for("receive() or select() of channels").inboxes
    seconds = (
        None if timeout is None else duration("receive", "timeout", timeout, least=NO_TIME).total_seconds()
    )

    def read(message: Message) -> tuple[T, Message]:
        channel = next(one for one in reversed(channels) if one.name == message.channel)
        return channel.decoded(message.text), message

    taken = inboxes.take(tuple({channel.name: None for channel in channels}), read)
    return taken if seconds is None else _within(seconds, taken)


async def _within(seconds: float, taken: Coroutine[Any, Any, T]) -> T:
    async with asyncio.timeout(seconds):
        return await taken


def _message(taken: tuple[tuple[T, Message]] | None, channel: Inbox[Any]) -> tuple[T, Message]:
    """Return what was received. ChannelClosedError if that is nothing."""
    if taken is None:
        raise ChannelClosedError("", channel.name)
    return taken[0]
