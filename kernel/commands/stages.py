"""Commands on suspended stages, and their replies."""

from typing import ClassVar, Literal

from holdfast.kernel.commands.command import Command
from holdfast.kernel.commands.jobs import JobsWoken
from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class StagePollSuspended(Command[JobsWoken]):
    """Queue the checks of suspended stages that are due. job.wake_due does so too, with all that sleeps."""

    type: ClassVar[Literal["stage.poll_suspended"]] = "stage.poll_suspended"
    limit: int = 500


@frozen(kw_only=True)
class StagesWoken:
    """How many stages, or items of a map, are checked at once now.

    `early` are those that were not suspended yet: they are checked as soon as they are.
    """

    woken: int
    early: int = 0


@frozen(kw_only=True)
class StageWake(Command[StagesWoken]):
    """Check suspended stages now: those of the external work `key`, or the stage `stage` of run `run_id`.

    Of a map that is one `item`, or all. NothingToWakeError if no stage of that name or key is suspended or under way.
    """

    type: ClassVar[Literal["stage.wake"]] = "stage.wake"
    key: str | None = None
    run_id: str | None = None
    stage: str | None = None
    item: int | None = None
