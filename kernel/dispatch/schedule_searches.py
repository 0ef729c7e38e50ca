"""Searches for schedules, with the runs that they started or are about to start: those are locked, too."""

from collections.abc import Iterable, Sequence
from contextlib import suppress

from holdfast.kernel.composed_searches import FiringSchedules, NamedSchedules
from holdfast.kernel.dispatch.start_lines import lock_lines
from holdfast.kernel.limits.start_bounds import StartBound, bound_of_start
from holdfast.kernel.schedules.open_runs import ends_open_runs, open_run_ids
from holdfast.kernel.schedules.row_data import start_of
from holdfast.kernel.schedules.timetable import due_times, remaining_times, run_id_of
from holdfast.kernel.search_results import SearchResult
from holdfast.kernel.state import State
from holdfast.ports.errors import HoldfastError
from holdfast.ports.persistence import Transaction
from holdfast.ports.records.run import RunName
from holdfast.ports.records.schedule import ScheduleRow
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import (
    DueSchedules,
    LatestRuns,
    NextScheduleTime,
    RunOutlines,
    SchedulesByName,
)
from holdfast.ports.structs import evolve
from holdfast.ports.unreadable import PARSE_ERRORS


def firing_schedules(tx: Transaction, state: State, search: FiringSchedules, now: Micros) -> SearchResult:
    """Find due schedules, their open runs, and the runs that exist under the ids that they would use."""
    rows = tx.find(DueSchedules(search.namespace, search.workflows, search.limit), now)
    due = {row.key: _due_names(state, row, now, search.limit) for row in rows}
    to_end = _lock_lines(tx, state, [(row, len(due[row.key])) for row in rows])
    names = [*_open_runs(rows), *(name for names in due.values() for name in names)]
    following = tx.find(NextScheduleTime(search.namespace, search.workflows), now)
    # A run is ended with its jobs; of one that is only looked at, the row is enough.
    ending = _open_runs(row for row in rows if ends_open_runs(row))
    return evolve(_found(tx, state, rows, names, ending, following), to_end=to_end)


def named_schedules(tx: Transaction, state: State, search: NamedSchedules, _: Micros) -> SearchResult:
    """Find schedules by name, with their open runs if the search includes them."""
    rows = tx.find(SchedulesByName(search.names))
    starts = max(len(search.run_names), 1) if search.with_runs else 0
    to_end = _lock_lines(tx, state, [(row, starts) for row in rows])
    open_runs = _open_runs(rows) if search.with_runs else []
    found = _found(tx, state, rows, [*search.run_names, *open_runs], open_runs)
    return evolve(found, to_end=to_end)


def _lock_lines(tx: Transaction, state: State, rows: Sequence[tuple[ScheduleRow, int]]) -> tuple[str, ...]:
    """Lock the concurrency keys of the runs that schedules may start, so many each. Return the runs to lock next."""
    bounds: list[tuple[StartBound, int]] = []
    for row, starts in rows:
        with suppress(
            HoldfastError, *PARSE_ERRORS
        ):  # the rule meets the same error, and stores it with the schedule
            bound = (
                bound_of_start(state.workflows, evolve(start_of(row), namespace=row.namespace))
                if starts
                else None
            )
            if bound is not None:
                bounds.append((bound, starts))
    return tuple(sorted(lock_lines(tx, state, bounds)))


def _found(
    tx: Transaction,
    state: State,
    rows: Sequence[ScheduleRow],
    names: Sequence[RunName],
    ending: Sequence[RunName],
    following: Micros | None = None,
) -> SearchResult:
    state.tables.schedules.update((row.key, row) for row in rows)
    # A run that can't be read must not hold up the schedules of others.
    excluded = tx.find(RunOutlines(sorted(state.excluded), locks=False)) if state.excluded and names else ()
    unreadable = {RunName(one.namespace, one.id) for one in excluded}
    wanted = set(names) - unreadable
    if wanted:
        for run in tx.find(LatestRuns(sorted(wanted))):
            state.tables.put(run)
    return SearchResult(
        schedules=tuple(row.key for row in rows),
        run_names=tuple(name for name in ending if name in wanted),
        unreadable=tuple(sorted(unreadable & set(names))),
        next_at=following,
    )


def _open_runs(rows: Iterable[ScheduleRow]) -> list[RunName]:
    return [RunName(row.namespace, run) for row in rows for run in open_run_ids(row)]


def _due_names(state: State, row: ScheduleRow, now: Micros, limit: int) -> list[RunName]:
    try:
        due = due_times(row, remaining_times(row, state.zones), now, limit)
    except (HoldfastError, *PARSE_ERRORS):
        return []  # the rule meets the same error, and stores it with the schedule
    return [RunName(row.namespace, run_id_of(row.name, one.occurrence.at)) for one in due.times]
