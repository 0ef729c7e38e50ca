"""Details of one run: its stages or steps, live jobs, child runs and outputs. Read in a bounded number of queries.

User code is needed only to find the running steps of a durable function, by a replay.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final

import attrs

from holdfast.hosts.functions.published_values import newest_rows, published_name
from holdfast.hosts.inspection import stages, steps
from holdfast.hosts.inspection.annotations import AnnotationInfo, annotations_of
from holdfast.hosts.inspection.bounds import CHILDREN_SHOWN, ENTRIES_MAX, HISTORY_ROWS_MAX, PUBLISHED_ROWS_MAX
from holdfast.hosts.inspection.children import ChildInfo, children_of
from holdfast.hosts.inspection.logs import LogLine, LogReader, ProgressInfo, progress_of
from holdfast.hosts.inspection.open_calls import open_calls_of
from holdfast.hosts.inspection.run_info import RunEvent, RunInfo, canceller_of, event_of, read_info
from holdfast.hosts.inspection.stages import StageDetails
from holdfast.hosts.inspection.steps import StepDetails
from holdfast.hosts.inspection.value_previews import ValuePreview, preview_of
from holdfast.hosts.inspection.why import blocked_text, limits_of, sessions_of
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.history import events
from holdfast.kernel.history.reader import rows_of
from holdfast.kernel.limits.overrides import slots_in_force
from holdfast.kernel.pipelines.headers import headers_of
from holdfast.kernel.pipelines.plan import MapPlan
from holdfast.ports.actors import Actor
from holdfast.ports.clock import instant, micros
from holdfast.ports.mailboxes import mailbox_from
from holdfast.ports.queries.runs import JobsOfRun, RunsByKey
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job, JobKind, JobState, limit_of_attempts, step_of
from holdfast.ports.records.limits import LimitName, LimitRow, SlotName, run_slot, stage_slot
from holdfast.ports.records.run import TERMINAL, Run, RunStatus
from holdfast.ports.records.session import Session, SessionState
from holdfast.ports.records.values import Micros
from holdfast.ports.references import leaves, located, references_from
from holdfast.ports.searches import SlotPlace, UsedSlots, Waiting

_ORDER: Final = (
    JobState.LEASED,
    JobState.SLEEPING,
    JobState.QUEUED,
    JobState.LIMITED,
    JobState.PAUSED,
    JobState.PENDING_DELIVERY,
)


@attrs.frozen(kw_only=True)
class JobDetails:
    """A live job of a run. Instants are aware, in UTC."""

    id: str
    """The id of the job, `<key of the run>.<number>`."""
    number: int
    """The number of the job in its run."""
    kind: JobKind
    """What it does: run a stage, expand a map, drive a function, run a step of a queue, ..."""
    stage: str
    """Its stage; of a queued step, the call; of a durable function, its name."""
    item: int | None
    """The index of its map item; None if the stage is not mapped."""
    step: str | None
    """The name of the step, if it is a queued step."""
    state: JobState
    """Its state."""
    queue: str
    """Its queue."""
    epoch: int
    """The number of its latest claim."""
    attempts: int
    """The number of attempts so far."""
    lost_attempts: int
    """The number of attempts whose worker was lost."""
    max_attempts: int | None
    """The maximum number of attempts, without lost ones; None for no limit."""
    wake_at: datetime | None
    """When it wakes, if it sleeps until a time."""
    leased_at: datetime | None
    """When it was claimed, if it is leased."""
    session: str | None
    """The id of the session that it is leased to."""
    host: str | None
    """The worker of that session, `<host>:<pid>`; None if it is not leased, or the session is gone."""
    is_lost: bool
    """Whether it is leased to a worker that is lost: it is released soon."""
    waiting_for: str | None
    """The child run whose end it waits for, or the key of the external work that it polls or cancels."""
    concurrency_key: str | None
    """What its limits count: `<workflow>/<stage>`, `step:<name>`, or `/<name>` if they are shared by a name, each
    followed by the text of an attribute if they are counted for each; None without limits."""
    concurrency_limit: int | None
    """How many jobs of this key may run at a time; None for no limit."""
    slots_used: int | None
    """How many of these are running, if it waits for one of them; else None."""
    slots_in_force: int | None
    """How many may run now, if it waits for one of them: what an operator has set, else the limit above."""


@attrs.frozen(kw_only=True)
class PublishedValue:
    """The last value that a durable function published under a name."""

    name: str
    """The name given to `publish`."""
    value: ValuePreview | None
    """The value; None if the row of it stores none."""
    at: datetime
    """When it was stored; aware, in UTC."""


@attrs.frozen(kw_only=True)
class RunDetails(RunInfo):
    """A generation of a run with its details, as it was when it was read."""

    headers: Mapping[str, str]
    """The headers that it has from its start and from its parent."""
    started_by: Actor | None
    """Who started it; None if unknown."""
    cancelled_by: Actor | None
    """Who cancelled or terminated it; None if unknown."""
    continues: int | None
    """The number of the generation that continued as this one; None if none did."""
    attempt: int | None
    """Which attempt of a run it is that is retried as a whole, from 1; None if it is not."""
    max_attempts: int | None
    """The maximum number of these attempts; None for no limit."""
    blocked: str | None
    """Why it is blocked; None if it is not."""
    slots_used: int | None
    """How many slots of its concurrency key are in use, if it waits for one; else None."""
    slots_in_force: int | None
    """How many there are now, if it waits for one: what an operator has set, else its `concurrency_limit`."""
    waits_for_rate: str | None
    """The name of the rate of starts that it waits for, `run-rate:<name>`; None if it does not."""
    stages: tuple[StageDetails, ...]
    """The stages of the plan; of a durable function, the function itself."""
    steps: tuple[StepDetails, ...] | None
    """The last 1,000 steps of a durable function, the latest change last; None for a pipeline."""
    step_count: int
    """The number of its steps."""
    jobs: tuple[JobDetails, ...]
    """Live jobs, those that run first; at most 1,000."""
    job_count: int
    """The number of its live jobs."""
    children: tuple[ChildInfo, ...]
    """The newest 20 child runs that it started, newest first."""
    has_more_children: bool
    """Whether it started further child runs."""
    history_rows: int
    """The number of its last history row."""
    is_whole: bool
    """Whether the details are derived from all history rows; if not, from the first 20,000."""
    unread: tuple[int, ...]
    """The row numbers of messages that its function has not received."""
    annotations: tuple[AnnotationInfo, ...]
    """The first 1,000 annotations, oldest first."""
    progress: tuple[ProgressInfo, ...]
    """The latest progress of each stage and map item, at most 1,000."""
    published: tuple[PublishedValue, ...]
    """The last values of a durable function, by name, from its last 200 published values."""
    history: tuple[RunEvent, ...] | None = None
    """The first 20,000 events of its own history; None if they were not requested."""
    log: tuple[LogLine, ...] | None = None
    """The first 20,000 log lines; None if they were not requested."""


@attrs.define
class _History:
    """Stages and steps, as the history of a run has them."""

    stages: dict[str, StageDetails]
    """By name."""
    steps: dict[str, StepDetails] = attrs.field(factory=dict[str, StepDetails])
    """By call, the latest change last."""
    started_by: Actor | None = None
    of_operators: list[HistoryRow] = attrs.field(factory=list[HistoryRow])
    """The rows of what operators did."""
    continues: int | None = None
    attempt: int = 1


def read_run(core: Core, run: Run, *, history: bool = False, log: bool = False) -> RunDetails:
    """Read the details of a run, with its history and log on request. UnreadableRowError or UnknownPlanError."""
    core.connect()
    now, plan = core.clock.now(), core.inputs.plan(run.plan)
    jobs = core.stores.persistence.read(JobsOfRun(run.key)) if run.status not in TERMINAL else ()
    holders = sessions_of(core, jobs)
    derived = _read_history(core, run, HISTORY_ROWS_MAX)
    for job in jobs:
        if job.node in derived.stages:
            derived.stages[job.node] = stages.add_job(derived.stages[job.node], job)
    stages.add_progress(derived.stages, run, plan, jobs)
    stages.add_kept(derived.stages, _kept_stages(core, run))
    is_function = plan.function is not None
    if is_function:
        add_open_steps(core, derived.steps, run, jobs, holders, micros(now))
    slots = _slots_used(core, run, jobs)
    limits = limits_of(core, run, jobs) if slots else {}
    children = tuple(children_of(core, run, {"limit": CHILDREN_SHOWN + 1}))
    info: dict[str, Any] = attrs.asdict(read_info(core, run), recurse=False)
    return RunDetails(
        **info,
        headers=headers_of(run.headers),
        started_by=derived.started_by,
        cancelled_by=canceller_of(derived.of_operators),
        continues=derived.continues,
        attempt=derived.attempt if plan.run_attempts > 1 else None,
        max_attempts=limit_of_attempts(plan.run_attempts) if plan.run_attempts > 1 else None,
        blocked=blocked_text(core, run),
        slots_used=None if run.slot is None else slots.get(run.slot),
        slots_in_force=_in_force(limits, run) if run.slot in slots else None,
        waits_for_rate=run.rate_key if run.status is RunStatus.PENDING and run.waits_for_rate else None,
        stages=tuple(stages.timed(stage, now) for stage in derived.stages.values()),
        steps=_latest(derived.steps.values(), now) if is_function else None,
        step_count=len(derived.steps),
        jobs=tuple(_job(job, holders, slots, limits) for job in sorted(jobs, key=_job_order)[:ENTRIES_MAX]),
        job_count=len(jobs),
        children=children[:CHILDREN_SHOWN],
        has_more_children=len(children) > CHILDREN_SHOWN,
        history_rows=run.last_row,
        is_whole=run.last_row <= HISTORY_ROWS_MAX,
        unread=mailbox_from(run.mailbox).unread,
        annotations=tuple(annotations_of(core, run.key, {"limit": ENTRIES_MAX})),
        progress=tuple(islice(progress_of(core, run.key), ENTRIES_MAX)),
        published=published_values(core, run) if is_function else (),
        history=_events(core, run) if history else None,
        log=tuple(islice(LogReader(core, run, {}).all(), HISTORY_ROWS_MAX)) if log else None,
    )


def read_steps(core: Core, run: Run) -> tuple[StepDetails, ...]:
    """Return the last 1,000 steps that the history of a run records, the latest change last."""
    return _latest(_read_history(core, run, HISTORY_ROWS_MAX).steps.values(), core.clock.now())


def every_step(core: Core, run: Run) -> list[StepDetails]:
    """Return the steps in the whole history of a run, in the order of their first rows."""
    found = _read_history(core, run, None).steps.values()
    return sorted(found, key=lambda step: step.first_row)


def _latest(found: Iterable[StepDetails], now: datetime) -> tuple[StepDetails, ...]:
    return tuple(steps.timed(step, now) for step in [*found][-ENTRIES_MAX:])


def _read_history(core: Core, run: Run, most: int | None) -> _History:
    plan = core.inputs.plan(run.plan)
    history = _History(
        {name: StageDetails(name=name, mapped=isinstance(node, MapPlan)) for name, node in plan.nodes.items()}
    )
    kept = generations_of(core, [part.run for part in run.kept_rows])
    for row in islice(rows_of(core.stores.persistence, run), most):
        steps.add_step(history.steps, row, kept.get(row.run))
        if row.run != run.key:
            continue
        if row.type == events.RunCreated.type:
            created = events.RunCreated.from_row(row)
            history.continues, history.attempt = created.continues, created.attempt or 1
            history.started_by = created.actor
        elif issubclass(events.class_of(row.type), events.OperatorEvent):
            history.of_operators.append(row)
        stage = history.stages.get(row.node or "") if row.type.startswith("stage.") else None
        if stage is not None:
            history.stages[stage.name] = stages.add_event(stage, row)
    return history


def _events(core: Core, run: Run) -> tuple[RunEvent, ...]:
    own_rows = rows_of(core.stores.persistence, run, run.first_row - 1)
    return tuple(map(event_of, islice(own_rows, HISTORY_ROWS_MAX)))


def published_values(core: Core, run: Run) -> tuple[PublishedValue, ...]:
    """Return the last values of a durable function, by name, from its last 200 published values."""
    rows = newest_rows(core.stores.persistence, run, events.ValuePublished.type, PUBLISHED_ROWS_MAX)
    found: dict[str, PublishedValue] = {}
    for row in islice(rows, PUBLISHED_ROWS_MAX):
        name = published_name(row)
        if name not in found:
            found[name] = PublishedValue(name=name, value=preview_of(row.payload), at=instant(row.at))
    return tuple(found[name] for name in sorted(found))


def _in_force(limits: Mapping[LimitName, LimitRow], one: Run | Job) -> int | None:
    """Return the number of slots in force of the innermost limit of a run or job; None without a limit."""
    of_slots = slots_in_force(limits, one)
    return of_slots[-1][1] if of_slots else None


def _job(
    job: Job,
    holders: Mapping[str, Session],
    slots: Mapping[SlotName, int],
    limits: Mapping[LimitName, LimitRow],
) -> JobDetails:
    holder = holders.get(job.session or "")
    waits = job.state is JobState.LIMITED and job.slot is not None
    return JobDetails(
        id=job.key.text,
        number=job.number,
        kind=job.kind,
        stage=job.node,
        item=job.item,
        step=step_of(job.definition),
        state=job.state,
        queue=job.queue,
        epoch=job.epoch,
        attempts=job.attempts,
        lost_attempts=job.lost_attempts,
        max_attempts=limit_of_attempts(job.max_attempts),
        wake_at=None if job.wake_at is None else instant(job.wake_at),
        leased_at=None if job.leased_at is None else instant(job.leased_at),
        session=job.session,
        host=None if holder is None else holder.host,
        is_lost=holder is not None and holder.state is not SessionState.OPEN,
        waiting_for=job.waiting_for,
        concurrency_key=job.concurrency_key,
        concurrency_limit=job.concurrency_limit,
        slots_used=slots.get(job.slot, 0) if waits and job.slot is not None else None,
        slots_in_force=_in_force(limits, job) if waits else None,
    )


def _job_order(job: Job) -> tuple[int, int]:
    return _ORDER.index(job.state), job.number


def add_open_steps(
    core: Core,
    found: dict[str, StepDetails],
    run: Run,
    jobs: Sequence[Job],
    holders: Mapping[str, Session],
    now: Micros,
) -> None:
    """Add the steps that the worker of a durable function is running now, found by a replay of its history."""
    held = next((job for job in jobs if job.kind is JobKind.WORKFLOW and job.state is JobState.LEASED), None)
    waits = None if held is None else open_calls_of(core, run, now)
    if held is None or waits is None:
        return
    holder = holders.get(held.session or "")
    for one in waits.steps:
        if one.retry_at is None:
            began_at = max(one.since, held.leased_at or 0)
            steps.add_open_step(found, one, began_at, None if holder is None else holder.host)


def _kept_stages(core: Core, run: Run) -> dict[str, int]:
    """Return the generations that produced the outputs of the stages that this one has kept."""
    kept = references_from(run.inherited)
    keys = {name: located(run.key, leaf)[0] for name, reference in kept.items() for leaf in leaves(reference)}
    numbers = generations_of(core, keys.values())
    return {name: numbers.get(keys.get(name, ""), run.generation - 1) for name in kept}


def generations_of(core: Core, keys: Iterable[str]) -> dict[str, int]:
    """Return the generation numbers of runs, by their keys."""
    wanted = tuple(sorted(set(keys)))
    found = core.stores.persistence.read(RunsByKey(wanted)) if wanted else ()
    return {run.key: run.generation for run in found}


def _slots_used(core: Core, run: Run, jobs: Sequence[Job]) -> dict[SlotName, int]:
    """Return the numbers of used slots, for each slot that the run or one of its jobs waits for."""
    waits = run.status is RunStatus.PENDING and run.concurrency_key is not None and not run.in_rate_line
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
