"""Conversion of exceptions of bodies into failures of attempts: the retry rule, and the text for people."""

import traceback
from datetime import timedelta
from types import TracebackType
from typing import Any, Final

import attrs

from holdfast.hosts.text import printable
from holdfast.kernel.authoring.pipeline_builder import rule_name
from holdfast.kernel.authoring.stages import Stage
from holdfast.kernel.commands import Failure
from holdfast.kernel.history.exceptions import raised_from
from holdfast.kernel.pipelines.plan import StagePlan
from holdfast.kernel.rules.retries import RETRY_AFTER_MAX, TIMEOUT_TOTAL
from holdfast.ports.errors import (
    BlobMissingError,
    GiveUp,
    InvalidValueError,
    RetryAfter,
    UnstorableValueError,
)
from holdfast.ports.records.values import Micros

MESSAGE_MAX: Final = 2_000
"""How many characters of an error message are stored."""
TRACEBACK_MAX: Final = 8_000
"""How many characters of a traceback are stored."""

_OURS: Final = ("holdfast.hosts.", "holdfast.testing.body_runner", "anyio.", "asyncio.runners")
_MICROSECOND: Final = timedelta(microseconds=1)

_NEVER_AGAIN: Final = (InvalidValueError, UnstorableValueError, BlobMissingError)
"""Errors that another attempt would only repeat: not retried unless the stage has a rule for these very classes."""


@attrs.frozen
class _Treatment:
    """How a failure is treated."""

    rule: int | None = None
    """The index of the retry rule in the plan; None for the default policy."""
    final: bool = False
    """Whether there is no further attempt."""


def failure_of(error: BaseException, stage: Stage[Any, object], plan: StagePlan) -> Failure:
    """Return the failure of an attempt whose body raised `error`."""
    treatment, raised = _treatment_of(error, stage, plan), raised_from(error)
    return Failure(
        code=raised.code,
        message=printable(raised.message)[:MESSAGE_MAX],
        type=raised.type,
        arguments=raised.arguments,
        traceback=traceback_text(error, TRACEBACK_MAX),
        retryable=not treatment.final,
        rule=treatment.rule,
        retry_after=_wait(error.wait) if isinstance(error, RetryAfter) else None,
    )


def traceback_text(error: BaseException, most: int) -> str:
    """Return the traceback from the user's code on; the last `most` characters of it."""
    lines = "".join(traceback.format_exception(type(error), error, _of_the_user(error.__traceback__)))
    return printable(lines)[-most:]


def cut_off(seconds: float) -> str:
    """Return the error text for a body that was stopped because its process was about to end."""
    return (
        f"it was stopped after {timedelta(seconds=seconds)}: the invocation that ran it was about to end; "
        "raise the function's timeout, do less at a time, or run it in a worker"
    )


def timeout_failure(
    seconds: float, stage: Stage[Any, object], plan: StagePlan, *, cut: bool = False
) -> Failure:
    """Return the failure of an attempt that ran for longer than `seconds`. Retry rules see a TimeoutError.

    With `cut` it was not its own timeout that ended it, but the end of the invocation that ran it.
    """
    treatment = _by_class(TimeoutError, stage, plan)
    return Failure(
        code="timeout",
        message=cut_off(seconds) if cut else f"the attempt took longer than {timedelta(seconds=seconds)}",
        type="TimeoutError",
        retryable=not treatment.final,
        rule=treatment.rule,
    )


def total_failure(attempts: int, total: Micros, *, started: bool) -> Failure:
    """Return the failure of an attempt after the total timeout for all attempts.

    `attempts` counts those that were started, `total` is in microseconds.
    """
    made = "1 attempt was" if attempts == 1 else f"{attempts} attempts were"
    end = "the last one was stopped then" if started else "the next one was claimed too late to start"
    message = f"{made} made within the {timedelta(microseconds=total)} for all of them; {end}"
    return Failure(code=TIMEOUT_TOTAL, message=message, type="TimeoutError", retryable=False)


def _treatment_of(error: BaseException, stage: Stage[Any, object], plan: StagePlan) -> _Treatment:
    if isinstance(error, GiveUp):
        return _Treatment(final=True)
    if isinstance(error, RetryAfter):
        causes = (each for each in (error.__cause__, error) if each is not None)
        found = (_by_class(type(each), stage, plan).rule for each in causes)
        return _Treatment(rule=next((rule for rule in found if rule is not None), None))
    return _by_class(type(error), stage, plan)


def _by_class(kind: type[BaseException], stage: Stage[Any, object], plan: StagePlan) -> _Treatment:
    """Return the treatment of an exception class, by the rule for its nearest base class."""
    hopeless = issubclass(kind, _NEVER_AGAIN)
    error_class = stage.find_error_rule(kind)
    if error_class is None or stage.retry is None or (hopeless and not issubclass(error_class, _NEVER_AGAIN)):
        return _Treatment(final=hopeless)
    if error_class in stage.retry.give_up_on:
        return _Treatment(final=True)
    return _Treatment(rule=_rule_for(error_class, list(stage.retry.by_error), plan))


def _rule_for(error_class: type[Exception], known: list[type[Exception]], plan: StagePlan) -> int | None:
    """Return the index of the plan's rule for a class. The plan of the run may be older than the code."""
    names = [rule.error for rule in plan.retry_rules]
    place = known.index(error_class)
    if names == [rule_name(each) for each in known]:
        return place
    return names.index(rule_name(error_class)) if rule_name(error_class) in names else None


def _wait(wait: timedelta) -> Micros:
    return max(0, min(wait // _MICROSECOND, RETRY_AFTER_MAX))


def _of_the_user(frames: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the frames above the user's code; all of it if it has none of that."""
    frame = frames
    while frame is not None and str(frame.tb_frame.f_globals.get("__name__")).startswith(_OURS):
        frame = frame.tb_next
    return frame or frames
