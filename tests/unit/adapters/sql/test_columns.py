"""Columns are named by a map alone: a renamed field changes no statement, and a field without a column is refused."""

import sqlite3
from collections.abc import Iterator
from typing import Any, Final, cast

import attrs
import pytest
from sqlalchemy import BigInteger, Column, MetaData, Table, Text

from holdfast.adapters.sql.postgresql.dialect import PostgresDialect
from holdfast.adapters.sql.rows import (
    RUN,
    annotation_from,
    fields_of,
    history_from,
    run_from,
    values_of,
)
from holdfast.adapters.sql.schema import tables
from holdfast.adapters.sql.schema.columns import COLUMNS, ColumnMap
from holdfast.adapters.sql.sqlite.dialect import SqliteDialect
from holdfast.ports.attempt_output import AiCall, Annotation
from holdfast.ports.errors import UnreadableRowError
from holdfast.ports.json import parse
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import Run
from holdfast.testing.conformance.builders import a_run


@attrs.frozen(kw_only=True)
class Book:
    key: str
    title: str
    pages: int


BOOKS: Final = Table(
    "books",
    MetaData(),
    Column("key", Text(), primary_key=True),
    Column("heading", Text()),
    Column("pages", BigInteger()),
)
OF_BOOKS: Final = {"key": "key", "title": "heading", "pages": "pages"}


def use(monkeypatch: pytest.MonkeyPatch, columns: ColumnMap) -> None:
    monkeypatch.setitem(cast("dict[type, ColumnMap]", COLUMNS), columns.record, columns)
    values_of.cache_clear()


@pytest.fixture(autouse=True)
def forget_values() -> Iterator[None]:
    yield
    values_of.cache_clear()


@pytest.fixture
def books(monkeypatch: pytest.MonkeyPatch) -> ColumnMap:
    """The map of a record of which a field was renamed."""
    columns = ColumnMap(Book, BOOKS, OF_BOOKS)
    use(monkeypatch, columns)
    return columns


def test_a_record_is_written_to_and_read_from_the_columns_of_its_map(books: ColumnMap) -> None:
    dialect, stored = SqliteDialect(), sqlite3.connect(":memory:")
    stored.execute("CREATE TABLE books (key TEXT PRIMARY KEY, heading TEXT, pages INTEGER)")
    insert = dialect.insert(BOOKS, books.columns)
    update = dialect.update(BOOKS, ("key",), ("heading",))
    old, new = Book(key="b", title="Old", pages=3), Book(key="b", title="New", pages=3)

    stored.execute(insert.sql, values_of(Book, insert.columns)(old))
    assert stored.execute("SELECT heading FROM books").fetchall() == [("Old",)]

    stored.execute(update.sql, values_of(Book, update.columns)(new))
    (row,) = stored.execute(f"SELECT {', '.join(books.columns)} FROM books").fetchall()
    assert Book(**fields_of(Book, row)) == new
    stored.close()


def test_postgres_is_sent_the_names_of_columns(books: ColumnMap) -> None:
    insert = PostgresDialect().insert(BOOKS, books.columns)
    sql, parameters = insert.encoded([values_of(Book, insert.columns)(Book(key="b", title="T", pages=3))])

    assert sql.startswith("INSERT INTO books (key, heading, pages) SELECT key, heading, pages FROM ")
    assert parse(parameters["rows"]) == [{"key": "b", "heading": "T", "pages": 3}]


def renamed(table: Table, column: str, name: str) -> Table:
    """Return the same table with another name for one of its columns."""
    columns = (Column(name if one.name == column else one.name, one.type) for one in table.columns)
    return Table(table.name, MetaData(), *columns)


def renamed_map(
    record: type[attrs.AttrsInstance], field: str, name: str, *, blobs: tuple[str, ...] = ()
) -> ColumnMap:
    columns = COLUMNS[record]
    fields = {one: name if one == field else columns.column_of(one) for one in columns.fields}
    return ColumnMap(record, renamed(columns.table, columns.column_of(field), name), fields, blobs=blobs)


def test_an_unreadable_run_is_reported_by_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    row = list(values_of(Run, RUN)(a_run()))
    row[RUN.index("status")] = "newer"
    use(monkeypatch, renamed_map(Run, "status", "phase"))

    with pytest.raises(UnreadableRowError, match="'phase'") as caught:
        run_from(tuple(row))
    assert (caught.value.table, caught.value.column) == ("holdfast_runs", "phase")


def test_other_unreadable_rows_are_reported_by_their_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, renamed_map(HistoryRow, "blob", "blob_key", blobs=("blob",)))
    use(monkeypatch, renamed_map(Annotation, "scope", "about"))
    annotation = dict.fromkeys(COLUMNS[Annotation].columns, "newer")

    with pytest.raises(UnreadableRowError) as of_history:
        history_from(("r", 1, "run.created", 5, None, None, None, "1", "b", None))
    with pytest.raises(UnreadableRowError) as of_annotation:
        annotation_from(tuple(annotation.values()))
    assert (of_history.value.table, of_history.value.column) == ("holdfast_history", "blob_key")
    assert (of_annotation.value.table, of_annotation.value.column) == ("holdfast_annotations", "about")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": "key", "pages": "pages"}, "must name the fields that exist; missing: title; unknown: none"),
        ({**OF_BOOKS, "author": "author"}, "must name the fields that exist; missing: none; unknown: author"),
        (
            {**OF_BOOKS, "title": "title"},
            "must name the columns that exist; missing: heading; unknown: title",
        ),
    ],
)
def test_a_map_that_does_not_match_its_record_and_table_is_refused(
    columns: dict[str, str], message: str
) -> None:
    with pytest.raises(TypeError, match=f"the column map of Book {message}"):
        ColumnMap(Book, BOOKS, columns)


def test_a_column_belongs_to_one_field() -> None:
    @attrs.frozen
    class Copy:
        key: str
        title: str
        subtitle: str
        pages: int

    with pytest.raises(TypeError, match="the column map of Copy names columns twice: heading"):
        ColumnMap(Copy, BOOKS, {**OF_BOOKS, "subtitle": "heading"})


def test_fields_with_another_name_than_their_column() -> None:
    """None so far. A field that is renamed is added here."""
    differing: list[tuple[Any, ...]] = [
        (record.__name__, field, column)
        for record, of in COLUMNS.items()
        for field, column in zip(of.fields, of.columns, strict=True)
        if field != column
    ]

    assert differing == []


def test_rows_of_history_and_ai_calls_are_in_the_order_of_their_fields() -> None:
    """They are decoded by position."""
    for record, blobs in ((HistoryRow, {"blob"}), (AiCall, {"prompt_blob", "response_blob"})):
        fields = [field.name for field in attrs.fields(cast("type[attrs.AttrsInstance]", record))]
        assert [field for field in COLUMNS[record].fields if field not in blobs] == fields


def test_every_table_of_records_has_a_map() -> None:
    mapped = {of.table.name for of in COLUMNS.values()}
    without_record = {"attributes", "commit_receipts", "concurrency_limits", "store"}

    assert mapped | {f"holdfast_{name}" for name in without_record} == set(tables.metadata.tables)
