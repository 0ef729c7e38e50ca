"""Queries for topics: their list, with bounded counts of what they have."""

from typing import Final

import attrs

from holdfast.ports.persistence import Query
from holdfast.ports.records.values import Micros
from holdfast.ports.structs import frozen

COUNTED_MAX: Final = 1_000
"""How far what a topic has is counted. A list counts it for many topics, so this is less than for one queue."""


@attrs.frozen(kw_only=True)
class TopicEntry:
    """A topic, and what it has. Each count is at most `COUNTED_MAX`."""

    name: str
    last: int = 0
    """The number of the last message that was delivered to all of its subscribers; 0 if none was."""
    messages: int = 0
    """How many messages are stored."""
    undelivered: int = 0
    """How many of them have no number yet."""
    undelivered_since: Micros | None = None
    """When the first of those was published; None if all have a number."""
    subscriptions: int = 0
    """How many subscriptions it has."""


@frozen(kw_only=True)
class ListTopics(Query[tuple[TopicEntry, ...]]):
    """The next topics of a namespace after the name `after`, by name.

    Those with messages or subscriptions, and those that had messages before.
    """

    namespace: str
    after: str = ""
    limit: int = 100
