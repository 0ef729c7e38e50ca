"""The tables that the migrations create are those that the code uses."""

import sqlite3
import threading
import warnings
from collections.abc import Callable

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from psycopg import sql
from sqlalchemy import Dialect, MetaData, create_engine, text

from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.adapters.sql.postgresql.ddl import COMPRESSED, STORAGE
from holdfast.adapters.sql.schema import tables
from holdfast.adapters.sql.schema.ddl import partial
from holdfast.adapters.sql.schema.migrator import MIGRATIONS, newest_version
from holdfast.ports.errors import SchemaError, UnavailableError
from holdfast.ports.queries.store import SchemaVersion
from tests.postgres import PrivatePostgres

OpenStore = Callable[..., SqlPersistence]


def engine_url(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


def tables_for(dialect: Dialect) -> MetaData:
    """Return the tables of the code, with the conditions of partial indexes in the form of a database."""
    for table in tables.metadata.tables.values():
        for index in table.indexes:
            index.dialect_kwargs.update(partial(index.info.get("where"), dialect))
    return tables.metadata


def test_alembic_finds_no_difference(store: SqlPersistence, url: str) -> None:
    engine = create_engine(engine_url(url))
    with engine.connect() as connection, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SQLite: an index with DESC can't be compared; the next test does
        context = MigrationContext.configure(connection, opts={"version_table": "holdfast_version"})
        assert compare_metadata(context, tables_for(engine.dialect)) == []
    engine.dispose()


def test_sqlite_has_the_very_tables_of_the_code(sqlite_url: str, open_store: OpenStore) -> None:
    open_store(sqlite_url).setup()
    engine = create_engine("sqlite://")
    question = (
        "SELECT name, replace(replace(sql, char(10), ''), char(9), '') FROM sqlite_master WHERE sql NOT NULL"
    )
    with engine.connect() as connection:
        tables_for(engine.dialect).create_all(connection)
        expected = {(name, sql) for name, sql in connection.execute(text(question))}
    engine.dispose()
    found = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    actual = {(name, sql) for name, sql in found.execute(question) if name != "holdfast_version"}
    found.close()

    assert expected == actual


POSTGRES_TABLES = """
    SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, o.collname, '' AS more
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_collation o ON o.oid = a.attcollation
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND a.attnum > 0
    UNION ALL
    SELECT indexname, tablename, replace(indexdef, schemaname || '.', ''), true, '', ''
    FROM pg_indexes WHERE schemaname = current_schema()
"""


@pytest.mark.slow
@pytest.mark.service
def test_postgres_has_the_very_tables_of_the_code(postgres_database: str, open_store: OpenStore) -> None:
    open_store(postgres_database).setup()
    engine = create_engine(engine_url(postgres_database))
    with engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA expected"))
        connection.execute(text("SET search_path = expected"))
        tables_for(engine.dialect).create_all(connection)
    engine.dispose()
    described: list[set[tuple[object, ...]]] = []
    with psycopg.connect(postgres_database) as found:
        for schema in ("expected", "public"):
            found.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(schema)))
            rows = found.execute(POSTGRES_TABLES).fetchall()
            described.append({row for row in rows if "holdfast_version" not in {row[0], row[1]}})
        options = found.execute(
            "SELECT relname, reloptions FROM pg_class WHERE reloptions IS NOT NULL"
        ).fetchall()
        has_lz4 = found.execute(
            "SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression'"
        ).fetchone()
        compressed = found.execute(
            "SELECT relname, attname FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid "
            "WHERE attcompression = 'l' AND relnamespace = 'public'::regnamespace"
        ).fetchall()

    assert described[0] == described[1]
    stored = {
        name: dict(option.split("=") for option in given) for name, given in options if "holdfast" in name
    }
    assert stored == STORAGE
    columns = {(table, column) for table, columns in COMPRESSED.items() for column in columns}
    assert set(compressed) == (columns if has_lz4 == (True,) else set())


@pytest.mark.parametrize(
    ("version", "advice"), [("9999_12_31", "9999.*install"), ("0018", "pre-release.*start over")]
)
def test_tables_of_a_version_that_is_not_known_are_refused(
    store: SqlPersistence, url: str, version: str, advice: str
) -> None:
    engine = create_engine(engine_url(url))
    with engine.begin() as connection:
        connection.execute(text("UPDATE holdfast_version SET version_num = :it"), {"it": version})
    engine.dispose()

    with pytest.raises(SchemaError, match=advice):
        store.setup()
    assert store.read(SchemaVersion()) == version


def test_setup_says_that_there_is_no_server(open_store: OpenStore) -> None:
    store = open_store("postgresql://nobody@127.0.0.1:1/nothing", deadline=0.3)

    with pytest.raises(UnavailableError, match=r"was unavailable for 0.3 seconds.*[Cc]onnection"):
        store.setup()


@pytest.mark.slow
@pytest.mark.service
def test_setup_waits_for_a_server_that_starts(open_store: OpenStore) -> None:
    with PrivatePostgres() as server:
        store = open_store(server.url, deadline=60)
        server.stop("immediate")
        setup = threading.Thread(target=store.setup)
        setup.start()
        server.start()
        setup.join(60)

        assert store.read(SchemaVersion()) == newest_version()


def test_setup_is_harmless_when_repeated(store: SqlPersistence) -> None:
    store.setup()

    assert store.read(SchemaVersion()) == newest_version()


def test_the_newest_version_is_the_one_that_migrations_lead_to() -> None:
    assert ScriptDirectory(str(MIGRATIONS)).get_heads() == [newest_version()]


def test_migrations_are_files_of_the_package() -> None:
    assert {"env.py", "versions"} <= {path.name for path in MIGRATIONS.iterdir()}
