"""What a rerun keeps of the generation before and what it runs again: asked by the rule and by the preview alike."""

from collections.abc import Collection, Mapping

import attrs

from holdfast.kernel.pipelines.plan import MapPlan, NodePlan, Plan
from holdfast.kernel.pipelines.progress import progress_from
from holdfast.ports.errors import InvalidCommandError, RerunRefusedError, UnknownWorkflowError
from holdfast.ports.json import parse
from holdfast.ports.persistence import NodeRows
from holdfast.ports.records import (
    STAGE_COMPLETED,
    STAGE_EXPANDED,
    STAGE_FAILED,
    STAGE_SKIPPED,
    HistoryRow,
    Payload,
    Run,
    RunStatus,
)
from holdfast.ports.references import (
    Reference,
    list_reference,
    map_reference,
    of_run,
    partial_reference,
    references_from,
)

_NOT_BEGUN = "{}"


@attrs.define
class Past:
    """What the history of a run has: what it was given, and by node and type the rows that are about its nodes."""

    input: Payload | None = None
    rows: dict[str, dict[str, NodeRows]] = attrs.field(factory=dict[str, dict[str, NodeRows]])

    def add(self, rows: NodeRows) -> None:
        """Take rows into account that come after all that are known."""
        of_node = self.rows.setdefault(rows.node, {})
        known = of_node.get(rows.type)
        if known is not None:
            rows = attrs.evolve(rows, first=known.first, rows=known.rows + rows.rows)
        of_node[rows.type] = rows

    def append(self, row: HistoryRow) -> None:
        """Take a row into account that was appended to the history."""
        if row.type == "run.created":
            self.input = row.payload
        if row.node is not None:
            self.add(NodeRows(row.run, row.node, row.type, row.number, row.number, 1))


@attrs.frozen(kw_only=True)
class Rerun:
    """A rerun as it is to be.

    Attributes:
        plan: What the new generation follows.
        stage: The stage with which it begins; None if from the start.
        group: The group of the plan that this is in.
        keeps: References, as the new generation has them, to what the stages gave that it does not run, by name.
        runs: The stages that it runs, in the order of the plan. A map runs whole.
        again: Those of them that were completed before.
    """

    plan: Plan
    stage: str | None
    group: int
    keeps: Mapping[str, Reference]
    runs: tuple[str, ...]
    again: tuple[str, ...]


def followed_plan(
    workflows: Mapping[tuple[str, str | None], Plan], run: Run, before: Plan, version: str | None
) -> Plan:
    """Return the plan that a rerun follows: that of the code that is known here; else, for the same code, `before`.

    UnknownWorkflowError if it is to be another version, and that is not known.
    """
    wanted = run.version if version is None else version
    known = workflows.get((run.workflow, wanted))
    if known is None and wanted != run.version:
        raise UnknownWorkflowError(run.workflow, wanted)
    if (
        known is None or before.base == known.fingerprint
    ):  # the run's stages were treated otherwise, and will be
        return before
    return known


def check_point(run: Run, before: Plan, plan: Plan, stage: str | None, row: int | None) -> None:
    """Refuse a point from which no run of these plans can be run again. InvalidCommandError, RerunRefusedError."""
    if stage is not None and row is not None:
        raise InvalidCommandError(f"stage is {stage!r} and row is {row}; a rerun begins with one of them")
    if before.function is None and row is not None:
        raise RerunRefusedError(run.id, "it is a pipeline; name the stage that it is to begin with")
    if before.function is not None and plan.function is None and (row or 1) > 1:
        raise RerunRefusedError(run.id, f"{plan.definition} is a pipeline; it can only begin from the start")


def planned_rerun(run: Run, past: Past, before: Plan, plan: Plan, stage: str | None) -> Rerun:
    """Return the rerun of a run from a stage on; without one, from where it stopped, or the start if it completed.

    `before` is the plan that it has followed, `plan` that of the new generation. Of the stages beside the one that is
    named, in a parallel group, those that were completed are kept.

    Raises:
        RerunRefusedError: The plan has no such stage, or something that comes before it has no output to keep.
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
        if number == group and one.test is not None:  # it is tested again
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


def _done(run: Run, past: Past, plan: Plan) -> dict[str, Reference]:
    """Return what the stages gave that are done, by name."""
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
                elif node.name in past.rows and STAGE_SKIPPED not in past.rows[node.name]:
                    done[node.name] = _output(node, past)
            elif node.name in progress.nodes and group.test is None:
                output = progress.nodes[node.name].output
                if output is not None:
                    done[node.name] = output
    return done


def _output(node: NodePlan, past: Past) -> Reference:
    """Return what a node gave that is done, from the rows of its own run."""
    rows = past.rows[node.name]
    if not isinstance(node, MapPlan):
        return rows[STAGE_COMPLETED].last
    if node.enough is not None:
        last = max(
            rows[kind].last for kind in (STAGE_EXPANDED, STAGE_COMPLETED, STAGE_FAILED) if kind in rows
        )
        return partial_reference(node.name, rows[STAGE_EXPANDED].last, last)
    if STAGE_COMPLETED not in rows:
        return list_reference(())
    return map_reference(node.name, rows[STAGE_EXPANDED].last, rows[STAGE_COMPLETED].last)


def _skipped(run: Run, plan: Plan, done: Mapping[str, Reference]) -> set[str]:
    """Return the stages that were not to be done: in this generation or, if that began after them, in one before."""
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
    """Return the stage that a run failed in or, if it did not, the first that is still to be done; None at the end.

    `settled` are those that are not: they are done, or skipped.
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
    """Whether what the one gave can stand for what the other gives: a list if it is mapped, one value if not."""
    return _output_shape(before) == _output_shape(now)


def _output_shape(node: NodePlan) -> str:
    if not isinstance(node, MapPlan):
        return "one"
    return "all" if node.enough is None else "some"


def _lacking(run: Run, node: NodePlan, start: str, *, known: bool) -> str:
    why = (
        "was mapped then, or is now, so what it gave is of no use"
        if known
        else f"was not completed in generation {run.generation}"
    )
    return f"stage {node.name!r} comes before {start!r} and {why}; run again from {node.name!r} or before it"
