"""A queue of hints that have arrived in this process."""

import heapq
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final

from holdfast.ports.transport import Delivery, Hint

WAITING_MAX: Final = 10_000
"""The most hints in the queue. Beyond it, the oldest are replaced by one that signals an unknown change."""
OPEN_MAX: Final = 10_000
"""The most deliveries that can be retried; older ones count as acknowledged."""


class Inbox:
    """A queue of deliveries. A delivery is repeated only on `retry`."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Reset to open and empty."""
        self._changed = threading.Condition()
        self._waiting: deque[Hint | None] = deque()
        self._later: list[tuple[float, int, Hint | None]] = []
        self._open: OrderedDict[str, Hint | None] = OrderedDict()
        self._numbers = count(1)
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def put(self, hints: Sequence[Hint | None]) -> None:
        """Add hints; None signals that something changed."""
        if not hints:
            return
        with self._changed:
            self._waiting.extend(hints)
            if len(self._waiting) > WAITING_MAX:
                self._waiting.appendleft(None)
                while len(self._waiting) > WAITING_MAX:
                    del self._waiting[1]
            self._changed.notify_all()

    def take(self, limit: int, wait: float, look: Callable[[], float] | None = None) -> Sequence[Delivery]:
        """Return up to `limit` deliveries, waiting up to `wait` seconds for the first.

        `look` is called before each wait; it may `put` hints, and returns the seconds until its next call.
        """
        until = time.monotonic() + wait
        with self._changed:
            while not self._is_closed and limit > 0:
                pause = until - time.monotonic()
                if look is not None:
                    pause = min(pause, look())
                now = time.monotonic()
                while self._later and self._later[0][0] <= now:
                    self._waiting.append(heapq.heappop(self._later)[2])
                if self._waiting:
                    return [self._deliver() for _ in range(min(limit, len(self._waiting)))]
                if now >= until:
                    break
                if self._later:
                    pause = min(pause, self._later[0][0] - now)
                self._changed.wait(max(pause, 0.0))
        return ()

    def ack(self, receipt: str) -> None:
        """Forget a delivery."""
        with self._changed:
            self._open.pop(receipt, None)

    def retry(self, receipt: str, delay: float) -> None:
        """Deliver again after `delay` seconds, with a new receipt."""
        with self._changed:
            if receipt in self._open:
                hint = self._open.pop(receipt)
                heapq.heappush(self._later, (time.monotonic() + delay, next(self._numbers), hint))
                self._changed.notify_all()

    def pause(self, seconds: float, let_go: Callable[[], None]) -> bool:
        """Block all use until `resume`, and call `let_go`. False if the queue stays in use longer than `seconds`."""
        if not self._changed.acquire(timeout=seconds):
            return False
        let_go()
        return True

    def resume(self) -> None:
        """Allow use again after `pause`."""
        self._changed.release()

    def close(self) -> None:
        """Wake all waiting calls, and deliver nothing more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _deliver(self) -> Delivery:
        hint = self._waiting.popleft()
        receipt = str(next(self._numbers))
        self._open[receipt] = hint
        if len(self._open) > OPEN_MAX:
            self._open.popitem(last=False)
        return Delivery(hint=hint, receipt=receipt)
