"""SQLite: connections, statements, errors, and hints by watching the file."""

from typing import TYPE_CHECKING, Final

from holdfast.adapters.sql.databases import DatabaseKind

if TYPE_CHECKING:
    from holdfast.adapters.sql.sqlite.connection import SqliteDatabase


def _new(url: str, deadline: float) -> "SqliteDatabase":
    from holdfast.adapters.sql.sqlite.connection import SqliteDatabase, sqlite_path

    return SqliteDatabase(sqlite_path(url), busy_seconds=deadline)


DATABASE: Final = DatabaseKind(
    name="SQLite",
    schemes=frozenset({"sqlite", "sqlite+pysqlite"}),
    url_form="sqlite:///path/to/file.db",
    extra="sqlite",
    new=_new,
)
