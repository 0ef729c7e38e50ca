"""Topics as the client shows them, with bounded counts of what they have."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

import attrs

from holdfast.hosts.wiring.pages import pages_of
from holdfast.hosts.wiring.services import Core
from holdfast.ports.clock import instant
from holdfast.ports.queries.topics import ListTopics, TopicEntry

_PAGE: Final = 100


@attrs.frozen(kw_only=True)
class TopicInfo:
    """A topic, and what it has. At most 1,000 of a kind are counted."""

    name: str
    """Its name."""
    last: int
    """The number of the last message that was delivered to all of its subscribers; 0 if none was."""
    messages: int
    """How many messages are stored. A topic keeps those that were delivered for later subscriptions."""
    undelivered: int
    """How many of the messages have no number yet, so that no subscriber has them."""
    undelivered_since: datetime | None
    """When the first of those was published; None if there are no such messages."""
    subscriptions: int
    """How many subscriptions of runs it has."""


def topic_infos(core: Core, after: str | None, limit: int | None) -> Iterator[TopicInfo]:
    """Yield the topics of the namespace by name, up to a number of them."""
    core.connect()

    def read(place: str | None, wanted: int) -> Sequence[TopicEntry]:
        query = ListTopics(namespace=core.namespace, after=place or "", limit=wanted)
        return core.stores.persistence.read(query)

    for page in pages_of(read, _PAGE, after, limit, lambda entry: entry.name):
        yield from map(_info, page)


def _info(entry: TopicEntry) -> TopicInfo:
    since = entry.undelivered_since
    return TopicInfo(
        name=entry.name,
        last=entry.last,
        messages=entry.messages,
        undelivered=entry.undelivered,
        undelivered_since=None if since is None else instant(since),
        subscriptions=entry.subscriptions,
    )
