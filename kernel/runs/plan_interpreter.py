"""Interpreter of plans: pure functions that advance a run's progress and open the jobs of the next stages."""

from collections.abc import Mapping
from typing import Final

from holdfast.kernel.history import events
from holdfast.kernel.pipelines.plan import MapPlan, NodePlan, Plan, StagePlan, stage_of
from holdfast.kernel.pipelines.progress import MapProgress, NodeProgress, Progress, finished_map, item_input
from holdfast.kernel.runs.builder import RunDraft
from holdfast.ports.records.job import Job, JobKind
from holdfast.ports.records.run import RunStatus
from holdfast.ports.references import Reference, list_reference, reference_text
from holdfast.ports.structs import evolve

_NOTHING: Final[Mapping[str, Reference]] = {}


def begin(
    draft: RunDraft, plan: Plan, gets: Reference, *, group: int = 0, keeps: Mapping[str, Reference] = _NOTHING
) -> None:
    """Open a group of a plan: the first, or a later one if a rerun keeps the stages before it.

    `gets` is the input of the run. `keeps` are outputs of stages that are not run again, by name; they may include
    stages of the group itself.
    """
    progress = Progress(group=0, input=gets)
    while progress.group < group:
        progress = _leave_group(plan, _with_kept(plan, progress, keeps))
    _go_on(draft, plan, _open_group(draft, plan, _with_kept(plan, progress, keeps)))


def _with_kept(plan: Plan, progress: Progress, keeps: Mapping[str, Reference]) -> Progress:
    group = plan.groups[progress.group]
    nodes = {node.name: NodeProgress(output=keeps[node.name]) for node in group.nodes if node.name in keeps}
    if not nodes and group.test is not None:  # the condition skipped its only node
        nodes = {group.nodes[0].name: NodeProgress(output=progress.input)}
    return Progress(group=progress.group, input=progress.input, nodes=nodes, kept=progress.kept)


def stage_completed(draft: RunDraft, plan: Plan, progress: Progress, job: Job, row: int) -> None:
    """Complete the stage or map item of a job with the output in history row `row`."""
    if job.item is None:
        after = NodeProgress(output=row)
    else:
        counters = open_map(progress, job)
        after = item_ended(draft, plan, job, evolve(counters, done=counters.done + 1), row)
    _go_on(draft, plan, progress.with_node(job.node, after))


def stage_suspended(draft: RunDraft, progress: Progress, job: Job, check: int) -> None:
    """Suspend a stage on external work, which job `check` polls."""
    if job.item is None:
        draft.keep_progress(progress.with_node(job.node, NodeProgress(job=check)).to_json())


def item_failed(draft: RunDraft, plan: Plan, progress: Progress, job: Job, row: int) -> None:
    """Count an item of a map that failed for good in row `row`, in a map that tolerates failures."""
    counters = open_map(progress, job)
    after = item_ended(draft, plan, job, evolve(counters, failed=counters.failed + 1), row)
    _go_on(draft, plan, progress.with_node(job.node, after))


def map_expanded(draft: RunDraft, plan: Plan, progress: Progress, node: str, counters: MapProgress) -> None:
    """Open a map over `counters.total` items."""
    mapped = plan.node(node)
    assert isinstance(mapped, MapPlan)
    if counters.total:
        after = NodeProgress(map=_open_items(draft, mapped, counters))
    elif mapped.enough is not None:
        after = finished_map(node, counters, counters.first_row, partial=True)
    else:
        after = NodeProgress(output=list_reference(()))
    _go_on(draft, plan, progress.with_node(node, after))


def condition_evaluated(draft: RunDraft, plan: Plan, progress: Progress, *, passed: bool) -> None:
    """Open the node of the current group that its condition chose, and skip the other."""
    group = plan.groups[progress.group]
    places = [0] if passed else [1]
    chosen = [node for place, node in enumerate(group.nodes) if place in places]
    for node in group.nodes:
        if node not in chosen:
            draft.append(events.StageSkipped(), node=node.name)
    if chosen:
        nodes = {node.name: open_node(draft, node, progress) for node in chosen}
    else:  # no other branch: the input is passed on
        nodes = {group.nodes[0].name: NodeProgress(output=progress.input)}
    _go_on(draft, plan, Progress(group=progress.group, input=progress.input, nodes=nodes, kept=progress.kept))


def advance(draft: RunDraft, plan: Plan, progress: Progress) -> bool:
    """Open the next group if the current one is done; return whether it was."""
    is_done = progress.is_done
    if is_done:
        _go_on(draft, plan, progress)
    return is_done


def open_node(draft: RunDraft, node: NodePlan, progress: Progress, *, is_test: bool = False) -> NodeProgress:
    """Open a node of the current group with its first job; with `is_test`, the job that evaluates the condition."""
    if is_test:
        return NodeProgress(
            job=draft.open_job(stage_of(node), JobKind.CONDITION, progress.input), is_condition=True
        )
    if isinstance(node, StagePlan):
        return NodeProgress(job=draft.open_job(node, body_kind(node), progress.input))
    over = progress.input if node.over is None else progress.kept[node.over]
    return NodeProgress(job=draft.open_job(node.stage, JobKind.EXPAND_MAP, over))


def body_kind(stage: StagePlan) -> JobKind:
    """Return the kind of the job that runs a stage or a map item of it."""
    if stage.function:
        return JobKind.WORKFLOW
    return JobKind.STAGE if stage.child is None else JobKind.CHILD


def open_map(progress: Progress, job: Job) -> MapProgress:
    """Return the counters of the open map that a job is an item of."""
    counters = progress.nodes[job.node].map
    assert counters is not None, f"item {job.item} of {job.node}, which is not an open map"
    return counters


def item_ended(draft: RunDraft, plan: Plan, job: Job, counters: MapProgress, row: int) -> NodeProgress:
    """Return a map after the end of one of its items in row `row`, which `counters` include."""
    node = plan.node(job.node)
    assert isinstance(node, MapPlan)
    if node.enough is None:
        is_over = counters.done == counters.total
    else:
        is_over = node.enough.is_reached(total=counters.total, done=counters.done, failed=counters.failed)
    if not is_over:
        return NodeProgress(map=_open_items(draft, node, counters))
    draft.close_node(node.stage, counters.next - counters.ended)
    return finished_map(job.node, counters, row, partial=node.enough is not None)


def _go_on(draft: RunDraft, plan: Plan, progress: Progress) -> None:
    """Open groups until one has a node that is not done, or the run is complete."""
    while progress.is_done:
        progress = _leave_group(plan, progress)
        if progress.group == len(plan.groups):
            result = reference_text(progress.input)
            draft.append(events.RunCompleted())
            draft.keep_progress(progress.to_json())
            draft.end(RunStatus.COMPLETED, cancels=plan.cancels, result=result)
            return
        progress = _open_group(draft, plan, progress)
    draft.keep_progress(progress.to_json())


def _leave_group(plan: Plan, progress: Progress) -> Progress:
    group = plan.groups[progress.group]
    outputs: list[Reference] = []
    kept = dict(progress.kept)
    for node in group.nodes:
        if node.name not in progress.nodes:  # skipped by the condition
            continue
        output = progress.nodes[node.name].output
        assert output is not None
        outputs.append(output)
        if node.name in plan.mapped_over:
            kept[node.name] = output
    goes_on = list_reference(tuple(outputs)) if group.parallel else outputs[0]
    return Progress(group=progress.group + 1, input=goes_on, nodes={}, kept=kept)


def _open_group(draft: RunDraft, plan: Plan, progress: Progress) -> Progress:
    group = plan.groups[progress.group]
    if group.test is None:
        nodes = {
            node.name: progress.nodes.get(node.name) or open_node(draft, node, progress)
            for node in group.nodes
        }
    else:
        first = group.nodes[0]
        nodes = {first.name: open_node(draft, first, progress, is_test=True)}
    return Progress(group=progress.group, input=progress.input, nodes=nodes, kept=progress.kept)


def _open_items(draft: RunDraft, node: MapPlan, counters: MapProgress) -> MapProgress:
    """Open jobs for the next items, up to the limit of the map."""
    upto = min(counters.total, counters.ended + node.limit)
    for index in range(counters.next, upto):
        draft.open_job(node.stage, body_kind(node.stage), item_input(node.name, counters, index), item=index)
    return evolve(counters, next=max(upto, counters.next))
