"""Sleeping, paused and foreign jobs cost a claim nothing, however many there are."""

import json
import re
import sqlite3
from collections.abc import Callable
from typing import Any, cast

import psycopg
import pytest

from holdfast.adapters.sql.dialect import encode_rows
from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.adapters.sql.postgresql.dialect import PostgresDialect
from holdfast.adapters.sql.postgresql.libpq import PREPARED_AFTER, StatementRunner
from holdfast.adapters.sql.postgresql.settings import connection_settings
from holdfast.adapters.sql.searches import searches_for
from holdfast.adapters.sql.sqlite.dialect import SqliteDialect
from holdfast.ports.changes import Insert
from holdfast.ports.records.job import JobState
from holdfast.ports.searches import ActiveRuns, ClaimableJobs, DueJobs, LostJobs, QueueClaim
from holdfast.testing.conformance.builders import DEFINITION, NAMESPACE, NOW, QUEUE, SECOND, a_job, a_run
from tests.sizes import sized

OpenStore = Callable[..., SqlPersistence]

pytestmark = pytest.mark.sized

ASLEEP = sized(50_000, 200_000)
COLUMNS = (
    "run, number, namespace, queue, definition, kind, node, state, priority, wake_at, "
    "epoch, attempts, max_attempts, lost_attempts, input, queue_position"
)
BACKLOG = f"""
    INSERT INTO holdfast_jobs ({COLUMNS})
    SELECT CAST('run-' || n AS text), 1, '{NAMESPACE}', '{QUEUE}',
        CASE n % 3 WHEN 2 THEN 'unknown@1' ELSE '{DEFINITION}' END, 'stage', 'bill',
        CASE n % 3 WHEN 0 THEN 'sleeping' WHEN 1 THEN 'paused' ELSE 'queued' END,
        9, CASE n % 3 WHEN 0 THEN {NOW + 100 * SECOND} + n END, 0, 0, 3, 0, 'null', 0
"""


def parameters(limit: int) -> dict[str, object]:
    lanes = [(0, QUEUE, DEFINITION, limit), (0, QUEUE, "other@1", limit), (1, "idle", DEFINITION, limit)]
    encoded = encode_rows(("claim", "queue", "definition", "most"), lanes)
    return {
        "session": "s",
        "namespace": NAMESPACE,
        "queue_claims": encoded,
        "most": limit,
        "limit": limit,
        "pass_over": "lost",
    }


def fill(store: SqlPersistence) -> None:
    store.transact(
        lambda tx: tx.apply([Insert(a_run(1)), *(Insert(a_job(1, number)) for number in range(1, 11))])
    )


def check_claims(store: SqlPersistence) -> None:
    lane = QueueClaim(queue=QUEUE, definitions=(DEFINITION, "other@1"), limit=4)
    assert [
        job.number for job in store.transact(lambda tx: tx.find(ClaimableJobs(NAMESPACE, [lane], 10)).jobs)
    ] == [
        1,
        2,
        3,
        4,
    ]
    assert tuple(store.transact(lambda tx: tx.find(DueJobs(10), NOW))) == ()
    found = store.transact(lambda tx: tx.find(DueJobs(3), NOW + 200 * SECOND))
    assert [(f"run-{n}", JobState.SLEEPING) for n in (3, 6, 9)] == [(job.run, job.state) for job in found]


def rows_touched(plan: dict[str, Any]) -> float:
    """Return the number of rows that the tables' scans returned or discarded."""
    own = 0.0
    if "Relation Name" in plan:
        own = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    return own + sum(map(rows_touched, plan.get("Plans", [])))


@pytest.mark.slow
@pytest.mark.service
def test_postgres_reads_no_row_that_it_does_not_give(
    postgres_with_tables: str, open_store: OpenStore
) -> None:
    store = open_store(postgres_with_tables)
    fill(store)
    with psycopg.connect(postgres_with_tables, autocommit=True) as connection:
        connection.execute(f"{BACKLOG} FROM generate_series(1, {ASLEEP}) AS n".encode())
        for analyzed in (False, True):
            if analyzed:
                connection.execute("VACUUM ANALYZE holdfast_jobs")
            searches = searches_for(PostgresDialect())
            for sql, given, rows, buffers in (
                # PostgreSQL rounds the average of the three loops up.
                (searches[ClaimableJobs].lock, parameters(5), 6, 60),
                (searches[ClaimableJobs].lock, parameters(50), 12, 100),
                (searches[DueJobs].lock, {"now": NOW, "limit": 100, "kind": ""}, 0, 10),
                (searches[LostJobs].sql, {"limit": 100}, 0, 10),
            ):
                explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}".encode()
                answer = connection.execute(explain, given).fetchone()
                assert answer is not None
                plan = cast("dict[str, Any]", answer[0][0]["Plan"])
                assert rows_touched(plan) <= rows, json.dumps(plan, indent=1)
                assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] <= buffers
    check_claims(store)


@pytest.mark.slow
@pytest.mark.service
def test_a_plan_of_a_claim_that_postgres_has_kept_since_there_were_no_jobs_reads_no_row_that_it_does_not_give(
    postgres_with_tables: str, open_store: OpenStore
) -> None:
    """It is a generic plan. Nobody analyses the table before the backlog comes, nor after."""
    store = open_store(postgres_with_tables)
    settings = connection_settings(postgres_with_tables)
    with psycopg.connect(**settings, autocommit=True) as connection:
        connection.execute("ALTER TABLE holdfast_jobs SET (autovacuum_enabled = false)")
        connection.execute("SET plan_cache_mode = force_generic_plan")
        link = StatementRunner(connection, prepares=True)
        sql = searches_for(PostgresDialect())[ClaimableJobs].lock
        given = parameters(5)
        for _ in range(PREPARED_AFTER + 1):
            assert link.make(sql, given, prepared=True).rows() == []
        fill(store)
        connection.execute(f"{BACKLOG} FROM generate_series(1, {ASLEEP}) AS n".encode())
        explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE {kept(connection)}".encode()
        for analyzed in (False, True):
            if analyzed:
                connection.execute("VACUUM ANALYZE holdfast_jobs")
            answer = connection.execute(explain).fetchone()
            assert answer is not None
            plan = cast("dict[str, Any]", answer[0][0]["Plan"])
            assert set(index_scans(plan)) == {
                *("holdfast_jobs_claim", "holdfast_sessions_pkey", "holdfast_limits_pkey")
            }, json.dumps(plan, indent=1)
            assert rows_touched(plan) <= 6, json.dumps(plan, indent=1)
            assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] <= 60


def kept(connection: psycopg.Connection[Any]) -> str:
    """Return a call of the connection's only prepared statement, for the queues in `parameters`."""
    answer = connection.execute("SELECT name, statement FROM pg_prepared_statements").fetchall()
    ((name, statement),) = answer
    given = parameters(5)
    places = re.findall(r"%\((\w+)\)s", searches_for(PostgresDialect())[ClaimableJobs].lock)
    assert f"${len(set(places))}" in statement
    texts = [str(given[place]).replace("'", "''") for place in dict.fromkeys(places)]
    quoted = ", ".join(f"'{text}'" for text in texts)
    return f"{name}({quoted})"


def index_scans(plan: dict[str, Any]) -> list[str]:
    """Return the index by which a plan finds a table's rows; "" for none."""
    own = [plan.get("Index Name", "")] if "Relation Name" in plan else []
    return own + [name for part in plan.get("Plans", []) for name in index_scans(part)]


@pytest.mark.slow
def test_sqlite_finds_jobs_by_the_claim_index(sqlite_with_tables: str, open_store: OpenStore) -> None:
    store = open_store(sqlite_with_tables)
    fill(store)
    connection = sqlite3.connect(sqlite_with_tables.removeprefix("sqlite:///"))
    numbers = (
        f"WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {ASLEEP}) SELECT n FROM s"
    )
    connection.execute(f"{BACKLOG} FROM ({numbers})")
    connection.commit()
    searches = searches_for(SqliteDialect())
    for sql, given, index in (
        (
            searches[ClaimableJobs].lock,
            parameters(5),
            "INDEX holdfast_jobs_claim (namespace=? AND queue=? AND definition=?)",
        ),
        (
            searches[DueJobs].lock,
            {"now": NOW, "limit": 5, "kind": ""},
            "INDEX holdfast_jobs_sleeping (wake_at<?)",
        ),
        (searches[ActiveRuns].sql, {"after": "", "limit": 5}, "INDEX holdfast_runs_active (key>?)"),
    ):
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", given)]
        assert any(index in step for step in plan), plan
        # Whether there is any changed limit is known from the first row.
        scanned = [step for step in plan if step.startswith("SCAN") and "holdfast_" in step]
        assert all(step.startswith("SCAN holdfast_limits ") for step in scanned), plan
    connection.close()
    check_claims(store)
