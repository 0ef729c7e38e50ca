"""A search of runs reads little more than its result, however many other runs there are."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import product
from typing import Any, Final, cast

import psycopg
import pytest
from attrs import evolve
from sqlalchemy import create_engine, text

from holdfast.adapters.sql.dialect import Dialect
from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.adapters.sql.postgresql.dialect import PostgresDialect
from holdfast.adapters.sql.queries.runs import SqlQuery, attribute_rows, pair, runs_counted, runs_listed
from holdfast.adapters.sql.sqlite.dialect import SqliteDialect
from holdfast.ports.changes import Insert
from holdfast.ports.json import canonical
from holdfast.ports.pagination import ListPlace
from holdfast.ports.queries.runs import CountRuns, ListRuns, RunFilter
from holdfast.ports.records.run import RunStatus
from holdfast.ports.search_values import ValueMatch, ValueSource, code_of, index_key, span_of
from holdfast.testing.conformance.builders import NAMESPACE, NOW, a_run
from tests.integration.sql.test_backlog import rows_touched
from tests.sizes import sized

pytestmark = pytest.mark.sized

OpenStore = Callable[..., SqlPersistence]

RUNS: Final = sized(40_000, 100_000)
RARE: Final = 1_000
"""Of so many runs, one has another workflow, two failed, one runs, and one is the customer's."""

COLUMNS = (
    "key, namespace, id, generation, workflow, version, plan, status, queue, priority, created_at, updated_at, "
    "last_row, last_job, open_jobs, progress, queue_position, children, close_policy, reported_row, in_rate_line"
)
MANY_RUNS = f"""
    INSERT INTO holdfast_runs ({COLUMNS})
    SELECT CAST('run' || (1000000 + n) AS text), '{NAMESPACE}', CAST('id-' || n AS text), 1,
        CASE n % {RARE} WHEN 1 THEN 'rare' ELSE 'orders' END, '1', 'f',
        CASE n % {RARE} WHEN 1 THEN 'failed' WHEN 2 THEN 'failed' WHEN 3 THEN 'running' ELSE 'completed' END,
        'main', 0, {NOW} + n, {NOW} + n, 0, 0, 0, '{{}}', 0, 0, 'cancel', 0, 0
"""
MANY_ATTRIBUTES = f"""
    INSERT INTO holdfast_attributes (pair, created_at, run)
    SELECT CASE WHEN n % {RARE} = 4 THEN '{pair(NAMESPACE, "customer", "c-7")}'
        ELSE '{pair(NAMESPACE, "customer", "others")}' END, {NOW} + n, CAST('run' || (1000000 + n) AS text)
"""
MIDDLE: Final = RUNS // 2

EVERY = RunFilter(namespace=NAMESPACE)
FAILED = evolve(EVERY, statuses=frozenset({RunStatus.FAILED}))
TWO = evolve(EVERY, statuses=frozenset({RunStatus.FAILED, RunStatus.RUNNING}))
RARELY = evolve(EVERY, workflow="rare")
RARELY_FAILED = evolve(RARELY, statuses=frozenset({RunStatus.FAILED}))
OF_CUSTOMER = evolve(EVERY, attributes=(("customer", "c-7"),))
OF_A_TIME = evolve(EVERY, created_from=NOW + MIDDLE - 500, created_before=NOW + MIDDLE + 500)

_FILTERS: Final = {
    "all": (EVERY, "holdfast_runs_listed"),
    "time": (OF_A_TIME, "holdfast_runs_listed"),
    "completed": (evolve(EVERY, statuses=frozenset({RunStatus.COMPLETED})), "holdfast_runs_by_status"),
    "status": (FAILED, "holdfast_runs_by_status"),
    "statuses": (TWO, "holdfast_runs_by_status"),
    "status and time": (evolve(TWO, created_before=NOW + MIDDLE), "holdfast_runs_by_status"),
    "workflow": (RARELY, "holdfast_runs_by_workflow"),
    "workflow and status": (RARELY_FAILED, "holdfast_runs_by_workflow"),
    "workflow and time": (evolve(RARELY, created_from=NOW + MIDDLE), "holdfast_runs_by_workflow"),
    "attribute": (OF_CUSTOMER, "holdfast_attributes"),
    "attribute and time": (evolve(OF_CUSTOMER, created_before=NOW + MIDDLE), "holdfast_attributes"),
}
FILTERS: Final = _FILTERS | {
    f"{name}, newest": (evolve(which, newest=True), index) for name, (which, index) in _FILTERS.items()
}
LIMIT: Final = 10


POSTGRES: Final = PostgresDialect()
SQLITE: Final = SqliteDialect()
FEW: Final = "id-1234"
"""So the ids of at most 11 runs begin, whatever the size of the test."""
BY_ID: Final = {
    "id": evolve(EVERY, id_prefix=FEW),
    "id and status": evolve(TWO, id_prefix=FEW),
    "id and workflow": evolve(RARELY, id_prefix=FEW),
    "id, newest": evolve(EVERY, id_prefix=FEW, newest=True),
    "ids": evolve(EVERY, ids=frozenset({"id-7", "id-77", "absent"})),
    "ids and status, newest": evolve(TWO, ids=frozenset({"id-7", "id-77"}), newest=True),
}
CENTS: Final = 3
"""The numbers of so many runs are in a range."""


def values(low: float, high: float, name: str = "cents") -> ValueMatch:
    """A range of numbers: the run with the number n has the value n."""
    return ValueMatch(source=ValueSource.ANNOTATION, name=name, span=span_of(low, high))


_A_FEW: Final = (values(MIDDLE, MIDDLE + CENTS),)
_ONE_OF: Final = (
    ValueMatch(source=ValueSource.ANNOTATION, name="cents", codes=tuple(code_of(n) or "" for n in (7, 8, 9))),
)
BY_VALUE: Final = {
    "range": evolve(EVERY, values=_A_FEW),
    "range, newest": evolve(EVERY, values=_A_FEW, newest=True),
    "range and status": evolve(TWO, values=_A_FEW),
    "range and workflow": evolve(RARELY, values=_A_FEW),
    "range and workflow and status": evolve(RARELY_FAILED, values=_A_FEW),
    "range and time": evolve(OF_A_TIME, values=_A_FEW),
    "range and another": evolve(EVERY, values=(*_A_FEW, values(0, MIDDLE + 1))),
    "range and queue": evolve(EVERY, values=_A_FEW, queue="main"),
    "one of": evolve(EVERY, values=_ONE_OF),
    "children": evolve(EVERY, children_of="parent-7"),
    "children, newest": evolve(EVERY, children_of="parent-7", newest=True),
    "children and status": evolve(TWO, children_of="parent-7"),
    "children and workflow and status": evolve(RARELY_FAILED, children_of="parent-7"),
    "children and range": evolve(EVERY, children_of="parent-7", values=_A_FEW),
}


def value_questions(dialect: Dialect) -> Iterator[tuple[str, SqlQuery]]:
    """A list in both orders, its second page, and counts of each filter."""
    for name, which in BY_VALUE.items():
        for question in (
            runs_listed(ListRuns(which, limit=LIMIT), dialect),
            runs_listed(ListRuns(which, limit=LIMIT, oldest_first=True), dialect),
            runs_listed(ListRuns(which, after=ListPlace(NOW + MIDDLE, "run"), limit=LIMIT), dialect),
            runs_counted(CountRuns(which), dialect),
            runs_counted(CountRuns(which, at_most=10_000), dialect),
        ):
            assert question is not None
            yield name, question


@pytest.mark.service
def test_postgres_reads_few_rows_for_a_range_of_few_values(postgres_with_tables: str) -> None:
    """Also with other filters, whose own indexes would give many more."""
    with psycopg.connect(postgres_with_tables, autocommit=True) as connection:
        connection.execute(f"{MANY_RUNS} FROM generate_series(1, {RUNS}) AS n".encode())
        with (
            connection.cursor() as cursor,
            cursor.copy("COPY holdfast_attributes (pair, created_at, run) FROM STDIN") as copy,
        ):
            for n in range(1, RUNS + 1):
                key = index_key(ValueSource.ANNOTATION, NAMESPACE, "cents", code_of(n) or "")
                copy.write_row((key, NOW + n, f"run{1_000_000 + n}"))
        children = f"UPDATE holdfast_runs SET parent_run = 'parent-' || created_at % {RUNS // 4}"
        connection.execute(children.encode())
        connection.execute("VACUUM ANALYZE holdfast_runs, holdfast_attributes")
        for name, question in value_questions(POSTGRES):
            sql = f"EXPLAIN (ANALYZE, FORMAT JSON) {POSTGRES.bound(question.sql)}"
            answer = connection.execute(sql.encode(), question.parameters).fetchone()
            assert answer is not None
            plan = cast("dict[str, Any]", answer[0][0]["Plan"])
            # The planner may read the runs of the rare workflow first, which are few too.
            most = 60 + 3 * RUNS // RARE
            assert rows_touched(plan) <= most, (name, rows_touched(plan), json.dumps(plan, indent=1))


def test_sqlite_finds_values_and_children_by_their_indexes(sqlite_with_tables: str) -> None:
    with closing(sqlite3.connect(sqlite_with_tables.removeprefix("sqlite:///"))) as connection:
        for name, question in value_questions(SQLITE):
            sql = f"EXPLAIN QUERY PLAN {question.sql}"
            plan = [row[3] for row in connection.execute(sql, question.parameters)]
            searches = [step for step in plan if step.startswith("SEARCH")]
            found = (
                "holdfast_runs_of_parent" if "children" in name else "sqlite_autoindex_holdfast_attributes_1"
            )
            assert found in searches[0], (name, plan)
            of_lists = ("holdfast_runs_listed", "holdfast_runs_by_", "SCAN r", "SCAN holdfast", "SCAN valued")
            assert not any(one in step for step in plan for one in of_lists), (name, plan)


def questions(dialect: Dialect) -> Iterator[tuple[str, str, int, SqlQuery]]:
    """Each filter with its index and the rows it may cost, in both orders, from two cursors."""
    for name, (which, index) in FILTERS.items():
        # A row for each status that is asked for and gives nothing, or an attribute's beside its run's.
        most = LIMIT * (2 if which.attributes else 1) + max(3, len(which.statuses))
        for after, oldest_first in product((None, ListPlace(NOW + MIDDLE, "run")), (False, True)):
            question = runs_listed(
                ListRuns(which, after=after, oldest_first=oldest_first, limit=LIMIT), dialect
            )
            assert question is not None
            yield name, index, most, question


@pytest.mark.slow
@pytest.mark.service
def test_postgres_reads_little_more_than_it_gives(postgres_with_tables: str, open_store: OpenStore) -> None:
    """Once it has statistics, which autovacuum updates when tables have grown by a tenth."""
    with psycopg.connect(postgres_with_tables, autocommit=True) as connection:
        for sql in (MANY_RUNS, MANY_ATTRIBUTES):
            connection.execute(f"{sql} FROM generate_series(1, {RUNS}) AS n".encode())
        connection.execute("VACUUM ANALYZE holdfast_runs, holdfast_attributes")
        # PostgreSQL 18 reads some rows of each status ahead and sorts them.
        ahead = 4 if connection.info.server_version >= 180_000 else 1
        for name, _, most, question in questions(POSTGRES):
            sql = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {PostgresDialect().bound(question.sql)}"
            answer = connection.execute(sql.encode(), question.parameters).fetchone()
            assert answer is not None
            plan = cast("dict[str, Any]", answer[0][0]["Plan"])
            assert rows_touched(plan) <= most * ahead, (name, json.dumps(plan, indent=1))
            assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] <= 80, name


@pytest.mark.slow
@pytest.mark.service
def test_postgres_finds_ids_and_those_that_begin_alike_in_their_index(postgres_with_tables: str) -> None:
    """A few are read and sorted, in lists and in counts. If all ids begin so, the list is read in its order."""
    with psycopg.connect(postgres_with_tables, autocommit=True) as connection:
        connection.execute(f"{MANY_RUNS} FROM generate_series(1, {RUNS}) AS n".encode())
        connection.execute("VACUUM ANALYZE holdfast_runs")

        def read(question: SqlQuery | None) -> dict[str, Any]:
            assert question is not None
            sql = f"EXPLAIN (ANALYZE, FORMAT JSON) {PostgresDialect().bound(question.sql)}"
            answer = connection.execute(sql.encode(), question.parameters).fetchone()
            assert answer is not None
            return cast("dict[str, Any]", answer[0][0]["Plan"])

        for name, which in BY_ID.items():
            for question in (
                runs_listed(ListRuns(which, limit=LIMIT), POSTGRES),
                runs_counted(CountRuns(which), POSTGRES),
                runs_counted(CountRuns(which, at_most=10_000), POSTGRES),
            ):
                plan = read(question)
                assert rows_touched(plan) <= 100, (name, json.dumps(plan, indent=1))
        plan = read(runs_listed(ListRuns(evolve(EVERY, id_prefix="id-"), limit=LIMIT), POSTGRES))
        assert rows_touched(plan) <= 2 * LIMIT, json.dumps(plan, indent=1)


def test_sqlite_finds_ids_and_those_that_begin_alike_in_their_index(sqlite_with_tables: str) -> None:
    with closing(sqlite3.connect(sqlite_with_tables.removeprefix("sqlite:///"))) as connection:
        for name, which in BY_ID.items():
            for question in (
                runs_listed(ListRuns(which, limit=LIMIT), SQLITE),
                runs_counted(CountRuns(which), SQLITE),
            ):
                assert question is not None
                sql = f"EXPLAIN QUERY PLAN {question.sql}"
                plan = [row[3] for row in connection.execute(sql, question.parameters)]
                found = "(namespace=? AND id=?)" if which.ids else "(namespace=? AND id>? AND id<?)"
                assert any(found in step for step in plan), (name, plan)
                of_lists = ("holdfast_runs_listed", "holdfast_runs_by_", "SCAN r", "SCAN named")
                assert not any(one in step for step in plan for one in of_lists), (name, plan)


def test_sqlite_finds_runs_by_an_index_in_the_order_of_the_list(
    sqlite_with_tables: str, open_store: OpenStore
) -> None:
    connection = sqlite3.connect(sqlite_with_tables.removeprefix("sqlite:///"))
    for name, index, _, question in questions(SQLITE):
        sql = f"EXPLAIN QUERY PLAN {SqliteDialect().bound(question.sql)}"
        plan = [row[3] for row in connection.execute(sql, question.parameters)]
        tables = [step for step in plan if "USING" in step and "TEMP" not in step]
        assert index in tables[0], (name, plan)
        assert all(step.startswith("SEARCH") for step in tables), (name, plan)
        assert not any(step.startswith(("SCAN r", "SCAN pair", "SCAN holdfast")) for step in plan), (
            name,
            plan,
        )
        # The merge of a status each sorts what these give, which is no more than a page.
        assert ("USE TEMP B-TREE FOR ORDER BY" in plan) == ("SCAN b0" in plan), (name, plan)
    connection.close()


def test_a_bounded_count_searches_an_index_and_sorts_nothing(sqlite_with_tables: str) -> None:
    """So it stops after as many rows as it counts."""
    with closing(sqlite3.connect(sqlite_with_tables.removeprefix("sqlite:///"))) as connection:
        for name, (which, _) in FILTERS.items():
            question = runs_counted(CountRuns(which, at_most=10), SQLITE)
            assert question is not None
            statement = f"EXPLAIN QUERY PLAN {question.sql}"
            plan = [row[3] for row in connection.execute(statement, question.parameters)]
            scans = [step for step in plan if step.startswith("SCAN") and step != "SCAN f"]
            assert scans == [], (name, plan)


def test_counting_is_one_statement_that_reads_no_run(sqlite_with_tables: str, open_store: OpenStore) -> None:
    """Only an index, unless there is a filter on attributes."""
    connection = sqlite3.connect(sqlite_with_tables.removeprefix("sqlite:///"))
    for name, (which, _) in FILTERS.items():
        question = runs_counted(CountRuns(which), SQLITE)
        assert question is not None
        plan = [
            row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {question.sql}", question.parameters)
        ]
        # What is counted of newest generations is added up: a row a status, of all runs and of older generations.
        assert not any(step.startswith("SCAN") for step in plan if step != "SCAN c"), (name, plan)
        if not which.attributes and which.created_before is None:
            searches = [step for step in plan if step.startswith("SEARCH")]
            assert "COVERING INDEX" in searches[0], (name, plan)
            assert not which.newest or "holdfast_runs_rerun" in searches[1], (name, plan)
    connection.close()


@pytest.mark.slow
def test_an_attribute_costs_a_row_and_a_run_without_any_costs_none(store: SqlPersistence, url: str) -> None:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    runs = [
        a_run(1, attributes=canonical({"a": "1", "b": "2"})),
        a_run(2),
        a_run(3, attributes=canonical({"a": "1"})),
    ]
    store.transact(lambda tx: tx.apply(list(map(Insert, runs))))

    with engine.connect() as connection:
        stored = connection.execute(text("SELECT pair, created_at, run FROM holdfast_attributes")).all()
    engine.dispose()
    assert sorted(map(tuple, stored)) == sorted(row for run in runs for row in attribute_rows(run))
    assert len(stored) == 3
