"""."""

from typing import ClassVar, Literal

from holdfast.kernel.commands.command import OperatorCommand
from holdfast.kernel.commands.follow_ups import WithFollowUp
from holdfast.ports.records.run import RunStatus
from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class RunRerun(WithFollowUp):
    """Reply to `RunRerunFrom`: the newest generation of the run."""

    run_id: str
    run: str
    """Key of the generation."""
    generation: int
    status: RunStatus
    started: bool
    """Whether the command created the generation."""
    rerun_of: int | None = None
    """Number of the generation that it reruns."""
    stage: str | None = None
    """Stage, or call of a durable function, at which it starts; None: from the start."""
    runs: tuple[str, ...] = ()
    """Stages that it runs, in the order of the plan."""
    keeps: tuple[str, ...] = ()
    """Stages whose outputs it keeps from earlier generations, in the order of the plan."""
    terminated: bool = False
    """Whether the previous generation was active and was terminated."""
    row: int | None = None
    """Fork of a durable function: number of the first history row that is not kept."""
    ended: tuple[str, ...] = ()
    """Ids of the runs of its concurrency key that were ended to make way for it, oldest first."""


@frozen(kw_only=True)
class RunRerunFrom(OperatorCommand[RunRerun]):
    """Command to rerun a run from a stage, call or history row, as a new generation with the same id.

    Outputs of earlier stages, or the history rows before the point, are kept. Without `stage` and `row` the run
    continues where it failed or stopped; a completed run starts over. An active generation is terminated. The new one
    waits for a slot if the run has a concurrency key, and gets the run's full time until its deadline.

    A rerun of a run that has ended obeys its bound as a start does, except that no other run is returned instead.

    Errors: RunNotFoundError, RerunRefusedError, UnknownWorkflowError, ConcurrencyFullError; InvalidCommandError if both
    points are given.
    """

    type: ClassVar[Literal["run.rerun_from"]] = "run.rerun_from"
    run_id: str
    stage: str | None = None
    """Stage; of a durable function, a step by name, `charge#2` for its second call, or a call such as `3.1`."""
    version: str | None = None
    """Version of the workflow to run; None: the same."""
    generation: int | None = None
    """Do nothing unless this is the newest generation."""
    reason: str = ""
    """Why, for people."""
    row: int | None = None
    """Durable functions only: number of the first history row that is not kept."""
