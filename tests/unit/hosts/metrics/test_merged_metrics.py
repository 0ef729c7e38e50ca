"""The metrics of several processes as one text."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.hosts.metrics.merged_metrics import MergedMetrics


def text(commands: int, runs: int) -> str:
    registry = CollectorRegistry()
    counter = Counter("holdfast_commands", "This process: commands.", ("command",), registry=registry)
    counter.labels("run.create").inc(commands)
    Gauge("holdfast_runs", "Store: runs.", ("status",), registry=registry).labels("running").set(runs)
    Histogram("holdfast_commit_seconds", "This process: commits.", buckets=(1.0,), registry=registry).observe(
        2
    )
    return generate_latest(registry).decode()


def test_each_process_has_a_label_and_the_store_is_shown_once() -> None:
    registry = CollectorRegistry()
    registry.register(MergedMetrics({0: text(3, 7), 2: text(4, 8)}, {0: 0, 1: 5, 2: 0}, ready=2))
    shown = generate_latest(registry).decode()
    found = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(shown)
        for sample in family.samples
    }
    command = ("command", "run.create")
    assert found["holdfast_commands_total", command, ("process", "0")] == 3
    assert found["holdfast_commands_total", command, ("process", "2")] == 4
    assert [value for name, value in found.items() if name[0] == "holdfast_runs"] == [7]
    assert found["holdfast_commit_seconds_bucket", ("le", "1.0"), ("process", "0")] == 0
    assert found["holdfast_commit_seconds_count", ("process", "2")] == 1
    assert found["holdfast_worker_processes",] == 2
    assert found["holdfast_worker_process_restarts_total", ("process", "1")] == 5
    assert shown.count("# TYPE holdfast_commands_total counter") == 1
