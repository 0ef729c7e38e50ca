"""The rule for removing a run with all its generations, once nothing of it is left to deliver or cancel."""

from holdfast.kernel.commands import RunRemove, RunRemoved
from holdfast.kernel.rules.runs import is_older, named_run
from holdfast.kernel.search_results import RunRemains
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import DeleteRun
from holdfast.ports.clock import Ids
from holdfast.ports.errors import RemoveRefusedError
from holdfast.ports.records.job import JobKind
from holdfast.ports.records.run import TERMINAL, Run, RunName
from holdfast.ports.records.values import Micros


def reads_of_remove(command: RunRemove) -> Reads:
    """Lock the newest generation of the run; read the input blobs, deliveries and streams of all generations."""
    return Reads(names=(RunName(command.namespace, command.run_id),), run_remains=True)


def decide_remove(state: State, command: RunRemove, now: Micros, _: Ids) -> Decision[RunRemoved]:
    """Delete the run's rows. Raises RunNotFoundError, RemoveRefusedError."""
    del now
    run = named_run(state, command)
    if is_older(run, command):
        return Decision(RunRemoved(removed=False))
    left = state.run_remains[run.name]
    _check(run, left, state)
    changes = tuple(
        DeleteRun(key, tuple(stream.key for stream in left.streams if stream.run == key)) for key in left.runs
    )
    return Decision(RunRemoved(removed=True, runs=left.runs, inputs=left.inputs), changes)


def _check(run: Run, left: RunRemains, state: State) -> None:
    """Raise RemoveRefusedError if the run is active, or has undelivered results or events, or work to cancel."""
    if run.status not in TERMINAL:
        raise RemoveRefusedError(run.id, f"it is {run.status}; only runs that have ended can be removed")
    if run.key not in left.runs:
        raise RemoveRefusedError(run.id, "it was run again by a command of the same batch")
    if left.has_deliveries or any(state.tables.jobs.get(key) for key in left.runs):
        raise RemoveRefusedError(run.id, _why_pending(left, state))
    late = sorted(
        {*left.lagging_sinks, *(stream.sink for stream in left.streams if stream.delivered < stream.head_row)}
    )
    if late:
        names = ", ".join(repr(left.sinks.get(sink, sink)) for sink in late)
        raise RemoveRefusedError(
            run.id,
            f"sinks have not received all its events: {names}; deliver or replay them, or remove the sink first",
        )


def _why_pending(left: RunRemains, state: State) -> str:
    jobs = (job for key in left.runs for job in state.tables.jobs.get(key, {}).values())
    stages = sorted({job.node for job in jobs if job.kind is JobKind.CANCEL})
    if stages:
        return f"its external work must still be cancelled, of {', '.join(stages)}"
    return "its end has not been delivered yet; workers deliver it within seconds"
