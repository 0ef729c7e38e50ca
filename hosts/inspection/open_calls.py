"""What the function of a run waits for: its open calls, found by a replay of its history in this process.

The store does not have this: a parked function is a coroutine in the memory of a worker, and its job says only when it
is woken. Whoever has the code can tell, for a replay comes to the same place.
"""

from typing import Final

import attrs

from holdfast.hosts.execution.off_loop import drive_away
from holdfast.hosts.functions.history_document import read_history, text_of
from holdfast.hosts.functions.pending_calls import Try
from holdfast.hosts.functions.replay import Drive
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipeline_builder import policy_from
from holdfast.kernel.authoring.steps import Step
from holdfast.kernel.functions.machine import FunctionMachine
from holdfast.ports.errors import HoldfastError
from holdfast.ports.records import ACTIVE, Micros, Run

ROWS_MAX: Final = 10_000
"""How many rows a history may have that is replayed for this: some tenths of a second."""


@attrs.frozen(kw_only=True)
class OpenStep:
    """A step that the function waits for, and that is done by the worker which drives it.

    `attempt` is the number of its try, of at most `attempts`. `since` is when that try began, or later: no row says
    it of a first try, which began no later than the last row of the history. `retry_at` is when the try is due, if it
    is not yet. `lost_attempts` of the tries before were lost with their workers; they use up none of the `attempts`.
    """

    call: str
    step: str
    site: str
    attempt: int
    attempts: int
    since: Micros
    retry_at: Micros | None = None
    lost_attempts: int = 0


@attrs.frozen(kw_only=True)
class Waits:
    """What a function waits for.

    Attributes:
        steps: The steps that its worker does, or is to try again.
        has_timers: Whether it waits for a time, too.
        channels: The names of the channels from which it awaits messages.
        children: The ids of the runs whose ends it awaits.
        sites: Where in the code its tasks wait, as `<file>:<line> in <function>`.
    """

    steps: tuple[OpenStep, ...] = ()
    has_timers: bool = False
    channels: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()


def waits_of(core: Core, run: Run, now: Micros) -> Waits | None:
    """Return what the function of an active run waits for at `now`; None where that can't be found.

    That is so of a pipeline, of code that this process lacks or that does not fit the history, and of a history of more
    than `ROWS_MAX` rows.
    """
    workflow = core.registry.pipeline(run.workflow, run.version)
    if not isinstance(workflow, Workflow) or run.status not in ACTIVE or run.last_row > ROWS_MAX:
        return None
    try:
        history = read_history(core, run)

        def look() -> Waits | None:
            machine = workflow.machine(history.input, began_at=history.began_at, seed=history.key)
            drive = Drive(machine, text_of)
            try:
                drive.open(history.rows)
                return None if drive.is_over else _waits(machine, drive, now, history.rows[-1].at)
            finally:
                drive.close()

        return drive_away(look)
    except HoldfastError:
        return None


def _waits(machine: FunctionMachine, drive: Drive, now: Micros, last_at: Micros) -> Waits:
    tries = sorted(drive.tries(), key=lambda one: one.at or 0)
    return Waits(
        steps=tuple(_open_step(one, now, last_at) for one in tries),
        has_timers=machine.has_timers,
        channels=machine.awaited_channels,
        children=machine.awaited_children,
        sites=tuple(machine.waits_at),
    )


def _open_step(one: Try, now: Micros, last_at: Micros) -> OpenStep:
    definition = one.request.definition
    retry = definition.retry if isinstance(definition, Step) else None
    return OpenStep(
        call=one.request.call,
        step=one.request.step,
        site=one.request.site,
        attempt=one.number,
        attempts=policy_from(retry or Retry()).attempts + one.lost_attempts,
        lost_attempts=one.lost_attempts,
        since=last_at if one.at is None else one.at,
        retry_at=one.at if one.at is not None and one.at > now else None,
    )
