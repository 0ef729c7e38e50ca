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


@frozen(kw_only=True)
class TopicRow:
    """How far the messages of a topic were delivered. A delivery holds the lock of this row.

    Attributes:
        last: The number of the last message that was delivered to all of its subscribers.
        after_subscription: While message `last + 1` is being delivered: the last subscription that has it, as JSON text
            of a run id and a channel. None otherwise.
    """

    namespace: str
    name: str
    last: int = 0
    after_subscription: str | None = None

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

    @property
    def message_name(self) -> MessageName:
        """The name under which it is published once."""
        return MessageName(self.namespace, self.topic, self.id)


@frozen(kw_only=True)
class SubscriptionRow:
    """A run that gets messages of a topic, into one of its channels.

    It belongs to the run through all of its generations, and ends with the run.
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

    @property
    def subscription_name(self) -> SubscriptionName:
        """The name under which it is stored."""
        return SubscriptionName(self.namespace, self.run_id, self.channel)


TOPIC_CHANNEL: Final = "topic:"
"""How the names of the channels begin that get messages of topics. Other channels have no such name."""
