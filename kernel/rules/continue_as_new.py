"""The rule for continue-as-new: the next generation has an empty history.

Unread messages except those of groups, subscriptions to topics, updates that were not started, published values,
annotations and the parent run move to it. See docs/decisions/0030.
"""

from collections.abc import Iterator, Sequence

from holdfast.kernel.commands import CarriedUpdate, ContinuedAsNew, Failure, JobSettled
from holdfast.kernel.history import events
from holdfast.kernel.limits.fairness import with_turn
from holdfast.kernel.pipelines.plan import Plan
from holdfast.kernel.rules.admissions import begin_run
from holdfast.kernel.rules.blocked_functions import block_function_with
from holdfast.kernel.rules.fair_starts import ranked, turn_of_run
from holdfast.kernel.rules.retries import NO_DETAILS
from holdfast.kernel.rules.run_creation import store_plan
from holdfast.kernel.rules.settlement import Settlement
from holdfast.kernel.rules.unread_messages import count_forwarded, forward_unread
from holdfast.kernel.runs.builder import INPUT_ROW, RunDraft
from holdfast.kernel.runs.subscriptions import mailbox_of_replaced
from holdfast.kernel.state import Decision, State
from holdfast.ports.attempt_output import AnnotationScope
from holdfast.ports.changes import Change, Insert
from holdfast.ports.clock import Ids
from holdfast.ports.errors import InvalidCommandError, UnknownWorkflowError
from holdfast.ports.json import parse
from holdfast.ports.mailboxes import mailbox_from
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import rank_of
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import evolve


def continue_run(settlement: Settlement) -> Decision[JobSettled]:
    """End a generation and store the next one; or block the run if this process does not have its code."""
    goes_on, state, run, now = settlement.command.outcome, settlement.state, settlement.run, settlement.now
    assert isinstance(goes_on, ContinuedAsNew)
    known = state.workflows.get((goes_on.workflow, goes_on.version))
    if known is None:
        error = UnknownWorkflowError(goes_on.workflow, goes_on.version)
        return block_function_with(settlement, Failure(code=error.code, message=str(error)), NO_DETAILS)
    if known.function is None:
        raise InvalidCommandError(f"{known.definition} is a pipeline: only durable functions continue as new")
    former = state.plan_of(run)
    plan = former if former.base == known.fingerprint else known
    unseen = tuple(row for row in state.new_rows[run.key] if row.number > goes_on.seen)
    updates = (*goes_on.updates, *_updates_since(unseen))
    before = _ended(run, goes_on, updates, plan, now)
    fresh = evolve(run, queue_position=rank_of(now, run.priority))
    turn = turn_of_run(state, fresh, plan, now)
    key = settlement.ids.new()
    after = _begun(state, ranked(fresh, turn), run, goes_on, updates, plan, unseen, key, now)
    reply = JobSettled(
        status="settled",
        run_status=before.status,
        # The slot of the run is not free.
        follow_up=evolve(
            after.follow_up, deliveries=before.follow_up.deliveries, topics=before.follow_up.topics
        ),
    )
    changes = (
        *before.changes(),
        *store_plan(state, plan),
        *with_turn(after.changes(), after.run_key, turn),
        *carried_annotations(state, run, after.run_key, settlement.ids),
    )
    return Decision(reply, changes, (*before.hints, *after.hints))


def _ended(
    run: Run, goes_on: ContinuedAsNew, updates: Sequence[CarriedUpdate], plan: Plan, now: Micros
) -> RunDraft:
    """End the generation. Its parent, and the senders of these updates, wait for the next one instead."""
    draft = RunDraft(evolve(run, parent=None), now)
    continued = events.RunContinued(generation=run.generation + 1, definition=plan.definition)
    draft.append(continued, payload=goes_on.input)
    carried = draft.mailbox.without_updates(update.again for update in updates)
    draft.keep_mailbox(evolve(mailbox_of_replaced(carried), groups=carried.groups))
    draft.end(RunStatus.COMPLETED, cancels={})
    return draft


def _begun(
    state: State,
    fresh: Run,
    run: Run,
    goes_on: ContinuedAsNew,
    updates: Sequence[CarriedUpdate],
    plan: Plan,
    unseen: tuple[HistoryRow, ...],
    key: str,
    now: Micros,
) -> RunDraft:
    """Start the next generation. It keeps the slot of the previous one, and is paused or cancelling if that was.

    `fresh` is the run with the rank of the next generation.
    """
    following = evolve(
        fresh,
        key=key,
        generation=run.generation + 1,
        workflow=plan.workflow,
        version=plan.version,
        plan=plan.fingerprint,
        status=RunStatus.RUNNING,
        created_at=now,
        updated_at=now,
        last_row=0,
        last_job=0,
        open_jobs=0,
        progress="{}",
        error=None,
        rerun_of=None,
        rerun_from=None,
        inherited=None,
        children=0,
        mailbox=None,
        reported_row=0,
        gathered=None,
    )
    draft = RunDraft(following, now, is_new=True)
    unread = mailbox_from(run.mailbox).without_groups()
    rows = count_forwarded(unread) + len(updates)
    created = events.RunCreated(
        definition=plan.definition, continues=run.generation, inbox=INPUT_ROW + rows if rows else None
    )
    row = draft.append(created, payload=goes_on.input)
    assert row == INPUT_ROW
    forward_unread(state, draft, run, unread)
    draft.keep_mailbox(evolve(draft.mailbox, subscribed=unread.subscribed))
    for update in updates:
        received = events.UpdateReceived(
            update=update.update,
            again=update.again,
            key=update.key,
            checked=update.checked,
            sender=update.sender,
        )
        number = draft.append(received, payload=update.arguments)
        if received.address is not None:
            draft.keep_mailbox(draft.mailbox.with_update(number, received.address))
    function = plan.function
    for shown in goes_on.published:
        # The function numbers its values from 1, so a recorded value never looks like this one.
        draft.append(events.ValuePublished(name=shown.name, number=0), node=function, payload=shown.value)
    if run.status is RunStatus.PAUSED:
        draft.append(events.RunPaused())
        draft.pause()
    begin_run(draft, plan, following)
    if run.is_ending and run.error is not None:  # the function has not received it yet
        cancelling = next((row for row in unseen if row.type == events.RunCancelling.type), None)
        draft.append(
            events.RunCancelling() if cancelling is None else events.RunCancelling.from_row(cancelling)
        )
        draft.cancel(parse(run.error))
    return draft


def _updates_since(unseen: tuple[HistoryRow, ...]) -> Iterator[CarriedUpdate]:
    return (carried_update(row) for row in unseen if row.type == events.UpdateReceived.type)


def carried_update(row: HistoryRow) -> CarriedUpdate:
    """Return the update of a row in the form for the next generation."""
    received = events.UpdateReceived.from_row(row)
    assert row.payload is not None
    return CarriedUpdate(
        update=received.update,
        arguments=row.payload,
        again=row.number,
        key=received.key,
        checked=received.checked,
        sender=received.sender,
    )


def carried_annotations(state: State, run: Run, key: str, ids: Ids) -> Iterator[Change]:
    """Yield copies of the run's annotations for the next generation: of each name and actor the newest."""
    newest = {
        (annotation.name, annotation.actor_kind, annotation.actor_id): annotation
        for annotation in state.tables.annotations.values()
        if annotation.run == run.key and annotation.scope is AnnotationScope.RUN
    }
    for latest in newest.values():
        yield Insert(evolve(latest, run=key, id=ids.new(), job=None, epoch=None))
