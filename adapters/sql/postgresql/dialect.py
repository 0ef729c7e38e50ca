"""The SQL of PostgreSQL where it differs: bulk writes from JSON rows, locks that skip locked rows.

The claim query is in `claim_query.py`.
"""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import attrs
from sqlalchemy import Table

from holdfast.adapters.sql.dialect import (
    ANNOTATION_TEXT,
    NO_COLUMNS,
    Alike,
    Dialect,
    LongTextInsert,
    OnConflict,
    Write,
    joined,
    types_of,
)
from holdfast.adapters.sql.postgresql.claim_query import claim_query
from holdfast.adapters.sql.postgresql.waiting_searches import lateral_searches
from holdfast.adapters.sql.queries.waiting_searches import Searches, Source

POSTGRES_CLOCK: Final = "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"
"""The server's own time, in microseconds."""


LOG_LOCKS: Final = 0x6C6F6773  # "logs"
"""The seed of the hashes of runs that are the keys of advisory locks of their logs."""

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

    def one_found_by(self, column: str, query: str) -> str:
        """See `Dialect.one_found_by`. An array, since the planner may join IN the other way round."""
        return f"{column} = ANY(ARRAY({query}))"

    def contains(self, column: str, parameter: str) -> str:
        """See `Dialect.contains`."""
        return f"strpos({column}, :{parameter}) > 0"

    def texts(self, values: Sequence[str]) -> object:
        """See `Dialect.texts`."""
        return list(values)

    def table_of(self, parameter: str, name: str, columns: Mapping[str, str]) -> str:
        """See `Dialect.table_of`."""
        typed = ", ".join(f"{column} {type_}" for column, type_ in columns.items())
        return f"json_to_recordset(CAST(:{parameter} AS json)) AS {name}({typed})"

    def claimable(self, jobs: Sequence[str], sessions: Sequence[str]) -> str:
        """See `Dialect.claimable`."""
        return claim_query(self, jobs, sessions)

    def waiting_searches(self, source: Source) -> Searches:
        """See `Dialect.waiting_searches`."""
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
        long: str | None = None,
        derived: Mapping[str, str] = NO_COLUMNS,
    ) -> Write:
        """See `Dialect.insert`. Parsing a column from JSON costs the server as much as storing it, hence `own`."""
        names, values = ", ".join((*columns, *derived)), ", ".join((*columns, *derived.values()))
        ending = "" if on_conflict is None else on_conflict.clause
        adding = f"INSERT INTO {table.name} ({names}) SELECT {values} FROM {{}}{ending}"
        alike = None
        if own:
            places = {name: place for place, name in enumerate(columns)}
            shared = [name for name in columns if name not in own]
            typed = ", ".join(f"{name} {type_}" for name, type_ in types_of(table, shared).items())
            same = f"json_to_record(CAST(:shared AS json)) AS same({typed})"
            alike = Alike(
                self.bound(adding.format(f"{same} CROSS JOIN {_rows_of_columns(table, own)}")),
                own=tuple((places[name], name) for name in own),
                shared=tuple((places[name], name) for name in shared),
            )
        long_text = None
        if long is not None:
            source = rows_with_long_texts(self, table, columns, long)
            long_text = LongTextInsert(self.bound(adding.format(source)), columns.index(long))
        rows = self._rows(table, columns)
        return Write(self.bound(adding.format(rows)), tuple(columns), alike=alike, long_text=long_text)

    def lock_logs(self) -> Write:
        """See `Dialect.lock_logs`. Ascending, as all locks are."""
        rows = self.table_of("rows", "new", {"run": "text"})
        sql = (
            f"SELECT count(pg_advisory_xact_lock(hashtextextended(run, {LOG_LOCKS}))) "
            f"FROM (SELECT run FROM {rows} ORDER BY hashtextextended(run, {LOG_LOCKS})) AS held"
        )
        return Write(self.bound(sql), ("run",))

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


def rows_with_long_texts(dialect: Dialect, table: Table, columns: Sequence[str], long: str) -> str:
    """Return a table of the rows in the parameters of `encode_long_texts`, for the long texts of one column."""
    rows = dialect.table_of("rows", "raw", {**types_of(table, columns), "text_at": "integer"})
    of_texts = f"coalesce({long}, (CAST(:texts AS text[]))[text_at]) AS {long}"
    return f"(SELECT {', '.join(of_texts if name == long else name for name in columns)} FROM {rows}) AS new"


def _rows_of_columns(table: Table, columns: Sequence[str]) -> str:
    """Return a table of rows from one parameter for each column, a JSON array: half the work for Python of objects."""
    arrays = ", ".join(f"json_array_elements_text(CAST(:{name} AS json))" for name in columns)
    typed = ", ".join(
        f"CAST({name} AS {type_}) AS {name}" for name, type_ in types_of(table, columns).items()
    )
    return f"(SELECT {typed} FROM ROWS FROM ({arrays}) AS texts({', '.join(columns)})) AS new"
