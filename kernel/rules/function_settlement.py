"""Rules for the outcomes of attempts that drive a durable function."""

from typing import cast

from holdfast.kernel.commands import (
    Cancelled,
    CompletedAfterStep,
    Failed,
    FunctionWaiting,
    JobSettle,
    JobSettled,
)
from holdfast.kernel.commands.outcomes import WaitingAfterStep
from holdfast.kernel.history import events
from holdfast.kernel.rules.leases import job_hints
from holdfast.kernel.rules.reruns import retry_run
from holdfast.kernel.rules.retries import fail_stage
from holdfast.kernel.rules.settlement import Settlement, completed, with_other
from holdfast.kernel.rules.successors import start_successor
from holdfast.kernel.runs.builder import RunDraft, rescheduled
from holdfast.kernel.runs.transitions import DEADLINE_EXCEEDED
from holdfast.kernel.state import Decision
from holdfast.ports.changes import Update
from holdfast.ports.json import parse
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.structs import evolve


def complete_function(settlement: Settlement) -> Decision[JobSettled]:
    """Store the result of a function and end its run."""
    draft = settlement.draft()
    row = completed(settlement, draft)
    return _with_successor(settlement, draft, settlement.settled(draft, row=row))


def without_overtaken_end(command: JobSettle, run: Run) -> JobSettle:
    """Return a settle without the end of the function, if its history has other new rows: the step alone is stored.

    The function has received the step as the row after `seen`. With another row in its place, a replay might end
    otherwise. What it has received since the step is not received in the history that is stored.
    """
    outcome = command.outcome
    if not isinstance(outcome, CompletedAfterStep) or run.last_row == outcome.seen:
        return command
    waiting = WaitingAfterStep(seen=outcome.seen, step=outcome.step, result=outcome.result)
    return evolve(command, outcome=waiting, received=())


def complete_after_step(settlement: Settlement) -> Decision[JobSettled]:
    """Store the result of a step, and the result of its function, which ends the run."""
    outcome = settlement.command.outcome
    assert isinstance(outcome, CompletedAfterStep)
    draft = settlement.draft()
    draft.append_of(settlement.job, outcome.step, payload=outcome.result)
    row = completed(settlement, draft)
    return _with_successor(settlement, draft, settlement.settled(draft, row=row))


def suspend_after_step(settlement: Settlement) -> Decision[JobSettled]:
    """Store the result or error of a step, and queue its function at once."""
    outcome, run, job, now = settlement.command.outcome, settlement.run, settlement.job, settlement.now
    assert isinstance(outcome, WaitingAfterStep)
    draft = settlement.draft()
    draft.append_of(job, outcome.step, payload=outcome.result)
    released = rescheduled(evolve(job, attempts=0, lost_attempts=0), now, now, run.status)
    reply = JobSettled(status="settled", run_status=run.status, retry_at=now)
    return Decision(reply, (*draft.changes(), Update(released)), (*draft.hints, *job_hints(released)))


def fail_function(settlement: Settlement) -> Decision[JobSettled]:
    """Fail the run of a function, or try the whole run again."""
    outcome, run, job = settlement.command.outcome, settlement.run, settlement.job
    assert isinstance(outcome, Failed)
    failure, details = outcome.failure, settlement.details_of(outcome.failure)
    if run.key in settlement.state.histories:
        retried = retry_run(settlement.state, run, job, failure, details, settlement.now, settlement.ids)
        if retried is not None:
            return retried
    draft = settlement.draft()
    fail_stage(draft, settlement.plan, job, failure, details)
    return _with_successor(settlement, draft, settlement.settled(draft))


def cancel_function(settlement: Settlement) -> Decision[JobSettled]:
    """End the run of a function that has cleaned up after a cancellation or deadline, or that cancelled itself."""
    outcome, run = settlement.command.outcome, settlement.run
    assert isinstance(outcome, Cancelled)
    requested_error = run.error if run.is_ending else None
    error: dict[str, object] = {"code": "cancelled", "message": outcome.reason}
    if requested_error is not None:
        error = cast("dict[str, object]", parse(requested_error))
    draft = settlement.draft()
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
    draft.end(status, cancels=settlement.state.cancels_of(run), error=error)
    return _with_successor(settlement, draft, settlement.settled(draft))


def suspend_function(settlement: Settlement) -> Decision[JobSettled]:
    """Suspend a waiting function until its timer or a new row; if it has not received all rows, queue it at once."""
    outcome, run, now = settlement.command.outcome, settlement.run, settlement.now
    assert isinstance(outcome, FunctionWaiting)
    wake_at = None if outcome.wake_at is None else max(outcome.wake_at, now)
    if outcome.seen < run.last_row:
        wake_at = now
    released = rescheduled(
        evolve(settlement.job, attempts=0, lost_attempts=outcome.lost_attempts), wake_at, now, run.status
    )
    reply = JobSettled(status="settled", run_status=run.status, retry_at=wake_at)
    # A function that parks leaves the row of its run unchanged unless it has received messages.
    received = settlement.draft().changes() if run.mailbox != settlement.before.mailbox else ()
    return Decision(reply, (*received, Update(released)), job_hints(released))


def retry_refused_result(settlement: Settlement) -> Decision[JobSettled]:
    """Queue a function again whose result the store refused: it then fails and runs its compensations."""
    outcome, run, job, now = settlement.command.outcome, settlement.run, settlement.job, settlement.now
    assert isinstance(outcome, Failed)
    draft = settlement.draft()
    draft.append(events.ResultRefused(message=outcome.failure.message), node=job.node, epoch=job.epoch)
    released = rescheduled(evolve(job, attempts=0, lost_attempts=0), now, now, run.status)
    reply = JobSettled(status="settled", run_status=run.status, retry_at=now)
    return Decision(reply, (*draft.changes(), Update(released)), (*draft.hints, *job_hints(released)))


def _with_successor(
    settlement: Settlement, draft: RunDraft, settled: Decision[JobSettled]
) -> Decision[JobSettled]:
    """Add the next generation to a settle that ended the run, if an unread message came with a start."""
    run = settlement.run
    if run.mailbox is None:
        return settled
    return with_other(settled, start_successor(settlement.state, run, draft, settlement.now, settlement.ids))
