"""Queries for namespaces: their list, and bounded counts of what they have."""

from collections.abc import Mapping

import attrs

from holdfast.ports.persistence import Query
from holdfast.ports.records.namespace import NamespaceRow
from holdfast.ports.records.run import RunStatus
from holdfast.ports.structs import frozen


@attrs.frozen
class NamespaceEntry:
    """A namespace by name, with its row if it was created."""

    name: str
    row: NamespaceRow | None


@frozen(kw_only=True)
class ListNamespaces(Query[tuple[NamespaceEntry, ...]]):
    """The next namespaces after the name `after`, by name.

    Those that were created, and those that have runs, schedules, triggers, sinks, topics or registered workers.
    """

    after: str = ""
    limit: int = 100


@attrs.frozen(kw_only=True)
class NamespaceCounts:
    """What a namespace has. Each number is at most `COUNTED_MAX`."""

    runs: Mapping[RunStatus, int]
    """By status; none that is zero."""
    schedules: int = 0
    triggers: int = 0
    sinks: int = 0
    workers: int = 0
    """Rows of the worker registry."""
    topics: int = 0
    """Topics that had something to deliver."""
    messages: int = 0
    """Messages of topics."""
    groups: int = 0
    """Groups of topics."""
    subscriptions: int = 0
    """Subscriptions to topics, and members of their groups."""


@frozen(kw_only=True)
class CountNamespace(Query[NamespaceCounts]):
    """What a namespace has, counted up to a bound."""

    namespace: str
