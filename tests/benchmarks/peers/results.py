"""From measurements to figures, and to a file of them and back."""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs
import cattrs

from tests.benchmarks.peers.measurement import Taken
from tests.benchmarks.peers.rows import Row

COSTS: Final = ("python_ms", "server_ms", "writes", "statements", "wal_bytes", "bytes")
"""What each item costs, where that is known: see `Taken`."""


@attrs.frozen(kw_only=True)
class About:
    """Where and when something was measured; `beside` is what else the machine did meanwhile."""

    at: str
    machine: str
    load: float
    stores: Mapping[str, str]
    versions: Mapping[str, str]
    beside: str

    def lines(self) -> list[str]:
        """Return it for people."""
        who = ", ".join(f"{one} {version}" for one, version in self.versions.items())
        return [f"{self.machine}, load {self.load:.1f}, {self.at}", *self.stores.values(), who]


@attrs.frozen(kw_only=True)
class Result:
    """What came of a row for one of them: its figures and curve, or why there are none.

    Of the figures `value` is what is compared; `lowest` and `highest` are those of single times, `p99` of latencies.
    """

    row: Row
    who: str
    figures: Mapping[str, float]
    curve: tuple[float, ...] = ()
    failed: str = ""

    def line(self) -> str:
        """Return it as a line of JSON."""
        shown = {name: short(value) for name, value in self.figures.items()}
        return json.dumps(
            {"row": self.row.name, "who": self.who, "unit": self.row.unit, **shown, "failed": self.failed}
        )


@attrs.frozen(kw_only=True)
class Data:
    """All that was measured in one run."""

    about: About
    rows: tuple[Row, ...]
    results: tuple[Result, ...]

    def of(self, row: str, who: str) -> Result | None:
        """Return what came of a row for one of them; None if that was not measured, or failed."""
        return next(
            (one for one in self.results if (one.row.name, one.who, one.failed) == (row, who, "")), None
        )


def result_of(row: Row, who: str, taken: Sequence[Taken]) -> Result:
    """Return the medians of what was measured."""
    values = [_value(row, one) for one in taken]
    figures = {"value": statistics.median(values), "lowest": min(values), "highest": max(values)}
    if row.unit == "ms":
        latencies = sorted(latency * 1_000 for one in taken for latency in one.latencies)
        figures["p99"] = latencies[min(len(latencies) * 99 // 100, len(latencies) - 1)]
    for name in taken[0].more:
        figures[name] = statistics.median(one.more[name] for one in taken)
    for name in COSTS if row.has_costs else ():
        costs: list[float | None] = [getattr(one, name) for one in taken]
        known = [cost for cost in costs if cost is not None]
        if known:
            figures[name] = statistics.median(known)
    return Result(row=row, who=who, figures=figures, curve=taken[-1].curve)


def save(path: Path, about: About, results: Sequence[Result]) -> None:
    """Put what was measured into a file, one line for each result."""
    rows = {one.row.name: attrs.asdict(one.row) for one in results}
    lines = [
        json.dumps(
            {
                "row": one.row.name,
                "who": one.who,
                "figures": {name: short(value) for name, value in one.figures.items()},
                "curve": [short(value) for value in one.curve],
                "failed": one.failed,
            }
        )
        for one in results
    ]
    parts = {
        "about": json.dumps(attrs.asdict(about)),
        "rows": f"[\n  {_joined(map(json.dumps, rows.values()))}\n ]",
        "results": f"[\n  {_joined(lines)}\n ]",
    }
    path.write_text("{\n" + ",\n".join(f' "{name}": {text}' for name, text in parts.items()) + "\n}\n")


def load(path: Path) -> Data:
    """Return what `save` has put into a file."""
    found = json.loads(path.read_text())
    rows = {row["name"]: cattrs.structure(row, Row) for row in found["rows"]}
    results = (
        Result(
            row=rows[one["row"]],
            who=one["who"],
            figures=one["figures"],
            curve=tuple(one["curve"]),
            failed=one["failed"],
        )
        for one in found["results"]
    )
    return Data(
        about=cattrs.structure(found["about"], About), rows=tuple(rows.values()), results=tuple(results)
    )


def short(value: float) -> float:
    """Round to four digits that mean something."""
    return float(f"{value:.4g}")


def _value(row: Row, taken: Taken) -> float:
    match row.unit:
        case "/s":
            return taken.items / taken.seconds
        case "ms":
            return statistics.median(taken.latencies) * 1_000
        case "ms each":
            return taken.seconds * 1_000 / taken.items
        case _:
            return taken.seconds


def _joined(lines: Iterable[str]) -> str:
    return ",\n  ".join(lines)
