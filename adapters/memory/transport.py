"""A transport of hints within one process."""

import time
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from threading import Condition
from typing import Final

import attrs

from holdfast.ports.process_forks import renew_in_forks
from holdfast.ports.transport import Delivery, Hint

_STALE_ENTRIES_MAX: Final = 1_000


@attrs.define
class _Message:
    """A hint in the queue. `visible_at` is when it is delivered next, by the clock's `monotonic`."""

    hint: Hint
    visible_at: float
    deliveries: int = 0


class MemoryTransport:
    """A JobTransport within this process. It loses nothing, and redelivers hints that are not acknowledged.

    Redelivery and delays follow `monotonic`, but `receive` waits in real time, since it waits for other threads. Each
    delivery has its own receipt, and the next delivery invalidates it. Beyond `capacity` the oldest hints are dropped,
    so that a process in which nothing receives does not grow.
    """

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        visibility_seconds: float = 30.0,
        capacity: int = 100_000,
    ) -> None:
        """Create an open, empty transport. A delivery is repeated if it is not acknowledged in `visibility_seconds`."""
        self._monotonic = monotonic
        self._visibility = visibility_seconds
        self._capacity = capacity
        self.renew()
        renew_in_forks(self)

    def renew(self) -> None:
        """Reset to open and empty."""
        self._changed = Condition()
        self._numbers = count(1)
        self._messages: dict[int, _Message] = {}
        self._order: list[tuple[float, int]] = []
        self._closed = False

    def reopen(self) -> None:
        """See `Reopenable`."""
        if self._closed:
            self.renew()

    def announce(self, hints: Sequence[Hint], /) -> None:
        """Queue hints. After `close` they are lost."""
        with self._changed:
            if self._closed:
                return
            now = self._monotonic()
            for hint in hints:
                if len(self._messages) >= self._capacity:
                    del self._messages[next(iter(self._messages))]
                number = next(self._numbers)
                self._messages[number] = _Message(hint, now)
                heappush(self._order, (now, number))
            self._changed.notify_all()

    def receive(self, limit: int, wait: float, /) -> Sequence[Delivery]:
        """Return up to `limit` hints, waiting up to `wait` real seconds for the first. Empty if none arrived."""
        until = time.monotonic() + wait
        with self._changed:
            while not self._closed:
                deliveries = self._take(limit)
                remaining = until - time.monotonic()
                if deliveries or limit <= 0 or remaining <= 0:
                    return deliveries
                self._changed.wait(self._patience(remaining))
        return ()

    def ack(self, receipt: str, /) -> None:
        """Remove a delivered hint. Does nothing if it was acknowledged or redelivered before, or is unknown."""
        with self._changed:
            number, message = self._delivered(receipt)
            if message is not None:
                del self._messages[number]
                self._tidy()

    def retry(self, receipt: str, delay: float, /) -> None:
        """Redeliver after `delay` seconds."""
        self._move(receipt, delay)

    def extend(self, receipt: str, by: float, /) -> None:
        """Delay redelivery until `by` seconds from now."""
        self._move(receipt, by)

    def close(self) -> None:
        """Stop. A waiting `receive` returns. Can be called repeatedly."""
        with self._changed:
            self._closed = True
            self._messages.clear()
            self._order.clear()
            self._changed.notify_all()

    @property
    def pending(self) -> int:
        """The number of hints that are not acknowledged yet."""
        with self._changed:
            return len(self._messages)

    def _take(self, limit: int) -> list[Delivery]:
        now = self._monotonic()
        deliveries: list[Delivery] = []
        while self._order and self._order[0][0] <= now and len(deliveries) < limit:
            visible_at, number = heappop(self._order)
            message = self._messages.get(number)
            if message is None or message.visible_at != visible_at:
                continue
            message.deliveries += 1
            deliveries.append(Delivery(hint=message.hint, receipt=f"{number}.{message.deliveries}"))
            self._show_at(number, message, now + self._visibility)
        return deliveries

    def _move(self, receipt: str, seconds: float) -> None:
        with self._changed:
            number, message = self._delivered(receipt)
            if message is not None:
                self._show_at(number, message, self._monotonic() + max(seconds, 0.0))
                self._changed.notify_all()

    def _show_at(self, number: int, message: _Message, visible_at: float) -> None:
        # The old entry stays in the heap. It is skipped later, because its time is not the message's any more.
        message.visible_at = visible_at
        heappush(self._order, (visible_at, number))

    def _delivered(self, receipt: str) -> tuple[int, _Message | None]:
        text, _, delivery = receipt.partition(".")
        number = int(text) if text.isascii() and text.isdigit() else 0
        message = self._messages.get(number)
        is_current = message is not None and str(message.deliveries) == delivery and delivery != "0"
        return number, message if is_current else None

    def _patience(self, remaining: float) -> float:
        if not self._order or self._monotonic is not time.monotonic:
            return remaining  # `wake` interrupts the wait when that clock moves
        return min(remaining, max(self._order[0][0] - self._monotonic(), 0.0))

    def _tidy(self) -> None:
        if len(self._order) > 2 * len(self._messages) + _STALE_ENTRIES_MAX:
            self._order = [(message.visible_at, number) for number, message in self._messages.items()]
            heapify(self._order)

    def wake(self) -> None:
        """Check again which hints are due. Call it after moving a clock of your own."""
        with self._changed:
            self._changed.notify_all()
