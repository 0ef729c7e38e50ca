"""The connection of the third database: other parameters, receipts, a clock, a fast path, no partial indexes."""

import re
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from typing import Final

from attrs import evolve
from sqlalchemy import Connection
from typing_extensions import override

from holdfast.adapters.sql.application_connections import ApplicationAccess
from holdfast.adapters.sql.database import ChangedError, Link, Shared
from holdfast.adapters.sql.dialect import Dialect, Write
from holdfast.adapters.sql.rows import Row
from holdfast.adapters.sql.sqlite.connection import SqliteDatabase
from holdfast.adapters.sql.sqlite.dialect import SqliteDialect
from holdfast.adapters.sql.transaction import SqlTransaction, Statements
from holdfast.ports.changes import Change
from holdfast.ports.persistence import Query
from holdfast.ports.read_limits import ReadLimit
from holdfast.ports.records.job import JobKey
from holdfast.ports.searches import LockedAttempts
from holdfast.ports.transport import JobTransport

CLOCK: Final = "CAST((julianday('now') - 2440587.5) * 86400000000 AS integer)"
taken: Final = {"fast": 0, "changed": 0, "receipts": 0}
"""How often each thing that only this database does has happened."""


class ThirdDialect(SqliteDialect):
    """Parameters are `$name`."""

    @override
    def bound(self, sql: str) -> str:
        return re.sub(r"(?<![:\w]):([a-z_]+)", r"$\1", sql)


class ThirdLink:
    """See `Link`. Stores receipts."""

    probes = False

    def __init__(self, link: Link) -> None:
        self._link = link
        self.begin, self.query, self.queries, self.commit = link.begin, link.query, link.queries, link.commit

    @property
    def began(self) -> bool:
        return self._link.began

    def write(
        self, writes: Sequence[tuple[Write, Sequence[Row]]], receipt: str | None, /, *, is_sure: bool = False
    ) -> None:
        self._link.write(writes, None, is_sure=is_sure)
        if receipt is not None:
            self.put_receipt(receipt)

    def put_receipt(self, receipt: str, /) -> None:
        self.begin()
        self.query(f"INSERT INTO holdfast_commit_receipts VALUES ($receipt, {CLOCK})", {"receipt": receipt})
        taken["receipts"] += 1


class HastyTransaction(SqlTransaction):
    """Does not do for work that writes after it has locked what attempts need: that is done again."""

    has_locked = False

    @override
    def lock_attempts(
        self, runs: Collection[str], jobs: Collection[JobKey], sessions: Collection[str], /
    ) -> LockedAttempts:
        self.has_locked = True
        return super().lock_attempts(runs, jobs, sessions)

    @override
    def apply(self, changes: Sequence[Change], /) -> None:
        if self.has_locked:
            taken["changed"] += 1
            raise ChangedError("it is not in the mood")
        taken["fast"] += 1
        super().apply(changes)


class ThirdPath:
    """See `FastPath`."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements

    def transaction(self, link: Link, receipt: str, /) -> HastyTransaction:
        return HastyTransaction(link, self._statements, receipt)

    def answer(self, link: Link, query: Query[object], /) -> None:
        del link, query


class ThirdDatabase:
    """See `Database`."""

    clock_sql: str | None = f"SELECT {CLOCK}"
    has_receipts: bool = True
    application_access: ApplicationAccess | None = None

    def __init__(self, path: str, *, busy_seconds: float) -> None:
        self._inner = SqliteDatabase(path, busy_seconds=busy_seconds)
        self.dialect: Dialect = ThirdDialect()
        self.file = self._inner.file

    def fast_path(self, statements: Statements, /) -> ThirdPath:
        return ThirdPath(statements)

    def transport(self) -> JobTransport:
        return self._inner.transport()

    @contextmanager
    def writer(self, seconds: float, /) -> Generator[Link]:
        with self._inner.writer(seconds) as link:
            yield ThirdLink(link)

    @contextmanager
    def reader(self, seconds: float, limit: ReadLimit | None = None, /) -> Generator[Link]:
        with self._inner.reader(seconds, limit) as link:
            yield ThirdLink(link)

    @contextmanager
    def shared(self, seconds: float, /) -> Generator[Shared]:
        with self._inner.shared(seconds) as shared:
            yield evolve(shared, link=ThirdLink(shared.link))

    @contextmanager
    def migration(self, seconds: float, /) -> Generator[Connection]:
        with self._inner.migration(seconds) as connection:
            connection.dialect.construct_arguments = []  # an index has no condition
            yield connection

    def close(self) -> None:
        self._inner.close()
