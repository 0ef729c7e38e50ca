"""Channels: typed mailboxes of runs. The world sends to them, a durable function receives."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Generic, cast, overload

from typing_extensions import TypeForm, TypeVar, override

from holdfast.kernel.authoring.options import check_name
from holdfast.kernel.authoring.signals import Signal
from holdfast.kernel.functions.call_sites import call_site
from holdfast.kernel.functions.inboxes import Message
from holdfast.kernel.functions.loop import loop_for
from holdfast.kernel.functions.protocol import CloseRequest
from holdfast.kernel.values import check_type, decode, encode
from holdfast.kernel.values.type_forms import Form, show
from holdfast.ports.durations import NO_TIME, Duration
from holdfast.ports.errors import ChannelClosedError, DefinitionError, UnreadMessagesError
from holdfast.ports.validation import duration

T = TypeVar("T")
Out = TypeVar("Out", covariant=True)
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")


class Inbox(Generic[Out]):
    """The side of a channel from which a durable function receives. Apart from the other side, it is covariant."""

    def __init__(self, name: str, form: Form) -> None:
        self.name = name
        self._form = form

    async def receive(self, *, timeout: Duration | None = None) -> Out:
        """Take the next message, waiting for it if need be: days, or for ever.

        What somebody sent by the channel's name only, and is not of the type, is passed over: a row of the history says
        so. If it was of the type when it was sent, and is not of the one that the code has now, the run is blocked.

        Raises:
            TimeoutError: None came within `timeout`, a timedelta or a number of seconds.
            ChannelClosedError: The function has closed the channel.
            InvalidArgumentError: That is no length of time.
            RuntimeError: No durable function calls.
        """
        return await _take((self,), timeout)

    def __aiter__(self) -> AsyncIterator[Out]:
        """Return one message after the other, until the channel is closed."""
        return _Messages(self)

    async def close(self) -> None:
        """Take no more messages through this channel: from here on who sends to it is refused, and knows it.

        Close the channels that a function receives from as the last that it does, and nothing is unread when it ends.
        It is recorded, and the store decides it: a message is stored before, and then nothing is closed, or refused.
        To close again what is closed does nothing.

        Raises:
            UnreadMessagesError: Messages have come that the function has not received. It is to receive them first.
            RuntimeError: No durable function calls.
        """
        loop = loop_for("a channel")
        inboxes = loop.inboxes
        if inboxes.has(self.name):
            raise UnreadMessagesError(self.name)
        if inboxes.is_closed(self.name):
            return
        request = CloseRequest(call=loop.next_call(), channel=self.name, site=call_site())
        inboxes.closed_by(self.name, request.call)
        await loop.submit(request)  # once it is asked for it is done, whoever is cancelled

    def decoded(self, text: str) -> Out:
        """Return the message of this JSON text. InvalidValueError."""
        return cast("Out", decode(text, self._form))

    def recoded(self, text: str) -> str:
        """Return the JSON text of the message of this one, with the defaults of what it lacks. Raises as `decoded`."""
        return encode(self.decoded(text), self._form)

    @property
    def takes(self) -> str:
        """What its messages are, as their type is written."""
        return show(self._form)


class _Messages(AsyncIterator[Out]):
    """The messages of a channel. One that was cancelled while it waited goes on where it was, and has lost none."""

    def __init__(self, inbox: Inbox[Out]) -> None:
        self._inbox = inbox

    @override
    async def __anext__(self) -> Out:
        try:
            return await self._inbox.receive()
        except ChannelClosedError:
            raise StopAsyncIteration from None


class Channel(Inbox[T], Generic[T]):
    """A typed mailbox. Each run has its own under this name, from its start on; what comes early waits there.

    Messages are taken in the order in which they were stored, each by one receiver.

    Args:
        name: What senders name it by.
        type: What its messages are: any type whose values can be stored.

    Raises:
        DefinitionError: The name can't be one, or values of the type can't be stored.
    """

    def __init__(self, name: str, type: TypeForm[T], /) -> None:
        check_name(name, "the name of a channel")
        super().__init__(name, type)
        try:
            check_type(self._form)
        except DefinitionError as error:
            raise DefinitionError(f"channel {name!r} can't have such messages: {error}") from None

    def __call__(self, message: T, /) -> Signal:
        """Say what to send: `run.signal(channel(message))`. InvalidValueError if it is not of the type."""
        return Signal(self.name, encode(message, self._form), checked=True)


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
    """Take the next message of any of two to four channels: the one that came first. Raises as `Channel.receive`."""
    return await _take(channels, timeout)


async def _take(channels: tuple[Inbox[T], ...], timeout: Duration | None) -> T:
    inboxes = loop_for("a channel").inboxes
    names = tuple({channel.name: None for channel in channels})

    def read(message: Message) -> T:
        return next(one for one in reversed(channels) if one.name == message.channel).decoded(message.text)

    if timeout is None:
        taken = await inboxes.take(names, read)
    else:
        async with asyncio.timeout(duration("receive", "timeout", timeout, least=NO_TIME).total_seconds()):
            taken = await inboxes.take(names, read)
    if taken is None:
        raise ChannelClosedError("", names[0])
    return cast("T", taken[0])
