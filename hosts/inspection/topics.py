"""Topics as the client shows them, with bounded counts of what they have."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

import attrs

from holdfast.hosts.inspection.triggers import selected_texts
from holdfast.hosts.wiring.pages import pages_of
from holdfast.hosts.wiring.services import Core
from holdfast.ports.clock import instant
from holdfast.ports.queries.topics import GroupEntry, ListGroups, ListTopics, TopicEntry

GROUPS_MAX: Final = 100
"""How many groups of a topic are listed."""
_PAGE: Final = 100


@attrs.frozen(kw_only=True)
class TopicGroupInfo:
    """A group of a topic: its members share the messages. At most 1,000 of a kind are counted."""

    name: str
    """Its name."""
    selected: Mapping[str, str]
    """The texts that a message must have, by key. Groups that select other messages are different groups."""
    next_number: int
    """The number of the first message of the topic that it has not handed out, selected or not; 0 until it begins."""
    behind: int
    """How many numbered messages of the topic follow from there, selected or not."""
    returned: int
    """How many messages it has back from members that did not read them."""
    waiting: int
    """How many members wait for a message."""
    used_at: datetime
    """When it last handed out a message, or began."""


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
    """How many subscriptions of runs it has, with members of groups that wait."""
    groups: tuple[TopicGroupInfo, ...] = ()
    """Its groups by name, at most 100."""


def topic_infos(core: Core, after: str | None, limit: int | None) -> Iterator[TopicInfo]:
    """Yield the topics of the namespace by name, up to a number of them."""
    core.connect()

    def read(place: str | None, wanted: int) -> Sequence[TopicEntry]:
        query = ListTopics(namespace=core.namespace, after=place or "", limit=wanted)
        return core.stores.persistence.read(query)

    for page in pages_of(read, _PAGE, after, limit, lambda entry: entry.name):
        groups: dict[str, list[GroupEntry]] = {}
        names = ListGroups(namespace=core.namespace, topics=[entry.name for entry in page], limit=GROUPS_MAX)
        for one in core.stores.persistence.read(names) if page else ():
            groups.setdefault(one.topic, []).append(one)
        yield from (_info(entry, groups.get(entry.name, ())) for entry in page)


def _group_info(entry: GroupEntry, last: int) -> TopicGroupInfo:
    # Until it begins, it is as far behind as its topic has messages.
    return TopicGroupInfo(
        name=entry.name,
        selected=selected_texts(entry.selection) or {},
        next_number=entry.next_number,
        behind=max(0, last - max(entry.next_number, 1) + 1),
        returned=entry.returned,
        waiting=entry.waiting,
        used_at=instant(entry.used_at),
    )


def _info(entry: TopicEntry, groups: Sequence[GroupEntry]) -> TopicInfo:
    since = entry.undelivered_since
    return TopicInfo(
        name=entry.name,
        last=entry.last,
        messages=entry.messages,
        undelivered=entry.undelivered,
        undelivered_since=None if since is None else instant(since),
        subscriptions=entry.subscriptions,
        groups=tuple(_group_info(one, entry.last) for one in groups),
    )
