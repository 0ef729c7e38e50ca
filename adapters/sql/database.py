"""A database as transactions and queries see it: connections for one try each. PostgreSQL and SQLite implement it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, TypeAlias

import attrs
from sqlalchemy import Connection

from holdfast.adapters.sql.dialects import Dialect, Write
from holdfast.adapters.sql.postgresql.row_cache import Memory, Versions
from holdfast.adapters.sql.rows import Row
from holdfast.ports.errors import HoldfastError

Parameters: TypeAlias = Mapping[str, Any]
NONE: Final[Parameters] = {}


class Remembers(Protocol):
    """A connection that remembers what its transactions have left."""

    @property
    def memory(self) -> Memory:
        """What is known of runs."""
        ...

    @property
    def versions(self) -> Versions:
        """The statements for that."""
        ...

    def commit_and_query(self, sql: str, parameters: "Parameters", /) -> list[Row]:
        """Commit what is left to that. Return what a keyed statement gives just before, nothing if nothing was left."""
        ...

    def query_and_commit(self, sql: str, parameters: "Parameters", /) -> list[Row]:
        """Return what a keyed statement gives that is a transaction of its own."""
        ...


class Link(Protocol):
    """A connection, lent for one try of one transaction or for one question.

    Without `begin` every query stands alone. Errors are those of `holdfast.adapters.sql.errors`.
    """

    probes: bool
    """Whether to look for work without a transaction first, because beginning one keeps others out."""

    @property
    def began(self) -> bool:
        """Whether a transaction is open."""
        ...

    @property
    def remembers(self) -> Remembers | None:
        """The same connection, if it remembers anything."""
        ...

    def begin(self) -> None:
        """Open a transaction, unless one is open."""
        ...

    def query(self, sql: str, parameters: Parameters = NONE, /, *, keyed: bool = False) -> list[Row]:
        """Return what a statement gives.

        One that is `keyed` finds each row by its key, or each lane by its place in the claim index: a plan for it is
        good for as long as there is the index.
        """
        ...

    def queries(self, statements: Sequence[tuple[str, Parameters]], /) -> list[list[Row]]:
        """Return what several keyed statements give, each of which sees what was committed before it."""
        ...

    def write(
        self, writes: Sequence[tuple[Write, Sequence[Row]]], receipt: str | None, /, *, is_sure: bool = False
    ) -> None:
        """Write rows with one statement each and, where commits can be lost sight of, the receipt if there is one.

        Where it `is_sure` that all rows to be updated are there, this may be left to `commit`.
        """
        ...

    def put_receipt(self, receipt: str, /) -> None:
        """Store a receipt. ConflictError if the transaction that had it was committed; waits for it if need be."""
        ...

    def commit(self) -> None:
        """Commit, if a transaction is open."""
        ...


@attrs.frozen
class Shared:
    """A connection of SQLAlchemy's in a transaction, and the link that goes by it. `is_open` asks the driver."""

    connection: Connection
    link: Link
    is_open: Callable[[], bool]


class Database(Protocol):
    """Where the connections come from."""

    dialect: Dialect
    clock_sql: str | None
    """A statement that gives the database's own time in microseconds; None if it has this machine's."""

    def writer(self, seconds: float, /) -> AbstractContextManager[Link]:
        """Lend a connection to a transaction, waiting so long for a free one. What is not committed is rolled back."""
        ...

    def reader(self, seconds: float, /) -> AbstractContextManager[Link]:
        """Lend a connection to a question."""
        ...

    def shared(self, seconds: float, /) -> AbstractContextManager[Shared]:
        """Lend a connection in a transaction to a step's body. What is not committed by its link is rolled back."""
        ...

    def migration(self, seconds: float, /) -> AbstractContextManager[Connection]:
        """Lend a connection in a transaction that keeps other migrations out. It is committed at the end."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


def check_hits(write: Write, rows: Sequence[Row], hits: int) -> None:
    """Raise if a row was to be changed and is not there: an update that went nowhere would be lost in silence."""
    if write.hits_all and hits != len(rows):
        table = write.sql.split()[1]
        raise HoldfastError(f"{len(rows)} rows of {table} were to be updated, and {hits} are there")
