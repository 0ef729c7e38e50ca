"""Rules for child runs: how a parent run starts them, and how their results are delivered to it."""

from collections.abc import Mapping, Sequence
from typing import Final, cast

from holdfast.kernel.commands import (
    NO_FOLLOW_UP,
    ChildRunStarted,
    ChildStart,
    Failure,
    FollowUp,
    JobSettled,
    RunCreate,
    RunDeliver,
    RunDelivered,
)
from holdfast.kernel.history import events
from holdfast.kernel.limits.run_rates import with_rate
from holdfast.kernel.limits.start_bounds import check_limit, limited, with_concurrency
from holdfast.kernel.pipelines.plan import Plan
from holdfast.kernel.pipelines.progress import progress_from
from holdfast.kernel.rules.fair_starts import check_weight
from holdfast.kernel.rules.follow_ups import follow_up_after
from holdfast.kernel.rules.leases import parse_job_id
from holdfast.kernel.rules.retries import AttemptDetails, fail_stage
from holdfast.kernel.rules.run_creation import Parent
from holdfast.kernel.rules.settlement import Settlement, fail_with, with_other
from holdfast.kernel.rules.signals import wake_driver
from holdfast.kernel.rules.starts import check_start, new_child
from holdfast.kernel.runs.builder import RunDraft
from holdfast.kernel.runs.plan_interpreter import stage_completed
from holdfast.kernel.search_results import NewRun
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import Change, Delete, Update
from holdfast.ports.clock import Ids
from holdfast.ports.errors import (
    ConcurrencyFullError,
    InvalidCommandError,
    RateExceededError,
    UnknownWorkflowError,
)
from holdfast.ports.json import canonical, parse
from holdfast.ports.records.job import Job, JobKey, JobState
from holdfast.ports.records.run import TERMINAL, Run, RunName, RunStatus
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import evolve
from holdfast.ports.tables import JOBS

_REFUSALS: Final = (ConcurrencyFullError, RateExceededError, InvalidCommandError)
"""Refusals of a child run that its parent sees. Attributes that it inherits may not fit the units of its rate."""


def start_child(settlement: Settlement) -> Decision[JobSettled]:
    """Create the child run of a stage, whose job then sleeps until the child run ends; or fail if it can't be created.

    If this run's child exists already, because its job was lost and repaired, the new job waits for it instead.
    """
    child, state, run, job = settlement.command.outcome, settlement.state, settlement.run, settlement.job
    assert isinstance(child, ChildRunStarted)
    known = state.tables.run_named(RunName(run.namespace, child.run_id))
    if known is not None and (known.parent is None or parse_job_id(known.parent).run != run.key):
        message = f"there is a run {child.run_id!r} already, and it is not a child of this run"
        failure = Failure(code="run_exists", message=message, retryable=False)
        return fail_with(settlement, failure, settlement.details)
    try:
        made = (
            _created(state, run, job, child, settlement.now, settlement.ids)
            if known is None
            else adopt_child(known, job.key)
        )
    except _REFUSALS as error:
        failure = Failure(code=error.code, message=str(error), retryable=False)
        return fail_with(settlement, failure, settlement.details)
    draft = settlement.draft()
    draft.append_of(job, events.StageStarted(run=child.run_id))
    draft.wait_for_child(job, child.run_id)
    return with_other(settlement.settled(draft), made)


def start_child_of_function(
    state: State,
    draft: RunDraft,
    run: Run,
    job: Job,
    record: ChildStart,
    now: Micros,
    ids: Ids,
    earlier: Sequence[Change],
) -> Decision[FollowUp] | None:
    """Create a child run of a durable function and append the row; if it is refused, append `child.failed`.

    It is refused if the id is taken, the concurrency key is full, the rate is used up, or an option does not fit.
    Returns None if no run is created. `earlier` are changes of the same command to other runs.
    """
    child = record.child
    known = state.tables.run_named(RunName(run.namespace, child.run_id))
    if known is not None and (known.parent is None or parse_job_id(known.parent).run != run.key):
        message = f"there is a run {child.run_id!r} already, and it is not a child of this run"
        _refuse_child(draft, job, record, "run_exists", message)
        return None
    created: Decision[FollowUp] | None = None
    if known is None:
        try:
            created = _created(state, run, job, child, now, ids, earlier)
        except _REFUSALS as error:
            _refuse_child(draft, job, record, error.code, str(error))
            return None
    started = events.ChildStarted(
        call=record.call, run=child.run_id, workflow=child.workflow, site=record.site
    )
    draft.append(started, node=job.node)
    if created is not None:
        draft.count_child()
    return created


def _refuse_child(draft: RunDraft, job: Job, record: ChildStart, code: str, message: str) -> None:
    child = record.child
    failed = events.ChildFailed(
        call=record.call,
        run=child.run_id,
        workflow=child.workflow,
        site=record.site,
        code=code,
        message=message,
    )
    draft.append(failed, node=job.node)


def _created(
    state: State,
    run: Run,
    job: Job,
    child: ChildRunStarted,
    now: Micros,
    ids: Ids,
    earlier: Sequence[Change] = (),
) -> Decision[FollowUp]:
    plan = state.workflows.get((child.workflow, child.version))
    if plan is None:
        raise UnknownWorkflowError(child.workflow, child.version)
    given = child.options
    command = RunCreate(
        namespace=run.namespace,
        workflow=child.workflow,
        version=child.version,
        input=child.input,
        id=child.run_id,
        queue=given.queue or plan.queue or run.queue,
        priority=next(one for one in (given.priority, plan.priority, run.priority) if one is not None),
        attributes=run.attributes if given.attributes is None else given.attributes,
        headers=run.headers if given.headers is None else given.headers,
        start_at=given.start_at,
        deadline=given.deadline,
        weight=given.weight,
        rate=given.rate,
        units=given.units,
    )
    if given.concurrency is not None:
        check_limit(given.concurrency)
        command = limited(command, given.concurrency)
    command = with_rate(with_concurrency(command, plan), plan)
    check_start(command, inherits=True)
    check_weight(command, plan)
    return new_child(
        state,
        command,
        plan,
        now,
        ids,
        parent=Parent(job.key.text, run.id),
        close_policy=child.close_policy,
        earlier=earlier,
    )


def new_run_of(child: ChildRunStarted, namespace: str, parent: str) -> NewRun:
    """Return what a start of a child run reads of its concurrency key. `parent` is the key of its parent run."""
    return NewRun(
        namespace=namespace,
        workflow=child.workflow,
        version=child.version,
        concurrency=child.options.concurrency,
        rate=child.options.rate,
        attributes=child.options.attributes,
        parent=parent,
    )


def adopt_child(child: Run, parent: JobKey) -> Decision[FollowUp]:
    """Make this job the one that waits for a child run. If the child run has ended, it delivers its result again."""
    taken = evolve(child, parent=parent.text)
    if child.status not in TERMINAL:
        return Decision(NO_FOLLOW_UP, (Update(taken),))
    draft = RunDraft(taken, child.updated_at)  # an ended run keeps its instants
    draft.add_parent_delivery()
    return Decision(draft.follow_up, draft.changes())


def reads_of_deliver(command: RunDeliver) -> Reads:
    """Lock the ended run with its delivery job, and the parent run with the job that waits."""
    keys = _keys(command)
    return Reads(runs=tuple(key.run for key in keys), jobs=keys, drivers=True)


def decide_deliver(state: State, command: RunDeliver, now: Micros, _: Ids) -> Decision[RunDelivered]:
    """Complete or fail the parent's stage or call, if it still waits for the child run. Repeating it does nothing."""
    delivery = state.tables.job(_keys(command)[0])
    if (
        delivery is None
        or delivery.state is not JobState.PENDING_DELIVERY
        or delivery.namespace != command.namespace
    ):
        return Decision(RunDelivered(status="closed"))
    if delivery.input != canonical(command.parent):
        raise InvalidCommandError(
            f"job {command.job} is to be delivered to {parse(delivery.input)}, not to {command.parent}"
        )
    closed = Delete(JOBS, delivery.key)
    if command.parent is None:
        return Decision(RunDelivered(status="closed"), (closed,))
    child, waiting = state.tables.runs[delivery.run], state.tables.job(parse_job_id(command.parent))
    parent = state.tables.runs.get(parse_job_id(command.parent).run)
    if parent is None or parent.status in TERMINAL:
        return Decision(RunDelivered(status="closed"), (closed,))
    plan = state.plan_of(parent)
    if plan.function is None and (waiting is None or waiting.waiting_for != child.id):
        return Decision(RunDelivered(status="closed"), (closed,))
    if child.status is RunStatus.COMPLETED and command.output is None and command.failure is None:
        raise InvalidCommandError(f"run {child.id!r} has completed; its output is missing")
    draft = RunDraft(parent, now)
    if plan.function is not None:
        _append_child_end(draft, plan.function, child, command)
        wake_driver(state, draft, parent, now)
    elif waiting is not None:
        _end_stage(draft, plan, waiting, child, command)
    reply = RunDelivered(status="delivered", follow_up=follow_up_after(state, parent, draft))
    return Decision(reply, (closed, *draft.changes()), tuple(draft.hints))


def _append_child_end(draft: RunDraft, node: str, child: Run, command: RunDeliver) -> None:
    if child.status is RunStatus.COMPLETED and command.failure is None:
        draft.append(events.ChildCompleted(run=child.id), node=node, payload=command.output)
        return
    if command.failure is not None:
        failure = command.failure
        failed = events.ChildFailed(run=child.id, code=failure.code, message=failure.message)
    else:
        error = cast("dict[str, str]", parse(child.error or "{}"))
        failed = events.ChildFailed(
            run=child.id,
            code=f"child_{child.status}",
            message=error.get("message") or error.get("code"),
            error=_error_to_raise(error),
        )
    draft.append(failed, node=node)


def _error_to_raise(error: Mapping[str, str]) -> events.RecordedError | None:
    """Return the error of a child run with which its parent can make the exception again, if it is recorded."""
    if "arguments" not in error:
        return None
    return events.RecordedError(
        type=error["type"], message=error["message"], code=error["code"], arguments=error["arguments"]
    )


def _end_stage(draft: RunDraft, plan: Plan, waiting: Job, child: Run, command: RunDeliver) -> None:
    if child.status is RunStatus.COMPLETED and command.failure is None:
        completed = events.StageCompleted(attempt=waiting.attempts, job=waiting.number, run=child.id)
        row = draft.append_of(waiting, completed, payload=command.output)
        draft.close_job(waiting)
        stage_completed(draft, plan, progress_from(draft.progress), waiting, row)
        return
    failure = command.failure or _failure_of(child)
    fail_stage(draft, plan, waiting, failure, AttemptDetails(child_run=child.id))


def _failure_of(child: Run) -> Failure:
    error = cast("dict[str, object]", parse(child.error or "{}"))
    message = f"run {child.id!r} {child.status}: {error.get('message') or error.get('code')}"
    return Failure(code=f"child_{child.status}", message=message, retryable=False)


def _keys(command: RunDeliver) -> tuple[JobKey, ...]:
    return tuple(parse_job_id(job) for job in (command.job, command.parent) if job is not None)
