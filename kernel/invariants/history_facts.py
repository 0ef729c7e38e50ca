"""Replay of a run's history: its expected place in the plan, the ends of its attempts, and impossible rows."""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Final, TypeAlias

import attrs

from holdfast.kernel.history import events
from holdfast.kernel.invariants.queued_steps import QueuedStep, queued_steps
from holdfast.kernel.invariants.row_events import event_of
from holdfast.kernel.invariants.snapshots import Snapshot
from holdfast.kernel.pipelines.plan import Group, MapPlan, NodePlan, Plan, plan_from_json, stage_of
from holdfast.kernel.pipelines.progress import Progress, progress_from
from holdfast.kernel.runs.external_work import has_external_work_ended
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job, JobKind, JobState
from holdfast.ports.records.run import TERMINAL, Run, RunStatus
from holdfast.ports.records.session import Session
from holdfast.ports.references import (
    Reference,
    list_reference,
    map_reference,
    partial_reference,
    references_from,
)

Item: TypeAlias = tuple[str, int | None]
"""A stage, or one item of a map: the node's name, and the item's index."""

ENDS: Final = {
    events.RunCompleted.type: RunStatus.COMPLETED,
    events.RunContinued.type: RunStatus.COMPLETED,
    events.RunFailed.type: RunStatus.FAILED,
    events.RunCancelled.type: RunStatus.CANCELLED,
    events.RunTerminated.type: RunStatus.CANCELLED,
}
"""Types of the rows that end a run, with its status afterwards."""


class Phase(StrEnum):
    """Which job of a stage an attempt belongs to: each job counts its own attempts."""

    TEST = "test"
    BODY = "body"
    CHECK = "check"
    DRIVE = "drive"


_NEXT_PHASE: Final = {events.StageTested.type: Phase.BODY, events.StageSuspended.type: Phase.CHECK}
"""Types of rows after which the attempts of a stage belong to its next job."""


def phase_of(job: Job) -> Phase:
    """Return the phase of a job."""
    return {JobKind.CONDITION: Phase.TEST, JobKind.POLL: Phase.CHECK, JobKind.WORKFLOW: Phase.DRIVE}.get(
        job.kind, Phase.BODY
    )


@attrs.define(init=False)
class ExpectedPlace:
    """Expected place of a run in its plan, derived from the plan and the history alone."""

    plan: Plan
    group: int
    """Index of the current group; the number of groups at the end."""
    input: Reference
    """Input of the current group; at the end, the run's result."""
    kept: dict[str, Reference]
    """Outputs that a later map runs over, by node."""
    passed: bool | None
    """Result of the current group's condition; None: not evaluated."""
    totals: dict[str, int]
    """Number of items of each expanded map of the current group."""
    first_rows: dict[str, int]
    """Number of the `stage.expanded` row of these maps."""
    done: dict[str, set[int]]
    """Indexes of the completed items of these maps."""
    failed: dict[str, set[int]]
    """Indexes of the failed items of these maps."""
    outputs: dict[str, Reference]
    """Outputs of the current group's nodes that are done."""
    all_outputs: dict[str, Reference]
    """Outputs of all nodes that are done, in earlier groups too."""
    suspended: set[Item]
    """Stages and items of the current group that were suspended."""
    handed_on: dict[Item, int]
    """Unfinished external work that its stage could cancel: the numbers of the `stage.suspended` rows."""
    abandoned_work: dict[Item, int]
    """Abandoned external work: such work that the run no longer waits for."""
    cancel_outcomes: dict[Item, int]
    """Abandoned external work that was cancelled: the numbers of the rows that record the outcome."""
    _nodes: dict[str, NodePlan]
    _nodes_of: tuple[int, bool | None]
    """Group and condition result for which `_nodes` was computed."""

    def __init__(self, plan: Plan, gets: Reference = 1) -> None:
        # Written out because each check of a run makes one: attrs factories would take ten times as long.
        self.plan = plan
        self.group, self.input, self.passed = 0, gets, None
        self.kept, self.outputs, self.all_outputs = {}, {}, {}
        self.totals, self.first_rows, self.done, self.failed = {}, {}, {}, {}
        self.suspended, self.handed_on, self.abandoned_work, self.cancel_outcomes = set(), {}, {}, {}
        self._nodes, self._nodes_of = {}, (-1, None)

    @property
    def nodes(self) -> Mapping[str, NodePlan]:
        """Nodes of the current group by name; of a `when` the chosen branch, the first until then. Empty at the end."""
        where = (self.group, self.passed)
        if where != self._nodes_of:
            self._nodes, self._nodes_of = self._found_nodes(), where
        return self._nodes

    def _found_nodes(self) -> dict[str, NodePlan]:
        if self.group >= len(self.plan.groups):
            return {}
        group = self.plan.groups[self.group]
        nodes = group.nodes if group.test is None else group.nodes[self.passed is False :][:1]
        return {node.name: node for node in nodes}

    @property
    def is_to_be_tested(self) -> bool:
        """Whether the condition of the current group is still to be evaluated."""
        groups = self.plan.groups[self.group :]
        return bool(groups) and groups[0].test is not None and self.passed is None

    def turn(self, node: MapPlan) -> int:
        """Return how many items of an expanded map have had a job so far."""
        ended = len(self.done[node.name]) + len(self.failed[node.name])
        return min(self.totals[node.name], ended + node.limit)

    def due(self) -> Iterator[tuple[JobKind, str, int | None]]:
        """Yield kind, node and item of the jobs that the run must have."""
        for name, node in self.nodes.items():
            if name in self.outputs:
                continue
            if self.is_to_be_tested:
                yield JobKind.CONDITION, name, None
            elif not isinstance(node, MapPlan):
                yield self._kind(node, None), name, None
            elif name not in self.totals:
                yield JobKind.EXPAND_MAP, name, None
            else:
                yield from (
                    (self._kind(node, item), name, item)
                    for item in range(self.turn(node))
                    if item not in self.done[name] and item not in self.failed[name]
                )

    def keep(self, kept: Mapping[str, Reference], stage: str | None) -> None:
        """Move to the starting point of a rerun from this stage, with these kept outputs."""
        goal = next(
            (at for at, one in enumerate(self.plan.groups) if any(stage == node.name for node in one.nodes)),
            0,
        )
        while self.group < goal and self._keep_group(self.plan.groups[self.group], kept):
            pass
        group = self.plan.groups[goal]
        if self.group == goal and group.test is None:
            beside = {node.name: kept[node.name] for node in group.nodes if node.name in kept}
            self.outputs |= beside
            self.all_outputs |= beside

    def _keep_group(self, group: Group, kept: Mapping[str, Reference]) -> bool:
        there = [node.name for node in group.nodes if node.name in kept]
        if group.test is not None:
            self.passed = there == [group.nodes[0].name]
            self._record_output(*((there[0], kept[there[0]]) if there else (group.nodes[0].name, self.input)))
            return True
        for name in there:
            self._record_output(name, kept[name])
        return len(there) == len(group.nodes)

    def _kind(self, node: NodePlan, item: int | None) -> JobKind:
        if (node.name, item) in self.suspended:
            return JobKind.POLL
        if stage_of(node).function:
            return JobKind.WORKFLOW
        return JobKind.STAGE if stage_of(node).child is None else JobKind.CHILD

    def take(self, row: HistoryRow) -> str | None:
        """Apply a row that ended an attempt. Return its fault, or None."""
        match event_of(row):
            case events.StageExpanded(items=items):
                return self._expand(row, items)
            case events.StageCompleted():
                return self._complete(row)
            case events.StageTested(passed=passed):
                return self._test(row, passed=passed)
            case events.StageSuspended():
                return self._suspend(row)
            case events.StageFailed(code=code):
                return self._lose(row, code)
            case _:
                return None

    def _test(self, row: HistoryRow, *, passed: bool) -> str | None:
        if not self.is_to_be_tested:
            return f"row {row.number} records a condition of {row.node!r}, but no condition is due there"
        self.passed = passed
        group = self.plan.groups[self.group]
        if not self.nodes:
            self._record_output(group.nodes[0].name, self.input)
        return None

    def _suspend(self, row: HistoryRow) -> str | None:
        item = (row.node or "", row.item)
        if item in self.suspended or stage_of(self.nodes[item[0]]).check is None:
            return (
                f"row {row.number} suspends {row.node!r}, which is suspended already or has no external work"
            )
        self.suspended.add(item)
        if item[0] in self.plan.cancels:
            self.handed_on[item] = row.number
        return None

    def leave(self, name: str | None = None) -> None:
        """Mark the unfinished external work of a stage, or of all stages, as abandoned."""
        for item in [item for item in self.handed_on if name in (None, item[0])]:
            self.abandoned_work[item] = self.handed_on.pop(item)

    def pay(self, row: HistoryRow) -> str | None:
        """Apply a row with the outcome of a cancellation. Return its fault, or None."""
        item = (row.node or "", row.item)
        if item not in self.abandoned_work or item in self.cancel_outcomes:
            return (
                f"row {row.number}, {row.type}, must be for abandoned external work that has no outcome yet"
            )
        self.cancel_outcomes[item] = row.number
        return None

    def _expand(self, row: HistoryRow, items: int) -> str | None:
        name = row.node or ""
        node = self.nodes[name]
        if not isinstance(node, MapPlan) or name in self.totals:
            return f"row {row.number} expands {name!r}, which is not a map or is expanded already"
        self.totals[name], self.first_rows[name] = items, row.number
        self.done[name], self.failed[name] = set(), set()
        if not self.totals[name] and not (node.enough and node.enough.is_missed(total=0, failed=0)):
            nothing = (
                list_reference(()) if node.enough is None else partial_reference(name, *[row.number] * 2)
            )
            self._record_output(name, nothing)
        return None

    def _lose(self, row: HistoryRow, code: str) -> str | None:
        node = self.nodes[row.node or ""]
        work = self.handed_on.pop((node.name, row.item), None)
        if work is not None and not has_external_work_ended(code):
            self.abandoned_work[node.name, row.item] = work
        if row.item is None or not isinstance(node, MapPlan) or node.enough is None:
            return None
        if row.item in self.done[node.name] or row.item in self.failed[node.name]:
            return (
                f"row {row.number} fails item {row.item} of {node.name!r}, which is not a running item of"
                " the map"
            )
        lost = len(self.failed[node.name]) + 1
        if not node.enough.is_missed(total=self.totals[node.name], failed=lost):
            self.failed[node.name].add(row.item)
            self._end_item(node, row)
        return None

    def _complete(self, row: HistoryRow) -> str | None:
        name = row.node or ""
        node = self.nodes[name]
        self.handed_on.pop((name, row.item), None)
        if name in self.outputs:
            return f"row {row.number} completes {name!r}, which an earlier row has completed"
        if row.item is None:
            if isinstance(node, MapPlan):
                return (
                    f"row {row.number} completes the map {name!r} without an item; only items of a map"
                    " complete"
                )
            self._record_output(name, row.number)
            return None
        is_open = name in self.totals and row.item in range(self.totals[name])
        if not is_open or row.item in self.done[name] or row.item in self.failed[name]:
            return (
                f"row {row.number} completes item {row.item} of {name!r}, which is not a running item of"
                " the map"
            )
        assert isinstance(node, MapPlan)
        self.done[name].add(row.item)
        self._end_item(node, row)
        return None

    def _end_item(self, node: MapPlan, row: HistoryRow) -> None:
        name = node.name
        total, done, failed = self.totals[name], len(self.done[name]), len(self.failed[name])
        if node.enough is None and done == total:
            self._record_output(name, map_reference(name, self.first_rows[name], row.number))
        if node.enough is not None and node.enough.is_reached(total=total, done=done, failed=failed):
            self._record_output(name, partial_reference(name, self.first_rows[name], row.number))

    def _record_output(self, name: str, output: Reference) -> None:
        self.leave(name)
        self.outputs[name] = self.all_outputs[name] = output
        if len(self.outputs) < len(self.nodes):
            return
        group = self.plan.groups[self.group]
        outputs = tuple(self.outputs[node.name] for node in group.nodes if node.name in self.outputs)
        self.kept |= {node: self.outputs[node] for node in self.nodes if node in self.plan.mapped_over}
        self.input = list_reference(outputs) if group.parallel else outputs[0]
        self.group += 1
        self.passed = None
        self.totals, self.first_rows, self.done, self.failed, self.outputs = {}, {}, {}, {}, {}
        self.suspended = set()


@attrs.frozen(kw_only=True)
class RunView:
    """A run with its rows, its stored progress, and the state that its history leads to."""

    run: Run
    jobs: Sequence[Job]
    """Jobs of stages, maps, polls, child runs and of a durable function."""
    steps: Sequence[Job]
    """Jobs of queued steps."""
    pending_deliveries: Sequence[Job]
    """Delivery jobs."""
    cancels: Sequence[Job]
    """Jobs that cancel abandoned external work."""
    history: Sequence[HistoryRow]
    sessions: Mapping[str, Session]
    """At least the sessions that hold leases, by id."""
    progress: Progress
    """Place in the plan that the run's row has."""
    place: ExpectedPlace
    """Place in the plan that the history leads to."""
    twice: Sequence[str]
    """Faults: rows that repeat or contradict earlier ones."""
    early: Sequence[str]
    """Faults: rows of stages whose group is not the current one."""

    @cached_property
    def is_repaired(self) -> bool:
        """Whether the run was repaired. Attempts and epochs of replaced jobs count from the start again."""
        return any(row.type == events.RunRepaired.type for row in self.history)

    @cached_property
    def queued(self) -> tuple[Sequence[QueuedStep], Sequence[str]]:
        """The queued steps of the history, and the faults of their rows."""
        return queued_steps(self.history)

    @cached_property
    def attempts(self) -> Mapping[tuple[Item, Phase], Sequence[HistoryRow]]:
        """Rows that ended attempts, by stage, item and phase."""
        tested = {group.nodes[0].name for group in self.place.plan.groups if group.test is not None}
        driven = {name for name, node in self.place.plan.nodes.items() if stage_of(node).function}
        phases: dict[Item, Phase] = {(name, None): Phase.TEST for name in tested}
        phases |= {(name, None): Phase.DRIVE for name in driven}
        ends: dict[tuple[Item, Phase], list[HistoryRow]] = {}
        for row in self.history:
            if row.type in events.ATTEMPT_ENDS and row.node is not None:
                item = (row.node, row.item)
                phase = phases.setdefault(item, Phase.BODY)
                ends.setdefault((item, phase), []).append(row)
                if row.type in _NEXT_PHASE:
                    phases[item] = _NEXT_PHASE[row.type]
        return ends


def replay_run(run: Run, plan: str, snapshot: Snapshot) -> RunView:
    """Replay the history of a run from its beginning. `plan` is the stored JSON text of its plan."""
    place = ExpectedPlace(plan_from_json(plan), gets=run.input)
    place.keep(references_from(run.inherited), run.rerun_from)
    twice: list[str] = []
    early: list[str] = []
    history = snapshot.history.get(run.key, ())
    end = next((row.number for row in history if row.type in ENDS), 0)
    for row in history:
        if row.type in events.CANCELLATION_OUTCOMES:
            if run.status in TERMINAL and row.number > end:
                place.leave()
            twice += filter(None, (place.pay(row),))
        if row.type not in events.ATTEMPT_ENDS:
            continue
        if row.node not in place.nodes:
            early.append(f"row {row.number}, {row.type}, is of {row.node!r}, but earlier stages are not done")
        else:
            twice += filter(None, (place.take(row),))
    if run.status in TERMINAL:
        place.leave()
    jobs = [job for _, job in sorted(snapshot.jobs.get(run.key, {}).items())]
    return RunView(
        run=run,
        jobs=[job for job in jobs if not job.outlives_run and job.kind is not JobKind.STEP],
        steps=[job for job in jobs if job.kind is JobKind.STEP],
        pending_deliveries=[job for job in jobs if job.state is JobState.PENDING_DELIVERY],
        cancels=[job for job in jobs if job.outlives_run and job.state is not JobState.PENDING_DELIVERY],
        history=history,
        sessions=snapshot.sessions,
        progress=progress_from(run.progress),
        place=place,
        twice=twice,
        early=early,
    )


def named_item(item: Item) -> str:
    """Return the name of a stage or map item for a message."""
    return repr(item[0]) if item[1] is None else f"item {item[1]} of {item[0]!r}"
