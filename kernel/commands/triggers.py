"""Commands on triggers and their replies: store, fire, pause, resume, remove."""

from typing import ClassVar, Final, Literal

from holdfast.kernel.commands.command import Command, OperatorCommand
from holdfast.kernel.commands.follow_ups import WithFollowUp
from holdfast.kernel.commands.runs import RunCreate
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen

TRIGGER_NAME_MAX: Final = 100
"""Maximum length of the name of a trigger. The id of a run has the name of the topic and a number, too."""


@frozen(kw_only=True)
class TriggerStored:
    """Reply to `TriggerPut`, `TriggerPause` and `TriggerResume`."""

    trigger: str
    created: bool = False
    """Whether the command created the trigger."""
    changed: bool
    """Whether the command changed anything."""
    next_number: int
    """The number of the next message that it handles."""


@frozen(kw_only=True)
class TriggerPut(OperatorCommand[TriggerStored]):
    """Command to create or update a trigger.

    A trigger that is updated goes on where it is. With another topic, selection or `since`, it begins anew. A paused
    trigger stays paused. Errors: UnknownWorkflowError; InvalidCommandError for a field that is out of range.
    """

    type: ClassVar[Literal["trigger.put"]] = "trigger.put"
    trigger: str
    """Name, of 1 to 100 characters."""
    topic: str
    """The name of the topic."""
    selection: str = "{}"
    """JSON text of an object: at most four texts that a message must have."""
    start: RunCreate
    """The start of each run, without an id, a start time, an idempotency key and an input."""
    since: Micros | None = None
    """It handles messages that were published from this instant on, as far as the topic has them; None: from now on."""
    declared: str | None = None
    """Fingerprint of the declaration in code. An update with the stored one changes nothing; one without a fingerprint
    keeps it, so the declaration does not undo it."""


@frozen(kw_only=True)
class TriggerFired(WithFollowUp):
    """Reply to `TriggerFire`."""

    handled: bool
    """Whether the trigger has moved on. If not, it had been moved, updated, paused or removed before, or is held up."""
    run_id: str | None = None
    """Id of the run that was started or joined."""
    refused: str | None = None
    """Why no run was started for the message."""
    problem: str | None = None
    """Why the trigger is held up at the message."""


@frozen(kw_only=True)
class TriggerFire(Command[TriggerFired]):
    """Command to start the run of a message, and to move the trigger past that message. It can be repeated.

    The run and the progress are stored in one transaction. The host that sends it has read the messages from `expected`
    on, and passed over those that the trigger does not select.
    """

    type: ClassVar[Literal["trigger.fire"]] = "trigger.fire"
    trigger: str
    expected: int
    """The number that the trigger continues from. If it has moved on since, the command does nothing."""
    digest: str | None = None
    """Digest of the trigger as the host has read it. If it was updated since, the command does nothing. None: it is not
    compared, as in commands of hosts that send none."""
    number: int | None = None
    """The number of the message; None if none of the messages is selected."""
    next: int
    """The number that the trigger continues from after this."""
    start: RunCreate | None = None
    """The start of the run, without its id; None if no run can be started for the message."""
    refused: str = ""
    """Why no run can be started for the message, such as a value of a wrong type."""


@frozen(kw_only=True)
class TriggerPause(OperatorCommand[TriggerStored]):
    """Command to pause a trigger: it starts nothing until it is resumed. Errors: TriggerNotFoundError."""

    type: ClassVar[Literal["trigger.pause"]] = "trigger.pause"
    trigger: str
    reason: str = ""
    """Why, for people."""


@frozen(kw_only=True)
class TriggerResume(OperatorCommand[TriggerStored]):
    """Command to resume a trigger that is paused. Errors: TriggerNotFoundError."""

    type: ClassVar[Literal["trigger.resume"]] = "trigger.resume"
    trigger: str
    skip: bool = False
    """Whether the messages that were numbered during the pause are passed over; else each starts its run."""


@frozen(kw_only=True)
class TriggerRemoved:
    """Reply to `TriggerRemove`."""

    removed: bool
    """Whether the trigger existed."""


@frozen(kw_only=True)
class TriggerRemove(OperatorCommand[TriggerRemoved]):
    """Command to remove a trigger. Its runs stay."""

    type: ClassVar[Literal["trigger.remove"]] = "trigger.remove"
    is_kept: ClassVar[bool] = False
    trigger: str
    declared: str | None = None
    """Do nothing unless this is the stored fingerprint of its declaration."""
