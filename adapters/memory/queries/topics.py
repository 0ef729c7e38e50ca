"""The answer to the queries about topics, from plain dictionaries."""

from holdfast.ports.queries.topics import COUNTED_MAX, GroupEntry, ListGroups, ListTopics, TopicEntry
from holdfast.ports.records.topic import GroupRow, TopicName
from holdfast.ports.working_set import Tables


def topics_listed(tables: Tables, query: ListTopics) -> tuple[TopicEntry, ...]:
    """Answer `ListTopics`."""
    names = {
        *(TopicName(row.namespace, row.topic) for row in tables.topic_messages.values()),
        *(TopicName(row.namespace, row.topic) for row in tables.subscriptions.values()),
        *(row.topic_name for row in tables.topics.values()),
        *(TopicName(row.namespace, row.topic) for row in tables.groups.values()),
    }
    found = sorted(one.name for one in names if one.namespace == query.namespace and one.name > query.after)
    return tuple(_entry(tables, TopicName(query.namespace, name)) for name in found[: max(0, query.limit)])


def groups_listed(tables: Tables, query: ListGroups) -> tuple[GroupEntry, ...]:
    """Answer `ListGroups`."""
    found: list[GroupEntry] = []
    for topic in sorted(set(query.topics)):
        groups = [
            one for one in tables.groups.values() if (one.namespace, one.topic) == (query.namespace, topic)
        ]
        groups.sort(key=lambda one: one.group_key)
        found += (_group(tables, one) for one in groups[: max(0, query.limit)])
    return tuple(found)


def _group(tables: Tables, row: GroupRow) -> GroupEntry:
    waiting = sum(
        (one.namespace, one.topic, one.group_key) == row.group_name and one.holds is None
        for one in tables.subscriptions.values()
    )
    returned = sum(name[:3] == row.group_name for name in tables.returned_messages)
    return GroupEntry(
        topic=row.topic,
        name=row.name,
        selection=row.selection,
        next_number=row.next_number,
        used_at=row.used_at,
        waiting=min(waiting, COUNTED_MAX),
        returned=min(returned, COUNTED_MAX),
    )


def _entry(tables: Tables, name: TopicName) -> TopicEntry:
    row = tables.topics.get(name)
    messages = [one for one in tables.topic_messages.values() if (one.namespace, one.topic) == name]
    new = [one.at for one in messages if one.number is None]
    subscriptions = sum((one.namespace, one.topic) == name for one in tables.subscriptions.values())
    return TopicEntry(
        name=name.name,
        last=0 if row is None else row.last,
        messages=min(len(messages), COUNTED_MAX),
        undelivered=min(len(new), COUNTED_MAX),
        undelivered_since=min(new, default=None),
        subscriptions=min(subscriptions, COUNTED_MAX),
    )
