"""Rules for `run.create`: a run with its options, messages and annotations, and child runs."""

from typing import Final, TypedDict

from holdfast.kernel.commands import (
    NO_FOLLOW_UP,
    SIGNALS_MAX,
    FollowUp,
    RunCreate,
    RunCreated,
    merge,
)
from holdfast.kernel.commands.names import CONCURRENCY_KEY_MAX, check_name
from holdfast.kernel.history import events
from holdfast.kernel.pipelines.plan import Plan
from holdfast.kernel.rules.attempt_output import annotations_at_start
from holdfast.kernel.rules.follow_ups import follow_up_after
from holdfast.kernel.rules.run_creation import created_event, new_run
from holdfast.kernel.rules.signals import (
    StartToKeep,
    append_signals,
    check_signals,
    receive,
)
from holdfast.kernel.rules.stage_overrides import overridden
from holdfast.kernel.rules.start_template import start_template_of
from holdfast.kernel.rules.unread_messages import count_forwarded, forward_unread
from holdfast.kernel.runs.builder import INPUT_ROW, RunDraft, hint_of
from holdfast.kernel.runs.plan_interpreter import begin
from holdfast.kernel.runs.stored_starts import is_kept, start_event
from holdfast.kernel.state import NOTHING, Decision, Reads, State
from holdfast.ports.changes import Change, Insert
from holdfast.ports.clock import Ids
from holdfast.ports.errors import InvalidCommandError, RunExistsError, UnknownWorkflowError
from holdfast.ports.mailboxes import EMPTY, mailbox_from
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import TERMINAL, ClosePolicy, Run, RunName, RunStatus
from holdfast.ports.records.values import Micros, PlanRow
from holdfast.ports.structs import evolve
from holdfast.ports.transport import Hint

CONCURRENCY_LIMIT_MAX: Final = 1_000_000
"""Highest concurrency limit of runs."""


_TIME_MAX: Final[Micros] = 100 * 366 * 86_400_000_000


_INSTANT_MAX: Final[Micros] = 253_370_764_800_000_000


def reads_of_create(command: RunCreate) -> Reads:
    """Lock the newest generation with the id, if the command has one; read its unread messages."""
    if command.id is None:
        return NOTHING
    name = RunName(command.namespace, command.id)
    return Reads(names=(name,), drivers=bool(command.signals), messages=(name,))


def decide_create(state: State, command: RunCreate, now: Micros, ids: Ids) -> Decision[RunCreated]:
    """Store the run and its first jobs, or return the existing run. See `RunCreate` for the errors."""
    plan = state.workflows.get((command.workflow, command.version))
    if plan is None:
        raise UnknownWorkflowError(command.workflow, command.version)
    check_start(command)
    if command.signals:
        check_signals(plan, command.id or "", command.signals)
    plan = overridden(plan, command.overrides)
    known = None if command.id is None else state.tables.run_named(RunName(command.namespace, command.id))
    if known is None and (begun := _create_from_template(command, plan, now, ids)) is not None:
        run, made, begun_hints = begun
        made = (*store_plan(state, plan), *made, *annotations_at_start(run, command, ids))
        return Decision(RunCreated(**_names(run), status=run.status, created=True), made, begun_hints)
    if known is not None and _returns_existing(command, known):
        return _return_existing(state, command, plan, known, now)
    replaced = None if known is None or known.status in TERMINAL else _replaced(state, known, now)
    run = new_run(command, plan, known, now, ids)
    draft = RunDraft(run, now, is_new=True)
    unread = EMPTY if known is None or plan.function is None else mailbox_from(known.mailbox)
    created = created_event(command, plan, run, messages=count_forwarded(unread) + len(command.signals))
    row = draft.append(created, payload=command.input)
    assert row == INPUT_ROW
    if known is not None:
        forward_unread(state, draft, known, unread)
    messages = append_signals(draft, command.signals, key=command.idempotency_key)
    if run.status is not RunStatus.PENDING:
        begin(draft, plan, row)
    changes: tuple[Change, ...] = draft.changes()
    hints = tuple(draft.hints)
    follow_up = draft.follow_up
    if replaced is not None and known is not None:
        changes, hints = (*replaced.changes(), *changes), (*replaced.hints, *hints)
        follow_up = merge(follow_up, follow_up_after(state, known, replaced))
    changes = (*store_plan(state, plan), *changes, *annotations_at_start(run, command, ids))
    reply = RunCreated(
        **_names(run),
        status=draft.status,
        created=True,
        follow_up=follow_up,
        messages=messages,
    )
    return Decision(reply, changes, hints)


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
    parent: str,
    close_policy: ClosePolicy,
) -> Decision[FollowUp]:
    """Store a child run for whose end the job `parent` waits."""
    begun = _create_from_template(command, plan, now, ids, parent=parent, close_policy=close_policy)
    if begun is not None:
        return Decision(NO_FOLLOW_UP, (*store_plan(state, plan), *begun[1]), begun[2])
    run = new_run(command, plan, None, now, ids, parent=parent, close_policy=close_policy)
    draft = RunDraft(run, now, is_new=True)
    row = draft.append(created_event(command, plan, run, parent=parent), payload=command.input)
    assert row == INPUT_ROW
    if run.status is not RunStatus.PENDING:
        begin(draft, plan, row)
    changes = (*store_plan(state, plan), *draft.changes())
    return Decision(draft.follow_up, changes, tuple(draft.hints))


def _create_from_template(
    command: RunCreate,
    plan: Plan,
    now: Micros,
    ids: Ids,
    *,
    parent: str | None = None,
    close_policy: ClosePolicy = ClosePolicy.CANCEL,
) -> tuple[Run, tuple[Change, ...], tuple[Hint, ...]] | None:
    """Return a new run made from its plan's template, with its changes and hints; None if it needs `begin`.

    The result is the same as with `begin`, which takes several times as long (docs/decisions/0039).
    """
    if command.signals or command.concurrency_key is not None or command.start_at is not None:
        return None
    opening = start_template_of(plan)
    if opening is None:
        return None
    run = new_run(
        command,
        plan,
        None,
        now,
        ids,
        parent=parent,
        close_policy=close_policy,
        progress=opening.progress,
        rows=opening.rows,
        jobs=len(opening.jobs),
    )
    data = opening.data
    if parent is not None or run.deadline is not None:
        data = evolve(opening.created, parent=parent, deadline=run.deadline).data
    row = HistoryRow(
        run=run.key, number=INPUT_ROW, type=opening.created.type, at=now, payload=command.input, data=data
    )
    jobs = opening.jobs_of(run)
    changes: tuple[Change, ...] = (Insert(run), Insert(row), *(Insert(job) for job in jobs))
    return run, changes, tuple(map(hint_of, jobs))


def check_start(command: RunCreate) -> None:
    """Raise InvalidCommandError for fields that are out of range."""
    check_name("the id", command.id)
    check_name("the queue", command.queue)
    check_name("the concurrency key", command.concurrency_key)
    key = command.concurrency_key
    if key is not None and not 0 < len(key) <= CONCURRENCY_KEY_MAX:
        raise InvalidCommandError(
            f"a concurrency key has 1 to {CONCURRENCY_KEY_MAX} characters, not {len(key)}"
        )
    if not 1 <= command.concurrency_limit <= CONCURRENCY_LIMIT_MAX:
        raise InvalidCommandError(
            f"concurrency_limit is {command.concurrency_limit}; it must be from 1 to {CONCURRENCY_LIMIT_MAX}"
        )
    if command.deadline is not None and not 0 < command.deadline <= _TIME_MAX:
        raise InvalidCommandError(
            f"deadline is {command.deadline}; it must be a number of microseconds, more than 0, at most a century"
        )
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


def store_plan(state: State, plan: Plan) -> tuple[Change, ...]:
    """Return the change that stores a plan, unless it is known to be stored."""
    name = plan.fingerprint
    if name in state.stored_plans or name in state.tables.plans or name in state.plans:
        return ()
    row = PlanRow(fingerprint=name, workflow=plan.workflow, version=plan.version, body=plan.to_json())
    return (Insert(row),)
