"""Rules for `run.create`: a run with its options, messages and annotations, and child runs."""

from collections.abc import Sequence
from typing import Final, TypedDict

from holdfast.kernel.commands import (
    NO_FOLLOW_UP,
    SIGNALS_MAX,
    FollowUp,
    RunCreate,
    RunCreated,
    merge,
)
from holdfast.kernel.commands.names import check_name, check_texts
from holdfast.kernel.history import events
from holdfast.kernel.limits.fairness import Turn, with_turn
from holdfast.kernel.limits.levels import check_levels, check_limit_number
from holdfast.kernel.limits.run_rates import with_rate
from holdfast.kernel.limits.start_bounds import check_bound, given_concurrency, with_concurrency
from holdfast.kernel.pipelines.headers import check_headers
from holdfast.kernel.pipelines.plan import DEFAULT_QUEUE, Plan
from holdfast.kernel.rules.attempt_output import annotations_at_start
from holdfast.kernel.rules.fair_starts import check_weight, turn_of_start, weight_of_pending
from holdfast.kernel.rules.follow_ups import follow_up_after
from holdfast.kernel.rules.gathered_starts import gather_start
from holdfast.kernel.rules.leases import parse_job_id
from holdfast.kernel.rules.namespaces import check_quota
from holdfast.kernel.rules.run_creation import Parent, created_event, new_run, store_plan
from holdfast.kernel.rules.run_rates import count_start
from holdfast.kernel.rules.signals import (
    StartToKeep,
    append_signals,
    check_signals,
    receive,
)
from holdfast.kernel.rules.stage_overrides import overridden
from holdfast.kernel.rules.start_bounds import apply_bound
from holdfast.kernel.rules.start_template import start_template_of
from holdfast.kernel.rules.unread_messages import count_forwarded, forward_unread
from holdfast.kernel.runs.builder import INPUT_ROW, RunDraft, hint_of
from holdfast.kernel.runs.plan_interpreter import begin
from holdfast.kernel.runs.stored_starts import is_kept, start_event
from holdfast.kernel.schedules.row_data import scheduled_start
from holdfast.kernel.search_results import NewRun
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import Change, Insert
from holdfast.ports.clock import Ids
from holdfast.ports.errors import InvalidCommandError, RunExistsError, UnknownWorkflowError
from holdfast.ports.mailboxes import EMPTY, mailbox_from
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import rank_of
from holdfast.ports.records.run import TERMINAL, ClosePolicy, Run, RunName, RunStatus
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import changer, evolve
from holdfast.ports.transport import Hint

_TIME_MAX: Final[Micros] = 100 * 366 * 86_400_000_000


_INSTANT_MAX: Final[Micros] = 253_370_764_800_000_000
_changed_run: Final = changer(
    Run,
    *("key", "namespace", "id", "queue", "priority", "queue_position", "created_at", "updated_at"),
    *("attributes", "headers", "deadline", "parent", "parent_run", "close_policy", "scheduled"),
)


def reads_of_create(command: RunCreate) -> Reads:
    """Lock the newest generation with the id, if the command has one; read its unread messages."""
    new = (
        NewRun(
            namespace=command.namespace,
            workflow=command.workflow,
            version=command.version,
            concurrency=given_concurrency(command),
            rate=command.rate,
            attributes=command.attributes,
        ),
    )
    if command.id is None:
        return Reads(new_runs=new)
    name = RunName(command.namespace, command.id)
    return Reads(names=(name,), drivers=bool(command.signals), messages=(name,), new_runs=new)


def decide_create(
    state: State, command: RunCreate, now: Micros, ids: Ids, *, earlier: Sequence[Change] = ()
) -> Decision[RunCreated]:
    """Store the run and its first jobs, or return the existing run. See `RunCreate` for the errors.

    `earlier` are changes of the same command, which are not in the state yet.
    """
    plan = state.workflows.get((command.workflow, command.version))
    if plan is None:
        raise UnknownWorkflowError(command.workflow, command.version)
    check_start(command)
    check_weight(command, plan)
    command = with_rate(with_concurrency(command, plan), plan)
    if plan.gather is not None and command.scheduled is None:
        return gather_start(state, command, plan, now, ids)
    if command.signals:
        check_signals(plan, command.id or "", command.signals)
    plan = overridden(plan, command.overrides)
    known = None if command.id is None else state.tables.run_named(RunName(command.namespace, command.id))
    turn = turn_of_start(state, command, plan, now)
    if known is None and (begun := _create_from_template(command, plan, now, ids, turn=turn)) is not None:
        check_quota(state, command)
        run, made, begun_hints = begun
        if stored := store_plan(state, plan):
            made = (*stored, *made)
        if command.annotations:
            made = (*made, *annotations_at_start(run, command, ids))
        return Decision(RunCreated(**_names(run), status=run.status, created=True), made, begun_hints)
    if known is not None and _returns_existing(command, known):
        return _return_existing(state, command, plan, known, now)
    run = new_run(command, plan, known, now, ids, turn=turn)
    bounded = apply_bound(state, run, now, before=known, earlier=earlier)
    if bounded.existing is not None:
        return Decision(RunCreated(**_names(bounded.existing), status=bounded.existing.status, created=False))
    check_quota(state, command, known, bounded.changes)
    run, windows = count_start(state, command, run, now, earlier)
    replaced = None if known is None or known.status in TERMINAL else _replaced(state, known, now)
    draft = RunDraft(run, now, is_new=True)
    unread = EMPTY if known is None or plan.function is None else mailbox_from(known.mailbox).without_groups()
    messages_before = count_forwarded(unread) + len(command.signals)
    created = created_event(command, plan, run, messages=messages_before, ended=bounded.ended)
    row = draft.append(created, payload=command.input)
    assert row == INPUT_ROW
    if known is not None:
        forward_unread(state, draft, known, unread)
    messages = append_signals(draft, command.signals, key=command.idempotency_key)
    if run.status is not RunStatus.PENDING:
        begin(draft, plan, row)
    changes = with_turn(draft.changes(), run.key, turn)
    if turn is None:
        changes = (*changes, *weight_of_pending(state, command, plan, now))
    hints = tuple(draft.hints)
    follow_up = draft.follow_up
    if replaced is not None and known is not None:
        changes, hints = (*replaced.changes(), *changes), (*replaced.hints, *hints)
        follow_up = merge(follow_up, follow_up_after(state, known, replaced))
    changes = (*store_plan(state, plan), *bounded.changes, *changes, *windows)
    changes = (*changes, *annotations_at_start(run, command, ids))
    reply = RunCreated(
        **_names(run),
        status=draft.status,
        created=True,
        follow_up=merge(follow_up, *bounded.follow_ups) if bounded.follow_ups else follow_up,
        messages=messages,
        ended=tuple(bounded.ended),
    )
    return Decision(reply, changes, (*bounded.hints, *hints))


def _return_existing(
    state: State, command: RunCreate, plan: Plan, known: Run, now: Micros
) -> Decision[RunCreated]:
    """Return an existing run, and store the signals for it, with the start if a rerun may follow from it."""
    reply = RunCreated(**_names(known), status=known.status, created=False)
    if not command.signals:
        return Decision(reply)
    draft = RunDraft(known, now)
    start = StartToKeep(command.input, start_event(command, plan)) if is_kept(command) else None
    messages = receive(state, draft, known, command.signals, now, key=command.idempotency_key, start=start)
    stored = () if start is None else store_plan(state, plan)
    return Decision(evolve(reply, messages=messages), (*stored, *draft.changes()), tuple(draft.hints))


def new_child(
    state: State,
    command: RunCreate,
    plan: Plan,
    now: Micros,
    ids: Ids,
    *,
    parent: Parent,
    close_policy: ClosePolicy,
    earlier: Sequence[Change] = (),
) -> Decision[FollowUp]:
    """Store a child run for whose end a job of its parent waits. ConcurrencyFullError; RateExceededError.

    Under a bound with `return` it is refused, too: the other run has no parent to deliver its result to.
    """
    turn = turn_of_start(state, command, plan, now)
    begun = _create_from_template(
        command, plan, now, ids, parent=parent, close_policy=close_policy, turn=turn
    )
    if begun is not None:
        return Decision(NO_FOLLOW_UP, (*store_plan(state, plan), *begun[1]), begun[2])
    run = new_run(command, plan, None, now, ids, parent=parent, close_policy=close_policy, turn=turn)
    holder = parse_job_id(parent.job).run
    bounded = apply_bound(state, run, now, parent=holder, returns=False, earlier=earlier)
    run, windows = count_start(state, command, run, now, earlier)
    draft = RunDraft(run, now, is_new=True)
    created = created_event(command, plan, run, ended=bounded.ended)
    row = draft.append(created, payload=command.input)
    assert row == INPUT_ROW
    if run.status is not RunStatus.PENDING:
        begin(draft, plan, row)
    made = with_turn(draft.changes(), run.key, turn)
    changes = (*store_plan(state, plan), *bounded.changes, *made, *windows)
    if turn is None:
        changes = (*changes, *weight_of_pending(state, command, plan, now))
    follow_up = merge(draft.follow_up, *bounded.follow_ups) if bounded.follow_ups else draft.follow_up
    return Decision(follow_up, changes, (*bounded.hints, *draft.hints))


def _create_from_template(
    command: RunCreate,
    plan: Plan,
    now: Micros,
    ids: Ids,
    *,
    parent: Parent | None = None,
    close_policy: ClosePolicy = ClosePolicy.CANCEL,
    turn: Turn | None = None,
) -> tuple[Run, tuple[Change, ...], tuple[Hint, ...]] | None:
    """Return a new run made from its plan's template, with its changes and hints; None if it needs `begin`.

    The result is the same as with `begin`, which takes several times as long (docs/decisions/0039).
    """
    if command.signals or command.concurrency_key is not None or command.start_at is not None:
        return None
    if command.rate is not None:
        return None
    opening = start_template_of(plan)
    if opening is None:
        return None
    key = ids.new()
    priority = (plan.priority or 0) if command.priority is None else command.priority
    deadline = plan.deadline_us if command.deadline is None else command.deadline
    run = _changed_run(
        opening.run,
        key=key,
        namespace=command.namespace,
        id=key if command.id is None else command.id,
        queue=command.queue or plan.queue or DEFAULT_QUEUE,
        priority=priority,
        queue_position=rank_of(now if turn is None else turn.since, priority),
        created_at=now,
        updated_at=now,
        attributes=command.attributes,
        headers=command.headers,
        deadline=None if deadline is None else now + deadline,
        parent=None if parent is None else parent.job,
        parent_run=None if parent is None else parent.run_id,
        close_policy=close_policy,
        scheduled=command.scheduled,
    )
    data = opening.data
    if parent is not None or run.deadline is not None or command.scheduled is not None:
        data = created_event(command, plan, run).data
    row = HistoryRow(
        run=run.key, number=INPUT_ROW, type=opening.created.type, at=now, payload=command.input, data=data
    )
    jobs = opening.jobs_of(run)
    changes: tuple[Change, ...] = (Insert(run), Insert(row), *map(Insert, jobs))
    if turn is not None:
        changes = with_turn(changes, key, turn)
    return run, changes, tuple(map(hint_of, jobs))


def check_start(command: RunCreate, *, inherits: bool = False) -> None:
    """Raise InvalidCommandError for fields that are out of range.

    With `inherits`, attributes and headers may have halves of surrogate pairs: those of stored runs may.
    """
    check_name("the id", command.id)
    check_name("the queue", command.queue)
    check_levels(command.concurrency_key, command.concurrency_within)
    check_limit_number("concurrency_limit", command.concurrency_limit)
    check_bound(command)
    if command.deadline is not None and not 0 < command.deadline <= _TIME_MAX:
        raise InvalidCommandError(
            f"deadline is {command.deadline}; it must be a number of microseconds, more than 0, at most a century"
        )
    if command.scheduled is not None:
        scheduled_start(command.scheduled)
    if command.headers is not None:
        check_headers(command.headers)
    if not inherits:
        check_texts("attributes", command.attributes)
        check_texts("headers", command.headers)
    if len(command.signals) > SIGNALS_MAX:
        raise InvalidCommandError(
            f"a run is started with at most {SIGNALS_MAX} signals, not {len(command.signals)}; send it more later"
        )
    if command.start_at is not None and not 0 <= command.start_at <= _INSTANT_MAX:
        raise InvalidCommandError(
            f"start_at is {command.start_at}; it must be microseconds since 1970, before the year 9999"
        )


def _returns_existing(command: RunCreate, known: Run) -> bool:
    """Return whether the existing run is returned; False: store its next generation. Raises RunExistsError."""
    ended = known.status in TERMINAL
    policy = (command.if_ended if ended else command.if_active) or command.if_exists
    if policy == "error" or (policy == "rerun_failed" and known.status is RunStatus.COMPLETED):
        raise RunExistsError(known.id)
    return policy == "return"


def _replaced(state: State, run: Run, now: Micros) -> RunDraft:
    draft = RunDraft(run, now)
    reason = f"generation {run.generation + 1} took its place"
    draft.append(events.RunTerminated(reason=reason))
    error: dict[str, object] = {"code": "terminated", "message": reason}
    draft.end(RunStatus.CANCELLED, cancels=state.cancels_of(run), error=error)
    return draft


class _Names(TypedDict):
    run_id: str
    run: str
    generation: int


def _names(run: Run) -> _Names:
    return _Names(run_id=run.id, run=run.key, generation=run.generation)
