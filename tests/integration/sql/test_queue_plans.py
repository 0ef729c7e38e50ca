"""What is in queues and who serves them is read by indexes, at the cost of what is counted and not of the backlog."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from holdfast.adapters.sql.database import Database, Link, Parameters
from holdfast.adapters.sql.dialect import Dialect
from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.adapters.sql.postgresql.dialect import PostgresDialect
from holdfast.adapters.sql.queries.handlers import Answers
from holdfast.adapters.sql.searches import searches_for
from holdfast.adapters.sql.sqlite.dialect import SqliteDialect
from holdfast.ports.persistence import Query
from holdfast.ports.queries.limits import COUNTED_MAX
from holdfast.ports.queries.namespaces import CountNamespace, ListNamespaces
from holdfast.ports.queries.store import EarliestDue
from holdfast.ports.queries.workers import HeldJobs, ListWorkers, QueueLines
from holdfast.ports.records.run import RunStatus
from holdfast.ports.searches import NamespaceParts, NamespaceRuns, Search
from holdfast.testing.conformance.builders import NAMESPACE, NOW
from tests.integration.sql.test_backlog import OpenStore, rows_touched
from tests.integration.sql.test_waiting_backlog import Asked, indexes, numbers

QUEUED, SLEEPING, LEASED, WORKERS = 12_000, 1_000, 2_000, 1_000
HELD = LEASED // WORKERS
JOBS = f"""
    INSERT INTO holdfast_jobs (run, number, namespace, queue, definition, kind, node, state, priority,
        epoch, attempts, max_attempts, lost_attempts, input, queue_position, session)
    SELECT 'run-' || n, 1, '{NAMESPACE}', CASE WHEN n <= {QUEUED} AND n % 100 = 0 THEN 'rare' ELSE 'main' END,
        'w-' || (n % 4), 'stage', 'a',
        CASE WHEN n <= {QUEUED} THEN 'queued' WHEN n <= {QUEUED + SLEEPING} THEN 'sleeping' ELSE 'leased' END,
        0, 0, 0, 3, 0, 'null', n, CASE WHEN n > {QUEUED + SLEEPING} THEN 's-' || (n % {WORKERS}) END
"""
RUNS = f"""
    INSERT INTO holdfast_runs (key, namespace, id, generation, workflow, version, plan, status, queue, priority,
        created_at, updated_at, last_row, last_job, open_jobs, progress, queue_position, children, close_policy,
        reported_row, in_rate_line)
    SELECT 'run-' || n, CASE n % 10 WHEN 0 THEN '{NAMESPACE}' ELSE 'other' END, 'id-' || n, 1,
        'w', '1', 'f', 'running', 'main', 0, {NOW}, {NOW}, 1, 1, 1,
        '{{}}', 0, 0, 'cancel', 0, 0
"""
SESSIONS = f"""
    INSERT INTO holdfast_sessions (id, host, state, opened_at, expires_at, namespace, is_registered)
    SELECT 's-' || n, 'host', 'open', {NOW}, {NOW}, '{NAMESPACE}', 1
"""
REGISTRY = "INSERT INTO holdfast_worker_registry (session, namespace, about, lease) SELECT 's-' || n, 'other', '{}', 1"
ALL = QUEUED + SLEEPING + LEASED
INSERTS = ((JOBS, ALL), (RUNS, ALL), (SESSIONS, WORKERS), (REGISTRY, WORKERS))
COUNTED = "holdfast_jobs_claim", "holdfast_jobs_sleeping_of_queue", "holdfast_jobs_leased"
QUESTIONS: list[tuple[Query[Any], set[str], int]] = [
    # Two lines of the two queues have as many jobs as there are queued; each count ends at its bound.
    (QueueLines(namespace=NAMESPACE), {*COUNTED}, QUEUED + SLEEPING + LEASED + 100),
    (QueueLines(namespace="none"), {*COUNTED}, LEASED),
    (ListWorkers(namespace=NAMESPACE), {"holdfast_worker_registry_listed"}, 0),
    (ListWorkers(namespace="other", limit=10), set(), 20),
    (HeldJobs(sessions=["s-7", "s-8"]), {"holdfast_jobs_leased"}, 5 * HELD),
    (EarliestDue(), {"holdfast_jobs_sleeping", "holdfast_runs_deadline", "holdfast_runs_start"}, 1),
]


OF_NAMESPACES: list[tuple[Query[Any], int]] = [
    # Three names, the end of the list, and four indexes to look into for each.
    (ListNamespaces(), 30),
    (CountNamespace(namespace="none"), 0),
    (CountNamespace(namespace=NAMESPACE), (QUEUED + SLEEPING + LEASED) // 10),
]
SEARCHES: list[tuple[Search[Any], int]] = [
    (NamespaceRuns(NAMESPACE, 500, NOW - 1, 700), 1_200),
    (NamespaceRuns(NAMESPACE, 500, NOW, 700), 500),
    (NamespaceRuns("none", 500, NOW - 1, 700), 0),
    (NamespaceParts(NAMESPACE), 1),
]
LARGE = {"holdfast_runs", "holdfast_jobs", "holdfast_sessions", "holdfast_worker_registry"}


def statements_of_namespaces(dialect: Dialect) -> Iterator[tuple[str, Parameters, int]]:
    answers = Answers(cast("Database", SimpleNamespace(dialect=dialect, clock_sql=None)))
    for query, most in OF_NAMESPACES:
        link = Asked()
        with suppress(ValueError):  # without an answer there are no counts
            answers.answer(cast("Link", link), query)
        yield from ((sql, parameters, most) for sql, parameters in link.asked)
    searches = searches_for(dialect)
    for search, most in SEARCHES:
        made = searches[type(search)]
        yield cast("str", made.sql), made.parameters(dialect, search, 0) or {}, most


def scanned_tables(plan: dict[str, Any]) -> set[str]:
    """Return the tables that a plan of PostgreSQL reads as a whole."""
    own = {plan["Relation Name"]} if plan["Node Type"] == "Seq Scan" else set[str]()
    return own.union(*map(scanned_tables, plan.get("Plans", [])))


def statements(dialect: Dialect) -> Iterator[tuple[str, Parameters, set[str], int]]:
    answers = Answers(cast("Database", SimpleNamespace(dialect=dialect, clock_sql=None)))
    for query, used, most in QUESTIONS:
        link = Asked()
        answers.answer(cast("Link", link), query)
        yield from ((sql, parameters, used, most) for sql, parameters in link.asked)


def check_answers(store: SqlPersistence) -> None:
    contents = store.read(QueueLines(namespace=NAMESPACE))
    assert not contents.is_partial
    assert sum(line.queued for line in contents.lines if line.queue == "rare") == QUEUED // 100
    assert sum(line.running for line in contents.lines) == LEASED
    assert sum(line.sleeping for line in contents.lines) == SLEEPING
    assert max(line.queued for line in contents.lines) <= COUNTED_MAX
    assert [one.name for one in store.read(ListNamespaces())] == [NAMESPACE, "other"]
    assert store.read(CountNamespace(namespace=NAMESPACE)).runs == {RunStatus.RUNNING: ALL // 10}
    assert store.transact(lambda tx: tx.find(NamespaceRuns(NAMESPACE, 500, NOW - 1, 700))) == (500, 700)
    assert len(store.read(HeldJobs(sessions=["s-7", "s-8"]))) == 2 * HELD


@pytest.mark.slow
@pytest.mark.service
def test_postgres_counts_queues_by_indexes(postgres_with_tables: str, open_store: OpenStore) -> None:
    with psycopg.connect(postgres_with_tables, autocommit=True) as connection:
        for insert, number in INSERTS:
            connection.execute(f"{insert} FROM generate_series(1, {number}) AS n".encode())
        connection.execute(
            "VACUUM ANALYZE holdfast_jobs, holdfast_runs, holdfast_sessions, holdfast_worker_registry"
        )
        for sql, given, used, most in statements(PostgresDialect()):
            answer = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}".encode(), given).fetchone()
            assert answer is not None
            plan = cast("dict[str, Any]", answer[0][0]["Plan"])
            shown = json.dumps(plan, indent=1)
            assert used <= indexes(plan), shown
            assert '"Seq Scan"' not in shown, shown
            assert rows_touched(plan) <= most, shown
        for sql, given, most in statements_of_namespaces(PostgresDialect()):
            answer = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}".encode(), given).fetchone()
            assert answer is not None
            plan = cast("dict[str, Any]", answer[0][0]["Plan"])
            shown = json.dumps(plan, indent=1)
            assert scanned_tables(plan).isdisjoint(LARGE), shown
            assert rows_touched(plan) <= most, shown
    check_answers(open_store(postgres_with_tables))


@pytest.mark.slow
def test_sqlite_counts_queues_by_indexes(sqlite_with_tables: str, open_store: OpenStore) -> None:
    connection = sqlite3.connect(sqlite_with_tables.removeprefix("sqlite:///"))
    for insert, number in INSERTS:
        connection.execute(f"{insert} FROM ({numbers(number)})")
    connection.commit()
    for sql, given, used, _ in statements(SqliteDialect()):
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", given)]
        for index in used:
            assert any(f"INDEX {index}" in step for step in plan), plan
        scanned = {step.split()[1] for step in plan if step.startswith("SCAN") and "INDEX" not in step}
        assert scanned.isdisjoint({"h", "j", "r", "s"}), plan
    for sql, given, _ in statements_of_namespaces(SqliteDialect()):
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", given)]
        assert not any(step.startswith("SCAN t") and "INDEX" not in step for step in plan), plan
    connection.close()
    check_answers(open_store(sqlite_with_tables))
