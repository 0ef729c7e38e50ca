"""How a run goes through its plan: pure functions from a place in the plan to the next one."""

from collections.abc import Mapping
from typing import Final

from holdfast.kernel.commands import Failure
from holdfast.kernel.draft import RunDraft
from holdfast.kernel.plan import MapPlan, NodePlan, Plan, StagePlan, stage_of
from holdfast.kernel.progress import MapProgress, NodeProgress, Progress, finished_map, item_input
from holdfast.ports.records import Job, JobKind, RunStatus
from holdfast.ports.references import Reference, list_reference, reference_text

_NOTHING: Final[Mapping[str, Reference]] = {}


def begin(
    draft: RunDraft, plan: Plan, gets: Reference, *, group: int = 0, keeps: Mapping[str, Reference] = _NOTHING
) -> None:
    """Open a group of a plan for a run that got `gets`: the first or, where it keeps all before it, a later one.

    `keeps` is what nodes gave that are not to be done, by name; in the group itself they are done already.
    """
    progress = Progress(group=0, input=gets)
    while progress.group < group:
        progress = _leave_group(plan, _with_kept(plan, progress, keeps))
    _go_on(draft, plan, _open_group(draft, plan, _with_kept(plan, progress, keeps)))


def _with_kept(plan: Plan, progress: Progress, keeps: Mapping[str, Reference]) -> Progress:
    names = [node.name for node in plan.groups[progress.group].nodes if node.name in keeps]
    nodes = {name: NodeProgress(output=keeps[name]) for name in names}
    return Progress(group=progress.group, input=progress.input, nodes=nodes, kept=progress.kept)


def stage_completed(draft: RunDraft, plan: Plan, progress: Progress, job: Job, row: int) -> None:
    """Take into account that a job's body gave the payload of history row `row`."""
    node = progress.nodes[job.node]
    if job.item is None:
        after = NodeProgress(output=row)
    else:
        assert node.map is not None, f"item {job.item} of {job.node}, which is no open map"
        counters = _open_items(draft, plan, job.node, node.map, done=node.map.done + 1)
        is_done = counters.done == counters.total
        after = finished_map(job.node, counters, row) if is_done else NodeProgress(map=counters)
    _go_on(draft, plan, progress.with_node(job.node, after))


def map_expanded(draft: RunDraft, plan: Plan, progress: Progress, node: str, counters: MapProgress) -> None:
    """Take into account that a map goes over `counters.total` items."""
    if counters.total == 0:
        after = NodeProgress(output=list_reference(()))
    else:
        after = NodeProgress(map=_open_items(draft, plan, node, counters, done=0))
    _go_on(draft, plan, progress.with_node(node, after))


def advance(draft: RunDraft, plan: Plan, progress: Progress) -> bool:
    """Go on if the current group is done; return whether it was."""
    is_done = progress.is_done
    if is_done:
        _go_on(draft, plan, progress)
    return is_done


def failure_facts(job: Job, failure: Failure) -> dict[str, object]:
    """Return what the history says of an attempt that failed."""
    return {
        "code": failure.code,
        "message": failure.message,
        "type": failure.type,
        "attempt": job.attempts,
        "job": job.number,
    }


def stage_failed(draft: RunDraft, job: Job, failure: Failure, circumstances: Mapping[str, object]) -> None:
    """End a run because a stage failed for good."""
    facts = failure_facts(job, failure)
    error = (
        {**facts, "stage": job.node} if job.item is None else {**facts, "stage": job.node, "item": job.item}
    )
    draft.append(
        "stage.failed", node=job.node, item=job.item, epoch=job.epoch, data={**facts, **circumstances}
    )
    draft.append("run.failed", data=error)
    draft.end(RunStatus.FAILED, error=error)


def open_node(draft: RunDraft, node: NodePlan, progress: Progress) -> NodeProgress:
    """Give a node of the current group its first job."""
    if isinstance(node, StagePlan):
        return NodeProgress(job=draft.open_job(node, JobKind.STAGE, progress.input))
    over = progress.input if node.over is None else progress.kept[node.over]
    return NodeProgress(job=draft.open_job(node.stage, JobKind.EXPAND, over))


def _go_on(draft: RunDraft, plan: Plan, progress: Progress) -> None:
    """Open groups until one has a node that is not done, or the run is complete."""
    while progress.is_done:
        progress = _leave_group(plan, progress)
        if progress.group == len(plan.groups):
            result = reference_text(progress.input)
            draft.append("run.completed")
            draft.keep_progress(progress.to_json())
            draft.end(RunStatus.COMPLETED, result=result)
            return
        progress = _open_group(draft, plan, progress)
    draft.keep_progress(progress.to_json())


def _leave_group(plan: Plan, progress: Progress) -> Progress:
    group = plan.groups[progress.group]
    outputs: list[Reference] = []
    kept = dict(progress.kept)
    for node in group.nodes:
        output = progress.nodes[node.name].output
        assert output is not None
        outputs.append(output)
        if node.name in plan.mapped_over:
            kept[node.name] = output
    goes_on = list_reference(tuple(outputs)) if group.parallel else outputs[0]
    return Progress(group=progress.group + 1, input=goes_on, nodes={}, kept=kept)


def _open_group(draft: RunDraft, plan: Plan, progress: Progress) -> Progress:
    nodes = {
        node.name: progress.nodes.get(node.name) or open_node(draft, node, progress)
        for node in plan.groups[progress.group].nodes
    }
    return Progress(group=progress.group, input=progress.input, nodes=nodes, kept=progress.kept)


def _open_items(draft: RunDraft, plan: Plan, name: str, counters: MapProgress, *, done: int) -> MapProgress:
    """Give jobs to the next items, so that as many have one as the map's limit allows."""
    node = plan.node(name)
    assert isinstance(node, MapPlan)
    stage = stage_of(node)
    upto = min(counters.total, done + node.limit)
    for index in range(counters.next, upto):
        draft.open_job(stage, JobKind.STAGE, item_input(name, counters, index), item=index)
    return MapProgress(
        total=counters.total,
        next=max(upto, counters.next),
        done=done,
        page_size=counters.page_size,
        first_row=counters.first_row,
    )
