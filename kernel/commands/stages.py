"""Commands on suspended stages and their replies."""

from typing import ClassVar, Literal

from holdfast.kernel.commands.command import Command, OperatorCommand
from holdfast.kernel.commands.jobs import JobsWoken
from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class StagePollSuspended(Command[JobsWoken]):
    """Command to queue checks of external work that are due. `JobWakeDue` does so too, with all sleeping jobs."""

    type: ClassVar[Literal["stage.poll_suspended"]] = "stage.poll_suspended"
    limit: int = 500
    """Most checks that are queued."""


@frozen(kw_only=True)
class StagesWoken:
    """Reply to `StageWake`, in stages and map items."""

    woken: int
    """How many are checked at once."""
    early: int = 0
    """How many have a body or check that still runs. They are checked as soon as it ends."""


@frozen(kw_only=True)
class StageWake(OperatorCommand[StagesWoken]):
    """Command to check external work now: that of a `key`, or that of a `stage` of a run.

    Errors: NothingToWakeError if no such stage is suspended or running; InvalidCommandError.
    """

    type: ClassVar[Literal["stage.wake"]] = "stage.wake"
    is_kept: ClassVar[bool] = False
    key: str | None = None
    """Key of the external work. Excludes the other fields."""
    run_id: str | None = None
    """Id of the run. Goes with `stage`."""
    stage: str | None = None
    item: int | None = None
    """Index of the map item; None: all items."""
