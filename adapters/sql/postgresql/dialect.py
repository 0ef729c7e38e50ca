"""The SQL of PostgreSQL where it differs: the claim query, bulk writes from JSON rows, locks that skip locked rows."""

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
# - The session comes along by a LEFT JOIN, which saves a round trip (`claimable`).
#
# SQLite (`sqlite/dialect.py`) has neither LATERAL nor a column as LIMIT. A correlated subquery, `rowid IN (... LIMIT
# :most)`, reads the head of the index for each pair, with the highest limit of all; `row_number` applies the lower
# ones. It needs no row locks, since a writer locks the file. The search first runs before BEGIN IMMEDIATE, so that idle
# workers block no writers.
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
# - Passed-over jobs (`CLAIMABLE`) are not in the index as such: they are read and skipped. Jobs that were lost are few.
# - Dead index entries of claimed jobs are at the head of the range, and every claim steps over them until a vacuum or
#   a reader marks them. A long transaction anywhere on the server delays that (docs/explanation/scale.md).
# - The statement is assembled from strings, twice. A query builder would hide the one thing that matters here, which is
#   the exact shape of the SQL.

# ruff: noqa: S608  # statements are put together from names that are constants of this program

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import attrs
from sqlalchemy import Table

from holdfast.adapters.sql.dialect import (
    ANNOTATION_TEXT,
    CLAIM_COLUMNS,
    CLAIM_ORDER,
    CLAIMABLE,
    Alike,
    OnConflict,
    Write,
    claimed_rows,
    joined,
    types_of,
)
from holdfast.adapters.sql.postgresql.admissions import lateral_searches
from holdfast.adapters.sql.queries.admissions import Searches, Source

POSTGRES_CLOCK: Final = "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"
"""The server's own time, in microseconds."""


_PARAMETER: Final = re.compile(r"(?<![:\w]):([a-z_]+)")


@lru_cache(maxsize=1_024)
def _bound(sql: str) -> str:
    """Return a statement with its `:name` parameters in the form of psycopg."""
    return _PARAMETER.sub(r"%(\1)s", sql)


@attrs.frozen
class PostgresDialect:
    """PostgreSQL 14 or newer, through psycopg."""

    lock: str = " FOR UPDATE OF {}"
    skip_locked: str = " FOR UPDATE SKIP LOCKED"

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
        claims = self.table_of("queue_claims", "l", CLAIM_COLUMNS)
        return (
            f"WITH picked AS MATERIALIZED (SELECT l.claim, l.most, j.* FROM {claims} "
            f"CROSS JOIN LATERAL (SELECT {columns} FROM holdfast_jobs AS job WHERE job.namespace = :namespace "
            "AND job.queue = l.queue AND job.definition = l.definition AND job.state = 'queued' "
            f"AND {CLAIMABLE} ORDER BY {CLAIM_ORDER} LIMIT l.most{self.skip_locked}) AS j), "
            f"placed AS (SELECT *, row_number() OVER (PARTITION BY claim ORDER BY {CLAIM_ORDER}) AS place "
            "FROM picked) "
            f"{claimed_rows(jobs, sessions)} LIMIT :limit"
        )

    def admissions(self, source: Source) -> Searches:
        """See `Dialect.admissions`."""
        return lateral_searches(self, source)

    def rows_for_each(self, given: str, table: str, condition: str, order: str) -> str:
        """See `Dialect.rows_for_each`. The inner LIMIT makes the planner use an index on the condition."""
        alias = table.rpartition(" ")[2]
        return (
            f"{given} CROSS JOIN LATERAL (SELECT * FROM {table} WHERE {condition} {order}) AS {alias} {order}"
        )

    def insert(
        self,
        table: Table,
        columns: Sequence[str],
        *,
        on_conflict: OnConflict | None = None,
        own: Sequence[str] = (),
    ) -> Write:
        """See `Dialect.insert`. Parsing a column from JSON costs the server as much as storing it, hence `own`."""
        names = ", ".join(columns)
        ending = "" if on_conflict is None else on_conflict.clause
        adding = f"INSERT INTO {table.name} ({names}) SELECT {names} FROM {{}}{ending}"
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
        rows = self.table_of("rows", "new", dict.fromkeys(ANNOTATION_TEXT, "text"))
        sql = (
            "INSERT INTO holdfast_attributes (pair, created_at, run) SELECT new.pair, r.created_at, r.key "
            f"FROM {rows} JOIN holdfast_runs AS r ON r.key = new.run ON CONFLICT (pair, created_at, run) DO NOTHING"
        )
        return Write(self.bound(sql), ANNOTATION_TEXT)

    def update(
        self, table: Table, keys: Sequence[str], columns: Sequence[str], *, sets: str = "", only: str = ""
    ) -> Write:
        """See `Dialect.update`."""
        changes = joined(", ", *(f"{name} = new.{name}" for name in columns), sets)
        found = joined(" AND ", *(f"old.{key} = new.{key}" for key in keys), only)
        rows = self._rows(table, (*columns, *keys))
        sql = f"UPDATE {table.name} AS old SET {changes} FROM {rows} WHERE {found}"
        return Write(self.bound(sql), (*columns, *keys), hits_all=not only)

    def delete(self, table: Table, keys: Sequence[str], *, only: str = "") -> Write:
        """See `Dialect.delete`."""
        found = joined(" AND ", *(f"old.{key} = new.{key}" for key in keys), only)
        sql = f"DELETE FROM {table.name} AS old USING {self._rows(table, keys)} WHERE {found}"
        return Write(self.bound(sql), tuple(keys))

    def _rows(self, table: Table, columns: Sequence[str]) -> str:
        return self.table_of("rows", "new", types_of(table, columns))
