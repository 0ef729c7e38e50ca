"""The SQL that differs between PostgreSQL and SQLite. All other SQL is in `statements` and `queries`."""

# Statements and parameters
# -------------------------
#
# Statements are written with parameters `:name`; `bound` turns them into the driver's form. A list is one parameter, a
# JSON text (or an array), however long it is: binding many parameters costs Python more than the database takes to
# parse a list. So the number of different statements is small and fixed, and the server can prepare them. For writes,
# SQLite gains nothing by that: it inserts row by row with `executemany`.
#
# The claim query
# ---------------
#
# Workers claim all the time, from a table in which most jobs may be asleep, leased, or of other queues. Its cost must
# be flat: it depends on the number of jobs returned, not on how many exist. Everything below serves that.
#
# - The index `holdfast_jobs_claim` is (namespace, queue, definition, queue_position, run, number), for queued jobs
#   only. It has the jobs of one queue and definition in the order of claims, so the first n are adjacent.
# - A worker serves several queues and definitions. One condition with lists of both would return jobs in no useful
#   order, and the database would read and sort every queued job to find the first. So the parameter has a row for each
#   pair, and a LATERAL subquery reads the head of the index for each, up to the limit of its queue. `row_number` then
#   merges the pairs of a queue, and the outer query the queues. What is sorted is at most (pairs x limit) rows.
# - SKIP LOCKED: claims of other workers are stepped over, never waited for. Under READ COMMITTED, PostgreSQL checks the
#   condition again on the latest version of each row that it locks, so a job that was claimed a moment ago drops out.
# - MATERIALIZED: without it the planner may inline the subquery, evaluate it more than once, and lock other rows each
#   time.
# - The state is a constant in the SQL, not a parameter. A generic plan can use a partial index only if its condition is
#   known, and with it there is one sensible plan. So this search may be prepared, and no other (docs/decisions/0048).
# - The rank is fixed when a job is created (docs/decisions/0019): priorities and ages need no computation here, and
#   waiting jobs need no updates.
# - The session comes along by a LEFT JOIN, which saves a round trip (`claimable_by`).
#
# SQLite has neither LATERAL nor a column as LIMIT. A correlated subquery, `rowid IN (... LIMIT :most)`, reads the head
# of the index for each pair, with the highest limit of all; `row_number` applies the lower ones. It needs no row locks,
# since a writer locks the file. The search first runs before BEGIN IMMEDIATE, so that idle workers block no writers.
#
# Guaranteed: a job is returned to one transaction at a time, lowest rank first among those not locked by others, and no
# queue gets more than its limit.
#
# Ugly, and why it stays:
#
# - It may lock more jobs than it returns: each pair up to its limit, of which the merge keeps fewer. Other workers step
#   over these until the commit and get later ones. Locking only the final rows would take a second statement, which
#   could find them claimed.
# - It may return fewer jobs than exist, if others were locked at that moment. The worker polls again.
# - Passed-over jobs (`_WANTED`) are not in the index as such: they are read and skipped. Jobs that were lost are few.
# - Dead index entries of claimed jobs are at the head of the range, and every claim steps over them until a vacuum or
#   a reader marks them. A long transaction anywhere on the server delays that (docs/explanation/scale.md).
# - The statement is assembled from strings, twice. A query builder would hide the one thing that matters here, which is
#   the exact shape of the SQL.

# ruff: noqa: S608  # statements are put together from names that are constants of this program

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, Protocol

import attrs
from sqlalchemy import BigInteger, Table

from holdfast.adapters.sql.rows import Row
from holdfast.ports.records.job import SUSPECT_AFTER

_PARAMETER: Final = re.compile(r"(?<![:\w]):([a-z_]+)")
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":"))


@attrs.frozen
class Alike:
    """A statement that writes rows which differ only in a few columns."""

    sql: str
    own: tuple[tuple[int, str], ...]
    """Index and name of each column that differs."""
    shared: tuple[tuple[int, str], ...]
    """Index and name of each column that is the same in all rows."""

    def encoded(self, rows: Sequence[Row]) -> Mapping[str, str] | None:
        """Return its parameters; None if the rows differ in a shared column."""
        columns = tuple(zip(*rows, strict=True))
        number = len(rows)
        first = rows[0]
        for place, _ in self.shared:
            if columns[place].count(first[place]) != number:
                return None
        names = [name for _, name in self.own]
        return {
            "shared": _ENCODER.encode({name: first[place] for place, name in self.shared}),
            "rows": encode_rows(names, zip(*(columns[place] for place, _ in self.own), strict=True)),
        }


@attrs.frozen
class Write:
    """A statement that writes any number of rows."""

    sql: str
    columns: tuple[str, ...]
    """The columns of each row, in order."""
    hits_all: bool = False
    """Whether every row must match: an update without effect would be a bug."""
    alike: Alike | None = None
    """A cheaper form for rows that have most columns in common."""

    def encoded(self, rows: Sequence[Row]) -> tuple[str, Mapping[str, str]]:
        """Return the statement to write these rows with, and its parameters."""
        if self.alike is not None and len(rows) > 1 and (shared := self.alike.encoded(rows)) is not None:
            return self.alike.sql, shared
        return self.sql, {"rows": encode_rows(self.columns, rows)}


class Dialect(Protocol):
    """A dialect of SQL."""

    @property
    def lock(self) -> str:
        """The clause that locks selected rows; a format with the name of their table."""
        ...

    @property
    def skip_locked(self) -> str:
        """The clause that locks selected rows and skips those that other transactions have locked."""
        ...

    @property
    def has_lateral(self) -> bool:
        """Whether subqueries may be LATERAL."""
        ...

    def bound(self, sql: str) -> str:
        """Return a statement with its parameters in the driver's form."""
        ...

    def one_of(self, column: str, parameter: str) -> str:
        """Return the condition that a column is one of the texts in a parameter made by `texts`."""
        ...

    def texts(self, values: Sequence[str]) -> object:
        """Return texts as one parameter."""
        ...

    def table_of(self, parameter: str, name: str, columns: Mapping[str, str]) -> str:
        """Return a table with these columns and types, from the rows in a parameter made by `encode_rows`."""
        ...

    def claimable(self, jobs: Sequence[str], sessions: Sequence[str]) -> str:
        """Return the claim query, which finds and locks queued jobs.

        Its parameter `:queue_claims` has a row for each pair of queue and definition. A row of the result has these
        columns of a job, then these of the session `:session`, NULL without such a session.
        """
        ...

    def insert(
        self, table: Table, columns: Sequence[str], *, on_conflict: str = "", own: Sequence[str] = ()
    ) -> Write:
        """Return the statement that inserts rows. `own` names the columns in which rows of a batch usually differ."""
        ...

    def insert_annotation_texts(self) -> Write:
        """Return the statement that adds annotations of existing runs to the index of attributes."""
        ...

    def update(
        self, table: Table, keys: Sequence[str], columns: Sequence[str], *, sets: str = "", only: str = ""
    ) -> Write:
        """Return the statement that updates columns of rows found by key.

        `sets` are further assignments. With `only`, a condition, rows may be missing.
        """
        ...

    def delete(self, table: Table, keys: Sequence[str], *, only: str = "") -> Write:
        """Return the statement that deletes rows found by key, with `only` those that match this condition."""
        ...


def encode_rows(columns: Sequence[str], rows: Iterable[Row]) -> str:
    """Return rows as JSON, for `Dialect.table_of` and for PostgreSQL's writes."""
    return _ENCODER.encode([dict(zip(columns, row, strict=True)) for row in rows])


@lru_cache(maxsize=1_024)
def _bound(sql: str) -> str:
    return _PARAMETER.sub(r"%(\1)s", sql)


POSTGRES_CLOCK: Final = "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"
"""The server's own time, in microseconds."""

_CLAIM_COLUMNS: Final = {"claim": "bigint", "queue": "text", "definition": "text", "most": "bigint"}
_WANTED: Final = (
    "(job.lost_attempts = 0 OR :pass_over = 'nothing' "
    f"OR (:pass_over = 'suspects' AND job.lost_attempts < {SUSPECT_AFTER}))"
)
"""The condition for jobs that are not passed over (see `Job.is_passed_over`)."""
_ANNOTATION_TEXT: Final = ("pair", "run")
_CLAIM_ORDER: Final = "queue_position, run, number"


def _placed(jobs: Sequence[str], sessions: Sequence[str]) -> str:
    columns = ", ".join((*(f"p.{name}" for name in jobs), *(f"s.{name}" for name in sessions)))
    return (
        f"SELECT {columns} FROM placed AS p LEFT JOIN holdfast_sessions AS s ON s.id = :session "
        "WHERE p.place <= p.most ORDER BY p.queue_position, p.run, p.number"
    )


def _joined(by: str, *parts: str) -> str:
    return by.join(part for part in parts if part)


def upsert(keys: Sequence[str], columns: Sequence[str]) -> str:
    """Return the end of an INSERT that replaces the columns of an existing row."""
    sets = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in keys)
    return f" ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {sets}"


@attrs.frozen
class PostgresDialect:
    """PostgreSQL 14 or newer, through psycopg."""

    lock: str = " FOR UPDATE OF {}"
    skip_locked: str = " FOR UPDATE SKIP LOCKED"
    has_lateral: bool = True

    def bound(self, sql: str) -> str:
        """See `Dialect.bound`."""
        return _bound(sql)

    def one_of(self, column: str, parameter: str) -> str:
        """See `Dialect.one_of`."""
        return f"{column} = ANY(:{parameter})"

    def texts(self, values: Sequence[str]) -> object:
        """See `Dialect.texts`."""
        return list(values)

    def table_of(self, parameter: str, name: str, columns: Mapping[str, str]) -> str:
        """See `Dialect.table_of`."""
        typed = ", ".join(f"{column} {type_}" for column, type_ in columns.items())
        return f"json_to_recordset(CAST(:{parameter} AS json)) AS {name}({typed})"

    def claimable(self, jobs: Sequence[str], sessions: Sequence[str]) -> str:
        """See `Dialect.claimable`, and the comment at the head of this module."""
        columns = ", ".join(jobs)
        claims = self.table_of("queue_claims", "l", _CLAIM_COLUMNS)
        return (
            f"WITH picked AS MATERIALIZED (SELECT l.claim, l.most, j.* FROM {claims} "
            f"CROSS JOIN LATERAL (SELECT {columns} FROM holdfast_jobs AS job WHERE job.namespace = :namespace "
            "AND job.queue = l.queue AND job.definition = l.definition AND job.state = 'queued' "
            f"AND {_WANTED} ORDER BY {_CLAIM_ORDER} LIMIT l.most{self.skip_locked}) AS j), "
            f"placed AS (SELECT *, row_number() OVER (PARTITION BY claim ORDER BY {_CLAIM_ORDER}) AS place "
            "FROM picked) "
            f"{_placed(jobs, sessions)} LIMIT :limit"
        )

    def insert(
        self, table: Table, columns: Sequence[str], *, on_conflict: str = "", own: Sequence[str] = ()
    ) -> Write:
        """See `Dialect.insert`. Parsing a column from JSON costs the server as much as storing it, hence `own`."""
        names = ", ".join(columns)
        adding = f"INSERT INTO {table.name} ({names}) SELECT {names} FROM {{}}{on_conflict}"
        alike = None
        if own:
            places = {name: place for place, name in enumerate(columns)}
            shared = [name for name in columns if name not in own]
            typed = ", ".join(f"{name} {type_}" for name, type_ in types_of(table, shared).items())
            same = f"json_to_record(CAST(:shared AS json)) AS same({typed})"
            alike = Alike(
                self.bound(adding.format(f"{same} CROSS JOIN {self._rows(table, own)}")),
                own=tuple((places[name], name) for name in own),
                shared=tuple((places[name], name) for name in shared),
            )
        return Write(self.bound(adding.format(self._rows(table, columns))), tuple(columns), alike=alike)

    def insert_annotation_texts(self) -> Write:
        """See `Dialect.insert_annotation_texts`."""
        rows = self.table_of("rows", "new", dict.fromkeys(_ANNOTATION_TEXT, "text"))
        sql = (
            "INSERT INTO holdfast_attributes (pair, created_at, run) SELECT new.pair, r.created_at, r.key "
            f"FROM {rows} JOIN holdfast_runs AS r ON r.key = new.run ON CONFLICT (pair, created_at, run) DO NOTHING"
        )
        return Write(self.bound(sql), _ANNOTATION_TEXT)

    def update(
        self, table: Table, keys: Sequence[str], columns: Sequence[str], *, sets: str = "", only: str = ""
    ) -> Write:
        """See `Dialect.update`."""
        changes = _joined(", ", *(f"{name} = new.{name}" for name in columns), sets)
        found = _joined(" AND ", *(f"old.{key} = new.{key}" for key in keys), only)
        rows = self._rows(table, (*columns, *keys))
        sql = f"UPDATE {table.name} AS old SET {changes} FROM {rows} WHERE {found}"
        return Write(self.bound(sql), (*columns, *keys), hits_all=not only)

    def delete(self, table: Table, keys: Sequence[str], *, only: str = "") -> Write:
        """See `Dialect.delete`."""
        found = _joined(" AND ", *(f"old.{key} = new.{key}" for key in keys), only)
        sql = f"DELETE FROM {table.name} AS old USING {self._rows(table, keys)} WHERE {found}"
        return Write(self.bound(sql), tuple(keys))

    def _rows(self, table: Table, columns: Sequence[str]) -> str:
        return self.table_of("rows", "new", types_of(table, columns))


def types_of(table: Table, columns: Sequence[str]) -> dict[str, str]:
    """Return the types of a table's columns, for `Dialect.table_of`."""
    return {name: "bigint" if isinstance(table.c[name].type, BigInteger) else "text" for name in columns}


@attrs.frozen
class SqliteDialect:
    """SQLite 3.35 or newer, through the sqlite3 module. A writer locks the whole file, so there are no row locks."""

    lock: str = ""
    skip_locked: str = ""
    has_lateral: bool = False

    def bound(self, sql: str) -> str:
        """See `Dialect.bound`."""
        return sql

    def one_of(self, column: str, parameter: str) -> str:
        """See `Dialect.one_of`."""
        return f"{column} IN (SELECT value FROM json_each(:{parameter}))"

    def texts(self, values: Sequence[str]) -> object:
        """See `Dialect.texts`."""
        return _ENCODER.encode(list(values))

    def table_of(self, parameter: str, name: str, columns: Mapping[str, str]) -> str:
        """See `Dialect.table_of`."""
        extracted = ", ".join(f"json_extract(value, '$.{column}') AS {column}" for column in columns)
        return f"(SELECT {extracted} FROM json_each(:{parameter})) AS {name}"

    def claimable(self, jobs: Sequence[str], sessions: Sequence[str]) -> str:
        """See `Dialect.claimable`. `:most` is the highest limit of all queues, since LIMIT can't be a column here."""
        columns = ", ".join(f"j.{name}" for name in jobs)
        claims = self.table_of("queue_claims", "l", _CLAIM_COLUMNS)
        return (
            f"WITH picked AS (SELECT l.claim, l.most, {columns} FROM {claims} "
            "CROSS JOIN holdfast_jobs AS j WHERE j.rowid IN (SELECT job.rowid FROM holdfast_jobs AS job "
            "WHERE job.namespace = :namespace AND job.queue = l.queue AND job.definition = l.definition "
            f"AND job.state = 'queued' AND {_WANTED} ORDER BY job.queue_position, job.run, job.number LIMIT :most)), "
            f"placed AS (SELECT *, row_number() OVER (PARTITION BY claim ORDER BY {_CLAIM_ORDER}) AS place "
            "FROM picked) "
            f"{_placed(jobs, sessions)} LIMIT :limit"
        )

    def insert(
        self, table: Table, columns: Sequence[str], *, on_conflict: str = "", own: Sequence[str] = ()
    ) -> Write:
        """See `Dialect.insert`. Rows are inserted one at a time, so `own` saves nothing."""
        places = ", ".join("?" for _ in columns)
        sql = f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES ({places}){on_conflict}"
        return Write(sql, tuple(columns))

    def insert_annotation_texts(self) -> Write:
        """See `Dialect.insert_annotation_texts`."""
        sql = (
            "INSERT INTO holdfast_attributes (pair, created_at, run) SELECT ?, created_at, key FROM holdfast_runs "
            "WHERE key = ? ON CONFLICT (pair, created_at, run) DO NOTHING"
        )
        return Write(sql, _ANNOTATION_TEXT)

    def update(
        self, table: Table, keys: Sequence[str], columns: Sequence[str], *, sets: str = "", only: str = ""
    ) -> Write:
        """See `Dialect.update`."""
        changes = _joined(", ", *(f"{name} = ?" for name in columns), sets)
        found = _joined(" AND ", *(f"{key} = ?" for key in keys), only)
        sql = f"UPDATE {table.name} SET {changes} WHERE {found}"
        return Write(sql, (*columns, *keys), hits_all=not only)

    def delete(self, table: Table, keys: Sequence[str], *, only: str = "") -> Write:
        """See `Dialect.delete`."""
        found = _joined(" AND ", *(f"{key} = ?" for key in keys), only)
        return Write(f"DELETE FROM {table.name} WHERE {found}", tuple(keys))
