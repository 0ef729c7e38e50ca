"""The SQL of SQLite where it differs: one write per row, no row locks. The claim query is in `claim_query.py`."""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

from collections.abc import Mapping, Sequence

import attrs
from sqlalchemy import Table

from holdfast.adapters.sql.dialect import (
    ANNOTATION_TEXT,
    JSON_ENCODER,
    NO_COLUMNS,
    OnConflict,
    Write,
    joined,
)
from holdfast.adapters.sql.queries.waiting_searches import Searches, Source
from holdfast.adapters.sql.sqlite.claim_query import claim_query
from holdfast.adapters.sql.sqlite.waiting_searches import rowid_searches


@attrs.frozen
class SqliteDialect:
    """SQLite 3.35 or newer, through the sqlite3 module. A writer locks the whole file, so there are no row locks."""

    lock: str = ""
    skip_locked: str = ""

    def bound(self, sql: str) -> str:
        """See `Dialect.bound`."""
        return sql

    def one_of(self, column: str, parameter: str) -> str:
        """See `Dialect.one_of`."""
        return f"{column} IN (SELECT value FROM json_each(:{parameter}))"

    def one_found_by(self, column: str, query: str) -> str:
        """See `Dialect.one_found_by`."""
        return f"{column} IN ({query})"

    def contains(self, column: str, parameter: str) -> str:
        """See `Dialect.contains`."""
        return f"instr({column}, :{parameter}) > 0"

    def texts(self, values: Sequence[str]) -> object:
        """See `Dialect.texts`."""
        return JSON_ENCODER.encode(list(values))

    def table_of(self, parameter: str, name: str, columns: Mapping[str, str]) -> str:
        """See `Dialect.table_of`."""
        extracted = ", ".join(f"json_extract(value, '$.{column}') AS {column}" for column in columns)
        return f"(SELECT {extracted} FROM json_each(:{parameter})) AS {name}"

    def claimable(self, jobs: Sequence[str], sessions: Sequence[str]) -> str:
        """See `Dialect.claimable`."""
        return claim_query(self, jobs, sessions)

    def waiting_searches(self, source: Source) -> Searches:
        """See `Dialect.waiting_searches`."""
        return rowid_searches(self, source)

    def rows_for_each(self, given: str, table: str, condition: str, order: str) -> str:
        """See `Dialect.rows_for_each`. There are no lateral joins; CROSS JOIN keeps the order of the tables."""
        return f"{given} CROSS JOIN {table} WHERE {condition} {order}"

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
        """See `Dialect.insert`. Rows are inserted one by one, with bare values, so `own` and `long` save nothing."""
        places = ", ".join("?" for _ in columns)
        ending = "" if on_conflict is None else on_conflict.clause
        if derived:
            given = ", ".join(f"? AS {name}" for name in columns)
            names, values = ", ".join((*columns, *derived)), ", ".join((*columns, *derived.values()))
            sql = f"INSERT INTO {table.name} ({names}) SELECT {values} FROM (SELECT {given}) AS new WHERE true{ending}"
            return Write(sql, tuple(columns))
        sql = f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES ({places}){ending}"
        return Write(sql, tuple(columns))

    def lock_logs(self) -> None:
        """See `Dialect.lock_logs`. There is one writer."""

    def insert_annotation_texts(self) -> Write:
        """See `Dialect.insert_annotation_texts`."""
        sql = (
            "INSERT INTO holdfast_attributes (pair, created_at, run) SELECT ?, created_at, key FROM holdfast_runs "
            "WHERE key = ? ON CONFLICT (pair, created_at, run) DO NOTHING"
        )
        return Write(sql, ANNOTATION_TEXT)

    def update(
        self, table: Table, keys: Sequence[str], columns: Sequence[str], *, sets: str = "", only: str = ""
    ) -> Write:
        """See `Dialect.update`."""
        changes = joined(", ", *(f"{name} = ?" for name in columns), sets)
        found = joined(" AND ", *(f"{key} = ?" for key in keys), only)
        sql = f"UPDATE {table.name} SET {changes} WHERE {found}"
        return Write(sql, (*columns, *keys), hits_all=not only)

    def delete(self, table: Table, keys: Sequence[str], *, only: str = "") -> Write:
        """See `Dialect.delete`."""
        found = joined(" AND ", *(f"{key} = ?" for key in keys), only)
        return Write(f"DELETE FROM {table.name} WHERE {found}", tuple(keys))
