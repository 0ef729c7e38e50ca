"""The store and the transport for the URL of a database."""

from collections.abc import Callable

from holdfast.adapters.sql.persistence import DEADLINE_SECONDS, SqlPersistence
from holdfast.adapters.sql.sqlite.connection import sqlite_path
from holdfast.adapters.sql.sqlite.file_watch import SqliteTransport
from holdfast.ports.transport import JobTransport


def open_sql(
    url: str, new_id: Callable[[], str], patience: float = DEADLINE_SECONDS
) -> tuple[SqlPersistence, JobTransport, str | None]:
    """Return a store, its transport, and the path of its file if it is SQLite. Does not connect yet.

    `patience` is how many seconds a call retries while the database can't be used.
    ValueError for a URL of an unknown form; ModuleNotFoundError if a driver is not installed.
    """
    persistence = SqlPersistence(url, new_id=new_id, deadline=patience)
    if url.startswith("sqlite"):
        path = sqlite_path(url)
        return persistence, SqliteTransport(path), path
    # Imported here, because SQLite needs no psycopg.
    from holdfast.adapters.sql.postgresql.listen_notify import PostgresTransport

    return persistence, PostgresTransport(url), None
