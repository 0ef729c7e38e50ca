"""SQLite settings of every connection: without one of them a guarantee would not hold."""

from pathlib import Path

import pytest

from holdfast.adapters.sql.sqlite.connection import SqliteDatabase

FULL = 2

SETTINGS = [
    ("journal_mode", "wal"),  # readers don't wait for the writer
    ("synchronous", FULL),  # what was committed is on the disk
    ("foreign_keys", 1),  # no job without its run
]


@pytest.mark.parametrize(("setting", "value"), SETTINGS)
def test_the_writer_keeps_what_it_commits(tmp_path: Path, setting: str, value: object) -> None:
    database = SqliteDatabase(str(tmp_path / "s.db"))
    try:
        with database.writer(1.0) as link:
            assert link.query(f"PRAGMA {setting}", {})[0][0] == value
    finally:
        database.close()


def test_steps_in_transactions_and_migrations_have_the_same(tmp_path: Path) -> None:
    database = SqliteDatabase(str(tmp_path / "s.db"))
    try:
        with database.migration(1.0) as connection:
            for setting, value in SETTINGS:
                found = connection.exec_driver_sql(f"PRAGMA {setting}").scalar()
                assert found == value, setting
    finally:
        database.close()


def test_a_reader_can_not_write(tmp_path: Path) -> None:
    database = SqliteDatabase(str(tmp_path / "s.db"))
    try:
        with database.reader(1.0) as link:
            assert link.query("PRAGMA query_only", {})[0][0] == 1
    finally:
        database.close()
