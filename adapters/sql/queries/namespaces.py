"""Answers to the queries about namespaces, and the statements of their searches."""

# ruff: noqa: S608  # statements are put together from names that are constants of this program

from typing import Final

from holdfast.adapters.sql import rows
from holdfast.adapters.sql.database import Link
from holdfast.adapters.sql.dialect import Dialect
from holdfast.adapters.sql.rows import is_askable
from holdfast.adapters.sql.schema.columns import COLUMNS
from holdfast.ports.queries.limits import COUNTED_MAX
from holdfast.ports.queries.namespaces import (
    CountNamespace,
    ListNamespaces,
    NamespaceCounts,
    NamespaceEntry,
)
from holdfast.ports.records.namespace import NamespaceRow
from holdfast.ports.records.run import ACTIVE, RunStatus

_ROW: Final = ", ".join(f"r.{name}" for name in COLUMNS[NamespaceRow].columns)
_ACTIVE: Final = ", ".join(f"'{status.value}'" for status in sorted(ACTIVE))
_SOURCES: Final = (
    ("holdfast_namespaces", "name"),
    ("holdfast_runs", "namespace"),
    ("holdfast_schedules", "namespace"),
    ("holdfast_triggers", "namespace"),
    ("holdfast_sinks", "namespace"),
    ("holdfast_topics", "namespace"),
    ("holdfast_topic_messages", "namespace"),
    ("holdfast_topic_groups", "namespace"),
    ("holdfast_worker_registry", "namespace"),
)
_PARTS: Final = (
    ("runs", ("holdfast_runs",)),
    ("schedules", ("holdfast_schedules",)),
    ("triggers", ("holdfast_triggers",)),
    ("sinks", ("holdfast_sinks",)),
    ("topics", ("holdfast_topics", "holdfast_topic_messages", "holdfast_topic_groups")),
)


def _next(after: str) -> str:
    """Return the first name after another one in any source: one look into the index of each."""
    firsts = (
        f"SELECT (SELECT t.{column} FROM {table} AS t WHERE t.{column} > {after} ORDER BY t.{column} LIMIT 1) AS name"
        for table, column in _SOURCES
    )
    return f"(SELECT min(f.name) FROM ({' UNION ALL '.join(firsts)}) AS f)"


_LISTED: Final = (
    f"WITH RECURSIVE names(name) AS (SELECT {_next(':after')} UNION ALL "
    f"SELECT {_next('n.name')} FROM names AS n WHERE n.name IS NOT NULL), "
    "found AS (SELECT n.name FROM names AS n WHERE n.name IS NOT NULL LIMIT :limit) "
    f"SELECT f.name, {_ROW} FROM found AS f LEFT JOIN holdfast_namespaces AS r ON r.name = f.name ORDER BY f.name"
)


def list_namespaces(link: Link, dialect: Dialect, query: ListNamespaces) -> tuple[NamespaceEntry, ...]:
    """Answer `ListNamespaces`."""
    if query.limit <= 0 or not is_askable(query.after):
        return ()
    row_from = rows.record_of(NamespaceRow)
    found = link.query(dialect.bound(_LISTED), {"after": query.after, "limit": query.limit})
    return tuple(
        NamespaceEntry(name, None if row[0] is None else row_from(tuple(row))) for name, *row in found
    )


def _counted(table: str, condition: str = "") -> str:
    return (
        f"(SELECT count(*) FROM (SELECT 1 AS one FROM {table} AS t WHERE t.namespace = :namespace{condition} "
        f"LIMIT {COUNTED_MAX}) AS counted)"
    )


def count_namespace(link: Link, dialect: Dialect, query: CountNamespace) -> NamespaceCounts:
    """Answer `CountNamespace`."""
    if not is_askable(query.namespace):
        return NamespaceCounts(runs={})
    statuses = tuple(RunStatus)
    others = (
        *("holdfast_schedules", "holdfast_triggers", "holdfast_sinks", "holdfast_worker_registry"),
        *("holdfast_topics", "holdfast_topic_messages", "holdfast_topic_groups", "holdfast_subscriptions"),
    )
    counts = (
        *(_counted("holdfast_runs", f" AND t.status = '{status.value}'") for status in statuses),
        *map(_counted, others),
    )
    ((*found,),) = link.query(dialect.bound(f"SELECT {', '.join(counts)}"), {"namespace": query.namespace})
    of_runs = dict(zip(statuses, found[: len(statuses)], strict=True))
    schedules, triggers, sinks, workers, topics, messages, groups, subscriptions = found[len(statuses) :]
    return NamespaceCounts(
        runs={status: number for status, number in of_runs.items() if number},
        schedules=schedules,
        triggers=triggers,
        sinks=sinks,
        workers=workers,
        topics=topics,
        messages=messages,
        groups=groups,
        subscriptions=subscriptions,
    )


WORKFLOWS_OF_NAMESPACE: Final = (
    "SELECT w.namespace, w.name, w.version, w.registered_at FROM holdfast_workflows AS w "
    "WHERE w.namespace = :namespace ORDER BY w.name, w.version"
)
"""For `WorkflowsOfNamespace`."""
RUNS_OF_NAMESPACE: Final = (
    "SELECT (SELECT count(*) FROM (SELECT 1 AS one FROM holdfast_runs AS t WHERE t.namespace = :namespace "
    f"AND t.status IN ({_ACTIVE}) LIMIT :active_max) AS counted), "
    "(SELECT count(*) FROM (SELECT 1 AS one FROM holdfast_runs AS t WHERE t.namespace = :namespace "
    "AND t.created_at > :since LIMIT :started_max) AS counted)"
)
"""For `NamespaceRuns`."""
PARTS_OF_NAMESPACE: Final = " UNION ALL ".join(
    f"SELECT '{part}' WHERE "
    + " OR ".join(f"EXISTS (SELECT 1 FROM {table} AS t WHERE t.namespace = :namespace)" for table in used)
    for part, used in _PARTS
)
"""For `NamespaceParts`."""
