"""The list of topics is read by indexes, at the cost of what is counted and not of what is stored."""

import json
import sqlite3
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from holdfast.adapters.sql.database import Database, Link, Parameters
from holdfast.adapters.sql.dialect import Dialect
from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.adapters.sql.postgresql.dialect import PostgresDialect
from holdfast.adapters.sql.queries.handlers import Answers
from holdfast.adapters.sql.sqlite.dialect import SqliteDialect
from holdfast.ports.queries.topics import COUNTED_MAX, ListTopics, TopicEntry
from holdfast.testing.conformance.builders import NAMESPACE, NOW
from tests.integration.sql.test_backlog import OpenStore, rows_touched
from tests.integration.sql.test_waiting_backlog import Asked, numbers

MESSAGES, SUBSCRIPTIONS = 20_000, 10_000
# All messages are of one topic, so that a database expects as many of the others, which have subscriptions only.
TOPIC = "CASE WHEN n % 5000 = 0 THEN 'rare' WHEN n % 5000 = 1 THEN 'a' ELSE 'main' END"
INSERTS = (
    (
        f"""
        INSERT INTO holdfast_topic_messages (namespace, topic, id, number, at, payload, attributes, checked,
            sender_row, expires_at)
        SELECT '{NAMESPACE}', 'main', 'm-' || n, CASE WHEN n % 2 = 0 THEN n END, {NOW} + n, '1', '{{}}', 0, 0, {NOW}
        """,
        MESSAGES,
    ),
    (
        f"""
        INSERT INTO holdfast_subscriptions (namespace, run_id, channel, topic, selection, digest, next_number, since)
        SELECT '{NAMESPACE}', 'run-' || n, 'c', {TOPIC}, '{{}}', 'd', CASE WHEN n % 3 = 0 THEN 1 END, {NOW}
        """,
        SUBSCRIPTIONS,
    ),
)
ENTRIES = (
    TopicEntry(name="a", subscriptions=2),
    TopicEntry(
        name="main",
        messages=COUNTED_MAX,
        undelivered=COUNTED_MAX,
        undelivered_since=NOW + 1,
        subscriptions=COUNTED_MAX,
    ),
    TopicEntry(name="rare", subscriptions=2),
)
READ_MAX = 4 * COUNTED_MAX + 100
"""Of one topic, four counts that end at their bound; a few rows of each other, and of each look for the next name."""


def statement(dialect: Dialect) -> tuple[str, Parameters]:
    answers = Answers(cast("Database", SimpleNamespace(dialect=dialect, clock_sql=None)))
    link = Asked()
    answers.answer(cast("Link", link), ListTopics(namespace=NAMESPACE))
    (asked,) = link.asked
    return asked


def check_answers(store: SqlPersistence) -> None:
    assert store.read(ListTopics(namespace=NAMESPACE)) == ENTRIES


@pytest.mark.slow
@pytest.mark.service
def test_postgres_counts_topics_by_indexes(postgres_with_tables: str, open_store: OpenStore) -> None:
    sql, given = statement(PostgresDialect())
    with psycopg.connect(postgres_with_tables, autocommit=True) as connection:
        for insert, number in INSERTS:
            connection.execute(f"{insert} FROM generate_series(1, {number}) AS n".encode())
        for analyzed in (False, True):
            if analyzed:
                connection.execute("VACUUM ANALYZE holdfast_topic_messages, holdfast_subscriptions")
            answer = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}".encode(), given).fetchone()
            assert answer is not None
            plan = cast("dict[str, Any]", answer[0][0]["Plan"])
            shown = json.dumps(plan, indent=1)
            assert '"Seq Scan"' not in shown, shown
            assert rows_touched(plan) <= READ_MAX, shown
    check_answers(open_store(postgres_with_tables))


def test_sqlite_counts_topics_by_indexes(sqlite_with_tables: str, open_store: OpenStore) -> None:
    connection = sqlite3.connect(sqlite_with_tables.removeprefix("sqlite:///"))
    for insert, number in INSERTS:
        connection.execute(f"{insert} FROM ({numbers(number)})")
    connection.commit()
    sql, given = statement(SqliteDialect())
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", given)]
    steps = [step for step in plan if " t " in f"{step} "]
    assert all(step.startswith("SEARCH t USING") and "namespace=?" in step for step in steps), plan
    # What is counted is read in the order of an index, so that its bound ends it. Only the names are sorted.
    assert sum("TEMP B-TREE" in step for step in plan) <= 1, plan
    connection.close()
    check_answers(open_store(sqlite_with_tables))
