"""Replacements for commands with a value that the store refused."""

from typing import Any

import attrs

from holdfast.kernel.commands import (
    Command,
    Completed,
    CompletedAfterStep,
    EventAppend,
    Failed,
    Failure,
    FunctionRecord,
    JobRecord,
    JobSettle,
    QueuedStepCompleted,
    QueuedStepFailed,
    RunDeliver,
    StepQueue,
    UpdateDeliver,
)
from holdfast.kernel.commands.outcomes import ResultRefused, WaitingAfterStep
from holdfast.kernel.history import events
from holdfast.kernel.history.exceptions import raised_from
from holdfast.ports.errors import RefusedError, StepResultError, StorageRefusedError


def without_value(command: Command[Any], error: RefusedError) -> Command[Any] | None:
    """Return a command that records the refusal instead of the value; None if `command` stores no value."""
    failure = Failure(code=StorageRefusedError.code, message=str(error)[:500], retryable=False)
    match command:
        case JobSettle(outcome=QueuedStepCompleted()):
            raised = QueuedStepFailed(error=_recorded(StepResultError(failure.message)).text)
            return attrs.evolve(command, outcome=raised, outputs=(), events=())
        case JobSettle(outcome=CompletedAfterStep() as outcome):
            # Which of the two values was refused is found out by storing them one after the other.
            waiting = WaitingAfterStep(seen=outcome.seen, step=outcome.step, result=outcome.result)
            return attrs.evolve(command, outcome=waiting, outputs=(), received=())
        case JobSettle(outcome=WaitingAfterStep(step=events.StepCompleted() as step) as outcome):
            failed = _failed(step, failure.message)
            return attrs.evolve(command, outcome=attrs.evolve(outcome, step=failed, result=None))
        case JobSettle(outcome=outcome) if not isinstance(outcome, Failed):
            kind = ResultRefused if isinstance(outcome, Completed) else Failed
            return JobSettle(
                namespace=command.namespace,
                job=command.job,
                epoch=command.epoch,
                outcome=kind(failure=failure),
                received=command.received,
            )
        case JobRecord(records=(record,)) if (refused := _refused(record, failure.message)) is not None:
            return attrs.evolve(command, records=(refused,), outputs=(), reported=0)
        case JobRecord(outputs=outputs) if outputs:
            return attrs.evolve(command, outputs=(), reported=0)
        case RunDeliver(parent=parent, output=output) if parent is not None and output is not None:
            return RunDeliver(namespace=command.namespace, job=command.job, parent=parent, failure=failure)
        case UpdateDeliver(output=output) if output is not None:
            return attrs.evolve(command, output=None, failure=failure)
        case _:
            return None


def _refused(record: FunctionRecord, why: str) -> EventAppend | None:
    """Return the record of an error to store instead of the refused value; None if the record has no value."""
    match record:
        case EventAppend(event=events.StepCompleted() as done):
            event: events.DriverEvent = _failed(done, why)
        case EventAppend(event=events.UpdateCompleted() as done):
            event = events.UpdateFailed(call=done.call, error=_recorded(StorageRefusedError(why)))
        case StepQueue():
            event = events.StepFailed(
                call=record.call,
                step=record.step,
                attempt=record.attempt,
                error=_recorded(StorageRefusedError(why)),
                site=record.site,
                undoes=record.undoes,
            )
        case _:
            return None
    return EventAppend(event=event)


def _failed(done: events.StepCompleted, why: str) -> events.StepFailed:
    return events.StepFailed(
        call=done.call,
        step=done.step,
        attempt=done.attempt,
        error=_recorded(StepResultError(why)),
        host=done.host,
        site=done.site,
        started_at=done.started_at,
        undoes=done.undoes,
        given=done.given,
    )


def _recorded(error: Exception) -> events.RecordedError:
    raised = raised_from(error)
    return events.RecordedError(
        type=raised.type, message=raised.message, code=raised.code, arguments=raised.arguments
    )
