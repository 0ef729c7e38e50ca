"""Steps that were running when the worker of their function was lost: how the loss counts, and when they are retried.

A step that kills its worker takes down everything beside it. To find it, lost steps of one function are retried like
lost jobs: those that were lost often, one at a time (docs/decisions/0059).
"""

from collections.abc import Collection, Sequence
from typing import Final, cast

from holdfast.hosts.functions.pending_calls import StepAttempt
from holdfast.hosts.functions.step_runner import lost_step
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipeline_builder import policy_from
from holdfast.kernel.authoring.steps import Step
from holdfast.kernel.commands import EventAppend, Failure
from holdfast.kernel.history import events
from holdfast.kernel.runs.external_work import LOST_WORKER
from holdfast.ports.errors import CompensationError
from holdfast.ports.records.job import LOSSES_MIN, SUSPECT_AFTER, losses_max
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen

ALONE_FOR: Final[Micros] = 60_000_000
"""Microseconds that a step lost often keeps others like it waiting. After that they may depend on each other."""

_NEVER_ALONE: Final = 4
"""How many times the limit a step may be lost without having run alone, before its run is blocked."""


@frozen(kw_only=True)
class Losses:
    """The consequences of a lost worker for the steps of one function."""

    rows: tuple[EventAppend, ...]
    """The rows that record the losses."""
    failure: Failure | None
    """Why the run must be blocked; None if it need not be."""


def lost_steps(tries: Sequence[StepAttempt], *, was_suspect: bool, host: str, now: Micros) -> Losses:
    """Return the consequences for the steps that may have been running: their progress is unknown.

    `was_suspect` means that their job ran beside no other job that was ever lost. A step that was lost before and has
    not been started again was not running.
    """
    under_way = [one for one in tries if not one.lost_attempts or one.is_restarted]
    is_alone = was_suspect and sum(one.lost_attempts > 0 for one in under_way) == 1
    rows: list[EventAppend] = []
    failure: Failure | None = None
    for one in under_way:
        is_given_up = _is_given_up(one, is_alone=is_alone)
        may_again = not is_given_up or bool(one.request.undoes)
        rows.append(lost_step(one, now, host=host, may_again=may_again))
        if may_again and (is_given_up or one.lost_attempts + 1 >= _NEVER_ALONE * _losses_max(one)):
            failure = failure or _not_done(one)
    return Losses(rows=tuple(rows), failure=failure)


def _is_given_up(one: StepAttempt, *, is_alone: bool) -> bool:
    """Return whether a lost step is not retried: it allows one attempt, or reached the limit and was alone."""
    most = _losses_max(one)
    return one.lost_attempts + 1 >= most and (is_alone or most == 1)


def _losses_max(one: StepAttempt) -> int:
    step = cast("Step[..., object]", one.request.definition)
    attempts = policy_from(step.retry or Retry()).attempts
    # A compensation must succeed: it is retried even if its policy allows one attempt.
    return max(attempts, LOSSES_MIN) if one.request.undoes else losses_max(attempts)


def _not_done(one: StepAttempt) -> Failure:
    step, times = one.request.step, one.lost_attempts + 1
    what = f"the compensation {step!r}, was" if one.request.undoes else f"step {step!r} was"
    message = f"{what} lost with its worker {times} times; `run resume` retries it"
    return Failure(code=CompensationError.code if one.request.undoes else LOST_WORKER, message=message)


def restartable_steps(
    waiting: Sequence[StepAttempt], under_way: Collection[StepAttempt], *, turn: int, waited: Micros
) -> list[StepAttempt]:
    """Return which of the waiting lost steps start now, beside the lost steps that are running.

    A step that was lost often runs beside no other lost step, unless those have been running for so long that they
    may depend on it. `waited` is the time, in microseconds, since one was last started. `turn` differs each time that
    the function is driven, so that another step comes first.
    """
    suspects = [one for one in waiting if one.lost_attempts >= SUSPECT_AFTER]
    others = [one for one in waiting if one.lost_attempts < SUSPECT_AFTER]
    if others and not any(one.lost_attempts >= SUSPECT_AFTER for one in under_way):
        return others
    if not waiting or (under_way and waited < ALONE_FOR):
        return []
    whose = suspects or others
    return [whose[turn % len(whose)]]


def restart_row(one: StepAttempt, host: str, now: Micros) -> EventAppend:
    """Return the row that is stored before a lost step starts again: a later loss counts only with it."""
    started = events.StepStarted(
        call=one.request.call,
        step=one.request.step,
        site=one.request.site,
        attempt=one.number,
        started_at=now,
        host=host or None,
        undoes=one.request.undoes or None,
    )
    return EventAppend(event=started)
