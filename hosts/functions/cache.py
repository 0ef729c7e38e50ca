"""Functions that rest, kept in memory between wake-ups: who wakes one goes on with it, and need not replay it."""

import atexit
import threading
from collections import OrderedDict
from typing import Final

import attrs

from holdfast.hosts.functions.away import drive_away
from holdfast.hosts.functions.drive import Drive
from holdfast.kernel.commands import Attempt
from holdfast.kernel.functions.machine import evict_all
from holdfast.ports.forks import leave_alone

FUNCTIONS_KEPT: Final = 1_000
"""How many functions a worker keeps unless it is told otherwise."""


@attrs.frozen(kw_only=True, eq=False)
class Rested:
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
        self._rested: OrderedDict[str, Rested] = OrderedDict()
        self._lock = threading.Lock()

    def renew(self) -> None:
        """Begin anew, open and empty. In a forked child: the functions are its parent's."""
        leave_alone(self._rested)
        self._is_closed = False
        self._rested = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._rested)

    def keep(self, rested: Rested) -> None:
        """Keep one that has come to rest: what it waits for is recorded, and nothing of it is under way."""
        rested.drive.rest()
        with self._lock:
            out = [former] if (former := self._rested.pop(rested.job, None)) else []
            self._rested[rested.job] = rested
            while len(self._rested) > (0 if self._is_closed else self._size):
                out.append(self._rested.popitem(last=False)[1])
        _evict(out)

    def take(self, attempt: Attempt, code: object) -> Drive | None:
        """Return the function of an attempt, which is the caller's from here on; None if there is none to go on with.

        One that somebody else may have driven since is none, and neither is one of other code.
        """
        with self._lock:
            rested = self._rested.pop(attempt.job, None)
        if rested is None:
            return None
        # Each claim has an epoch of its own. If this is the next, nobody has driven it since.
        if attempt.epoch == rested.epoch + 1 and attempt.attempt == 1 and rested.code is code:
            return rested.drive
        _evict([rested])
        return None

    def forget(self, job: str, epoch: int) -> None:
        """Take out of memory what this attempt brought to rest: that was not accepted."""
        with self._lock:
            rested = self._rested.get(job)
            if rested is None or rested.epoch != epoch:
                return
            del self._rested[job]
        _evict([rested])

    def close(self) -> None:
        """Take all out of memory, and keep none from here on."""
        with self._lock:
            self._is_closed = True
            out = list(self._rested.values())
            self._rested.clear()
        _evict(out)


def _evict(rested: list[Rested]) -> None:
    def close() -> None:
        for one in rested:
            one.drive.close()

    if rested:
        drive_away(close)


@atexit.register
def _leave_nothing() -> None:
    """Take all functions out of memory: when the interpreter takes itself apart, code that tidies up would run."""
    drive_away(evict_all)
