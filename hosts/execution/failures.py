"""Conversion of exceptions of bodies into failures of attempts: the retry rule, and the text for people."""

import traceback
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Final

import attrs

from holdfast.hosts.text import printable
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipeline_builder import rule_name
from holdfast.kernel.authoring.stages import Stage
from holdfast.kernel.commands import Failure
from holdfast.kernel.history.exceptions import raised_from
from holdfast.kernel.pipelines.plan import RetryRule, StagePlan
from holdfast.kernel.rules.retries import NEVER_AGAIN, RETRY_AFTER_MAX, TIMEOUT_TOTAL
from holdfast.ports.errors import GiveUp, RetryAfter
from holdfast.ports.records.values import Micros

MESSAGE_MAX: Final = 2_000
"""How many characters of an error message are stored."""
TRACEBACK_MAX: Final = 8_000
"""How many characters of a traceback are stored."""

_OURS: Final = ("holdfast.hosts.", "holdfast.testing.body_runner", "anyio.", "asyncio.runners")
_MICROSECOND: Final = timedelta(microseconds=1)


@attrs.frozen
class RetryMatch:
    """The part of a retry policy that an error falls under."""

    error: type[Exception] | None = None
    """The class in `by_error` with the policy; None for the policy itself."""
    is_final: bool = False
    """Whether there is no further attempt."""


def failure_of(error: BaseException, stage: Stage[Any, object], plan: StagePlan) -> Failure:
    """Return the failure of an attempt whose body raised `error`."""
    match, raised = retry_match(error, stage.retry), raised_from(error)
    return Failure(
        code=raised.code,
        message=printable(raised.message)[:MESSAGE_MAX],
        type=raised.type,
        arguments=raised.arguments,
        traceback=traceback_text(error, TRACEBACK_MAX),
        retryable=not match.is_final,
        rule=rule_for(match.error, stage.retry, plan.retry_rules),
        retry_after=retry_after_of(error),
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
    match = _by_class(TimeoutError, stage.retry)
    rule = rule_for(match.error, stage.retry, plan.retry_rules)
    failure = timed_out_failure(seconds, rule=rule, retryable=not match.is_final)
    return attrs.evolve(failure, message=cut_off(seconds)) if cut else failure


def timed_out_failure(seconds: float, *, rule: int | None, retryable: bool) -> Failure:
    """Return the failure of an attempt that ran for longer than `seconds`, with its rule in the policy."""
    message = f"the attempt took longer than {timedelta(seconds=seconds)}"
    return Failure(code="timeout", message=message, type="TimeoutError", retryable=retryable, rule=rule)


def total_failure(attempts: int, total: Micros, *, started: bool) -> Failure:
    """Return the failure of an attempt after the total timeout for all attempts.

    `attempts` counts those that were started, `total` is in microseconds.
    """
    made = "1 attempt was" if attempts == 1 else f"{attempts} attempts were"
    end = "the last one was stopped then" if started else "the next one was claimed too late to start"
    message = f"{made} made within the {timedelta(microseconds=total)} for all of them; {end}"
    return Failure(code=TIMEOUT_TOTAL, message=message, type="TimeoutError", retryable=False)


def retry_match(error: BaseException, retry: Retry | None) -> RetryMatch:
    """Return the part of a retry policy that an error falls under. The kernel decides what follows from it."""
    if isinstance(error, GiveUp):
        return RetryMatch(is_final=True)
    if isinstance(error, RetryAfter):
        causes = (each for each in (error.__cause__, error) if each is not None)
        found = (_by_class(type(each), retry).error for each in causes)
        return RetryMatch(next((one for one in found if one is not None), None))
    return _by_class(type(error), retry)


def retry_after_of(error: BaseException) -> Micros | None:
    """Return the wait that a body has set with `RetryAfter`; None if it has not."""
    if not isinstance(error, RetryAfter):
        return None
    return max(0, min(error.wait // _MICROSECOND, RETRY_AFTER_MAX))


def _by_class(kind: type[BaseException], retry: Retry | None) -> RetryMatch:
    """Return the match of an exception class, by the rule for its nearest base class."""
    listed = () if retry is None else (*retry.give_up_on, *retry.by_error)
    rule, is_final = _nearest(kind, lambda each: each in listed)
    if retry is None or rule is None:
        return RetryMatch(is_final=is_final)
    return RetryMatch(is_final=True) if rule in retry.give_up_on else RetryMatch(rule)


def _nearest(kind: type[BaseException], is_listed: Callable[[type], bool]) -> tuple[Any, bool]:
    """Return the nearest listed base of a class, and whether it is final because it has none that counts."""
    rule = next((each for each in kind.__mro__ if is_listed(each)), None)
    hopeless = issubclass(kind, NEVER_AGAIN)
    if rule is None or (hopeless and not issubclass(rule, NEVER_AGAIN)):
        return None, hopeless
    return rule, False


def named_match(error: BaseException, names: Collection[str]) -> tuple[str | None, bool]:
    """Return which of these classes an error is, by their names in a plan, and whether it is final in any case.

    It is the rule of `retry_match`, for a host that knows the policy only as a document.
    """
    if isinstance(error, GiveUp):
        return None, True
    causes = (error.__cause__, error) if isinstance(error, RetryAfter) else (error,)
    is_final = False
    for each in causes:
        if each is not None:
            rule, is_final = _nearest(type(each), lambda base: rule_name(base) in names)
            if rule is not None:
                return rule_name(rule), False
    return None, is_final and not isinstance(error, RetryAfter)


def rule_for(error: type[Exception] | None, retry: Retry | None, rules: Sequence[RetryRule]) -> int | None:
    """Return the index of the plan's rule for a class. The plan of the run may be older than the code."""
    if error is None or retry is None:
        return None
    known, names = list(retry.by_error), [rule.error for rule in rules]
    if names == [rule_name(each) for each in known]:
        return known.index(error)
    return names.index(rule_name(error)) if rule_name(error) in names else None


def _of_the_user(frames: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the frames above the user's code; all of it if it has none of that."""
    frame = frames
    while frame is not None and str(frame.tb_frame.f_globals.get("__name__")).startswith(_OURS):
        frame = frame.tb_next
    return frame or frames
