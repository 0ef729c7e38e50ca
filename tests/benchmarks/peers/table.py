"""From measurements to figures, and to a table of them."""

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import attrs

from tests.benchmarks.peers.asking import Taken
from tests.benchmarks.peers.environments import HOLDFAST
from tests.benchmarks.peers.rows import ALL, Row

Figures: TypeAlias = Mapping[str, float]
"""By name: `value` first, then what it costs."""


@attrs.frozen(kw_only=True)
class Result:
    """What came of a row for one of them: its figures, or why there are none."""

    row: Row
    who: str
    figures: Figures
    failed: str = ""

    def line(self) -> str:
        """Return it as a line of JSON."""
        shown = {name: float(f"{value:.4g}") for name, value in self.figures.items()}
        return json.dumps(
            {"row": self.row.name, "who": self.who, "unit": self.row.unit, **shown, "failed": self.failed}
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
    for name in ("python_ms", "server_ms", "writes", "statements", "wal_bytes", "bytes"):
        costs: list[float | None] = [getattr(one, name) for one in taken]
        known = [cost for cost in costs if cost is not None]
        if known:
            figures[name] = statistics.median(known)
    return Result(row=row, who=who, figures=figures)


def table(results: Sequence[Result]) -> str:
    """Return a table in Markdown: a line for each row, a column for each of them; then what each item cost."""
    who = [one for one in ALL if any(result.who == one for result in results)]
    known = {(result.row.name, result.who): result for result in results}
    rows = list({result.row.name: result.row for result in results}.values())
    lines = [_line("", *who, "best other"), _line("---", *("---:" for _ in (*who, "")))]
    for row in rows:
        cells = [_cell(known.get((row.name, one))) for one in who]
        lines.append(_line(f"{row.name}, {row.unit}", *cells, _ratio(row, known, who)))
    lines += ["", _line("each item", "who", *_COSTS), _line("---", "---", *("---:" for _ in _COSTS))]
    for row in rows:
        for one in who:
            result = known.get((row.name, one))
            if result is not None and not result.failed:
                lines.append(_line(row.name, one, *(_short(result.figures.get(cost)) for cost in _COSTS)))
    return "\n".join(lines)


_COSTS = ("python_ms", "server_ms", "writes", "statements", "wal_bytes", "bytes")


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


def _cell(result: Result | None) -> str:
    if result is None:
        return "-"
    if result.failed:
        return "failed"
    figures = result.figures
    if "p99" in figures:
        return f"{_short(figures['value'])} / {_short(figures['p99'])}"
    if "first_ms" in figures:
        return f"{_short(figures['value'])} ({_short(figures['first_ms'])}, {_short(figures['last_ms'])})"
    return _short(figures["value"])


def _ratio(row: Row, known: Mapping[tuple[str, str], Result], who: Sequence[str]) -> str:
    """Return how many times better Holdfast is than the best of the others, or how many times worse."""
    own = known.get((row.name, HOLDFAST))
    others = [known.get((row.name, one)) for one in who if one != HOLDFAST]
    values = [(one.figures["value"], one.who) for one in others if one is not None and not one.failed]
    if own is None or own.failed or not values:
        return "-"
    is_rate = row.unit == "/s"
    best, name = max(values) if is_rate else min(values)
    ratio = own.figures["value"] / best if is_rate else best / own.figures["value"]
    return f"{ratio:.2f} x {name}"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _short(value: float | None) -> str:
    if value is None:
        return "-"
    if value >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
