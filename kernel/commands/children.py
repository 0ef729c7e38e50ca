"""."""

from typing import ClassVar, Literal

from holdfast.kernel.commands.command import Command
from holdfast.kernel.commands.follow_ups import WithFollowUp
from holdfast.kernel.commands.outcomes import Failure
from holdfast.ports.records.values import Payload
from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class RunDelivered(WithFollowUp):
    """Reply to `RunDeliver`."""

    status: Literal["delivered", "closed"]
    """`closed`: no job waits for the result any more, or it was delivered before."""


@frozen(kw_only=True)
class RunDeliver(Command[RunDelivered]):
    """Command to deliver the end of a child run to its parent, and delete the delivery job. Repeating it is harmless.

    Errors: InvalidCommandError if the job delivers to another parent, or the output of a completed run is missing.
    """

    type: ClassVar[Literal["run.deliver"]] = "run.deliver"
    job: str
    """Id of the delivery job of the ended run."""
    parent: str | None = None
    """Id of the parent's waiting job; None: the command reports that the ended run's child runs have been closed."""
    output: Payload | None = None
    """Output of the child run, if it completed."""
    failure: Failure | None = None
    """Why the output cannot be read, a missing blob for example. The parent's stage or call fails with it."""


@frozen(kw_only=True)
class UpdateDeliver(Command[RunDelivered]):
    """Command to deliver the reply to an update to the run that sent it, and delete the delivery job.

    The newest generation of that run gets it, if it still waits for this reply. Repeating the command is harmless.

    Errors: InvalidCommandError if the job delivers to another run, or the output of a completed update is missing.
    """

    type: ClassVar[Literal["update.deliver"]] = "update.deliver"
    job: str
    """Id of the delivery job of the run that got the update."""
    run_id: str
    """Id of the run that sent the update."""
    output: Payload | None = None
    """Result of the update, if it is completed."""
    failure: Failure | None = None
    """Why the result cannot be read, a missing blob for example. The reply is then lost."""
