"""Answers to the queries about triggers, from plain dictionaries."""

from holdfast.ports.queries.triggers import FindTrigger, ListNumberedMessages, ListTriggers, TriggerEntry
from holdfast.ports.records.topic import TopicMessageRow, TopicName
from holdfast.ports.records.trigger import TriggerRow
from holdfast.ports.working_set import Tables


def trigger_named(tables: Tables, query: FindTrigger) -> TriggerEntry | None:
    """Answer `FindTrigger`."""
    row = tables.triggers.get(query.name)
    return None if row is None else _entry(tables, row)


def triggers_listed(tables: Tables, query: ListTriggers) -> tuple[TriggerEntry, ...]:
    """Answer `ListTriggers`."""
    found = sorted(
        (
            row
            for row in tables.triggers.values()
            if row.namespace == query.namespace and row.name > query.after
            if row.declared is not None or not query.declared
        ),
        key=lambda row: row.name,
    )
    return tuple(_entry(tables, row) for row in found[: max(query.limit, 0)])


def numbered_messages(tables: Tables, query: ListNumberedMessages) -> tuple[TopicMessageRow, ...]:
    """Answer `ListNumberedMessages`."""
    numbered = [
        (row.number, row)
        for row in tables.topic_messages.values()
        if (row.namespace, row.topic) == (query.namespace, query.topic)
        if row.number is not None and row.number >= query.number
    ]
    return tuple(row for _, row in sorted(numbered, key=lambda one: one[0])[: max(query.limit, 0)])


def _entry(tables: Tables, row: TriggerRow) -> TriggerEntry:
    topic = tables.topics.get(TopicName(row.namespace, row.topic))
    return TriggerEntry(row, 0 if topic is None else topic.last)
