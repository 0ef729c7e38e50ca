"""The log of a host about its attempts: attempts that failed, and runs that failed or are blocked.

One line each, on the logger `holdfast.runs`: WARNING for a failed attempt, ERROR for a run that failed or is blocked.
Each record also has the facts as attributes, for handlers that store fields: `run`, `workflow`, `step` (a step or a
stage), `attempt` and `error`.
"""

from typing import Final, cast

from holdfast.hosts.execution.bodies import Body
from holdfast.hosts.text import format_duration, one_line
from holdfast.hosts.wiring.run_log import fields_of, log_blocked, run_logger
from holdfast.kernel.commands import (
    Attempt,
    Blocked,
    Failed,
    JobSettle,
    JobSettled,
    QueuedStepFailed,
)
from holdfast.ports.clock import micros
from holdfast.ports.json import parse
from holdfast.ports.records.job import JobKind, step_of
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.records.values import Micros

_OF_STAGES: Final = {
    JobKind.POLL: "the check of stage",
    JobKind.CANCEL: "the cancel of stage",
    JobKind.CONDITION: "the condition of stage",
    JobKind.EXPAND_MAP: "the map of stage",
}


def log_failed_try(run: Run, step: str, attempt: int, type: str, message: str, wait: Micros | None) -> None:
    """Log a failed attempt of an inline step. `wait` is the time to the next attempt; None after the last."""
    _warn(run, f"step {step!r}", step, attempt, f"attempt {attempt}", _error(type, message), wait)


def log_settled(body: Body, command: JobSettle, answer: JobSettled) -> None:
    """Log the failure of an attempt, once it is stored. Does nothing for other outcomes."""
    run, attempt = body.work.run, body.attempt
    match command.outcome:
        case Blocked(failure=failure):
            log_blocked(run, failure.code, failure.message)
        case Failed(failure=failure):
            error = _error(failure.type or failure.code, failure.message)
            if answer.run_status is RunStatus.FAILED and answer.retry_at is None:
                _log_failed_run(run, attempt, error)
            elif attempt.kind is not JobKind.WORKFLOW:
                _log_failed_attempt(body, answer, error)
        case QueuedStepFailed(error=text):
            facts = cast("dict[str, str]", parse(text))
            _log_failed_attempt(body, answer, _error(facts.get("type", ""), facts.get("message", "")))
        case _:
            pass


def _log_failed_run(run: Run, attempt: Attempt, error: str) -> None:
    is_function = attempt.kind is JobKind.WORKFLOW
    where = "" if is_function else f"{_place(attempt)}, attempt {attempt.attempt} of {attempt.max_attempts}: "
    run_logger.error(
        "run %s (%s@%s) failed: %s%s",
        run.id,
        run.workflow,
        run.version,
        where,
        error,
        extra=fields_of(run, "" if is_function else attempt.node, attempt.attempt, error),
    )


def _log_failed_attempt(body: Body, answer: JobSettled, error: str) -> None:
    attempt = body.attempt
    wait = None if answer.retry_at is None else answer.retry_at - micros(body.parts.clock.now())
    count = f"attempt {attempt.attempt} of {attempt.max_attempts}"
    step = step_of(attempt.definition) or attempt.node
    _warn(body.work.run, _place(attempt), step, attempt.attempt, count, error, wait)


def _warn(run: Run, place: str, step: str, attempt: int, count: str, error: str, wait: Micros | None) -> None:
    run_logger.warning(
        "run %s (%s@%s), %s, %s failed%s: %s",
        run.id,
        run.workflow,
        run.version,
        place,
        count,
        " for good" if wait is None else f", next attempt in {format_duration(max(0, wait))}",
        error,
        extra=fields_of(run, step, attempt, error),
    )


def _place(attempt: Attempt) -> str:
    if (step := step_of(attempt.definition)) is not None:
        return f"step {step!r}"
    item = "" if attempt.item is None else f", item {attempt.item}"
    return f"{_OF_STAGES.get(attempt.kind, 'stage')} {attempt.node!r}{item}"


def _error(type: str, message: str) -> str:
    return one_line(f"{type}: {message}" if message else type)
