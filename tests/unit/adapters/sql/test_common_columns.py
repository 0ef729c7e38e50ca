"""Columns with one value in all rows of a batch are sent once, if the value is known to be common."""

from typing import Final

import pytest

from holdfast.adapters.sql.postgresql.dialect import PostgresDialect
from holdfast.adapters.sql.rows import HISTORY, Row
from holdfast.adapters.sql.schema.tables import history
from holdfast.adapters.sql.sqlite.dialect import SqliteDialect
from holdfast.ports.json import parse

WRITE: Final = PostgresDialect().insert(history, HISTORY, own=("run", "number", "payload"))


def row(run: str, payload: str | None, *, node: str | None = None) -> Row:
    return (run, 1, "run.created", 5, node, None, None, payload, None, "{}")


def test_only_what_rows_have_of_their_own_is_sent_for_each() -> None:
    sql, parameters = WRITE.encoded([row("a", "1"), row("b", None), row("c", "1")])

    assert WRITE.alike is not None
    assert sql == WRITE.alike.sql
    assert parse(parameters["run"]) == ["a", "b", "c"]
    assert parse(parameters["number"]) == [1, 1, 1]
    assert parse(parameters["payload"]) == ["1", None, "1"]
    assert parse(parameters["shared"]) == {
        "type": "run.created",
        "at": 5,
        "node": None,
        "item": None,
        "epoch": None,
        "blob": None,
        "data": "{}",
    }


@pytest.mark.parametrize("place", range(3))
def test_all_of_them_is_sent_if_one_differs_elsewhere(place: int) -> None:
    rows = [row("a", "1"), row("b", "2"), row("c", "3")]
    rows[place] = row("d", "4", node="n")
    sql, parameters = WRITE.encoded(rows)

    assert sql == WRITE.sql
    assert parse(parameters["rows"]) == [dict(zip(HISTORY, one, strict=True)) for one in rows]


def test_all_of_a_row_is_sent_that_is_alone() -> None:
    assert WRITE.encoded([row("a", "1")])[0] == WRITE.sql


def test_where_rows_are_made_one_by_one_they_have_nothing_in_common() -> None:
    assert SqliteDialect().insert(history, HISTORY, own=("run",)).alike is None
