"""Tables of figures, in Markdown."""

from collections.abc import Mapping, Sequence
from typing import Final

from tests.benchmarks.peers.environments import FLOOR, HOLDFAST
from tests.benchmarks.peers.results import COSTS, Result
from tests.benchmarks.peers.rows import ALL, QUEUES, Row

_HEADS: Final = {
    "python_ms": "Python, ms",
    "server_ms": "server, ms",
    "writes": "transactions that write",
    "statements": "statements",
    "wal_bytes": "bytes of WAL",
    "bytes": "bytes in tables",
}


def table(results: Sequence[Result]) -> str:
    """Return a line for each row, a column for each of them; then what each item cost."""
    return f"{comparison(results)}\n\n{costs(results)}"


def comparison(results: Sequence[Result]) -> str:
    """Return a line for each row, a column for each of them, and how many times better Holdfast is than the best.

    Of the best of the engines that is said, and of the best queue of jobs, which keeps no steps.
    """
    who = [one for one in ALL if any(result.who == one for result in results)]
    known = {(result.row.name, result.who): result for result in results}
    heads = ("", *who, "target", "beside the best engine", "beside the best queue")
    lines = [line(*heads), line("---", *("---:" for _ in heads[1:]))]
    for row in {result.row.name: result.row for result in results}.values():
        cells = [cell(known.get((row.name, one))) for one in who]
        engines = [one for one in who if one not in {HOLDFAST, FLOOR, *QUEUES}]
        ratios = (ratio(row, known, engines), ratio(row, known, QUEUES))
        lines.append(line(f"{row.name}, {row.unit}", *cells, short(row.target), *ratios))
    return "\n".join(lines)


def costs(results: Sequence[Result]) -> str:
    """Return what each item cost: a line for each row and each of them."""
    lines = [line("each item", "who", *_HEADS.values()), line("---", "---", *("---:" for _ in _HEADS))]
    for result in results:
        if result.row.has_costs and not result.failed:
            cells = (short(result.figures.get(cost)) for cost in COSTS)
            lines.append(line(result.row.name, result.who, *cells))
    return "\n".join(lines)


def ratio(row: Row, known: Mapping[tuple[str, str], Result], others: Sequence[str]) -> str:
    """Return how many times better Holdfast is than the best of some others; below 1 it is worse."""
    own = known.get((row.name, HOLDFAST))
    found = [known.get((row.name, one)) for one in others]
    values = [(one.figures["value"], one.who) for one in found if one is not None and not one.failed]
    if own is None or own.failed or not values:
        return "-"
    is_rate = row.unit == "/s"
    best, name = max(values) if is_rate else min(values)
    return f"{own.figures['value'] / best if is_rate else best / own.figures['value']:.2f} x {name}"


def line(*cells: str) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(cells)} |"


def short(value: float | None) -> str:
    """Return a figure for people."""
    if value is None:
        return "-"
    if value >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def cell(result: Result | None) -> str:
    """Return the figures of a result for people."""
    if result is None:
        return "-"
    if result.failed:
        return "failed"
    figures = result.figures
    if "p99" in figures:
        return f"{short(figures['value'])} / {short(figures['p99'])}"
    if "first_ms" in figures:
        return f"{short(figures['value'])} ({short(figures['first_ms'])}, {short(figures['last_ms'])})"
    return short(figures["value"])
