"""Topics: messages for every run that subscribes, and how far they were delivered (docs/decisions/0115)."""

from typing import Final, NamedTuple

from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen


class TopicName(NamedTuple):
    """The name of a topic in its namespace."""

    namespace: str
    name: str


class MessageName(NamedTuple):
    """The name of a message: publishing it again under the same id does nothing."""

    namespace: str
    topic: str
    id: str


class SubscriptionName(NamedTuple):
    """The name of a subscription: a run has at most one for each channel."""

    namespace: str
    run_id: str
    channel: str


class GroupName(NamedTuple):
    """The name of a group: its members take turns at the messages of a topic."""

    namespace: str
    topic: str
    group_key: str


class ReturnedName(NamedTuple):
    """The name of a message that went back to its group."""

    namespace: str
    topic: str
    group_key: str
    number: int


@frozen(kw_only=True)
class TopicRow:
    """How far the messages of a topic were delivered. A delivery holds the lock of this row.

    Attributes:
        last: The number of the last message that was delivered to all of its subscribers.
        after_subscription: While message `last + 1` is being delivered: the last subscription that has it, as JSON text
            of a run id and a channel. None otherwise.
        kept_from: The number of the first message that is kept: those before it may be deleted, as if they had expired.
    """

    namespace: str
    name: str
    last: int = 0
    after_subscription: str | None = None
    kept_from: int = 0

    @property
    def topic_name(self) -> TopicName:
        """The name that users see."""
        return TopicName(self.namespace, self.name)


@frozen(kw_only=True)
class TopicMessageRow:
    """A message of a topic.

    It is stored without a number by its publisher, so no publisher waits for another. The delivery numbers it later,
    when it is certain that no message with a lower number can still appear.
    """

    namespace: str
    topic: str
    id: str
    number: int | None = None
    """Its place in the order of the topic, from 1; None until its delivery begins."""
    at: Micros
    """When it was published."""
    payload: str
    """The message as JSON text. It is never a blob: every subscriber has a copy."""
    attributes: str = "{}"
    """JSON text of an object: the texts by which subscribers select messages."""
    checked: int = 0
    """1 if the publisher validated it against the topic's type, 0 if not."""
    sender: str | None = None
    """The id of the run that published it; None if no run did."""
    sender_row: int = 0
    """The number of the row that records it in the history of that run; 0 if no run did."""
    expires_at: Micros
    """When it may be deleted, if it was delivered."""
    keep_last: int | None = None
    """How many messages of the topic, up to this one, are kept for later subscriptions at most. None: any number."""

    @property
    def message_name(self) -> MessageName:
        """The name under which it is published once."""
        return MessageName(self.namespace, self.topic, self.id)


@frozen(kw_only=True)
class SubscriptionRow:
    """A run that gets messages of a topic, into one of its channels.

    It belongs to the run through all of its generations, and ends with the run. That of a member of a group ends when
    the run reads its message, or gives it back.
    """

    namespace: str
    run_id: str
    channel: str
    topic: str
    selection: str
    """JSON text of an object: the attributes that a message must have."""
    digest: str
    """The digest of `selection`, by which the subscriptions of a message are found."""
    next_number: int | None = None
    """The number of the first message that it may still get from the stored ones; None once it has caught up: then it
    gets each message as that is delivered."""
    since: Micros
    """It gets no message that was published before."""
    group_key: str | None = None
    """Of a member that waits for its next message: the key of the group. None: it gets every selected message."""
    waits_since: Micros | None = None
    """Since when the member has waited; None without a group. Who has waited longest gets the next message."""
    holds: int | None = None
    """The number of the message that the member was handed and has not read: the topic keeps it. None: it waits."""

    @property
    def subscription_name(self) -> SubscriptionName:
        """The name under which it is stored."""
        return SubscriptionName(self.namespace, self.run_id, self.channel)


@frozen(kw_only=True)
class GroupRow:
    """How far the messages of a topic have been handed to the members of a group, each to one of them.

    It is stored with the first wait of a member. Afterwards only deliveries change it, under the lock of the topic.
    """

    namespace: str
    topic: str
    group_key: str
    """The name of the group, with the digest of its selection if it has one: the members select the same messages."""
    name: str
    """The name of the group."""
    selection: str
    """JSON text of an object: the attributes that a message must have."""
    next_number: int = 0
    """The number of the first message that was not handed out and may be. Below it, those that went back; 0: the group
    begins at `since`."""
    since: Micros
    """It gets no message that was published before."""
    used_at: Micros
    """When it was last handed a message, or began."""

    @property
    def group_name(self) -> GroupName:
        """The name under which it is stored."""
        return GroupName(self.namespace, self.topic, self.group_key)


@frozen(kw_only=True)
class ReturnedRow:
    """A message that went back to its group: the member that had it ended, or waited no more, before it read it."""

    namespace: str
    topic: str
    group_key: str
    number: int

    @property
    def returned_name(self) -> ReturnedName:
        """The name under which it is stored."""
        return ReturnedName(self.namespace, self.topic, self.group_key, self.number)


TOPIC_CHANNEL: Final = "topic:"
"""How the names of the channels begin that get messages of topics. Other channels have no such name."""
GROUP_CHANNEL: Final = "group:"
"""How the names of the channels begin in which a member of a group gets a message. Other channels have no such name."""
GROUP_IDLE: Final[Micros] = 30 * 86_400_000_000
"""How long a group to which nothing is handed, and in which no member waits, keeps messages beyond their time."""
