"""Answers to the queries about sinks and the delivery of events."""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

from typing import Final

from holdfast.adapters.sql import rows
from holdfast.adapters.sql.database import Link
from holdfast.adapters.sql.dialect import Dialect, encode_rows
from holdfast.adapters.sql.rows import askable, is_askable
from holdfast.ports.queries.outbox import (
    CountDeadLetters,
    DeadLetter,
    ListDeadLetters,
    ListSinks,
    SinksWithDueStreams,
    StreamRows,
)
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.outbox import Sink

_DEAD_LETTER: Final = ("sink", "run", "run_id", "number", "head_row", "attempts", "dead_lettered_at", "error")


def list_sinks(link: Link, dialect: Dialect, query: ListSinks) -> tuple[Sink, ...]:
    """Answer `ListSinks`."""
    if not is_askable(query.namespace):
        return ()
    sql = f"SELECT {', '.join(rows.SINK)} FROM holdfast_sinks WHERE namespace = :namespace ORDER BY name"
    found = link.query(dialect.bound(sql), {"namespace": query.namespace})
    return tuple(map(rows.sink_from, found))


def sinks_with_due_streams(link: Link, dialect: Dialect, query: SinksWithDueStreams) -> tuple[str, ...]:
    """Return the names of the sinks with due streams. Costs one index lookup per sink."""
    names = askable(query.names)
    if not names or not is_askable(query.namespace):
        return ()
    is_meant = f"s.batch IS {'NOT NULL' if query.are_read else 'NULL'}"
    sql = (
        f"SELECT s.name FROM holdfast_sinks AS s WHERE s.namespace = :namespace AND {is_meant} "
        f"AND {dialect.one_of('s.name', 'names')} AND (s.retry_at IS NULL OR s.retry_at <= :now) "
        "AND EXISTS (SELECT 1 FROM holdfast_outbox AS o WHERE o.sink = s.key AND o.due_at <= :now) ORDER BY s.name"
    )
    parameters = {"namespace": query.namespace, "names": dialect.texts(names), "now": query.now}
    return tuple(name for (name,) in link.query(dialect.bound(sql), parameters))


def stream_rows(link: Link, dialect: Dialect, query: StreamRows) -> tuple[HistoryRow, ...]:
    """Answer `StreamRows`. Row numbers have no gaps, so a range of numbers selects as many rows."""
    starts = [(one.run, one.after, one.since) for one in query.starts if is_askable(one.run)]
    if not starts:
        return ()
    table = dialect.table_of("starts", "t", {"run": "text", "after": "bigint", "since": "bigint"})
    columns = ", ".join(f"h.{name}" for name in rows.HISTORY)
    sql = (
        "WITH started AS (SELECT t.run, CASE WHEN t.after > 0 THEN t.after ELSE "
        "(SELECT min(x.number) - 1 FROM holdfast_history AS x WHERE x.run = t.run AND x.at >= t.since) END AS after "
        f"FROM {table}) SELECT {columns} FROM started AS s CROSS JOIN holdfast_history AS h "
        "WHERE h.run = s.run AND h.number > s.after AND h.number <= s.after + :limit ORDER BY h.run, h.number"
    )
    parameters = {"starts": encode_rows(("run", "after", "since"), starts), "limit": query.limit}
    return tuple(map(rows.history_from, link.query(dialect.bound(sql), parameters)))


def list_dead_letters(link: Link, dialect: Dialect, query: ListDeadLetters) -> tuple[DeadLetter, ...]:
    """Answer `ListDeadLetters`."""
    if not all(map(is_askable, (query.namespace, query.sink, query.run_id))):
        return ()
    after = ("", "") if query.after is None else query.after
    sql = (
        "SELECT s.name, o.run, r.id, o.refused_row, o.head_row, o.attempts, o.dead_lettered_at, o.error "
        "FROM holdfast_outbox AS o JOIN holdfast_sinks AS s ON s.key = o.sink "
        "JOIN holdfast_runs AS r ON r.key = o.run WHERE o.state = 'dead_lettered' AND s.namespace = :namespace "
        "AND (CAST(:sink AS text) = '' OR s.name = :sink) AND (CAST(:run_id AS text) = '' OR r.id = :run_id) "
        "AND (s.name, o.run) > (:after_sink, :after_run) ORDER BY s.name, o.run LIMIT :limit"
    )
    parameters = {
        "namespace": query.namespace,
        "sink": query.sink,
        "run_id": query.run_id,
        "after_sink": after[0],
        "after_run": after[1],
        "limit": query.limit,
    }
    found = link.query(dialect.bound(sql), parameters)
    return tuple(DeadLetter(**dict(zip(_DEAD_LETTER, row, strict=True))) for row in found)


def count_dead_letters(link: Link, dialect: Dialect, query: CountDeadLetters) -> dict[str, int]:
    """Answer `CountDeadLetters`."""
    if not is_askable(query.namespace):
        return {}
    sql = (
        "SELECT s.name, count(*) FROM holdfast_outbox AS o JOIN holdfast_sinks AS s ON s.key = o.sink "
        "WHERE o.state = 'dead_lettered' AND s.namespace = :namespace GROUP BY s.name ORDER BY s.name"
    )
    return dict(link.query(dialect.bound(sql), {"namespace": query.namespace}))
