"""PostgreSQL: connections, statements over libpq, errors, optimistic transactions, LISTEN and NOTIFY."""

from typing import TYPE_CHECKING, Any, Final

from holdfast.adapters.sql.databases import DatabaseKind

if TYPE_CHECKING:
    from holdfast.adapters.sql.postgresql.connection import PostgresDatabase


def _new(url: str, deadline: float, **options: Any) -> "PostgresDatabase":
    from holdfast.adapters.sql.postgresql.connection import PostgresDatabase

    del deadline  # each call has its own
    return PostgresDatabase(url, **options)


DATABASE: Final = DatabaseKind(
    name="PostgreSQL",
    schemes=frozenset({"postgresql", "postgres", "postgresql+psycopg"}),
    url_form="postgresql://user@host/database",
    extra="postgres",
    new=_new,
)
