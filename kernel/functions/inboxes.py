"""The messages that a function was sent, by channel, until it takes them."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from holdfast.kernel.functions.protocol import Refused
from holdfast.ports.errors import InvalidValueError

_NO_CALLS: Final[Mapping[str, tuple[str, ...]]] = {}


class Message(NamedTuple):
    """A message as it came: the name of its channel, and its JSON text. `number` is that of its row.

    `is_checked` says that its sender knew what the channel takes.
    """

    number: int
    channel: str
    text: str
    is_checked: bool = False


Read: TypeAlias = Callable[[Message], Any]
"""Gives the value of a message. InvalidValueError."""


class Inboxes:
    """Keeps messages, whether anybody waits for them or not, and gives each to whoever asks first.

    One that is not what its receiver takes wakes nobody. If its sender knew what the channel takes, the code was
    changed since, and the function is halted. Any other is passed over, and noted among those that are `refused`.

    `new_future` makes a future of the loop that the function runs on, `halt` has the function halted.
    """

    __slots__ = (
        "_closed",
        "_closes",
        "_halt",
        "_is_halted",
        "_messages",
        "_new_future",
        "_passed_over",
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
        # Most functions have none of these, and an empty set takes 216 bytes.
        self._closed: frozenset[str] = frozenset()
        self._closes: Mapping[str, tuple[str, ...]] = _NO_CALLS
        """The calls that close channels, by these: nothing has come of them yet."""
        self.taken: list[int] = []
        """The numbers of the messages that were taken since this was emptied."""
        self._passed_over: set[int] | None = None
        self.refused: tuple[Refused, ...] = ()
        """What was passed over since this was taken."""

    @property
    def is_waited_for(self) -> bool:
        """Whether anybody waits for a message."""
        return bool(self._waiting)

    @property
    def awaited(self) -> tuple[str, ...]:
        """The names of the channels from which messages are awaited, each once, in the order of the receives."""
        return tuple(dict.fromkeys(channel for channels, _ in self._waiting.values() for channel in channels))

    def has(self, channel: str) -> bool:
        """Whether there is a message of a channel that nobody has taken."""
        return bool(self._messages.get(channel))

    def take_refused(self) -> tuple[Refused, ...]:
        """Return what was passed over since this was called last."""
        refused, self.refused = self.refused, ()
        return refused

    def put(self, message: Message) -> Sequence[str]:
        """Keep a message, and wake the first who waits for one of its channel; return the calls that can't close that.

        One of a channel that is closed is for the next generation of the run, and kept by the store.
        """
        channel = message.channel
        if channel in self._closed:
            return ()
        if self._passed_over is not None and message.number in self._passed_over:
            self.taken.append(message.number)
        else:
            self._messages.setdefault(channel, deque()).append(message)
            self._wake(channel)
        return self._take_closes(channel)

    def pass_over(self, number: int) -> None:
        """Have a message passed over, for it is recorded that it was, whatever could be read of it by now."""
        if self._passed_over is None:
            self._passed_over = set()
        self._passed_over.add(number)

    def closed_by(self, channel: str, call: str) -> None:
        """Note the call that is to close a channel. A message that comes first refuses it."""
        self._closes = {**self._closes, channel: (*self._closes.get(channel, ()), call)}

    def _take_closes(self, channel: str) -> Sequence[str]:
        """Return the calls that are to close a channel, and forget them."""
        calls = self._closes.get(channel, ())
        if calls:
            self._closes = {name: one for name, one in self._closes.items() if name != channel}
        return calls

    def is_closed(self, channel: str) -> bool:
        """Whether a channel is closed."""
        return channel in self._closed

    def close(self, channel: str) -> None:
        """Note that no message comes through a channel any more, and wake all who wait for one."""
        self._take_closes(channel)
        self._closed |= {channel}
        for future, (channels, _) in self._waiting.items():
            if channel in channels and not future.done():
                future.set_result(None)

    async def take(self, channels: Sequence[str], read: Read) -> tuple[Any] | None:
        """Take the message that came first of any of these channels, waiting for one if need be; return its value.

        None if all of them are closed.
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
                    for channel in channels:  # a message woke it that it does not take: the next one may
                        self._wake(channel)
                raise
            finally:
                self._waiting.pop(future, None)
        return taken

    def _first(self, channels: Sequence[str], read: Read) -> tuple[Any] | None:
        """Take the message that came first of any of these channels, and can be read; return its value."""
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

    def _read(self, messages: deque[Message], read: Read) -> tuple[Any] | None:
        """Return the value of the first of these messages. If it can't be read, it is gone or the function halted."""
        message = messages[0]
        try:
            return (read(message),)
        except Exception as error:  # noqa: BLE001  # what else a codec raises is no fault of the message's
            if message.is_checked or not isinstance(error, InvalidValueError):
                self._is_halted = True
                self._halt(f"a message for the channel {message.channel!r}", message.number, error)
            else:
                self.taken.append(messages.popleft().number)
                refused = Refused(number=message.number, channel=message.channel, why=str(error))
                self.refused = (*self.refused, refused)
        return None
