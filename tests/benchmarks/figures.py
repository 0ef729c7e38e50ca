"""Figures from samples: medians, compared with the floor, and costs per item."""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import attrs

from tests.benchmarks.meter import Sample
from tests.benchmarks.sites import Before, Site, Store

Extra: TypeAlias = float | int | list[float] | None
Measure: TypeAlias = Callable[[Site], Sample]
Unit: TypeAlias = Literal["runs/s", "stages/s", "steps/s", "items/s", "messages/s", "ms", "cpu ms/min"]

_PERCENTILES: Final = (50, 95, 99)


@attrs.frozen(kw_only=True)
class Case:
    """A workload to measure on every store, and the same work in hand-written SQL.

    With `warms_up_itself` it throws its first measurements away. `before` is what it finds, and the floor does not.
    """

    name: str
    unit: Unit
    measure: Measure
    floor: Measure
    repeats: int = 3
    warms_up_itself: bool = False
    before: Before | None = None


@attrs.frozen(kw_only=True)
class Figure:
    """The figures of a case. `ratio` is value to floor: a higher rate is better, a lower time is better."""

    name: str
    store: str
    value: float
    unit: str
    floor: float
    ratio: float
    extras: Mapping[str, Extra]

    def line(self) -> str:
        """Return the figure as a line of JSON."""
        rounded = {name: _rounded(value) for name, value in self.extras.items()}
        shown = {
            **attrs.asdict(self),
            "value": _rounded(self.value),
            "floor": _rounded(self.floor),
            "ratio": _rounded(self.ratio),
        }
        return json.dumps({**shown, "extras": rounded})


def take(case: Case, store: Store, *, warm_up: Case) -> Figure:
    """Measure a case; samples of the floor alternate with those of Holdfast.

    The first sample only warms up. In the last one the server counts statements, which costs it a few percent: where
    there are three, the median is hardly ever that one.
    """
    if not case.warms_up_itself:
        for measure, before in ((warm_up.measure, case.before), (warm_up.floor, None)):
            with store.site(counted=False, before=before) as site:
                measure(site)
    samples: list[Sample] = []
    floors: list[Sample] = []
    for repeat in range(case.repeats):
        for measure, before, taken in ((case.measure, case.before, samples), (case.floor, None, floors)):
            with store.site(counted=repeat == case.repeats - 1, before=before) as site:
                taken.append(measure(site))
    value, floor = _value(case, samples), _value(case, floors)
    extras = {
        **_spread(case, samples),
        **_costs(case, samples),
        **{f"floor_{name}": cost for name, cost in {**_spread(case, floors), **_costs(case, floors)}.items()},
    }
    return Figure(
        name=case.name,
        store=store.name,
        value=value,
        unit=case.unit,
        floor=floor,
        ratio=value / floor,
        extras={name: extra for name, extra in extras.items() if extra is not None},
    )


def table(figures: Sequence[Figure]) -> str:
    """Return figures as a table. Costs are per item; a dash means unknown."""
    head = (
        "figure",
        "store",
        "value",
        "",
        "spread",
        "floor",
        "ratio",
        "py ms",
        "srv ms",
        "commits",
        "stmts",
        "calls",
        "WAL B",
        "bytes",
    )
    rows = [head, *map(_cells, figures)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place in {0, 1, 3} else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _cells(figure: Figure) -> tuple[str, ...]:
    extras = figure.extras
    percentiles = [extras.get(f"p{share}_ms") for share in _PERCENTILES]
    if all(isinstance(value, float) for value in percentiles):
        spread: Extra = [value for value in percentiles if isinstance(value, float)]
    else:
        spread = extras.get("spread")
    costs = ("python_cpu_ms", "server_cpu_ms", "commits", "statements", "calls", "wal_bytes", "bytes")
    return (
        figure.name,
        figure.store,
        _short(figure.value),
        figure.unit,
        " / ".join(map(_short, spread)) if isinstance(spread, list) else "-",
        _short(figure.floor),
        f"{figure.ratio:.3f}" if figure.unit.endswith("/s") else f"{figure.ratio:.1f}x",
        *(_short(value) if isinstance(value := extras.get(name), int | float) else "-" for name in costs),
    )


def _value(case: Case, samples: Sequence[Sample]) -> float:
    if case.unit == "ms":
        return _percentile(samples, 50)
    return statistics.median(_one(case, sample) for sample in samples)


def _one(case: Case, sample: Sample) -> float:
    if case.unit == "cpu ms/min":
        return (sample.python_cpu + (sample.server_cpu or 0.0)) * 1_000 / sample.items
    return sample.items / sample.seconds


def _spread(case: Case, samples: Sequence[Sample]) -> dict[str, Extra]:
    if case.unit == "ms":
        return {f"p{share}_ms": _percentile(samples, share) for share in _PERCENTILES}
    return {"spread": sorted(_one(case, sample) for sample in samples)}


def _percentile(samples: Sequence[Sample], share: int) -> float:
    latencies = sorted(latency for sample in samples for latency in sample.latencies)
    return latencies[min(len(latencies) * share // 100, len(latencies) - 1)] * 1_000


def _costs(case: Case, samples: Sequence[Sample]) -> dict[str, Extra]:
    """Return the costs per item: the median of the samples. Space is not counted per minute."""
    stored = case.unit != "cpu ms/min"
    return {
        "items": samples[0].items,
        "python_cpu_ms": _median(samples, lambda sample: sample.python_cpu * 1_000),
        "server_cpu_ms": _median(
            samples, lambda sample: None if sample.server_cpu is None else sample.server_cpu * 1_000
        ),
        "commits": _median(samples, lambda sample: sample.commits),
        "statements": _median(samples, lambda sample: sample.statements),
        "worker_commits": _median(samples, lambda sample: sample.worker_commits),
        "calls": _median(samples, lambda sample: sample.calls),
        "wal_bytes": _median(samples, lambda sample: sample.wal_bytes),
        "bytes": _median(samples, lambda sample: sample.bytes) if stored else None,
    }


def _median(samples: Sequence[Sample], cost: Callable[[Sample], float | None]) -> float | None:
    each = [value for sample in samples if (value := _each(sample, cost(sample))) is not None]
    return statistics.median(each) if each else None


def _each(sample: Sample, cost: float | None) -> float | None:
    return None if cost is None else cost / sample.items


def _rounded(value: Extra) -> Extra:
    """Round to four significant digits."""
    if isinstance(value, list):
        return [float(f"{each:.4g}") for each in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _short(value: float) -> str:
    if value >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 100 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"
