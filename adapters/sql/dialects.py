"""What differs between the databases' SQL. Everything else is written once, in `statements` and `queries`.

Statements name their parameters `:name`. Lists come in as one parameter each, however long they are: the Python
side of many bound parameters costs more than the database's side of reading a list.
"""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, Protocol

import attrs
from sqlalchemy import BigInteger, Table

from holdfast.adapters.sql.rows import Row
from holdfast.ports.records import SUSPECT_AFTER

_PARAMETER: Final = re.compile(r"(?<![:\w]):([a-z_]+)")
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":"))


@attrs.frozen
class Alike:
    """A statement that writes rows which differ in no other columns than these, each by its place among all."""

    sql: str
    own: tuple[tuple[int, str], ...]
    shared: tuple[tuple[int, str], ...]

    def encoded(self, rows: Sequence[Row]) -> Mapping[str, str] | None:
        """Return its parameters; None if some rows differ elsewhere."""
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
    """A statement that writes any number of rows: `columns` is what each row holds, in order.

    With `hits_all`, a row that changes nothing is a bug and must not go unseen. `alike` is for several rows that have
    most in common, if it does not take all of them one by one.
    """

    sql: str
    columns: tuple[str, ...]
    hits_all: bool = False
    alike: Alike | None = None

    def encoded(self, rows: Sequence[Row]) -> tuple[str, Mapping[str, str]]:
        """Return the statement that writes these rows, with them as its parameters."""
        if self.alike is not None and len(rows) > 1 and (shared := self.alike.encoded(rows)) is not None:
            return self.alike.sql, shared
        return self.sql, {"rows": encode_rows(self.columns, rows)}


class Dialect(Protocol):
    """How a database wants to be asked."""

    @property
    def lock(self) -> str:
        """What makes a SELECT lock the rows that it gives; a format with the name of their table."""
        ...

    @property
    def skip_locked(self) -> str:
        """What makes a SELECT lock the rows that nobody has locked."""
        ...

    @property
    def has_lateral(self) -> bool:
        """Whether a subquery can go by the rows of the tables before it."""
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
        """Return a table with these columns and types, of the rows in a parameter made by `encode_rows`."""
        ...

    def claimable(self, jobs: Sequence[str], sessions: Sequence[str]) -> str:
        """Return what finds (and locks) queued jobs of the lanes in `:lanes`, with these columns of jobs.

        After them come these of the session `:session`, NULL if there is none.
        """
        ...

    def insert(
        self, table: Table, columns: Sequence[str], *, on_conflict: str = "", own: Sequence[str] = ()
    ) -> Write:
        """Return what adds rows. Those of one batch mostly differ in their `own` columns only, if there are any."""
        ...

    def insert_annotation_texts(self) -> Write:
        """Return what adds to the index by which runs are found, which needs to know when a run was created."""
        ...

    def update(
        self, table: Table, keys: Sequence[str], columns: Sequence[str], *, sets: str = "", only: str = ""
    ) -> Write:
        """Return what sets columns of rows found by keys.

        With `sets` it sets that too, and with `only` it is for rows of which that is true, of which there may be none.
        """
        ...

    def delete(self, table: Table, keys: Sequence[str], *, only: str = "") -> Write:
        """Return what removes rows found by keys; with `only` those of which that is true."""
        ...


def encode_rows(columns: Sequence[str], rows: Iterable[Row]) -> str:
    """Return rows as JSON, for `Dialect.table_of` and for PostgreSQL's writes."""
    return _ENCODER.encode([dict(zip(columns, row, strict=True)) for row in rows])


@lru_cache(maxsize=1_024)
def _bound(sql: str) -> str:
    return _PARAMETER.sub(r"%(\1)s", sql)


POSTGRES_CLOCK: Final = "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"
"""The server's own time, in microseconds."""

_LANES: Final = {"lane": "bigint", "queue": "text", "definition": "text", "most": "bigint"}
_WANTED: Final = (
    "(job.lost_attempts = 0 OR :pass_over = 'nothing' "
    f"OR (:pass_over = 'suspects' AND job.lost_attempts < {SUSPECT_AFTER}))"
)
"""What is left of the queued jobs without those of which `Job.is_passed_over` is true."""
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
    """Return the end of an INSERT that makes a row look like this if it is there already."""
    sets = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in keys)
    return f" ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {sets}"


@attrs.frozen
class PostgresDialect:
    """PostgreSQL 14 or newer, by psycopg."""

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
        """See `Dialect.claimable`.

        Each pair of queue and definition is read in the order of the claim index, up to its lane's limit, passing
        over locked rows. MATERIALIZED: rows must be locked once, not whenever the planner reads them again. A row
        that was changed between being found and being locked is looked at again by the database itself.
        """
        columns = ", ".join(jobs)
        return (
            f"WITH picked AS MATERIALIZED (SELECT l.lane, l.most, j.* FROM {self.table_of('lanes', 'l', _LANES)} "
            f"CROSS JOIN LATERAL (SELECT {columns} FROM holdfast_jobs AS job WHERE job.namespace = :namespace "
            "AND job.queue = l.queue AND job.definition = l.definition AND job.state = 'queued' "
            f"AND {_WANTED} ORDER BY {_CLAIM_ORDER} LIMIT l.most{self.skip_locked}) AS j), "
            f"placed AS (SELECT *, row_number() OVER (PARTITION BY lane ORDER BY {_CLAIM_ORDER}) AS place FROM picked) "
            f"{_placed(jobs, sessions)} LIMIT :limit"
        )

    def insert(
        self, table: Table, columns: Sequence[str], *, on_conflict: str = "", own: Sequence[str] = ()
    ) -> Write:
        """See `Dialect.insert`. To read every column of every row costs the server as much as to store them."""
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
        """See `Dialect.insert_said_texts`."""
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
    """Return of which types columns of a table are, as `Dialect.table_of` wants to be told."""
    return {name: "bigint" if isinstance(table.c[name].type, BigInteger) else "text" for name in columns}


@attrs.frozen
class SqliteDialect:
    """SQLite 3.35 or newer, by the sqlite3 module. Whoever may write has locked the whole file."""

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
        """See `Dialect.claimable`. `:most` is the highest limit of a lane: a LIMIT can't be a column here."""
        columns = ", ".join(f"j.{name}" for name in jobs)
        return (
            f"WITH picked AS (SELECT l.lane, l.most, {columns} FROM {self.table_of('lanes', 'l', _LANES)} "
            "CROSS JOIN holdfast_jobs AS j WHERE j.rowid IN (SELECT job.rowid FROM holdfast_jobs AS job "
            "WHERE job.namespace = :namespace AND job.queue = l.queue AND job.definition = l.definition "
            f"AND job.state = 'queued' AND {_WANTED} ORDER BY job.queue_position, job.run, job.number LIMIT :most)), "
            f"placed AS (SELECT *, row_number() OVER (PARTITION BY lane ORDER BY {_CLAIM_ORDER}) AS place FROM picked) "
            f"{_placed(jobs, sessions)} LIMIT :limit"
        )

    def insert(
        self, table: Table, columns: Sequence[str], *, on_conflict: str = "", own: Sequence[str] = ()
    ) -> Write:
        """See `Dialect.insert`. Here a row is made at a time, so what they have in common saves nothing."""
        places = ", ".join("?" for _ in columns)
        sql = f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES ({places}){on_conflict}"
        return Write(sql, tuple(columns))

    def insert_annotation_texts(self) -> Write:
        """See `Dialect.insert_said_texts`."""
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
