"""An external service in a SQLite file: takes its time, and does each job once however often it is submitted."""

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import attrs

_TABLE = """
CREATE TABLE IF NOT EXISTS jobs (
    key TEXT PRIMARY KEY, number INTEGER NOT NULL,
    submits INTEGER NOT NULL, asks INTEGER NOT NULL, late INTEGER NOT NULL, cancels INTEGER NOT NULL
)
"""
ASKS = 2
"""The number of polls until a job is done."""


@attrs.frozen(kw_only=True)
class OutsideJob:
    """A job of the service. `late` counts submissions after the first poll, `cancels` the cancels.

    A poll proves that the suspension is stored, so the job must not be submitted again.
    """

    key: str
    number: int
    submits: int
    asks: int
    late: int
    cancels: int


class Outside:
    """The client of the service. Each process opens its own."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "outside.db"
        with self._transaction() as db:
            db.execute(_TABLE)

    def submit(self, key: str, number: int) -> str:
        """Submit a job, once for each key; return its token for polls."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO jobs VALUES (?, ?, 1, 0, 0, 0) ON CONFLICT (key)"
                " DO UPDATE SET submits = submits + 1, late = late + (asks > 0)",
                (key, number),
            )
        return key

    def ask(self, key: str) -> int | None:
        """Return the result of a job; None while it is not done."""
        with self._transaction() as db:
            db.execute("UPDATE jobs SET asks = asks + 1 WHERE key = ?", (key,))
            asks, number = db.execute("SELECT asks, number FROM jobs WHERE key = ?", (key,)).fetchone()
            return int(number) if asks > ASKS else None

    def cancel(self, key: str) -> None:
        """Cancel a job; repeatable."""
        with self._transaction() as db:
            db.execute("UPDATE jobs SET cancels = cancels + 1 WHERE key = ?", (key,))

    def jobs(self) -> list[OutsideJob]:
        """Return all jobs."""
        with self._transaction() as db:
            rows = db.execute("SELECT key, number, submits, asks, late, cancels FROM jobs").fetchall()
        return [
            OutsideJob(key=key, number=number, submits=submits, asks=asks, late=late, cancels=cancels)
            for key, number, submits, asks, late, cancels in rows
        ]

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=30, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")
