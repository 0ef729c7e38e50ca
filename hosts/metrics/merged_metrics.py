"""The metrics of several processes as one text."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from typing_extensions import override

STORE: Final = "Store: "
"""How the descriptions of the metrics of a store begin, which are the same in every process."""


class MergedMetrics(Collector):
    """The metrics of worker processes: those of each with the label `process`, those of the store once.

    Args:
        texts: The metrics of each process in the text format, by its number.
        restarts: How often each process was restarted, by its number.
        ready: How many processes are ready.
    """

    def __init__(self, texts: Mapping[int, str], restarts: Mapping[int, int], ready: int) -> None:
        self._texts = texts
        self._restarts = restarts
        self._ready = ready

    def describe(self) -> Iterable[Metric]:
        """Return nothing: registration reads nothing."""
        return ()

    @override
    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield GaugeMetricFamily(
            "holdfast_worker_processes", "Supervisor: worker processes that are ready.", value=self._ready
        )
        restarted = CounterMetricFamily(
            "holdfast_worker_process_restarts",
            "Supervisor: restarts of worker processes.",
            labels=("process",),
        )
        for number, count in self._restarts.items():
            restarted.add_metric((str(number),), count)
        yield restarted
        merged: dict[str, Metric] = {}
        for number, text in self._texts.items():
            for family in text_string_to_metric_families(text):
                is_of_store = family.documentation.startswith(STORE)
                if family.name not in merged:
                    merged[family.name] = Metric(family.name, family.documentation, family.type)
                elif is_of_store:
                    continue
                label = {} if is_of_store else {"process": str(number)}
                for sample in family.samples:
                    labels = {**sample.labels, **label}
                    merged[family.name].add_sample(sample.name, labels, sample.value, sample.timestamp)
        yield from merged.values()
