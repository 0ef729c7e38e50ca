"""Cache of functions that were replayed for queries and updates: a later query feeds them only the new rows."""

from collections.abc import Sequence
from typing import Final

import attrs

from holdfast.hosts.execution.function_cache import EvictingCache
from holdfast.hosts.functions.replay import FunctionReplay
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.commands import JobRecorded
from holdfast.kernel.functions.machine import FunctionMachine
from holdfast.kernel.history import events
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


class ReplayCache(EvictingCache[CachedReplay]):
    """The cache of replays. Each is in use by one caller at a time."""

    def __init__(self, size: int = REPLAYS_KEPT) -> None:
        super().__init__(size)

    def take(self, run: str, workflow: Workflow[..., object]) -> CachedReplay | None:
        """Remove and return the replay of a run; None without one of this code."""
        replay = self._pop(run)
        if replay is not None and replay.workflow is not workflow:
            self._evict(replay)
            return None
        return replay

    def keep(self, replay: CachedReplay) -> None:
        """Keep a replay for the next caller. Evicts the least recently used one if there are too many."""
        self._put(replay.run, replay)
