"""Rules for durable functions: results of calls are recorded as history rows, and waiting functions are suspended."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from holdfast.kernel.commands import (
    NO_FOLLOW_UP,
    CancelSend,
    ChannelClose,
    ChildStart,
    EventAppend,
    EventPublish,
    Failure,
    FollowUp,
    FunctionRecord,
    JobRecord,
    JobRecorded,
    SignalSend,
    StepCancel,
    StepFail,
    StepQueue,
    TimerFire,
    TopicSend,
    TopicSubscribe,
    TopicUnsubscribe,
    UpdateSend,
    merge,
)
from holdfast.kernel.history import events, limits
from holdfast.kernel.rules import topics
from holdfast.kernel.rules.attempt_output import (
    annotation_keys,
    check_published,
    known_annotations,
    output_changes,
)
from holdfast.kernel.rules.children import new_run_of, start_child_of_function
from holdfast.kernel.rules.fair_starts import after_turns
from holdfast.kernel.rules.leases import find_leased_job, parse_job_id
from holdfast.kernel.rules.queued_steps import cancel_queued_step, queue_step
from holdfast.kernel.rules.retries import fail_inline_step
from holdfast.kernel.rules.sent_messages import notify_run
from holdfast.kernel.rules.sent_updates import open_replies, send_update
from holdfast.kernel.runs.builder import RunDraft, with_received
from holdfast.kernel.runs.subscriptions import read_changes
from holdfast.kernel.search_results import NewRun
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import Change, Update
from holdfast.ports.clock import Ids
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job, JobKey, JobKind
from holdfast.ports.records.run import Run, RunName
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import evolve
from holdfast.ports.transport import HistoryGrew


def reads_of_record(command: JobRecord) -> Reads:
    """Lock the run, then the job; read the rows that the driver does not have, and the child runs that it names."""
    if command.seen < 0:
        raise InvalidCommandError(f"seen is {command.seen}; it must be the number of a row, or 0")
    if command.lost_attempts < 0:
        raise InvalidCommandError(f"losses is {command.lost_attempts}; it must be a number of losses, or 0")
    key = parse_job_id(command.job)
    names: list[RunName] = []
    jobs = [key]
    notifies = False
    new_runs: list[NewRun] = []
    for record in command.records:
        match record:
            case EventAppend():  # nearly all
                pass
            case ChildStart(child=child):
                new_runs.append(new_run_of(child, command.namespace, key.run))
                names.append(RunName(command.namespace, child.run_id))
            case SignalSend(run_id=run_id) | CancelSend(run_id=run_id) | UpdateSend(run_id=run_id):
                notifies = True
                names.append(RunName(command.namespace, run_id))
            case StepCancel(job=number):
                jobs.append(JobKey(key.run, number))
            case _:
                pass
    return Reads(
        runs=(key.run,),
        names=tuple(names),
        drivers=notifies,
        jobs=tuple(jobs),
        history_after=((key.run, command.seen),),
        annotation_keys=annotation_keys(command) if command.outputs else (),
        new_runs=tuple(new_runs),
    )


def decide_record(state: State, command: JobRecord, now: Micros, ids: Ids) -> Decision[JobRecorded]:
    """Append the rows and reply with all rows that the driver does not have, or reply `fenced`.

    A timer that the store's clock has not reached is left out. The driver records it again later.
    """
    held = find_leased_job(state, command.job, command.epoch, command.namespace)
    if held is None:
        return Decision(JobRecorded(status="fenced"))
    before, job = held
    if job.kind is not JobKind.WORKFLOW:
        raise InvalidCommandError(f"job {command.job} is of kind {job.kind}; only functions are recorded")
    run = with_received(before, command.received)
    if command.reported > run.reported_row:
        run = evolve(run, reported_row=command.reported)
    unseen = tuple(row for row in state.new_rows[run.key] if row.number > command.seen)
    draft = RunDraft(run, now)
    known = {events.event_of(row).identity for row in unseen}
    more: tuple[Change, ...] = ()
    follow_ups: list[FollowUp] = []
    notified: set[str] = set()
    failure: Failure | None = None
    lost_attempts = command.lost_attempts
    turns = state
    for record in command.records:
        if isinstance(record, StepFail):
            event, block_for = fail_inline_step(record, job, now)
            failure = failure or block_for
            if isinstance(event, events.StepRetrying):
                lost_attempts = max(lost_attempts, record.lost_attempts)
            if event.identity not in known:
                draft.append_of(job, event)
            continue
        # A driver whose reply was lost sends the same records again. Those that were stored are among `unseen`.
        if _identity_of(record) in known:
            continue
        if isinstance(record, ChildStart) and (events.ChildFailed.type, record.call, 1) in known:
            continue  # it was refused then, and stays so
        if isinstance(record, SignalSend | CancelSend | UpdateSend):
            if record.run_id in notified:
                continue  # the run was read before this command: one change per run
            notified.add(record.run_id)
        made = _carry_out(turns, draft, run, job, record, unseen, now, ids, more)
        if made is not None:
            if isinstance(record, ChildStart):  # it was not read, and runs were ended to make way for it
                notified.update((record.child.run_id, *_changed_runs(made.changes)))
            more = (*more, *made.changes)
            turns = after_turns(turns, made.changes)
            draft.hints += made.hints
            follow_ups.append(made.reply)
    open_replies(draft)
    if limits.gets_long(run.last_row, run.last_row + len(draft.rows)):
        draft.append(events.HistoryLong(most=limits.ROWS_MAX))
    reply = JobRecorded(
        status="recorded",
        rows=(*unseen, *draft.rows),
        run_status=run.status,
        failure=failure,
        follow_up=merge(*follow_ups, draft.follow_up) if follow_ups else draft.follow_up,
    )
    is_changed = bool(draft.rows) or run.mailbox != before.mailbox
    changes: tuple[Change, ...] = (*draft.changes(), *more) if is_changed else ()
    changes = (*changes, *read_changes(before, command.received))
    if command.outputs:
        known_ones = known_annotations(state)
        changes = (*changes, *output_changes(job, command.epoch, command.outputs, ids, known_ones))
    if any(row.type in events.UPDATE_ANSWERS for row in draft.rows):
        draft.hints.append(HistoryGrew(run=run.key))  # wakes the caller of the update
    if draft.rows and (job.lost_attempts > lost_attempts or job.attempts > 1):
        # Progress resets the count of lost claims; losses of steps in progress remain. They may not make the job a
        # suspect here, as its session may hold other lost jobs (docs/decisions/0059).
        changes = (
            *changes,
            Update(evolve(job, attempts=1, lost_attempts=min(job.lost_attempts, lost_attempts))),
        )
    return Decision(reply, changes, tuple(draft.hints))


def _carry_out(
    state: State,
    draft: RunDraft,
    run: Run,
    job: Job,
    record: FunctionRecord,
    unseen: Sequence[HistoryRow],
    now: Micros,
    ids: Ids,
    earlier: Sequence[Change],
) -> Decision[FollowUp] | None:
    """Append what a driver records; return the changes of other runs, if there are any."""
    match record:
        case EventAppend(published=published, artifacts=artifacts):
            if published:
                check_published(published)
                for one in published:
                    draft.append_user_event(job, one, call=record.event.identity[1])
            draft.append_of(job, record.event, payload=record.payload)
            if artifacts:
                return Decision(
                    NO_FOLLOW_UP, tuple(output_changes(job, job.epoch, artifacts, ids, set(), artifacts=True))
                )
        case EventPublish(published=one):
            check_published((one,))
            draft.append_user_event(job, one, call=record.call)
        case TimerFire(due=due):
            if due <= now:
                draft.append_of(job, events.TimerFired(call=record.call, site=record.site))
        case StepQueue():
            queue_step(draft, job, record)
        case StepCancel():
            cancel_queued_step(state, draft, job, record)
        case ChannelClose():
            _close(draft, job, record, unseen)
        case ChildStart():
            return start_child_of_function(state, draft, run, job, record, now, ids, earlier)
        case SignalSend() | CancelSend():
            return notify_run(state, draft, run, job, record, now)
        case UpdateSend():
            return send_update(state, draft, run, job, record, now)
        case TopicSend():
            return topics.send(draft, run, job, record, now)
        case TopicSubscribe():
            return topics.subscribe(draft, run, job, record, now)
        case TopicUnsubscribe():
            return topics.unsubscribe(draft, run, job, record)
        case StepFail():
            raise AssertionError("what comes of a failed step depends on the others of the command")
    return None


def _changed_runs(changes: Sequence[Change]) -> Iterator[str]:
    """Yield the ids of existing runs that are changed."""
    for change in changes:
        if isinstance(change, Update) and isinstance(change.record, Run):
            yield change.record.id


def _identity_of(record: FunctionRecord) -> events.Identity:
    match record:
        case EventAppend(event=event) | StepFail(event=event):
            return event.identity
        case StepQueue(call=call, attempt=attempt):
            return events.StepQueued.type, call, attempt
        case EventPublish(call=call):
            return events.UserEvent.type, call, 1
        case _:
            return _TYPES[type(record)], record.call, 1


_TYPES: Final[Mapping[type[FunctionRecord], str]] = {
    TimerFire: events.TimerFired.type,
    StepCancel: events.StepCancelled.type,
    ChildStart: events.ChildStarted.type,
    SignalSend: events.SignalSent.type,
    CancelSend: events.CancelSent.type,
    UpdateSend: events.UpdateSent.type,
    ChannelClose: events.ChannelClosed.type,
    TopicSend: events.MessagePublished.type,
    TopicSubscribe: events.TopicSubscribed.type,
    TopicUnsubscribe: events.TopicUnsubscribed.type,
}


def _close(draft: RunDraft, job: Job, record: ChannelClose, unseen: Sequence[HistoryRow]) -> None:
    """Close a channel, unless the function has not received a message for it: then the row is left out.

    Later senders are refused. The run's lock orders closing and sending.
    """
    for row in (*unseen, *draft.rows):  # the function may have sent itself one with the same command
        if (
            row.type == events.SignalReceived.type
            and events.SignalReceived.from_row(row).channel == record.channel
        ):
            return
    closed = events.ChannelClosed(call=record.call, channel=record.channel, site=record.site)
    draft.append(closed, node=job.node, epoch=job.epoch)
    draft.keep_mailbox(draft.mailbox.close(record.channel))
