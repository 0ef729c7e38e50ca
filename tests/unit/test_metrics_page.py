"""The page of metrics, the dashboard and the alert rules name the metrics that there are, with their labels."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast import Engine, Worker
from holdfast.hosts.metrics.merged_metrics import MergedMetrics
from holdfast.metrics import Metrics

DOCS: Final = Path(__file__).resolve().parent.parent.parent / "docs"
DASHBOARD: Final = DOCS / "grafana/holdfast.json"
ALERTS: Final = DOCS / "grafana/alerts.yml"
_yaml: Any = import_module("yaml")  # it has no types here
_SUFFIXES: Final[Mapping[str, tuple[str, ...]]] = {
    "counter": ("_total",),
    "gauge": ("",),
    "histogram": ("_bucket", "_count", "_sum"),
}
_NAME: Final = re.compile(r"\bholdfast_[a-z_]+")
_ROW: Final = re.compile(r"\| `(holdfast_\w+)` \|(.*?)\| ")


@pytest.fixture(scope="module")
def series() -> dict[str, str]:
    """The names of series, each with that of its metric on the page."""
    engine = Engine.open("memory://")
    with engine.sync:
        metrics = Metrics(engine)
        metrics.add_worker(Worker(engine))
        families = [*metrics.registry.collect(), *MergedMetrics({}, {0: 0}, ready=1).collect()]
    found: dict[str, str] = {}
    for family in families:
        shown = f"{family.name}_total" if family.type == "counter" else family.name
        found |= {f"{family.name}{suffix}": shown for suffix in _SUFFIXES[family.type]}
    return found


@cache
def documented() -> Mapping[str, frozenset[str]]:
    """The labels of each metric, by the page."""
    page = (DOCS / "howto/metrics.md").read_text()
    return {name: frozenset(re.findall(r"`(\w+)`", labels)) for name, labels in _ROW.findall(page)}


def panels() -> Iterator[str]:
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


def rules() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        rule for group in _yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
    ]
    return found


def expressions() -> list[str]:
    """Return those that name metrics of ours: the others depend on the operating system."""
    return [one for one in (*panels(), *(rule["expr"] for rule in rules())) if "holdfast_" in one]


def test_the_page_lists_every_metric(series: dict[str, str]) -> None:
    ours = {name for name in series.values() if name.startswith("holdfast_")}

    assert set(documented()) == ours


@pytest.mark.parametrize("expression", expressions())
def test_expressions_name_metrics_and_labels_that_exist(series: dict[str, str], expression: str) -> None:
    plain = re.sub(r'"[^"]*"', '""', expression)
    names = _NAME.findall(plain)
    assert names
    assert set(names) <= set(series), expression
    known = frozenset({"le"}).union(*(documented().get(series[name], frozenset()) for name in names))
    grouped = re.findall(r"\b(?:by|on) \((.*?)\)", plain)
    selected = re.findall(r"{(.*?)}", plain)
    used = {label.strip() for group in grouped for label in group.split(",")}
    used |= set(re.findall(r"(\w+)=", ",".join(selected)))
    assert used <= known, expression
    assert expression.count("(") == expression.count(")")


def test_there_are_six_alerts_and_the_page_names_them() -> None:
    names = [rule["alert"] for rule in rules()]
    page = (DOCS / "howto/metrics.md").read_text()

    assert len(names) == len(set(names)) == 6
    assert re.findall(r"\| `(Holdfast\w+)` \|", page) == names
    for rule in rules():
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "description"}


def test_the_variable_of_the_dashboard_is_a_label_that_exists(series: dict[str, str]) -> None:
    variables = json.loads(DASHBOARD.read_text())["templating"]["list"]
    (query,) = (one["query"] for one in variables if one["name"] == "namespace")

    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", query).groups()  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]
    assert metric in series
    assert label in documented()[metric]
