"""Look-ups by key and claims are prepared in PostgreSQL, never behind a pooler.

Their plans stay good.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, cast

import attrs
import psycopg
import pytest

from holdfast.adapters.sql.dialect import Write
from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.adapters.sql.postgresql.connection import PostgresDatabase
from holdfast.adapters.sql.postgresql.dialect import PostgresDialect
from holdfast.adapters.sql.postgresql.settings import connection_settings
from holdfast.adapters.sql.searches import keyed_reads, searches_for
from holdfast.adapters.sql.statements import writes_for
from holdfast.ports.changes import Insert
from holdfast.ports.queries.runs import RunsByKey
from holdfast.ports.records.run import Run
from holdfast.ports.searches import ClaimableJobs, DueJobs, QueueClaim
from holdfast.ports.tables import RUNS
from holdfast.testing.conformance.builders import DEFINITION, NAMESPACE, NOW, QUEUE, a_run

OpenStore = Callable[..., SqlPersistence]

pytestmark = pytest.mark.service

OFTEN = 10
LANE = QueueClaim(queue=QUEUE, definitions=(DEFINITION,), limit=1)


def work_often(store: SqlPersistence) -> None:
    """Do the same in several transactions on the only connection."""
    for _ in range(OFTEN):
        assert [run.key for run in read(store)] == [a_run(1).key]
        assert not store.transact(lambda tx: tx.find(ClaimableJobs(NAMESPACE, [LANE], 1)).jobs)
        assert not store.transact(lambda tx: tx.find(DueJobs(1), NOW))


def read(store: SqlPersistence) -> list[Run]:
    return [*store.transact(lambda tx: tx.lock(RUNS, [a_run(1).key]))]


def filled(store: SqlPersistence) -> SqlPersistence:
    store.transact(lambda tx: tx.apply([Insert(a_run(1))]))
    return store


def kept(store: SqlPersistence) -> list[str]:
    """Return the statements that the server has prepared for this store's connection."""
    with database(store).reader(10) as link:
        return [row[0] for row in link.query("SELECT statement FROM pg_prepared_statements")]


def database(store: SqlPersistence) -> PostgresDatabase:
    private: Any = store
    found: PostgresDatabase = private._database
    return found


def test_what_finds_rows_by_key_and_what_claims_is_prepared_and_what_else_searches_is_not(
    postgres_with_tables: str, open_store: OpenStore
) -> None:
    store = filled(open_store(postgres_with_tables, pool_size=1))
    work_often(store)
    statements = kept(store)
    assert any("FROM holdfast_runs" in one and "FOR UPDATE" in one for one in statements)
    assert ["picked" in one for one in statements if "SKIP LOCKED" in one] == [True]
    assert not any(one.startswith(("BEGIN", "COMMIT")) for one in statements)


@pytest.mark.slow
def test_nothing_is_prepared_where_another_process_answers_than_the_one_that_was_connected_to(
    postgres_with_tables: str, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pooler reports a process id of its own, since the server connections behind it change."""
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", property(lambda _: 1))
    store = filled(open_store(postgres_with_tables, pool_size=1))
    work_often(store)
    assert kept(store) == []


@pytest.mark.slow
def test_a_connection_whose_server_has_forgotten_what_was_prepared_is_replaced(
    postgres_with_tables: str, open_store: OpenStore
) -> None:
    store = filled(open_store(postgres_with_tables, pool_size=1))
    for _ in range(OFTEN):
        assert store.read(RunsByKey((a_run(1).key,)))
    forget(store)
    assert store.read(RunsByKey((a_run(1).key,)))
    work_often(store)
    assert kept(store)


def forget(store: SqlPersistence) -> None:
    """Deallocate the prepared statements on the server without the driver's knowledge."""
    with database(store).reader(10) as link:
        connection: Any = link
        connection._statements.connection.pgconn.exec_(b"DEALLOCATE ALL")


def statements() -> Iterator[tuple[str, str]]:
    """Yield all statements of transactions, with their names."""
    dialect = PostgresDialect()
    for table, read in keyed_reads(dialect).items():
        yield f"get {table.name}", read.get
        yield f"lock {table.name}", read.lock
    for kind, one in searches_for(dialect).items():
        of_waiters = (one.sql,) if isinstance(one.sql, str) else one.sql.values()
        yield from ((kind.__name__, sql) for sql in (*of_waiters, one.lock, one.agrees_with) if sql)
    of_sets = attrs.asdict(writes_for(dialect), recurse=False)
    for table, one in of_sets.pop("tables").items():
        writes = (one.insert, one.delete, *(update.write for update in one.updates))
        yield from ((f"write {table.name}", write.sql) for write in writes)
    for name, given in of_sets.items():
        of_set = cast("tuple[Write, ...]", given if isinstance(given, tuple) else (given,))
        yield from ((name, write.sql) for write in of_set)


def plan_of(connection: psycopg.Connection[Any], sql: str) -> str:
    """Return the generic plan, which the server would keep."""
    names: list[str] = []

    def place(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    numbered = re.sub(r"%\((\w+)\)s", place, sql)
    connection.execute(f"PREPARE asked AS {numbered}".encode())
    given = f"({', '.join('NULL' for _ in names)})" if names else ""
    rows = connection.execute(f"EXPLAIN EXECUTE asked{given}".encode()).fetchall()
    connection.execute("DEALLOCATE asked")
    return "\n".join(row[0] for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("is_analyzed", [False, True], ids=["fresh", "analyzed while empty"])
def test_no_plan_of_a_transaction_reads_a_whole_table_whatever_is_known_of_it(
    postgres_with_tables: str, open_store: OpenStore, *, is_analyzed: bool
) -> None:
    """A plan kept from when a table was empty is still used when it is large."""
    with psycopg.connect(**connection_settings(postgres_with_tables), autocommit=True) as connection:
        connection.execute("SET plan_cache_mode = force_generic_plan")
        if is_analyzed:
            connection.execute("ANALYZE")
        plans = {(name, sql): plan_of(connection, sql) for name, sql in statements()}
    assert len(plans) > 80
    assert [name for (name, _), plan in plans.items() if "Seq Scan" in plan] == []
