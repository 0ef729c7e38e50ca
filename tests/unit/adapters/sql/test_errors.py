"""The mapping of database errors to Holdfast's."""

import sqlite3

import pytest

from holdfast.adapters.sql.errors import DiskFullError, StatementStoppedError, TransientError
from holdfast.adapters.sql.postgresql.errors import from_connecting, from_sqlstate
from holdfast.adapters.sql.retry import CONFLICTS_MAX, RetryBudget
from holdfast.adapters.sql.sqlite.errors import from_sqlite
from holdfast.ports.errors import (
    AccessDeniedError,
    ConflictError,
    HoldfastError,
    InvalidUrlError,
    RefusedError,
    SchemaError,
    StorageFullError,
    UnavailableError,
)


@pytest.mark.parametrize(
    ("sqlstate", "expected"),
    [
        (None, TransientError),
        ("08006", TransientError),
        ("40001", TransientError),
        ("40P01", TransientError),
        ("55P03", TransientError),
        ("57P01", TransientError),
        ("57014", StatementStoppedError),
        ("53300", TransientError),
        ("53100", DiskFullError),
        ("25006", TransientError),
        ("23505", ConflictError),
        ("23502", RefusedError),
        ("23514", RefusedError),
        ("22001", RefusedError),
        ("22003", RefusedError),
        ("22P05", RefusedError),
        ("54000", RefusedError),
        ("42P01", SchemaError),
        ("42703", SchemaError),
        ("42501", AccessDeniedError),
        ("28P01", AccessDeniedError),
        ("28000", AccessDeniedError),
        ("3D000", SchemaError),
        ("XX000", UnavailableError),
    ],
)
def test_every_sqlstate_has_a_meaning(sqlstate: str | None, expected: type[HoldfastError]) -> None:
    assert expected is type(from_sqlstate(sqlstate, "it said so"))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ('FATAL:  database "shop" does not exist', SchemaError),
        ("FATAL:  no such database: shop", SchemaError),
        ('FATAL:  password authentication failed for user "app"', AccessDeniedError),
        ("FATAL:  SASL authentication failed", AccessDeniedError),
        ("fe_sendauth: no password supplied", AccessDeniedError),
        ('FATAL:  role "app" does not exist', AccessDeniedError),
        ('FATAL:  role "app" is not permitted to log in', AccessDeniedError),
        ('FATAL:  permission denied for database "shop"', AccessDeniedError),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "app"', AccessDeniedError),
        ('FATAL:  unrecognized configuration parameter "nothing"', InvalidUrlError),
        ('invalid sslmode value: "evil"', InvalidUrlError),
        ('root certificate file "/no/such/file" does not exist', InvalidUrlError),
        ("connection refused", TransientError),
        ('could not translate host name "db" to address: Name or service not known', TransientError),
        ("FATAL:  the database system is starting up", TransientError),
        ("FATAL:  sorry, too many clients already", TransientError),
        ("server closed the connection unexpectedly", TransientError),
        ("connection timeout expired", TransientError),
        (
            'Multiple connection attempts failed.\n- a: database "x" does not exist\n- b: connection refused',
            TransientError,
        ),
    ],
)
def test_what_keeps_from_connecting_has_a_meaning(message: str, expected: type[HoldfastError]) -> None:
    assert type(from_connecting(message)) is expected


def sqlite_error(*statements: str) -> sqlite3.Error:
    connection = sqlite3.connect(":memory:")
    try:
        for statement in statements:
            connection.execute(statement)
    except sqlite3.Error as error:
        return error
    finally:
        connection.close()
    raise AssertionError("it did not fail")


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        (("CREATE TABLE t (a PRIMARY KEY)", "INSERT INTO t VALUES (1), (1)"), ConflictError),
        (("CREATE TABLE t (a UNIQUE)", "INSERT INTO t VALUES (1), (1)"), ConflictError),
        (("CREATE TABLE t (a NOT NULL)", "INSERT INTO t VALUES (NULL)"), RefusedError),
        (("SELECT * FROM nowhere",), SchemaError),
        (("CREATE TABLE t (a)", "SELECT b FROM t"), SchemaError),
        (("CREATE TABLE t (a)", "INSERT INTO t (b) VALUES (1)"), SchemaError),
        (("NONSENSE",), UnavailableError),
    ],
)
def test_every_error_of_sqlite_has_a_meaning(
    statements: tuple[str, ...], expected: type[HoldfastError]
) -> None:
    assert expected is type(from_sqlite(sqlite_error(*statements)))


def test_a_busy_file_is_worth_another_try() -> None:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY_SNAPSHOT

    assert TransientError is type(from_sqlite(error))


def test_what_can_not_be_bound_is_refused() -> None:
    assert RefusedError is type(from_sqlite(OverflowError("too large")))


def test_patience_ends_with_the_deadline() -> None:
    patience = RetryBudget(0.05, lambda: 1.0)

    patience.after_failure(TransientError("first"))
    with pytest.raises(UnavailableError, match=r"2 attempts.*second") as caught:
        for _ in range(10):
            patience.after_failure(TransientError("second"))
    assert UnavailableError is type(caught.value)


def test_who_has_waited_for_room_is_told_so() -> None:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    full = from_sqlite(error)
    assert isinstance(full, TransientError)

    patience = RetryBudget(0.05, lambda: 1.0)

    with pytest.raises(StorageFullError, match=r"full for 0.05 seconds and 2 attempts; free space"):
        for _ in range(10):
            patience.after_failure(full)


def test_whoever_waits_for_long_is_told_once_for_what(caplog: pytest.LogCaptureFixture) -> None:
    patience = RetryBudget(60.0, lambda: 0.0, notice_after=0.0)

    for _ in range(3):
        patience.after_failure(TransientError("no such host"))

    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "the database is unavailable; the call is retried for up to 60 s: no such host" in caplog.text


def test_patience_with_conflicts_ends_with_their_number() -> None:
    patience = RetryBudget(60.0, lambda: 0.0)

    for _ in range(CONFLICTS_MAX - 1):
        patience.after_conflict(ConflictError("taken"))
    with pytest.raises(ConflictError, match="taken"):
        patience.after_conflict(ConflictError("taken"))
