"""Writes the report: one page of HTML that needs nothing else, with every name from a source file escaped."""

import platform
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Final

from docs.examples.stdlib_report.charts import STEPS, histogram, treemap, wheel
from docs.examples.stdlib_report.model import Area, Imported, ImportGraph, Ranked, Ranking

_STYLE: Final = Path(__file__).with_name("report.css")
_AREAS: Final = 20
_IMPORTED: Final = 16
_CYCLES: Final = 12


def render(ranking: Ranking, graph: ImportGraph, version: str = "") -> str:
    """Return the page. The same measures give the same bytes."""
    title = f"The Python {version or platform.python_version()} standard library, measured"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{_STYLE.read_text(encoding="utf-8").strip()}
</style>
</head>
<body>
<a class="skip" href="#map">Skip to the report</a>
<header>
<h1>{escape(title)}</h1>
<p class="lead">{_summary(ranking)}</p>
{_tiles(ranking, graph)}
</header>
<main>
<section id="map" aria-labelledby="map-h">
<h2 id="map-h">A map of the library</h2>
<p class="note">Each tile is a top-level module or package: as large as its code, as strong in colour as its functions
are complex on average. Data tables, such as those of <code>encodings</code>, are large and
faint.</p>
{_legend()}
{treemap(ranking.areas)}
</section>
<section id="spread" class="pair" aria-labelledby="spread-h">
<div>
<h2 id="spread-h">Most functions are simple</h2>
<p class="note">How many functions there are of which complexity.</p>
{histogram(ranking.spread)}
</div>
<div>
<h2>How complexity is counted</h2>
<p>McCabe's way: one for the function, and one more for each <code>if</code>, loop, <code>except</code>,
<code>and</code> or <code>or</code>, conditional expression, comprehension and <code>case</code>. What is in an inner
function counts for that one alone.</p>
<p>{_spread_words(ranking)}</p>
</div>
</section>
<section id="hardest" aria-labelledby="hardest-h">
<h2 id="hardest-h">The hardest functions</h2>
{_hardest(ranking.hardest)}
</section>
<section id="imports" aria-labelledby="imports-h">
<h2 id="imports-h">Who imports whom</h2>
<p class="note">The modules that most others import, and their imports of each other. Point at a name to see what it
imports.</p>
<div class="pair">
{wheel(graph)}
{_imported(graph.imported[:_IMPORTED])}
</div>
</section>
<section id="cycles" aria-labelledby="cycles-h">
<h2 id="cycles-h">Import cycles</h2>
{_cycles(graph)}
</section>
<section id="packages" aria-labelledby="packages-h">
<h2 id="packages-h">The largest packages</h2>
{_areas(ranking.areas[:_AREAS])}
</section>
</main>
<footer>
<p>Measured by a Holdfast pipeline: discover, one job for each file, rank and import graph in parallel, report.
Tests, installed packages and compiled modules are left out.</p>
</footer>
</body>
</html>
"""


def _summary(ranking: Ranking) -> str:
    share = _share(sum(bucket.functions for bucket in ranking.spread[:3]), ranking.functions)
    hardest = (
        f" The most complex is <code>{_name(ranking.hardest[0])}</code>, at {ranking.hardest[0].complexity:,}."
        if ranking.hardest
        else ""
    )
    return (
        f"{ranking.files:,} source files with {ranking.code:,} lines of code. {share} of the {ranking.functions:,}"
        f" functions have a complexity of three or less.{hardest}"
    )


def _tiles(ranking: Ranking, graph: ImportGraph) -> str:
    tiles = {
        "Files": ranking.files,
        "Lines of code": ranking.code,
        "Functions": ranking.functions,
        "Classes": ranking.classes,
        "File imports": graph.edges,
        "Import cycles": len(graph.cycles),
    }
    return (
        '<dl class="tiles">'
        + "".join(f"<div><dt>{escape(name)}</dt><dd>{value:,}</dd></div>" for name, value in tiles.items())
        + "</dl>"
    )


def _legend() -> str:
    edges = [f"below {STEPS[0]:g}", *(f"from {step:g}" for step in STEPS)]
    items = "".join(
        f'<li><svg viewBox="0 0 16 16" aria-hidden="true"><rect class="q{index}" width="16" height="16" rx="3"/></svg>'
        f"{escape(edge)}</li>"
        for index, edge in enumerate(edges)
    )
    return f'<ul class="legend" aria-label="Mean complexity by colour"><li>Mean complexity</li>{items}</ul>'


def _spread_words(ranking: Ranking) -> str:
    hard = sum(bucket.functions for bucket in ranking.spread[-3:])
    return (
        f"Half of all functions have a complexity of {ranking.median:,} or less, and 95 in 100 of {ranking.p95:,} or"
        f" less. {hard:,} functions, {_share(hard, ranking.functions)}, have more than 13: those are where a change"
        " needs the most care."
    )


def _hardest(functions: Iterable[Ranked]) -> str:
    rows = list(functions)
    most = max((row.complexity for row in rows), default=1)
    body = "".join(
        f'<tr><td class="n muted">{place}</td><th scope="row"><code>{_name(row)}</code></th>'
        f'<td class="n">{row.line:,}</td><td class="n">{row.lines:,}</td><td class="n">{row.complexity:,}</td>'
        f'<td class="meter">{_meter(row.complexity / most)}</td></tr>\n'
        for place, row in enumerate(rows, 1)
    )
    head = ("#", "n"), ("Function", ""), ("At line", "n"), ("Lines", "n"), ("Complexity", "n"), ("", "")
    return _table("Functions by complexity", head, body)


def _imported(modules: Iterable[Imported]) -> str:
    body = "".join(
        f'<tr><th scope="row"><code>{escape(row.name)}</code></th><td class="n">{row.importers:,}</td>'
        f'<td class="n">{row.imports:,}</td></tr>\n'
        for row in modules
    )
    return _table("Most imported", (("Module", ""), ("Imported by", "n"), ("Imports", "n")), body)


def _areas(areas: Iterable[Area]) -> str:
    rows = list(areas)
    most = max((row.code for row in rows), default=1) or 1
    body = "".join(
        f'<tr><th scope="row"><code>{escape(row.name)}</code></th><td class="n">{row.files:,}</td>'
        f'<td class="n">{row.functions:,}</td><td class="n">{row.complexity:.2f}</td><td class="n">{row.code:,}</td>'
        f'<td class="meter">{_meter(row.code / most)}</td></tr>\n'
        for row in rows
    )
    head = (
        ("Package", ""),
        ("Files", "n"),
        ("Functions", "n"),
        ("Mean complexity", "n"),
        ("Lines of code", "n"),
        ("", ""),
    )
    return _table("Packages by lines of code", head, body)


def _cycles(graph: ImportGraph) -> str:
    if not graph.cycles:
        return "<p>There are none.</p>"
    shown = graph.cycles[:_CYCLES]
    items = "".join(
        f'<li><span class="muted">{len(cycle):,} files:</span> '
        + ", ".join(f"<code>{escape(name)}</code>" for name in cycle)
        + "</li>"
        for cycle in shown
    )
    left = len(graph.cycles) - len(shown)
    more = f'<p class="note">And {left:,} more.</p>' if left else ""
    return (
        '<p class="note">Files that need each other while they are loaded: each imports, by itself or through others,'
        " all of its group. Imports inside functions are not counted here.</p>"
        f'<ul class="cycles">{items}</ul>{more}'
    )


def _table(caption: str, head: Iterable[tuple[str, str]], body: str) -> str:
    cells = "".join(
        f'<th scope="col" class="{kind}">{escape(name)}</th>' if name else "<td></td>" for name, kind in head
    )
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption><thead><tr>{cells}</tr></thead>'
        f"<tbody>\n{body}</tbody></table></div>"
    )


def _meter(share: float) -> str:
    return (
        '<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="track" width="100" height="10"/><rect class="bar" width="{share * 100:.1f}" height="10"/></svg>'
    )


def _name(function: Ranked) -> str:
    return f'<span class="muted">{escape(function.module)}.</span>{escape(function.name)}'


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "none"
