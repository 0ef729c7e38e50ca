"""Rules for runs that lack jobs, which only a fault can bring about."""

from typing import Final

from attrs import evolve

from holdfast.kernel.advance import advance, body_kind, open_node
from holdfast.kernel.commands import RunRepair, RunRepaired
from holdfast.kernel.draft import RunDraft, Waits
from holdfast.kernel.plan import MapPlan, Plan, StagePlan, stage_of
from holdfast.kernel.progress import NodeProgress, Progress, item_input, progress_from
from holdfast.kernel.state import Decision, Reads, State, Unsound
from holdfast.ports.changes import AddJob, Change, UpdateRun
from holdfast.ports.clock import Ids
from holdfast.ports.records import STAGE_SUSPENDED, TERMINAL, Job, JobState, Micros, Run
from holdfast.ports.transport import Hint

CHECK_AFTER: Final[Micros] = 60_000_000
"""How often external work is asked about whose job was lost, and with it how often its stage had said."""


def reads_of_repair(command: RunRepair) -> Reads:
    """Search for runs that lack jobs."""
    return Reads(search=Unsound(command.after, command.limit))


def decide_repair(state: State, command: RunRepair, now: Micros, _: Ids) -> Decision[RunRepaired]:
    """Give each run the jobs that its progress says it has and the table does not."""
    found = state.found[Unsound(command.after, command.limit)]
    changes: list[Change] = []
    hints: list[Hint] = []
    repaired: list[str] = []
    for key in found.runs:
        run = state.tables.runs[key]
        if run.status in TERMINAL:
            continue
        draft = RunDraft(run, now)
        if _restore(draft, state, run):
            changes.extend(_with_true_count(draft.changes(), state, key))
            hints.extend(draft.hints)
            repaired.append(run.id)
    reply = RunRepaired(repaired=tuple(repaired), checked=found.checked, next=found.next, owes=found.owes)
    return Decision(reply, tuple(changes), tuple(hints))


def _restore(draft: RunDraft, state: State, run: Run) -> bool:
    plan = state.plan_of(run)
    progress = progress_from(run.progress)
    if advance(draft, plan, progress):
        draft.append("run.repaired", data={"cause": "the group was done and nothing had gone on"})
        return True
    jobs = _jobs(state, run.key)
    missing = 0
    for name, node in progress.nodes.items():
        if node.map is not None:
            missing += _restore_items(draft, state, run, plan, name, node)
        elif node.output is None and not any(job.node == name for job in jobs):
            progress = progress.with_node(name, _reopened(draft, state, run, plan, progress, name))
            missing += 1
    draft.keep_progress(progress.to_json())
    if missing:
        draft.append("run.repaired", data={"cause": "jobs were missing", "jobs": missing})
    return missing > 0 or run.open_jobs != len(jobs)


def _restore_items(draft: RunDraft, state: State, run: Run, plan: Plan, name: str, node: NodeProgress) -> int:
    counters = node.map
    assert counters is not None
    mapped = plan.node(name)
    assert isinstance(mapped, MapPlan)
    rows = [row for row in state.completed.get(run.key, ()) if row.node == name]
    ended = {row.item for row in rows if row.type != STAGE_SUSPENDED}
    checked = {row.item: row.number for row in rows if row.type == STAGE_SUSPENDED}
    live = {job.item for job in _jobs(state, run.key) if job.node == name}
    missing = [index for index in range(counters.next) if index not in ended and index not in live]
    stage = mapped.stage
    for index in missing:
        if index in checked:
            _check_again(draft, stage, run, checked[index], index)
        else:
            draft.open_job(stage, body_kind(stage), item_input(name, counters, index), item=index)
    return len(missing)


def _reopened(
    draft: RunDraft, state: State, run: Run, plan: Plan, progress: Progress, name: str
) -> NodeProgress:
    """Open a node whose job is gone: what was handed on is not handed on again, but asked about."""
    node = plan.node(name)
    rows = state.completed.get(run.key, ())
    suspended = [row.number for row in rows if row.type == STAGE_SUSPENDED and row.node == name]
    if suspended:
        return NodeProgress(job=_check_again(draft, stage_of(node), run, suspended[-1], None))
    return open_node(draft, node, progress, is_test=progress.nodes[name].is_test)


def _check_again(draft: RunDraft, stage: StagePlan, run: Run, row: int, item: int | None) -> int:
    key = f"{run.key}/{stage.name}" if item is None else f"{run.key}/{stage.name}/{item}"
    return draft.open_check(stage, row, item, Waits(0, CHECK_AFTER, None, key))


def _jobs(state: State, run: str) -> list[Job]:
    jobs = state.tables.jobs.get(run, {}).values()
    return [job for job in jobs if job.state is not JobState.OWED]


def _with_true_count(changes: tuple[Change, ...], state: State, key: str) -> list[Change]:
    """Make the run's row say how many jobs it really has: that count is what was found to be wrong."""
    added = sum(isinstance(change, AddJob) for change in changes)
    real = len(_jobs(state, key)) + added
    return [
        UpdateRun(_counting(change.run, real)) if isinstance(change, UpdateRun) else change
        for change in changes
    ]


def _counting(run: Run, jobs: int) -> Run:
    return run if run.status in TERMINAL else evolve(run, open_jobs=jobs)
