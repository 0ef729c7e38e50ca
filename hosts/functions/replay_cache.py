"""Functions that were replayed to be looked at, kept in memory: who looks again tells them only what has come since."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import attrs

from holdfast.hosts.functions.function_events import NOTES, Texts
from holdfast.hosts.functions.replay import Drive
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.commands import JobRecorded
from holdfast.kernel.functions.machine import FunctionMachine
from holdfast.ports.process_forks import leave_alone
from holdfast.ports.records import RESULT_REFUSED, HistoryRow

FOLLOWERS_KEPT: Final = 50
"""How many functions a process keeps that it looks at."""
_READ_FIRST: Final = NOTES | {RESULT_REFUSED, "run.created"}
"""The types of the rows that a function must know of before it is told others: it is replayed then."""


@attrs.frozen(kw_only=True, eq=False)
class Follower:
    """A function that was told the history of a run up to a row, by the code that there is here."""

    run: str
    workflow: Workflow[..., object]
    drive: Drive
    machine: FunctionMachine
    keys: set[str] = attrs.field(factory=set[str])
    """The idempotency keys of the updates that it was told."""

    def follow(self, new_rows: Sequence[HistoryRow]) -> bool:
        """Tell it the rows that follow; return whether that can be done. If not, it is to be replayed."""
        drive = self.drive
        if drive.is_over or drive.notes() or any(row.type in _READ_FIRST for row in new_rows):
            return False
        if [row.number for row in new_rows] != list(range(drive.seen + 1, drive.seen + 1 + len(new_rows))):
            return False
        drive.take(JobRecorded(status="recorded", rows=tuple(new_rows)))
        return drive.fault is None


def new_follower(
    run: str, workflow: Workflow[..., object], machine: FunctionMachine, text: Texts
) -> Follower:
    """Return one that was told nothing yet. `text` gives the JSON text of a payload."""
    return Follower(run=run, workflow=workflow, drive=Drive(machine, text), machine=machine)


class Followers:
    """Keeps them, each for one at a time to look at. Safe from any thread. Nothing is lost with one: it is replayed."""

    def __init__(self, size: int = FOLLOWERS_KEPT) -> None:
        self._size = size
        self._is_closed = False
        self._kept: OrderedDict[str, Follower] = OrderedDict()
        self._lock = threading.Lock()

    def renew(self) -> None:
        """Begin anew, open and empty. In a forked child: the functions are its parent's."""
        leave_alone(self._kept)
        self._is_closed = False
        self._kept = OrderedDict()
        self._lock = threading.Lock()

    def take(self, run: str, workflow: Workflow[..., object]) -> Follower | None:
        """Return that of a run, which is the caller's from here on; None if there is none of this code."""
        with self._lock:
            follower = self._kept.pop(run, None)
        if follower is not None and follower.workflow is not workflow:
            follower.drive.close()
            return None
        return follower

    def keep(self, follower: Follower) -> None:
        """Keep one for whoever looks next. Where one more comes, that which nobody has looked at for longest goes."""
        with self._lock:
            out = [former] if (former := self._kept.pop(follower.run, None)) else []
            self._kept[follower.run] = follower
            while len(self._kept) > (0 if self._is_closed else self._size):
                out.append(self._kept.popitem(last=False)[1])
        for one in out:
            one.drive.close()

    def close(self) -> None:
        """Take all out of memory, and keep none from here on. Not where an event loop runs."""
        with self._lock:
            self._is_closed = True
            out = list(self._kept.values())
            self._kept.clear()
        for one in out:
            one.drive.close()
