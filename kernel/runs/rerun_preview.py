"""Preview of a rerun, from a snapshot without locks. It is planned by the function that the rule calls."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from holdfast.kernel.commands import RunRerunFrom
from holdfast.kernel.history import events
from holdfast.kernel.history.reader import rows_of
from holdfast.kernel.history.stage_history import StageHistory
from holdfast.kernel.pipelines.plan import Plan, plan_from_json
from holdfast.kernel.runs.forks import Fork, RecordedCall, labels, open_children, plan_fork
from holdfast.kernel.runs.rerun_plan import check_point, choose_plan, plan_rerun
from holdfast.ports.errors import RerunRefusedError, RunNotFoundError, UnknownPlanError
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.history import NodeRowsOf
from holdfast.ports.queries.runs import FindRun, RunsByKey
from holdfast.ports.queries.values import PlansByFingerprint
from holdfast.ports.records.run import TERMINAL, Run, RunName
from holdfast.ports.references import Reference, leaves, located

_MESSAGES: Final = (events.SignalReceived.type, events.UpdateReceived.type)


@attrs.frozen(kw_only=True)
class RerunPreview:
    """What a rerun would do if it were requested now.

    Attributes:
        run_id: The run.
        generation: The number of the new generation.
        workflow: The workflow that it would run.
        version: The version of the workflow.
        stage: The stage that it would start at, or the call of a durable function; None: at the start.
        runs: The stages whose bodies would run, in the order of the plan. A map runs whole. For a durable function, the
            recorded steps that would not be kept, or were in progress, in the order of the history; the code decides
            which of them it calls again. Of several calls, one is named as `charge#2`.
        again: Those of `runs` that were completed before: their effects outside of Holdfast are repeated.
        keeps: The stages or steps whose outputs would be kept, each with the number of the generation that produced it.
        terminates: Whether the newest generation is active and would be terminated.
        row: For a durable function, the number of the first history row that would not be kept; else None.
        timers: The calls of expired timers that a function would wait for again.
        starts: The ids of the child runs that would be started again, under other ids.
        children: The ids of the child runs that would be kept and have not ended for the function.
        messages: The number of messages and updates that would be delivered again, at once.
        undone: The compensations that ran and would not be kept: what they had undone would be done again.
    """

    run_id: str
    generation: int
    workflow: str
    version: str
    stage: str | None
    runs: tuple[str, ...]
    again: tuple[str, ...]
    keeps: dict[str, int]
    terminates: bool
    row: int | None = None
    timers: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    messages: int = 0
    undone: tuple[str, ...] = ()


def preview_rerun(
    persistence: Persistence, workflows: Mapping[tuple[str, str | None], Plan], command: RunRerunFrom
) -> RerunPreview:
    """Return what a rerun would do. CommandError as the command would raise."""
    run = persistence.read(FindRun(RunName(command.namespace, command.run_id)))
    if run is None:
        raise RunNotFoundError(command.run_id)
    if command.generation not in {None, run.generation}:
        raise RerunRefusedError(
            run.id, f"generation {run.generation} is the newest, not {command.generation}"
        )
    before = _plan(persistence, run)
    plan = choose_plan(workflows, run, before, command.version)
    check_point(run, before, plan, command.stage, command.row)
    if before.function is not None and plan.function is not None:
        return _preview_fork(persistence, run, before, plan, command)
    past = StageHistory()
    # Read after the run's row, so that these rows include everything that the row reflects.
    for rows in persistence.read(NodeRowsOf(run.key)):
        past.add(rows)
    rerun = plan_rerun(run, past, before, plan, command.stage)
    return RerunPreview(
        run_id=run.id,
        generation=run.generation + 1,
        workflow=plan.workflow,
        version=plan.version,
        stage=rerun.stage,
        runs=rerun.runs,
        again=rerun.again,
        keeps=_generations(persistence, run, rerun.keeps),
        terminates=run.status not in TERMINAL,
    )


def _preview_fork(
    persistence: Persistence, run: Run, before: Plan, plan: Plan, command: RunRerunFrom
) -> RerunPreview:
    """Return what a rerun of a durable function would do."""
    history = list(rows_of(persistence, run, upto=run.last_row))
    found = (persistence.read(FindRun(RunName(run.namespace, child))) for child in open_children(history))
    is_whole = command.stage == before.function
    fork = plan_fork(
        run,
        history,
        {child.id: child for child in found if child is not None},
        start=None if is_whole else command.stage,
        row=1 if is_whole else command.row,
    )
    all_steps = [one for one in (*fork.keeps, *fork.runs) if one.kind == "step" and one.undoes is None]
    kept = [one for one in all_steps if one.ended is not None and one.ended < fork.row]
    steps = [one for one in all_steps if one not in kept]  # including those in progress
    return RerunPreview(
        run_id=run.id,
        generation=run.generation + 1,
        workflow=plan.workflow,
        version=plan.version,
        stage=fork.start,
        runs=labels(steps),
        again=labels(one for one in steps if one.is_completed),
        keeps=dict(zip(labels(kept), _call_generations(persistence, run, fork, kept), strict=True)),
        terminates=run.status not in TERMINAL,
        row=fork.row,
        timers=tuple(one.call for one in fork.runs if one.kind == "timer"),
        starts=tuple(one.run for one in fork.runs if one.run is not None),
        children=fork.children,
        messages=sum(one.type in _MESSAGES for one in fork.redelivered),
        undone=labels(one for one in fork.runs if one.undoes is not None),
    )


def _call_generations(
    persistence: Persistence, run: Run, fork: Fork, kept: Sequence[RecordedCall]
) -> Iterator[int]:
    """Yield the generation that holds the first row of each of these calls."""
    others = tuple(sorted({part.run for part in fork.kept} - {run.key}))
    numbers = {run.key: run.generation}
    numbers |= {one.key: one.generation for one in (persistence.read(RunsByKey(others)) if others else ())}
    for one in kept:
        yield numbers[next(part.run for part in fork.kept if one.first <= part.last)]


def _plan(persistence: Persistence, run: Run) -> Plan:
    rows = persistence.read(PlansByFingerprint((run.plan,)))
    if not rows:
        raise UnknownPlanError(run.plan)
    return plan_from_json(rows[0].body)


def _generations(persistence: Persistence, run: Run, keeps: Mapping[str, Reference]) -> dict[str, int]:
    """Return the generation that produced the output of each stage; the run's own for a map without items."""
    keys = {
        name: next((located(run.key, leaf)[0] for leaf in leaves(reference)), run.key)
        for name, reference in keeps.items()
    }
    numbers = {run.key: run.generation}
    if others := tuple(sorted(set(keys.values()) - numbers.keys())):
        numbers |= {other.key: other.generation for other in persistence.read(RunsByKey(others))}
    return {name: numbers[key] for name, key in keys.items()}
