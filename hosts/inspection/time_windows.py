"""What a run did between two instants: steps and map items, from the history rows of that time alone."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, cast

import attrs

from holdfast.hosts.inspection.step_pages import AROUND, steps_around
from holdfast.hosts.inspection.steps import StepDetails
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.history import events
from holdfast.kernel.history.reader import rows_of
from holdfast.ports.clock import instant
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job, JobState
from holdfast.ports.records.run import Run
from holdfast.ports.records.values import Micros

ROWS_MAX: Final = 600
"""How many rows of the time are read, the first ones."""
_STATES: Final = {
    events.StageCompleted.type: "done",
    events.StageRetrying.type: "retrying",
    events.StageFailed.type: "failed",
    events.StageSuspended.type: "sleeping",
}


@attrs.frozen(kw_only=True)
class Window:
    """A part of the time of a run, in microseconds since the epoch."""

    first: Micros
    last: Micros

    @property
    def length(self) -> int:
        """Its length in microseconds."""
        return self.last - self.first


@attrs.frozen(kw_only=True)
class RowsOfTime:
    """The numbers of the history rows of a window."""

    before: int
    """The number of the row before the first one."""
    last: int
    """The number of the last one that is read."""
    number: int
    """How many there are, with those that are not read."""

    cut_at: Micros | None = None
    """The time of the last one that is read, if there are more."""


@attrs.frozen(kw_only=True)
class ItemSpan:
    """The time of an item of a map. Instants are aware, in UTC."""

    stage: str
    """The name of the map."""
    item: int
    """The index of the item."""
    state: str
    """`done`, `failed`, `retrying`, `sleeping` or `running`."""
    attempts: int
    """The number of its latest attempt."""
    started_at: datetime
    """When the first attempt that is known from these rows started."""
    ended_at: datetime | None = None
    """When it ended; None if it is open."""
    row: int = 0
    """The number of its last history row; 0 before the first."""


def rows_in(core: Core, run: Run, window: Window) -> RowsOfTime:
    """Find the history rows of a window: times grow with the numbers of rows."""
    core.connect()
    before = _first_row(core, run, window.first) - 1
    number = _first_row(core, run, window.last + 1) - 1 - before
    if number <= ROWS_MAX:
        return RowsOfTime(before=before, last=before + number, number=number)
    last = before + ROWS_MAX
    row = next(rows_of(core.stores.persistence, run, last - 1, last), None)
    cut_at = window.last if row is None else row.at
    return RowsOfTime(before=before, last=last, number=number, cut_at=cut_at)


def steps_in(core: Core, run: Run, rows: RowsOfTime) -> Sequence[StepDetails]:
    """Return the steps with rows in a window, or shortly before or after it, the latest change last."""
    return steps_around(core, run, rows.before, rows.last).steps


def items_in(core: Core, run: Run, rows: RowsOfTime, jobs: Iterable[Job]) -> Sequence[ItemSpan]:
    """Return the map items with rows in a window, or shortly before or after it, the latest change last.

    `jobs` are the live jobs of the run: items that run now follow.
    """
    found: dict[tuple[str, int], ItemSpan] = {}
    after, upto = max(0, rows.before - AROUND), min(rows.last + AROUND, run.last_row)
    for row in rows_of(core.stores.persistence, run, after, upto):
        _add_item(found, row)
    for job in jobs:
        if job.item is not None and job.state is JobState.LEASED and job.leased_at is not None:
            before = found.pop((job.node, job.item), None)
            began_at = instant(job.leased_at)
            found[job.node, job.item] = ItemSpan(
                stage=job.node,
                item=job.item,
                state="running",
                attempts=job.attempts + 1,
                started_at=began_at if before is None else before.started_at,
                row=0 if before is None else before.row,
            )
    return list(found.values())


def _add_item(found: dict[tuple[str, int], ItemSpan], row: HistoryRow) -> None:
    state = _STATES.get(row.type)
    if state is None or row.node is None or row.item is None:
        return
    event = cast("events.StageAttempt", events.event_of(row))
    before = found.pop((row.node, row.item), None)
    started_at = instant(row.at if event.started_at is None else event.started_at)
    found[row.node, row.item] = ItemSpan(
        stage=row.node,
        item=row.item,
        state=state,
        attempts=event.attempt,
        started_at=started_at if before is None else before.started_at,
        ended_at=instant(row.at) if state in {"done", "failed"} else None,
        row=row.number,
    )


def _first_row(core: Core, run: Run, at: Micros) -> int:
    """Return the number of the first row at or after an instant, or the number after the last row."""
    low, high = 1, run.last_row + 1
    while low < high:
        middle = (low + high) // 2
        row = next(rows_of(core.stores.persistence, run, middle - 1, middle), None)
        if row is not None and row.at < at:
            low = middle + 1
        else:
            high = middle
    return low
