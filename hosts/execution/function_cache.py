"""Cache of waiting durable functions: one that is woken continues from memory instead of being replayed."""

import atexit
import threading
from collections import OrderedDict
from typing import Final, Generic, Protocol, TypeVar

import attrs

from holdfast.hosts.execution.off_loop import run_off_loop
from holdfast.kernel.commands import Attempt
from holdfast.kernel.functions.machine import evict_all
from holdfast.ports.process_forks import leave_alone

Kept = TypeVar("Kept", bound="HasFunction")

FUNCTIONS_KEPT: Final = 1_000
"""The default number of functions that a worker keeps."""


class Closable(Protocol):
    """A function in memory."""

    def close(self) -> None:
        """Evict the function from memory. Its code runs its clean-up handlers without effect."""
        ...


class SuspendedFunction(Closable, Protocol):
    """A function in memory that waits."""

    def suspend(self) -> None:
        """Release what the function does not need while it waits."""
        ...


@attrs.frozen(kw_only=True, eq=False)
class IdleFunction:
    """A durable function that waits, suspended in memory."""

    job: str
    """The job that drives it."""
    epoch: int
    """The epoch of the attempt that suspended it."""
    code: object
    """The workflow that it is an execution of: a deploy in the same process makes another object."""
    drive: SuspendedFunction


class HasFunction(Protocol):
    """What a cache keeps of a function."""

    @property
    def drive(self) -> Closable:
        """The function in memory."""
        ...


class EvictingCache(Generic[Kept]):
    """Keeps up to `size` functions in memory, and evicts the one that was kept longest.

    Safe from any thread. Nothing is lost with an evicted function: the history is replayed instead.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._is_closed = False
        self._idle: OrderedDict[str, Kept] = OrderedDict()
        self._lock = threading.Lock()

    def renew(self) -> None:
        """Reset in a forked child, open and empty: the functions belong to the parent."""
        leave_alone(self._idle)
        self._is_closed = False
        self._idle = OrderedDict()
        self._lock = threading.Lock()

    def reopen(self) -> None:
        """Accept functions again, after `close`."""
        with self._lock:
            self._is_closed = False

    def __len__(self) -> int:
        """Return the number of functions."""
        return len(self._idle)

    def close(self) -> None:
        """Evict all functions, and keep none from now on."""
        with self._lock:
            self._is_closed = True
            out = list(self._idle.values())
            self._idle.clear()
        self._evict(*out)

    def _put(self, key: str, kept: Kept) -> None:
        with self._lock:
            out = [former] if (former := self._idle.pop(key, None)) else []
            self._idle[key] = kept
            while len(self._idle) > (0 if self._is_closed else self._size):
                out.append(self._idle.popitem(last=False)[1])
        self._evict(*out)

    def _pop(self, key: str) -> Kept | None:
        with self._lock:
            return self._idle.pop(key, None)

    def _evict(self, *functions: Kept) -> None:
        def close() -> None:
            for one in functions:
                one.drive.close()

        if functions:
            run_off_loop(close)


class FunctionCache(EvictingCache[IdleFunction]):
    """The cache of waiting functions."""

    def __init__(self, size: int = 0) -> None:
        super().__init__(size)

    def keep(self, idle: IdleFunction) -> None:
        """Suspend and keep a function that waits: its requests are recorded, and nothing of it is running."""
        idle.drive.suspend()
        self._put(idle.job, idle)

    def find(self, attempt: Attempt, code: object) -> SuspendedFunction | None:
        """Return the function of an attempt, and keep it; None without one that is up to date."""
        with self._lock:
            idle = self._idle.get(attempt.job)
        return idle.drive if idle is not None and _is_up_to_date(idle, attempt, code) else None

    def take(self, attempt: Attempt, code: object) -> SuspendedFunction | None:
        """Remove and return the function of an attempt; None without one that is up to date.

        It is evicted if another worker may have driven it since, or if the code is another.
        """
        idle = self._pop(attempt.job)
        if idle is None:
            return None
        if _is_up_to_date(idle, attempt, code):
            return idle.drive
        self._evict(idle)
        return None

    def forget(self, job: str, epoch: int) -> None:
        """Evict the function that this attempt suspended: the settle of the attempt was refused."""
        with self._lock:
            idle = self._idle.get(job)
            if idle is None or idle.epoch != epoch:
                return
            del self._idle[job]
        self._evict(idle)


def _is_up_to_date(idle: IdleFunction, attempt: Attempt, code: object) -> bool:
    # Every claim raises the epoch by one: if this is the next epoch, no other worker has driven it since.
    return attempt.epoch == idle.epoch + 1 and attempt.attempt == 1 and idle.code is code


@atexit.register
def _leave_nothing() -> None:
    """Evict all functions before the interpreter shuts down, which would otherwise run their `finally` blocks."""
    run_off_loop(evict_all)
