"""Firing reads what is due, however many schedules there are: plans of PostgreSQL, and instructions of SQLite."""

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any, Final, cast

import psycopg
import pytest
from psycopg import sql as compose

from holdfast.adapters.sql.dialect import Dialect
from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.adapters.sql.postgresql.dialect import PostgresDialect
from holdfast.adapters.sql.postgresql.settings import connection_settings
from holdfast.adapters.sql.searches import SqlSearch, searches_for
from holdfast.adapters.sql.sqlite.dialect import SqliteDialect
from holdfast.ports.changes import Insert
from holdfast.ports.persistence import Persistence
from holdfast.ports.searches import DueSchedules, NextScheduleTime, Search
from holdfast.testing.conformance.builders import NAMESPACE, NOW, a_schedule
from tests.integration.sql.test_hot_plans import scans
from tests.sizes import sized

OpenStore = Callable[..., SqlPersistence]

pytestmark = pytest.mark.sized

SCHEDULES: Final = sized(3_000, 100_000)
WORKFLOWS: Final = tuple(f"workflow-{number}" for number in range(5))
"""Those of the host; there are four times as many."""
LIMIT: Final = 10
NEXT: Final = "holdfast_schedules_next"
KEYS: Final = "holdfast_schedules_pkey"


def fill(store: Persistence, due: int, schedules: int = SCHEDULES) -> None:
    """Store schedules of twenty workflows, the first ones of which are due, all since the same instant."""
    rows = [
        a_schedule(
            number,
            name=f"schedule-{number:06d}",
            workflow=f"workflow-{number % 20}",
            next_at=NOW if number < due else NOW + 1 + number,
        )
        for number in range(schedules)
    ]
    for first in range(0, schedules, 5_000):
        store.transact(lambda tx, first=first: tx.apply([*map(Insert, rows[first : first + 5_000])]))  # type: ignore[misc]


SEARCHES: Final[tuple[Search[Any], ...]] = (
    DueSchedules(NAMESPACE, WORKFLOWS, LIMIT),
    NextScheduleTime(NAMESPACE, WORKFLOWS),
)


def statement_of(dialect: Dialect, search: Search[Any]) -> tuple[str, Mapping[str, object]]:
    """Return the statement of a search, and its parameters."""
    by: SqlSearch = searches_for(dialect)[type(search)]
    parameters = by.parameters(dialect, search, NOW)
    assert parameters is not None
    return cast("str", by.lock or by.sql), cast("Mapping[str, object]", parameters)


def parts(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield each part of a plan."""
    yield plan
    for part in plan.get("Plans", []):
        yield from parts(part)


def rows_read(plan: dict[str, Any]) -> int:
    """Return how many rows of tables a plan has read, those that it dropped included."""
    return sum(
        part["Actual Loops"] * (part["Actual Rows"] + part.get("Rows Removed by Filter", 0))
        for part in parts(plan)
        if part.get("Index Name") or part["Node Type"] == "Seq Scan"
    )


def measured(connection: psycopg.Connection[Any], search: Search[Any]) -> dict[str, Any]:
    """Return the plan of a search as it was carried out, prepared as Holdfast's connections prepare it."""
    text, given = statement_of(PostgresDialect(), search)
    names = sorted(name for name in given if f"%({name})s" in text)
    for number, name in enumerate(names, 1):
        text = text.replace(f"%({name})s", f"${number}")
    connection.execute(f"PREPARE hot AS {text}".encode())
    values = compose.SQL(", ").join(compose.Literal(given[name]) for name in names)
    explain = compose.SQL("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE hot ({})").format(values)
    answer = connection.execute(explain).fetchone()
    connection.execute("DEALLOCATE hot")
    assert answer is not None
    return cast("dict[str, Any]", answer[0][0]["Plan"])


@pytest.mark.slow
@pytest.mark.service
@pytest.mark.parametrize("due", [0, 40, SCHEDULES])
def test_postgresql_reads_what_is_due(postgres_with_tables: str, open_store: OpenStore, due: int) -> None:
    """By the indexes, with plans made for the parameters and generic ones, also with old statistics."""
    store = open_store(postgres_with_tables)
    store.transact(lambda tx: tx.apply([Insert(a_schedule(SCHEDULES + 1, workflow="other"))]))
    with psycopg.connect(**connection_settings(postgres_with_tables), autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE holdfast_schedules")
        fill(store, due)
        for analyzed in (False, True):
            if analyzed:
                connection.execute("VACUUM ANALYZE holdfast_schedules")
            for mode in ("force_custom_plan", "force_generic_plan"):
                connection.execute(f"SET plan_cache_mode = {mode}".encode())
                of_due, of_next = (measured(connection, search) for search in SEARCHES)
                shown = f"{mode}, analyzed: {analyzed}: {json.dumps([of_due, of_next], indent=1)}"
                found = set(scans(of_due))
                assert {index for _, index in found} == {NEXT, KEYS}, shown
                assert not {way for way, _ in found} & {"Seq Scan"}, shown
                # Of each workflow, the candidates; then of these, the rows.
                candidates = min(due // 4, len(WORKFLOWS) * 10 * LIMIT)
                assert rows_read(of_due) <= candidates + min(due // 4, 10 * LIMIT), shown
                assert of_due["Actual Rows"] == min(due // 4, LIMIT), shown
                assert {index for _, index in scans(of_next)} == {NEXT}, shown
                assert rows_read(of_next) <= len(WORKFLOWS), shown


def instructions(path: str, search: Search[Any]) -> tuple[int, int]:
    """Return how many rows SQLite finds, and how many instructions that takes it, in tens."""
    text, given = statement_of(SqliteDialect(), search)
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    with closing(sqlite3.connect(path)) as connection:
        connection.set_progress_handler(count, 10)
        rows = connection.execute(text, dict(given)).fetchall()
    return len(rows), counted


@pytest.mark.slow
def test_sqlite_reads_what_is_due(
    new_sqlite: Callable[[Any], str], tmp_path: Any, open_store: OpenStore
) -> None:
    """A hundred schedules that are not due, or all, cost the same."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for schedules, due in ((200, 0), (SCHEDULES, 0), (200, 40), (SCHEDULES, 40)):
        path = tmp_path / f"{schedules}-{due}.db"
        fill(open_store(new_sqlite(path)), due, schedules)
        found[schedules, due] = [instructions(str(path), search) for search in SEARCHES]

    for due in (0, 40):
        assert found[SCHEDULES, due] == found[200, due]
        assert found[200, due][0][0] == min(due // 4, LIMIT)
    (_, without), (_, with_some) = found[200, 0][0], found[200, 40][0]
    assert without < with_some


def test_workflows_without_schedules_cost_a_lookup(new_sqlite: Callable[[Any], str], tmp_path: Any) -> None:
    """Instructions grow with the names of the host, not with the schedules of others."""
    names = tuple(f"none-{number}" for number in range(10))
    path = tmp_path / "few.db"
    url = new_sqlite(path)
    store = SqlPersistence(url)
    fill(store, 100, 400)
    store.close()
    for search in (DueSchedules(NAMESPACE, names, LIMIT), NextScheduleTime(NAMESPACE, names)):
        rows, counted = instructions(str(path), search)
        assert rows in {0, len(names)}
        assert counted < 10 * len(names) + 30
