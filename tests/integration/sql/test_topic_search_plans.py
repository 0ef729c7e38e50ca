"""What a delivery looks for is read by indexes: a slow group, or many members that hold messages, cost it a page."""

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, cast

import psycopg
import pytest

from holdfast.adapters.sql.dialect import Dialect
from holdfast.adapters.sql.postgresql.dialect import PostgresDialect
from holdfast.adapters.sql.searches import searches_for
from holdfast.adapters.sql.sqlite.dialect import SqliteDialect
from holdfast.ports import searches as s
from holdfast.testing.conformance.builders import NAMESPACE, NOW
from tests.integration.sql.test_backlog import rows_touched
from tests.integration.sql.test_waiting_backlog import numbers
from tests.sizes import sized

pytestmark = pytest.mark.sized

MESSAGES: Final = sized(20_000, 200_000)
"""Messages of the topic `main`, with which a group is far behind, and as many of all other topics."""
TOPICS: Final = 1_000
GROUPS: Final = TOPICS
"""Topics, and groups in which members wait; each fourth group is of `main`."""
MEMBERS: Final = sized(2_000, 10_000)
LIMIT: Final = 100
STEPS_OF_A_ROW: Final = 25
"""The instructions of SQLite's machine that a row may take."""
PAGE: Final = LIMIT + s.KEPT_WINDOW
_MESSAGE: Final = (
    "INSERT INTO holdfast_topic_messages (namespace, topic, id, number, at, payload, attributes, checked, sender_row, "
    f"expires_at) SELECT '{NAMESPACE}'"
)
_SUBSCRIPTION: Final = (
    "INSERT INTO holdfast_subscriptions (namespace, run_id, channel, topic, selection, digest, since, group_key, "
    f"waits_since, holds) SELECT '{NAMESPACE}', 'run-' || n, 'c'"
)
_MEMBER: Final = _SUBSCRIPTION.replace("run-", "member-")
_GROUP: Final = (
    "INSERT INTO holdfast_topic_groups (namespace, topic, group_key, name, selection, next_number, since, used_at) "
    f"SELECT '{NAMESPACE}'"
)
_OF_MANY: Final = f"CASE WHEN n % 4 = 0 THEN 'main' ELSE 'topic-' || (n % {TOPICS}) END"
INSERTS: Final = (
    (f"{_MESSAGE}, 'main', 'm-' || n, n, {NOW} + n, '1', '{{}}', 0, 0, {NOW} - {MESSAGES} / 2 + n", MESSAGES),
    (
        f"{_MESSAGE}, 'topic-' || (n % {TOPICS}), 'm-' || n, n / {TOPICS} + 1, {NOW}, '1', '{{}}', 0, 0, {NOW} + 1",
        MESSAGES,
    ),
    (
        f"INSERT INTO holdfast_topics (namespace, name, last, kept_from) SELECT '{NAMESPACE}', 'topic-' || n, 999, 0",
        TOPICS,
    ),
    (
        f"INSERT INTO holdfast_topics (namespace, name, last, kept_from) SELECT '{NAMESPACE}', 'main', {MESSAGES}, 0",
        1,
    ),
    (f"{_SUBSCRIPTION}, 'main', '{{}}', 'd-' || n, {NOW}, NULL, NULL, NULL", MEMBERS),
    (f"{_MEMBER}, {_OF_MANY}, '{{}}', '', {NOW}, 'g-' || (n % {GROUPS}), {NOW}, NULL", MEMBERS),
    (
        f"{_SUBSCRIPTION.replace('run-', 'holder-')}, 'main', '{{}}', '', {NOW}, 'g-0', {NOW}, n * 2 - 1",
        MEMBERS // 4,
    ),
    (f"{_GROUP}, {_OF_MANY}, 'g-' || n, 'g', '{{}}', {MESSAGES} + 1, {NOW}, {NOW}", GROUPS),
    (f"{_GROUP}, 'main', 'slow', 'g', '{{}}', {MEMBERS}, {NOW}, {NOW}", 1),
    (
        f"INSERT INTO holdfast_returned_messages SELECT '{NAMESPACE}', 'main', 'slow', n * 2",
        MEMBERS // 4,
    ),
)
"""A topic in which a slow group keeps nine of ten messages, and members hold or gave back the first ones."""

_OF_TOPIC: Final = {"namespace": NAMESPACE, "topic": "main", "now": NOW, "limit": LIMIT}
SEARCHES: Final[Mapping[type[s.Search[Any]], tuple[Mapping[str, object], int]]] = {
    s.NewMessages: (_OF_TOPIC, 0),
    s.NumberedMessages: (_OF_TOPIC | {"number": MEMBERS}, LIMIT),
    # For each message a look at holders and at what went back; the lowest number of groups.
    s.ExpiredMessages: (_OF_TOPIC | {"number": MESSAGES}, 3 * LIMIT + 1),
    s.MessagesBefore: (_OF_TOPIC | {"number": MESSAGES}, 3 * PAGE + 1),
    s.SubscriptionsBehind: (_OF_TOPIC, 0),
    # For each group of the topic a look at its members, and at what went back.
    s.GroupsToServe: (_OF_TOPIC | {"number": MESSAGES}, GROUPS),
    s.WaitingMembers: (_OF_TOPIC | {"group_key": "g-4"}, LIMIT),
    s.ReturnedMessages: (_OF_TOPIC | {"group_key": "slow"}, 3 * LIMIT),
    # Of each group, its topic and a member; and so many expired messages.
    s.TopicToDeliver: (
        {"now": NOW, "after_namespace": NAMESPACE, "after_name": "main"},
        4 * GROUPS + s.EXPIRED_WINDOW,
    ),
}
"""The searches, each with its parameters, and the number of rows that it may touch."""

SORTS: Final[Mapping[type[s.Search[Any]], int]] = {
    s.TopicToDeliver: 6,
    s.MessagesBefore: 1,
    s.ReturnedMessages: 1,
}
"""How often SQLite sorts; not at all in other searches."""


def statement(dialect: Dialect, search: type[s.Search[Any]]) -> str:
    return dialect.bound(cast("str", searches_for(dialect)[search].sql))


def steps_of(connection: sqlite3.Connection, sql: str, given: Mapping[str, object]) -> int:
    """Return how many instructions a statement takes, in hundreds rounded down."""
    took = Counter[str]()
    connection.set_progress_handler(lambda: took.update(["hundreds"]), 100)
    connection.execute(sql, given).fetchall()
    connection.set_progress_handler(None, 0)
    return 100 * took["hundreds"]


@pytest.mark.slow
@pytest.mark.service
def test_postgres_touches_a_page_of_rows(postgres_with_tables: str) -> None:
    with psycopg.connect(postgres_with_tables, autocommit=True) as connection:
        connection.execute("SET jit = off")
        for insert, number in INSERTS:
            connection.execute(f"{insert} FROM generate_series(1, {number}) AS n".encode())
        for analyzed in (False, True):
            if analyzed:
                connection.execute("VACUUM ANALYZE")
            for search, (given, most) in SEARCHES.items():
                sql = statement(PostgresDialect(), search)
                answer = connection.execute(
                    f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}".encode(), given
                ).fetchone()
                assert answer is not None
                plan = cast("dict[str, Any]", answer[0][0]["Plan"])
                assert rows_touched(plan) <= most, (search, analyzed, json.dumps(plan, indent=1))


def test_sqlite_reads_by_indexes(sqlite_with_tables: str) -> None:
    connection = sqlite3.connect(sqlite_with_tables.removeprefix("sqlite:///"))
    for insert, number in INSERTS:
        connection.execute(f"{insert} FROM ({numbers(number)})")
    connection.execute("ANALYZE")
    connection.commit()
    for search, (given, most) in SEARCHES.items():
        sql = statement(SqliteDialect(), search)
        steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", given)]
        tables = [step for step in steps if step.startswith(("SEARCH", "SCAN")) and " holdfast_" in step]
        scanned = [step for step in steps if step.startswith("SCAN ") and "holdfast_" in step]
        assert not scanned, (search, steps)
        assert all("USING" in step for step in tables), (search, steps)
        # What is sorted was read before: a page, or the first topic of each source.
        assert sum("TEMP B-TREE" in step for step in steps) <= SORTS.get(search, 0), (search, steps)
        assert steps_of(connection, sql, given) <= STEPS_OF_A_ROW * most + 1_000, (search, steps)
    connection.close()
