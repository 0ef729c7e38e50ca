"""."""

from typing import ClassVar, Literal

from holdfast.kernel.commands.command import OperatorCommand
from holdfast.kernel.commands.follow_ups import WithFollowUp
from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class RunRemoved:
    """Reply to `RunRemove`. Deleting the blobs is up to the caller."""

    removed: bool
    """Whether the run was removed; False: it has a newer generation than the command named."""
    runs: tuple[str, ...] = ()
    """Keys of all its generations. The names of their blobs begin with them."""
    inputs: tuple[str, ...] = ()
    """Blobs that held the inputs of its generations."""


@frozen(kw_only=True)
class RunRemove(OperatorCommand[RunRemoved]):
    """Command to delete an ended run with all its generations, annotations and attempt output.

    Errors: RunNotFoundError; RemoveRefusedError if the run has not ended, a result or event is not delivered yet, or
    its external work is not cancelled yet.
    """

    type: ClassVar[Literal["run.remove"]] = "run.remove"
    is_kept: ClassVar[bool] = False
    run_id: str
    generation: int | None = None
    """Do nothing unless this is the newest generation."""


@frozen(kw_only=True)
class RunRepaired(WithFollowUp):
    """Reply to `RunRepair`."""

    repaired: tuple[str, ...]
    """Ids of the runs that were repaired."""
    checked: int
    """How many runs were checked."""
    next: str | None
    """The `after` of the next command; None: start over."""


@frozen(kw_only=True)
class RunRepair(OperatorCommand[RunRepaired]):
    """Command to find active runs that lack jobs, and add these. Only faults of a store make it necessary.

    Errors: UnknownPlanError if the plan of `run` is not stored.
    """

    type: ClassVar[Literal["run.repair"]] = "run.repair"
    after: str = ""
    """Run key to continue from: `next` of the previous reply."""
    limit: int = 500
    """Most runs that are checked."""
    run: str | None = None
    """Key of the only run to repair. It is compared with its whole history, and loses jobs that it does not need."""
    redeliver: bool = False
    """With `run`, if it has ended: deliver its result to its parent once more, as the delivery may have been lost."""
