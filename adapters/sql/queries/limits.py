"""Answers to the queries about limits and queues."""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

from collections.abc import Sequence
from typing import Final

from holdfast.adapters.sql import rows
from holdfast.adapters.sql.database import Link
from holdfast.adapters.sql.dialect import Dialect, encode_rows
from holdfast.adapters.sql.queries.waiting_searches import PLACE, SOURCES, Source, within_or_same
from holdfast.adapters.sql.rows import askable, askable_keys, is_askable
from holdfast.ports.queries.audit import LAST
from holdfast.ports.queries.limits import (
    BEFORE_MAX,
    COUNTED_MAX,
    LevelState,
    LevelStates,
    LineState,
    LineStates,
    ListLimits,
    QueueState,
    QueueStates,
    RateLines,
)
from holdfast.ports.records.job import PRIORITY_STEP
from holdfast.ports.records.limits import LimitRow, levels_of
from holdfast.ports.records.run import outer_limits_of_waiter
from holdfast.ports.searches import SlotPlace, Waiting

_LIMITS: Final = f"SELECT {', '.join(rows.LIMIT)} FROM holdfast_limits WHERE namespace = :namespace"
_SINCE: Final = f"w.queue_position + w.priority * {PRIORITY_STEP}"


def list_limits(link: Link, dialect: Dialect, query: ListLimits) -> tuple[LimitRow, ...]:
    """Answer `ListLimits`."""
    if query.limit <= 0 or not is_askable(query.namespace) or not is_askable(query.after):
        return ()
    sql = f"{_LIMITS} AND name > :after ORDER BY name LIMIT :limit"
    parameters = {"namespace": query.namespace, "after": query.after, "limit": query.limit}
    return tuple(map(rows.limit_from, link.query(dialect.bound(sql), parameters)))


def rate_lines(link: Link, dialect: Dialect, query: RateLines) -> tuple[str, ...]:
    """Answer `RateLines`."""
    if query.limit <= 0 or not all(map(is_askable, (query.namespace, query.start, query.end))):
        return ()
    sql = (
        "SELECT w.name FROM holdfast_rate_limits AS w WHERE w.namespace = :namespace "
        "AND w.name >= :start AND w.name < :beyond "
        "AND substr(w.name, length(w.name) - length(CAST(:end AS text)) + 1) = :end "
        "ORDER BY w.name LIMIT :limit"
    )
    parameters = {
        "namespace": query.namespace,
        "start": query.start,
        "beyond": f"{query.start}{LAST}",
        "end": query.end,
        "limit": query.limit,
    }
    return tuple(name for (name,) in link.query(dialect.bound(sql), parameters))


def line_states(link: Link, dialect: Dialect, query: LineStates) -> tuple[LineState, ...]:
    """Answer `LineStates`, at the cost of the waiters that are counted, and of the slots that are taken."""
    places = askable_keys(query.places)
    if not places:
        return ()
    given = dialect.table_of("places", "p", {"namespace": "text", "key": "text"})
    columns = ", ".join(_columns(SOURCES[query.waiting], query.waiting))
    sql = f"SELECT p.namespace, p.key, {columns} FROM {given} ORDER BY p.namespace, p.key"
    found = link.query(dialect.bound(sql), {"places": encode_rows(PLACE, places)})
    if query.waiting is not Waiting.RUNS:
        return tuple(LineState(SlotPlace(namespace, key), *state) for namespace, key, *state in found)
    return tuple(
        LineState(SlotPlace(namespace, key), used, waiting, since, _planned_limit(key, own, within))
        for namespace, key, used, waiting, since, own, within in found
    )


def _planned_limit(key: str, own: int | None, within: str | None) -> int | None:
    """Return the planned limit of a key: of its own runs, or what a run within it has for this level."""
    around = outer_limits_of_waiter(within)
    level = len(levels_of(key)) - 1
    return around[level] if own is None and level < len(around) else own


def level_states(link: Link, dialect: Dialect, query: LevelStates) -> tuple[LevelState, ...]:
    """Answer `LevelStates`."""
    if not all(map(is_askable, (*query.place, query.run))):
        return ()
    return tuple(_level_state(link, dialect, query, level) for level in levels_of(query.place.key))


def _level_state(link: Link, dialect: Dialect, query: LevelStates, level: str) -> LevelState:
    source = SOURCES[Waiting.RUNS]
    ours = f"FROM {source.table} AS w WHERE w.namespace = :namespace AND {within_or_same('w', ':level')} AND"
    before = "(w.queue_position < :position OR (w.queue_position = :position AND w.key < :run))"
    counts = (
        f"SELECT (SELECT count(*) {ours} {source.holds}), (SELECT count(*) FROM (SELECT 1 AS one "
        f"{ours} {source.waits} AND {before} LIMIT {BEFORE_MAX + 1}) AS counted)"
    )
    parameters = {"namespace": query.place.namespace, "level": level}
    rank = {"position": query.position, "run": query.run}
    ((used, waiting),) = link.query(dialect.bound(counts), {**parameters, **rank})
    oldest = (
        f"SELECT w.key {ours} {source.holds} AND w.error IS NULL ORDER BY w.created_at, w.key LIMIT :limit"
    )
    found = link.query(dialect.bound(oldest), {**parameters, "limit": query.holders})
    return LevelState(level, used, waiting, tuple(key for (key,) in found))


def _columns(source: Source, waiting: Waiting) -> Sequence[str]:
    """Return the columns of a line: what is under way, how many wait and since when, and the planned limits."""
    own, every = f"w.{source.key} = p.key", within_or_same("w", "p.key")
    counted = every if source.has_levels else own

    def those(condition: str, keys: str) -> str:
        return f"FROM {source.table} AS w WHERE {condition} AND w.namespace = p.namespace AND {keys}"

    def first(column: str, keys: str) -> str:
        return f"(SELECT {column} {those(source.waits, keys)} ORDER BY {source.order} LIMIT 1)"

    def planned(column: str, keys: str) -> str:
        highest = f"(SELECT max(w.{column}) {those(source.holds, keys)})"
        none = f"NOT EXISTS (SELECT 1 {those(source.waits, keys)})"
        return f"CASE WHEN {none} THEN {highest} ELSE {first(f'w.{column}', keys)} END"

    state = (
        f"(SELECT count(*) {those(source.holds, counted)})",
        f"(SELECT count(*) FROM (SELECT 1 AS one {those(source.waits, counted)} LIMIT {COUNTED_MAX}) AS counted)",
        first(_SINCE, counted),
        planned("concurrency_limit", own) if source.has_slots else "CAST(NULL AS bigint)",
    )
    if waiting is Waiting.RUNS:
        return (*state, planned("concurrency_outer", every))
    return (*state, planned("rate_limit", own), planned("rate_period", own))


def queue_states(link: Link, dialect: Dialect, query: QueueStates) -> tuple[QueueState, ...]:
    """Answer `QueueStates`."""
    queues = askable(query.queues)
    if not queues or not is_askable(query.namespace):
        return ()
    given = dialect.table_of("queues", "q", {"name": "text"})

    def counted(state: str) -> str:
        return (
            "(SELECT count(*) FROM (SELECT 1 AS one FROM holdfast_jobs AS w WHERE w.namespace = :namespace "
            f"AND w.queue = q.name AND w.state = '{state}' LIMIT {COUNTED_MAX}) AS counted)"
        )

    sql = (
        f"SELECT q.name, {counted('queued')}, {counted('leased')}, (SELECT min({_SINCE}) FROM holdfast_jobs AS w "
        "WHERE w.namespace = :namespace AND w.queue = q.name AND w.state = 'queued') "
        f"FROM {given} ORDER BY q.name"
    )
    parameters = {"namespace": query.namespace, "queues": encode_rows(("name",), [(one,) for one in queues])}
    return tuple(QueueState(*row) for row in link.query(dialect.bound(sql), parameters))
