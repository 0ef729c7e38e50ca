"""Details of one run for `holdfast run show`, read from its row, plan, history and live jobs.

User code is needed only to find the running steps of a durable function, by a replay.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, cast

import attrs

from holdfast.hosts.cli.step_table import StepSummary, add_open_step, add_step
from holdfast.hosts.functions.published_values import PublishedValue, published_values
from holdfast.hosts.inspection.annotations import AnnotationInfo, annotations_of
from holdfast.hosts.inspection.logs import ProgressInfo, progress_of
from holdfast.hosts.inspection.open_calls import open_calls_of
from holdfast.hosts.inspection.run_info import canceller_of
from holdfast.hosts.inspection.why import blocked_text
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.history import events
from holdfast.kernel.history.reader import rows_of
from holdfast.kernel.pipelines.plan import MapPlan, Plan
from holdfast.kernel.pipelines.progress import NodeProgress, progress_from
from holdfast.ports.actors import Actor
from holdfast.ports.errors import RunNotFoundError
from holdfast.ports.json import parse
from holdfast.ports.queries.history import HistoryOf
from holdfast.ports.queries.runs import FindRun, JobsOfRun, RunsByKey
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job, JobKind, JobState
from holdfast.ports.records.limits import SlotName, run_slot, stage_slot
from holdfast.ports.records.run import TERMINAL, Run, RunName, RunStatus
from holdfast.ports.records.session import Session
from holdfast.ports.records.values import Micros
from holdfast.ports.references import leaves, located, reference_from, references_from
from holdfast.ports.searches import SlotPlace, UsedSlots, Waiting
from holdfast.ports.tables import SESSIONS

ROWS_MAX: Final = 20_000
"""Maximum number of history rows that are read for the details of stages and steps."""
ANNOTATIONS_MAX: Final = 1_000
"""Maximum number of annotations that are shown, oldest first."""
_PAGE: Final = 500

Data = Mapping[str, object]
StageItem = tuple[str, int | None]
"""The name of a stage, and the item's index if the stage is mapped."""


@attrs.define(kw_only=True)
class StageSummary:
    """State, attempts and times of one stage."""

    name: str
    mapped: bool
    """Whether it is a map."""
    state: str = "waiting"
    """The state as it is shown: `waiting`, `queued`, `running`, `retrying`, `done`, `kept`, `failed`, `paused` ..."""
    done: int = 0
    """Number of completed items, or of completed attempts if the stage is not mapped."""
    total: int | None = None
    """Number of items of a map; None if not known yet."""
    attempts: int = 0
    """Number of attempts."""
    failed: int = 0
    """Number of failed attempts."""
    lost: int = 0
    """Number of attempts whose worker was lost."""
    started_at: Micros | None = None
    """When the first attempt started."""
    last_at: Micros | None = None
    """The time of the newest history row about the stage."""
    host: str | None = None
    """The host of the last completed attempt."""
    error: str | None = None
    """Class or code, and message, of the last failed attempt."""
    traceback: str | None = None
    """The traceback of the last failed attempt."""
    kept_of: int | None = None
    """The generation that produced the output, if this one has kept it."""

    def length(self, now: Micros) -> Micros | None:
        """Return the duration in microseconds, until now while under way; of a map from the first item to the last."""
        if self.started_at is None:
            return None
        under_way = self.state in {"running", "retrying", "queued", "sleeping"}
        return (now if under_way or self.last_at is None else self.last_at) - self.started_at


@attrs.frozen(kw_only=True)
class RunDetails:
    """One run with its details, at one instant."""

    run: Run
    plan: Plan
    stages: tuple[StageSummary, ...]
    """One for each stage of the plan."""
    jobs: tuple[Job, ...]
    """Live jobs; of maps there may be many."""
    holders: Mapping[str, Session]
    """Sessions that hold jobs, by id."""
    places: Mapping[int, StageItem]
    """Stages and items, by the numbers of their jobs."""
    now: Micros
    """When the details were read."""
    whole: bool
    """False if the history is longer than `ROWS_MAX`, so that details are incomplete."""
    slots_used: Mapping[SlotName, int]
    """Slots in use, for each slot that the run or one of its jobs waits for."""
    annotations: tuple[AnnotationInfo, ...] = ()
    progress: tuple[ProgressInfo, ...] = ()
    steps: tuple[StepSummary, ...] | None = None
    """Steps of a durable function, the latest change last; None for a pipeline."""
    blocked: str | None = None
    """Why the run is blocked."""
    published: tuple[PublishedValue, ...] = ()
    continues: bool = False
    """Whether the previous generation continued as this one."""
    attempt: int | None = None
    """Which attempt of a run it is that is retried as a whole, from 1; None if it is not."""
    starter: Actor | None = None
    """Who started this generation."""
    canceller: Actor | None = None
    """Who cancelled or terminated it."""


def find_run(core: Core, run_id: str, generation: int | None = None) -> Run:
    """Return a generation of a run, by default the newest. Raises RunNotFoundError."""
    core.connect()
    run = core.stores.persistence.read(FindRun(RunName(core.namespace, run_id), generation))
    if run is None:
        raise RunNotFoundError(run_id, generation)
    return run


def history_of(core: Core, run: str, most: int | None = None) -> Iterator[HistoryRow]:
    """Yield a run's history, page by page; at most `most` rows."""
    after = 0
    while most is None or after < most:
        limit = _PAGE if most is None else min(_PAGE, most - after)
        rows = core.stores.persistence.read(HistoryOf(run, after, limit))
        yield from rows
        if len(rows) < limit:
            return
        after = rows[-1].number


def read_run_details(core: Core, run: Run, now: Micros) -> RunDetails:
    """Read the details of a run."""
    plan = core.inputs.plan(run.plan)
    jobs = core.stores.persistence.read(JobsOfRun(run.key)) if run.status not in TERMINAL else ()
    stages = {
        name: StageSummary(name=name, mapped=isinstance(node, MapPlan)) for name, node in plan.nodes.items()
    }
    places: dict[int, StageItem] = {}
    steps: dict[str, StepSummary] = {}
    continues, attempt = False, 1
    starter: Actor | None = None
    of_operators: list[HistoryRow] = []
    kept = _generations(core, [part.run for part in run.kept_rows])
    for row in islice(rows_of(core.stores.persistence, run), ROWS_MAX):
        add_step(steps, row, kept.get(row.run))
        if row.run != run.key:
            continue
        if row.type == events.RunCreated.type:
            created = events.RunCreated.from_row(row)
            starter = created.actor
            continues, attempt = created.continues is not None, created.attempt or 1
        elif issubclass(events.class_of(row.type), events.OperatorEvent):
            of_operators.append(row)
        _add_row(stages, places, row)
    for job in jobs:
        _add_job(stages, places, job)
    holders = _sessions(core, jobs)
    _add_open_steps(core, steps, run, jobs, holders, now)
    _add_progress(stages, run, plan, jobs)
    _add_kept(core, stages, run)
    return RunDetails(
        run=run,
        plan=plan,
        stages=tuple(stages.values()),
        jobs=tuple(sorted(jobs, key=_job_order)),
        holders=holders,
        places=places,
        now=now,
        whole=run.last_row <= ROWS_MAX,
        slots_used=_slots_used(core, run, jobs),
        annotations=tuple(annotations_of(core, run.key, {"limit": ANNOTATIONS_MAX})),
        progress=tuple(progress_of(core, run.key)),
        steps=None if plan.function is None else tuple(steps.values()),
        blocked=blocked_text(core, run),
        published=() if plan.function is None else tuple(published_values(core, run)),
        continues=continues,
        attempt=attempt if plan.run_attempts > 1 else None,
        starter=starter,
        canceller=canceller_of(of_operators),
    )


def result_text(core: Core, run: Run) -> str:
    """Return the result of a completed run as JSON text."""
    return core.inputs.text(run.key, reference_from(run.result or "null"))


def _add_row(stages: Mapping[str, StageSummary], places: dict[int, StageItem], row: HistoryRow) -> None:
    stage = stages.get(row.node or "")
    if stage is None:
        return
    event = events.event_of(row)
    job = events.job_of(event)
    if job is not None:
        places[job] = (stage.name, row.item)
    add_event(stage, event, row.at)


def add_event(stage: StageSummary, event: events.HistoryEvent, at: Micros) -> None:
    """Update a stage's details with an event of its history, and when it was stored."""
    match event:
        case events.StageCompleted(host=host):
            stage.attempts += 1
            stage.done += 1
            stage.host = host or stage.host
        case events.StageRetrying() | events.StageFailed():
            stage.attempts += 1
            stage.failed += 1
            stage.error = f"{event.error_type or event.code}: {event.message}"
            stage.traceback = event.traceback
        case events.StageLost():
            stage.attempts += 1
            stage.lost += 1
        case events.StageStarted() | events.StageSuspended():
            pass  # the external work continues, which counts as the stage's time
        case events.StageExpanded(items=items):
            stage.total = items
        case _:
            return
    started_at = event.started_at if isinstance(event, events.StageAttempt) else None
    begun = at if started_at is None else started_at
    stage.started_at = begun if stage.started_at is None else min(stage.started_at, begun)
    stage.last_at = at


def _add_job(stages: Mapping[str, StageSummary], places: dict[int, StageItem], job: Job) -> None:
    places[job.number] = (job.node, job.item)
    stage = stages.get(job.node)
    if stage is None or job.state is not JobState.LEASED or job.outlives_run:
        return
    stage.attempts += 1
    if job.leased_at is not None:
        stage.started_at = job.leased_at if stage.started_at is None else min(stage.started_at, job.leased_at)


def _add_open_steps(
    core: Core,
    steps: dict[str, StepSummary],
    run: Run,
    jobs: Sequence[Job],
    holders: Mapping[str, Session],
    now: Micros,
) -> None:
    """Add the steps that the worker of a durable function is running now."""
    held = next((job for job in jobs if job.kind is JobKind.WORKFLOW and job.state is JobState.LEASED), None)
    waits = None if held is None else open_calls_of(core, run, now)
    if held is None or waits is None:
        return
    holder = holders.get(held.session or "")
    for one in waits.steps:
        if one.retry_at is None:
            began_at = max(one.since, held.leased_at or 0)
            add_open_step(steps, one, began_at, None if holder is None else holder.host)


def _add_progress(stages: Mapping[str, StageSummary], run: Run, plan: Plan, jobs: Sequence[Job]) -> None:
    """Set the state of each stage from the run's progress, which is more precise than the history."""
    progress = progress_from(run.progress)
    for number, group in enumerate(plan.groups):
        for node in group.nodes:
            stage = stages[node.name]
            if number < progress.group:
                stage.state = "done"
            elif number > progress.group:
                stage.state = "waiting" if run.status not in TERMINAL else "not reached"
            else:
                _add_node(stage, progress.nodes.get(node.name, NodeProgress()), run, jobs)


def _add_kept(core: Core, stages: Mapping[str, StageSummary], run: Run) -> None:
    """Set the generation that produced the output, for stages that this one has kept."""
    kept = references_from(run.inherited)
    keys = {name: located(run.key, leaf)[0] for name, reference in kept.items() for leaf in leaves(reference)}
    numbers = _generations(core, keys.values())
    for name in kept:
        if name in stages:
            stages[name].state = "kept"
            stages[name].kept_of = numbers.get(keys.get(name, ""), run.generation - 1)


def _generations(core: Core, keys: Iterable[str]) -> dict[str, int]:
    """Return the generation numbers of runs, by their keys."""
    wanted = tuple(sorted(set(keys)))
    found = core.stores.persistence.read(RunsByKey(wanted)) if wanted else ()
    return {run.key: run.generation for run in found}


def _add_node(stage: StageSummary, node: NodeProgress, run: Run, jobs: Sequence[Job]) -> None:
    if node.map is not None:
        stage.done, stage.total = node.map.done, node.map.total
    if node.output is not None:
        stage.state = "done"
        return
    if run.status in TERMINAL:
        is_to_blame = run.status is RunStatus.FAILED and _failed_stage(run) == stage.name
        stage.state = "failed" if is_to_blame else "stopped"
        return
    states = {job.state for job in jobs if job.node == stage.name and not job.outlives_run}
    if JobState.LEASED in states:
        stage.state = "running"
    elif JobState.QUEUED in states:
        stage.state = "queued"
    elif JobState.SLEEPING in states:
        stage.state = "retrying" if stage.failed else "sleeping"
    elif JobState.LIMITED in states:
        stage.state = "limited"
    elif JobState.PAUSED in states:
        stage.state = "paused"


def _failed_stage(run: Run) -> object:
    return cast("dict[str, object]", parse(run.error)).get("stage") if run.error else None


def _sessions(core: Core, jobs: Sequence[Job]) -> dict[str, Session]:
    """Return the sessions that hold jobs, by id."""
    ids = tuple(sorted({job.session for job in jobs if job.session is not None}))
    if not ids:
        return {}
    found = core.stores.persistence.transact(lambda tx: tuple(tx.get(SESSIONS, ids)))
    return {session.id: session for session in found}


def _slots_used(core: Core, run: Run, jobs: Sequence[Job]) -> dict[SlotName, int]:
    """Return the numbers of used slots, for each slot that the run or one of its jobs waits for."""
    waits = run.status is RunStatus.PENDING and run.concurrency_key is not None
    keys = {job.concurrency_key for job in jobs if job.state is JobState.LIMITED and job.concurrency_key}
    used: dict[SlotName, int] = {}
    for waiting, of, wanted in (
        (Waiting.RUNS, run_slot, {run.concurrency_key or ""} if waits else set[str]()),
        (Waiting.JOBS, stage_slot, keys),
    ):
        if wanted:
            places = [SlotPlace(run.namespace, key) for key in sorted(wanted)]
            found = core.stores.persistence.transact(lambda tx: tx.find(UsedSlots(waiting, places)))  # noqa: B023
            used.update((of(place.namespace, place.key), number) for place, number in found.items())
    return used


def _job_order(job: Job) -> tuple[int, int]:
    order = (JobState.LEASED, JobState.SLEEPING, JobState.QUEUED, JobState.LIMITED, JobState.PAUSED)
    return order.index(job.state), job.number
