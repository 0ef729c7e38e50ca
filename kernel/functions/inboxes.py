"""The unread messages of a durable function, by channel."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from holdfast.kernel.functions.protocol import SkippedMessage
from holdfast.ports.errors import InvalidValueError
from holdfast.ports.records.topic import GROUP_CHANNEL

_NO_CALLS: Final[Mapping[str, tuple[str, ...]]] = {}


class Message(NamedTuple):
    """A message as it was stored."""

    number: int
    """The number of its history row."""
    channel: str
    text: str
    """Its value as JSON text."""
    is_checked: bool = False
    """Whether its value was checked against the channel's type when it was sent."""
    sender: str | None = None
    """The id of the run that sent it; None if no run did."""


Read: TypeAlias = Callable[[Message], Any]
"""Decodes a message. InvalidValueError if it is not of the channel's type."""


class Inboxes:
    """Keeps messages until the function receives them, each by the first receiver of its channel.

    A message that its receiver can't decode wakes no receiver. If it was checked when it was sent, the function's code
    has changed since, and the function is halted; otherwise the message is skipped and listed in `refused`
    (docs/decisions/0062).

    `new_future` creates a future on the function's loop; `halt` halts the function.
    """

    __slots__ = (
        "_closed",
        "_closes",
        "_halt",
        "_is_halted",
        "_messages",
        "_new_future",
        "_passed_over",
        "_subscribed",
        "_waiting",
        "refused",
        "taken",
    )

    def __init__(
        self,
        new_future: "Callable[[], asyncio.Future[Any]]",
        halt: Callable[[str, int | None, Exception], None],
    ) -> None:
        self._new_future = new_future
        self._halt = halt
        self._is_halted = False
        self._messages: dict[str, deque[Message]] = {}
        self._waiting: dict[asyncio.Future[None], tuple[Sequence[str], Read]] = {}
        # Most functions have no closed channels, and an empty set takes 216 bytes.
        self._closed: frozenset[str] = frozenset()
        self._subscribed: frozenset[str] = frozenset()
        self._closes: Mapping[str, tuple[str, ...]] = _NO_CALLS
        """The pending calls that close each channel."""
        self.taken: list[int] = []
        """The row numbers of messages received or skipped since this list was cleared."""
        self._passed_over: set[int] | None = None
        self.refused: tuple[SkippedMessage, ...] = ()
        """The messages skipped since `take_refused` was called last."""

    @property
    def is_waited_for(self) -> bool:
        """Whether a receiver waits for a message."""
        return bool(self._waiting)

    @property
    def awaited(self) -> tuple[str, ...]:
        """The channels that receivers wait for, each once, in the order of the receives."""
        return tuple(dict.fromkeys(channel for channels, _ in self._waiting.values() for channel in channels))

    def has(self, channel: str) -> bool:
        """Whether a channel has an unread message."""
        return bool(self._messages.get(channel))

    def take_refused(self) -> tuple[SkippedMessage, ...]:
        """Return and clear the skipped messages."""
        refused, self.refused = self.refused, ()
        return refused

    def put(self, message: Message) -> Sequence[str]:
        """Store a message and wake the first receiver of its channel; return the pending closes, which fail.

        A message for a closed channel is left to the next generation of the run.
        """
        channel = message.channel
        if channel in self._closed:
            return ()
        if self._passed_over is not None and message.number in self._passed_over:
            self.taken.append(message.number)
            self._end_wait(channel)
        else:
            self._messages.setdefault(channel, deque()).append(message)
            self._wake(channel)
        return self._take_closes(channel)

    def pass_over(self, number: int) -> None:
        """Skip a message that was skipped when it was first read, even if the code can decode it now."""
        if self._passed_over is None:
            self._passed_over = set()
        self._passed_over.add(number)

    def closed_by(self, channel: str, call: str) -> None:
        """Register the pending call that closes a channel. A message that arrives first refuses the close."""
        self._closes = {**self._closes, channel: (*self._closes.get(channel, ()), call)}

    def _take_closes(self, channel: str) -> Sequence[str]:
        """Remove and return the pending calls that close a channel."""
        calls = self._closes.get(channel, ())
        if calls:
            self._closes = {name: one for name, one in self._closes.items() if name != channel}
        return calls

    def is_closed(self, channel: str) -> bool:
        """Whether a channel is closed."""
        return channel in self._closed

    def close(self, channel: str) -> None:
        """Close a channel and wake its receivers."""
        self._take_closes(channel)
        self._closed |= {channel}
        for future, (channels, _) in self._waiting.items():
            if channel in channels and not future.done():
                future.set_result(None)

    def discard(self, channel: str) -> None:
        """Close a channel and drop its messages: its subscription has ended.

        A message of a group was not received: it goes back to the group.
        """
        if channel.startswith(GROUP_CHANNEL):
            self.forget(channel)
            return
        self.taken += (message.number for message in self._messages.pop(channel, ()))
        self._subscribed -= {channel}
        self.close(channel)

    def reopen(self, channel: str) -> None:
        """Open a channel that has a subscription, also if an earlier one of it was closed."""
        self._closed -= {channel}
        self._subscribed |= {channel}

    def forget(self, channel: str) -> None:
        """Forget a channel in which no message will arrive any more, and that has none."""
        self._messages.pop(channel, None)
        self._closed -= {channel}
        self._subscribed -= {channel}

    def is_subscribed(self, channel: str) -> bool:
        """Whether a channel gets the messages of a subscription."""
        return channel in self._subscribed

    async def take(self, channels: Sequence[str], read: Read) -> tuple[Any] | None:
        """Return the first message of any of these channels, decoded, in a tuple. Waits for one if necessary.

        None if all of the channels are closed.
        """
        while (taken := self._first(channels, read)) is None:
            if self._closed.issuperset(channels):
                return None
            future = self._new_future()
            self._waiting[future] = channels, read
            try:
                await future
            except asyncio.CancelledError:
                if future.done() and not future.cancelled():
                    for channel in channels:  # woken by a message and cancelled: another receiver may take it
                        self._wake(channel)
                raise
            finally:
                self._waiting.pop(future, None)
        return taken

    def _first(self, channels: Sequence[str], read: Read) -> tuple[Any] | None:
        """Receive the first decodable message of these channels; None without one."""
        while found := [self._messages[channel] for channel in channels if self._messages.get(channel)]:
            messages = min(found, key=lambda messages: messages[0].number)
            if (value := self._read(messages, read)) is not None:
                self.taken.append(messages.popleft().number)
                return value
            if self._is_halted:
                return None
        return None

    def _wake(self, channel: str) -> None:
        messages = self._messages.get(channel)
        if not messages:
            return
        for future, (channels, read) in self._waiting.items():
            if channel in channels and not future.done():
                while messages:
                    if self._read(messages, read) is not None:
                        future.set_result(None)
                        return
                    if self._is_halted:
                        return
                return

    def _end_wait(self, channel: str) -> None:
        """Wake the receiver of a channel that gets no message but the one that was skipped: it waits anew."""
        if channel.startswith(GROUP_CHANNEL):
            self.close(channel)

    def _read(self, messages: deque[Message], read: Read) -> tuple[Any] | None:
        """Decode the first of these messages. None if that fails: then it was skipped, or the function halted."""
        message = messages[0]
        try:
            return (read(message),)
        except Exception as error:  # noqa: BLE001  # any other error is the codec's fault, not the message's
            if message.is_checked or not isinstance(error, InvalidValueError):
                self._is_halted = True
                self._halt(f"a message for the channel {message.channel!r}", message.number, error)
            else:
                self.taken.append(messages.popleft().number)
                refused = SkippedMessage(number=message.number, channel=message.channel, why=str(error))
                self.refused = (*self.refused, refused)
                self._end_wait(message.channel)
        return None
