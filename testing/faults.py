"""Faulty ports: wrappers that fail before or after a call."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from itertools import repeat
from random import Random
from threading import Lock
from typing import Final

from typing_extensions import TypeVar

from holdfast.ports.blobs import BlobStore
from holdfast.ports.errors import UnavailableError
from holdfast.ports.events import Event, EventSink
from holdfast.ports.persistence import Persistence, Query, Transaction
from holdfast.ports.records.values import Micros

R = TypeVar("R")


class Fault(StrEnum):
    """A kind of fault in a call."""

    FAILS_BEFORE = "fails_before"
    """Nothing is done, and UnavailableError is raised."""
    LOST_ANSWER = "lost_answer"
    """The call succeeds, but UnavailableError is raised."""
    RUNS_AGAIN = "runs_again"
    """A transaction runs, is rolled back and runs again, as after a deadlock. The caller does not notice."""


_READ_FAULTS: Final = frozenset({Fault.FAILS_BEFORE})
_WRITE_FAULTS: Final = frozenset({Fault.FAILS_BEFORE, Fault.LOST_ANSWER})


class FaultPlan:
    """Decides for each call which fault it has, and counts them. Thread-safe."""

    def __init__(self, faults: Iterable[Fault | None]) -> None:
        """`faults` are the faults of consecutive calls, None for no fault. Later calls have no fault."""
        self._lock = Lock()
        self._faults = iter(faults)
        self._healed = False
        self._fired: Counter[Fault] = Counter()

    @classmethod
    def always(cls, fault: Fault) -> "FaultPlan":
        """Return a plan with this fault in every call."""
        return cls(repeat(fault))

    @classmethod
    def seeded(
        cls, seed: int, *, fails_before: float = 0.0, lost_answer: float = 0.0, runs_again: float = 0.0
    ) -> "FaultPlan":
        """Return a random plan, determined by the seed. Each number is the probability (0 to 1) of a fault per call."""
        return cls(_drawn(seed, (fails_before, lost_answer, runs_again)))

    @property
    def fired(self) -> Mapping[Fault, int]:
        """The number of times that each fault has fired. Assert on it: a fault that never fired tested nothing."""
        with self._lock:
            return dict(self._fired)

    def heal(self) -> None:
        """Stop all faults."""
        with self._lock:
            self._healed = True

    def next(self, among: frozenset[Fault]) -> Fault | None:
        """Return the next fault if it is among those possible for the call; else None."""
        with self._lock:
            fault = None if self._healed else next(self._faults, None)
            if fault is None or fault not in among:
                return None
            self._fired[fault] += 1
            return fault


class FaultyPersistence:
    """A Persistence whose transactions fail according to a plan; reads only fail before the call.

    An adapter hides lost answers from its callers (see `Persistence.transact`), unless the store is unavailable for too
    long. This wrapper shows the result of that: UnavailableError with an unknown outcome.
    """

    def __init__(self, inner: Persistence, plan: FaultPlan) -> None:
        """`inner` is the real store."""
        self._inner = inner
        self._plan = plan

    @property
    def fired(self) -> Mapping[Fault, int]:
        """The number of times that each fault has fired."""
        return self._plan.fired

    def setup(self) -> None:
        """Create the tables, without faults."""
        self._inner.setup()

    def transact(self, work: Callable[[Transaction], R], /) -> R:
        """Run `work` in a transaction, or fail according to the plan."""
        fault = self._plan.next(frozenset(Fault))
        _raise_before(fault, "transaction")
        if fault is Fault.RUNS_AGAIN:
            self._run_for_nothing(work)
        result = self._inner.transact(work)
        _raise_after(fault, "transaction")
        return result

    def read(self, query: Query[R], /) -> R:
        """Answer a query, or fail according to the plan."""
        _raise_before(self._plan.next(frozenset({Fault.FAILS_BEFORE})), "read")
        return self._inner.read(query)

    def prune(self, before: Micros, /) -> int:
        """Delete expired rows, without faults."""
        return self._inner.prune(before)

    def close(self) -> None:
        """Close the store."""
        self._inner.close()

    def _run_for_nothing(self, work: Callable[[Transaction], R]) -> None:
        def attempt(tx: Transaction) -> None:
            work(tx)
            raise _RolledBack

        with suppress(_RolledBack):
            self._inner.transact(attempt)


class FaultyBlobStore:
    """A BlobStore whose calls fail according to a plan; only `put` and `delete` can lose an answer."""

    def __init__(self, inner: BlobStore, plan: FaultPlan) -> None:
        """`inner` is the real store."""
        self._inner = inner
        self._plan = plan

    @property
    def fired(self) -> Mapping[Fault, int]:
        """The number of times that each fault has fired."""
        return self._plan.fired

    def put(self, key: str, data: bytes, /) -> None:
        """Store bytes, or fail according to the plan."""
        fault = self._plan.next(_WRITE_FAULTS)
        _raise_before(fault, "put")
        self._inner.put(key, data)
        _raise_after(fault, "put")

    def get(self, key: str, /) -> bytes:
        """Return the bytes, or fail according to the plan."""
        _raise_before(self._plan.next(_READ_FAULTS), "get")
        return self._inner.get(key)

    def exists(self, key: str, /) -> bool:
        """Return whether the key has a blob, or fail according to the plan."""
        _raise_before(self._plan.next(_READ_FAULTS), "exists")
        return self._inner.exists(key)

    def delete(self, key: str, /) -> None:
        """Delete a blob, or fail according to the plan."""
        fault = self._plan.next(_WRITE_FAULTS)
        _raise_before(fault, "delete")
        self._inner.delete(key)
        _raise_after(fault, "delete")

    def list(self, prefix: str, /) -> Iterator[str]:
        """Yield the keys that start with `prefix`, or fail according to the plan."""
        _raise_before(self._plan.next(_READ_FAULTS), "list")
        yield from self._inner.list(prefix)


class FaultySink:
    """An EventSink that fails according to a plan, before or after its delivery."""

    def __init__(self, inner: EventSink, plan: FaultPlan) -> None:
        """`inner` is the real sink."""
        self._inner = inner
        self._plan = plan

    @property
    def fired(self) -> Mapping[Fault, int]:
        """The number of times that each fault has fired."""
        return self._plan.fired

    def emit(self, events: Sequence[Event], /) -> None:
        """Deliver events, or fail according to the plan."""
        fault = self._plan.next(_WRITE_FAULTS)
        _raise_before(fault, "emit")
        self._inner.emit(events)
        _raise_after(fault, "emit")


class _RolledBack(Exception):  # noqa: N818  # it reports no error
    """Rolls a transaction back on purpose."""


def _drawn(seed: int, chances: tuple[float, float, float]) -> Iterator[Fault | None]:
    random = Random(seed)  # noqa: S311  # to be foreseeable is the point
    bounds = (chances[0], chances[0] + chances[1], sum(chances))
    while True:
        drawn = random.random()
        yield next((fault for fault, bound in zip(Fault, bounds, strict=True) if drawn < bound), None)


def _raise_before(fault: Fault | None, doing: str) -> None:
    if fault is Fault.FAILS_BEFORE:
        raise UnavailableError(f"injected fault: the {doing} was not started")


def _raise_after(fault: Fault | None, doing: str) -> None:
    if fault is Fault.LOST_ANSWER:
        raise UnavailableError(f"injected fault: the response to the {doing} was lost")
