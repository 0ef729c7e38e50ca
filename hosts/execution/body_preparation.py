"""Preparation of the bodies of attempts. A run with rows that cannot be read is blocked; the other attempts proceed."""

from collections.abc import Sequence
from typing import Final

from holdfast.hosts.execution.bodies import Bodies, Body
from holdfast.hosts.wiring.input_loader import NOTHING_PRELOADED, Preloaded
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.commands import Attempt, JobRelease
from holdfast.kernel.dispatch.unreadable_runs import unreadable_of
from holdfast.ports.errors import UnknownPlanError, UnreadableRowError
from holdfast.ports.records.job import JobKind
from holdfast.ports.records.values import Micros
from holdfast.ports.unreadable import PARSE_ERRORS

UNKNOWN_CODE_DELAY: Final[Micros] = 5_000_000
"""Microseconds until a job that was released for lack of code can be claimed again."""


def prepare(
    core: Core, bodies: Bodies, attempts: Sequence[Attempt], known: Preloaded = NOTHING_PRELOADED
) -> tuple[list[Body], list[Attempt]]:
    """Return the bodies of attempts, and the attempts for which this process has no code.

    Attempts of runs that were blocked here are in neither list.
    """
    try:
        ready, without_code = bodies.prepare(attempts, known)
    except (UnreadableRowError, UnknownPlanError, *PARSE_ERRORS) as error:
        if len(attempts) == 1:
            _block(core, attempts[0], error)
            return [], []
    else:
        return ready, [attempt for attempt in without_code if _may_have_code(core, attempt)]
    prepared: list[Body] = []
    unknown: list[Attempt] = []
    for attempt in attempts:
        some, others = prepare(core, bodies, (attempt,), known)
        prepared += some
        unknown += others
    return prepared, unknown


def _may_have_code(core: Core, attempt: Attempt) -> bool:
    """Return whether another process may have the code of an attempt. Blocks the run if its plan lacks the stage.

    Plans do not list queued steps and cancellations of external work: their code may come with a later deploy.
    """
    if attempt.kind in (JobKind.STEP, JobKind.CANCEL) or not unreadable_of(
        core.stores.persistence, (attempt.run,)
    ):
        return True
    _block(core, attempt, None)
    return False


def _block(core: Core, attempt: Attempt, error: Exception | None) -> None:
    core.kernel.block_unreadable(attempt.run, error)
    release = JobRelease(namespace=core.namespace, job=attempt.job, epoch=attempt.epoch)
    core.kernel.dispatch_many((release,))
