"""The writes of transactions, built once per database."""

from typing import Final

import attrs

from holdfast.adapters.sql import rows
from holdfast.adapters.sql.dialect import Dialect, OnConflict, Write, upsert
from holdfast.adapters.sql.narrow_updates import OF_JOBS, OF_RUNS
from holdfast.adapters.sql.schema import tables
from holdfast.ports.records.job import JobKind
from holdfast.ports.records.run import ClosePolicy

_RUN_NAME = ("namespace", "id", "generation")
_RUN_ORIGIN = ("rerun_of", "rerun_from", "inherited")
_JOB_KEY = ("run", "number")
_STREAM_KEY = ("sink", "run")
_SINK_FIXED = ("key", "namespace", "name")
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
"""The SQL of `Tables.advance_stream` for a stream that exists."""


@attrs.frozen
class Writes:
    """The writes of transactions, in the order of `NetChanges`."""

    removed_runs: tuple[Write, ...]
    """One for each table."""
    removed_streams: Write
    new_runs: Write
    attributes: Write
    """The index entries of new runs."""
    annotation_texts: Write
    """The index entries for annotations of existing runs."""
    runs: tuple[Write, ...]
    """From the narrowest to one that writes all columns that may change."""
    blocked_runs: Write
    held_jobs: Write
    cancelled_work: Write
    closed_runs: Write
    """Deletes the jobs of runs."""
    closed_nodes: Write
    """Deletes the jobs of nodes."""
    closed_jobs: Write
    new_jobs: Write
    jobs: tuple[Write, ...]
    """As `runs`."""
    history: Write
    pages: Write
    """Map items."""
    plans: Write
    replies: Write
    sessions: Write
    new_leaders: Write
    leaders: Write
    notes: Write
    """Attempt output."""
    new_sinks: Write
    sinks: Write
    removed_sinks: Write
    streams: Write
    stream_heads: Write
    annotations: Write
    artifacts: Write
    ai_calls: Write
    slots: Write
    new_rates: Write
    rates: Write


def writes_for(dialect: Dialect) -> Writes:
    """Build the writes for a database. A run's key, name and origin, and a job's key, never change."""
    of_runs = (tables.attributes, tables.notes, tables.annotations, tables.artifacts, tables.ai_calls)
    run_columns = [name for name in rows.RUN if name not in {"key", *_RUN_NAME, *_RUN_ORIGIN}]
    job_columns = [name for name in rows.JOB if name not in _JOB_KEY]
    return Writes(
        removed_runs=(
            *(dialect.delete(table, ("run",)) for table in (*of_runs, tables.history, tables.items)),
            dialect.delete(tables.runs, ("key",)),
        ),
        removed_streams=dialect.delete(tables.outbox, _STREAM_KEY),
        new_runs=dialect.insert(tables.runs, rows.RUN, own=("key", "id", "attributes", "parent")),
        attributes=dialect.insert(tables.attributes, rows.ATTRIBUTE),
        annotation_texts=dialect.insert_annotation_texts(),
        runs=tuple(dialect.update(tables.runs, ("key",), columns) for columns in (*OF_RUNS, run_columns)),
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
        closed_jobs=dialect.delete(tables.jobs, _JOB_KEY),
        new_jobs=dialect.insert(tables.jobs, rows.JOB, own=("run", "number", "item", "input")),
        jobs=tuple(dialect.update(tables.jobs, _JOB_KEY, columns) for columns in (*OF_JOBS, job_columns)),
        history=dialect.insert(tables.history, rows.HISTORY, own=("run", "number", "payload")),
        pages=dialect.insert(tables.items, rows.ITEMS),
        plans=dialect.insert(tables.plans, rows.PLAN, on_conflict=OnConflict(("fingerprint",))),
        replies=dialect.insert(tables.replies, rows.REPLY),
        sessions=dialect.insert(tables.sessions, rows.SESSION, on_conflict=upsert(("id",), rows.SESSION)),
        new_leaders=dialect.insert(tables.leaders, rows.LEADER),
        leaders=dialect.update(tables.leaders, ("name",), [name for name in rows.LEADER if name != "name"]),
        notes=dialect.insert(tables.notes, rows.NOTE, on_conflict=OnConflict(("run", "id"))),
        new_sinks=dialect.insert(tables.sinks, rows.SINK),
        sinks=dialect.update(tables.sinks, ("key",), [name for name in rows.SINK if name not in _SINK_FIXED]),
        removed_sinks=dialect.delete(tables.sinks, ("key",)),
        streams=dialect.update(
            tables.outbox, _STREAM_KEY, [name for name in rows.STREAM if name not in _STREAM_KEY]
        ),
        stream_heads=dialect.insert(
            tables.outbox, rows.STREAM_HEAD, on_conflict=OnConflict(_STREAM_KEY, _ADVANCE_STREAM)
        ),
        annotations=dialect.insert(tables.annotations, rows.ANNOTATION),
        artifacts=dialect.insert(tables.artifacts, rows.ARTIFACT),
        ai_calls=dialect.insert(
            tables.ai_calls,
            rows.AI_CALL,
            on_conflict=OnConflict(),
        ),
        slots=dialect.insert(tables.slots, rows.SLOT),
        new_rates=dialect.insert(tables.rates, rows.RATE),
        rates=dialect.update(tables.rates, rows.SLOT, [name for name in rows.RATE if name not in rows.SLOT]),
    )
