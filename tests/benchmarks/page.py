"""Tables and plots of the results: `python -m tests.benchmarks.page`.

From the files in `results` it writes the parts of docs/explanation/performance.md between `<!-- name -->` and
`<!-- /name -->`, and the plots beside it. A test holds that the page and the files agree.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.benchmarks.growth import Growth, load_growth
from tests.benchmarks.peers.environments import FLOOR, HOLDFAST
from tests.benchmarks.peers.results import Data, load
from tests.benchmarks.peers.rows import ALL, QUEUES
from tests.benchmarks.peers.table import cell, comparison, costs, line, ratio, short
from tests.benchmarks.plots import Bars, Plot, below_each_other
from tests.benchmarks.soak_samples import Soaked, load_soak

RESULTS: Final = Path(__file__).parent / "results"
PAGE: Final = Path(__file__).parents[2] / "docs" / "explanation" / "performance.md"
PLOTS: Final = PAGE.parent / "plots"

_SUMMARY: Final = {
    "latency": "one run of one step, from its start to its result, ms, p50 / p99",
    "submit, 16 at once": "runs that 16 threads start one by one, a second",
    "submit, batches of 100": "runs that are started in batches of 100, a second",
    "drain": "runs of one step that one worker ends, a second",
    "steps, 200 runs at once": "steps that one worker does in 200 runs, a second",
    "steps of 5 ms": "steps that take 5 ms, which one worker does in 50 runs at a time, a second",
    "values of 1 KB": "runs of a step with values of 1 KB, a second",
    "values of 100 KB": "the same with values of 100 KB",
    "signals": "waiting runs that are signalled one by one, and end, a second",
    "500 children": "one run that starts 500 others and waits for them, s",
    "replay": "a run of 3,000 steps, taken over by another worker, s",
    "SQLite: drain": "on SQLite, runs of one step that one worker ends, a second",
}
"""What a user waits for, by the row that measures it."""
_RATES: Final = ("submit, 16 at once", "drain", "steps, 50 runs at once", "steps, 200 runs at once")


def made(page: str, peers: Data, soaked: Soaked, growth: Growth) -> Mapping[Path, str]:
    """Return the new content of each file, from the present page."""
    results = peers.results
    parts = {
        "machine": "\n".join(f"- {one}" for one in (*peers.about.lines(), *_beside(peers.about.beside))),
        "summary": _summary(peers),
        "peers": comparison(results),
        "behind": _behind(peers),
        "rows": "\n".join(f"- **{row.name}**: {row.about}." for row in peers.rows),
        "costs": costs(results),
        "soak": _soak_table(soaked),
    }
    for name, text in parts.items():
        page = _with(page, name, text)
    return {
        PAGE: page,
        PLOTS / "peers.svg": below_each_other(_bars(peers)),
        PLOTS / "long-run.svg": _long_run(peers).svg(),
        PLOTS / "growth.svg": _growth_plot(growth).svg(),
        PLOTS / "soak.svg": below_each_other(_soak_plots(soaked)),
    }


def measured() -> tuple[Data, Soaked, Growth]:
    """Read the result files."""
    return (
        load(RESULTS / "peers.json"),
        load_soak(RESULTS / "soak.json"),
        load_growth(RESULTS / "growth.json"),
    )


def main() -> int:
    """Write the files."""
    for path, text in made(PAGE.read_text(), *measured()).items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        print(path)
    return 0


def _with(page: str, name: str, text: str) -> str:
    """Put a part into its place."""
    before, begin, rest = page.partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- /{name} -->")
    if not (begin and end):
        raise ValueError(f"the page must have one place for {name!r}")
    return f"{before}{begin}\n{text}\n\n{end}{after}"


def _beside(text: str) -> Sequence[str]:
    return (f"beside it: {text}",) if text else ()


def _summary(peers: Data) -> str:
    """Return the rows of `_SUMMARY` that were measured, each beside the best other durable engine."""
    known = {(one.row.name, one.who): one for one in peers.results}
    engines = [one for one in ALL if one not in {HOLDFAST, FLOOR, *QUEUES}]
    lines = [
        line("", "Holdfast", "best other durable engine", "times as good"),
        "| --- | ---: | ---: | ---: |",
    ]
    for row in (row for name in _SUMMARY for row in peers.rows if row.name == name):
        factor, _, best = ratio(row, known, engines).partition(" x ")
        if best:
            figures = (cell(known.get((row.name, who))) for who in (HOLDFAST, best))
            own, other = figures
            lines.append(line(_SUMMARY[row.name], own, f"{other} ({best})", factor))
    return "\n".join(lines)


def _behind(peers: Data) -> str:
    """Return where somebody else is better, the worst first."""
    known = {(one.row.name, one.who): one for one in peers.results}
    others = [one for one in ALL if one not in {HOLDFAST, FLOOR}]
    found: list[tuple[float, str]] = []
    for row in peers.rows:
        text = ratio(row, known, others)
        if text != "-" and float(text.partition(" ")[0]) < 1:
            factor, _, name = text.partition(" x ")
            own, best = known[row.name, HOLDFAST], known[row.name, name]
            figures = f"{short(own.figures['value'])} beside {short(best.figures['value'])}"
            found.append((float(factor), f"- **{row.name}**: {name} ({figures}, {row.unit})"))
    return "\n".join(text for _, text in sorted(found)) or "Nowhere in this run."


def _bars(peers: Data) -> list[Bars]:
    found: list[Bars] = []
    for name in _RATES:
        row = next((row for row in peers.rows if row.name == name), None)
        values = {
            who: result.figures["value"]
            for who in ALL
            if who != FLOOR and (result := peers.of(name, who)) is not None
        }
        if row is not None and values:
            found.append(Bars(title=row.name, note=f"{row.about}; {row.unit}", values=values))
    return found


def _long_run(peers: Data) -> Plot:
    lines: dict[str, list[tuple[float, float]]] = {}
    for who in ALL:
        result = peers.of("steps of one run", who)
        if result is not None and result.curve:
            steps = result.row.sizes_for(who)["length"]
            each = steps / len(result.curve)
            lines[who] = [((place + 0.5) * each, value) for place, value in enumerate(result.curve)]
    return Plot(
        title="A step of one run, by how long its history is",
        across="steps before it",
        up="milliseconds",
        lines=lines,
    )


def _growth_plot(growth: Growth) -> Plot:
    return Plot(
        title="A run of one step, by how many others there are",
        across="other runs in the tables",
        up="milliseconds of processor, of the worker and of the server together",
        lines={"have ended": growth.line("ended"), "wait": growth.line("waiting")},
    )


def _soak_table(soaked: Soaked) -> str:
    heads = ("", "at the beginning", "at the end", "most")
    lines = [line(*heads), line("---", *("---:" for _ in heads[1:]))]
    for about, series in soaked.series().items():
        for name, values in series.items():
            quarter = max(len(values) // 4, 1)
            first, last = sum(values[:quarter]) / quarter, sum(values[-quarter:]) / quarter
            lines.append(line(f"{about} {name}".strip(), short(first), short(last), short(max(values))))
    return f"{soaked.about()}\n\n" + "\n".join(lines)


def _soak_plots(soaked: Soaked) -> list[Plot]:
    return [
        Plot(
            title=about,
            across="minutes",
            up="",
            lines={
                name: [(one.at / 60, value) for one, value in zip(soaked.samples, values, strict=True)]
                for name, values in series.items()
            },
            bands=soaked.bands("" if place else "a reader holds back vacuum"),
            height=190,
        )
        for place, (about, series) in enumerate(soaked.series().items())
    ]


if __name__ == "__main__":
    sys.exit(main())
