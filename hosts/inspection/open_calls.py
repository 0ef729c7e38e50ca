"""The open calls of a durable function: what it waits for, found by replaying its history in this process.

The store does not have this: a parked function is a coroutine in a worker's memory, and its job only has the time of
the next wake-up.
"""

from typing import Final, cast

import attrs

from holdfast.hosts.execution.off_loop import run_off_loop
from holdfast.hosts.execution.step_policies import StepPolicies
from holdfast.hosts.functions.history_document import read_history
from holdfast.hosts.functions.pending_calls import StepAttempt
from holdfast.hosts.functions.replay import FunctionReplay
from holdfast.hosts.functions.replay_check import replayed
from holdfast.hosts.wiring.interceptors import FunctionRefusedError, entering
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.authoring.functions import Workflow
from holdfast.kernel.authoring.steps import Step
from holdfast.kernel.functions.machine import FunctionMachine
from holdfast.kernel.pipelines.plan import stage_of
from holdfast.ports.errors import HoldfastError
from holdfast.ports.records.run import ACTIVE, Run
from holdfast.ports.records.values import Micros

ROWS_MAX: Final = 10_000
"""The longest history that is replayed for this, in rows; it takes some tenths of a second."""


@attrs.frozen(kw_only=True)
class OpenStep:
    """A step that the worker driving the function runs, or will retry."""

    call: str
    """The call, as the history names it: `2`, `3.1`."""
    step: str
    """The name of the step."""
    site: str
    """Where in the code it was called, as `<file>:<line> in <function>`."""
    attempt: int
    """The number of the current attempt, from 1."""
    attempts: int
    """The maximum number of attempts, lost ones included."""
    since: Micros
    """The latest instant at which the attempt can have started, in microseconds.

    The history does not record the start of a first attempt; it is not after the last row.
    """
    retry_at: Micros | None = None
    """When the attempt is due, if that is later than now."""
    lost_attempts: int = 0
    """How many attempts were lost with their workers."""


@attrs.frozen(kw_only=True)
class OpenCalls:
    """What a durable function waits for.

    Attributes:
        steps: Steps that its worker runs or will retry.
        has_timers: Whether it waits for a timer.
        channels: The names of the channels that it receives from.
        children: The ids of the child runs that it waits for.
        replies: The updates of other runs whose replies it waits for: the name of each, and the id of its run.
        sites: Where in the code its tasks wait, as `<file>:<line> in <function>`.
    """

    steps: tuple[OpenStep, ...] = ()
    has_timers: bool = False
    channels: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    replies: tuple[tuple[str, str], ...] = ()
    sites: tuple[str, ...] = ()


def open_calls_of(core: Core, run: Run, now: Micros) -> OpenCalls | None:
    """Return what the function of an active run waits for at `now`; None if unknown.

    Unknown are pipelines, code that this process lacks or that does not fit the history, and histories of more than
    `ROWS_MAX` rows.
    """
    workflow = core.registry.find_workflow(run.workflow, run.version)
    if not isinstance(workflow, Workflow) or run.status not in ACTIVE or run.last_row > ROWS_MAX:
        return None
    try:
        history, plan = read_history(core, run), core.inputs.plan(run.plan)
        policies = StepPolicies(stage_of(plan.node(plan.function or "")).steps)

        enter = entering(core.interceptors, run.namespace, history.facts)

        def look() -> OpenCalls | None:
            with replayed(history, workflow, enter) as (machine, drive):
                return None if drive.is_over else _waits(machine, drive, policies, now, history.rows[-1].at)

        return run_off_loop(look)
    except (HoldfastError, FunctionRefusedError):
        return None


def _waits(
    machine: FunctionMachine, drive: FunctionReplay, policies: StepPolicies, now: Micros, last_at: Micros
) -> OpenCalls:
    tries = sorted(drive.tries(), key=lambda one: one.at or 0)
    return OpenCalls(
        steps=tuple(_open_step(one, policies, now, last_at) for one in tries),
        has_timers=machine.has_timers,
        channels=machine.awaited_channels,
        children=machine.awaited_children,
        replies=tuple((one.update, one.run) for one in machine.awaited_replies),
        sites=tuple(machine.waits_at),
    )


def _open_step(one: StepAttempt, policies: StepPolicies, now: Micros, last_at: Micros) -> OpenStep:
    step = cast("Step[..., object]", one.request.definition)
    return OpenStep(
        call=one.request.call,
        step=one.request.step,
        site=one.request.site,
        attempt=one.number,
        attempts=policies.usual(step).attempts + one.lost_attempts,
        lost_attempts=one.lost_attempts,
        since=last_at if one.at is None else one.at,
        retry_at=one.at if one.at is not None and one.at > now else None,
    )
