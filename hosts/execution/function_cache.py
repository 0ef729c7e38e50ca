"""Functions that rest, kept in memory between wake-ups: who wakes one goes on with it, and need not replay it."""

import atexit
import threading
from collections import OrderedDict
from typing import Final

import attrs

from holdfast.hosts.execution.off_loop import drive_away
from holdfast.hosts.functions.replay import Drive
from holdfast.kernel.commands import Attempt
from holdfast.kernel.functions.machine import evict_all
from holdfast.ports.process_forks import leave_alone

FUNCTIONS_KEPT: Final = 1_000
"""How many functions a worker keeps unless it is told otherwise."""


@attrs.frozen(kw_only=True, eq=False)
class IdleFunction:
    """A function that rests: of which job, by which attempt it came to rest, and with which code."""

    job: str
    epoch: int
    code: object
    drive: Drive


class FunctionCache:
    """Keeps up to `size` functions; where one more comes, that which has rested the longest is taken out of memory.

    Safe from any thread. Nothing is ever lost with it: who finds nothing here replays the history.
    """

    def __init__(self, size: int = 0) -> None:
        self._size = size
        self._is_closed = False
        self._idle: OrderedDict[str, IdleFunction] = OrderedDict()
        self._lock = threading.Lock()

    def renew(self) -> None:
        """Begin anew, open and empty. In a forked child: the functions are its parent's."""
        leave_alone(self._idle)
        self._is_closed = False
        self._idle = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._idle)

    def keep(self, idle: IdleFunction) -> None:
        """Keep one that has come to rest: what it waits for is recorded, and nothing of it is under way."""
        idle.drive.suspend()
        with self._lock:
            out = [former] if (former := self._idle.pop(idle.job, None)) else []
            self._idle[idle.job] = idle
            while len(self._idle) > (0 if self._is_closed else self._size):
                out.append(self._idle.popitem(last=False)[1])
        _evict(out)

    def take(self, attempt: Attempt, code: object) -> Drive | None:
        """Return the function of an attempt, which is the caller's from here on; None if there is none to go on with.

        One that somebody else may have driven since is none, and neither is one of other code.
        """
        with self._lock:
            idle = self._idle.pop(attempt.job, None)
        if idle is None:
            return None
        # Each claim has an epoch of its own. If this is the next, nobody has driven it since.
        if attempt.epoch == idle.epoch + 1 and attempt.attempt == 1 and idle.code is code:
            return idle.drive
        _evict([idle])
        return None

    def forget(self, job: str, epoch: int) -> None:
        """Take out of memory what this attempt brought to rest: that was not accepted."""
        with self._lock:
            idle = self._idle.get(job)
            if idle is None or idle.epoch != epoch:
                return
            del self._idle[job]
        _evict([idle])

    def close(self) -> None:
        """Take all out of memory, and keep none from here on."""
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
        drive_away(close)


@atexit.register
def _leave_nothing() -> None:
    """Take all functions out of memory: when the interpreter takes itself apart, code that tidies up would run."""
    drive_away(evict_all)
