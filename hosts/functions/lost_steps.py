"""Steps that were running when the worker of their function was lost: which were, and when they start again.

Whether a lost step is retried is decided in `kernel/rules/retries.py`.

A step that kills its worker takes down everything beside it. To find it, lost steps of one function are retried like
lost jobs: those that were lost often, one at a time (docs/decisions/0059).
"""

from collections.abc import Collection, Sequence
from typing import Final

from holdfast.hosts.execution.bodies import Body
from holdfast.hosts.functions.pending_calls import StepAttempt
from holdfast.hosts.functions.step_runner import lost_step
from holdfast.kernel.commands import EventAppend, StepFail
from holdfast.kernel.history import events
from holdfast.ports.records.job import SUSPECT_AFTER
from holdfast.ports.records.values import Micros

ALONE_FOR: Final[Micros] = 60_000_000
"""Microseconds that a step lost often keeps others like it waiting. After that they may depend on each other."""


def lost_steps(tries: Sequence[StepAttempt], body: Body, *, was_suspect: bool) -> list[StepFail]:
    """Return the records of the steps that may have been running: their progress is unknown.

    `was_suspect` means that their job ran beside no other job that was ever lost. A step that was lost before and has
    not been started again was not running.
    """
    under_way = [one for one in tries if not one.lost_attempts or one.is_restarted]
    is_alone = was_suspect and sum(one.lost_attempts > 0 for one in under_way) == 1
    return [lost_step(one, body, is_alone=is_alone) for one in under_way]


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
