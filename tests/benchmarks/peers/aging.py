"""Databases that have been in use: many runs have ended in them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import psycopg

from tests.benchmarks.peers.environments import HOLDFAST
from tests.benchmarks.peers.measurement import take
from tests.benchmarks.peers.rows import Row
from tests.benchmarks.sites import Before, Site

SEED: Final = 500
"""How many runs are really run; the others are copies of their rows."""

_FAR: Final = 1_000_000
"""From one copy of a number to the next: no sequence comes so far."""


@attrs.frozen
class Copied:
    """A table whose rows are copied, and what is put into the columns that tell one run from another.

    Each is SQL for the copy of number `n`; the others stay as they are.
    """

    table: str
    keys: Mapping[str, str]


def _ulid(column: str) -> str:
    return f"left({column}, 10) || lpad(upper(to_hex(n)), 6, '0') || right({column}, 10)"


def _random(column: str) -> str:
    return f"md5({column} || n)::uuid::text"


def _in_order(column: str) -> str:
    return f"(left({column}::text, 24) || lpad(to_hex(n), 12, '0'))::uuid"


def _far(column: str) -> str:
    return f"{column} + n * {_FAR}"


COPIED: Final[Mapping[str, Sequence[Copied]]] = {
    HOLDFAST: (
        Copied("holdfast_runs", {"key": _ulid("key"), "id": _ulid("id")}),
        Copied("holdfast_history", {"run": _ulid("run")}),
    ),
    "dbos": tuple(
        Copied(f"dbos.{table}", {"workflow_uuid": _random("workflow_uuid")})
        for table in ("workflow_status", "workflow_input", "workflow_output", "operation_outputs")
    ),
    "absurd": (
        Copied(
            "absurd.t_work",
            {"task_id": _in_order("task_id"), "last_attempt_run": _in_order("last_attempt_run")},
        ),
        Copied("absurd.r_work", {"run_id": _in_order("run_id"), "task_id": _in_order("task_id")}),
        Copied("absurd.c_work", {"task_id": _in_order("task_id"), "owner_run_id": _in_order("owner_run_id")}),
    ),
    "procrastinate": (
        Copied("procrastinate_jobs", {"id": _far("id")}),
        Copied("procrastinate_events", {"id": _far("id"), "job_id": _far("job_id")}),
    ),
    "pgqueuer": (Copied("pgqueuer_log", {"id": _far("id"), "job_id": _far("job_id")}),),
}
"""How the rows of finished runs are copied, by whose they are."""


def finished(peer: str, row: Row, runs: int) -> Before:
    """Return a database in which a peer has done so many runs of a row's kind."""

    def make(site: Site) -> None:
        take(
            peer,
            attrs.evolve(row, sizes={**row.sizes_for(peer), "runs": SEED}, sizes_of={}, finished=0),
            site,
        )
        with psycopg.connect(site.url, autocommit=True) as connection:
            connection.execute("SET session_replication_role = replica")  # a copy is no news to anybody
            for copied in COPIED[peer]:
                copy_rows(connection, copied, max(runs // SEED - 1, 0))

    return Before(f"{peer}-finished-{runs}", make)


def copy_rows(connection: psycopg.Connection[Any], copied: Copied, times: int) -> None:
    """Add so many copies of all rows of a table."""
    with connection.execute(f"SELECT * FROM {copied.table} LIMIT 0".encode()) as cursor:
        columns = [column.name for column in cursor.description or ()]
    chosen = ", ".join(copied.keys.get(column, column) for column in columns)
    connection.execute(
        f"INSERT INTO {copied.table} ({', '.join(columns)}) OVERRIDING SYSTEM VALUE "
        f"SELECT {chosen} FROM {copied.table} CROSS JOIN generate_series(1, {times}) AS n".encode()
    )
