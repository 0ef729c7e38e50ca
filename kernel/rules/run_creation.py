"""Rows of a new run: the run itself and its `run.created` event."""

from collections.abc import Sequence

from holdfast.kernel.commands import RunCreate
from holdfast.kernel.history import events
from holdfast.kernel.limits.fairness import Turn
from holdfast.kernel.limits.levels import nested_levels, path_of
from holdfast.kernel.limits.run_rates import rate_of, waits_for_rate
from holdfast.kernel.limits.start_bounds import given_concurrency, waiting_max
from holdfast.kernel.pipelines.plan import DEFAULT_QUEUE, Plan
from holdfast.kernel.runs.builder import INPUT_ROW
from holdfast.kernel.state import State
from holdfast.ports.changes import Change, Insert
from holdfast.ports.clock import Ids
from holdfast.ports.json import canonical, parse
from holdfast.ports.records.job import rank_of
from holdfast.ports.records.limits import OverRate, WhenFull
from holdfast.ports.records.run import ClosePolicy, Run, RunStatus
from holdfast.ports.records.values import Micros, PlanRow
from holdfast.ports.structs import frozen


@frozen
class Parent:
    """What waits for the end of a child run."""

    job: str
    """The id of the job in the parent run."""
    run_id: str
    """The id of that run."""


def new_run(
    command: RunCreate,
    plan: Plan,
    known: Run | None,
    now: Micros,
    ids: Ids,
    *,
    parent: Parent | None = None,
    close_policy: ClosePolicy = ClosePolicy.CANCEL,
    turn: Turn | None = None,
) -> Run:
    """Return a new run, or the next generation of `known`."""
    key = ids.new()
    start_at = command.start_at if command.start_at is not None and command.start_at > now else None
    rate = rate_of(command)
    waits = waits_for_admission(command, now)
    is_bounded = command.concurrency_key is not None and command.concurrency_full is not WhenFull.WAIT
    given = given_concurrency(command)
    levels = () if given is None else nested_levels(given, plan.workflow, command.attributes)
    priority = (plan.priority or 0) if command.priority is None else command.priority
    deadline = plan.deadline_us if command.deadline is None else command.deadline
    return Run(
        key=key,
        namespace=command.namespace,
        id=key if command.id is None else command.id,
        generation=1 if known is None else known.generation + 1,
        workflow=plan.workflow,
        version=plan.version,
        plan=plan.fingerprint,
        status=RunStatus.PENDING if waits else RunStatus.RUNNING,
        queue=command.queue or plan.queue or DEFAULT_QUEUE,
        priority=priority,
        queue_position=rank_of((start_at or now) if turn is None else turn.since, priority),
        created_at=now,
        updated_at=now,
        attributes=command.attributes,
        headers=command.headers,
        start_at=start_at,
        deadline=None if deadline is None else (start_at or now) + deadline,
        concurrency_key=path_of(levels) if levels else None,
        concurrency_limit=None if command.concurrency_key is None else command.concurrency_limit,
        concurrency_waiting=waiting_max(command.concurrency_full, command.concurrency_waiting)
        if is_bounded
        else None,
        concurrency_full=command.concurrency_full if is_bounded else None,
        concurrency_outer=canonical([level.limit for level in levels[:-1]]) if levels[1:] else None,
        parent=None if parent is None else parent.job,
        parent_run=None if parent is None else parent.run_id,
        close_policy=close_policy,
        scheduled=command.scheduled,
        rate_key=None if rate is None else rate.key,
        rate_limit=None if rate is None else rate.limit,
        rate_period=None if rate is None else rate.period,
        rate_units=None if rate is None else rate.units,
        rate_counted_at=now if rate is not None and rate.over is OverRate.REFUSE else None,
        in_rate_line=int(waits_for_rate(command) and start_at is None and command.concurrency_key is None),
    )


def waits_for_admission(command: RunCreate, now: Micros) -> bool:
    """Return whether the run of a start is pending at first."""
    is_later = command.start_at is not None and command.start_at > now
    return is_later or command.concurrency_key is not None or waits_for_rate(command)


def created_event(
    command: RunCreate,
    plan: Plan,
    run: Run,
    *,
    messages: int = 0,
    ended: Sequence[str] = (),
) -> events.RunCreated:
    """Return the `run.created` event of a run that `messages` rows with messages and starts follow.

    `ended` are the runs that make way for it.
    """
    return events.RunCreated(
        definition=plan.definition,
        parent=run.parent,
        start_at=command.start_at,
        deadline=run.deadline,
        concurrency_key=run.concurrency_key,
        concurrency_limit=run.concurrency_limit,
        concurrency_waiting=run.concurrency_waiting,
        concurrency_full=run.concurrency_full,
        concurrency_outer=run.outer_limits or None,
        rate_key=run.rate_key,
        rate_limit=run.rate_limit,
        rate_period=run.rate_period,
        rate_units=run.rate_units,
        ended=tuple(ended) or None,
        scheduled=None if command.scheduled is None else parse(command.scheduled),
        inbox=INPUT_ROW + messages if messages else None,
    )


def store_plan(state: State, plan: Plan) -> tuple[Change, ...]:
    """Return the change that stores a plan, unless it is known to be stored."""
    name = plan.fingerprint
    if name in state.stored_plans or name in state.tables.plans or name in state.plans:
        return ()
    row = PlanRow(fingerprint=name, workflow=plan.workflow, version=plan.version, body=plan.to_json())
    return (Insert(row),)
