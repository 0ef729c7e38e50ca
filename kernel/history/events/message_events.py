"""Events of messages to and from a durable function, and of what it publishes: signals, updates, channels, values."""

from collections.abc import Mapping
from typing import ClassVar

import attrs
from typing_extensions import override

from holdfast.kernel.history.events.event import (
    CallKind,
    Facts,
    HistoryEvent,
    Identity,
    LocatedCallEvent,
    OperatorEvent,
    RecordedError,
)
from holdfast.ports.mailboxes import GroupMessage, ReplyAddress
from holdfast.ports.structs import frozen


@frozen(kw_only=True)
class SignalReceived(OperatorEvent):
    """A message for a durable function was stored."""

    type: ClassVar[str] = "signal.received"
    may_precede_code: ClassVar[bool] = True
    payload: ClassVar[str | None] = "the message"
    reaches_function: ClassVar[bool] = True
    channel: str
    """The name of the channel."""
    checked: bool = False
    """Whether the sender validated the message."""
    key: str | None = None
    """The idempotency key that it was sent with."""
    start: int | None = None
    """The row with the start that it came with."""
    again: int | None = None
    """Its number in the previous generation, which did not receive it."""
    sender: str | None = None
    """The id of the run that sent it; None if no run did."""
    topic: str | None = None
    """The topic that it was published to; None: it was sent to this run."""
    message: str | None = None
    """Its id in the topic."""
    number: int | None = None
    """Its number in the topic."""
    group_key: str | None = None
    """The key of the group in which this run was handed it; None: every subscriber got it."""

    @property
    def of_group(self) -> GroupMessage | None:
        """The message in its group; None if it is not one of a group."""
        if self.topic is None or self.group_key is None or self.number is None:
            return None
        return GroupMessage(self.channel, self.topic, self.group_key, self.number)


@frozen(kw_only=True)
class SignalSent(LocatedCallEvent):
    """A durable function sent a message to a run, or could not."""

    type: ClassVar[str] = "signal.sent"
    call_kind: ClassVar[CallKind | None] = "message"
    reaches_function: ClassVar[bool] = True
    run: str
    """The id of the run."""
    channel: str | None = None
    """The channel of the message; None: there is no such run."""
    message: str | None = None
    """Why the message could not be sent."""
    closed: bool = False
    """Whether the run has closed the channel."""


@frozen(kw_only=True)
class CancelSent(LocatedCallEvent):
    """A durable function cancelled a run."""

    type: ClassVar[str] = "cancel.sent"
    call_kind: ClassVar[CallKind | None] = "message"
    reaches_function: ClassVar[bool] = True
    run: str
    """The id of the run."""


@frozen(kw_only=True)
class SignalRefused(HistoryEvent):
    """An unvalidated message does not have the type of its channel: it is skipped, and the function keeps waiting."""

    type: ClassVar[str] = "signal.refused"
    requested_by_code: ClassVar[bool] = True
    read_first: ClassVar[bool] = True
    recorded_first: ClassVar[bool] = True
    row: int
    """The number of the message's row."""
    channel: str
    """The name of the channel."""
    message: str
    """What is wrong with it."""

    @property
    @override
    def identity(self) -> Identity:
        return self.type, str(self.row), 1


@frozen(kw_only=True)
class StartReceived(HistoryEvent):
    """A start found the run active and is kept with its messages: it may start the next generation."""

    type: ClassVar[str] = "start.received"
    may_precede_code: ClassVar[bool] = True
    payload: ClassVar[str | None] = "the input of the start"
    definition: str
    """The workflow and its version, `order@3`."""
    plan: str
    """The fingerprint of the start's plan."""
    start: Mapping[str, object]
    """The `run.create` command without its input, its signals, and the fields that have their defaults."""


@frozen(kw_only=True)
class ChannelClosed(LocatedCallEvent):
    """A durable function closed a channel."""

    type: ClassVar[str] = "channel.closed"
    call_kind: ClassVar[CallKind | None] = "channel"
    reaches_function: ClassVar[bool] = True
    requested_by_code: ClassVar[bool] = True
    channel: str
    """The name of the channel."""


@frozen(kw_only=True)
class MessagePublished(LocatedCallEvent):
    """A durable function published a message to a topic."""

    type: ClassVar[str] = "message.published"
    call_kind: ClassVar[CallKind | None] = "topic"
    reaches_function: ClassVar[bool] = True
    requested_by_code: ClassVar[bool] = True
    topic: str
    """The name of the topic."""
    message: str
    """The id of the message in the topic."""


@frozen(kw_only=True)
class TopicSubscribed(LocatedCallEvent):
    """A durable function subscribed to a topic: messages of the topic arrive in a channel of its run."""

    type: ClassVar[str] = "topic.subscribed"
    call_kind: ClassVar[CallKind | None] = "topic"
    reaches_function: ClassVar[bool] = True
    requested_by_code: ClassVar[bool] = True
    topic: str
    """The name of the topic."""
    channel: str
    """The name of the channel."""
    selection: Mapping[str, object] = attrs.field(factory=dict[str, object])
    """The attributes that a message must have."""
    group: str | None = None
    """The group whose next message it waits for; None: it gets every selected message."""


@frozen(kw_only=True)
class TopicUnsubscribed(LocatedCallEvent):
    """A durable function ended a subscription to a topic."""

    type: ClassVar[str] = "topic.unsubscribed"
    call_kind: ClassVar[CallKind | None] = "topic"
    reaches_function: ClassVar[bool] = True
    requested_by_code: ClassVar[bool] = True
    topic: str
    """The name of the topic."""
    channel: str
    """The name of the channel."""


@frozen(kw_only=True)
class UpdateReceived(OperatorEvent):
    """An update was requested of a durable function. The name of its call is `update` and the number of this row."""

    type: ClassVar[str] = "update.received"
    may_precede_code: ClassVar[bool] = True
    payload: ClassVar[str | None] = "the arguments"
    reaches_function: ClassVar[bool] = True
    update: str
    """Class and method of the exposed object, such as `Board.move_to`."""
    key: str | None = None
    """The idempotency key of the request."""
    checked: bool = False
    """Whether the sender validated the arguments."""
    again: int | None = None
    """Its number in the previous generation, if the run continued as new or was run again."""
    sender: str | None = None
    """The id of the run that sent it; None if no run did. Its key is then that of the sender's call."""

    @property
    def address(self) -> ReplyAddress | None:
        """Where the reply goes; None if no run sent it."""
        return None if self.sender is None else ReplyAddress(self.sender, self.key or "")


@frozen(kw_only=True)
class UpdateSent(LocatedCallEvent):
    """A durable function sent an update to a run, or could not."""

    type: ClassVar[str] = "update.sent"
    call_kind: ClassVar[CallKind | None] = "message"
    reaches_function: ClassVar[bool] = True
    requested_by_code: ClassVar[bool] = True
    run: str
    """The id of the run."""
    update: str
    """Class and method of the object that the run exposes, such as `Board.move_to`."""
    code: str | None = None
    """The code of the error with which it was refused; None if it was stored."""
    message: str | None = None
    """Why it could not be sent."""


@frozen(kw_only=True)
class UpdateReplied(HistoryEvent):
    """The reply to an update that a durable function has sent to a run."""

    type: ClassVar[str] = "update.replied"
    payload: ClassVar[str | None] = "the result"
    reaches_function: ClassVar[bool] = True
    call: str
    """The call that sent the update."""
    run: str
    """The id of the run."""
    outcome: str
    """`completed`, `failed`, `rejected`; or `lost`: the run ended before that, or the result can't be read."""
    error: RecordedError | None = None
    """The error that it raised, or why it was rejected; None if it is completed or lost."""
    message: str | None = None
    """Of a lost update, why it has no answer."""
    again: int | None = None
    """The number of the row that this one repeats, in a rerun."""

    @property
    @override
    def identity(self) -> Identity:
        return self.type, self.call, 1


@frozen(kw_only=True)
class UpdateAnswer(HistoryEvent):
    """The end of an update: its result, its error, or why it was not carried out."""

    answers_update: ClassVar[bool] = True
    requested_by_code: ClassVar[bool] = True
    call: str
    """`update` and the number of the row that requested it."""

    @property
    @override
    def identity(self) -> Identity:
        return self.type, self.call, 1


@frozen(kw_only=True)
class UpdateCompleted(UpdateAnswer):
    """The update was carried out."""

    type: ClassVar[str] = "update.completed"
    payload: ClassVar[str | None] = "the result"


@frozen(kw_only=True)
class UpdateFailed(UpdateAnswer):
    """The update was carried out and raised an error."""

    type: ClassVar[str] = "update.failed"
    error: RecordedError
    """The error that it raised."""


@frozen(kw_only=True)
class UpdateRejected(UpdateAnswer):
    """The update was not carried out.

    Its validator rejected it, the function does not expose it, or its unvalidated arguments have the wrong types.
    """

    type: ClassVar[str] = "update.rejected"
    read_first: ClassVar[bool] = True
    error: RecordedError
    """Why it was not carried out."""


@frozen(kw_only=True)
class ValuePublished(HistoryEvent):
    """A durable function publishes a value."""

    type: ClassVar[str] = "value.published"
    payload: ClassVar[str | None] = "the value"
    requested_by_code: ClassVar[bool] = True
    name: str
    """The name of the value."""
    number: int
    """How many values it has published under this name; 0: a previous generation published it."""

    @property
    @override
    def identity(self) -> Identity:
        return self.type, self.name, self.number

    @classmethod
    @override
    def was_requested(cls, facts: Facts) -> bool:
        return bool(facts["number"])  # 0: a previous generation published it
