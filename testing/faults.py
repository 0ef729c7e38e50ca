"""Ports that fail: before they did anything, or after they did it."""

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
from holdfast.ports.records import Micros

R = TypeVar("R")


class Fault(StrEnum):
    """What goes wrong in a call.

    `fails_before`: nothing is done, and UnavailableError is raised. `lost_answer`: it is done, and UnavailableError
    is raised all the same. `runs_again`: a transaction's work is run, rolled back, and run again, as after a
    deadlock; its caller sees nothing of it.
    """

    FAILS_BEFORE = "fails_before"
    LOST_ANSWER = "lost_answer"
    RUNS_AGAIN = "runs_again"


_READ_FAULTS: Final = frozenset({Fault.FAILS_BEFORE})
_WRITE_FAULTS: Final = frozenset({Fault.FAILS_BEFORE, Fault.LOST_ANSWER})


class FaultPlan:
    """Decides for each call what goes wrong in it, and counts what did. Safe to use from several threads."""

    def __init__(self, faults: Iterable[Fault | None]) -> None:
        """The first call gets the first of `faults`, and so on; when they are used up, all goes well."""
        self._lock = Lock()
        self._faults = iter(faults)
        self._healed = False
        self._fired: Counter[Fault] = Counter()

    @classmethod
    def always(cls, fault: Fault) -> "FaultPlan":
        """Let every call fail in this way."""
        return cls(repeat(fault))

    @classmethod
    def seeded(
        cls, seed: int, *, fails_before: float = 0.0, lost_answer: float = 0.0, runs_again: float = 0.0
    ) -> "FaultPlan":
        """Let calls fail by chance, as a seed decides; each number is the chance (0 to 1) of one fault in one call."""
        return cls(_drawn(seed, (fails_before, lost_answer, runs_again)))

    @property
    def fired(self) -> Mapping[Fault, int]:
        """How often each fault has fired. Assert on it: a fault that never fired tested nothing."""
        with self._lock:
            return dict(self._fired)

    def heal(self) -> None:
        """Let all go well from now on."""
        with self._lock:
            self._healed = True

    def next(self, among: frozenset[Fault]) -> Fault | None:
        """Return what is to go wrong in a call, if it is one of the faults that such a call can have."""
        with self._lock:
            fault = None if self._healed else next(self._faults, None)
            if fault is None or fault not in among:
                return None
            self._fired[fault] += 1
            return fault


class FaultyPersistence:
    """A Persistence whose transactions fail as a plan says; reads can only fail before.

    An adapter hides lost answers from its callers (see `Persistence.transact`), unless the store stays away for too
    long. This shows them what they see then: UnavailableError, and not knowing whether it was done.
    """

    def __init__(self, inner: Persistence, plan: FaultPlan) -> None:
        """`inner` does the work."""
        self._inner = inner
        self._plan = plan

    @property
    def fired(self) -> Mapping[Fault, int]:
        """How often each fault has fired."""
        return self._plan.fired

    def setup(self) -> None:
        """Make the tables, without faults."""
        self._inner.setup()

    def transact(self, work: Callable[[Transaction], R], /) -> R:
        """Run `work` in a transaction, or fail as the plan says."""
        fault = self._plan.next(frozenset(Fault))
        _raise_before(fault, "transaction")
        if fault is Fault.RUNS_AGAIN:
            self._run_for_nothing(work)
        result = self._inner.transact(work)
        _raise_after(fault, "transaction")
        return result

    def read(self, query: Query[R], /) -> R:
        """Answer a question, or fail as the plan says."""
        _raise_before(self._plan.next(frozenset({Fault.FAILS_BEFORE})), "read")
        return self._inner.read(query)

    def prune(self, before: Micros, /) -> int:
        """Remove what is old, without faults."""
        return self._inner.prune(before)

    def close(self) -> None:
        """Give up all connections."""
        self._inner.close()

    def _run_for_nothing(self, work: Callable[[Transaction], R]) -> None:
        def attempt(tx: Transaction) -> None:
            work(tx)
            raise _RolledBack

        with suppress(_RolledBack):
            self._inner.transact(attempt)


class FaultyBlobStore:
    """A BlobStore whose calls fail as a plan says; only `put` and `delete` can lose an answer."""

    def __init__(self, inner: BlobStore, plan: FaultPlan) -> None:
        """`inner` does the work."""
        self._inner = inner
        self._plan = plan

    @property
    def fired(self) -> Mapping[Fault, int]:
        """How often each fault has fired."""
        return self._plan.fired

    def put(self, key: str, data: bytes, /) -> None:
        """Store bytes, or fail as the plan says."""
        fault = self._plan.next(_WRITE_FAULTS)
        _raise_before(fault, "put")
        self._inner.put(key, data)
        _raise_after(fault, "put")

    def get(self, key: str, /) -> bytes:
        """Return the bytes, or fail as the plan says."""
        _raise_before(self._plan.next(_READ_FAULTS), "get")
        return self._inner.get(key)

    def exists(self, key: str, /) -> bool:
        """Return whether there is a blob of this key, or fail as the plan says."""
        _raise_before(self._plan.next(_READ_FAULTS), "exists")
        return self._inner.exists(key)

    def delete(self, key: str, /) -> None:
        """Take a blob away, or fail as the plan says."""
        fault = self._plan.next(_WRITE_FAULTS)
        _raise_before(fault, "delete")
        self._inner.delete(key)
        _raise_after(fault, "delete")

    def list(self, prefix: str, /) -> Iterator[str]:
        """Yield the keys that start with `prefix`, or fail as the plan says."""
        _raise_before(self._plan.next(_READ_FAULTS), "list")
        yield from self._inner.list(prefix)


class FaultySink:
    """An EventSink that fails as a plan says, before or after it took the events."""

    def __init__(self, inner: EventSink, plan: FaultPlan) -> None:
        """`inner` takes the events."""
        self._inner = inner
        self._plan = plan

    @property
    def fired(self) -> Mapping[Fault, int]:
        """How often each fault has fired."""
        return self._plan.fired

    def emit(self, events: Sequence[Event], /) -> None:
        """Take these events, or fail as the plan says."""
        fault = self._plan.next(_WRITE_FAULTS)
        _raise_before(fault, "emit")
        self._inner.emit(events)
        _raise_after(fault, "emit")


class _RolledBack(Exception):  # noqa: N818  # it reports no error
    """Makes a transaction be rolled back, on purpose."""


def _drawn(seed: int, chances: tuple[float, float, float]) -> Iterator[Fault | None]:
    random = Random(seed)  # noqa: S311  # to be foreseeable is the point
    bounds = (chances[0], chances[0] + chances[1], sum(chances))
    while True:
        drawn = random.random()
        yield next((fault for fault, bound in zip(Fault, bounds, strict=True) if drawn < bound), None)


def _raise_before(fault: Fault | None, doing: str) -> None:
    if fault is Fault.FAILS_BEFORE:
        raise UnavailableError(f"fault on purpose: the {doing} was not begun")


def _raise_after(fault: Fault | None, doing: str) -> None:
    if fault is Fault.LOST_ANSWER:
        raise UnavailableError(f"fault on purpose: the answer to the {doing} was lost")
