"""Invariants of gathered starts: F4, none is lost or counted twice, and F5, the run is due in time, in commit order."""

from collections.abc import Iterable, Iterator
from operator import attrgetter

from holdfast.kernel.history import events
from holdfast.kernel.invariants.history_facts import RunView
from holdfast.kernel.invariants.row_events import event_of
from holdfast.kernel.invariants.snapshots import Snapshot
from holdfast.kernel.invariants.violations import Violation
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.structs import evolve


def gathered_fits(seen: RunView) -> Iterator[str]:
    """F4: each start that joined a run has a row of it, before it began, and the run's input refers to all of them."""
    run, rows = seen.run, list(_joined(seen.history))
    gathered = run.gathered_starts
    if gathered is None or gathered.of is not None:
        if rows:
            yield f"row {rows[0].number} says that a start joined the run, which gathered none"
        return
    begun = next((row.number for row in seen.history if row.type == events.RunAdmitted.type), None)
    if begun is not None and rows and rows[-1].number > begun:
        yield f"row {rows[-1].number} says that a start joined the run, which had begun in row {begun}"
    numbers = [run.first_row, *(row.number for row in rows)]
    if list(gathered.numbers) != numbers:
        yield f"the inputs of its starts are in the rows {numbers}, but its input has {list(gathered.numbers)}"
    if gathered.starts != len(numbers):
        yield f"its history has {len(numbers)} starts, but the run counts {gathered.starts}"
    for index, row in enumerate(rows, 2):
        joined = event_of(row)
        if isinstance(joined, events.RunGathered) and joined.start != index:
            yield f"row {row.number} is the start {joined.start} of the run, but {index} is its place in the history"


def begins_in_time(seen: RunView) -> Iterator[str]:
    """F5: a run is due within the time that its plan allows, counted from its first start."""
    run, gather = seen.run, seen.place.plan.gather
    gathered = run.gathered_starts
    if gathered is None or gathered.of is not None or not seen.history:
        return
    if gather is None:
        yield "the run gathers starts, but its plan does not say so"
        return
    latest = seen.history[0].at + gather.within_us
    if gathered.until != latest:
        yield f"the run is to begin by {latest}, but counts on {gathered.until}"
    if run.status is RunStatus.PENDING and (run.start_at or 0) > latest:
        yield f"the run is to begin by {latest}, but waits until {run.start_at}"
    if gathered.is_open and gathered.starts >= gather.starts_max:
        yield f"the run has {gathered.starts} starts, and still gathers"


def gatherings_exist(snapshot: Snapshot) -> Iterator[Violation]:
    """F4: exactly the runs that starts may join can be found by them."""
    if snapshot.gatherings is None:
        return
    found = {row.run: row for row in snapshot.gatherings}
    for key, run in snapshot.runs.items():
        gathered = run.gathered_starts
        if run.is_gathering and gathered is not None:
            row = found.pop(key, None)
            if row is None or (row.namespace, row.name) != (run.namespace, gathered.name):
                yield Violation("F4", key, "the run gathers starts, but no start can find it")
    # A run that was blocked unread keeps its row until a start takes its name.
    for key, row in found.items():
        holder = snapshot.runs.get(key)
        if holder is None or holder.status is not RunStatus.BLOCKED:
            yield Violation("F4", key, f"starts may join the run as {row.name!r}, but it gathers none")


def changed_starts(before: Run, after: Run) -> Iterator[str]:
    """F4, F5: what a run has gathered stays, and changes only while it gathers. So does when it begins."""
    was, now = before.gathered_starts, after.gathered_starts
    if after.start_at not in (before.start_at, None) and not before.is_gathering:
        yield f"start_at of the run must not change, but changed from {before.start_at} to {after.start_at}"
    if was is None or now is None:
        if was is not now:
            yield "whether a run gathers starts must not change"
        return
    same = attrgetter("starts", "size", "items", "rows")
    if not before.is_gathering and same(was) != same(now):
        yield "a start joined a run that had begun, or ended"
    kept = list(was.numbers)
    if list(now.numbers)[: len(kept)] != kept:
        yield "the starts that a run has gathered must stay"
    if evolve(now, starts=0, size=0, items=0, rows=(), is_open=True) != evolve(
        was, starts=0, size=0, items=0, rows=(), is_open=True
    ):
        yield "how a run gathers must not change"


def start_times(history: Iterable[HistoryRow], first: int) -> Iterator[tuple[HistoryRow, int]]:
    """Yield each row with the instant before which the run must not have begun then. `first` is that of the first."""
    start_at = first
    for row in history:
        if row.type == events.RunGathered.type:
            joined = event_of(row)
            start_at = (joined.start_at or 0) if isinstance(joined, events.RunGathered) else start_at
        yield row, start_at


def _joined(history: Iterable[HistoryRow]) -> Iterator[HistoryRow]:
    return (row for row in history if row.type == events.RunGathered.type)
