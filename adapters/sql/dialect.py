"""The SQL that differs between databases. All other SQL is in `statements` and `queries`.

The folder of a database has a `Dialect` (this module), and a `Database` with its `Link` (`database.py`). How to add a
database is in docs/howto/add-a-database.md.
"""

# Statements and parameters
# -------------------------
#
# Statements are written with parameters `:name`; `bound` turns them into the driver's form. A list is one parameter, a
# JSON text (or an array), however long it is: binding many parameters costs Python more than the database takes to
# parse a list. So the number of different statements is small and fixed, and the server can prepare them. For writes,
# SQLite gains nothing by that: it inserts row by row with `executemany`.
#
# The claim query differs most. Its theory is in `postgresql/claim_query.py`.
#
# All other SQL is what the supported databases have in common: common table expressions, window functions, comparisons
# of rows, `||`, CAST to text and to bigint, LIMIT, DELETE ... RETURNING. Every statement passes through `bound`, where
# a database that spells one of these otherwise can rewrite it.

# ruff: noqa: S608  # statements are put together from names that are constants of this program

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeGuard

import attrs
from sqlalchemy import BigInteger, Table

from holdfast.adapters.sql.rows import Row
from holdfast.ports.records.job import SUSPECT_AFTER

if TYPE_CHECKING:
    from holdfast.adapters.sql.queries.waiting_searches import Searches, Source

JSON_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":"))


@attrs.frozen
class Alike:
    """A statement that writes rows which differ only in a few columns.

    Its parameters are `:shared`, a JSON object, and each column that differs, by its name: a JSON array.
    """

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
        encode = JSON_ENCODER.encode
        shared = encode({name: first[place] for place, name in self.shared})
        return {"shared": shared, **{name: encode(columns[place]) for place, name in self.own}}


LONG_TEXT: Final = 4_096
"""From how many characters on a text is sent beside the JSON of its row."""


@attrs.frozen
class LongTextInsert:
    """A statement that inserts rows with long texts in one of their columns.

    Its parameters are those of `encode_long_texts`.
    """

    sql: str
    place: int
    """Index of the column with long texts."""


@attrs.frozen
class OnConflict:
    """The rule for inserted rows that exist already, by a unique index on `keys`; by any one without keys."""

    keys: Sequence[str] = ()
    sets: str = ""
    """Assignments that change the existing row, in which `excluded` is the new one. Without any it is left alone."""

    @property
    def clause(self) -> str:
        """The end of the INSERT, in standard words."""
        keys = f" ({', '.join(self.keys)})" if self.keys else ""
        return f" ON CONFLICT{keys} DO {f'UPDATE SET {self.sets}' if self.sets else 'NOTHING'}"


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
    long_text: LongTextInsert | None = None
    """A cheaper form for rows with long texts."""

    def encoded_with_lists(self, rows: Sequence[Row]) -> tuple[str, Mapping[str, object]]:
        """Return the cheapest statement to write these rows with, and its parameters, some of which may be lists."""
        if self.long_text is not None:
            parameters = encode_long_texts(self.columns, rows, self.long_text.place)
            if parameters is not None:
                return self.long_text.sql, parameters
        return self.encoded(rows)

    def encoded(self, rows: Sequence[Row]) -> tuple[str, Mapping[str, str]]:
        """Return a statement to write these rows with, and its parameters, all of which are texts."""
        if self.alike is not None and len(rows) > 1 and (shared := self.alike.encoded(rows)) is not None:
            return self.alike.sql, shared
        return self.sql, {"rows": encode_rows(self.columns, rows)}


NO_COLUMNS: Final[Mapping[str, str]] = {}


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

    def bound(self, sql: str) -> str:
        """Return a statement in the driver's form: its `:name` parameters, and what this database spells otherwise."""
        ...

    def one_of(self, column: str, parameter: str) -> str:
        """Return the condition that a column is one of the texts in a parameter made by `texts`."""
        ...

    def one_found_by(self, column: str, query: str) -> str:
        """Return the condition that a column is one of the texts that a query finds. The query is made once, first."""
        ...

    def contains(self, column: str, parameter: str) -> str:
        """Return the condition that the text in a column contains that of a parameter. Case counts."""
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
        columns of a job, then these of the session `:session`, NULL without such a session, then `HAS_LIMITS`.
        """
        ...

    def waiting_searches(self, source: "Source") -> "Searches":
        """Return the searches for runs or jobs that wait for slots (`queries.waiting_searches`), before `bound`."""
        ...

    def rows_for_each(self, given: str, table: str, condition: str, order: str) -> str:
        """Return the source of a SELECT and its end: the rows of a table that meet a condition for each given row.

        `given` is made by `table_of`, `table` ends in an alias, and `order` in a LIMIT, of which a database may apply
        both to each given row first.
        """
        ...

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
        """Return the statement that inserts rows.

        `own` names the columns in which rows of a batch usually differ, and `long` one that may have long texts.
        `derived` has the SQL of columns that the statement computes, in which a row is `new`.
        """
        ...

    def lock_logs(self) -> Write | None:
        """Return the statement that lets no other transaction store log lines of these runs before this one has ended.

        It locks no row. None if there is only one writer anyway.
        """
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
    """Return rows as JSON, for `Dialect.table_of`."""
    return JSON_ENCODER.encode([dict(zip(columns, row, strict=True)) for row in rows])


def encode_long_texts(
    columns: Sequence[str], rows: Sequence[Row], place: int
) -> Mapping[str, str | Sequence[str]] | None:
    """Return rows as JSON, `rows`, and the long texts of the column with this index as a list, `texts`.

    None without a long text. In a row with one, `text_at` is its place in the list, from 1. Putting a long text into
    JSON and taking it out again takes longer than storing it.
    """
    if not any(_is_long(row[place]) for row in rows):
        return None
    texts: list[str] = []
    encoded: list[dict[str, object]] = []
    for row in rows:
        values = dict(zip(columns, row, strict=True))
        if _is_long(text := row[place]):
            texts.append(text)
            values |= {columns[place]: None, "text_at": len(texts)}
        encoded.append(values)
    return {"rows": JSON_ENCODER.encode(encoded), "texts": texts}


def _is_long(text: str | None) -> TypeGuard[str]:
    return text is not None and len(text) >= LONG_TEXT


CLAIM_COLUMNS: Final = {"claim": "bigint", "queue": "text", "definition": "text", "most": "bigint"}
CLAIMABLE: Final = (
    "(job.lost_attempts = 0 OR :pass_over = 'nothing' "
    f"OR (:pass_over = 'suspects' AND job.lost_attempts < {SUSPECT_AFTER}))"
)
"""The condition for jobs that are not passed over (see `Job.is_passed_over`)."""
ANNOTATION_TEXT: Final = ("pair", "run")
CLAIM_ORDER: Final = "queue_position, run, number"
IS_OPEN_QUEUE: Final = (
    "coalesce((SELECT paused.is_paused FROM holdfast_limits AS paused WHERE paused.namespace = :namespace "
    "AND paused.name = 'queue:' || l.queue), 0) = 0"
)
"""The condition for queues that are not paused: one lookup by key for each pair of queue and definition."""
HAS_LIMITS: Final = "EXISTS (SELECT 1 FROM holdfast_limits)"
"""Whether an operator has ever changed a limit, or paused a queue. The database looks at no more than one row."""


def claimed_rows(jobs: Sequence[str], sessions: Sequence[str]) -> str:
    """Return the outer query of a claim: the rows in `placed`, each queue up to its limit, with the session."""
    columns = ", ".join((*(f"p.{name}" for name in jobs), *(f"s.{name}" for name in sessions), HAS_LIMITS))
    return (
        f"SELECT {columns} FROM placed AS p LEFT JOIN holdfast_sessions AS s ON s.id = :session "
        "WHERE p.place <= p.most ORDER BY p.queue_position, p.run, p.number"
    )


def joined(by: str, *parts: str) -> str:
    """Return the parts that are not empty, joined."""
    return by.join(part for part in parts if part)


def upsert(keys: Sequence[str], columns: Sequence[str]) -> OnConflict:
    """Return that a new row replaces the columns of an existing one."""
    return OnConflict(keys, ", ".join(f"{name} = excluded.{name}" for name in columns if name not in keys))


def types_of(table: Table, columns: Sequence[str]) -> dict[str, str]:
    """Return the types of a table's columns, for `Dialect.table_of`."""
    return {name: "bigint" if isinstance(table.c[name].type, BigInteger) else "text" for name in columns}
