"""Finds and locks the gathering runs that the starts of a batch may join."""

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.kernel.commands import Command, RunCreate, TriggerFire
from holdfast.kernel.composed_searches import GatheringRuns
from holdfast.kernel.dispatch.read_set import ReadSet
from holdfast.kernel.pipelines.plan import Plan
from holdfast.kernel.rules.gathered_starts import name_of
from holdfast.kernel.search_results import SearchResult
from holdfast.kernel.state import Reads, State
from holdfast.ports.errors import ConflictError
from holdfast.ports.persistence import Transaction
from holdfast.ports.records.values import Micros
from holdfast.ports.tables import GATHERINGS


def reads_of_gathered(
    workflows: Mapping[tuple[str, str | None], Plan], batch: Sequence[Command[Any]]
) -> list[Reads]:
    """Return the reads for the starts of a batch that may join a run."""
    starts = (command.start if isinstance(command, TriggerFire) else command for command in batch)
    planned = (
        (start, workflows.get((start.workflow, start.version)))
        for start in starts
        if isinstance(start, RunCreate)
    )
    names = {name_of(start, plan) for start, plan in planned if plan is not None and plan.gather is not None}
    return [Reads(search=GatheringRuns(tuple(sorted(names))))] if names else []


def gathering_runs(tx: Transaction, state: State, search: GatheringRuns, _: Micros) -> SearchResult:
    """Find the gatherings of these names. Their runs are locked next: only then is it certain that they still gather.

    The rows themselves are not locked: whoever changes one holds the lock of its run, so a start and the admission of
    that run wait for each other in one order.
    """
    found = tx.get(GATHERINGS, search.names)
    state.tables.gatherings.update((row.gathering_name, row) for row in found)
    return SearchResult(runs=tuple(row.run for row in found))


def read_gatherings(tx: Transaction, state: State, _: list[Reads], __: ReadSet) -> None:
    """Read the gatherings again whose runs have begun since, or can't be read: another run may have taken the name.

    Raises ConflictError if one has: the transaction is repeated, and locks that run.
    """
    tables = state.tables
    if not tables.gatherings:
        return
    past = {
        name: row
        for name, row in tables.gatherings.items()
        if (run := tables.runs.get(row.run)) is None or not run.is_gathering
    }
    if not past:
        return
    now = {row.gathering_name: row for row in tx.lock(GATHERINGS, sorted(past))}
    for name, row in past.items():
        if name not in now:
            del tables.gatherings[name]
        elif now[name].run != row.run:
            raise ConflictError(f"gatherings: {name} is now that of another run")
