"""Queries for triggers, and for the messages that they are to handle."""

from holdfast.ports.persistence import Query
from holdfast.ports.records.topic import TopicMessageRow
from holdfast.ports.records.trigger import TriggerName, TriggerRow
from holdfast.ports.structs import frozen


@frozen
class TriggerEntry:
    """A trigger, and how far its topic was delivered."""

    row: TriggerRow
    last: int
    """The number of the last message of the topic that was delivered to all of its subscribers; 0 if none was."""

    @property
    def behind(self) -> int:
        """How many numbered messages of the topic it has not handled, whether it selects them or not."""
        return max(0, self.last - self.row.next_number + 1)


@frozen
class FindTrigger(Query[TriggerEntry | None]):
    """A trigger by name."""

    name: TriggerName


@frozen(kw_only=True)
class ListTriggers(Query[tuple[TriggerEntry, ...]]):
    """The next triggers of a namespace after the name `after`, by name."""

    namespace: str
    after: str = ""
    limit: int = 100
    declared: bool = False
    """Only those that code declares."""


@frozen(kw_only=True)
class ListNumberedMessages(Query[tuple[TopicMessageRow, ...]]):
    """The next messages of a topic by number, from `number` on. Numbers never change, and none is added below them."""

    namespace: str
    topic: str
    number: int
    limit: int
