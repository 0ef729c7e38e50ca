"""Hints that have arrived in this process and wait to be received."""

import heapq
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final

from holdfast.ports.transport import Delivery, Hint

WAITING_MAX: Final = 10_000
"""Beyond this many hints the oldest ones give way to one that says that something changed."""
OPEN_MAX: Final = 10_000
"""How many deliveries can be asked for again; those before them count as dealt with."""


class Inbox:
    """A queue of deliveries. What is delivered is not repeated unless somebody asks for it."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin anew, open and empty."""
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
        """Add hints; None says that something changed."""
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

        `look` is called before each wait and says how many seconds later it wants to be called again; it may `put`.
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
        """Deliver again after `delay` seconds, with another receipt."""
        with self._changed:
            if receipt in self._open:
                hint = self._open.pop(receipt)
                heapq.heappush(self._later, (time.monotonic() + delay, next(self._numbers), hint))
                self._changed.notify_all()

    def pause(self, seconds: float, let_go: Callable[[], None]) -> bool:
        """Keep everybody from it until `resume`, and call `let_go`. False if somebody is in it for longer than that."""
        if not self._changed.acquire(timeout=seconds):
            return False
        let_go()
        return True

    def resume(self) -> None:
        """Go on after a pause."""
        self._changed.release()

    def close(self) -> None:
        """Wake everybody up, and give out nothing any more."""
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
