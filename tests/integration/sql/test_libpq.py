"""Statements over libpq: values round-trip, alone and pipelined, and an error breaks nothing."""

import time
from collections.abc import Generator

import psycopg
import pytest
from psycopg import pq

from holdfast.adapters.sql.postgresql.libpq import PREPARED_AFTER, StatementRunner

pytestmark = pytest.mark.service


@pytest.fixture
def statements(postgres_database: str) -> Generator[StatementRunner]:
    with psycopg.connect(postgres_database, autocommit=True, prepare_threshold=None) as connection:
        yield StatementRunner(connection, prepares=True)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("text", "quoted \" ' \\ {},\n\t% $1 ü 🙂"),
        ("text", ""),
        ("text", None),
        ("integer", 2**31 - 1),
        ("integer", -(2**31)),
        ("bigint", 2**31),
        ("bigint", -(2**63)),
        ("boolean", True),
        ("boolean", False),
        ("text[]", []),
        ("text[]", ["", "a,b", 'a"b', "a\\b", '\\"', "{}", "NULL", " ", "ü\n"]),
    ],
)
def test_a_parameter_comes_back_as_it_was(statements: StatementRunner, kind: str, value: object) -> None:
    sql = f"SELECT %(value)s::{kind} AS one, %(value)s::{kind} AS other, 7 %% 4 AS rest"
    for _ in range(PREPARED_AFTER + 2):
        assert statements.make(sql, {"value": value}, prepared=True).rows() == [(value, value, 3)]


def test_what_no_statement_has_is_refused(statements: StatementRunner) -> None:
    with pytest.raises(TypeError, match="float"):
        statements.make("SELECT %(value)s::text", {"value": 1.5})
    with pytest.raises(psycopg.DataError, match="NUL"):
        statements.make("SELECT %(value)s::text", {"value": "a\0b"})
    with pytest.raises(UnicodeEncodeError):
        statements.make("SELECT %(value)s::text", {"value": "\ud800"})
    assert statements.make("SELECT 1", {}).rows() == [(1,)]


def test_those_that_are_made_together_are_answered_in_order(statements: StatementRunner) -> None:
    for _ in range(PREPARED_AFTER + 2):
        answers = statements.make_all(
            [
                ("BEGIN", {}, False),
                ("CREATE TEMPORARY TABLE kept (one integer) ON COMMIT DROP", {}, False),
                ("INSERT INTO kept SELECT * FROM generate_series(1, %(most)s::integer)", {"most": 3}, True),
                ("SELECT one FROM kept ORDER BY one", {}, True),
                ("COMMIT", {}, False),
            ]
        )
        assert [answer.hits for answer in answers] == [0, 0, 3, 3, 0]
        assert answers[3].rows() == [(1,), (2,), (3,)]
        assert statements.status == pq.TransactionStatus.IDLE


def test_none_is_made_after_one_that_fails(statements: StatementRunner) -> None:
    statements.make("CREATE TEMPORARY TABLE kept (one integer UNIQUE)", {})
    insert = "INSERT INTO kept VALUES (%(one)s::integer)"
    for _ in range(PREPARED_AFTER + 2):  # it fails before it is prepared, as it is, and after
        with pytest.raises(psycopg.errors.UniqueViolation):
            statements.make_all([("BEGIN", {}, False), *((insert, {"one": one}, True) for one in (1, 1, 2))])
        assert statements.status == pq.TransactionStatus.INERROR
        statements.make("ROLLBACK", {})
        assert statements.make("SELECT count(*) FROM kept", {}).rows() == [(0,)]


def test_what_can_t_be_sent_fails_before_it_is(statements: StatementRunner) -> None:
    with pytest.raises(psycopg.DataError, match="NUL"):
        statements.make_all([("BEGIN", {}, False), ("SELECT %(one)s::text", {"one": "\0"}, True)])
    assert statements.status == pq.TransactionStatus.INTRANS
    statements.make("ROLLBACK", {})
    assert statements.make("SELECT 1", {}, prepared=True).rows() == [(1,)]


@pytest.mark.slow
def test_much_that_is_sent_while_much_comes_back_does_not_stand_still(statements: StatementRunner) -> None:
    """The server sends before it reads on, so a client that only sends would block for ever."""
    text = "x" * 8_000_000
    answers = statements.make_all([("SELECT %(text)s::text", {"text": text}, False)] * 4)
    assert all(answer.rows() == [(text,)] for answer in answers)


@pytest.mark.slow
def test_a_transaction_that_was_begun_together_with_others_is_not_left_idle(
    statements: StatementRunner,
) -> None:
    """The server releases the locks of a process that was stopped in the middle of a transaction."""
    statements.make("SET idle_in_transaction_session_timeout = 100", {})
    statements.make_all([("BEGIN", {}, False), ("SELECT 1", {}, False)])
    time.sleep(0.5)
    with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
        statements.make("SELECT 1", {})


def test_a_connection_that_is_lost_among_several_is_an_error(statements: StatementRunner) -> None:
    end = "SELECT pg_terminate_backend(pg_backend_pid())"
    with pytest.raises(psycopg.OperationalError):
        statements.make_all([("BEGIN", {}, False), (end, {}, False), ("SELECT 1", {}, False)])
    with pytest.raises(psycopg.OperationalError):
        statements.make_all([("BEGIN", {}, False), ("SELECT 1", {}, False)])
    assert statements.status == pq.TransactionStatus.UNKNOWN
