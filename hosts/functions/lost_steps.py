"""What was under way when the worker of a function was lost: how that counts, and in which turn it is tried again.

What kills its worker takes all with it that is under way there. To find it, steps of one function that were lost are
tried again as jobs are: those that were lost often one at a time.
"""

from collections.abc import Collection, Sequence
from typing import Final, cast

from holdfast.hosts.functions.pending_calls import Try
from holdfast.hosts.functions.step_runner import lost_step
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipeline_builder import policy_from
from holdfast.kernel.authoring.steps import Step
from holdfast.kernel.commands import Failure, Recorded
from holdfast.kernel.runs.external_work import LOST_WORKER
from holdfast.ports.errors import CompensationError
from holdfast.ports.records import LOSSES_MIN, STEP_STARTED, SUSPECT_AFTER, Micros, losses_max
from holdfast.ports.structs import frozen

ALONE_FOR: Final[Micros] = 60_000_000
"""How long, in microseconds, a step that was lost often keeps others like it waiting: they may wait for each other."""

_NEVER_ALONE: Final = 4
"""How many times as often as one that was alone a step is lost with others before its run is blocked for that."""


@frozen(kw_only=True)
class Losses:
    """What is to be recorded of steps that were lost, and why their run is to be blocked, if it is."""

    rows: tuple[Recorded, ...]
    failure: Failure | None


def lost_steps(tries: Sequence[Try], *, was_suspect: bool, now: Micros) -> Losses:
    """Return what has become of the steps that were under way, or may have been: nobody knows how far they came.

    `was_suspect` says that the job which drove them ran beside nothing else that was lost. One that was lost before,
    and has not begun again, was not under way.
    """
    under_way = [one for one in tries if not one.lost_attempts or one.is_begun]
    is_alone = was_suspect and sum(one.lost_attempts > 0 for one in under_way) == 1
    rows: list[Recorded] = []
    failure: Failure | None = None
    for one in under_way:
        is_given_up = _is_given_up(one, is_alone=is_alone)
        may_again = not is_given_up or bool(one.request.undoes)
        rows.append(lost_step(one, now, may_again=may_again))
        if may_again and (is_given_up or one.lost_attempts + 1 >= _NEVER_ALONE * _losses_max(one)):
            failure = failure or _not_done(one)
    return Losses(rows=tuple(rows), failure=failure)


def _is_given_up(one: Try, *, is_alone: bool) -> bool:
    """Whether a step that was lost once more is not tried again: it may be tried once, or was alone."""
    most = _losses_max(one)
    return one.lost_attempts + 1 >= most and (is_alone or most == 1)


def _losses_max(one: Try) -> int:
    step = cast("Step[..., object]", one.request.definition)
    attempts = policy_from(step.retry or Retry()).attempts
    # What takes back a step is a must: it is tried again whatever it is allowed.
    return max(attempts, LOSSES_MIN) if one.request.undoes else losses_max(attempts)


def _not_done(one: Try) -> Failure:
    step, times = one.request.step, one.lost_attempts + 1
    what = f"what takes back a step, {step!r}, was" if one.request.undoes else f"step {step!r} was"
    message = f"{what} lost with its worker {times} times; `run resume` has it tried again"
    return Failure(code=CompensationError.code if one.request.undoes else LOST_WORKER, message=message)


def begins_again(
    waiting: Sequence[Try], under_way: Collection[Try], *, turn: int, waited: Micros
) -> list[Try]:
    """Return which of the steps that were lost begin again now, beside those of them that are under way.

    What was lost often runs beside no other that was lost, unless those have been under way for so long that they may
    wait for it: `waited` is since when none has begun. `turn` is another number each time that the function is driven.
    """
    suspects = [one for one in waiting if one.lost_attempts >= SUSPECT_AFTER]
    others = [one for one in waiting if one.lost_attempts < SUSPECT_AFTER]
    if others and not any(one.lost_attempts >= SUSPECT_AFTER for one in under_way):
        return others
    if not waiting or (under_way and waited < ALONE_FOR):
        return []
    whose = suspects or others
    return [whose[turn % len(whose)]]


def begun_again(one: Try, now: Micros) -> Recorded:
    """Return what is recorded before a step begins again that was lost: or else nobody knows whether it has."""
    return Recorded(
        type=STEP_STARTED,
        call=one.request.call,
        step=one.request.step,
        site=one.request.site,
        attempt=one.number,
        started_at=now,
        undoes=one.request.undoes or None,
    )
