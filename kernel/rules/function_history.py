"""Rules for durable functions: results of calls are recorded as history rows, and waiting functions are suspended."""

from collections.abc import Mapping, Sequence
from typing import Final, cast

from holdfast.kernel.commands import (
    NO_FOLLOW_UP,
    ChannelClose,
    ChildCancel,
    ChildSignal,
    ChildStart,
    EventAppend,
    EventPublish,
    Failure,
    FollowUp,
    FunctionRecord,
    FunctionWaiting,
    JobRecord,
    JobRecorded,
    JobSettled,
    StepCancel,
    StepFail,
    StepQueue,
    TimerFire,
    merge,
)
from holdfast.kernel.history import events, limits
from holdfast.kernel.rules.attempt_output import (
    annotation_keys,
    check_published,
    known_annotations,
    output_changes,
)
from holdfast.kernel.rules.child_messages import notify_child
from holdfast.kernel.rules.children import start_child_of_function
from holdfast.kernel.rules.leases import find_leased_job, job_hints, parse_job_id
from holdfast.kernel.rules.queued_steps import cancel_queued_step, queue_step, steps_in_queues
from holdfast.kernel.rules.retries import AttemptDetails, fail_inline_step
from holdfast.kernel.runs.builder import RunDraft, rescheduled
from holdfast.kernel.runs.transitions import DEADLINE_EXCEEDED
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import Change, Update
from holdfast.ports.clock import Ids
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.json import parse
from holdfast.ports.mailboxes import mailbox_from
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import Job, JobKey, JobKind, JobState
from holdfast.ports.records.run import Run, RunName, RunStatus
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
    notifies_child = False
    for record in command.records:
        match record:
            case ChildStart(child=child):
                names.append(RunName(command.namespace, child.run_id))
            case ChildSignal(run_id=child_id) | ChildCancel(run_id=child_id):
                notifies_child = True
                names.append(RunName(command.namespace, child_id))
            case StepCancel(job=number):
                jobs.append(JobKey(key.run, number))
            case _:
                pass
    return Reads(
        runs=(key.run,),
        names=tuple(names),
        drivers=notifies_child,
        jobs=tuple(jobs),
        history_after=((key.run, command.seen),),
        annotation_keys=annotation_keys(command),
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
    run = evolve(run, reported_row=max(run.reported_row, command.reported))
    unseen = tuple(row for row in state.new_rows[run.key] if row.number > command.seen)
    draft = RunDraft(run, now)
    known = {events.event_of(row).identity for row in unseen}
    more: tuple[Change, ...] = ()
    follow_ups: list[FollowUp] = []
    notified: set[str] = set()
    failure: Failure | None = None
    lost_attempts = command.lost_attempts
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
        if isinstance(record, ChildSignal | ChildCancel):
            if record.run_id in notified:
                continue  # the child run was read before this command: one change per child
            notified.add(record.run_id)
        made = _carry_out(state, draft, run, job, record, unseen, now, ids)
        if made is not None:
            more = (*more, *made.changes)
            draft.hints += made.hints
            follow_ups.append(made.reply)
    if limits.gets_long(run.last_row, run.last_row + len(draft.rows)):
        draft.append(events.HistoryLong(most=limits.ROWS_MAX))
    reply = JobRecorded(
        status="recorded",
        rows=(*unseen, *draft.rows),
        run_status=run.status,
        failure=failure,
        follow_up=merge(*follow_ups, draft.follow_up),
    )
    is_changed = bool(draft.rows) or run.mailbox != before.mailbox
    changes: tuple[Change, ...] = (*draft.changes(), *more) if is_changed else ()
    changes = (*changes, *output_changes(job, command.epoch, command.outputs, ids, known_annotations(state)))
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
) -> Decision[FollowUp] | None:
    """Append what a driver records; return the changes of other runs, if there are any."""
    match record:
        case EventAppend(published=published, artifacts=artifacts):
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
            return start_child_of_function(state, draft, run, job, record, now, ids)
        case ChildSignal() | ChildCancel():
            return notify_child(state, draft, run, job, record, now)
        case StepFail():
            raise AssertionError("what comes of a failed step depends on the others of the command")
    return None


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
    ChildSignal: events.ChildSignalled.type,
    ChildCancel: events.ChildCancelling.type,
    ChannelClose: events.ChannelClosed.type,
}


def _close(draft: RunDraft, job: Job, record: ChannelClose, unseen: Sequence[HistoryRow]) -> None:
    """Close a channel, unless the function has not received a message for it: then the row is left out.

    Later senders are refused. The run's lock orders closing and sending.
    """
    for row in unseen:
        if (
            row.type == events.SignalReceived.type
            and events.SignalReceived.from_row(row).channel == record.channel
        ):
            return
    closed = events.ChannelClosed(call=record.call, channel=record.channel, site=record.site)
    draft.append(closed, node=job.node, epoch=job.epoch)
    draft.keep_mailbox(draft.mailbox.close(record.channel))


def with_received(run: Run, numbers: Sequence[int]) -> Run:
    """Return the run with the messages of these rows removed from its mailbox."""
    if run.mailbox is None or not numbers:
        return run
    return evolve(run, mailbox=mailbox_from(run.mailbox).received(numbers).to_text())


def suspend_function(
    before: Run, run: Run, job: Job, outcome: FunctionWaiting, now: Micros
) -> Decision[JobSettled]:
    """Suspend a waiting function until its timer or a new row; if it has not received all rows, queue it at once.

    `run` is `before` without the messages that the function has received.
    """
    wake_at = None if outcome.wake_at is None else max(outcome.wake_at, now)
    if outcome.seen < run.last_row:
        wake_at = now
    released = rescheduled(
        evolve(job, attempts=0, lost_attempts=outcome.lost_attempts), wake_at, now, run.status
    )
    reply = JobSettled(status="settled", run_status=run.status, retry_at=wake_at)
    received = RunDraft(run, now).changes() if run.mailbox != before.mailbox else ()
    return Decision(reply, (*received, Update(released)), job_hints(released))


def retry_refused_result(run: Run, job: Job, failure: Failure, now: Micros) -> Decision[JobSettled]:
    """Queue a function again whose result the store refused: it then fails and runs its compensations."""
    draft = RunDraft(run, now)
    draft.append(events.ResultRefused(message=failure.message), node=job.node, epoch=job.epoch)
    released = rescheduled(evolve(job, attempts=0, lost_attempts=0), now, now, run.status)
    reply = JobSettled(status="settled", run_status=run.status, retry_at=now)
    return Decision(reply, (*draft.changes(), Update(released)), (*draft.hints, *job_hints(released)))


def function_cancelled(state: State, run: Run, reason: str, now: Micros) -> RunDraft:
    """End the run of a function that has cleaned up after a cancellation or deadline, or that cancelled itself."""
    requested_error = run.error if run.is_ending else None
    error: dict[str, object] = {"code": "cancelled", "message": reason}
    if requested_error is not None:
        error = cast("dict[str, object]", parse(requested_error))
    draft = RunDraft(run, now)
    if error["code"] == DEADLINE_EXCEEDED:
        failed = events.RunFailed(
            code=DEADLINE_EXCEEDED, message=str(error["message"]), deadline=run.deadline
        )
        draft.append(failed)
        status = RunStatus.FAILED
    else:
        cancelled = events.RunCancelled(reason=str(error["message"] or ""), raised=requested_error is None)
        draft.append(cancelled)
        status = RunStatus.CANCELLED
    draft.end(status, cancels=state.cancels_of(run), error=error)
    return draft


def block(
    state: State, run: Run, job: Job, failure: Failure, now: Micros, details: AttemptDetails
) -> Decision[JobSettled]:
    """Block the run of a stage or function that cannot continue."""
    draft = RunDraft(run, now)
    if job.kind is JobKind.WORKFLOW:
        block_run(state, draft, job, failure, now, details)
    else:
        _block_stage(state, draft, job, failure, now, details)
    reply = JobSettled(status="settled", run_status=draft.status, follow_up=draft.follow_up)
    return Decision(reply, draft.changes(), tuple(draft.hints))


def _block_stage(
    state: State,
    draft: RunDraft,
    job: Job,
    failure: Failure,
    now: Micros,
    details: AttemptDetails,
) -> None:
    """Block the run of a stage and hold its jobs that are not leased. The attempt is not counted: no body ran."""
    _append_blocked(draft, job, failure, details)
    if draft.status is not RunStatus.BLOCKED:  # another stage may have blocked it
        draft.block()
    draft.reschedule_job(evolve(job, attempts=max(0, job.attempts - 1)), now)
    for other in state.tables.jobs.get(draft.run_key, {}).values():
        if other.state not in (JobState.LEASED, JobState.PAUSED) and not other.outlives_run:
            draft.reschedule_job(other, None if other.waits_for_child else other.wake_at or now)


def _append_blocked(draft: RunDraft, job: Job, failure: Failure, details: AttemptDetails) -> None:
    """Append the `run.blocked` row with the job and the failure that block the run."""
    blocked = events.RunBlocked(
        code=failure.code,
        message=failure.message,
        error_type=failure.type,
        attempt=job.attempts,
        job=job.number,
        started_at=details.started_at,
        host=details.host,
        traceback=details.traceback,
    )
    draft.append_of(job, blocked)


def block_run(
    state: State,
    draft: RunDraft,
    job: Job,
    failure: Failure,
    now: Micros,
    details: AttemptDetails,
) -> None:
    """Block the run of a function: hold its job, and its queued steps that are not leased."""
    _append_blocked(draft, job, failure, details)
    draft.block()
    draft.reschedule_job(evolve(job, attempts=0), now)  # `lost_attempts` stays: it may still be a suspect
    for step in steps_in_queues(state, draft.run_key):
        if step.state is not JobState.LEASED:
            draft.reschedule_job(step, step.wake_at or now)
