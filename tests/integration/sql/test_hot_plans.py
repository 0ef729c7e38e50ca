"""The statements of every claim, step, heartbeat and look at a run find their rows by the indexes made for them."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Final, cast

import psycopg
import pytest
from attrs import evolve
from psycopg import sql as compose

from holdfast.adapters.sql.database import Database, Link
from holdfast.adapters.sql.dialect import LONG_TEXT, encode_rows
from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.adapters.sql.postgresql.dialect import PostgresDialect
from holdfast.adapters.sql.postgresql.row_cache import versions_for
from holdfast.adapters.sql.postgresql.settings import connection_settings
from holdfast.adapters.sql.queries.handlers import Answers
from holdfast.adapters.sql.rows import history_values, values_of
from holdfast.adapters.sql.searches import keyed_reads, searches_for
from holdfast.adapters.sql.statements import writes_for
from holdfast.ports import tables
from holdfast.ports.changes import Change, Insert
from holdfast.ports.pagination import ListPlace
from holdfast.ports.persistence import Query
from holdfast.ports.queries.history import HistoriesOf, HistoryOf, LastHeartbeat
from holdfast.ports.queries.runs import ListRuns, RunFilter, RunsByKey
from holdfast.ports.records.history import HEARTBEAT
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.records.values import Payload
from holdfast.ports.searches import ClaimableJobs, LatestRuns, LatestRunsAndDrivers, OverdueHeartbeats
from holdfast.testing.conformance.builders import (
    DEFINITION,
    NAMESPACE,
    NOW,
    QUEUE,
    SECOND,
    a_job,
    a_key,
    a_leased_job,
    a_note,
    a_row,
    a_run,
    a_session,
)
from tests.integration.sql.test_waiting_backlog import Asked

OpenStore = Callable[..., SqlPersistence]
Statement = tuple[str, str, Mapping[str, object], set[str]]

pytestmark = pytest.mark.service

RUNS: Final = 3_000
ONE: Final = RUNS // 2
"""The run, job, session and note that the statements are about."""
KEYS: Final = "holdfast_runs_pkey"
"""The index of runs by key."""
EVERY: Final = RunFilter(namespace=NAMESPACE)
FAILED: Final = evolve(EVERY, statuses=frozenset({RunStatus.FAILED}))
OF_WORKFLOW: Final = evolve(FAILED, workflow="workflow-7")


def records() -> Iterator[Change]:
    """Yield runs of twenty workflows, each with a job, three history rows, a session, and a heartbeat."""
    for number in range(1, RUNS + 1):
        is_leased = number % 2 == 0
        leased = evolve(a_leased_job(number, session=a_key(number)), heartbeat_by=NOW + number * SECOND)
        status = (RunStatus.RUNNING, RunStatus.FAILED, RunStatus.COMPLETED)[number % 3]
        yield Insert(a_run(number, workflow=f"workflow-{number % 20}", status=status, last_row=3, last_job=1))
        yield Insert(leased if is_leased else a_job(number))
        yield from (Insert(a_row(number, row)) for row in (1, 2, 3))
        yield Insert(a_session(number))
        yield Insert(a_note(number, number, kind=HEARTBEAT))


def answered(query: Query[Any]) -> tuple[str, Mapping[str, object]]:
    """Return the statement that answers a query, and its parameters."""
    link = Asked()
    database = cast("Database", SimpleNamespace(dialect=PostgresDialect(), clock_sql=None))
    Answers(database).answer(cast("Link", link), query)
    (asked,) = link.asked
    return asked


def hot() -> Iterator[Statement]:
    """Yield what each statement does, its text, its parameters, and the indexes by which it finds rows."""
    dialect = PostgresDialect()
    reads, searches = keyed_reads(dialect), searches_for(dialect)
    writes, versions = writes_for(dialect), versions_for(dialect)
    of_runs, of_jobs, of_history = (
        writes.tables[table] for table in (tables.RUNS, tables.JOBS, tables.HISTORY)
    )
    key, job = a_key(ONE), a_leased_job(ONE, session=a_key(ONE))
    lanes = [(0, QUEUE, DEFINITION, 10), (0, "idle", DEFINITION, 10)]
    claims = encode_rows(("claim", "queue", "definition", "most"), lanes)
    claim = {
        "session": key,
        "namespace": NAMESPACE,
        "queue_claims": claims,
        "limit": 10,
        "pass_over": "nothing",
    }
    by = {"holdfast_jobs_claim", "holdfast_sessions_pkey", "holdfast_limits_pkey"}
    yield "claim", searches[ClaimableJobs].lock, claim, by

    pair = {"keys": encode_rows(("run", "number"), [(key, 1)])}
    yield "lock runs", reads[tables.RUNS].lock, {"keys": [key]}, {KEYS}
    yield "lock jobs", reads[tables.JOBS].lock, pair, {"holdfast_jobs_pkey"}
    yield "read sessions", reads[tables.SESSIONS].get, {"keys": [key]}, {"holdfast_sessions_pkey"}
    yield "lock a run", versions.run, {"run": key}, {KEYS}
    yield "lock a job", versions.job, {"run": key, "number": 1}, {"holdfast_jobs_pkey"}
    lease = {"run": key, "session": key, "input": 1}
    yield "read a lease", versions.lease, lease, {KEYS, "holdfast_sessions_pkey", "holdfast_history_pkey"}
    for latest, with_jobs in ((LatestRuns, False), (LatestRunsAndDrivers, True)):
        for number in (1, 2):
            names = [a_run(at).name for at in range(1, number + 1)]
            search = searches[latest].chosen(latest(names))
            found_by = search.parameters(dialect, latest(names), NOW) or {}
            what = f"{latest.__name__}, {number}"
            yield f"{what}: runs", search.lock, found_by, {"holdfast_runs_name"}
            yield f"{what}: keys", search.agrees_with, found_by, {"holdfast_runs_name"}
            if with_jobs:
                yield f"{what}: jobs", search.jobs, found_by, {"holdfast_runs_name", "holdfast_jobs_pkey"}
    history = encode_rows(of_history.insert.columns, [history_values(a_row(ONE, 4))])
    known = {
        "key": key,
        "run_version": "1",
        "job_version": "1",
        "session": key,
        "session_version": "1",
        "job": 1,
        "rows": history,
        "receipt": "r",
    }
    checked = {KEYS, "holdfast_jobs_pkey", "holdfast_sessions_pkey"}
    for what, sql, write in (
        ("store a step", versions.step, of_runs.updates[0].write),
        ("store an end", versions.end, of_runs.updates[1].write),
        ("store a long step", versions.long_step, of_runs.updates[0].write),
        ("store a long end", versions.long_end, of_runs.updates[1].write),
    ):
        run = dict(zip(write.columns, values_of(Run, write.columns)(a_run(ONE)), strict=True))
        texts = {"texts": ["x" * LONG_TEXT]} if "long" in what else {}
        yield what, sql, {**run, **known, **texts}, checked
    for update in of_runs.updates:
        write, rows = update.write, encode_rows(update.write.columns, [update.values(a_run(ONE))])
        yield f"settle a run, {len(write.columns)} columns", write.sql, {"rows": rows}, {KEYS}
    for update in of_jobs.updates:
        write, rows = update.write, encode_rows(update.write.columns, [update.values(job)])
        yield f"update a job, {len(write.columns)} columns", write.sql, {"rows": rows}, {"holdfast_jobs_pkey"}
    ended = {"rows": encode_rows(("run", "number"), [(key, 1)])}
    yield "delete a job", of_jobs.delete.sql, ended, {"holdfast_jobs_pkey"}

    overdue = {"before": NOW + 20 * SECOND, "limit": 100}
    yield (
        "overdue heartbeats",
        cast("str", searches[OverdueHeartbeats].sql),
        overdue,
        {"holdfast_jobs_heartbeat"},
    )
    last = answered(LastHeartbeat(run=key, job=1, before=2))
    yield "last heartbeat", *last, {"holdfast_attempt_output_heartbeats"}

    yield "insert history", of_history.insert.sql, {"rows": history}, set()
    several = of_history.insert.encoded([history_values(a_row(ONE, number)) for number in (4, 5)])
    yield "insert several rows of history", *several, set()
    long = Payload(inline='"' + "x" * LONG_TEXT + '"')
    yield (
        "insert a long text",
        *of_history.insert.encoded_with_lists([history_values(a_row(ONE, 4, payload=long))]),
        set(),
    )

    yield "read a history", *answered(HistoryOf(key, after=1, limit=100)), {"holdfast_history_pkey"}
    places = HistoriesOf(tuple((a_key(one), 1) for one in range(1, 4)))
    yield "read histories", *answered(places), {"holdfast_history_pkey"}
    yield "read runs", *answered(RunsByKey((key,))), {KEYS}

    for what, which, index in (
        ("list runs", EVERY, "holdfast_runs_listed"),
        ("list failed runs", FAILED, "holdfast_runs_by_status"),
        ("list failed runs of a workflow", OF_WORKFLOW, "holdfast_runs_by_workflow"),
    ):
        for after in (None, ListPlace(NOW + ONE, key)):
            query = ListRuns(which, after=after, limit=10)
            yield f"{what} after {after}", *answered(query), {index}


def scans(plan: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield how each part of a plan finds rows of a table, and its index, "" for none."""
    if plan["Node Type"] in {"Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Index Scan"}:
        yield plan["Node Type"], plan.get("Index Name", "")
    for part in plan.get("Plans", []):
        yield from scans(part)


def plan_of(connection: psycopg.Connection[Any], sql: str, given: Mapping[str, object]) -> dict[str, Any]:
    """Return the plan of a statement that was prepared, as the server keeps it or makes it for these parameters."""
    names = [*dict.fromkeys(re.findall(r"%\((\w+)\)s", sql))]
    numbered = re.sub(r"%\((\w+)\)s", lambda place: f"${names.index(place[1]) + 1}", sql)
    connection.execute(f"PREPARE hot AS {numbered}".encode())
    values = compose.SQL(", ").join(compose.Literal(given[name]) for name in names)
    answer = connection.execute(
        compose.SQL("EXPLAIN (FORMAT JSON) EXECUTE hot ({})").format(values)
    ).fetchone()
    connection.execute("DEALLOCATE hot")
    assert answer is not None
    return cast("dict[str, Any]", answer[0][0]["Plan"])


@pytest.mark.slow
def test_every_hot_statement_finds_rows_by_its_index(
    postgres_with_tables: str, open_store: OpenStore
) -> None:
    """On connections of Holdfast, whether the server plans for the parameters or has kept a generic plan."""
    store = open_store(postgres_with_tables)
    store.transact(lambda tx: tx.apply(list(records())))
    with psycopg.connect(**connection_settings(postgres_with_tables), autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
        for mode in ("force_custom_plan", "force_generic_plan"):
            connection.execute(f"SET plan_cache_mode = {mode}".encode())
            for what, sql, given, indexes in hot():
                plan = plan_of(connection, sql, given)
                found = set(scans(plan))
                shown = f"{what}, {mode}: {json.dumps(plan, indent=1)}"
                assert not {way for way in found if way[0] == "Seq Scan"}, shown
                assert {index for _, index in found} == indexes, shown
