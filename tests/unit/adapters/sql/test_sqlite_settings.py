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


def test_nothing_is_stored_in_a_file_that_no_other_process_finds(tmp_path: Path) -> None:
    """An application that removed or replaced the file would lose what it was told is stored."""
    path = tmp_path / "a.db"
    database = SqliteDatabase(str(path))
    with database.writer(1.0) as link:
        link.query("CREATE TABLE a (b)")
    path.rename(tmp_path / "elsewhere.db")
    for is_replaced in (False, True):
        if is_replaced:
            path.touch()
        for lend in (database.writer, database.shared):
            with pytest.raises(UnavailableError, match="removed or replaced"), lend(1.0):
                pytest.fail("it was lent")
    (tmp_path / "elsewhere.db").rename(path)
    with database.writer(1.0) as link:
        link.query("INSERT INTO a VALUES (1)")
    path.unlink()
    database.close()  # what is opened again is another store
    with database.writer(1.0) as link:
        assert link.query("SELECT * FROM sqlite_master") == []
    database.close()


def test_a_process_that_changes_its_folder_keeps_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    database = SqliteDatabase("a.db")
    with database.writer(1.0) as link:
        link.query("CREATE TABLE a (b)")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    with database.reader(1.0) as link:
        assert link.query("SELECT name FROM sqlite_master") == [("a",)]
    database.close()
    with database.writer(1.0) as link:
        assert link.query("SELECT name FROM sqlite_master") == [("a",)]
    database.close()
    assert sorted(tmp_path.rglob("*.db")) == [tmp_path / "a.db"]
