"""The answers to the queries about topics."""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

from typing import Final

from holdfast.adapters.sql.database import Link
from holdfast.adapters.sql.dialect import Dialect
from holdfast.adapters.sql.rows import askable, is_askable
from holdfast.ports.queries.topics import COUNTED_MAX, GroupEntry, ListGroups, ListTopics, TopicEntry

_MESSAGES: Final = "holdfast_topic_messages AS t WHERE t.namespace = :namespace"
_SUBSCRIPTIONS: Final = "holdfast_subscriptions AS t WHERE t.namespace = :namespace"
_CAUGHT_UP: Final = f"{_SUBSCRIPTIONS} AND t.next_number IS NULL"
_BEHIND: Final = f"{_SUBSCRIPTIONS} AND t.next_number IS NOT NULL"
_SOURCES: Final = (
    ("name", "holdfast_topics AS t WHERE t.namespace = :namespace"),
    ("topic", _MESSAGES),
    ("topic", _CAUGHT_UP),
    ("topic", _BEHIND),
    ("topic", "holdfast_topic_groups AS t WHERE t.namespace = :namespace"),
)


def _next(after: str) -> str:
    """Return the first name after another one in any source: one look into the index of each."""
    firsts = (
        f"SELECT (SELECT t.{column} FROM {source} AND t.{column} > {after} ORDER BY t.{column} LIMIT 1) AS name"
        for column, source in _SOURCES
    )
    return f"(SELECT min(f.name) FROM ({' UNION ALL '.join(firsts)}) AS f)"


def _counted(source: str, order: str) -> str:
    # In the order of an index: without it, a database that expects many rows would read the table, and find few.
    return (
        f"(SELECT count(*) FROM (SELECT 1 AS one FROM {source} AND t.topic = f.name ORDER BY {order} "
        f"LIMIT {COUNTED_MAX}) AS counted)"
    )


_NEW: Final = f"{_MESSAGES} AND t.number IS NULL"
_LISTED: Final = (
    f"WITH RECURSIVE names(name) AS (SELECT {_next(':after')} UNION ALL "
    f"SELECT {_next('n.name')} FROM names AS n WHERE n.name IS NOT NULL), "
    "found AS (SELECT n.name FROM names AS n WHERE n.name IS NOT NULL LIMIT :limit) "
    "SELECT f.name, (SELECT t.last FROM holdfast_topics AS t WHERE t.namespace = :namespace AND t.name = f.name), "
    f"{_counted(_MESSAGES, 't.at, t.number')}, {_counted(_NEW, 't.at, t.sender_row, t.id')}, "
    f"(SELECT t.at FROM {_NEW} AND t.topic = f.name ORDER BY t.at, t.sender_row, t.id LIMIT 1), "
    f"{_counted(_CAUGHT_UP, 't.digest, t.run_id, t.channel')}, {_counted(_BEHIND, 't.run_id, t.channel')} "
    "FROM found AS f ORDER BY f.name"
)


_WAITING: Final = (
    "(SELECT count(*) FROM (SELECT 1 AS one FROM holdfast_subscriptions AS s WHERE s.namespace = g.namespace "
    "AND s.topic = g.topic AND s.group_key = g.group_key AND s.group_key IS NOT NULL AND s.holds IS NULL "
    f"LIMIT {COUNTED_MAX}) AS counted)"
)
_RETURNED: Final = (
    "(SELECT count(*) FROM (SELECT 1 AS one FROM holdfast_returned_messages AS r WHERE r.namespace = g.namespace "
    f"AND r.topic = g.topic AND r.group_key = g.group_key LIMIT {COUNTED_MAX}) AS counted)"
)
_GROUPS: Final = (
    f"SELECT g.topic, g.name, g.selection, g.next_number, g.used_at, {_WAITING}, {_RETURNED} "
    "FROM (SELECT t.*, row_number() OVER (PARTITION BY t.topic ORDER BY t.group_key) AS place "
    "FROM holdfast_topic_groups AS t WHERE t.namespace = :namespace AND {}) AS g "
    "WHERE g.place <= :limit ORDER BY g.topic, g.group_key"
)


def list_groups(link: Link, dialect: Dialect, query: ListGroups) -> tuple[GroupEntry, ...]:
    """Answer `ListGroups`."""
    topics = sorted(set(askable(query.topics)))
    if query.limit <= 0 or not topics or not is_askable(query.namespace):
        return ()
    statement = dialect.bound(_GROUPS.format(dialect.one_of("t.topic", "topics")))
    parameters = {"namespace": query.namespace, "topics": dialect.texts(topics), "limit": query.limit}
    return tuple(
        GroupEntry(
            topic=topic,
            name=name,
            selection=selection,
            next_number=number,
            used_at=used_at,
            waiting=waiting,
            returned=returned,
        )
        for topic, name, selection, number, used_at, waiting, returned in link.query(statement, parameters)
    )


def list_topics(link: Link, dialect: Dialect, query: ListTopics) -> tuple[TopicEntry, ...]:
    """Answer `ListTopics`."""
    if query.limit <= 0 or not is_askable(query.namespace) or not is_askable(query.after):
        return ()
    parameters = {"namespace": query.namespace, "after": query.after, "limit": query.limit}
    return tuple(
        TopicEntry(
            name=name,
            last=last or 0,
            messages=messages,
            undelivered=new,
            undelivered_since=since,
            subscriptions=min(caught_up + behind, COUNTED_MAX),
        )
        for name, last, messages, new, since, caught_up, behind in link.query(
            dialect.bound(_LISTED), parameters
        )
    )
