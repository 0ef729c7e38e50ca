"""A counter of the statements sent to SQLite and PostgreSQL, at the drivers."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any, Final

import pytest
from typing_extensions import override

from holdfast.adapters.sql.postgresql import libpq

_HINTS: Final = ("SELECT pg_notify", "LISTEN", "SELECT 1", "PRAGMA data_version")
"""Statements that listen for hints and read no row."""

_SETTINGS: Final = ("PRAGMA", "SELECT set_config")


class Statements:
    """The statements sent: how often each text was, and how many rows were written.

    A text that is sent with many rows counts once.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self.sent: Counter[str] = Counter()
        self.written = 0

    def count(self, sql: str) -> None:
        if not sql.startswith((*_HINTS, *_SETTINGS)):
            text = " ".join(sql.split())
            if "INSERT INTO" in text:
                # Of two forms: which it is hangs on what the rows have in common, and not on how many they are.
                text = text.partition(" FROM json_to_record")[0]
            with self._lock:
                self.sent[text] += 1

    def write(self, rows: int) -> None:
        with self._lock:
            self.written += max(rows, 0)

    @property
    def commits(self) -> int:
        """The number of committed transactions."""
        return self.sent["COMMIT"]

    @property
    def queries(self) -> int:
        """The number of statements besides those that begin and end transactions."""
        return sum(
            times for sql, times in self.sent.items() if not sql.startswith(("BEGIN", "COMMIT", "ROLLBACK"))
        )

    def texts_with(self, part: str) -> list[str]:
        return [sql for sql in self.sent if part in sql]

    @contextmanager
    def of(self) -> Generator["Statements"]:
        """Count the statements sent within the block only."""
        with self._lock:
            before, self.sent = self.sent, Counter()
            written, self.written = self.written, 0
        within = Statements()
        yield within
        with self._lock:
            within.sent, self.sent = self.sent, before + self.sent
            within.written, self.written = self.written, written + self.written


def _counting_connection(statements: Statements) -> type[sqlite3.Connection]:
    class CountingConnection(sqlite3.Connection):
        @override
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            statements.count(sql)
            cursor = super().execute(sql, parameters)
            statements.write(cursor.rowcount)  # nothing was written if it is -1
            return cursor

        @override
        def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
            statements.count(sql)
            cursor = super().executemany(sql, parameters)
            statements.write(cursor.rowcount)
            return cursor

    return CountingConnection


def count_statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    """Count the statements of connections to both databases that are opened from now on."""
    statements = Statements()
    monkeypatch.setattr(
        sqlite3, "connect", partial(sqlite3.connect, factory=_counting_connection(statements))
    )
    watch_statements(monkeypatch, statements.count, statements.write)
    return statements


def watch_statements(
    monkeypatch: pytest.MonkeyPatch,
    sent: Callable[[str], object],
    written: Callable[[int], object] = lambda _: None,
) -> None:
    """Call a function with each statement sent to PostgreSQL and its number of written rows."""
    make, make_all = libpq.StatementRunner.make, libpq.StatementRunner.make_all

    def heard(answer: libpq.StatementResult) -> libpq.StatementResult:
        given: Any = answer
        if (given._result.command_status or b"").startswith((b"INSERT", b"UPDATE", b"DELETE")):
            written(answer.hits)
        return answer

    def making(
        self: libpq.StatementRunner, sql: str, parameters: Any, **options: Any
    ) -> libpq.StatementResult:
        sent(sql)
        return heard(make(self, sql, parameters, **options))

    def making_all(self: libpq.StatementRunner, given: Iterable[Any]) -> Sequence[libpq.StatementResult]:
        all_given = list(given)
        for sql, *_ in all_given:
            sent(sql)
        return [heard(answer) for answer in make_all(self, all_given)]

    monkeypatch.setattr(libpq.StatementRunner, "make", making)
    monkeypatch.setattr(libpq.StatementRunner, "make_all", making_all)
