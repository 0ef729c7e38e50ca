"""The messages that a function was sent, by channel, until it takes them."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Message(NamedTuple):
    """A message as it came: the name of its channel, and its JSON text. `number` is that of its row."""

    number: int
    channel: str
    text: str


class Inboxes:
    """Keeps messages, whether anybody waits for them or not, and gives each to whoever asks first.

    `new_future` makes a future of the loop that the function runs on.
    """

    __slots__ = ("_messages", "_new_future", "_waiting")

    def __init__(self, new_future: "Callable[[], asyncio.Future[Any]]") -> None:
        self._new_future = new_future
        self._messages: dict[str, deque[Message]] = {}
        self._waiting: dict[asyncio.Future[None], Sequence[str]] = {}

    @property
    def is_waited_for(self) -> bool:
        """Whether anybody waits for a message."""
        return bool(self._waiting)

    @property
    def left(self) -> tuple[int, ...]:
        """The numbers of the messages that nobody has taken, in order."""
        return tuple(sorted(one.number for messages in self._messages.values() for one in messages))

    def put(self, channel: str, text: str, number: int) -> None:
        """Keep a message, and wake the first who waits for one of its channel."""
        self._messages.setdefault(channel, deque()).append(Message(number, channel, text))
        self._wake(channel)

    async def take(self, channels: Sequence[str]) -> Message:
        """Take the message that came first of any of these channels, waiting for one if need be."""
        while (message := self._first(channels)) is None:
            future = self._new_future()
            self._waiting[future] = channels
            try:
                await future
            except asyncio.CancelledError:
                if future.done() and not future.cancelled():
                    for channel in channels:  # a message woke it that it does not take: the next one may
                        self._wake(channel)
                raise
            finally:
                self._waiting.pop(future, None)
        return message

    def _first(self, channels: Sequence[str]) -> Message | None:
        found = [self._messages[channel] for channel in channels if self._messages.get(channel)]
        if not found:
            return None
        return min(found, key=lambda messages: messages[0].number).popleft()

    def _wake(self, channel: str) -> None:
        if not self._messages.get(channel):
            return
        for future, channels in self._waiting.items():
            if channel in channels and not future.done():
                future.set_result(None)
                return
