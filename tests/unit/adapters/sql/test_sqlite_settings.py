"""Settings of a SQLite connection that hold whatever a step's body has set; files that are no database."""

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.adapters.sql.sqlite.connection import SqliteDatabase
from holdfast.ports.errors import AccessDeniedError, HoldfastError, InvalidUrlError, UnavailableError
from holdfast.ports.queries.store import SchemaVersion

OURS = {
    "journal_mode": "wal",
    "synchronous": 2,
    "fullfsync": 1,
    "checkpoint_fullfsync": 1,
    "foreign_keys": 1,
    "ignore_check_constraints": 0,
    "query_only": 0,
}


def settings_of(ask: Callable[[str], object]) -> dict[str, object]:
    return {name: ask(f"PRAGMA {name}") for name in OURS}


def test_a_connection_has_what_must_be_ours_whatever_the_body_before_has_set(tmp_path: Path) -> None:
    database = SqliteDatabase(str(tmp_path / "a.db"))
    with database.shared(1.0) as shared:
        raw = shared.connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    for setting in (
        "synchronous = OFF",
        "foreign_keys = OFF",
        "ignore_check_constraints = ON",
        "query_only = ON",
    ):
        raw.execute(f"PRAGMA {setting}")
    with database.shared(1.0) as shared:
        assert shared.connection.connection.driver_connection is raw
        assert settings_of(lambda sql: shared.connection.execute(text(sql)).scalar()) == OURS
    with database.writer(1.0) as link:
        assert settings_of(lambda sql: link.query(sql)[0][0]) == OURS
    database.close()


def raised_by(url: str) -> HoldfastError:
    store = SqlPersistence(url)
    began = time.monotonic()
    try:
        store.read(SchemaVersion())
    except HoldfastError as error:
        assert time.monotonic() - began < 2
        return error
    finally:
        store.close()
    raise AssertionError("it has worked")


def test_a_file_that_can_not_be_one_is_not_tried_again(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database at all " * 100)
    long = "x" * 300

    assert type(raised_by(f"sqlite:///{tmp_path}")) is InvalidUrlError
    assert type(raised_by(f"sqlite:///{tmp_path}/text")) is InvalidUrlError
    assert type(raised_by(f"sqlite:///{tmp_path}/{long}")) is UnavailableError
    assert type(raised_by(f"sqlite:///{tmp_path}/gone/a.db")) is UnavailableError
    assert type(raised_by(f"sqlite:///{tmp_path}/text/a.db")) is UnavailableError


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_may_not_be_written_is_not_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.touch(0o400)
    assert type(raised_by(f"sqlite:///{path}")) is AccessDeniedError
    path.chmod(0o600)
    tmp_path.chmod(0o500)
    assert type(raised_by(f"sqlite:///{path}")) is AccessDeniedError
    tmp_path.chmod(0o700)
