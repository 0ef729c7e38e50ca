"""Queries for topics: their list, with bounded counts of what they have."""

from collections.abc import Collection
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


@attrs.frozen(kw_only=True)
class GroupEntry:
    """A group of a topic. Each count is at most `COUNTED_MAX`."""

    topic: str
    name: str
    selection: str
    """JSON text of an object: the attributes that a message must have."""
    next_number: int
    """The number of the first message that it has not handed out, as of `GroupRow.next_number`."""
    used_at: Micros
    """When it last handed out a message, or began."""
    waiting: int = 0
    """How many members wait for a message."""
    returned: int = 0
    """How many messages went back to it, and are handed out first."""


@frozen(kw_only=True)
class ListGroups(Query[tuple[GroupEntry, ...]]):
    """The groups of these topics of a namespace, by topic, name and selection: the first `limit` of each topic."""

    namespace: str
    topics: Collection[str]
    limit: int = 100


@frozen(kw_only=True)
class ListTopics(Query[tuple[TopicEntry, ...]]):
    """The next topics of a namespace after the name `after`, by name.

    Those with messages, subscriptions or groups, and those that had messages before.
    """

    namespace: str
    after: str = ""
    limit: int = 100
