"""Rows of many runs, queued jobs and long histories, inserted by SQL.

Their content does not matter, their number does.
"""

import json
from typing import Any, Final

import psycopg

from holdfast.adapters.sql.queries.runs import pair
from holdfast.adapters.system.clock import SystemClock
from holdfast.ports.clock import micros

WORKFLOWS: Final = 50
FAILED_EVERY: Final = 40
TENANTS: Final = 1_000
BETWEEN: Final = 10_000
"""Microseconds between two rows of a lengthened history."""
_RUNS: Final = """
    INSERT INTO holdfast_runs (key, namespace, id, generation, workflow, version, plan, status, queue, priority,
        created_at, updated_at, ended_at, last_row, last_job, open_jobs, progress, queue_position, children,
        close_policy, reported_row, in_rate_line, attributes)
    SELECT 'bulk' || lpad(n::text, 9, '0'), 'default', 'bulk-' || n, 1, 'bulk-' || (n %% %(workflows)s), '1', 'f',
        CASE WHEN n %% %(failed)s = 0 THEN 'failed' ELSE 'completed' END, 'main', 0,
        %(now)s - n * 1000, %(now)s, %(now)s, 1, 1, 0, '{}', 0, 0, 'cancel', 0, 0,
        '{"half":"' || (n %% 2) || '","tenant":"t-' || (n %% %(tenants)s) || '"}'
    FROM generate_series(1, %(runs)s) AS n
"""
_ATTRIBUTES: Final = """
    INSERT INTO holdfast_attributes (pair, created_at, run)
    SELECT p.pair, %(now)s - n * 1000, 'bulk' || lpad(n::text, 9, '0')
    FROM unnest(%(pairs)s::text[]) WITH ORDINALITY AS p (pair, number),
        generate_series(p.number::int - 1, %(runs)s, %(tenants)s) AS n WHERE n > 0
"""
_HALVES: Final = """
    INSERT INTO holdfast_attributes (pair, created_at, run)
    SELECT (%(halves)s::text[])[n %% 2 + 1], %(now)s - n * 1000, 'bulk' || lpad(n::text, 9, '0')
    FROM generate_series(1, %(runs)s) AS n
"""
_IS_FILLED: Final = "SELECT 1 FROM holdfast_runs WHERE key = 'bulk000000001'"
_QUEUED: Final = """
    INSERT INTO holdfast_jobs (run, number, namespace, queue, definition, kind, node, state, priority, epoch,
        attempts, max_attempts, lost_attempts, input, queue_position)
    SELECT 'bulk' || lpad(n::text, 9, '0'), 1, 'default', 'bulk-' || (n %% 5), 'bulk-' || (n %% %(workflows)s) || '@1',
        'stage', 'a', 'queued', 0, 0, 0, 3, 0, 'null', %(now)s
    FROM generate_series(1, %(jobs)s) AS n
"""


def fill(url: str, *, runs: int, jobs: int) -> None:
    """Insert ended runs of 50 workflows and 1,000 tenants, one of 40 failed, and queued jobs whose code nobody has.

    Those with the attribute `half=1` have not failed. Does nothing in a database that has them.
    """
    now = micros(SystemClock().now())
    given = {
        "runs": runs,
        "jobs": jobs,
        "now": now,
        "workflows": WORKFLOWS,
        "failed": FAILED_EVERY,
        "tenants": TENANTS,
        "pairs": [pair("default", "tenant", f"t-{number}") for number in range(TENANTS)],
        "halves": [pair("default", "half", text) for text in ("0", "1")],
    }
    with psycopg.connect(url, autocommit=True) as connection:
        if connection.execute(_IS_FILLED.encode()).fetchone() is not None:
            return
        for statement in (_RUNS, _ATTRIBUTES, _HALVES, _QUEUED):
            connection.execute(statement.encode(), given)
        connection.execute("VACUUM ANALYZE holdfast_runs, holdfast_jobs, holdfast_attributes")


def lengthen(url: str, run_id: str, type: str, number: int) -> None:
    """Repeat the first history row of a type of an ended run, so that it has so many, one each hundredth of a second.

    The values of a step or an item stay those of the first one.
    """
    with psycopg.connect(url, autocommit=True) as connection:
        columns = "h.run, h.number, h.type, h.at, h.node, h.item, h.epoch, h.payload, h.blob, h.data"
        rows = connection.execute(
            f"SELECT {columns} FROM holdfast_history AS h JOIN holdfast_runs AS r ON r.key = h.run "  # fixed
            "WHERE r.id = %s ORDER BY h.number".encode(),
            [run_id],
        ).fetchall()
        places = [
            place
            for place, row in enumerate(rows)
            if row[2] == type and (row[5] is not None or "step" in type)
        ]
        first, last = places[0], places[-1]
        before, model, after = rows[:first], rows[first], rows[last + 1 :]
        data = json.loads(model[9])
        made: list[tuple[Any, ...]] = []
        for place in range(number):
            later = place * BETWEEN
            of_row = {**data, "started_at": data["started_at"] + later}
            if "call" in data:
                of_row["call"] = str(place + 1)
            item = None if model[5] is None else place
            facts = json.dumps(of_row, separators=(",", ":"))
            made.append((*model[:3], model[3] + later, model[4], item, *model[6:9], facts))
        end = made[-1][3]
        ends = [(*row[:3], end, *row[4:]) for row in after]
        whole = [(row[0], place, *row[2:]) for place, row in enumerate([*before, *made, *ends], 1)]
        connection.execute("DELETE FROM holdfast_history WHERE run = %s", [rows[0][0]])
        names = columns.replace("h.", "")
        with connection.cursor().copy(f"COPY holdfast_history ({names}) FROM STDIN".encode()) as copy:
            for row in whole:
                copy.write_row(row)
        connection.execute(
            "UPDATE holdfast_history SET data = %s WHERE run = %s AND type = 'stage.expanded'",
            [json.dumps({"items": number}), rows[0][0]],
        )
        connection.execute(
            "UPDATE holdfast_runs SET last_row = %s, ended_at = %s WHERE key = %s",
            [len(whole), end, rows[0][0]],
        )
        connection.execute("VACUUM ANALYZE holdfast_history")
