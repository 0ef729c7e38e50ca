"""Checks of rates of starts: how many units start in a period (F8), and that runs of a line begin in order (F9)."""

from collections import deque
from collections.abc import Iterator

from holdfast.kernel.invariants.limit_checks import is_changed
from holdfast.kernel.invariants.snapshots import Snapshot
from holdfast.kernel.invariants.violations import Violation
from holdfast.ports.records.limits import RateName
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.records.values import Micros


def units_in_periods(snapshot: Snapshot) -> Iterator[Violation]:
    """F8: no span of a rate's period has more units of starts than its limit.

    Of runs with different numbers for a rate, the highest limit and the shortest period count. Rates that were changed
    while running are left out: their runs may exceed those of plans.
    """
    by_rate: dict[RateName, list[Run]] = {}
    for run in snapshot.runs.values():
        if run.rate is not None and run.rate_counted_at is not None:
            by_rate.setdefault(run.rate, []).append(run)
    for name, runs in by_rate.items():
        limit = max(run.rate_limit or 0 for run in runs)
        period = min(run.rate_period or 0 for run in runs)
        if any(is_changed(snapshot, run) for run in runs):
            continue
        # A generation that continues another, or is its next attempt, is not a start: it keeps the instant.
        starts = {(run.rate_counted_at or 0, run.id): run.rate_units or 0 for run in runs}
        in_span: deque[tuple[Micros, int]] = deque()
        for (at, _), units in sorted(starts.items()):
            in_span.append((at, units))
            while in_span[0][0] + period <= at:
                in_span.popleft()
            used = sum(many for _, many in in_span)
            if used > limit:
                found = f"{used} units started in {period} us until {at}, but its limit is {limit}"
                yield Violation("F8", name.name, found)
                break


def overtaken_runs(old: Snapshot, new: Snapshot) -> Iterator[Violation]:
    """F9: a run that leaves the line of its rate to begin was the first of those that waited in it."""
    began: dict[RateName, Run] = {}
    for key, run in old.runs.items():
        after = new.runs.get(key)
        is_next = run.in_rate_line and after is not None and not after.in_rate_line
        if is_next and after is not None and after.rate_counted_at is not None and run.rate is not None:
            known = began.get(run.rate)
            began[run.rate] = run if known is None else max(known, run, key=_rank)
    for key, run in old.runs.items():
        last = None if run.rate is None else began.get(run.rate)
        after = new.runs.get(key)
        if last is None or after is None or not _is_waiting(run) or not _is_waiting(after):
            continue
        if _rank(run) < _rank(last):
            yield Violation(
                "F9", last.key, f"its start was counted before that of {run.id!r}, which was first"
            )


def _rank(run: Run) -> tuple[int, str]:
    return run.queue_position, run.key


def _is_waiting(run: Run) -> bool:
    return run.in_rate_line == 1 and run.status is RunStatus.PENDING and run.start_at is None
