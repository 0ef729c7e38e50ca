"""Stages of pipelines: their state, attempts, times and results, derived from the run's row, history and jobs."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import attrs

from holdfast.hosts.inspection.run_info import error_of
from holdfast.hosts.inspection.value_previews import ValuePreview, preview_of
from holdfast.kernel.history import events
from holdfast.kernel.pipelines.plan import Plan
from holdfast.kernel.pipelines.progress import NodeProgress, progress_from
from holdfast.ports.clock import instant
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job, JobState
from holdfast.ports.records.run import TERMINAL, Run, RunStatus

_UNDER_WAY: Final = ("running", "retrying", "queued", "sleeping")
_STATES: Final = {
    JobState.LEASED: "running",
    JobState.QUEUED: "queued",
    JobState.SLEEPING: "sleeping",
    JobState.LIMITED: "limited",
    JobState.PAUSED: "paused",
}
"""The state of an open stage by the state of its jobs; the first that one of them has."""


@attrs.frozen(kw_only=True)
class StageDetails:
    """A stage of a pipeline. Instants are aware, in UTC."""

    name: str
    """The name of the stage."""
    mapped: bool
    """Whether it is a map."""
    state: str = "waiting"
    """One of `waiting`, `queued`, `running`, `retrying`, `sleeping`, `limited`, `paused`, `done`, `kept`, `failed`,
    `stopped` and `not reached`."""
    kept_of: int | None = None
    """The generation that produced the output, if this one has kept it."""
    items_done: int | None = None
    """The number of completed items; None if it is not a map."""
    items_total: int | None = None
    """The number of items; None if it is not a map, or the number is not known yet."""
    attempts: int = 0
    """The number of attempts."""
    failed_attempts: int = 0
    """The number of failed attempts."""
    lost_attempts: int = 0
    """The number of attempts whose worker was lost."""
    started_at: datetime | None = None
    """When the first attempt started; None if none has."""
    updated_at: datetime | None = None
    """The time of the newest history row about it; None before the first."""
    duration: timedelta | None = None
    """From the first start to the last end, to the time of the read while under way; None if it has not started."""
    host: str | None = None
    """The host of the last completed attempt."""
    error: str | None = None
    """Class or code, and message, of the last failed attempt."""
    traceback: str | None = None
    """The traceback of the last failed attempt."""
    result: ValuePreview | None = None
    """The result; None if it is a map, has none yet, or was kept."""


def add_event(stage: StageDetails, row: HistoryRow) -> StageDetails:
    """Return a stage after a row of its history."""
    event, at = events.event_of(row), instant(row.at)
    attempts = stage.attempts + 1
    match event:
        case events.StageCompleted():
            stage = attrs.evolve(stage, attempts=attempts)
            if stage.mapped:
                stage = attrs.evolve(stage, items_done=(stage.items_done or 0) + 1)
        case events.StageRetrying() | events.StageFailed():
            stage = attrs.evolve(stage, attempts=attempts, failed_attempts=stage.failed_attempts + 1)
        case events.StageLost():
            stage = attrs.evolve(stage, attempts=attempts, lost_attempts=stage.lost_attempts + 1)
        case events.StageStarted() | events.StageSuspended():
            pass  # the external work continues, which counts as the stage's time
        case events.StageExpanded(items=items):
            stage = attrs.evolve(stage, items_total=items)
        case _:
            return stage
    started_at = event.started_at if isinstance(event, events.StageAttempt) else None
    begun = at if started_at is None else instant(started_at)
    stage = add_outcome(stage, row)
    return attrs.evolve(stage, started_at=min(begun, stage.started_at or begun), updated_at=at)


def add_outcome(stage: StageDetails, row: HistoryRow) -> StageDetails:
    """Return a stage with the result or the error of the attempt that a row of its history ends."""
    match events.event_of(row):
        case events.StageCompleted(host=host):
            stage = attrs.evolve(stage, host=host or stage.host)
            return stage if stage.mapped else attrs.evolve(stage, result=preview_of(row.payload))
        case events.StageRetrying() | events.StageFailed() as event:
            return attrs.evolve(
                stage,
                error=f"{event.error_type or event.code}: {event.message}",
                traceback=event.traceback,
            )
        case _:
            return stage


def add_job(stage: StageDetails, job: Job) -> StageDetails:
    """Return a stage with the attempt that a job is running, if any."""
    if job.state is not JobState.LEASED or job.outlives_run:
        return stage
    began_at = stage.started_at if job.leased_at is None else instant(job.leased_at)
    if stage.started_at is not None and began_at is not None:
        began_at = min(began_at, stage.started_at)
    return attrs.evolve(stage, attempts=stage.attempts + 1, started_at=began_at)


def add_progress(stages: dict[str, StageDetails], run: Run, plan: Plan, jobs: Sequence[Job]) -> None:
    """Set the state of each stage from the run's progress, which is more precise than the history."""
    progress = progress_from(run.progress)
    for number, group in enumerate(plan.groups):
        for node in group.nodes:
            stage = stages[node.name]
            if number < progress.group:
                stage = attrs.evolve(stage, state="done")
            elif number > progress.group:
                state = "waiting" if run.status not in TERMINAL else "not reached"
                stage = attrs.evolve(stage, state=state)
            else:
                stage = _with_node(stage, progress.nodes.get(node.name, NodeProgress()), run, jobs)
            stages[node.name] = stage


def _with_node(stage: StageDetails, node: NodeProgress, run: Run, jobs: Sequence[Job]) -> StageDetails:
    if node.map is not None:
        stage = attrs.evolve(stage, items_done=node.map.done, items_total=node.map.total)
    if node.output is not None:
        return attrs.evolve(stage, state="done")
    if run.status in TERMINAL:
        error = error_of(run)
        is_to_blame = run.status is RunStatus.FAILED and error is not None and error.stage == stage.name
        return attrs.evolve(stage, state="failed" if is_to_blame else "stopped")
    found = {job.state for job in jobs if job.node == stage.name and not job.outlives_run}
    state = next((text for state, text in _STATES.items() if state in found), stage.state)
    return attrs.evolve(stage, state="retrying" if state == "sleeping" and stage.failed_attempts else state)


def add_kept(stages: dict[str, StageDetails], kept: Mapping[str, int]) -> None:
    """Set the generation that produced the output, for stages that this one has kept."""
    for name, generation in kept.items():
        if name in stages:
            stages[name] = attrs.evolve(stages[name], state="kept", kept_of=generation)


def timed(stage: StageDetails, now: datetime) -> StageDetails:
    """Return a stage with its duration."""
    if stage.started_at is None:
        return stage
    end = now if stage.state in _UNDER_WAY or stage.updated_at is None else stage.updated_at
    return attrs.evolve(stage, duration=end - stage.started_at)
