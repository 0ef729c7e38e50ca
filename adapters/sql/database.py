"""Protocols for databases and their connections, implemented for PostgreSQL and SQLite."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, TypeAlias

import attrs
from sqlalchemy import Connection

from holdfast.adapters.sql.dialect import Dialect, Write
from holdfast.adapters.sql.postgresql.row_cache import RowCache, Versions
from holdfast.adapters.sql.rows import Row
from holdfast.ports.errors import HoldfastError

Parameters: TypeAlias = Mapping[str, Any]
NONE: Final[Parameters] = {}


class CachingLink(Protocol):
    """A connection that caches the runs and jobs its transactions have written (docs/decisions/0048)."""

    @property
    def memory(self) -> RowCache:
        """The cached rows."""
        ...

    @property
    def versions(self) -> Versions:
        """The statements that read and check row versions."""
        ...

    def commit_and_query(self, sql: str, parameters: "Parameters", /) -> list[Row]:
        """Send the delayed writes, a keyed statement and COMMIT together. Return its rows; empty without writes."""
        ...

    def query_and_commit(self, sql: str, parameters: "Parameters", /) -> list[Row]:
        """Run a keyed statement as a transaction of its own, in one round trip, and return its rows."""
        ...


class Link(Protocol):
    """A connection, lent for one try of a transaction or for one query.

    Without `begin` every statement is its own transaction. Errors are those of `holdfast.adapters.sql.errors`.
    """

    probes: bool
    """Whether to search for work before opening a transaction, because an open one blocks other writers."""

    @property
    def began(self) -> bool:
        """Whether a transaction is open."""
        ...

    @property
    def remembers(self) -> CachingLink | None:
        """The same connection, if it caches rows."""
        ...

    def begin(self) -> None:
        """Open a transaction, unless one is open."""
        ...

    def query(self, sql: str, parameters: Parameters = NONE, /, *, keyed: bool = False) -> list[Row]:
        """Run a statement and return its rows.

        A `keyed` statement finds rows by key, or jobs by the claim index, so a cached plan stays good as long as the
        index exists, and the server may prepare it.
        """
        ...

    def queries(self, statements: Sequence[tuple[str, Parameters]], /) -> list[list[Row]]:
        """Run several keyed statements and return their rows. Each sees what was committed before it."""
        ...

    def write(
        self, writes: Sequence[tuple[Write, Sequence[Row]]], receipt: str | None, /, *, is_sure: bool = False
    ) -> None:
        """Write rows, one statement per table, and the receipt if there is one and the database needs it.

        With `is_sure`, all rows to be updated are known to exist, so the writes may be delayed until `commit`.
        """
        ...

    def put_receipt(self, receipt: str, /) -> None:
        """Store a receipt. ConflictError if its transaction was committed; waits while that is undecided."""
        ...

    def commit(self) -> None:
        """Commit, if a transaction is open."""
        ...


@attrs.frozen
class Shared:
    """A SQLAlchemy connection in a transaction, and a link that works in the same transaction."""

    connection: Connection
    link: Link
    is_open: Callable[[], bool]
    """Whether the transaction is still open, according to the driver."""


class Database(Protocol):
    """A source of connections."""

    dialect: Dialect
    clock_sql: str | None
    """The statement for the database's own time in microseconds; None if it runs on this machine."""
    has_receipts: bool
    """Whether transactions store receipts, because the answer to a commit can be lost."""

    def writer(self, seconds: float, /) -> AbstractContextManager[Link]:
        """Lend a connection for a transaction, waiting up to `seconds` for one. Uncommitted work is rolled back."""
        ...

    def reader(self, seconds: float, /) -> AbstractContextManager[Link]:
        """Lend a connection for a query."""
        ...

    def shared(self, seconds: float, /) -> AbstractContextManager[Shared]:
        """Lend a connection in a transaction to a step's body. Uncommitted work is rolled back."""
        ...

    def migration(self, seconds: float, /) -> AbstractContextManager[Connection]:
        """Lend a connection in a transaction that excludes other migrations. It is committed at the end."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


def check_hits(write: Write, rows: Sequence[Row], hits: int) -> None:
    """Raise if an update did not find all its rows: its change would be lost silently."""
    if write.hits_all and hits != len(rows):
        table = write.sql.split()[1]
        raise HoldfastError(f"{len(rows)} rows of {table} were to be updated, and {hits} are there")
