"""Cache of functions that were replayed for queries and updates: a later query feeds them only the new rows."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import attrs

from holdfast.hosts.execution.off_loop import run_off_loop
from holdfast.hosts.functions.function_events import Texts
from holdfast.hosts.functions.replay import FunctionReplay
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.commands import JobRecorded
from holdfast.kernel.functions.machine import FunctionMachine
from holdfast.kernel.history import events
from holdfast.ports.process_forks import leave_alone
from holdfast.ports.records.history import HistoryRow

REPLAYS_KEPT: Final = 50
"""How many such functions a process keeps."""
_READ_FIRST: Final = events.RECORDED_FIRST | {events.ResultRefused.type, events.RunCreated.type}
"""Types of rows that must be known before earlier rows are fed: these require a replay."""


@attrs.frozen(kw_only=True, eq=False)
class CachedReplay:
    """A function that was replayed up to a row, to be inspected rather than driven."""

    run: str
    workflow: Workflow[..., object]
    drive: FunctionReplay
    machine: FunctionMachine
    keys: set[str] = attrs.field(factory=set[str])
    """The idempotency keys of the updates that it received."""

    def follow(self, new_rows: Sequence[HistoryRow]) -> bool:
        """Feed the next rows; return False if the function must be replayed instead."""
        drive = self.drive
        if drive.is_over or drive.notes() or any(row.type in _READ_FIRST for row in new_rows):
            return False
        if [row.number for row in new_rows] != list(range(drive.seen + 1, drive.seen + 1 + len(new_rows))):
            return False
        drive.take(JobRecorded(status="recorded", rows=tuple(new_rows)))
        return drive.fault is None


def new_replay(
    run: str, workflow: Workflow[..., object], machine: FunctionMachine, text: Texts
) -> CachedReplay:
    """Return a replay without any rows. `text` returns the JSON text of a payload."""
    return CachedReplay(run=run, workflow=workflow, drive=FunctionReplay(machine, text), machine=machine)


class ReplayCache:
    """The cache of replays. Each is in use by one caller at a time.

    Safe from any thread. Nothing is lost with an evicted one: the history is replayed.
    """

    def __init__(self, size: int = REPLAYS_KEPT) -> None:
        self._size = size
        self._is_closed = False
        self._kept: OrderedDict[str, CachedReplay] = OrderedDict()
        self._lock = threading.Lock()

    def renew(self) -> None:
        """Reset in a forked child, open and empty: the functions belong to the parent."""
        leave_alone(self._kept)
        self._is_closed = False
        self._kept = OrderedDict()
        self._lock = threading.Lock()

    def reopen(self) -> None:
        """Accept functions again, after `close`."""
        with self._lock:
            self._is_closed = False

    def take(self, run: str, workflow: Workflow[..., object]) -> CachedReplay | None:
        """Remove and return the replay of a run; None without one of this code."""
        with self._lock:
            replay = self._kept.pop(run, None)
        if replay is not None and replay.workflow is not workflow:
            replay.drive.close()
            return None
        return replay

    def keep(self, replay: CachedReplay) -> None:
        """Keep a replay for the next caller. Evicts the least recently used one if there are too many."""
        with self._lock:
            out = [former] if (former := self._kept.pop(replay.run, None)) else []
            self._kept[replay.run] = replay
            while len(self._kept) > (0 if self._is_closed else self._size):
                out.append(self._kept.popitem(last=False)[1])
        for one in out:
            one.drive.close()

    def close(self) -> None:
        """Evict all functions, and keep none from here on."""
        with self._lock:
            self._is_closed = True
            out = list(self._kept.values())
            self._kept.clear()

        def evict() -> None:
            for one in out:
                one.drive.close()

        if out:
            run_off_loop(evict)
