"""Reads what starts under a bounded concurrency key are decided by.

Before any run is locked, such a start locks the row `start:<key>`, so that all starts of a key are decided one after
the other. Then it counts the open runs of the key, and names the few that it may end, which are locked with the other
runs of the batch. If any run of the key was locked, they are counted again: meanwhile one may have been admitted, or
may have ended.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, TypeAlias

from holdfast.kernel.dispatch.read_set import ReadSet
from holdfast.kernel.limits.start_bounds import StartBound, bound_of, bound_of_run, combined
from holdfast.kernel.search_results import NewRun
from holdfast.kernel.state import Reads, State
from holdfast.ports.errors import ConflictError
from holdfast.ports.persistence import Transaction
from holdfast.ports.records.limits import ConcurrencyPlan, WhenFull, start_slot
from holdfast.ports.records.run import Run
from holdfast.ports.searches import OpenRuns, OpenRunsOfKey, SlotPlace
from holdfast.ports.tables import RUNS, SLOTS

LockRows: TypeAlias = Callable[[Transaction, State, ReadSet], None]

_TRIES: Final = 5
"""How often the runs that may be ended are searched again, before the whole transaction is repeated."""


def lock_starts(tx: Transaction, state: State, needs: Sequence[Reads], wanted: ReadSet) -> None:
    """Lock the lines of the runs that commands may start; the runs that these may end are to be locked next."""
    new = [(one, limit) for reads in needs for one in reads.new_runs if (limit := _bounded_limit(state, one))]
    if not new:
        return
    parents = {one.parent for one, limit in new if limit.by and one.attributes is None and one.parent}
    inherited = {run.key: run.attributes for run in tx.get(RUNS, sorted(parents))} if parents else {}
    bounds: list[tuple[StartBound, int]] = []
    for one, limit in new:
        attributes = inherited.get(one.parent or "") if one.attributes is None else one.attributes
        bound = bound_of(limit, one.namespace, one.workflow, attributes)
        if bound is not None:
            bounds.append((bound, 1))
    to_end = lock_lines(tx, state, bounds)
    wanted.runs |= to_end
    wanted.driven |= to_end


def _bounded_limit(state: State, new: NewRun) -> ConcurrencyPlan | None:
    limit = new.concurrency
    if limit is None:
        plan = state.workflows.get((new.workflow, new.version))
        limit = None if plan is None else plan.concurrency
    return None if limit is None or limit.full is WhenFull.WAIT else limit


def lock_lines(tx: Transaction, state: State, bounds: Iterable[tuple[StartBound, int]]) -> frozenset[str]:
    """Lock the lines of bounds, each with its number of starts. Return the keys of the runs to be locked next."""
    new = combined(bounds)
    if not new:
        return frozenset()
    for place, starts in new.items():
        known = state.bounded_starts.get(place)
        state.bounded_starts[place] = starts if known is None else known.beside(starts)
    names = sorted(start_slot(*place) for place in new)
    state.tables.slots.update((slot, slot) for slot in tx.lock(SLOTS, names))
    return _count(tx, state, new.keys())


def count_lines(
    tx: Transaction, state: State, needs: Sequence[Reads], wanted: ReadSet, lock: LockRows
) -> None:
    """Count the open runs of each line without those that were read, and lock more of those that may be ended."""
    reruns = (state.tables.run_named(name) for reads in needs if reads.past_names for name in reads.names)
    bounds = [(bound, 1) for run in reruns if run is not None and (bound := bound_of_run(run))]
    if bounds:
        lock_lines(tx, state, bounds)
    if not state.bounded_starts:
        return
    read = {
        SlotPlace(run.namespace, run.concurrency_key)
        for run in state.tables.runs.values()
        if run.concurrency_key is not None
    }
    again = read & state.bounded_starts.keys()
    for _ in range(_TRIES):
        if not again:
            return
        to_end = _count(tx, state, again) - state.excluded
        missing = to_end - state.tables.runs.keys()
        # A run that was read for another reason may have been read without the job that drives its function.
        undriven = to_end - wanted.driven
        if undriven:
            lock(tx, state, ReadSet(runs=set(missing), driven=set(undriven)))
            wanted.driven |= undriven
        if not missing:
            _leave_out_read(state, again)
            return
    raise ConflictError("the oldest runs of a concurrency key keep changing")


def _count(tx: Transaction, state: State, places: Collection[SlotPlace]) -> frozenset[str]:
    """Count the open runs of keys. Return the keys of those that may be ended or returned."""
    beyond = len(state.excluded)
    wanted = [(place, state.bounded_starts[place].ended_max + beyond) for place in sorted(places)]
    found = tx.find(OpenRuns(wanted))
    candidates: set[str] = set()
    for place in places:
        state.open_beside[place] = line = found.get(place, OpenRunsOfKey())
        candidates |= state.bounded_starts[place].candidates(line, state.excluded)
    return frozenset(candidates)


def _leave_out_read(state: State, places: Collection[SlotPlace]) -> None:
    """Leave the runs that were read out of the counts: the state has these, and they change with it."""
    for run in state.tables.runs.values():
        if run.concurrency_key is not None and SlotPlace(run.namespace, run.concurrency_key) in places:
            leave_out(state, run)


def leave_out(state: State, run: Run) -> None:
    """Leave a run that was read out of the count of its key, if that is counted."""
    if run.concurrency_key is None or not run.counts_for_starts or run.key in state.excluded:
        return
    place = SlotPlace(run.namespace, run.concurrency_key)
    line = state.open_beside.get(place)
    if line is not None:
        state.open_beside[place] = line.without(run.has_slot)
