"""Finds the runs whose rows can't be read and blocks them, so that all other runs continue (docs/decisions/0062)."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

from holdfast.kernel.commands import Command
from holdfast.kernel.history import events
from holdfast.kernel.pipelines.plan import Plan, plan_from_json
from holdfast.kernel.pipelines.progress import Progress, progress_from
from holdfast.kernel.state import State
from holdfast.ports.changes import BlockRun, Change, Insert
from holdfast.ports.errors import UnreadableRowError
from holdfast.ports.persistence import Persistence, Transaction
from holdfast.ports.queries.audit import UnreadableRows, WholeRun, WholeRuns
from holdfast.ports.queries.history import HistoryOf
from holdfast.ports.queries.runs import RunsByKey
from holdfast.ports.queries.values import PlansByFingerprint
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import JobKind
from holdfast.ports.records.run import TERMINAL, Run, RunStatus
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import RunOutlines
from holdfast.ports.structs import frozen
from holdfast.ports.unreadable import PARSE_ERRORS, RunOutline, Unreadable, first_of_each, shown

_RUNS: Final = "holdfast_runs"
_OF_ATTEMPTS: Final = "job."
"""Prefix of the types of commands about attempts, which are sent by hosts and never by clients."""


@frozen
class BlockedRun:
    """A run that was blocked because a row of it can't be read. `error` names the row and the column."""

    run: RunOutline
    error: UnreadableRowError


def runs_of(state: State) -> tuple[str, ...]:
    """Return the keys of all runs that a batch has read any rows of."""
    keys = {*state.tables.runs, *state.tables.jobs, *state.tables.history}
    for found in state.found.values():
        keys.update(found.runs)
        keys.update(job.run for job in found.jobs)
    return tuple(sorted(keys))


def unreadable_of(persistence: Persistence, keys: Collection[str]) -> tuple[Unreadable, ...]:
    """Return the unreadable columns of runs, checked one by one and against each other: at most one for each column."""
    found = list(persistence.read(UnreadableRows(tuple(keys))))
    wrong = {one.run for one in found}
    whole = persistence.read(WholeRuns(keys=tuple(key for key in keys if key not in wrong)))
    plans = {row.fingerprint: row.body for row in persistence.read(PlansByFingerprint(_plans(whole)))}
    for one in whole:
        found += _misfits(one, plans.get(one.run.plan))
        found += _rows_beyond(persistence, one.run)
    return first_of_each(found)


def failed_decision_of(
    state: State, batch: Sequence[Command[Any]], error: Exception
) -> tuple[Unreadable, ...]:
    """Return the run that a failed decision was about, if no column explains the error; () if the run is uncertain.

    The decision would fail every time and hold up everything that is decided with this run. An error in a client's
    command blocks no run: the command may be at fault.
    """
    keys = runs_of(state) if state.current_run is None else (state.current_run,)
    is_of_hosts = state.current_run is not None or all(one.type.startswith(_OF_ATTEMPTS) for one in batch)
    if len(keys) != 1 or not is_of_hosts or not isinstance(error, (*PARSE_ERRORS, ArithmeticError)):
        return ()
    return (failed_decision(keys[0], error),)


def failed_decision(run: str, error: Exception) -> Unreadable:
    """Return the reason for blocking a run in which no unreadable column was found."""
    if isinstance(error, UnreadableRowError) and error.run == run:
        return Unreadable.of(error)
    return Unreadable(_RUNS, run, "*", f"an operation on the run fails ({type(error).__name__}: {error})")


def _plans(whole: Iterable[WholeRun]) -> tuple[str, ...]:
    return tuple(sorted({one.run.plan for one in whole}))


def _misfits(one: WholeRun, body: str | None) -> Iterator[Unreadable]:
    """Yield the columns of a run and its jobs that contradict the run's plan."""
    run = one.run
    if body is None:
        yield Unreadable(_RUNS, run.key, "plan", f"no plan {shown(run.plan)} is stored")
        return
    try:
        plan = plan_from_json(body)
    except PARSE_ERRORS:
        yield Unreadable("holdfast_plans", run.key, "body", f"it is {shown(body)}, not a plan")
        return
    if run.status in TERMINAL:
        return
    try:
        progress = progress_from(run.progress)
    except PARSE_ERRORS:
        yield Unreadable(_RUNS, run.key, "progress", f"it is {shown(run.progress)}")
        return
    try:
        why = _wrong_place(progress, plan) if run.is_admitted else None
    except PARSE_ERRORS:
        why = f"it is {shown(run.progress)}"
    if why is not None:
        yield Unreadable(_RUNS, run.key, "progress", why)
    for job in one.jobs:
        is_of_plan = job.kind is not JobKind.STEP and job.kind is not JobKind.DELIVER
        if is_of_plan and job.node not in plan.nodes and not _is_test(plan, job.node):
            yield Unreadable("holdfast_jobs", run.key, "node", f"{shown(job.node)} is not in the run's plan")


def _rows_beyond(persistence: Persistence, run: Run) -> Iterator[Unreadable]:
    """Yield `last_row` of a run if its history has rows beyond it: then no row could be appended."""
    beyond = persistence.read(HistoryOf(run.key, run.last_row, 1))
    again = persistence.read(RunsByKey((run.key,))) if beyond else ()
    if again and again[0].last_row < beyond[0].number:  # the row was not appended between the two reads
        why = f"it is {run.last_row}, and there is a row {beyond[0].number}"
        yield Unreadable(_RUNS, run.key, "last_row", why)


def _is_test(plan: Plan, node: str) -> bool:
    return any(group.test == node for group in plan.groups)


def _wrong_place(progress: Progress, plan: Plan) -> str | None:
    """Return why a progress does not fit a plan; None if it fits."""
    if not 0 <= progress.group <= len(plan.groups):
        return f"the plan has no group {shown(progress.group)}"
    nodes = plan.groups[progress.group].nodes if progress.group < len(plan.groups) else ()
    there = {node.name for node in nodes}
    strange = sorted(progress.nodes.keys() - there)
    return f"{shown(strange[0])} is not in its group of the plan" if strange else None


def block(tx: Transaction, found: Sequence[Unreadable], now: Micros) -> list[BlockedRun]:
    """Block runs with unreadable data and pause their jobs, without reading either; return the newly blocked runs.

    The jobs of runs that are blocked or have ended are paused too.
    """
    first = {one.run: one for one in reversed(found)}
    keys = sorted(first)
    tx.find(RunOutlines(keys, locks=True))
    # Read again: while the first statement waited for a lock, another transaction may have appended rows unseen by it.
    outlines = {outline.key: outline for outline in tx.find(RunOutlines(keys, locks=False))}
    changes: list[Change] = []
    blocked: list[BlockedRun] = []
    for key, one in sorted(first.items()):
        outline = outlines.get(key)
        if outline is None:
            changes.append(BlockRun(key, now, None))
            blocked.append(BlockedRun(RunOutline(key, "", key, "", "", "", 0), one.error))
            continue
        if outline.status in {RunStatus.BLOCKED, *TERMINAL}:
            changes.append(BlockRun(key, now, outline.last_row))
            continue
        error = one.error
        row = HistoryRow(
            run=key,
            number=outline.last_row + 1,
            type=events.RunBlocked.type,
            at=now,
            data=events.RunBlocked(code=error.code, message=str(error), status=outline.status).data,
        )
        changes += [Insert(row), BlockRun(key, now, row.number)]
        blocked.append(BlockedRun(outline, error))
    tx.apply(changes)
    return blocked
