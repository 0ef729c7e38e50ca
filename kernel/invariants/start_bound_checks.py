"""Checks of bounded concurrency keys: how many runs are open (F2), and which runs a start ends (F3)."""

from collections.abc import Iterator, Sequence
from typing import Final, cast

from holdfast.kernel.history import events
from holdfast.kernel.invariants.limit_checks import is_changed
from holdfast.kernel.invariants.row_events import event_of
from holdfast.kernel.invariants.snapshots import Snapshot
from holdfast.kernel.invariants.violations import Violation
from holdfast.ports.json import parse
from holdfast.ports.records.job import job_key
from holdfast.ports.records.limits import WhenFull
from holdfast.ports.records.run import Run
from holdfast.ports.searches import SlotPlace


def bounded_keys(snapshot: Snapshot) -> Iterator[Violation]:
    """F2: of a key whose starts all have a bound, no more runs are open than the highest of these bounds allows.

    Keys whose limit was changed while running are left out: their runs may exceed the bounds of plans.
    If more are under way because of the higher limit of others, a run that replaces one that waits may still wait, and
    so may the next generation of one that was under way.
    """
    open_runs: dict[SlotPlace, list[Run]] = {}
    for run in snapshot.runs.values():
        if run.concurrency_key is not None and run.counts_for_starts:
            open_runs.setdefault(SlotPlace(run.namespace, run.concurrency_key), []).append(run)
    for place, runs in open_runs.items():
        if any(run.concurrency_full is None or is_changed(snapshot, run) for run in runs):
            continue
        most = max((run.concurrency_limit or 0) + (run.concurrency_waiting or 0) for run in runs)
        waiting = sum(not run.has_slot and run.generation == 1 for run in runs)
        if len(runs) > most and waiting > max(run.concurrency_waiting or 0 for run in runs):
            found = (
                f"{len(runs)} runs in namespace {place.namespace} are open, but the highest bound is {most}"
            )
            yield Violation("F2", place.key, found)


def runs_ended_by_starts(old: Snapshot, new: Snapshot) -> Iterator[Violation]:
    """F3: a start ends only runs of its key: the one that has waited longest, or has been under way longest.

    What is superseded waited. What is cancelled or terminated was under way, and for a start that says so. Runs that
    the rule never ends for a start, its parent and the child runs that it takes over, are left out. Ids of runs are
    those of the newest generation.
    """
    for key, run in new.runs.items():
        before = old.runs.get(key)
        if before is None or before.error is not None or run.error is None:
            continue
        found = _end_by_start(new, before)
        if found is None:
            continue
        by, how = found
        starts = [
            one for one in new.runs.values() if _is_for(one, run) and one.id == by and one.key not in old.runs
        ]
        if not starts:
            yield Violation("F3", key, f"the run was {how} for {by!r}, which is no new run of its key")
            continue
        if how == "superseded" and before.has_slot:
            yield Violation("F3", key, "the run was superseded, but it was under way")
        if how != "superseded" and all(_ENDS.get(one.concurrency_full) != how for one in starts):
            yield Violation("F3", key, f"the run was {how} for {by!r}, whose start does not say so")
        for other in _kept_before(old, new, run, starts, under_way=how != "superseded"):
            yield Violation("F3", key, f"the run was {how}, but {other.id!r} has been there longer")


_ENDS: Final[dict[WhenFull | None, str]] = {WhenFull.CANCEL: "cancelled", WhenFull.TERMINATE: "terminated"}
"""How a start ends a run that is under way."""


def _end_by_start(new: Snapshot, before: Run) -> tuple[str, str] | None:
    """Return the id of the run for which a run was ended after `before`, and how; None if for none."""
    for row in new.history.get(before.key, ())[before.last_row :]:
        match event_of(row):
            case events.RunCancelled(superseded_by=str(by)):
                return by, "superseded" if _is_superseded(new.runs[before.key]) else "cancelled"
            case events.RunCancelling(superseded_by=str(by)):
                return by, "cancelled"
            case events.RunTerminated(superseded_by=str(by)):
                return by, "terminated"
            case _:
                pass
    return None


def _kept_before(
    old: Snapshot, new: Snapshot, run: Run, starts: Sequence[Run], *, under_way: bool
) -> Iterator[Run]:
    """Yield the older runs that waited or were under way as the ended one did, and still are."""
    never_ended = {job_key(one.parent).run for one in starts if one.parent is not None}
    keys = {one.key for one in starts}
    for other in old.runs.values():
        after = new.runs.get(other.key)
        if after is None or not _is_for(other, run) or other.key in never_ended:
            continue
        if after.parent is not None and job_key(after.parent).run in keys:
            continue
        is_older = (other.created_at, other.key) < (run.created_at, run.key)
        is_kept = all(one.counts_for_starts and one.has_slot == under_way for one in (other, after))
        if is_older and is_kept:
            yield after


def _is_for(one: Run, other: Run) -> bool:
    return (one.namespace, one.concurrency_key) == (other.namespace, other.concurrency_key)


def _is_superseded(run: Run) -> bool:
    error = cast("dict[str, object]", parse(run.error or "{}"))
    return error.get("code") == "superseded"
