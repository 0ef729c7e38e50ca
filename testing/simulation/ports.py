"""The simulated ports of a process: a fault can fire before and after each call."""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import TypeVar

from holdfast.ports.blobs import check_blob_key
from holdfast.ports.clock import instant
from holdfast.ports.errors import BlobCorruptError, BlobMissingError, EventRefusedError, UnavailableError
from holdfast.ports.events import Event
from holdfast.ports.persistence import Query, Transaction
from holdfast.ports.records.values import Micros
from holdfast.ports.transport import Delivery, Hint
from holdfast.testing.blobs import MemoryBlobStore
from holdfast.testing.simulation import faults as f
from holdfast.testing.simulation.fibers import START, WakeSignal, current
from holdfast.testing.simulation.process_life import FaultyProcess
from holdfast.testing.simulation.store import SharedStore
from holdfast.testing.simulation.user_transactions import SimulatedTransaction, begin_transaction

R = TypeVar("R")


class SimulatedClock:
    """The clock of a process, with skew, jumps and drift."""

    def __init__(self, life: FaultyProcess) -> None:
        self._life = life

    def now(self) -> datetime:
        """Return the time of the process's wall clock, which may be wrong."""
        life = self._life
        return instant(life.hub.now + life.skew + round(life.drift_seconds * 1_000_000))

    def monotonic(self) -> float:
        """Return the seconds on the monotonic clock, which stops while the process is frozen."""
        life = self._life
        return (life.hub.now - START - life.frozen) / 1_000_000 + life.drift_seconds

    def sleep(self, seconds: float, /) -> None:
        """Let virtual time pass."""
        self._life.hub.sleep(round(self._life.true_seconds(seconds) * 1_000_000))


class SimulatedPersistence:
    """A Persistence of one process, with faults."""

    def __init__(self, life: FaultyProcess, store: SharedStore) -> None:
        self._life = life
        self._store = store

    def setup(self) -> None:
        """Do nothing: the tables exist."""
        self._life.reach_point(f.READ)

    def transact(self, work: Callable[[Transaction], R], /) -> R:
        """Run `work` in a transaction. Faults: fails before, runs twice, is refused, or loses the response."""
        life, store = self._life, self._store
        kind = life.reach_point(f.WRITE)
        if kind is f.FaultKind.FAILS_BEFORE:
            raise UnavailableError("injected fault: the transaction was not started")
        if kind is f.FaultKind.RUNS_AGAIN:
            store.for_nothing(work)
        if kind is f.FaultKind.REFUSED:
            store.refuse_next()
        result = store.transact(current(), work)
        if life.reach_point(f.WRITTEN) is f.FaultKind.LOST_ANSWER:
            raise UnavailableError("injected fault: the response to the transaction was lost")
        return result

    @contextmanager
    def shared(self, wanted: type, /) -> Generator[SimulatedTransaction]:
        """See `SharesTransactions.shared`."""
        yield begin_transaction(self._life, self._store, wanted)

    def read(self, query: Query[R], /) -> R:
        """Answer a query, or raise UnavailableError."""
        if self._life.reach_point(f.READ) is f.FaultKind.FAILS_BEFORE:
            raise UnavailableError("injected fault: nothing was read")
        answer = self._store.read(query)
        self._life.reach_point(f.RETURNED)
        return answer

    def prune(self, before: Micros, /) -> int:
        """Prune the store; return the number of pruned rows."""
        self._life.reach_point(f.READ)
        return self._store.prune(before)

    def close(self) -> None:
        """Do nothing."""


class SimulatedBlobs:
    """A BlobStore of one process. A blob may be missing or corrupt for a while, as with lagging replicas."""

    def __init__(self, life: FaultyProcess, inner: MemoryBlobStore) -> None:
        self._life = life
        self._inner = inner

    def put(self, key: str, data: bytes, /) -> None:
        """Store a blob. May fail before or after."""
        if self._life.reach_point(f.BLOB_WRITE) in (f.FaultKind.FAILS_BEFORE, f.FaultKind.BLOB_FAILS):
            raise UnavailableError("injected fault: the blob was not stored")
        self._inner.put(key, data)
        if self._life.reach_point(f.WRITTEN) is f.FaultKind.LOST_ANSWER:
            raise UnavailableError("injected fault: the blob was stored, but the response was lost")

    def get(self, key: str, /) -> bytes:
        """Return a blob's bytes, or fail."""
        kind = self._life.reach_point(f.BLOB_READ)
        check_blob_key(key)
        if kind is f.FaultKind.FAILS_BEFORE:
            raise UnavailableError("injected fault: the blob was not read")
        if kind is f.FaultKind.BLOB_MISSING:
            raise BlobMissingError(key)
        if kind is f.FaultKind.BLOB_CORRUPT:
            raise BlobCorruptError(key)
        return self._inner.get(key)

    def exists(self, key: str, /) -> bool:
        """Return whether a blob exists."""
        self._life.reach_point(f.READ)
        return self._inner.exists(key)

    def delete(self, key: str, /) -> None:
        """Delete a blob."""
        self._life.reach_point(f.READ)
        self._inner.delete(key)

    def list(self, prefix: str, /) -> Iterator[str]:
        """Yield the keys with a prefix."""
        self._life.reach_point(f.READ)
        return self._inner.list(prefix)


class Inbox:
    """The hints that have arrived at one process."""

    def __init__(self, life: FaultyProcess) -> None:
        self.life = life
        self.hints: deque[Hint] = deque()
        self.arrived = WakeSignal(life.hub)

    def put(self, hint: Hint) -> None:
        """Add a hint, and wake the receiver."""
        self.hints.append(hint)
        self.arrived.set()


class HintNetwork:
    """The network that carries hints to each listening process and to the queue of the serverless hosts."""

    def __init__(self, deliver_to_queue: Callable[[Hint], None] | None = None) -> None:
        self.inboxes: list[Inbox] = []
        self.to_queue = deliver_to_queue

    def open(self, life: FaultyProcess) -> Inbox:
        """Return a new inbox for a process."""
        inbox = Inbox(life)
        self.inboxes = [one for one in self.inboxes if not one.life.is_crashed]
        self.inboxes.append(inbox)
        return inbox

    def close(self, inbox: Inbox) -> None:
        """Deliver no more hints to an inbox."""
        self.inboxes = [one for one in self.inboxes if one is not inbox]

    def arrive(self, hint: Hint) -> None:
        """Deliver a hint to all inboxes and the queue."""
        for inbox in self.inboxes:
            inbox.put(hint)
        if self.to_queue is not None:
            self.to_queue(hint)


class SimulatedTransport:
    """A JobTransport of one process. Hints may be lost, repeated, late and out of order."""

    def __init__(self, life: FaultyProcess, wires: HintNetwork, wait: float = 0.0) -> None:
        self._life = life
        self._wires = wires
        self._wait = wait
        self._inbox: Inbox | None = None

    def announce(self, hints: Sequence[Hint], /) -> None:
        """Send hints. Never fails, but the sender may crash before."""
        life, wires = self._life, self._wires
        life.reach_point((f.FaultKind.CRASH,))
        for hint in hints:
            kind = life.draw_fault(f.HINT)
            if kind is f.FaultKind.HINT_LOST:
                continue
            late = life.random.randrange(1_000, 20_000)
            if kind is f.FaultKind.HINT_LATE:
                late = life.random.randrange(1_000_000, 60_000_000)
            life.hub.at(life.hub.now + late, partial(wires.arrive, hint))
            if kind is f.FaultKind.HINT_REPEATED:
                again = life.hub.now + life.random.randrange(1_000, 10_000_000)
                life.hub.at(again, partial(wires.arrive, hint))

    def receive(self, limit: int, wait: float, /) -> Sequence[Delivery]:
        """Return hints that have arrived, waiting up to `wait` seconds for the first."""
        self._life.check()
        if self._inbox is None:
            self._inbox = self._wires.open(self._life)
        inbox = self._inbox
        if not inbox.hints:
            inbox.arrived.wait(self._life.true_seconds(max(wait, self._wait)))
        found: list[Delivery] = []
        while inbox.hints and len(found) < limit:
            found.append(Delivery(hint=inbox.hints.popleft(), receipt=""))
        return found

    def ack(self, receipt: str, /) -> None:
        """Do nothing: hints need no acknowledgement."""

    def retry(self, receipt: str, delay: float, /) -> None:
        """Do nothing: hints are not redelivered."""

    def extend(self, receipt: str, by: float, /) -> None:
        """Do nothing: hints are not redelivered."""

    def close(self) -> None:
        """Close the inbox."""
        if self._inbox is not None:
            self._wires.close(self._inbox)


class SharedSink:
    """The receiver of a sink's events, shared by all processes. It refuses some events until it is repaired."""

    def __init__(self, name: str, took: Callable[[str, Event, str], None]) -> None:
        self.name = name
        self._refused: set[tuple[str, int]] = set()
        self._is_repaired = False
        self._took = took

    def refuse(self, event: Event) -> None:
        """Refuse an event from now on, unless the receiver has been repaired."""
        if not self._is_repaired:
            self._refused.add((event.run, event.number))

    def repair(self) -> None:
        """Stop refusing events."""
        self._is_repaired = True
        self._refused.clear()

    def take(self, events: Sequence[Event], process: str) -> None:
        """Take events up to the first refused one, for which it raises EventRefusedError."""
        for event in events:
            if (event.run, event.number) in self._refused:
                raise EventRefusedError(f"injected fault: {event.id} is refused")
            self._took(self.name, event, process)


class SimulatedSink:
    """An EventSink of one process."""

    def __init__(self, life: FaultyProcess, sink: SharedSink) -> None:
        self._life = life
        self._sink = sink

    def emit(self, events: Sequence[Event], /) -> None:
        """Deliver events. May fail before, after, or at one of them."""
        kind = self._life.reach_point(f.SINK)
        if kind is f.FaultKind.SINK_FAILS:
            raise UnavailableError("injected fault: the sink is unavailable")
        if kind is f.FaultKind.SINK_REFUSES and events:
            self._sink.refuse(self._life.random.choice(events))
        self._sink.take(events, self._life.name)
        if self._life.reach_point(f.SINK) is f.FaultKind.SINK_FAILS:
            raise UnavailableError("injected fault: the sink received the events, but its response was lost")
