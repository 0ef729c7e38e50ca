"""When each stage of a run waited, ran and ended, from aggregated reads: a map of 10,000 items costs as much as one."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

import attrs

from holdfast.hosts.inspection import stages
from holdfast.hosts.inspection.stages import StageDetails
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.history import events
from holdfast.kernel.pipelines.plan import MapPlan, Plan
from holdfast.ports.clock import instant
from holdfast.ports.queries.history import HistoryOf, NodeRowsOf
from holdfast.ports.queries.runs import JobsOfRun
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job
from holdfast.ports.records.run import TERMINAL, Run
from holdfast.ports.references import references_from
from holdfast.ports.searches import NodeRows

TIMED_MAX: Final = 100
"""How many stages of a run with a long history are timed: each takes two or three reads of single rows."""
_WHOLE_MAX: Final = 1_000
"""Up to how many rows a history is read at once."""
_OPEN: Final = frozenset({"queued", "running", "retrying", "sleeping", "limited", "paused"})
_ENDED: Final = frozenset({"done", "failed", "stopped"})
_OF_ATTEMPTS: Final = (
    events.StageCompleted.type,
    events.StageRetrying.type,
    events.StageFailed.type,
    events.StageLost.type,
    events.StageStarted.type,
    events.StageSuspended.type,
)


@attrs.frozen(kw_only=True)
class StageSpan:
    """The time of a stage. Instants are aware, in UTC."""

    name: str
    """Its name."""
    state: str
    """Its state, as details of runs have it."""
    is_map: bool
    """Whether it is a map."""
    waits_from: datetime | None = None
    """Since when it could start; None if it has not been reached, or there are too many stages."""
    started_at: datetime | None = None
    """When its first attempt started."""
    ended_at: datetime | None = None
    """When it ended; None if it is open."""
    items_done: int | None = None
    """Of a map: how many items have completed."""
    items_total: int | None = None
    """Of a map: how many items it has."""

    @property
    def is_open(self) -> bool:
        """Whether it is under way."""
        return self.state in _OPEN

    @property
    def note(self) -> str:
        """The number of its items as text; "" if it is no map."""
        if not self.is_map or self.items_done is None:
            return ""
        total = "?" if self.items_total is None else f"{self.items_total:,}"
        return f"{self.items_done:,} of {total}"


def stage_spans(core: Core, run: Run, jobs: Sequence[Job] | None = None) -> Mapping[str, StageSpan]:
    """Return the times of the stages of a run's plan, by name, in the order of the plan.

    `jobs` are the live jobs of the run, if the caller has them.
    """
    return _spans(run, core.inputs.plan(run.plan), summed_stages(core, run, jobs))


def summed_stages(core: Core, run: Run, jobs: Sequence[Job] | None = None) -> dict[str, StageDetails]:
    """Return the stages of a run's plan, by name, from sums over its history and the last row of each stage.

    Stages of a long history have no times if there are more than `TIMED_MAX`.
    """
    plan = core.inputs.plan(run.plan)
    persistence = core.stores.persistence
    jobs = live_jobs(core, run) if jobs is None else jobs
    by_node: dict[str, dict[str, NodeRows]] = defaultdict(dict)
    for one in persistence.read(NodeRowsOf(run.key)):
        by_node[one.node][one.type] = one
    found = {
        name: _counted(StageDetails(name=name, mapped=isinstance(node, MapPlan)), by_node.get(name, {}))
        for name, node in plan.nodes.items()
    }
    rows = _rows(core, run, by_node)
    found = {name: _timed(one, by_node.get(name, {}), rows) for name, one in found.items()}
    for job in jobs:
        if job.node in found:
            found[job.node] = stages.add_job(found[job.node], job)
    stages.add_progress(found, run, plan, jobs)
    stages.add_kept(found, dict.fromkeys(references_from(run.inherited), run.generation - 1))
    for name, types in by_node.items():
        if name in found and events.StageSkipped.type in types:
            found[name] = attrs.evolve(found[name], state="skipped")
    return found


def live_jobs(core: Core, run: Run) -> Sequence[Job]:
    """Return the live jobs of a run that has not ended."""
    return core.stores.persistence.read(JobsOfRun(run.key)) if run.status not in TERMINAL else ()


def _counted(stage: StageDetails, rows: Mapping[str, NodeRows]) -> StageDetails:
    def number(*types: type[events.HistoryEvent]) -> int:
        return sum(rows[one.type].rows for one in types if one.type in rows)

    failed = number(events.StageRetrying, events.StageFailed)
    completed, lost = number(events.StageCompleted), number(events.StageLost)
    return attrs.evolve(
        stage,
        attempts=completed + failed + lost,
        failed_attempts=failed,
        lost_attempts=lost,
        items_done=completed if stage.mapped else None,
    )


def _rows(core: Core, run: Run, by_node: Mapping[str, Mapping[str, NodeRows]]) -> Mapping[int, HistoryRow]:
    """Return the first and the last row of each stage, by number; none if that takes too many reads."""
    if run.last_row <= _WHOLE_MAX:
        return {row.number: row for row in core.stores.persistence.read(HistoryOf(run.key, 0, _WHOLE_MAX))}
    if len(by_node) > TIMED_MAX:
        return {}
    wanted: set[int] = set()
    for types in by_node.values():
        attempts = [one for type_, one in types.items() if type_ in _OF_ATTEMPTS]
        wanted |= (
            {min(one.first for one in attempts), max(one.last for one in attempts)} if attempts else set()
        )
        if events.StageExpanded.type in types:
            wanted.add(types[events.StageExpanded.type].first)
    single = (core.stores.persistence.read(HistoryOf(run.key, number - 1, 1)) for number in sorted(wanted))
    return {row.number: row for found in single for row in found}


def _timed(
    stage: StageDetails, types: Mapping[str, NodeRows], rows: Mapping[int, HistoryRow]
) -> StageDetails:
    """Return a stage with its first start, its last change, and its number of items."""
    expanded = types.get(events.StageExpanded.type)
    row = None if expanded is None else rows.get(expanded.first)
    event = None if row is None else events.event_of(row)
    if isinstance(event, events.StageExpanded):
        stage = attrs.evolve(stage, items_total=event.items)
    attempts = [one for type_, one in types.items() if type_ in _OF_ATTEMPTS]
    if not attempts:
        return stage
    first = rows.get(min(one.first for one in attempts))
    last = rows.get(max(one.last for one in attempts))
    return attrs.evolve(
        stage if last is None else stages.add_outcome(stage, last),
        started_at=None if first is None else _start_of(first),
        updated_at=None if last is None else instant(last.at),
    )


def _start_of(row: HistoryRow) -> datetime:
    event = events.event_of(row)
    started_at = event.started_at if isinstance(event, events.StageAttempt) else None
    return instant(row.at if started_at is None else started_at)


def _spans(run: Run, plan: Plan, found: Mapping[str, StageDetails]) -> Mapping[str, StageSpan]:
    reached_at: datetime | None = instant(run.created_at)
    spans: dict[str, StageSpan] = {}
    for group in plan.groups:
        of_group = [found[node.name] for node in group.nodes]
        for stage in of_group:
            spans[stage.name] = _span(run, stage, reached_at)
        reached_at = _last_end(spans[one.name].ended_at for one in of_group) or reached_at
    return {name: spans[name] for name in plan.nodes}


def _last_end(ends: Iterable[datetime | None]) -> datetime | None:
    return max((one for one in ends if one is not None), default=None)


def _span(run: Run, stage: StageDetails, reached_at: datetime | None) -> StageSpan:
    ended_at = stage.updated_at if stage.state in _ENDED else None
    is_reached = stage.started_at is not None or stage.state in _OPEN
    # A map that was given up, and an attempt that was stopped, end with their run.
    if stage.state == "stopped" and stage.started_at is not None and run.ended_at is not None:
        ended_at = instant(run.ended_at)
    waits_from = reached_at if is_reached else None
    if waits_from is not None and stage.started_at is not None:
        waits_from = min(waits_from, stage.started_at)
    return StageSpan(
        name=stage.name,
        state=stage.state,
        is_map=stage.mapped,
        waits_from=waits_from,
        started_at=stage.started_at,
        ended_at=ended_at,
        items_done=stage.items_done,
        items_total=stage.items_total,
    )
