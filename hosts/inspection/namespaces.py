"""Namespaces as the client shows them: their notes and quotas, and bounded counts of what they have."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import attrs

from holdfast.hosts.wiring.pages import pages_of
from holdfast.hosts.wiring.services import Core
from holdfast.ports.clock import instant
from holdfast.ports.queries.limits import COUNTED_MAX
from holdfast.ports.queries.namespaces import CountNamespace, ListNamespaces, NamespaceEntry
from holdfast.ports.queries.workers import QueueLines
from holdfast.ports.records.namespace import NamespaceRow
from holdfast.ports.records.run import RunStatus
from holdfast.ports.tables import NAMESPACES

_PAGE = 100


@attrs.frozen(kw_only=True)
class NamespaceInfo:
    """A namespace."""

    name: str
    """Its name."""
    is_created: bool
    """Whether it was created; False: it is only used, and has neither a note nor quotas."""
    created_at: datetime | None
    """When it was created."""
    note: str
    """What it is for."""
    max_active_runs: int | None
    """How many of its runs may be active for a client to start another; None: any number."""
    max_starts_per_minute: int | None
    """How many of its runs may have been created in the last minute for a client to start another; None: any number."""


@attrs.frozen(kw_only=True)
class NamespaceDetails(NamespaceInfo):
    """A namespace, and what it has. At most 10,000 of a kind are counted."""

    runs: Mapping[RunStatus, int]
    """By status; none that is zero."""
    schedules: int
    """How many schedules."""
    triggers: int
    """How many triggers."""
    sinks: int
    """How many sinks."""
    topics: int
    """How many topics that had something to deliver."""
    messages: int
    """How many messages of topics."""
    groups: int
    """How many groups of topics."""
    subscriptions: int
    """How many subscriptions to topics, with the members of groups."""
    workers: int
    """The workers in its registry."""
    queued: int
    """How many jobs wait for a worker. At most 10,000 of a queue and code are counted."""
    running: int
    """How many jobs are leased."""
    waiting_since: datetime | None
    """Since when the first of the queued jobs waits."""
    is_partial: bool
    """Whether a bound of the counts was reached, so that there may be more."""


def namespace_infos(core: Core, after: str | None, limit: int | None) -> Iterator[NamespaceInfo]:
    """Yield the namespaces of the store by name, up to a number of them."""
    core.connect()

    def read(place: str | None, wanted: int) -> Sequence[NamespaceEntry]:
        return core.stores.persistence.read(ListNamespaces(after=place or "", limit=wanted))

    for page in pages_of(read, _PAGE, after, limit, lambda entry: entry.name):
        yield from map(_info, page)


def namespace_info(core: Core, name: str) -> NamespaceInfo:
    """Return one namespace, whether or not it is known."""
    return _info(_entry(core, name))


def namespace_details(core: Core, name: str) -> NamespaceDetails:
    """Return one namespace and what it has, whether or not it is known."""
    entry = _entry(core, name)
    persistence = core.stores.persistence
    counts = persistence.read(CountNamespace(namespace=name))
    contents = persistence.read(QueueLines(namespace=name))
    since = [line.since for line in contents.lines if line.since is not None]
    counted = (
        *(*counts.runs.values(), counts.schedules, counts.triggers, counts.sinks, counts.workers),
        *(counts.topics, counts.messages, counts.groups, counts.subscriptions),
    )
    queued = [line.queued for line in contents.lines]
    return NamespaceDetails(
        **attrs.asdict(_info(entry)),
        runs=counts.runs,
        schedules=counts.schedules,
        triggers=counts.triggers,
        sinks=counts.sinks,
        topics=counts.topics,
        messages=counts.messages,
        groups=counts.groups,
        subscriptions=counts.subscriptions,
        workers=counts.workers,
        queued=sum(queued),
        running=sum(line.running for line in contents.lines),
        waiting_since=instant(min(since)) if since else None,
        is_partial=contents.is_partial or COUNTED_MAX in (*counted, *queued),
    )


def _entry(core: Core, name: str) -> NamespaceEntry:
    core.connect()
    rows = core.stores.persistence.transact(lambda tx: tx.get(NAMESPACES, [name]))
    return NamespaceEntry(name, next(iter(rows), None))


def _info(entry: NamespaceEntry) -> NamespaceInfo:
    row = entry.row
    known = NamespaceRow(name=entry.name, created_at=0) if row is None else row
    return NamespaceInfo(
        name=entry.name,
        is_created=row is not None,
        created_at=None if row is None else instant(row.created_at),
        note=known.note,
        max_active_runs=known.max_active_runs,
        max_starts_per_minute=known.max_starts_per_minute,
    )
