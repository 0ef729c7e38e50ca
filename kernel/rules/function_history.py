"""Rules for durable functions: results of calls are recorded as history rows, and waiting functions are suspended."""

from collections.abc import Sequence
from typing import cast

from holdfast.kernel.commands import (
    UPDATE_ANSWERS,
    Failure,
    FunctionWaiting,
    JobRecord,
    JobRecorded,
    JobSettled,
    RowToRecord,
)
from holdfast.kernel.history import limits
from holdfast.kernel.rules.child_messages import notify_child
from holdfast.kernel.rules.children import start_child_of_function
from holdfast.kernel.rules.leases import find_leased_job, job_hints, parse_job_id
from holdfast.kernel.rules.queued_steps import cancel_queued_step, queue_step, steps_in_queues
from holdfast.kernel.rules.retries import failure_facts
from holdfast.kernel.runs.builder import RunDraft, rescheduled
from holdfast.kernel.runs.transitions import DEADLINE_EXCEEDED
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import Change, UpdateJob
from holdfast.ports.clock import Ids
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.json import parse
from holdfast.ports.mailboxes import mailbox_from
from holdfast.ports.records.history import (
    CHANNEL_CLOSED,
    CLOCK_READ,
    FUNCTION_BEGAN,
    HISTORY_LONG,
    PUBLISHED,
    RESULT_REFUSED,
    SIGNAL_RECEIVED,
    SIGNAL_REFUSED,
    STEP_GIVEN,
    HistoryRow,
)
from holdfast.ports.records.job import Job, JobKey, JobKind, JobState
from holdfast.ports.records.run import Run, RunName, RunStatus
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import evolve
from holdfast.ports.transport import RunHint


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
    for row in command.rows:
        if row.child is not None:
            names.append(RunName(command.namespace, row.child.run_id))
        if row.child_message is not None:
            notifies_child = True
            names.append(RunName(command.namespace, row.child_message.run_id))
        if row.job is not None:
            jobs.append(JobKey(key.run, row.job))
    return Reads(
        runs=(key.run,),
        names=tuple(names),
        drivers=notifies_child,
        jobs=tuple(jobs),
        history_after=((key.run, command.seen),),
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
    unseen = tuple(row for row in state.new_rows[run.key] if row.number > command.seen)
    draft = RunDraft(run, now)
    known = {_named(row) for row in unseen}
    more: tuple[Change, ...] = ()
    admits: dict[str, None] = {}
    notified: set[str] = set()
    for recorded in command.rows:
        is_early = recorded.due is not None and recorded.due > now
        # A driver whose reply was lost sends the same rows again. Those that were stored are among `unseen`.
        if is_early or (recorded.type, recorded.call, recorded.attempt) in known:
            continue
        if recorded.child_message is not None:
            if recorded.child_message.run_id in notified:
                continue  # the child run was read before this command: one change per child
            notified.add(recorded.child_message.run_id)
            done = notify_child(state, draft, run, job, recorded, now)
            more = (*more, *done.changes)
            draft.hints += done.hints
            admits.update(dict.fromkeys(done.reply))
        elif recorded.queued is not None:
            queue_step(draft, job, recorded)
        elif recorded.job is not None:
            cancel_queued_step(state, draft, job, recorded)
        elif recorded.channel is not None:
            _close(draft, job, recorded, unseen)
        elif recorded.child is None:
            _append(draft, job, recorded, command.host)
        elif (made := start_child_of_function(state, draft, run, job, recorded, now, ids)) is not None:
            more = (*more, *made.changes)
            draft.hints += made.hints
            admits.update(dict.fromkeys(made.reply))
    if limits.gets_long(run.last_row, run.last_row + len(draft.rows)):
        draft.append(HISTORY_LONG, data={"most": limits.ROWS_MAX})
    admits.update(dict.fromkeys(draft.admits_jobs))
    reply = JobRecorded(
        status="recorded", rows=(*unseen, *draft.rows), run_status=run.status, admits_jobs=tuple(admits)
    )
    is_changed = bool(draft.rows) or run.mailbox != before.mailbox
    changes: tuple[Change, ...] = (*draft.changes(), *more) if is_changed else ()
    if any(row.type in UPDATE_ANSWERS for row in draft.rows):
        draft.hints.append(RunHint(run=run.key))  # wakes the caller of the update
    if draft.rows and (job.lost_attempts > command.lost_attempts or job.attempts > 1):
        # Progress resets the count of lost claims; losses of steps in progress remain. They may not make the job a
        # suspect here, as its session may hold other lost jobs (docs/decisions/0059).
        changes = (
            *changes,
            UpdateJob(evolve(job, attempts=1, lost_attempts=min(job.lost_attempts, command.lost_attempts))),
        )
    return Decision(reply, changes, tuple(draft.hints))


def _named(row: HistoryRow) -> tuple[str, str, int]:
    facts = cast("dict[str, object]", parse(row.data or "{}"))
    if row.type == PUBLISHED:
        return row.type, str(facts.get("name")), cast("int", facts.get("number"))
    if row.type in (CLOCK_READ, FUNCTION_BEGAN, SIGNAL_REFUSED):
        return row.type, str(facts.get("row")), 1
    return row.type, str(facts.get("call")), cast("int", facts.get("attempt", 1))


def _append(draft: RunDraft, job: Job, recorded: RowToRecord, host: str) -> None:
    if recorded.type == PUBLISHED:
        facts: dict[str, object] = {"name": recorded.call, "number": recorded.attempt}
        draft.append(PUBLISHED, node=job.node, epoch=job.epoch, payload=recorded.output, data=facts)
        return
    if recorded.type == CLOCK_READ:
        facts = {"row": int(recorded.call), "shown": recorded.started_at}
        draft.append(CLOCK_READ, node=job.node, epoch=job.epoch, data=facts)
        return
    if recorded.type == FUNCTION_BEGAN:
        draft.append(FUNCTION_BEGAN, node=job.node, epoch=job.epoch, data={"row": int(recorded.call)})
        return
    if recorded.type == SIGNAL_REFUSED:
        facts = {"row": int(recorded.call), **cast("dict[str, object]", parse(recorded.error or "{}"))}
        draft.append(SIGNAL_REFUSED, node=job.node, epoch=job.epoch, data=facts)
        return
    facts = {"call": recorded.call}
    if recorded.step is not None:
        facts["step"] = recorded.step
        facts["attempt"] = recorded.attempt
        if host:
            facts["host"] = host
    if recorded.site:
        facts["site"] = recorded.site
    if recorded.retry_at is not None:
        facts["retry_at"] = recorded.retry_at
    if recorded.started_at is not None:
        facts["started_at"] = recorded.started_at
    if recorded.undoes is not None:
        facts["undoes"] = recorded.undoes
    if recorded.given is not None:
        facts[STEP_GIVEN] = recorded.given
    if recorded.error is not None:
        facts["error"] = parse(recorded.error)
    if recorded.lost_attempts:
        facts |= {"lost": True, "lost_attempts": recorded.lost_attempts}
    draft.append(
        recorded.type, node=job.node, item=job.item, epoch=job.epoch, payload=recorded.output, data=facts
    )


def _close(draft: RunDraft, job: Job, recorded: RowToRecord, unseen: Sequence[HistoryRow]) -> None:
    """Close a channel, unless the function has not received a message for it: then the row is left out.

    Later senders are refused. The run's lock orders closing and sending.
    """
    channel = recorded.channel
    assert channel is not None
    for row in unseen:
        facts = cast("dict[str, object]", parse(row.data or "{}"))
        if row.type == SIGNAL_RECEIVED and facts["channel"] == channel:
            return
    details: dict[str, object] = {"call": recorded.call, "channel": channel}
    if recorded.site:
        details["site"] = recorded.site
    draft.append(CHANNEL_CLOSED, node=job.node, epoch=job.epoch, data=details)
    draft.keep_mailbox(draft.mailbox.close(channel))


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
    return Decision(reply, (*received, UpdateJob(released)), job_hints(released))


def retry_refused_result(run: Run, job: Job, failure: Failure, now: Micros) -> Decision[JobSettled]:
    """Queue a function again whose result the store refused: it then fails and runs its compensations."""
    draft = RunDraft(run, now)
    draft.append(RESULT_REFUSED, node=job.node, epoch=job.epoch, data={"message": failure.message})
    released = rescheduled(evolve(job, attempts=0, lost_attempts=0), now, now, run.status)
    reply = JobSettled(status="settled", run_status=run.status, retry_at=now)
    return Decision(reply, (*draft.changes(), UpdateJob(released)), (*draft.hints, *job_hints(released)))


def function_cancelled(state: State, run: Run, reason: str, now: Micros) -> RunDraft:
    """End the run of a function that has cleaned up after a cancellation or deadline, or that cancelled itself."""
    requested_error = run.error if run.is_ending else None
    error: dict[str, object] = {"code": "cancelled", "message": reason}
    if requested_error is not None:
        error = cast("dict[str, object]", parse(requested_error))
    draft = RunDraft(run, now)
    if error["code"] == DEADLINE_EXCEEDED:
        draft.append("run.failed", data={**error, "deadline": run.deadline})
        status = RunStatus.FAILED
    else:
        facts: dict[str, object] = {"reason": error["message"]} if error["message"] else {}
        if requested_error is None:
            facts["raised"] = True
        draft.append("run.cancelled", data=facts or None)
        status = RunStatus.CANCELLED
    draft.end(status, cancels=state.cancels_of(run), error=error)
    return draft


def block(
    state: State, run: Run, job: Job, failure: Failure, now: Micros, circumstances: dict[str, object]
) -> Decision[JobSettled]:
    """Block the run of a stage or function that cannot continue."""
    draft = RunDraft(run, now)
    if job.kind is JobKind.WORKFLOW:
        block_run(state, draft, job, failure, now, circumstances)
    else:
        _block_stage(state, draft, job, failure, now, circumstances)
    return Decision(
        JobSettled(status="settled", run_status=draft.status), draft.changes(), tuple(draft.hints)
    )


def _block_stage(
    state: State,
    draft: RunDraft,
    job: Job,
    failure: Failure,
    now: Micros,
    circumstances: dict[str, object],
) -> None:
    """Block the run of a stage and hold its jobs that are not leased. The attempt is not counted: no body ran."""
    _append_blocked(draft, job, failure, circumstances)
    if draft.status is not RunStatus.BLOCKED:  # another stage may have blocked it
        draft.block()
    draft.reschedule_job(evolve(job, attempts=max(0, job.attempts - 1)), now)
    for other in state.tables.jobs.get(draft.run_key, {}).values():
        if other.state in (JobState.QUEUED, JobState.SLEEPING) and not other.outlives_run:
            draft.reschedule_job(other, None if other.waits_for_child else other.wake_at or now)


def _append_blocked(draft: RunDraft, job: Job, failure: Failure, circumstances: dict[str, object]) -> None:
    """Append the `run.blocked` row with the job and the failure that block the run."""
    facts = {**failure_facts(job, failure), **circumstances}
    draft.append("run.blocked", node=job.node, item=job.item, epoch=job.epoch, data=facts)


def block_run(
    state: State,
    draft: RunDraft,
    job: Job,
    failure: Failure,
    now: Micros,
    circumstances: dict[str, object],
) -> None:
    """Block the run of a function: hold its job, and its queued steps that are not leased."""
    _append_blocked(draft, job, failure, circumstances)
    draft.block()
    draft.reschedule_job(evolve(job, attempts=0), now)  # `lost_attempts` stays: it may still be a suspect
    for step in steps_in_queues(state, draft.run_key):
        if step.state is not JobState.LEASED:
            draft.reschedule_job(step, step.wake_at or now)
