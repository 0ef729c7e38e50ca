"""Look-ups use indexes however many stages wait and however many child runs there are."""

import json
import sqlite3
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from holdfast.adapters.sql.database import Database, Link, Parameters
from holdfast.adapters.sql.dialect import Dialect, encode_rows
from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.adapters.sql.postgresql.dialect import PostgresDialect
from holdfast.adapters.sql.queries.handlers import Answers
from holdfast.adapters.sql.queries.waiting_searches import waiting_statements
from holdfast.adapters.sql.searches import searches_for
from holdfast.adapters.sql.sqlite.dialect import SqliteDialect
from holdfast.ports.changes import Change, Insert
from holdfast.ports.persistence import Query
from holdfast.ports.queries.runs import OrphanedChildren, PendingDeliveries
from holdfast.ports.records.job import JobKind, JobState
from holdfast.ports.searches import (
    AnyPendingDelivery,
    DueRunRates,
    DueRuns,
    ExternalJobs,
    QueuedUnderRates,
    Waiting,
)
from holdfast.testing.conformance.builders import DEFINITION, NAMESPACE, NOW, QUEUE, a_job, a_key, a_run
from tests.integration.sql.test_backlog import OpenStore, rows_touched
from tests.sizes import sized

pytestmark = pytest.mark.sized

BACKLOG = sized(20_000, 60_000)
JOBS = f"""
    INSERT INTO holdfast_jobs (run, number, namespace, queue, definition, kind, node, state, priority, wake_at,
        epoch, attempts, max_attempts, lost_attempts, input,
        queue_position, waiting_for)
    SELECT CAST('run-' || n AS text), 1, '{NAMESPACE}', '{QUEUE}', '{DEFINITION}',
        CASE n % 3 WHEN 0 THEN 'poll' WHEN 1 THEN 'child' ELSE 'stage' END, 'bill',
        CASE n % 3 WHEN 2 THEN 'queued' ELSE 'sleeping' END,
        9, CASE n % 3 WHEN 0 THEN {NOW} + n END, 0, 0, 3, 0, 'null', 0,
        CASE n % 3 WHEN 0 THEN 'work-' || n WHEN 1 THEN 'wanted' END
"""
RUNS = f"""
    INSERT INTO holdfast_runs (key, namespace, id, generation, workflow, version, plan, status, queue, priority,
        created_at, updated_at, last_row, last_job, open_jobs, progress, queue_position, children, close_policy,
        reported_row, in_rate_line, parent)
    SELECT CAST('run-' || n AS text), '{NAMESPACE}', CAST('order-' || n AS text), 1, 'orders', '1', 'f',
        CASE n % 3 WHEN 0 THEN 'completed' ELSE 'running' END, '{QUEUE}', 0, {NOW}, {NOW}, 1, 1, 1, '{{}}', 0, 0,
        'cancel', 0, 0, CASE n % 4 WHEN 0 THEN NULL ELSE 'run-' || (n / 2) || '.1' END
"""
FOUND: Sequence[Change] = (
    Insert(a_run(1)),
    *(Insert(a_run(child, parent=f"{a_key(1)}.{child}")) for child in range(2, 6)),
    Insert(a_job(1, 9, kind=JobKind.DELIVER, state=JobState.PENDING_DELIVERY)),
    *(Insert(a_job(2, number, kind=JobKind.POLL, waiting_for="wanted")) for number in (1, 2)),
)


class Asked:
    """A connection to no database that records its queries."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Parameters]] = []

    def query(self, sql: str, parameters: Parameters, /, *, keyed: bool = False) -> list[Any]:
        del keyed
        self.asked.append((sql, parameters))
        return []


def questions(dialect: Dialect) -> Sequence[tuple[str, Parameters, str, int]]:
    """Each query with its parameters, its index, and the number of rows it reads."""
    searches = searches_for(dialect)
    asked: list[tuple[str, Parameters, str, int]] = [
        (
            cast("str", searches[ExternalJobs].sql),
            {"namespace": NAMESPACE, "key": "wanted"},
            "holdfast_jobs_external",
            2,
        ),
        (cast("str", searches[AnyPendingDelivery].sql), {}, "holdfast_jobs_pending_delivery", 1),
    ]
    answers = Answers(cast("Database", SimpleNamespace(dialect=dialect, clock_sql=None)))
    wanted: list[tuple[Query[Any], str, int]] = [
        (PendingDeliveries(), "holdfast_jobs_pending_delivery", 1),
        # The children, and for each the jobs of their parent, of which there is one.
        (OrphanedChildren((a_key(1),)), "holdfast_runs_children", 8),
        (OrphanedChildren(("nobody's",)), "holdfast_runs_children", 0),
    ]
    for query, index, rows in wanted:
        link = Asked()
        answers.answer(cast("Link", link), query)
        asked += [(sql, parameters, index, rows) for sql, parameters in link.asked]
    return asked


def numbers(number: int) -> str:
    return (
        f"WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {number}) SELECT n FROM s"
    )


def check_found(store: SqlPersistence) -> None:
    assert len(store.transact(lambda tx: tx.find(ExternalJobs(NAMESPACE, "wanted")))) == 2
    assert [job.number for job in store.read(PendingDeliveries())] == [9]
    assert [run.key for run in store.read(OrphanedChildren((a_key(1),)))] == [
        a_key(child) for child in range(2, 6)
    ]


def indexes(plan: dict[str, Any]) -> set[str]:
    """Return the indexes that a plan of PostgreSQL uses."""
    own = {plan["Index Name"]} if "Index Name" in plan else set[str]()
    return own.union(*map(indexes, plan.get("Plans", [])))


@pytest.mark.slow
@pytest.mark.service
def test_postgres_finds_what_waits_by_its_indexes(postgres_with_tables: str, open_store: OpenStore) -> None:
    store = open_store(postgres_with_tables)
    with psycopg.connect(postgres_with_tables, autocommit=True) as connection:
        for insert in (JOBS, RUNS):
            connection.execute(f"{insert} FROM generate_series(1, {BACKLOG}) AS n".encode())
        store.transact(lambda tx: tx.apply(FOUND))
        connection.execute("VACUUM ANALYZE holdfast_jobs, holdfast_runs")
        for sql, given, index, rows in questions(PostgresDialect()):
            answer = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}".encode(), given).fetchone()
            assert answer is not None
            plan = cast("dict[str, Any]", answer[0][0]["Plan"])
            assert index in indexes(plan), json.dumps(plan, indent=1)
            assert rows_touched(plan) <= rows, json.dumps(plan, indent=1)
    check_found(store)


@pytest.mark.slow
def test_sqlite_finds_what_waits_by_its_indexes(sqlite_with_tables: str, open_store: OpenStore) -> None:
    store = open_store(sqlite_with_tables)
    connection = sqlite3.connect(sqlite_with_tables.removeprefix("sqlite:///"))
    for insert in (JOBS, RUNS):
        connection.execute(f"{insert} FROM ({numbers(BACKLOG)})")
    connection.commit()
    store.transact(lambda tx: tx.apply(FOUND))
    for sql, given, index, _ in questions(SqliteDialect()):
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", given)]
        assert any(f"INDEX {index}" in step for step in plan), plan
        assert not any(step.startswith("SCAN holdfast_runs") for step in plan), plan
        scans = [step for step in plan if step.startswith("SCAN") and "holdfast_jobs" in step]
        assert all(index in step for step in scans), plan
    connection.close()
    check_found(store)


RATED = f"""
    INSERT INTO holdfast_jobs (run, number, namespace, queue, definition, kind, node, state, priority,
        epoch, attempts, max_attempts, lost_attempts, input,
        queue_position, concurrency_key, rate_limit, rate_period)
    SELECT CAST('run-' || n AS text), 1, '{NAMESPACE}', '{QUEUE}', '{DEFINITION}', 'stage', 'bill',
        CASE n % 2 WHEN 0 THEN 'limited' ELSE 'leased' END, 0, 0, 0, 3, 0, 'null', 0, 'w/bill', 60, 60000000
"""


def rate_questions(dialect: Dialect) -> Sequence[tuple[str, Parameters, str, int]]:
    """Yield the queries of idle maintenance and of a claim, which must not grow with the runs under a rate limit."""
    jobs, bound = waiting_statements(dialect)[Waiting.JOBS], dialect.bound
    rated = cast("str", searches_for(dialect)[QueuedUnderRates].sql)
    place = encode_rows(("namespace", "key"), [(NAMESPACE, "w/bill")])
    wanted = encode_rows(("namespace", "key", "most"), [(NAMESPACE, "w/bill", 3)])
    everywhere: Parameters = {"namespace": "", "key": "", "limit": 500}
    return [
        (bound(jobs.waited_for), {"places": place}, "holdfast_jobs_limited", 1),
        (bound(jobs.all_waited_for), everywhere, "holdfast_jobs_limited", 2),
        (bound(jobs.first), {"wanted": wanted, "most": 3}, "holdfast_jobs_limited", 3),
        (rated, {"places": place}, "holdfast_jobs_rate_limited", 1),
    ]


RATED_RUNS = f"""
    INSERT INTO holdfast_runs (key, namespace, id, generation, workflow, version, plan, status, queue, priority,
        created_at, updated_at, last_row, last_job, open_jobs, progress, queue_position, children, close_policy,
        reported_row, concurrency_key, rate_key, rate_limit, rate_period, rate_units, in_rate_line)
    SELECT CAST('run-' || n AS text), '{NAMESPACE}', CAST('order-' || n AS text), 1, 'orders', '1', 'f',
        CASE n % 2 WHEN 0 THEN 'pending' ELSE 'running' END, '{QUEUE}', 0, {NOW}, {NOW}, 1, 0, 0, '{{}}', n, 0,
        'cancel', 0, 'key', 'run-rate:orders', 60, 60000000, 1, 1
"""
DUE_RUNS = (
    RATED_RUNS.replace("reported_row,", "reported_row, start_at,")
    .replace("'cancel', 0,", f"'cancel', 0, {NOW} - n,")
    .replace("'run-' || n", "'late-' || n")
    .replace("'order-' || n", "'late-' || n")
)
WINDOWS = f"""
    INSERT INTO holdfast_rate_limits (namespace, name, starts, wakes_at, admits_at, updated_at)
    SELECT '{NAMESPACE}', CAST('run-rate:w/' || n AS text), '{{}}', {NOW}, {NOW} + n, {NOW}
"""


def run_rate_questions(dialect: Dialect) -> Sequence[tuple[str, Parameters, str, int]]:
    """Yield the queries of idle maintenance, and of an admission, which must not grow with the runs in a line."""
    waiting, bound = waiting_statements(dialect), dialect.bound
    rated = waiting[Waiting.RATED_RUNS]
    place = encode_rows(("namespace", "key"), [(NAMESPACE, "run-rate:orders")])
    wanted = encode_rows(("namespace", "key", "most"), [(NAMESPACE, "run-rate:orders", 3)])
    everywhere: Parameters = {"namespace": "", "key": "", "limit": 500}
    due = cast("str", searches_for(dialect)[DueRunRates].sql)
    due_runs = searches_for(dialect)[DueRuns].of_one
    return [
        (bound(rated.waited_for), {"places": place}, "holdfast_runs_rated", 1),
        (bound(rated.all_waited_for), everywhere, "holdfast_runs_rated", 2),
        (bound(rated.first), {"wanted": wanted, "most": 3}, "holdfast_runs_rated", 3),
        (bound(waiting[Waiting.RUNS].all_waited_for), everywhere, "holdfast_runs_waiting", 0),
        (bound(due), {"now": NOW + 2, "limit": 9}, "holdfast_rate_limits_due", 2),
        (
            bound(due_runs),
            {"now": NOW, "limit": 9, "namespace": "other"},
            "holdfast_runs_start_of_namespace",
            0,
        ),
    ]


@pytest.mark.slow
@pytest.mark.service
def test_postgres_does_not_read_the_runs_in_lines_of_rates(postgres_with_tables: str) -> None:
    with psycopg.connect(postgres_with_tables, autocommit=True) as connection:
        for insert in (RATED_RUNS, DUE_RUNS, WINDOWS):
            connection.execute(f"{insert} FROM generate_series(1, {BACKLOG}) AS n".encode())
        connection.execute("VACUUM ANALYZE holdfast_runs, holdfast_rate_limits")
        for sql, given, index, rows in run_rate_questions(PostgresDialect()):
            answer = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}".encode(), given).fetchone()
            assert answer is not None
            plan = cast("dict[str, Any]", answer[0][0]["Plan"])
            assert index in indexes(plan), json.dumps(plan, indent=1)
            assert rows_touched(plan) <= rows, json.dumps(plan, indent=1)


@pytest.mark.slow
def test_sqlite_does_not_read_the_runs_in_lines_of_rates(sqlite_with_tables: str) -> None:
    connection = sqlite3.connect(sqlite_with_tables.removeprefix("sqlite:///"))
    for insert in (RATED_RUNS, DUE_RUNS, WINDOWS):
        connection.execute(f"{insert} FROM ({numbers(BACKLOG)})")
    connection.commit()
    for sql, given, index, _ in run_rate_questions(SqliteDialect()):
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", given)]
        assert any(f"INDEX {index}" in step for step in plan), plan
        assert not any(
            step.startswith(("SCAN holdfast_runs", "SCAN w ")) and index not in step for step in plan
        ), plan
    connection.close()


@pytest.mark.slow
@pytest.mark.service
def test_postgres_does_not_read_those_who_wait_under_a_rate_limit(
    postgres_with_tables: str, open_store: OpenStore
) -> None:
    with psycopg.connect(postgres_with_tables, autocommit=True) as connection:
        connection.execute(f"{RATED} FROM generate_series(1, {BACKLOG}) AS n".encode())
        connection.execute("VACUUM ANALYZE holdfast_jobs")
        for sql, given, index, rows in rate_questions(PostgresDialect()):
            answer = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}".encode(), given).fetchone()
            assert answer is not None
            plan = cast("dict[str, Any]", answer[0][0]["Plan"])
            assert index in indexes(plan), json.dumps(plan, indent=1)
            assert rows_touched(plan) <= rows, json.dumps(plan, indent=1)


def test_sqlite_does_not_read_those_who_wait_under_a_rate_limit(
    sqlite_with_tables: str, open_store: OpenStore
) -> None:
    connection = sqlite3.connect(sqlite_with_tables.removeprefix("sqlite:///"))
    connection.execute(f"{RATED} FROM ({numbers(BACKLOG)})")
    connection.commit()
    for sql, given, index, _ in rate_questions(SqliteDialect()):
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", given)]
        assert any(f"INDEX {index}" in step for step in plan), plan
        assert not any(step.startswith("SCAN holdfast_jobs") for step in plan), plan
    connection.close()
