"""Cache of waiting durable functions: one that is woken continues from memory instead of being replayed."""

import atexit
import threading
from collections import OrderedDict
from typing import Final, Protocol

import attrs

from holdfast.hosts.execution.off_loop import run_off_loop
from holdfast.kernel.commands import Attempt
from holdfast.kernel.functions.machine import evict_all
from holdfast.ports.process_forks import leave_alone

FUNCTIONS_KEPT: Final = 1_000
"""The default number of functions that a worker keeps."""


class SuspendedFunction(Protocol):
    """A function in memory that waits."""

    def suspend(self) -> None:
        """Release what the function does not need while it waits."""
        ...

    def close(self) -> None:
        """Evict the function from memory. Its code runs its clean-up handlers without effect."""
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


class FunctionCache:
    """Keeps up to `size` waiting functions, and evicts the one that has waited longest.

    Safe from any thread. Nothing is lost with an evicted function: the history is replayed instead.
    """

    def __init__(self, size: int = 0) -> None:
        self._size = size
        self._is_closed = False
        self._idle: OrderedDict[str, IdleFunction] = OrderedDict()
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

    def keep(self, idle: IdleFunction) -> None:
        """Suspend and keep a function that waits: its requests are recorded, and nothing of it is running."""
        idle.drive.suspend()
        with self._lock:
            out = [former] if (former := self._idle.pop(idle.job, None)) else []
            self._idle[idle.job] = idle
            while len(self._idle) > (0 if self._is_closed else self._size):
                out.append(self._idle.popitem(last=False)[1])
        _evict(out)

    def take(self, attempt: Attempt, code: object) -> SuspendedFunction | None:
        """Remove and return the function of an attempt; None without one that is up to date.

        It is evicted if another worker may have driven it since, or if the code is another.
        """
        with self._lock:
            idle = self._idle.pop(attempt.job, None)
        if idle is None:
            return None
        # Every claim raises the epoch by one: if this is the next epoch, no other worker has driven it since.
        if attempt.epoch == idle.epoch + 1 and attempt.attempt == 1 and idle.code is code:
            return idle.drive
        _evict([idle])
        return None

    def forget(self, job: str, epoch: int) -> None:
        """Evict the function that this attempt suspended: the settle of the attempt was refused."""
        with self._lock:
            idle = self._idle.get(job)
            if idle is None or idle.epoch != epoch:
                return
            del self._idle[job]
        _evict([idle])

    def close(self) -> None:
        """Evict all functions, and keep none from now on."""
        with self._lock:
            self._is_closed = True
            out = list(self._idle.values())
            self._idle.clear()
        _evict(out)


def _evict(functions: list[IdleFunction]) -> None:
    def close() -> None:
        for one in functions:
            one.drive.close()

    if functions:
        run_off_loop(close)


@atexit.register
def _leave_nothing() -> None:
    """Evict all functions before the interpreter shuts down, which would otherwise run their `finally` blocks."""
    run_off_loop(evict_all)
