"""Answers to the queries and searches about namespaces, from plain dictionaries."""

from collections import Counter
from collections.abc import Sequence

from holdfast.ports.queries.limits import COUNTED_MAX
from holdfast.ports.queries.namespaces import (
    CountNamespace,
    ListNamespaces,
    NamespaceCounts,
    NamespaceEntry,
)
from holdfast.ports.records.run import ACTIVE
from holdfast.ports.searches import NamespaceParts, NamespaceRuns
from holdfast.ports.working_set import Tables


def namespaces_listed(tables: Tables, query: ListNamespaces) -> tuple[NamespaceEntry, ...]:
    """Answer `ListNamespaces`."""
    used = (
        *(tables.runs, tables.schedules, tables.triggers, tables.sinks, tables.registrations),
        *(tables.topics, tables.topic_messages, tables.groups),
    )
    names = {*tables.namespaces, *(row.namespace for rows in used for row in rows.values())}
    found = sorted(name for name in names if name > query.after)
    return tuple(NamespaceEntry(name, tables.namespaces.get(name)) for name in found[: max(0, query.limit)])


def namespace_counted(tables: Tables, query: CountNamespace) -> NamespaceCounts:
    """Answer `CountNamespace`."""
    name = query.namespace
    runs = Counter(run.status for run in tables.runs.values() if run.namespace == name)
    schedules, triggers, sinks, workers, topics, messages, groups, subscriptions = (
        min(sum(row.namespace == name for row in rows.values()), COUNTED_MAX)
        for rows in (
            *(tables.schedules, tables.triggers, tables.sinks, tables.registrations),
            *(tables.topics, tables.topic_messages, tables.groups, tables.subscriptions),
        )
    )
    return NamespaceCounts(
        runs={status: min(number, COUNTED_MAX) for status, number in runs.items()},
        schedules=schedules,
        triggers=triggers,
        sinks=sinks,
        workers=workers,
        topics=topics,
        messages=messages,
        groups=groups,
        subscriptions=subscriptions,
    )


def runs_of_namespace(tables: Tables, search: NamespaceRuns) -> tuple[int, int]:
    """Make the search `NamespaceRuns`."""
    runs = [run for run in tables.runs.values() if run.namespace == search.namespace]
    active = sum(run.status in ACTIVE for run in runs)
    started = sum(run.created_at > search.since for run in runs)
    return min(active, search.active_max), min(started, search.started_max)


def parts_of_namespace(tables: Tables, search: NamespaceParts) -> Sequence[str]:
    """Make the search `NamespaceParts`."""
    parts = (
        ("runs", tables.runs),
        ("schedules", tables.schedules),
        ("triggers", tables.triggers),
        ("sinks", tables.sinks),
    )
    found = [name for name, rows in parts if any(row.namespace == search.namespace for row in rows.values())]
    of_topics = (tables.topics, tables.topic_messages, tables.groups)
    has_topics = any(row.namespace == search.namespace for rows in of_topics for row in rows.values())
    return [*found, "topics"] if has_topics else found
