"""Channels: typed mailboxes of runs. The world sends to them, a durable function receives."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Generic, cast, overload

from typing_extensions import TypeForm, TypeVar

from holdfast.kernel.authoring.options import check_name
from holdfast.kernel.authoring.signals import Signal
from holdfast.kernel.functions.loop import loop_for
from holdfast.kernel.values import check_type, decode, encode
from holdfast.kernel.values.forms import Form
from holdfast.ports.arguments import duration
from holdfast.ports.durations import NO_TIME, Duration
from holdfast.ports.errors import DefinitionError

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

        Raises:
            TimeoutError: None came within `timeout`, a timedelta or a number of seconds.
            InvalidArgumentError: That is no length of time.
            InvalidValueError: What came is not of the type: somebody sent it by the channel's name only. It is taken.
            RuntimeError: No durable function calls.
        """
        return await _take((self,), timeout)

    def __aiter__(self) -> AsyncIterator[Out]:
        """Return one message after the other, for ever."""
        return self._each()

    async def _each(self) -> AsyncIterator[Out]:
        while True:
            yield await self.receive()

    def decoded(self, text: str) -> Out:
        """Return the message of this JSON text. InvalidValueError."""
        return cast("Out", decode(text, self._form))


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
        return Signal(self.name, encode(message, self._form))


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
    if timeout is None:
        message = await inboxes.take(names)
    else:
        async with asyncio.timeout(duration("receive", "timeout", timeout, least=NO_TIME).total_seconds()):
            message = await inboxes.take(names)
    return next(one for one in reversed(channels) if one.name == message.channel).decoded(message.text)
