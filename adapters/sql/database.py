"""Protocols for databases and their connections: what the folder of a database implements."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

import attrs
from sqlalchemy import Connection

from holdfast.adapters.sql.dialect import Dialect, Write
from holdfast.adapters.sql.rows import Row
from holdfast.ports.errors import HoldfastError
from holdfast.ports.persistence import Query
from holdfast.ports.read_limits import ReadLimit
from holdfast.ports.transport import JobTransport

if TYPE_CHECKING:
    from holdfast.adapters.sql.application_connections import ApplicationAccess
    from holdfast.adapters.sql.transaction import SqlTransaction, Statements

R = TypeVar("R")
Parameters: TypeAlias = Mapping[str, Any]
NONE: Final[Parameters] = {}


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


class ChangedError(HoldfastError):
    """The basis of a transaction of a fast path is outdated or not sufficient: the work has to be repeated."""


class FastPath(Protocol):
    """Shortcuts that a database takes where it can, with the same results."""

    def transaction(self, link: Link, receipt: str, /) -> "SqlTransaction | None":
        """Return a transaction to try first; None if none is worth it.

        If it raises ChangedError, in the work or on commit, nothing is stored, and the work is repeated on the same
        link in an ordinary transaction.
        """
        ...

    def answer(self, link: Link, query: Query[R], /) -> R | None:
        """Return the answer to a query if it is known already."""
        ...


class Database(Protocol):
    """A database, and the source of its connections."""

    dialect: Dialect
    file: Path | None
    """The file that holds the whole database, if there is one."""
    clock_sql: str | None
    """The statement for the database's own time in microseconds; None if it runs on this machine."""
    has_receipts: bool
    """Whether transactions store receipts, because the answer to a commit can be lost."""
    application_access: "ApplicationAccess | None"
    """How to work in transactions of the application; None if that is not possible."""

    def fast_path(self, statements: "Statements", /) -> FastPath | None:
        """Return the shortcuts of transactions that use these statements; None without any."""
        ...

    def transport(self) -> JobTransport:
        """Return a new transport of hints between the processes that use this database."""
        ...

    def writer(self, seconds: float, /) -> AbstractContextManager[Link]:
        """Lend a connection for a transaction, waiting up to `seconds` for one. Uncommitted work is rolled back."""
        ...

    def reader(self, seconds: float, limit: ReadLimit | None = None, /) -> AbstractContextManager[Link]:
        """Lend a connection for a query. With a limit, the query is stopped at it, or when its caller leaves.

        A query that is stopped raises StatementStoppedError, and leaves nothing behind on the server.
        """
        ...

    def shared(self, seconds: float, /) -> AbstractContextManager[Shared]:
        """Lend a connection in a transaction to a step's body. Uncommitted work is rolled back."""
        ...

    def migration(self, seconds: float, /) -> AbstractContextManager[Connection]:
        """Lend a connection in a transaction that excludes other migrations. It is committed at the end.

        Errors of SQLAlchemy are translated, as those of a `Link`.
        """
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


def check_hits(write: Write, rows: Sequence[Row], hits: int) -> None:
    """Raise if an update did not find all its rows: its change would be lost silently."""
    if write.hits_all and hits != len(rows):
        table = write.sql.split()[1]
        raise HoldfastError(f"{len(rows)} rows of {table} were to be updated, and {hits} are there")
