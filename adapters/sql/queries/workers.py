"""Answers to the queries about workers and queues."""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

from contextlib import suppress
from typing import Final

from holdfast.adapters.sql import rows
from holdfast.adapters.sql.database import Link
from holdfast.adapters.sql.dialect import Dialect, encode_rows
from holdfast.adapters.sql.rows import askable, is_askable
from holdfast.adapters.sql.schema.columns import COLUMNS
from holdfast.ports.errors import UnreadableRowError
from holdfast.ports.queries.workers import (
    COUNTED_MAX,
    HeldJob,
    HeldJobs,
    ListWorkers,
    QueueContents,
    QueueLine,
    QueueLines,
    RegisteredSession,
)
from holdfast.ports.records.job import PRIORITY_STEP
from holdfast.ports.records.session import Registration
from holdfast.ports.records.values import Micros

_SESSION: Final = ", ".join(f"s.{name}" for name in rows.SESSION)
_REGISTRATION: Final = ", ".join(f"w.{name}" for name in COLUMNS[Registration].columns)
_JOB: Final = ", ".join(f"held.{name}" for name in rows.JOB)

_HELD_MAX: Final = 100_000
"""How many held jobs are looked at, at most. With a limit, PostgreSQL looks for those of each session in the index."""


def list_workers(link: Link, dialect: Dialect, query: ListWorkers) -> tuple[RegisteredSession, ...]:
    """Answer `ListWorkers`."""
    if query.limit <= 0 or not is_askable(query.namespace) or not is_askable(query.after):
        return ()
    sql = (
        f"SELECT {_SESSION}, {_REGISTRATION} FROM holdfast_worker_registry AS w "
        "JOIN holdfast_sessions AS s ON s.id = w.session AND s.state = 'open' "
        "WHERE w.namespace = :namespace AND w.session > :after ORDER BY w.session LIMIT :limit"
    )
    parameters = {"namespace": query.namespace, "after": query.after, "limit": query.limit}
    found = link.query(dialect.bound(sql), parameters)
    registration_from = rows.record_of(Registration)
    width = len(rows.SESSION)
    return tuple(
        RegisteredSession(rows.session_from(row[:width]), registration_from(row[width:])) for row in found
    )


def held_jobs(link: Link, dialect: Dialect, query: HeldJobs) -> tuple[HeldJob, ...]:
    """Answer `HeldJobs`. A job whose row can't be read is left out."""
    sessions = askable(query.sessions)
    if not sessions or query.limit <= 0:
        return ()
    given = dialect.table_of("sessions", "p", {"id": "text"})
    order = f"ORDER BY h.session, h.run, h.number LIMIT {_HELD_MAX}"
    each = dialect.rows_for_each(
        given, "holdfast_jobs AS h", "h.session = p.id AND h.state = 'leased'", order
    )
    sql = (
        f"SELECT {_JOB}, r.id, r.generation FROM (SELECT one.*, row_number() OVER "
        f"(PARTITION BY one.session ORDER BY one.run, one.number) AS place FROM (SELECT h.* FROM {each}) AS one) "
        "AS held JOIN holdfast_runs AS r ON r.key = held.run WHERE held.place <= :limit "
        "ORDER BY held.session, held.run, held.number"
    )
    parameters = {"sessions": encode_rows(("id",), [(one,) for one in sessions]), "limit": query.limit}
    found = link.query(dialect.bound(sql), parameters)
    held: list[HeldJob] = []
    for *job, run_id, generation in found:
        with suppress(UnreadableRowError):
            held.append(HeldJob(rows.job_from(tuple(job)), run_id, generation))
    return tuple(held)


def _lines(state: str, *columns: str) -> str:
    """Return the statement for the lines of a state, with further columns of each line `l`.

    A loose index scan: one look into the index for each queue and each definition, however many jobs they have. It is
    not sorted, so that it ends at the limit.
    """

    def first(column: str, condition: str = "") -> str:
        return (
            f"(SELECT j.{column} FROM holdfast_jobs AS j WHERE j.namespace = :namespace AND j.state = '{state}'"
            f"{condition} ORDER BY j.{column} LIMIT 1)"
        )

    of_queue = " AND j.queue = {0}.queue"
    return (
        f"WITH RECURSIVE queues(queue) AS (SELECT {first('queue')} UNION ALL "
        f"SELECT {first('queue', ' AND j.queue > q.queue')} FROM queues AS q WHERE q.queue IS NOT NULL), "
        f"lines(queue, definition) AS (SELECT q.queue, {first('definition', of_queue.format('q'))} "
        "FROM queues AS q WHERE q.queue IS NOT NULL UNION ALL "
        f"SELECT l.queue, {first('definition', of_queue.format('l') + ' AND j.definition > l.definition')} "
        "FROM lines AS l WHERE l.definition IS NOT NULL), "
        "found AS (SELECT l.queue, l.definition FROM lines AS l WHERE l.definition IS NOT NULL LIMIT :limit) "
        f"SELECT '{state}', CAST(:namespace AS text), l.queue, l.definition, {', '.join(columns)} FROM found AS l"
    )


def _of_line(state: str) -> str:
    return (
        "FROM holdfast_jobs AS w WHERE w.namespace = :namespace AND w.queue = l.queue "
        f"AND w.definition = l.definition AND w.state = '{state}'"
    )


def _counted(state: str) -> str:
    return f"(SELECT count(*) FROM (SELECT 1 AS one {_of_line(state)} LIMIT {COUNTED_MAX}) AS counted)"


_SINCE: Final = (
    f"(SELECT w.queue_position + w.priority * {PRIORITY_STEP} {_of_line('queued')} "
    "ORDER BY w.queue_position, w.run, w.number LIMIT 1)"
)
_NONE: Final = "CAST(NULL AS bigint)"
_LEASED: Final = (
    f"SELECT 'leased', w.namespace, w.queue, w.definition, count(*), {_NONE} FROM (SELECT j.namespace, j.queue, "
    "j.definition FROM holdfast_jobs AS j WHERE j.state = 'leased' ORDER BY j.session "
    f"LIMIT {COUNTED_MAX + 1}) AS w GROUP BY w.namespace, w.queue, w.definition"
)
_QUEUE_LINES: Final = " UNION ALL ".join(
    f"SELECT * FROM ({part}) AS {name}"
    for name, part in (
        ("waiting", _lines("queued", _counted("queued"), _SINCE)),
        ("asleep", _lines("sleeping", _counted("sleeping"), _NONE)),
        ("held", _LEASED),
    )
)


def queue_lines(link: Link, dialect: Dialect, query: QueueLines) -> QueueContents:
    """Answer `QueueLines`."""
    most = max(0, query.limit)
    if not is_askable(query.namespace):
        return QueueContents(lines=())
    parameters = {"namespace": query.namespace, "limit": most + 1}
    counts: dict[str, dict[tuple[str, str], int]] = {"queued": {}, "sleeping": {}, "leased": {}}
    since: dict[tuple[str, str], Micros] = {}
    is_partial, leased = False, 0
    for state, namespace, queue, definition, number, waits_since in link.query(
        dialect.bound(_QUEUE_LINES), parameters
    ):
        of_state, line = counts[state], (queue, definition)
        if state == "leased":
            leased += number
        elif len(of_state) == most:
            is_partial = True
            continue
        if namespace == query.namespace:
            of_state[line] = number
        if waits_since is not None:
            since[line] = waits_since
    lines = tuple(
        QueueLine(
            queue=line[0],
            definition=line[1],
            queued=counts["queued"].get(line, 0),
            running=counts["leased"].get(line, 0),
            sleeping=counts["sleeping"].get(line, 0),
            since=since.get(line),
        )
        for line in sorted({line for of_state in counts.values() for line in of_state})
    )
    return QueueContents(lines=lines, is_partial=is_partial or leased > COUNTED_MAX)
