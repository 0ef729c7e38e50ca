"""The SQL statements of transactions, built once per database."""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from holdfast.adapters.sql import rows
from holdfast.adapters.sql.dialect import Dialect, OnConflict, Write, upsert
from holdfast.adapters.sql.narrow_updates import NARROW
from holdfast.adapters.sql.queries.admissions import SOURCES, Searches, searches_for
from holdfast.adapters.sql.rows import Row
from holdfast.adapters.sql.schema import tables
from holdfast.adapters.sql.schema.columns import COLUMNS, ColumnMap
from holdfast.ports.changes import AnyTable
from holdfast.ports.persistence import Waiting
from holdfast.ports.records.job import JobKind
from holdfast.ports.records.run import ClosePolicy
from holdfast.ports.tables import HISTORY, JOBS, OF_RUNS, RUNS, TABLES, OnInsert
from holdfast.ports.unreadable import INSTANT_MAX, NUMBER_MAX

_NEVER_UPDATED: Final[Mapping[AnyTable, Sequence[str]]] = {RUNS: ("rerun_of", "rerun_from", "inherited")}
"""Columns besides key and unique name that no update writes."""
_DIFFERENT: Final[Mapping[AnyTable, Sequence[str]]] = {
    RUNS: ("key", "id", "attributes", "parent"),
    JOBS: ("run", "number", "item", "input"),
    HISTORY: ("run", "number", "payload"),
}
"""The columns in which new rows of a batch usually differ (see `Dialect.insert`)."""
_CANCELLING: Final = (
    "kind = 'cancel', state = 'queued', wake_at = NULL, attempts = 0, session = NULL, leased_at = NULL, "
    "lost_attempts = 0, check_after = NULL, give_up_at = NULL"
)
"""The SQL of `cancelling`, except for the number of attempts."""


_CLOSE_POLICIES: Final = ", ".join(f"'{policy.value}'" for policy in ClosePolicy)
_JOB_KINDS: Final = f"({', '.join(repr(kind.value) for kind in JobKind)})"
_BLOCKED: Final = (
    f"status = CASE WHEN status IN {tables.ENDED} THEN status ELSE 'blocked' END, "
    f"close_policy = CASE WHEN close_policy IN ({_CLOSE_POLICIES}) THEN close_policy ELSE 'cancel' END"
)
_HELD: Final = "state = 'paused', session = NULL, leased_at = NULL, heartbeat_by = NULL"
"""The SQL of `blocked_run` and `held_job`, except for their arguments."""


_ADVANCE_STREAM: Final = (
    "head_row = CASE WHEN excluded.head_row > holdfast_outbox.head_row "
    "THEN excluded.head_row ELSE holdfast_outbox.head_row END, "
    "due_at = CASE WHEN holdfast_outbox.state = 'ready' AND holdfast_outbox.due_at IS NULL "
    "THEN excluded.due_at ELSE holdfast_outbox.due_at END"
)
"""The SQL of `AdvanceStreams` for a stream that exists."""


def _listed(columns: Sequence[str], table: str) -> str:
    return ", ".join(f"{table}.{column}" for column in columns)


@attrs.frozen
class Reads:
    """The queries of transactions. Those whose names begin with `lock_` lock the rows that they return."""

    lock_runs: str
    lock_latest_runs: str
    latest_keys: str
    generations: str
    jobs: str
    lock_jobs: str
    lock_jobs_of: str
    lock_claimable: str
    lock_due: str
    stage_jobs: str
    external_jobs: str
    sessions: str
    lock_sessions: str
    lock_expired_sessions: str
    lost_jobs: str
    heartbeat_overdue_jobs: str
    active_runs: str
    runs_missing_jobs: str
    has_deliveries: str
    completed: str
    node_rows: str
    history: str
    plans: str
    replies: str
    annotation_keys: str
    annotations: str
    lock_leaders: str
    all_sinks: str
    sinks: str
    lock_sinks: str
    lock_streams: str
    lock_due_streams: str
    lock_dead_lettered_streams: str
    outlines: str
    lock_outlines: str
    run_keys: str
    undelivered_heads: str
    due_runs: str
    overdue_runs: str
    lock_slots: str
    rates: str
    lock_rates: str
    rated_jobs: str


@attrs.frozen
class ColumnUpdate:
    """A statement that updates some columns of the rows of a table."""

    write: Write
    values: Callable[[Any], Row]
    """Returns what it needs of a record."""
    others: Callable[[Any], Row] | None
    """Returns the other values of a record. A row in which one of them has changed needs another statement.

    None if it writes all columns that may change.
    """


@attrs.frozen
class TableWrites:
    """The writes of the rows of one table."""

    delete: Write
    insert: Write
    values: Callable[[Any], Row]
    """Returns a record as a row to insert."""
    updates: tuple[ColumnUpdate, ...]
    """From the narrowest to one that writes all columns that may change."""


@attrs.frozen
class Writes:
    """The writes of transactions."""

    tables: Mapping[AnyTable, TableWrites]
    """In the order of `TABLES`."""
    removed_runs: tuple[Write, ...]
    """One for each table."""
    attributes: Write
    """The index entries of new runs."""
    annotation_texts: Write
    """The index entries for annotations of existing runs."""
    blocked_runs: Write
    held_jobs: Write
    cancelled_work: Write
    closed_runs: Write
    """Deletes the jobs of runs."""
    closed_nodes: Write
    """Deletes the jobs of nodes."""
    stream_heads: Write


def node_rows(of_runs: str) -> str:
    """Return the statement that counts history rows of runs by node and type. `of_runs` is its condition."""
    return (
        "SELECT run, node, type, min(number), max(number), count(*) FROM holdfast_history "
        f"WHERE {of_runs} AND node IS NOT NULL GROUP BY run, node, type"
    )


def reads_for(dialect: Dialect) -> Reads:
    """Build the queries for a database."""
    names = dialect.table_of("names", "n", {"namespace": "text", "id": "text"})
    newest = (
        f"FROM {names} CROSS JOIN holdfast_runs AS r WHERE r.namespace = n.namespace AND r.id = n.id "
        "AND r.generation = (SELECT max(m.generation) FROM holdfast_runs AS m "
        "WHERE m.namespace = n.namespace AND m.id = n.id) ORDER BY r.key"
    )
    pairs = dialect.table_of("keys", "k", {"run": "text", "number": "bigint"})
    replies = dialect.table_of("keys", "k", {"namespace": "text", "key": "text"})
    annotation_keys = dialect.table_of("keys", "k", {"run": "text", "key": "text"})
    slots = dialect.table_of("names", "k", {"namespace": "text", "name": "text"})
    runs, jobs = _listed(rows.RUN, "r"), _listed(rows.JOB, "j")
    sessions = f"SELECT {_listed(rows.SESSION, 's')} FROM holdfast_sessions AS s WHERE "
    known_sessions = f"{sessions}{dialect.one_of('s.id', 'ids')} ORDER BY s.id"
    known_jobs = (
        f"SELECT {jobs} FROM {pairs} CROSS JOIN holdfast_jobs AS j "
        "WHERE j.run = k.run AND j.number = k.number ORDER BY j.run, j.number"
    )
    sink_names = dialect.table_of("names", "n", {"namespace": "text", "name": "text"})
    sinks, streams = f"SELECT {_listed(rows.SINK, 's')} FROM", f"SELECT {_listed(rows.STREAM, 'o')} FROM"
    known_sinks = (
        f"{sinks} {sink_names} CROSS JOIN holdfast_sinks AS s "
        "WHERE s.namespace = n.namespace AND s.name = n.name ORDER BY s.key"
    )
    stream_keys = dialect.table_of("keys", "k", {"sink": "text", "run": "text"})
    known_rates = (
        f"SELECT {_listed(rows.RATE, 'w')} FROM {slots} CROSS JOIN holdfast_rate_limits AS w "
        "WHERE w.namespace = k.namespace AND w.name = k.name ORDER BY w.namespace, w.name"
    )
    outlines = (
        "SELECT r.key, r.namespace, r.id, r.workflow, r.version, r.status, "
        "coalesce((SELECT max(h.number) FROM holdfast_history AS h WHERE h.run = r.key "
        f"AND h.number <= {NUMBER_MAX}), 0) FROM holdfast_runs AS r "
        f"WHERE {dialect.one_of('r.key', 'keys')} ORDER BY r.key"
    )
    places = dialect.table_of("places", "p", {"namespace": "text", "key": "text"})
    lock = dialect.lock.format
    made = Reads(
        lock_runs=f"SELECT {runs} FROM holdfast_runs AS r WHERE {dialect.one_of('r.key', 'keys')} "
        f"ORDER BY r.key{lock('r')}",
        lock_latest_runs=f"SELECT {runs} {newest}{lock('r')}",
        latest_keys=f"SELECT r.key {newest}",
        generations=f"SELECT {runs} FROM {names} CROSS JOIN holdfast_runs AS r WHERE r.namespace = n.namespace "
        "AND r.id = n.id ORDER BY r.namespace, r.id, r.generation",
        jobs=known_jobs,
        lock_jobs=known_jobs + lock("j"),
        lock_jobs_of=f"SELECT {jobs} FROM holdfast_jobs AS j WHERE {dialect.one_of('j.run', 'runs')} "
        f"ORDER BY j.run, j.number{lock('j')}",
        lock_claimable=dialect.claimable(rows.JOB, rows.SESSION),
        lock_due=f"SELECT {jobs} FROM holdfast_jobs AS j WHERE j.state = 'sleeping' AND j.wake_at <= :now "
        "AND (:kind = '' OR j.kind = :kind) "
        f"ORDER BY j.wake_at, j.run, j.number LIMIT :limit{dialect.skip_locked}",
        stage_jobs="SELECT j.run, j.number FROM holdfast_jobs AS j WHERE j.run = (SELECT r.key "
        "FROM holdfast_runs AS r WHERE r.namespace = :namespace AND r.id = :id "
        "ORDER BY r.generation DESC LIMIT 1) AND j.node = :stage AND (:item < 0 OR j.item = :item) "
        "AND (j.kind = 'poll' OR (j.kind = 'stage' AND j.state = 'leased')) ORDER BY j.run, j.number",
        external_jobs="SELECT j.run, j.number FROM holdfast_jobs AS j WHERE j.namespace = :namespace "
        "AND j.waiting_for = :key AND j.kind = 'poll' ORDER BY j.run, j.number",
        sessions=known_sessions,
        lock_sessions=known_sessions + lock("s"),
        lock_expired_sessions=f"{sessions}s.state = 'open' AND (s.expires_at < :before "
        f"OR s.expires_at > {INSTANT_MAX}) ORDER BY s.id LIMIT :limit{dialect.skip_locked}",
        lost_jobs="SELECT j.run, j.number FROM holdfast_jobs AS j JOIN holdfast_sessions AS s ON s.id = j.session "
        "WHERE j.state = 'leased' AND s.state <> 'open' ORDER BY j.run, j.number LIMIT :limit",
        heartbeat_overdue_jobs="SELECT j.run, j.number FROM holdfast_jobs AS j WHERE j.heartbeat_by < :before "
        "AND j.state = 'leased' ORDER BY j.heartbeat_by, j.run, j.number LIMIT :limit",
        active_runs=f"SELECT key FROM holdfast_runs WHERE status NOT IN {tables.ENDED} AND key > :after "
        "ORDER BY key LIMIT :limit",
        runs_missing_jobs="SELECT r.key FROM (SELECT key, status, last_job, open_jobs, "
        "(SELECT count(*) FROM holdfast_jobs AS j WHERE j.run = key AND j.state <> 'pending_delivery' "
        "AND j.kind <> 'cancel') AS found "
        f"FROM holdfast_runs WHERE {dialect.one_of('key', 'keys')} "
        f"AND status NOT IN {tables.ENDED}) AS r WHERE r.found <> r.open_jobs OR (r.found = 0 "
        "AND NOT (r.status IN ('pending', 'paused', 'blocked') AND r.last_job = 0)) ORDER BY r.key",
        has_deliveries="SELECT 1 FROM holdfast_jobs WHERE state = 'pending_delivery' LIMIT 1",
        completed="SELECT run, number, node, item, type FROM holdfast_history "
        f"WHERE {dialect.one_of('run', 'runs')} AND {dialect.one_of('type', 'types')} ORDER BY run, number",
        node_rows=node_rows(dialect.one_of("run", "runs")),
        history=f"SELECT {_listed(rows.HISTORY, 'h')} FROM {pairs} CROSS JOIN holdfast_history AS h "
        "WHERE h.run = k.run AND h.number = k.number ORDER BY h.run, h.number",
        plans=f"SELECT {', '.join(rows.PLAN)} FROM holdfast_plans "
        f"WHERE {dialect.one_of('fingerprint', 'fingerprints')} ORDER BY fingerprint",
        replies=f"SELECT {_listed(rows.REPLY, 'r')} FROM {replies} CROSS JOIN holdfast_idempotency_replies AS r "
        "WHERE r.namespace = k.namespace AND r.key = k.key ORDER BY r.namespace, r.key",
        annotation_keys=f"SELECT a.run, a.key, a.name FROM {annotation_keys} CROSS JOIN holdfast_annotations AS a "
        "WHERE a.run = k.run AND a.key = k.key ORDER BY a.run, a.key, a.name",
        annotations=f"SELECT {', '.join(rows.ANNOTATION)} FROM holdfast_annotations "
        f"WHERE {dialect.one_of('run', 'runs')} AND scope = 'run' ORDER BY run, at, id",
        lock_leaders=f"SELECT {_listed(rows.LEADER, 'd')} FROM holdfast_leaders AS d "
        f"WHERE {dialect.one_of('d.name', 'names')} ORDER BY d.name{lock('d')}",
        all_sinks=f"{sinks} holdfast_sinks AS s ORDER BY s.key",
        sinks=known_sinks,
        lock_sinks=known_sinks + lock("s"),
        lock_streams=f"{streams} {stream_keys} CROSS JOIN holdfast_outbox AS o "
        f"WHERE o.sink = k.sink AND o.run = k.run ORDER BY o.sink, o.run{lock('o')}",
        lock_due_streams=f"{streams} holdfast_outbox AS o WHERE o.sink = (SELECT s.key FROM holdfast_sinks AS s "
        "WHERE s.namespace = :namespace AND s.name = :name AND (s.retry_at IS NULL OR s.retry_at <= :now)) "
        "AND o.due_at <= :now "
        f"ORDER BY o.due_at, o.run LIMIT :limit{dialect.skip_locked}",
        lock_dead_lettered_streams=f"{streams} holdfast_outbox AS o WHERE o.state = 'dead_lettered' "
        "AND o.sink IN (SELECT s.key FROM holdfast_sinks AS s WHERE s.namespace = :namespace "
        "AND (CAST(:sink AS text) = '' OR s.name = :sink)) "
        "AND (CAST(:run_id AS text) = '' OR o.run IN (SELECT r.key FROM holdfast_runs AS r "
        "WHERE r.namespace = :namespace AND r.id = :run_id)) "
        f"ORDER BY o.sink, o.run LIMIT :limit{lock('o')}",
        outlines=outlines,
        lock_outlines=outlines + lock("r"),
        run_keys="SELECT key FROM holdfast_runs WHERE key > :after ORDER BY key LIMIT :limit",
        undelivered_heads="SELECT s.key, r.key, r.last_row, r.updated_at FROM holdfast_runs AS r "
        "JOIN holdfast_sinks AS s ON s.namespace = r.namespace AND s.since <= r.updated_at "
        "LEFT JOIN holdfast_outbox AS o ON o.sink = s.key AND o.run = r.key "
        f"WHERE s.namespace = :namespace AND {dialect.one_of('s.name', 'names')} AND {dialect.one_of('r.key', 'keys')} "
        "AND (o.run IS NULL OR o.head_row < r.last_row) AND r.last_row > 0 ORDER BY s.key, r.key",
        due_runs="SELECT key FROM holdfast_runs WHERE status = 'pending' AND start_at IS NOT NULL "
        "AND start_at <= :now ORDER BY start_at LIMIT :limit",
        overdue_runs=f"SELECT key FROM holdfast_runs WHERE status NOT IN {tables.ENDED} "
        "AND deadline IS NOT NULL AND deadline <= :now AND error IS NULL ORDER BY deadline LIMIT :limit",
        lock_slots=f"SELECT {_listed(rows.SLOT, 's')} FROM {slots} CROSS JOIN holdfast_concurrency_limits AS s "
        f"WHERE s.namespace = k.namespace AND s.name = k.name ORDER BY s.namespace, s.name{lock('s')}",
        rates=known_rates,
        lock_rates=known_rates + lock("w"),
        rated_jobs="SELECT p.namespace, p.key, (SELECT count(*) FROM holdfast_jobs AS j WHERE j.state = 'queued' "
        f"AND j.rate_limit IS NOT NULL AND j.namespace = p.namespace AND j.concurrency_key = p.key) FROM {places}",
    )
    return Reads(**{name: dialect.bound(sql) for name, sql in attrs.asdict(made).items()})


def waiting_for(dialect: Dialect) -> Mapping[Waiting, Searches]:
    """Build the searches for waiting runs and jobs."""
    return {waiting: searches_for(dialect, source) for waiting, source in SOURCES.items()}


def writes_for(dialect: Dialect) -> Writes:
    """Build the writes for a database."""
    parts = [COLUMNS[table.record].table for table in OF_RUNS if table is not JOBS]
    return Writes(
        tables={table: _table_writes(dialect, table) for table in TABLES},
        removed_runs=(
            *(dialect.delete(table, ("run",)) for table in (tables.attributes, *parts)),
            dialect.delete(tables.runs, ("key",)),
        ),
        attributes=dialect.insert(tables.attributes, rows.ATTRIBUTE),
        annotation_texts=dialect.insert_annotation_texts(),
        blocked_runs=dialect.update(
            tables.runs, ("key",), ("updated_at", "last_row"), sets=_BLOCKED, only="status IS NOT NULL"
        ),
        held_jobs=dialect.update(
            tables.jobs,
            ("run",),
            (),
            sets=_HELD,
            only=f"(kind NOT IN {_JOB_KINDS} OR state NOT IN ('pending_delivery', 'leased'))",
        ),
        cancelled_work=dialect.update(
            tables.jobs, ("run", "node"), ("max_attempts",), sets=_CANCELLING, only="kind = 'poll'"
        ),
        closed_runs=dialect.delete(tables.jobs, ("run",), only="kind <> 'cancel'"),
        closed_nodes=dialect.delete(tables.jobs, ("run", "node"), only="kind <> 'cancel'"),
        stream_heads=dialect.insert(
            tables.outbox, rows.STREAM_HEAD, on_conflict=OnConflict(("sink", "run"), _ADVANCE_STREAM)
        ),
    )


def _table_writes(dialect: Dialect, table: AnyTable) -> TableWrites:
    """Build the writes of a table. The key and the unique name of a row never change."""
    mapped = COLUMNS[table.record]
    key = mapped.columns_of(table.key)
    fixed = {*key, *mapped.columns_of(table.unique), *_NEVER_UPDATED.get(table, ())}
    changing = tuple(name for name in mapped.columns if name not in fixed)
    own, on_conflict = _DIFFERENT.get(table, ()), _on_conflict(table, key, mapped.columns)
    return TableWrites(
        dialect.delete(mapped.table, key),
        dialect.insert(mapped.table, mapped.columns, own=own, on_conflict=on_conflict),
        rows.VALUES.get(mapped.record) or rows.values_of(mapped.record, mapped.columns),
        tuple(
            _column_update(mapped, dialect.update(mapped.table, key, columns), is_widest=columns is changing)
            for columns in (*NARROW.get(table, ()), changing)
            if columns
        ),
    )


def _column_update(mapped: ColumnMap, write: Write, *, is_widest: bool) -> ColumnUpdate:
    others = tuple(name for name in mapped.columns if name not in write.columns)
    return ColumnUpdate(
        write,
        rows.values_of(mapped.record, write.columns),
        None if is_widest else rows.values_of(mapped.record, others),
    )


def _on_conflict(table: AnyTable, key: Sequence[str], columns: Sequence[str]) -> OnConflict | None:
    match table.on_insert:
        case OnInsert.REFUSE:
            return None
        case OnInsert.REPLACE:
            return upsert(key, columns)
        case OnInsert.KEEP:
            return OnConflict(() if table.unique else tuple(key))
