"""Commands on topics and their replies: publish a message, and deliver messages to the runs that subscribed."""

from typing import ClassVar, Final, Literal

import attrs

from holdfast.kernel.commands.command import Command, OperatorCommand
from holdfast.kernel.commands.follow_ups import WithFollowUp
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen

PAYLOAD_MAX: Final = 262_144
"""Maximum length of a message of a topic as JSON text: each subscriber gets a copy."""
ID_MAX: Final = 256
"""Maximum length of the id of a message."""
KEEP_DEFAULT: Final[Micros] = 7 * 86_400_000_000
"""How long a message is kept for later subscriptions, if its topic has no other setting."""
KEEP_MAX: Final[Micros] = 366 * 86_400_000_000
KEEP_LAST_MAX: Final = 1_000_000_000
"""The largest number of messages that a topic can be limited to."""
DELIVER_LIMIT: Final = 500
"""Most deliveries in one transaction."""
REMOVE_LIMIT: Final = 1_000
"""Most rows of a topic that are deleted in one transaction."""


def _positive(_: object, field: "attrs.Attribute[int]", value: int) -> None:
    if not 0 < value <= KEEP_MAX:
        raise InvalidCommandError(f"{field.name} is {value}; it must be from 1 to {KEEP_MAX:,} microseconds")


def _count(_: object, field: "attrs.Attribute[int | None]", value: int | None) -> None:
    if value is not None and not 0 < value <= KEEP_LAST_MAX:
        raise InvalidCommandError(f"{field.name} is {value}; it must be from 1 to {KEEP_LAST_MAX:,}")


@frozen(kw_only=True)
class NewTopicMessage:
    """A message to publish."""

    topic: str
    """The name of the topic, of 1 to 100 characters."""
    payload: str
    """The message as JSON text."""
    attributes: str = "{}"
    """JSON text of an object with at most four texts, by which subscriptions select messages."""
    checked: bool = False
    """Whether the publisher validated the message against the topic's type. See `ChannelMessage.checked`."""
    keep: Micros = attrs.field(default=KEEP_DEFAULT, validator=_positive)
    """How long it is kept for later subscriptions, once it was delivered."""
    keep_last: int | None = attrs.field(default=None, validator=_count)
    """How many messages of the topic, up to this one, are kept for later subscriptions at most. None: any number."""


@frozen(kw_only=True)
class TopicPublished(WithFollowUp):
    """Reply to `TopicPublish`: the message is stored."""

    id: str
    """The id of the message in its topic."""
    published: bool
    """Whether this command published it; else a message with this id is stored already."""


@frozen(kw_only=True)
class TopicPublish(OperatorCommand[TopicPublished]):
    """Command to publish a message to all subscriptions of a topic.

    Publishers do not wait for each other. `TopicDeliver`, which follows, numbers the message. Errors:
    InvalidCommandError for attributes that are not up to four texts.
    """

    type: ClassVar[Literal["topic.publish"]] = "topic.publish"
    message: NewTopicMessage
    id: str | None = None
    """The id of the message; None: a new one. Publishing again with an id that is stored does nothing."""


@frozen(kw_only=True)
class TopicDelivered(WithFollowUp):
    """Reply to `TopicDeliver`."""

    topic: str | None = None
    """The topic; None if no topic had anything to deliver."""
    deliveries: int = 0
    """How many messages were stored in histories of runs; each subscriber of a message counts."""
    more: bool = False
    """Whether the same command may deliver more now."""
    problem: str | None = None
    """Why the topic can't be delivered: its row is damaged. None if it can."""
    next: str | None = None
    """Without a topic: the `after` of the next command; None at the end."""


@frozen(kw_only=True)
class TopicDeliver(Command[TopicDelivered]):
    """Command to number new messages of a topic and deliver them to the runs that subscribed. It can be repeated.

    New subscriptions first get the messages that are stored already.
    """

    type: ClassVar[Literal["topic.deliver"]] = "topic.deliver"
    topic: str | None = None
    """The topic; None: the next topic of the store, of any namespace, that has something to deliver."""
    after: str = ""
    """Without a topic: where to continue from, `next` of the previous reply."""
    limit: int = attrs.field(default=DELIVER_LIMIT)
    """Most deliveries, at least 1."""


@frozen(kw_only=True)
class TopicRemoved:
    """Reply to `TopicRemove`."""

    rows: int
    """How many messages and groups were deleted."""
    more: bool
    """Whether the topic has more: repeat the command."""


@frozen(kw_only=True)
class TopicRemove(OperatorCommand[TopicRemoved]):
    """Command to delete a topic with its messages and groups, so many rows at a time. It can be repeated.

    What runs have received stays in their histories. The messages that are published later are numbered from 1.
    Errors: TopicInUseError.
    """

    type: ClassVar[Literal["topic.remove"]] = "topic.remove"
    is_kept: ClassVar[bool] = False
    topic: str
    limit: int = REMOVE_LIMIT
    """The most rows that are deleted, from 1 to 10,000."""
