"""Requests of a durable function and the history events that it receives: the interface of its machine."""

from collections.abc import Mapping
from contextvars import Context
from typing import Literal, TypeAlias

import attrs

from holdfast.kernel.history.raised import Raised
from holdfast.ports.records.run import NO_OPTIONS, GivenOptions
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen


@frozen
class StepRequest:
    """A request to run a step."""

    call: str
    """The name of this call in its run, the same in every replay: `3.1`."""
    step: str
    """The name of the step."""
    arguments: str
    """The arguments as JSON text."""
    definition: object = attrs.field(default=None, eq=False, repr=False)
    """The step object that was called, which the host runs."""
    site: str = ""
    """Where the call was made: `<file>:<line>`."""
    undoes: str = ""
    """The call that this compensation undoes. A compensation must not fail for good."""
    queue: str | None = None
    """The queue of the step's own job; None if the step runs where its function is driven."""
    context: Context | None = attrs.field(default=None, eq=False, repr=False)
    """The context variables that the function has set; None if it has set none."""

    @property
    def what(self) -> str:
        """A description of the call, for error messages."""
        return f"step {self.step!r}"


@frozen(kw_only=True)
class TimerRequest:
    """A request for a timer that fires at `at`. `call` and `site` as in StepRequest."""

    call: str
    at: Micros
    site: str = ""

    @property
    def what(self) -> str:
        """A description of the call, for error messages."""
        return "a timer"


@frozen(kw_only=True)
class ChildRequest:
    """A request to start a child run and wait for its end. `call` and `site` as in StepRequest."""

    call: str
    workflow: str
    version: str
    input: str
    """The input as JSON text."""
    run: str | None = None
    """The id of the run, if the author chose one."""
    parent_end: str = "cancel"
    """The close policy: what happens to the child run if this run ends first."""
    options: GivenOptions = NO_OPTIONS
    attributes_taken: Mapping[str, str] | None = None
    """The attributes that its workflow takes from the input."""
    site: str = ""

    @property
    def what(self) -> str:
        """A description of the call, for error messages."""
        return f"a run of {self.workflow!r}"


@frozen(kw_only=True)
class NotifyRequest:
    """A request to send a message to a run, or to cancel it. `call` and `site` as in StepRequest."""

    call: str
    run: str
    channel: str | None = None
    """The channel of the message; None to cancel the run."""
    text: str = ""
    """The message as JSON text, or the reason for the cancellation."""
    site: str = ""
    checked: bool = False
    """As in SignalReceived."""

    @property
    def what(self) -> str:
        """A description of the call, for error messages."""
        return _notification_text(self.run, is_cancel=self.channel is None)


@frozen(kw_only=True)
class UpdateRequest:
    """A request to send an update to a run. `call` and `site` as in StepRequest."""

    call: str
    run: str
    update: str
    """The name of the update method, such as `Board.move_to`."""
    text: str
    """The arguments by name, as JSON text."""
    site: str = ""
    checked: bool = False
    """As in UpdateReceived."""

    @property
    def what(self) -> str:
        """A description of the call, for error messages."""
        return _sent_update_text(self.run, self.update)


@frozen(kw_only=True)
class CloseRequest:
    """A request to close a channel that has no unread messages. `call` and `site` as in StepRequest."""

    call: str
    channel: str
    site: str = ""

    @property
    def what(self) -> str:
        """A description of the call, for error messages."""
        return f"the close of channel {self.channel!r}"


@frozen(kw_only=True)
class PublishRequest:
    """A request to publish a message to a topic. `call` and `site` as in StepRequest."""

    call: str
    topic: str
    text: str
    """The message as JSON text."""
    attributes: Mapping[str, str]
    """The texts by which subscriptions select it."""
    id: str | None
    """The id of the message, if the author chose one."""
    keep: Micros
    """How long it is kept for later subscriptions."""
    keep_last: int | None = None
    """How many messages of the topic, up to this one, are kept for later subscriptions at most. None: any number."""
    site: str = ""

    @property
    def what(self) -> str:
        """A description of the call, for error messages."""
        return f"a message to topic {self.topic!r}"


@frozen(kw_only=True)
class SubscribeRequest:
    """A request to subscribe to a topic, or to end a subscription. `call` and `site` as in StepRequest."""

    call: str
    topic: str
    channel: str
    """The channel in which the messages arrive."""
    selection: Mapping[str, str] | None = None
    """The texts that a message must have; None to end the subscription."""
    group: str | None = None
    """The group whose next message it waits for; None: it gets every selected message."""
    since: Micros | None = None
    """The instant from which on messages were published that it gets, too; None: that of the generation's start."""
    site: str = ""

    @property
    def what(self) -> str:
        """A description of the call, for error messages."""
        return _subscription_text(self.channel, is_end=self.selection is None)


Request: TypeAlias = (
    StepRequest
    | TimerRequest
    | ChildRequest
    | NotifyRequest
    | UpdateRequest
    | CloseRequest
    | PublishRequest
    | SubscribeRequest
)


RecordedRequest: TypeAlias = (
    ChildRequest | NotifyRequest | UpdateRequest | CloseRequest | PublishRequest | SubscribeRequest
)
"""A request that is carried out by the command that records it."""


@frozen(kw_only=True)
class _StepEvent:
    call: str
    step: str
    given: str | None = None
    """The step's arguments as JSON text, if its compensation needs them."""

    @property
    def what(self) -> str:
        """A description of the call, for error messages."""
        return f"step {self.step!r}"


@frozen(kw_only=True)
class StepQueued(_StepEvent):
    """A step was queued as a job of its own."""


@frozen(kw_only=True)
class StepCompleted(_StepEvent):
    """A step completed."""

    output: str
    """The result as JSON text."""


@frozen(kw_only=True)
class StepFailed(_StepEvent):
    """A step failed for good."""

    error: "Raised"


@frozen(kw_only=True)
class TimerFired:
    """A timer fired."""

    call: str

    @property
    def what(self) -> str:
        """A description of the call, for error messages."""
        return "a timer"


@frozen(kw_only=True)
class ChildStarted:
    """A child run was started."""

    call: str
    workflow: str
    run: str
    """The id of the run."""
    error: str | None = None
    """Why the run could not be started; None if it was."""
    code: str = ""
    """The code of the error with which it was refused."""

    @property
    def what(self) -> str:
        """A description of the call, for error messages."""
        return f"a run of {self.workflow!r}"


@frozen(kw_only=True)
class RunNotified:
    """A message was sent to a run, or the run was cancelled."""

    call: str
    run: str
    is_cancel: bool = False
    error: str | None = None
    """Why the run could not be reached; None if it was."""
    closed: str | None = None
    """The channel that the run has closed, if that is the error."""

    @property
    def what(self) -> str:
        """A description of the call, for error messages."""
        return _notification_text(self.run, is_cancel=self.is_cancel)


@frozen(kw_only=True)
class UpdateSent:
    """An update was sent to a run."""

    call: str
    run: str
    update: str
    error: str | None = None
    """Why it could not be sent; None if it was."""
    code: str | None = None
    """The code of that error."""

    @property
    def what(self) -> str:
        """A description of the call, for error messages."""
        return _sent_update_text(self.run, self.update)


@frozen(kw_only=True)
class ChannelClosed:
    """A channel was closed: it delivers no more messages."""

    call: str
    channel: str

    @property
    def what(self) -> str:
        """A description of the call, for error messages."""
        return f"the close of channel {self.channel!r}"


@frozen(kw_only=True)
class MessagePublished:
    """A message was published to a topic."""

    call: str
    topic: str

    @property
    def what(self) -> str:
        """A description of the call, for error messages."""
        return f"a message to topic {self.topic!r}"


@frozen(kw_only=True)
class TopicSubscribed:
    """A subscription to a topic began or ended."""

    call: str
    channel: str
    is_end: bool = False

    @property
    def what(self) -> str:
        """A description of the call, for error messages."""
        return _subscription_text(self.channel, is_end=self.is_end)


@frozen(kw_only=True)
class UpdateReplied:
    """The reply to an update that the function has sent: exactly one of output, error and `lost`."""

    call: str
    output: str | None = None
    """The result as JSON text."""
    error: "Raised | None" = None
    """What the update raised, or why it was rejected."""
    is_rejected: bool = False
    lost: str | None = None
    """Why there is no reply, and never will be."""


@frozen(kw_only=True)
class ChildEnded:
    """A child run ended."""

    run: str
    output: str | None = None
    """The result as JSON text; None if the run failed or was cancelled."""
    is_cancelled: bool = False
    message: str = ""
    """Why the run failed or was cancelled."""
    error: "Raised | None" = None
    """The exception that ended the run, as far as it was stored."""


@frozen(kw_only=True)
class SignalReceived:
    """A message for a channel arrived."""

    channel: str
    text: str
    """The message as JSON text."""
    checked: bool = False
    """Whether the sender checked the message against the channel's type (docs/decisions/0062)."""
    sender: str | None = None
    """The id of the run that sent it; None if no run did."""


@frozen(kw_only=True)
class UpdateReceived:
    """An update was requested."""

    call: str
    """The name of the update's task in its run: `update<row>`."""
    update: str
    """The name of the update method."""
    arguments: str
    """The arguments by name, as JSON text."""
    checked: bool = False
    """Whether the arguments were checked against the method's types when they were stored."""


@frozen(kw_only=True)
class Cancelling:
    """The run was cancelled: CancelledError is raised where the function waits."""

    reason: str = ""


CallOutcome: TypeAlias = (
    StepCompleted
    | StepFailed
    | TimerFired
    | ChildStarted
    | RunNotified
    | UpdateSent
    | ChannelClosed
    | MessagePublished
    | TopicSubscribed
)
"""The outcome of a call."""

FunctionEvent: TypeAlias = (
    CallOutcome | StepQueued | ChildEnded | UpdateReplied | SignalReceived | UpdateReceived | Cancelling
)
"""What a durable function receives: a history row in the form in which its machine uses it."""


@frozen(kw_only=True)
class Row:
    """A row of the history as it is fed to the function."""

    number: int
    at: Micros
    event: FunctionEvent
    site: str = ""
    """Where the call was made when the row was recorded."""
    shown: Micros | None = None
    """The time of the function's clock for this row, if not `at` (docs/decisions/0037)."""


@frozen(kw_only=True)
class UpdateOutcome:
    """The outcome of an update: exactly one of reply, error and rejection."""

    call: str
    output: str | None = None
    """The reply as JSON text."""
    error: Raised | None = None
    """What the update raised."""
    rejected: Raised | None = None
    """What its validator raised, or why it could not be started."""


@frozen(kw_only=True)
class Published:
    """A value that the function has published."""

    name: str
    number: int
    """How many values the function has published under this name, including this one."""
    text: str
    """The value as JSON text."""


OutputKind: TypeAlias = Literal["log", "progress", "annotation", "ai_call", "event"]


@frozen(kw_only=True)
class FunctionOutput:
    """Something that the function reports: a log line, for example. It is no call, and the function gets no answer."""

    row: int
    """The number of the row that the function had received; 0 for its start."""
    number: int
    """Its number among what the function has reported since that row, from 1. With `row` the same in every replay."""
    kind: OutputKind
    content: object
    """What is reported, of the class that belongs to the kind (see `kernel/authoring/workflow_context.py`)."""


@frozen(kw_only=True)
class SkippedMessage:
    """A message that was skipped because it is not of its channel's type."""

    number: int
    """The number of the message's row."""
    channel: str
    why: str


@frozen
class FunctionReturned:
    """The function returned."""

    output: str
    """The result as JSON text."""
    unawaited: tuple[Request, ...] = attrs.field(default=(), kw_only=True, eq=False, repr=False)
    """The requests of calls that were made but never awaited, and so never sent."""


@frozen
class FunctionFailed:
    """The function raised an exception."""

    error: BaseException


@frozen(kw_only=True)
class FunctionContinued:
    """The function continues as a new generation of its run."""

    workflow: str
    version: str
    input: str
    """The input of the next generation as JSON text."""
    unread: tuple[int, ...] = ()
    """The row numbers of updates that were not started."""


Ended: TypeAlias = FunctionReturned | FunctionFailed | FunctionContinued


@frozen(kw_only=True)
class Turn:
    """The result of feeding a row to a function: its new requests, and its end if it has ended."""

    requests: tuple[Request, ...] = ()
    """The new requests, in the order in which they were made."""
    dropped: tuple[str, ...] = ()
    """Earlier calls that the function no longer awaits."""
    patches: tuple[str, ...] = ()
    """Patches that the run has from now on. They must be recorded before anything else is done."""
    answers: tuple[UpdateOutcome, ...] = ()
    """The outcomes of updates."""
    published: tuple[Published, ...] = ()
    outputs: tuple[FunctionOutput, ...] = ()
    """What the function reports. Empty for turns whose output is stored."""
    refused: tuple[SkippedMessage, ...] = ()
    """Skipped messages. They must be recorded before anything else is done."""
    read_clock: bool = False
    """Whether the function has read its clock."""
    ended: Ended | None = None


def _notification_text(run: str, *, is_cancel: bool) -> str:
    return f"that run {run!r} is cancelled" if is_cancel else f"a message to run {run!r}"


def _sent_update_text(run: str, update: str) -> str:
    return f"update {update!r} of run {run!r}"


def _subscription_text(channel: str, *, is_end: bool) -> str:
    return f"the end of the subscription {channel!r}" if is_end else f"the subscription {channel!r}"
