"""The metrics of an engine, for Prometheus."""

from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import attrs
from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from typing_extensions import override

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.metrics.process_metrics import ProcessMetrics
from holdfast.hosts.metrics.store_collector import StoreCollector
from holdfast.hosts.metrics.store_figures import NAMESPACES_MAX, store_figures
from holdfast.hosts.wiring.cached_read import CachedRead
from holdfast.hosts.worker.worker import ENGINE, Worker, WorkerStats
from holdfast.ports.errors import InvalidArgumentError
from holdfast.ports.validation import TEXT, check, several

STORE_AGE_SECONDS: Final = 10.0
"""For how long the figures of the store are used before they are read again."""
STORE_WAIT_SECONDS: Final = 2.0
"""How long a scrape waits for the store."""

_GAUGES: Final = {
    "running": "Bodies that run.",
    "unsettled": "Bodies that have ended and whose result is not stored yet.",
    "blocked_seconds": "For how long bodies have blocked the event loops of workers.",
}
_COUNTERS: Final = {
    "claimed": "Jobs that were claimed.",
    "settled": "Results that were stored.",
    "sessions_lost": "Sessions that were lost.",
    "store_errors": "Calls to the store that failed.",
    "events": "Events that sinks have accepted.",
    "dead_lettered": "Streams of events that were dead-lettered.",
}


@attrs.frozen
class Exposition:
    """The metrics as text."""

    content: bytes
    """In UTF-8."""
    media_type: str
    """The value for `Content-Type`."""


def exposition_of(registry: CollectorRegistry, accept: str) -> Exposition:
    """Return the metrics of a registry in the format that the header `Accept` of a scrape prefers."""
    encode, media_type = choose_encoder(accept)
    return Exposition(encode(registry), media_type)


class Metrics:
    """The metrics of an engine and of this process, in a registry of their own.

    Make one before the engine is used, and before its workers are made: only what comes later is counted. Those of the
    store are the same in every process; scrape them in one.

    Args:
        engine: The engine.
        namespaces: The namespaces to show, at most 20; by default the engine's and the first ones by name.

    Raises:
        InvalidArgumentError: An argument has the wrong type, or there are too many namespaces.
        InvalidNamespaceError: A namespace is too long or has other characters.
    """

    def __init__(self, engine: Engine | SyncEngine, *, namespaces: Collection[str] | None = None) -> None:
        check("Metrics", ENGINE, engine=engine)
        core = engine.core
        names = several("Metrics", "namespaces", namespaces or (), "a list of at most 20 names of namespaces")
        for name in names:
            check("Metrics", TEXT, namespaces=name)
            core.in_namespace(name)
        if len(names) > NAMESPACES_MAX:
            raise InvalidArgumentError(
                "namespaces", f"at most {NAMESPACES_MAX} namespaces are read at each scrape, not {len(names)}"
            )
        self.registry: Final = CollectorRegistry()
        """What the metrics are registered in. An application may add its own."""
        self.process: Final = ProcessMetrics(self.registry, core.stores.clock.monotonic)
        """Those of this process."""
        self._workers: list[Worker] = []
        figures = CachedRead(
            lambda: store_figures(core, names),
            age_max=STORE_AGE_SECONDS,
            wait_max=STORE_WAIT_SECONDS,
            monotonic=core.stores.clock.monotonic,
        )
        self.registry.register(StoreCollector(figures.get))
        self.registry.register(_WorkerCollector(self._workers))
        ProcessCollector(registry=self.registry)
        core.observe(self.process)

    def add_worker(self, worker: Worker) -> None:
        """Show the counters of a worker of this process too. Several are added up."""
        self._workers.append(worker)

    def expose(self, accept: str = "") -> Exposition:
        """Return the metrics in the format that the header `Accept` of a scrape prefers. Reads the store: may block."""
        return exposition_of(self.registry, accept)

    @contextmanager
    def served(self, host: str, port: int) -> Generator[str]:
        """Serve the metrics to everybody at an address, without TLS; provide the URL. OSError if it can't be had."""
        server, thread = start_http_server(port, host, registry=self.registry)
        try:
            shown = f"[{host}]" if ":" in host else host
            yield f"http://{shown}:{server.server_port}/metrics"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class _WorkerCollector(Collector):
    """The counters of this process's workers."""

    def __init__(self, workers: list[Worker]) -> None:
        self._workers = workers

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return ()

    @override
    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        stats = [worker.stats() for worker in self._workers]
        if not stats:
            return
        for name, text in _GAUGES.items():
            yield GaugeMetricFamily(f"holdfast_worker_{name}", _help(text), value=_sum(stats, name))
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"holdfast_worker_{name}", _help(text), value=_sum(stats, name))


def _help(text: str) -> str:
    return f"This process, its workers: {text[0].lower()}{text[1:]}"


def _sum(stats: list[WorkerStats], name: str) -> float:
    values: list[float] = [getattr(one, name) for one in stats]
    return sum(values)
