"""Reads the turns that the starts of a batch may take (`kernel/limits/fairness.py`); nothing without such starts.

At most three round trips: the accounts of the keys, the first that wait in their parts, and either the neighbours of
the turns to be taken, or the highest turns of lines in which nobody waits.
"""

from collections.abc import Iterator

from holdfast.kernel.commands import (
    ChildRunStarted,
    ChildStart,
    ContinuedAsNew,
    Failed,
    JobRecord,
    JobSettle,
    RunCreate,
    RunRerunFrom,
    TriggerFire,
)
from holdfast.kernel.composed_searches import FiringSchedules, NamedSchedules, WaitingRuns
from holdfast.kernel.dispatch.read_set import ReadSet
from holdfast.kernel.history import events
from holdfast.kernel.limits.fairness import FairLines, FairPlace, fair_place
from holdfast.kernel.pipelines.plan import DEFAULT_QUEUE, Plan
from holdfast.kernel.rules.leases import parse_job_id
from holdfast.kernel.rules.stage_overrides import overridden
from holdfast.kernel.runs.stored_starts import kept_start
from holdfast.kernel.schedules.row_data import start_of
from holdfast.kernel.state import Reads, State
from holdfast.ports.errors import CommandError
from holdfast.ports.persistence import Transaction
from holdfast.ports.records.limits import FairKeyName
from holdfast.ports.records.run import Run, RunName
from holdfast.ports.searches import FirstTurns, HighestTurns, NeighbouringTurns
from holdfast.ports.tables import FAIR_KEYS
from holdfast.ports.unreadable import PARSE_ERRORS

_Start = tuple[FairPlace, int | None]
"""Where a run will wait, and the weight in its start; None without a weight."""


def read_turns(tx: Transaction, state: State, _: list[Reads], __: ReadSet) -> None:
    """Lock the accounts of the keys whose runs the batch starts or admits, and read what waits around their turns."""
    if not any(plan.fair for plan in state.workflows.values()) and not any(
        plan.fair for plan in state.plans.values()
    ):
        return
    starts = [*_starts(state)]
    if not starts:
        return
    lines = FairLines()
    names = sorted({place.name for place, _ in starts})
    lines.accounts.update(dict.fromkeys(names))
    lines.accounts.update((row.name, row) for row in tx.lock(FAIR_KEYS, names))
    parts = sorted({place.part for place, _ in starts})
    lines.waiting.update((part, [first]) for part, first in tx.find(FirstTurns(parts)).items())
    idle = {FairKeyName(*place.name[:2], "") for place, _ in starts if not lines.waiting.get(place.part)}
    if idle:
        lines.highest.update(tx.find(HighestTurns(sorted(idle))))
    turns = lines.wanted(starts)
    if turns:
        lines.add_neighbours(tx.find(NeighbouringTurns(turns)))
    state.fair = lines


def _starts(state: State) -> Iterator[_Start]:
    """Yield the starts that may take turns. One that does not, in the end, has only read too much."""
    for command in state.commands:
        match command:
            case RunCreate() as create:
                yield from _of_create(state, create)
            case TriggerFire(start=RunCreate() as create):
                yield from _of_create(state, create)
            case RunRerunFrom():
                run = state.tables.run_named(RunName(command.namespace, command.run_id))
                if run is not None:
                    version = run.version if command.version is None else command.version
                    plan = state.workflows.get((run.workflow, version))
                    yield from _of_run(run, plan)
                    yield from _of_run(run, state.plans.get(run.plan))
            case JobSettle(outcome=ContinuedAsNew() | Failed()):
                run = _run_of(state, command)
                if run is not None:
                    yield from _of_run(run, state.plans.get(run.plan))
                    if isinstance(command.outcome, ContinuedAsNew):
                        after = command.outcome
                        yield from _of_run(run, state.workflows.get((after.workflow, after.version)))
            case JobSettle(outcome=ChildRunStarted() as child):
                yield from _of_child(state, _run_of(state, command), child)
            case JobRecord():
                for record in command.records:
                    if isinstance(record, ChildStart):
                        yield from _of_child(state, _run_of(state, command), record.child)
            case _:
                pass
    for search, found in state.found.items():
        if isinstance(search, WaitingRuns):
            for key in found.runs:
                run = state.tables.runs.get(key)
                if run is not None:
                    yield from _of_run(run, state.plans.get(run.plan))
        elif isinstance(search, FiringSchedules | NamedSchedules):
            for key in found.schedules:
                try:
                    yield from _of_create(state, start_of(state.tables.schedules[key]))
                except (CommandError, *PARSE_ERRORS):
                    continue  # the rule meets the same error
    for row in state.messages.values():
        if row.type == events.StartReceived.type:
            try:
                start = kept_start(row)
            except (CommandError, *PARSE_ERRORS):
                continue
            if (plan := state.plans.get(start.plan)) is not None:
                yield from _of_create(state, start.command, plan)


def _run_of(state: State, command: JobSettle | JobRecord) -> Run | None:
    return state.tables.runs.get(parse_job_id(command.job).run)


def _of_create(state: State, command: RunCreate, plan: Plan | None = None) -> Iterator[_Start]:
    known = state.workflows.get((command.workflow, command.version)) if plan is None else plan
    if known is None or known.fair is None:
        return
    if command.concurrency_key is not None and command.weight is None:
        return
    if command.overrides:
        try:
            known = overridden(known, command.overrides)
        except CommandError:
            return
    queue = command.queue or known.queue or DEFAULT_QUEUE
    place = fair_place(command.namespace, known, queue, command.attributes)
    if place is not None:
        yield place, command.weight


def _of_run(run: Run, plan: Plan | None) -> Iterator[_Start]:
    place = None if plan is None else fair_place(run.namespace, plan, run.queue, run.attributes)
    if place is not None:
        yield place, None


def _of_child(state: State, parent: Run | None, child: ChildRunStarted) -> Iterator[_Start]:
    plan = state.workflows.get((child.workflow, child.version))
    if parent is None or plan is None:
        return
    given = child.options
    attributes = parent.attributes if given.attributes is None else given.attributes
    place = fair_place(parent.namespace, plan, given.queue or plan.queue or parent.queue, attributes)
    if place is not None:
        yield place, given.weight
