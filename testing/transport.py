"""Transports for tests: one with a manual clock, one that drops every hint, and a faulty one."""

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from threading import Lock

from holdfast.adapters.memory.transport import MemoryTransport
from holdfast.ports.transport import Delivery, Hint, JobTransport, delivers_run_hints
from holdfast.testing.clock import ManualClock


def memory_transport(clock: ManualClock, *, visibility_seconds: float = 30.0) -> MemoryTransport:
    """Return an in-memory transport whose redeliveries follow a manual clock."""
    transport = MemoryTransport(clock.monotonic, visibility_seconds=visibility_seconds)
    clock.watch(transport.wake)
    return transport


class NullTransport:
    """A JobTransport that drops every hint, for hosts that poll the store."""

    def announce(self, hints: Sequence[Hint], /) -> None:
        """Drop hints."""

    def receive(self, limit: int, wait: float, /) -> Sequence[Delivery]:
        """Return nothing, at once."""
        del limit, wait
        return ()

    def ack(self, receipt: str, /) -> None:
        """Do nothing."""

    def retry(self, receipt: str, delay: float, /) -> None:
        """Do nothing."""

    def extend(self, receipt: str, by: float, /) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class FaultyTransport:
    """A JobTransport that loses, repeats, delays and reorders hints at random, as a seed determines.

    A delayed hint is sent after up to eight further calls of `receive`. `heal` ends all faults. `fired` counts them, so
    that a test can check that it tested anything. Thread-safe, but reproducible only within one thread.
    """

    def __init__(
        self,
        inner: JobTransport,
        seed: int,
        *,
        loses: float = 0.1,
        repeats: float = 0.1,
        delays: float = 0.1,
        reorders: float = 0.1,
    ) -> None:
        """`loses`, `repeats` and `delays` are probabilities per hint, `reorders` per batch; 0 to 1."""
        self._inner = inner
        self._random = Random(seed)  # noqa: S311  # to be foreseeable is the point
        self._lock = Lock()
        self._loses = loses
        self._repeats = repeats
        self._delays = delays
        self._reorders = reorders
        self._fired: Counter[str] = Counter()
        self._delayed: list[tuple[int, Hint]] = []
        self._calls = 0

    @property
    def delivers_run_hints(self) -> bool:
        """Whether the inner transport carries hints about runs."""
        return delivers_run_hints(self._inner)

    @property
    def fired(self) -> Mapping[str, int]:
        """The number of times that each fault has fired: `lost`, `repeated`, `delayed`, `reordered`."""
        with self._lock:
            return dict(self._fired)

    def heal(self) -> None:
        """Stop all faults, and send delayed hints at the next call of `receive`."""
        with self._lock:
            self._loses = self._repeats = self._delays = self._reorders = 0.0
            self._calls += 8

    def announce(self, hints: Sequence[Hint], /) -> None:
        """Send hints: some are lost, repeated, delayed or reordered."""
        with self._lock:
            sent = [copy for hint in hints for copy in self._fate(hint)]
            if len(sent) > 1 and self._happens("reordered", self._reorders):
                self._random.shuffle(sent)
        self._inner.announce(sent)

    def receive(self, limit: int, wait: float, /) -> Sequence[Delivery]:
        """Return hints of the inner transport, and delayed ones."""
        with self._lock:
            self._calls += 1
            late = [hint for until, hint in self._delayed if until <= self._calls]
            self._delayed = [(until, hint) for until, hint in self._delayed if until > self._calls]
        if late:
            self._inner.announce(late)
        deliveries = list(self._inner.receive(limit, wait))
        with self._lock:
            if len(deliveries) > 1 and self._happens("reordered", self._reorders):
                self._random.shuffle(deliveries)
        return deliveries

    def ack(self, receipt: str, /) -> None:
        """Acknowledge a delivery; or lose the acknowledgement, so that the delivery is repeated."""
        with self._lock:
            is_lost = self._happens("repeated", self._repeats)
        if not is_lost:
            self._inner.ack(receipt)

    def retry(self, receipt: str, delay: float, /) -> None:
        """Request redelivery after `delay` seconds."""
        self._inner.retry(receipt, delay)

    def extend(self, receipt: str, by: float, /) -> None:
        """Postpone the redelivery by another `by` seconds."""
        self._inner.extend(receipt, by)

    def close(self) -> None:
        """Close the inner transport."""
        self._inner.close()

    def _fate(self, hint: Hint) -> list[Hint]:
        if self._happens("lost", self._loses):
            return []
        if self._happens("delayed", self._delays):
            self._delayed.append((self._calls + self._random.randint(1, 8), hint))
            return []
        return [hint, hint] if self._happens("repeated", self._repeats) else [hint]

    def _happens(self, fault: str, chance: float) -> bool:
        happens = self._random.random() < chance
        self._fired[fault] += happens
        return happens
