"""A connection in use while its database is closed is closed when it is no longer used."""

from typing import Any

import psycopg
import pytest

from holdfast.adapters.sql.postgresql.connection import PostgresDatabase

pytestmark = pytest.mark.service


def test_a_transaction_may_end_after_its_database_was_closed(postgres_database: str) -> None:
    database = PostgresDatabase(postgres_database)
    with database.writer(5.0) as link:
        link.begin()
        assert link.query("SELECT 1") == [(1,)]
        of_link: Any = link
        connection: psycopg.Connection[Any] = of_link._statements.connection
        database.close()
        assert not connection.closed
    assert connection.closed


def test_the_body_of_a_step_may_end_after_its_database_was_closed(postgres_database: str) -> None:
    database = PostgresDatabase(postgres_database)
    with database.shared(5.0) as shared:
        connection = shared.connection.connection.driver_connection
        assert isinstance(connection, psycopg.Connection)
        database.close()
        assert not connection.closed
    assert connection.closed
