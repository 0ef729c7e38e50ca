"""The execution log as tables of a PostgreSQL that no test kills: effects by key, executions by lease.

For tests with tens of thousands of bodies. A unique constraint catches effects that happen twice.
"""

import os
import threading
import time
from pathlib import Path
from typing import Final, LiteralString

import psycopg
from psycopg.rows import TupleRow, dict_row
from typing_extensions import override

from tests.chaos.execution_log import Attempted, Book, Entry, effect_name

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS effects (key text PRIMARY KEY);
CREATE TABLE IF NOT EXISTS executions (
    place bigserial, what text, run text, stage text, item integer, epoch bigint, attempt integer, key text,
    pid integer, at double precision, is_first boolean, times integer NOT NULL DEFAULT 1,
    UNIQUE (what, run, stage, item, epoch)
);
"""
_WRITE: Final = """
WITH had AS (INSERT INTO effects SELECT %(key)s WHERE %(what)s = 'start' ON CONFLICT DO NOTHING RETURNING key)
INSERT INTO executions (what, run, stage, item, epoch, attempt, key, pid, at, is_first)
VALUES (%(what)s, %(run)s, %(stage)s, coalesce(%(item)s, -1), %(epoch)s, %(attempt)s, %(key)s, %(pid)s, %(at)s,
    EXISTS (SELECT FROM had))
ON CONFLICT (what, run, stage, item, epoch) DO UPDATE SET times = executions.times + 1
"""
_FIELDS: Final = "what, run, stage, nullif(item, -1) AS item, epoch, attempt, key, pid, at, is_first"


class Ledger(Book):
    """An execution log in tables. The bodies of a process share one connection."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder)
        self.url = url
        self._lock = threading.Lock()
        self._connected: psycopg.Connection[TupleRow] | None = None

    def prepare(self) -> None:
        """Create the tables."""
        self._connection().execute(_TABLES)

    def close(self) -> None:
        """Close the connection."""
        if self._connected is not None:
            self._connected.close()

    @override
    def write(self, what: str, ctx: Attempted) -> None:
        values = {
            "what": what,
            "run": ctx.run_id,
            "stage": ctx.stage,
            "item": ctx.item,
            "epoch": ctx.epoch,
            "attempt": ctx.attempt,
            "key": ctx.idempotency_key,
            "pid": os.getpid(),
            "at": time.monotonic(),
        }
        self._connection().execute(_WRITE, values)

    @override
    def entries(self, what: str = "start", run: str | None = None) -> list[Entry]:
        with self._connection().cursor(row_factory=dict_row) as cursor:
            cursor.execute(
                f"SELECT {_FIELDS}, times FROM executions WHERE what = %s AND coalesce(run = %s, true) ORDER BY place",
                (what, run),
            )
            return [Entry(**row) for row in cursor for _ in range(row.pop("times"))]

    @override
    def effects(self) -> set[str]:
        return {effect_name(str(key)) for (key,) in self._rows("SELECT key FROM effects")}

    def done(self) -> int:
        """Return the number of units of work that were started at least once."""
        ((count,),) = self._rows("SELECT count(*) FROM effects")
        assert isinstance(count, int)
        return count

    def _rows(self, sql: LiteralString) -> list[TupleRow]:
        return self._connection().execute(sql).fetchall()

    def _connection(self) -> psycopg.Connection[TupleRow]:
        with self._lock:
            if self._connected is None:
                self._connected = psycopg.connect(self.url, autocommit=True)
            return self._connected
