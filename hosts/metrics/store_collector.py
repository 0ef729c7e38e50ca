"""The metrics of the store, made from its figures when they are scraped."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

from holdfast.hosts.metrics.label_limit import LabelLimit
from holdfast.hosts.metrics.store_figures import NamespaceFigures, StoreFigures
from holdfast.ports.errors import HoldfastError


class StoreCollector(Collector):
    """Gauges of the store. Without an answer of the store only `holdfast_store_up` is left, at 0.

    Args:
        read: Returns the figures; raises HoldfastError or TimeoutError.
    """

    def __init__(self, read: Callable[[], StoreFigures]) -> None:
        self._read = read
        self._queues = LabelLimit()
        self._sinks = LabelLimit()

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return nothing: so that registration reads nothing."""
        return ()

    @override
    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges."""
        try:
            figures = self._read()
        except (HoldfastError, TimeoutError):
            yield _plain("store_up", "whether the last read of the store succeeded", 0)
            return
        yield _plain("store_up", "whether the last read of the store succeeded", 1)
        yield _plain(
            "store_partial", "whether there are more namespaces than these metrics cover", figures.is_partial
        )
        overdue = _family(
            "overdue_seconds", "how late the work is that was due first, by what is to happen", "kind"
        )
        for kind, seconds in figures.overdue_seconds.items():
            overdue.add_metric((kind,), seconds)
        yield overdue
        yield from self._of_namespaces(figures.namespaces)
        yield from self._of_queues(figures.namespaces)
        yield from self._of_sinks(figures.namespaces)

    def _of_namespaces(self, namespaces: Iterable[NamespaceFigures]) -> Iterator[GaugeMetricFamily]:
        runs = _family(
            "runs", "runs that have not ended, at most 10,000 of each status", "namespace", "status"
        )
        workers = _family("workers", "registered workers", "namespace", "state")
        slots = _family("worker_slots", "how many bodies the live workers run at once", "namespace")
        for one in namespaces:
            for status, number in one.runs.items():
                runs.add_metric((one.name, status.value), number)
            workers.add_metric((one.name, "live"), one.live_workers)
            workers.add_metric((one.name, "expired"), one.expired_workers)
            slots.add_metric((one.name,), one.slots)
        yield from (runs, workers, slots)

    def _of_queues(self, namespaces: Iterable[NamespaceFigures]) -> Iterator[GaugeMetricFamily]:
        labels = ("namespace", "queue")
        oldest = _family("queue_oldest_seconds", "how long the first queued job has waited", *labels)
        jobs = _family("queue_jobs", "jobs, at most 10,000 of each definition and state", *labels, "state")
        unserved = _family(
            "queue_unserved_jobs", "queued jobs that need code that no live worker has", *labels
        )
        paused = _family("queue_paused", "whether nothing is claimed from the queue", *labels)
        # Beyond the limit, queues share a label: counts are added up, and of ages the highest stands.
        found: dict[tuple[str, ...], list[float]] = {}
        for namespace in namespaces:
            for queue in namespace.queues:
                info = queue.info
                values = found.setdefault(self._queues(namespace.name, info.name), [0.0] * 6)
                values[0] = max(values[0], queue.oldest_seconds)
                for place, count in enumerate((info.queued, info.running, info.sleeping, queue.unserved), 1):
                    values[place] += count
                values[5] = max(values[5], float(info.is_paused))
        for names, (age, queued, running, sleeping, without_code, is_paused) in found.items():
            oldest.add_metric(names, age)
            for state, number in (("queued", queued), ("running", running), ("sleeping", sleeping)):
                jobs.add_metric((*names, state), number)
            unserved.add_metric(names, without_code)
            paused.add_metric(names, is_paused)
        yield from (oldest, jobs, unserved, paused)

    def _of_sinks(self, namespaces: Iterable[NamespaceFigures]) -> Iterator[GaugeMetricFamily]:
        labels = ("namespace", "sink")
        letters = _family("dead_letters", "runs whose events the sink refuses", *labels)
        failing = _family(
            "sink_failing_seconds", "for how long the sink has taken no event, 0 if it does", *labels
        )
        found: dict[tuple[str, ...], tuple[float, float]] = {}
        for namespace in namespaces:
            for sink in namespace.sinks:
                names = self._sinks(namespace.name, sink.name)
                number, seconds = found.get(names, (0, 0.0))
                found[names] = number + sink.dead_letters, max(seconds, sink.failing_seconds)
        for names, (number, seconds) in found.items():
            letters.add_metric(names, number)
            failing.add_metric(names, seconds)
        yield from (letters, failing)


def _family(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"holdfast_{name}", f"Store: {text}.", labels=labels)


def _plain(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"holdfast_{name}", f"Store: {text}.", value=value)
