"""Replacements for commands with a value that the store refused."""

from typing import Any

import attrs

from holdfast.kernel.commands import (
    Command,
    Completed,
    Failed,
    Failure,
    JobRecord,
    JobSettle,
    QueuedStepCompleted,
    QueuedStepFailed,
    RunDeliver,
)
from holdfast.kernel.commands.jobs import ResultRefused
from holdfast.kernel.history.exceptions import raised_from
from holdfast.ports.errors import RefusedError, StepResultError, StorageRefusedError
from holdfast.ports.json import canonical
from holdfast.ports.records.history import STEP_COMPLETED, STEP_FAILED


def without_value(command: Command[Any], error: RefusedError) -> Command[Any] | None:
    """Return a command that records the refusal instead of the value; None if `command` stores no value."""
    failure = Failure(code=StorageRefusedError.code, message=str(error)[:500], retryable=False)
    match command:
        case JobSettle(outcome=QueuedStepCompleted()):
            raised = QueuedStepFailed(error=_error_text(StepResultError(failure.message)))
            return attrs.evolve(command, outcome=raised, outputs=(), events=())
        case JobSettle(outcome=outcome) if not isinstance(outcome, Failed):
            kind = ResultRefused if isinstance(outcome, Completed) else Failed
            return JobSettle(
                namespace=command.namespace,
                job=command.job,
                epoch=command.epoch,
                outcome=kind(failure=failure),
                received=command.received,
            )
        case JobRecord(rows=(row,)) if row.output is not None or row.queued is not None:
            was_done = row.type == STEP_COMPLETED
            step_error = (
                StepResultError(failure.message) if was_done else StorageRefusedError(failure.message)
            )
            failed = attrs.evolve(
                row, type=STEP_FAILED, output=None, queued=None, error=_error_text(step_error)
            )
            return attrs.evolve(command, rows=(failed,))
        case RunDeliver(parent=parent, output=output) if parent is not None and output is not None:
            return RunDeliver(namespace=command.namespace, job=command.job, parent=parent, failure=failure)
        case _:
            return None


def _error_text(error: Exception) -> str:
    raised = raised_from(error)
    facts = {
        "type": raised.type,
        "message": raised.message,
        "code": raised.code,
        "arguments": raised.arguments,
    }
    return canonical(facts)
