"""What the metrics show of the store, read at once. All counts are bounded."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from holdfast.hosts.inspection.workers import QueueInfo, fleet_of, queue_infos
from holdfast.hosts.wiring.services import CLOCK_AGE_MAX, Core
from holdfast.ports.clock import instant, micros
from holdfast.ports.queries.namespaces import CountNamespace, ListNamespaces
from holdfast.ports.queries.outbox import CountDeadLetters, ListSinks
from holdfast.ports.queries.store import EarliestDue
from holdfast.ports.records.outbox import Sink
from holdfast.ports.records.run import TERMINAL, RunStatus
from holdfast.ports.records.values import Micros

NAMESPACES_MAX: Final = 20
"""How many namespaces are read."""


@attrs.frozen(kw_only=True)
class SinkFigures:
    """A registered sink."""

    name: str
    failing_seconds: float
    """For how long it has taken nothing, although events waited."""
    dead_letters: int


@attrs.frozen(kw_only=True)
class QueueFigures:
    """A queue."""

    info: QueueInfo
    oldest_seconds: float
    """How long the first of its queued jobs has waited."""
    unserved: int
    """How many of its queued jobs need code that no live worker has."""


@attrs.frozen(kw_only=True)
class NamespaceFigures:
    """A namespace."""

    name: str
    runs: Mapping[RunStatus, int]
    """Runs that have not ended."""
    queues: tuple[QueueFigures, ...]
    live_workers: int
    expired_workers: int
    """Workers whose lease has expired, and that were not reaped yet."""
    slots: int
    """How many bodies the live ones run at once."""
    sinks: tuple[SinkFigures, ...]


@attrs.frozen(kw_only=True)
class StoreFigures:
    """The figures of a store."""

    namespaces: tuple[NamespaceFigures, ...]
    overdue_seconds: Mapping[str, float]
    """By kind of work, for how long the one that is due longest is late."""
    is_partial: bool
    """Whether there are more namespaces than are read."""


def store_figures(core: Core, names: Sequence[str] = ()) -> StoreFigures:
    """Read the figures of a store: of these namespaces, by default of the engine's and the first ones by name."""
    core.connect()
    core.trust_clock(CLOCK_AGE_MAX)
    wanted = names or _namespaces(core)
    due = core.stores.persistence.read(EarliestDue())
    now = micros(core.clock.now())
    return StoreFigures(
        namespaces=tuple(_namespace_figures(core.in_namespace(name)) for name in wanted[:NAMESPACES_MAX]),
        overdue_seconds={kind.value: _seconds(now - at) for kind, at in due.items()},
        is_partial=len(wanted) > NAMESPACES_MAX,
    )


def _namespaces(core: Core) -> tuple[str, ...]:
    """Return the engine's namespace and the first ones, one more than are read."""
    page = core.stores.persistence.read(ListNamespaces(limit=NAMESPACES_MAX + 1))
    return tuple(dict.fromkeys((core.namespace, *(one.name for one in page))))


def _namespace_figures(core: Core) -> NamespaceFigures:
    persistence = core.stores.persistence
    counts = persistence.read(CountNamespace(namespace=core.namespace))
    fleet = fleet_of(core)
    now = micros(core.clock.now())
    return NamespaceFigures(
        name=core.namespace,
        runs={status: number for status, number in counts.runs.items() if status not in TERMINAL},
        queues=tuple(_queue_figures(one, now) for one in queue_infos(core, fleet)),
        live_workers=len(fleet.workers),
        expired_workers=max(0, counts.workers - len(fleet.workers)),
        slots=sum(about.concurrency for about in fleet.workers),
        sinks=tuple(_sinks(core, now)) if counts.sinks else (),
    )


def _queue_figures(info: QueueInfo, now: Micros) -> QueueFigures:
    since = info.waiting_since
    return QueueFigures(
        info=info,
        oldest_seconds=0.0 if since is None else max(0.0, (instant(now) - since).total_seconds()),
        unserved=sum(one.queued for one in info.unserved),
    )


def _sinks(core: Core, now: Micros) -> Iterator[SinkFigures]:
    dead_letters = core.stores.persistence.read(CountDeadLetters(core.namespace))
    for sink in core.stores.persistence.read(ListSinks(core.namespace)):
        yield SinkFigures(
            name=sink.name,
            failing_seconds=_failing_seconds(sink, now),
            dead_letters=dead_letters.get(sink.name, 0),
        )


def _failing_seconds(sink: Sink, now: Micros) -> float:
    return _seconds(now - (sink.succeeded_at or sink.created_at)) if sink.failures else 0.0


def _seconds(length: Micros) -> float:
    return max(0, length) / 1_000_000
