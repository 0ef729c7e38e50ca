"""Rules for repair: runs that lack jobs, or have jobs that they do not need, after a fault of the store.

What should be there is computed from the run's progress and history. See docs/decisions/0018.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from holdfast.kernel.commands import FollowUp, RunRepair, RunRepaired
from holdfast.kernel.history import events
from holdfast.kernel.pipelines.plan import MapPlan, NodePlan, Plan, StagePlan, stage_of
from holdfast.kernel.pipelines.progress import (
    MapProgress,
    NodeProgress,
    Progress,
    finished_map,
    item_input,
    progress_from,
)
from holdfast.kernel.rules.external_cleanup import find_cleanup_faults, repair_cancel_jobs
from holdfast.kernel.rules.queued_steps import is_job_of_row, open_steps, queue_again
from holdfast.kernel.rules.sessions import free_lost_job
from holdfast.kernel.runs.builder import PollSchedule, RunDraft
from holdfast.kernel.runs.plan_interpreter import advance, body_kind, open_node
from holdfast.kernel.state import Decision, Reads, RunsMissingJobs, State
from holdfast.ports.changes import Change, Delete, Insert
from holdfast.ports.clock import Ids
from holdfast.ports.json import canonical
from holdfast.ports.records.job import Job, JobKind, JobState
from holdfast.ports.records.run import HELD, TERMINAL, Run
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import CompletedRow
from holdfast.ports.structs import evolve
from holdfast.ports.tables import JOBS
from holdfast.ports.transport import Hint

CHECK_AFTER: Final[Micros] = 60_000_000
"""Microseconds between checks of external work whose `stage.suspended` row has no interval."""


def reads_of_repair(command: RunRepair) -> Reads:
    """Search for runs that lack jobs, or read the run that the command names."""
    return Reads(search=_meant(command), found_whole=True, holders=True)


def decide_repair(state: State, command: RunRepair, now: Micros, _: Ids) -> Decision[RunRepaired]:
    """Bring the jobs of each run in line with its progress and history.

    A run that the command names is compared in any case, even if it has ended. Runs that cannot be read are skipped.
    So are runs whose plan is not stored; if the command names such a run, it raises UnknownPlanError.
    """
    found = state.found[_meant(command)]
    changes: list[Change] = []
    hints: list[Hint] = []
    repaired: list[str] = []
    for key in found.runs:
        run = state.tables.runs.get(key)
        if run is None or (run.status in TERMINAL and command.run is None):
            continue
        jobs = [job for job in state.tables.jobs.get(key, {}).values() if not job.outlives_run]
        # `open_jobs` may be what is wrong: count the jobs that exist.
        draft = RunDraft(evolve(run, open_jobs=len(jobs)), now)
        state.current_run = key
        if run.status in TERMINAL:
            made = _cleared(state, run, jobs, now, notify=command.redeliver)
        else:
            made = _repaired(draft, state, run, jobs, command, now)
        if made:
            changes.extend(made)
            hints.extend(draft.hints)
            repaired.append(run.id)
    has_deliveries = found.has_deliveries or any(
        isinstance(one, Insert)
        and isinstance(one.record, Job)
        and one.record.state is JobState.PENDING_DELIVERY
        for one in changes
    )
    reply = RunRepaired(
        repaired=tuple(repaired),
        checked=found.checked,
        next=found.next,
        follow_up=FollowUp(deliveries=has_deliveries),
    )
    return Decision(reply, tuple(changes), tuple(hints))


def _meant(command: RunRepair) -> RunsMissingJobs:
    return RunsMissingJobs(command.after, command.limit, command.run)


def _cleared(state: State, run: Run, jobs: Sequence[Job], now: Micros, *, notify: bool) -> Sequence[Change]:
    """Delete leftover jobs of an ended run, and restore its deliveries and cancel jobs."""
    pending_deliveries = [
        job.input
        for job in state.tables.jobs.get(run.key, {}).values()
        if job.state is JobState.PENDING_DELIVERY
    ]
    notifies_parent = notify and run.parent is not None and canonical(run.parent) not in pending_deliveries
    has_work = any(row.type == events.StageSuspended.type for row in state.completed.get(run.key, ()))
    has_work |= any(job.kind is JobKind.CANCEL for job in state.tables.jobs.get(run.key, {}).values())
    faults = find_cleanup_faults(state, run, state.plan_of(run), None) if has_work else None
    if not jobs and not run.open_jobs and not notifies_parent and not faults:
        return ()
    draft = RunDraft(evolve(run, open_jobs=0), run.updated_at)  # an ended run keeps its instants
    if notifies_parent:
        draft.add_parent_delivery()
    paid = repair_cancel_jobs(draft, state, run, state.plan_of(run), faults, now) if faults else ()
    return (*draft.changes(), *(Delete(JOBS, job.key) for job in jobs), *paid)


def _repaired(
    draft: RunDraft, state: State, run: Run, jobs: Sequence[Job], command: RunRepair, now: Micros
) -> Sequence[Change]:
    plan = state.plan_of(run)
    before = progress_from(run.progress)
    rows = state.completed.get(run.key, ())
    if (
        not run.is_admitted or not before.nodes or _is_behind(before, plan, rows)
    ):  # the rows do not show what it lacks
        return draft.changes() if run.open_jobs != len(jobs) else ()
    progress = _as_recorded(before, plan, rows, recounts=command.run is not None)
    of_stages = [job for job in jobs if job.kind is not JobKind.STEP]
    needed = {(job.node, job.item): job.number for job in _needed(progress, of_stages, rows)}
    queued = open_steps(state.steps.get(run.key, ()))
    doing = {
        job.number: job.node for job in jobs if job.node in queued and is_job_of_row(job, queued[job.node])
    }
    undone = [row for call, row in queued.items() if call not in doing.values()]
    progress = _adopting(progress, needed)
    extra = [job for job in of_stages if needed.get((job.node, job.item)) != job.number]
    extra += (job for job in jobs if job.kind is JobKind.STEP and job.number not in doing)
    lacking = list(_lacking(progress, needed, rows))
    stuck = [job for job in jobs if job not in extra and _is_stuck(state, run, job)]
    faults = find_cleanup_faults(state, run, plan, progress)
    causes = {
        "the group was complete, but the run had not advanced": progress.is_done,
        "its place in the plan did not match its history": progress != before,
        "jobs were missing": bool(lacking or undone),
        "there were jobs that nothing needed": bool(extra),
        "jobs were in a state in which no worker claims them": bool(stuck),
        "abandoned external work was not cancelled, or other work was": bool(faults),
    }
    why = [cause for cause, is_true in causes.items() if is_true]
    if not why:
        return draft.changes() if run.open_jobs != len(jobs) else ()
    for job in extra:
        draft.close_job(job)
    if any(job.waits_for_child for job in extra):
        draft.add_children_delivery()
    draft.keep_progress(progress.to_json())
    _reopen(draft, state, run, plan, progress, lacking)
    for row in undone:
        queue_again(draft, row)
    paid = repair_cancel_jobs(draft, state, run, plan, faults, now)
    added = len(lacking) + len(undone)
    draft.append(events.RunRepaired(cause=", ".join(why), jobs=added))
    # Last, as these may end the run, and no row may follow that.
    if not advance(draft, plan, progress):
        _put_right(draft, state, run, stuck, now)
    return (*paid, *draft.changes())


# Expected state ---------------------------------------------------------------------------------------------------


def _is_behind(progress: Progress, plan: Plan, rows: Sequence[CompletedRow]) -> bool:
    """Whether the history is ahead of the run's row, so that the steps in between cannot be reconstructed."""
    later = {node.name for group in plan.groups[progress.group + 1 :] for node in group.nodes}
    for row in rows:
        node = progress.nodes.get(row.node)
        if row.node in later or (
            node is not None and row.type == events.StageTested.type and node.is_condition
        ):
            return True
        if node is not None and row.type == events.StageExpanded.type and node.job is not None:
            return True
    return False


def _as_recorded(progress: Progress, plan: Plan, rows: Sequence[CompletedRow], *, recounts: bool) -> Progress:
    """Return the progress with the outputs of the history added, so that no completed stage runs again.

    `recounts`: also count map items anew. Only for a run that the command names, whose history is known to be complete.
    """
    for name, node in progress.nodes.items():
        of_node = [row for row in rows if row.node == name]
        if node.map is not None and recounts:
            progress = progress.with_node(name, _counted(plan.node(name), node.map, of_node))
        elif node.map is None and node.output is None and not node.is_condition:
            done = next(
                (row for row in of_node if row.item is None and row.type == events.StageCompleted.type), None
            )
            progress = (
                progress if done is None else progress.with_node(name, NodeProgress(output=done.number))
            )
    return progress


def _counted(node: NodePlan, counters: MapProgress, rows: Sequence[CompletedRow]) -> NodeProgress:
    """Return the progress of a map with its items counted from the history."""
    assert isinstance(node, MapPlan)
    total = counters.total
    done = failed = 0
    for row in rows:
        done += row.item is not None and row.type == events.StageCompleted.type
        failed += row.item is not None and row.type == events.StageFailed.type
        if node.enough is None:
            is_over = done == total
        else:
            is_over = node.enough.is_reached(total=total, done=done, failed=failed)
        if is_over:
            return finished_map(node.name, counters, row.number, partial=node.enough is not None)
    following = min(total, done + failed + node.limit)
    return NodeProgress(map=evolve(counters, done=done, failed=failed, next=following))


def _needed(progress: Progress, jobs: Sequence[Job], rows: Sequence[CompletedRow]) -> Iterator[Job]:
    """Yield one existing job for each open stage and item; preferably the one that the progress names."""
    ended = _ended(rows)
    known = {(name, node.job) for name, node in progress.nodes.items()}
    taken: set[tuple[str, int | None]] = set()
    by_rank = sorted(jobs, key=lambda job: ((job.node, job.number) not in known, job.number))
    for job in by_rank:
        node = progress.nodes.get(job.node)
        item = (job.node, job.item)
        if node is None or node.output is not None or item in taken or item in ended:
            continue
        if (job.item is None) if node.map is None else (job.item is not None and job.item < node.map.next):
            taken.add(item)
            yield job


def _adopting(progress: Progress, needed: Mapping[tuple[str, int | None], int]) -> Progress:
    """Return the progress with the numbers of existing jobs in place of missing ones."""
    for name, node in progress.nodes.items():
        there = needed.get((name, None))
        if node.job is not None and there is not None:
            progress = progress.with_node(name, evolve(node, job=there))
    return progress


def _lacking(
    progress: Progress, needed: Mapping[tuple[str, int | None], int], rows: Sequence[CompletedRow]
) -> Iterator[tuple[str, int | None]]:
    ended = _ended(rows)
    for name, node in progress.nodes.items():
        if node.map is not None:
            items = ((name, item) for item in range(node.map.next))
            yield from (item for item in items if item not in ended and item not in needed)
        elif node.output is None and (name, None) not in needed:
            yield name, None


def _ended(rows: Sequence[CompletedRow]) -> set[tuple[str, int | None]]:
    return {
        (row.node, row.item)
        for row in rows
        if row.type in {events.StageCompleted.type, events.StageFailed.type}
    }


# Repair -----------------------------------------------------------------------------------------------------------


def _reopen(
    draft: RunDraft,
    state: State,
    run: Run,
    plan: Plan,
    progress: Progress,
    lacking: Sequence[tuple[str, int | None]],
) -> None:
    """Add the missing jobs. Stages whose external work was submitted get a poll job, so it is not submitted twice."""
    rows = state.completed.get(run.key, ())
    suspended = {(row.node, row.item): row.number for row in rows if row.type == events.StageSuspended.type}
    for name, item in lacking:
        node = progress.nodes[name]
        stage = stage_of(plan.node(name))
        row = suspended.get((name, item))
        if row is not None:
            number = draft.open_poll(stage, row, item, _waits(state, run, stage, row, item))
            if item is None:
                progress = progress.with_node(name, NodeProgress(job=number))
        elif item is None:
            progress = progress.with_node(
                name, open_node(draft, plan.node(name), progress, is_test=node.is_condition)
            )
        else:
            assert node.map is not None
            draft.open_job(stage, body_kind(stage), item_input(name, node.map, item), item=item)
    draft.keep_progress(progress.to_json())


def _waits(state: State, run: Run, stage: StagePlan, row: int, item: int | None) -> PollSchedule:
    """Return the schedule of a new poll job: the first check now, later ones as the suspension set them."""
    suspension = state.suspensions.get((run.key, row))
    if suspension is None:
        named = f"{run.key}/{stage.name}" if item is None else f"{run.key}/{stage.name}/{item}"
        return PollSchedule(until=0, check_after=CHECK_AFTER, give_up_at=None, key=named)
    event = events.StageSuspended.from_row(suspension)
    return PollSchedule(until=0, check_after=event.check_after, give_up_at=event.give_up_at, key=event.key)


def _is_stuck(state: State, run: Run, job: Job) -> bool:
    """Whether the job is in a state that no worker, command or maintenance ever changes."""
    if job.state is JobState.LEASED:
        return job.session not in state.tables.sessions
    if (job.state is JobState.PAUSED) != (run.status in HELD) or job.session is not None:
        return True
    match job.state:
        case JobState.SLEEPING:
            return job.waits_for_child if job.wake_at else not job.is_woken
        case JobState.LIMITED:
            return job.wake_at is not None or job.concurrency_key is None
        case JobState.QUEUED:
            return job.wake_at is not None
        case _:
            return False


def _put_right(draft: RunDraft, state: State, run: Run, stuck: Sequence[Job], now: Micros) -> None:
    """Reschedule stuck jobs. A job leased to a session that does not exist counts as lost with its worker."""
    for job in stuck:
        if draft.status in TERMINAL:
            return
        if job.state is JobState.LEASED:
            free_lost_job(state, draft, run, job, now)
        else:
            wake_at = None if job.waits_for_child else job.wake_at or now
            draft.reschedule_job(job, wake_at, is_damaged=True)
