"""From a database's URL to the store in it, and the transport of hints that fits it."""

from collections.abc import Callable

from holdfast.adapters.sql.persistence import DEADLINE_SECONDS, SqlPersistence
from holdfast.adapters.sql.sqlite.connection import sqlite_path
from holdfast.adapters.sql.sqlite.file_watch import SqliteTransport
from holdfast.ports.transport import JobTransport


def open_sql(
    url: str, new_id: Callable[[], str], patience: float = DEADLINE_SECONDS
) -> tuple[SqlPersistence, JobTransport, str | None]:
    """Return a store, its transport, and the path of its file if it is one. Nothing is connected to yet.

    `patience` is for how many seconds a call goes on trying while the database can't be used.
    ValueError for a URL of no known form; ModuleNotFoundError if what it needs is not installed.
    """
    persistence = SqlPersistence(url, new_id=new_id, deadline=patience)
    if url.startswith("sqlite"):
        path = sqlite_path(url)
        return persistence, SqliteTransport(path), path
    # Not at the top: SQLite needs no psycopg.
    from holdfast.adapters.sql.postgresql.listen_notify import PostgresTransport

    return persistence, PostgresTransport(url), None
