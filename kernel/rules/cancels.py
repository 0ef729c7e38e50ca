"""The rule for `run.cancel`: a run ends, unless its function has to clean up first."""

from holdfast.kernel.commands import (
    RunCancel,
    RunStopped,
)
from holdfast.kernel.history import events
from holdfast.kernel.rules.runs import end_run, is_older, named_run
from holdfast.kernel.rules.signals import (
    request_cancel,
)
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.clock import Ids
from holdfast.ports.records.run import TERMINAL, RunName
from holdfast.ports.records.values import Micros


def reads_of_cancel(command: RunCancel) -> Reads:
    """Lock the newest generation of the run, and the job that drives it if it is a durable function."""
    return Reads(names=(RunName(command.namespace, command.run_id),), drivers=True)


def decide_cancel(state: State, command: RunCancel, now: Micros, _: Ids) -> Decision[RunStopped]:
    """End the run, or let its function clean up first. An ended run stays unchanged. Raises RunNotFoundError."""
    return cancel_run(state, command, now)


def cancel_run(
    state: State, command: RunCancel, now: Micros, *, superseded_by: str | None = None
) -> Decision[RunStopped]:
    """Carry out `decide_cancel`. The history names the run that takes the place of this one, if one does."""
    run = named_run(state, command)
    has_code_under_way = run.status not in TERMINAL and run.is_admitted
    if has_code_under_way and not is_older(run, command) and state.plan_of(run).function is not None:
        return request_cancel(state, run, command.reason, now, superseded_by=superseded_by)
    event = events.RunCancelled(reason=command.reason, superseded_by=superseded_by)
    return end_run(state, command, event, now)
