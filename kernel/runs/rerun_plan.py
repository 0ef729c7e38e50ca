"""Plans a rerun: which outputs it keeps and which stages run again. Used by the rule and by the preview."""

from collections.abc import Collection, Mapping

import attrs

from holdfast.kernel.history import events
from holdfast.kernel.history.stage_history import StageHistory
from holdfast.kernel.pipelines.plan import MapPlan, NodePlan, Plan
from holdfast.kernel.pipelines.progress import progress_from
from holdfast.ports.errors import InvalidCommandError, RerunRefusedError, UnknownWorkflowError
from holdfast.ports.json import parse
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.references import (
    Reference,
    list_reference,
    map_reference,
    of_run,
    partial_reference,
    references_from,
)

_NOT_BEGUN = "{}"


@attrs.frozen(kw_only=True)
class Rerun:
    """A planned rerun of a pipeline.

    Attributes:
        plan: The plan of the new generation.
        stage: The stage that it starts at; None: at the start.
        group: The index of the stage's group in the plan.
        keeps: References to the outputs that are kept, by stage.
        runs: The stages that run, in the order of the plan. A map runs whole.
        again: Those of them that were completed before.
    """

    plan: Plan
    stage: str | None
    group: int
    keeps: Mapping[str, Reference]
    runs: tuple[str, ...]
    again: tuple[str, ...]


def choose_plan(
    workflows: Mapping[tuple[str, str | None], Plan], run: Run, before: Plan, version: str | None
) -> Plan:
    """Return the plan of a rerun: that of the code in this process, or `before` without code of the run's version.

    UnknownWorkflowError if another version is requested and is not known.
    """
    wanted = run.version if version is None else version
    known = workflows.get((run.workflow, wanted))
    if known is None and wanted != run.version:
        raise UnknownWorkflowError(run.workflow, wanted)
    if (
        known is None or before.base == known.fingerprint
    ):  # the plan with the run's overrides, which a rerun keeps
        return before
    return known


def check_point(run: Run, before: Plan, plan: Plan, stage: str | None, row: int | None) -> None:
    """Refuse a starting point that does not exist in these plans. InvalidCommandError, RerunRefusedError."""
    if stage is not None and row is not None:
        raise InvalidCommandError(f"stage is {stage!r} and row is {row}; a rerun starts from one of them")
    if before.function is None and row is not None:
        raise RerunRefusedError(run.id, "it is a pipeline; name the stage to start from")
    if before.function is not None and plan.function is None and (row or 1) > 1:
        raise RerunRefusedError(run.id, f"{plan.definition} is a pipeline; it can only begin from the start")


def plan_rerun(run: Run, past: StageHistory, before: Plan, plan: Plan, stage: str | None) -> Rerun:
    """Plan a rerun from a stage; without one, from where the run stopped, or from the start if it completed.

    `before` is the plan of the run and `plan` that of the new generation. In the parallel group of the stage, completed
    stages are kept.

    Raises:
        RerunRefusedError: The plan has no such stage, or an earlier stage has no output to keep.
    """
    done = _done(run, past, before)
    skipped = _skipped(run, before, done)
    start = stage if stage is not None else _stopped_at(run, before, done.keys() | skipped)
    if start is not None and start not in plan.nodes:
        is_named = f"there is no stage {start!r}" if stage else f"it stopped at stage {start!r}, which is not"
        stages = ", ".join(plan.nodes)
        raise RerunRefusedError(run.id, f"{is_named} in {plan.definition}; name one of its stages: {stages}")
    group = next(
        (at for at, one in enumerate(plan.groups) if any(start == node.name for node in one.nodes)), 0
    )
    keeps: dict[str, Reference] = {}
    for number, one in enumerate(plan.groups[: group + 1] if start is not None else ()):
        if number == group and one.test is not None:  # its condition is evaluated again
            continue
        for node in one.nodes:
            is_done = node.name in done and _is_like(before.node(node.name), node)
            if is_done and node.name != start:
                keeps[node.name] = of_run(run.key, done[node.name])
            elif number < group and (one.test is None or node.name not in skipped):
                raise RerunRefusedError(run.id, _lacking(run, node, start or "", known=node.name in done))
    left = plan.groups[group if start is not None else 0 :]
    runs = tuple(node.name for one in left for node in one.nodes if node.name not in keeps)
    return Rerun(
        plan=plan,
        stage=start,
        group=group,
        keeps=keeps,
        runs=runs,
        again=tuple(name for name in runs if name in done),
    )


def _done(run: Run, past: StageHistory, plan: Plan) -> dict[str, Reference]:
    """Return the outputs of the completed stages, by name."""
    kept = references_from(run.inherited)
    if run.progress == _NOT_BEGUN:
        return kept
    progress = progress_from(run.progress)
    done: dict[str, Reference] = {}
    for number, group in enumerate(plan.groups[: progress.group + 1]):
        for node in group.nodes:
            if number < progress.group:
                if node.name in kept:
                    done[node.name] = kept[node.name]
                elif node.name in past.rows and events.StageSkipped.type not in past.rows[node.name]:
                    done[node.name] = _output(node, past)
            elif node.name in progress.nodes and group.test is None:
                output = progress.nodes[node.name].output
                if output is not None:
                    done[node.name] = output
    return done


def _output(node: NodePlan, past: StageHistory) -> Reference:
    """Return the output of a completed node, from the rows of its run."""
    rows = past.rows[node.name]
    if not isinstance(node, MapPlan):
        return rows[events.StageCompleted.type].last
    if node.enough is not None:
        last = max(
            rows[kind].last
            for kind in (events.StageExpanded.type, events.StageCompleted.type, events.StageFailed.type)
            if kind in rows
        )
        return partial_reference(node.name, rows[events.StageExpanded.type].last, last)
    if events.StageCompleted.type not in rows:
        return list_reference(())
    return map_reference(
        node.name, rows[events.StageExpanded.type].last, rows[events.StageCompleted.type].last
    )


def _skipped(run: Run, plan: Plan, done: Mapping[str, Reference]) -> set[str]:
    """Return the stages that a condition has skipped, in this generation or in the one that it reran."""
    if run.progress == _NOT_BEGUN:
        at = next(
            (
                at
                for at, one in enumerate(plan.groups)
                if any(run.rerun_from == node.name for node in one.nodes)
            ),
            0,
        )
    else:
        at = progress_from(run.progress).group
    chosen = [one for one in plan.groups[:at] if one.test is not None]
    return {node.name for one in chosen for node in one.nodes if node.name not in done}


def _stopped_at(run: Run, plan: Plan, settled: Collection[str]) -> str | None:
    """Return the stage where a run failed, else its first unfinished stage; None at the end.

    `settled` are the completed and skipped stages.
    """
    if run.status is RunStatus.COMPLETED:
        return None
    if run.progress == _NOT_BEGUN:
        return run.rerun_from
    failed: object = parse(run.error).get("stage") if run.status is RunStatus.FAILED and run.error else None
    if isinstance(failed, str) and failed in plan.nodes:
        return failed
    return next((name for name in plan.nodes if name not in settled), None)


def _is_like(before: NodePlan, now: NodePlan) -> bool:
    """Whether the output of one node can replace that of the other: both are mapped alike, or neither is mapped."""
    return _output_shape(before) == _output_shape(now)


def _output_shape(node: NodePlan) -> str:
    if not isinstance(node, MapPlan):
        return "one"
    return "all" if node.enough is None else "some"


def _lacking(run: Run, node: NodePlan, start: str, *, known: bool) -> str:
    why = (
        "was mapped then, or is now, so its output can't be used"
        if known
        else f"was not completed in generation {run.generation}"
    )
    return f"stage {node.name!r} comes before {start!r} and {why}; run again from {node.name!r} or before it"
