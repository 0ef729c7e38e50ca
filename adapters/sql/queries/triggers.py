"""Answers to the queries about triggers."""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

from typing import Final

from holdfast.adapters.sql import rows
from holdfast.adapters.sql.database import Link
from holdfast.adapters.sql.dialect import Dialect
from holdfast.adapters.sql.rows import Row, is_askable
from holdfast.adapters.sql.searches import columns_of
from holdfast.ports.queries.triggers import FindTrigger, ListNumberedMessages, ListTriggers, TriggerEntry
from holdfast.ports.records.topic import TopicMessageRow

_TRIGGERS: Final = (
    f"SELECT {columns_of(rows.TRIGGER, 't')}, coalesce(p.last, 0) FROM holdfast_triggers AS t "
    "LEFT JOIN holdfast_topics AS p ON p.namespace = t.namespace AND p.name = t.topic "
    "WHERE t.namespace = :namespace"
)
_MESSAGES: Final = (
    f"SELECT {columns_of(rows.TOPIC_MESSAGE, 'm')} FROM holdfast_topic_messages AS m "
    "WHERE m.namespace = :namespace AND m.topic = :topic AND m.number >= :number ORDER BY m.number LIMIT :limit"
)


def find_trigger(link: Link, dialect: Dialect, query: FindTrigger) -> TriggerEntry | None:
    """Answer `FindTrigger`."""
    if not all(map(is_askable, query.name)):
        return None
    found = link.query(dialect.bound(f"{_TRIGGERS} AND t.name = :name"), query.name._asdict())
    return _entry(found[0]) if found else None


def list_triggers(link: Link, dialect: Dialect, query: ListTriggers) -> tuple[TriggerEntry, ...]:
    """Answer `ListTriggers`."""
    if query.limit <= 0 or not is_askable(query.namespace) or not is_askable(query.after):
        return ()
    declared = " AND t.declared IS NOT NULL" if query.declared else ""
    parameters = {"namespace": query.namespace, "after": query.after, "limit": query.limit}
    found = link.query(
        dialect.bound(f"{_TRIGGERS} AND t.name > :after{declared} ORDER BY t.name LIMIT :limit"), parameters
    )
    return tuple(map(_entry, found))


def list_numbered_messages(
    link: Link, dialect: Dialect, query: ListNumberedMessages
) -> tuple[TopicMessageRow, ...]:
    """Answer `ListNumberedMessages`."""
    if query.limit <= 0 or not is_askable(query.namespace) or not is_askable(query.topic):
        return ()
    parameters = {
        "namespace": query.namespace,
        "topic": query.topic,
        "number": query.number,
        "limit": query.limit,
    }
    return tuple(map(rows.topic_message_from, link.query(dialect.bound(_MESSAGES), parameters)))


def _entry(row: Row) -> TriggerEntry:
    *columns, last = row
    # A database without strict types may hold anything.
    return TriggerEntry(rows.trigger_from(tuple(columns)), last if isinstance(last, int) else 0)
