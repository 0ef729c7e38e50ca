"""The writes of transactions, built once per database."""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from holdfast.adapters.sql import rows
from holdfast.adapters.sql.dialect import NO_COLUMNS, Dialect, OnConflict, Write, upsert
from holdfast.adapters.sql.narrow_updates import NARROW
from holdfast.adapters.sql.rows import Row
from holdfast.adapters.sql.schema import tables
from holdfast.adapters.sql.schema.columns import COLUMNS, ColumnMap
from holdfast.ports.changes import AnyTable
from holdfast.ports.records.history import LOG
from holdfast.ports.records.job import JobKind
from holdfast.ports.records.limits import WhenFull
from holdfast.ports.records.run import ClosePolicy
from holdfast.ports.tables import HISTORY, JOBS, OF_RUNS, OUTPUT, RUNS, TABLES, TOPIC_MESSAGES, OnInsert

_NEVER_UPDATED: Final[Mapping[AnyTable, Sequence[str]]] = {RUNS: ("rerun_of", "rerun_from", "inherited")}
"""Columns besides key and unique name that no update writes."""
_DIFFERENT: Final[Mapping[AnyTable, Sequence[str]]] = {
    RUNS: ("key", "id", "attributes", "parent"),
    JOBS: ("run", "number", "item", "input"),
    HISTORY: ("run", "number", "payload"),
}
"""The columns in which new rows of a batch usually differ (see `Dialect.insert`)."""
_LONG: Final[Mapping[AnyTable, str]] = {HISTORY: "payload", TOPIC_MESSAGES: "payload"}
"""The column of new rows that has values of users, which may be long texts."""
_DERIVED: Final[Mapping[AnyTable, Mapping[str, str]]] = {
    OUTPUT: {
        "log_number": f"CASE WHEN new.kind = '{LOG}' THEN coalesce((SELECT max(old.log_number) "
        f"FROM holdfast_attempt_output AS old WHERE old.run = new.run AND old.kind = '{LOG}'), 0) "
        "+ row_number() OVER (PARTITION BY new.run, new.kind ORDER BY new.at, new.id) END"
    }
}
"""Columns that no record has, with their SQL."""
_CANCELLING: Final = (
    "kind = 'cancel', state = 'queued', wake_at = NULL, attempts = 0, session = NULL, leased_at = NULL, "
    "lost_attempts = 0, check_after = NULL, give_up_at = NULL"
)
"""The SQL of `cancelling`, except for the number of attempts."""


_CLOSE_POLICIES: Final = ", ".join(f"'{policy.value}'" for policy in ClosePolicy)
_WHEN_FULL: Final = ", ".join(f"'{full.value}'" for full in WhenFull)
_JOB_KINDS: Final = f"({', '.join(repr(kind.value) for kind in JobKind)})"
_BLOCKED: Final = (
    f"status = CASE WHEN status IN {tables.ENDED} THEN status ELSE 'blocked' END, "
    f"close_policy = CASE WHEN close_policy IN ({_CLOSE_POLICIES}) THEN close_policy ELSE 'cancel' END, "
    f"concurrency_full = CASE WHEN concurrency_full IN ({_WHEN_FULL}) THEN concurrency_full END"
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
    log_locks: Write | None
    """Locks the logs of runs, before lines are added to them."""


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
        closed_runs=dialect.delete(tables.jobs, ("run",), only="kind NOT IN ('cancel', 'deliver')"),
        closed_nodes=dialect.delete(tables.jobs, ("run", "node"), only="kind <> 'cancel'"),
        stream_heads=dialect.insert(
            tables.outbox, rows.STREAM_HEAD, on_conflict=OnConflict(("sink", "run"), _ADVANCE_STREAM)
        ),
        log_locks=dialect.lock_logs(),
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
        dialect.insert(
            mapped.table,
            mapped.columns,
            own=own,
            on_conflict=on_conflict,
            long=_LONG.get(table),
            derived=_DERIVED.get(table, NO_COLUMNS),
        ),
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
