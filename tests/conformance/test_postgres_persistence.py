"""Conformance of the PostgreSQL store."""

from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import sql
from typing_extensions import override

from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.ports.changes import Insert
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.store import SchemaVersion
from holdfast.testing.conformance.builders import a_key, a_run
from holdfast.testing.conformance.persistence import PersistenceContract
from holdfast.testing.conformance.persistence.case import put, the_run
from holdfast.testing.conformance.threads import in_threads
from tests.conformance.pauses import draw_short_pause
from tests.postgres import fresh_database

pytestmark = pytest.mark.service


@pytest.fixture(scope="class")
def class_database(postgres_url: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """The URL of a database with tables, which the tests of a class use one after the other, and what empties it."""
    with fresh_database(postgres_url) as url:
        store = SqlPersistence(url, random=draw_short_pause)
        store.setup()
        store.close()
        with psycopg.connect(url, autocommit=True) as connection:
            tables = connection.execute(
                "select c.relname from pg_class c where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace"
                " and c.relname not like '%version%' order by 1"
            ).fetchall()
            # Faster than TRUNCATE for a handful of rows.
            deletes = sql.SQL(";").join(
                sql.SQL("delete from {}").format(sql.Identifier(table)) for (table,) in tables
            )

            def remove_rows() -> None:
                connection.execute(deletes)

            yield url, remove_rows


class TestPostgresPersistence(PersistenceContract):
    """In a database whose rows are removed between tests."""

    @pytest.fixture(autouse=True)
    def own_rows(self, class_database: tuple[str, Callable[[], None]]) -> None:
        self.url, self.remove_rows = class_database

    @override
    def make_persistence(self) -> Persistence:
        self.remove_rows()
        return SqlPersistence(self.url, random=draw_short_pause)

    @override
    def open_again(self, store: Persistence) -> Persistence | None:
        return SqlPersistence(self.url, random=draw_short_pause)


class TestSetupOfPostgres:
    """What the contract can't see, because its databases have tables already."""

    @pytest.mark.slow
    def test_several_stores_set_up_a_new_database_at_once(self, postgres_database: str) -> None:
        def set_up(number: int) -> str | None:
            store = SqlPersistence(postgres_database)
            try:
                store.setup()
                put(store, Insert(a_run(number)))
                return store.read(SchemaVersion())
            finally:
                store.close()

        versions = in_threads(4, set_up)

        assert len(set(versions)) == 1
        assert versions[0]
        store = SqlPersistence(postgres_database)
        assert [a_key(number) for number in range(4)] == [
            the_run(store, a_key(number)).key for number in range(4)
        ]
        store.close()
