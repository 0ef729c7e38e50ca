"""The log of a host about its attempts and the runs that fail or are blocked by them.

One line each, on the logger `holdfast.runs`: ERROR for a run that failed or is blocked, WARNING for a failed attempt or
a refused message, DEBUG for any other attempt that ended. Each record also has the facts as attributes, for handlers
that store fields: `run`, `workflow`, `step` (a step or a stage), `attempt` and `error`.
"""

import logging
from collections.abc import Mapping
from typing import Final, cast

from holdfast.hosts.execution.bodies import Body
from holdfast.hosts.text import format_duration, one_line
from holdfast.hosts.wiring.run_log import log_blocked, log_of_run, run_logger
from holdfast.kernel.commands import (
    Attempt,
    Blocked,
    Cancelled,
    ChildRunStarted,
    Completed,
    CompletedAfterStep,
    ConditionEvaluated,
    ContinuedAsNew,
    Failed,
    FunctionWaiting,
    JobSettle,
    JobSettled,
    MapExpanded,
    Outcome,
    PollNotReady,
    QueuedStepCompleted,
    QueuedStepFailed,
    StageSuspended,
)
from holdfast.kernel.history import events
from holdfast.ports.clock import Clock, micros
from holdfast.ports.json import parse
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.job import JobKind, attempts_text, step_of
from holdfast.ports.records.run import TERMINAL, Run, RunStatus
from holdfast.ports.records.values import Micros

_OF_STAGES: Final = {
    JobKind.POLL: "the check of stage",
    JobKind.CANCEL: "the cancel of stage",
    JobKind.CONDITION: "the condition of stage",
    JobKind.EXPAND_MAP: "the map of stage",
}

_ENDS: Final[Mapping[type[Outcome], str]] = {
    Completed: "completed",
    CompletedAfterStep: "completed",
    QueuedStepCompleted: "completed",
    MapExpanded: "found the items",
    ConditionEvaluated: "chose a branch",
    StageSuspended: "submitted external work",
    PollNotReady: "found the external work in progress",
    Cancelled: "ended as cancelled",
    ChildRunStarted: "started a child run",
    FunctionWaiting: "is waiting",
    ContinuedAsNew: "continued as new",
}
"""What each outcome is called in the log, after the number of the attempt."""


def log_failed_try(run: Run, step: str, attempt: int, type: str, message: str, wait: Micros | None) -> None:
    """Log a failed attempt of an inline step. `wait` is the time to the next attempt; None after the last."""
    _warn(run, f"step {step!r}", step, attempt, f"attempt {attempt}", _error(type, message), wait)


def log_failed_step(run: Run, row: HistoryRow, *, is_blocked: bool) -> None:
    """Log the row of an inline step's failed attempt. `is_blocked` means that a compensation has failed for good."""
    event = events.event_of(row)
    if not isinstance(event, events.StepFailed | events.StepRetrying) or event.job is not None or event.lost:
        return  # a queued step is logged when it is settled
    at = event.retry_at if isinstance(event, events.StepRetrying) else None
    wait = None if at is None or (is_blocked and event.undoes) else at - row.at
    log_failed_try(run, event.step, event.attempt, event.error.type, event.error.message, wait)


def log_refused_message(run: Run, row: HistoryRow) -> None:
    """Log a message that its function skipped, because it does not have the type of its channel."""
    refused = events.SignalRefused.from_row(row)
    text, message = " refused message %s for channel %r: %s", one_line(refused.message)
    log_of_run(logging.WARNING, run, text, refused.row, refused.channel, message, error=refused.message)


def log_settled(body: Body, command: JobSettle, answer: JobSettled) -> None:
    """Log the outcome of an attempt, once it is stored."""
    run, attempt = body.work.run, body.attempt
    match command.outcome:
        case Blocked(failure=failure):
            log_blocked(run, failure.code, failure.message)
        case Failed(failure=failure):
            error = _error(failure.type or failure.code, failure.message)
            if answer.run_status is RunStatus.FAILED and answer.retry_at is None:
                _log_failed_run(run, attempt, error)
            elif attempt.kind is JobKind.WORKFLOW and answer.retry_at is not None:
                wait = answer.retry_at - micros(body.parts.clock.now())
                place = f"function {attempt.node!r}"
                _warn(run, place, attempt.node, attempt.attempt, "the whole run", error, wait)
            elif attempt.kind is not JobKind.WORKFLOW:
                _log_failed_attempt(body, answer, error)
        case QueuedStepFailed(error=text):
            facts = cast("dict[str, str]", parse(text))
            _log_failed_attempt(body, answer, _error(facts.get("type", ""), facts.get("message", "")))
        case outcome:
            if run_logger.isEnabledFor(logging.DEBUG):
                _log_ended_attempt(body, outcome, answer)


def log_completed_step(run: Run, step: str, attempt: int, clock: Clock, started_at: Micros) -> None:
    """Log a completed attempt of an inline step."""
    if run_logger.isEnabledFor(logging.DEBUG):
        length = format_duration(max(0, micros(clock.now()) - started_at))
        _debug(run, f"step {step!r}", step, attempt, f"completed after {length}")


def _log_failed_run(run: Run, attempt: Attempt, error: str) -> None:
    is_function = attempt.kind is JobKind.WORKFLOW
    where = (
        "" if is_function else f"{_place(attempt)}, {attempts_text(attempt.attempt, attempt.max_attempts)}: "
    )
    step = "" if is_function else attempt.node
    text = " failed: %s%s"
    log_of_run(logging.ERROR, run, text, where, error, step=step, attempt=attempt.attempt, error=error)


def _log_failed_attempt(body: Body, answer: JobSettled, error: str) -> None:
    attempt = body.attempt
    wait = None if answer.retry_at is None else answer.retry_at - micros(body.parts.clock.now())
    count = attempts_text(attempt.attempt, attempt.max_attempts)
    step = step_of(attempt.definition) or attempt.node
    _warn(body.work.run, _place(attempt), step, attempt.attempt, count, error, wait)


def _log_ended_attempt(body: Body, outcome: Outcome, answer: JobSettled) -> None:
    attempt = body.attempt
    length = format_duration(max(0, micros(body.parts.clock.now()) - body.started_at))
    step = step_of(attempt.definition) or attempt.node
    is_function = attempt.kind is JobKind.WORKFLOW
    place = f"function {attempt.node!r}" if is_function else _place(attempt)
    did = _ENDS[FunctionWaiting if is_function and answer.retry_at is not None else type(outcome)]
    ended = f"; the run is {answer.run_status}" if answer.run_status in TERMINAL else ""
    _debug(body.work.run, place, step, attempt.attempt, f"{did} after {length}{ended}")


def _debug(run: Run, place: str, step: str, attempt: int, what: str) -> None:
    text = ", %s, attempt %s: %s"
    log_of_run(logging.DEBUG, run, text, place, attempt, what, step=step, attempt=attempt)


def _warn(run: Run, place: str, step: str, attempt: int, count: str, error: str, wait: Micros | None) -> None:
    following = " for good" if wait is None else f", next attempt in {format_duration(max(0, wait))}"
    text = ", %s, %s failed%s: %s"
    log_of_run(
        logging.WARNING, run, text, place, count, following, error, step=step, attempt=attempt, error=error
    )


def _place(attempt: Attempt) -> str:
    if (step := step_of(attempt.definition)) is not None:
        return f"step {step!r}"
    item = "" if attempt.item is None else f", item {attempt.item}"
    return f"{_OF_STAGES.get(attempt.kind, 'stage')} {attempt.node!r}{item}"


def _error(type: str, message: str) -> str:
    return one_line(f"{type}: {message}" if message else type)
