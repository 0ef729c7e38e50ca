"""Puts the measures of all files together: who is hardest, and who imports whom. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Final

from docs.examples.stdlib_report.model import (
    Area,
    Bucket,
    Function,
    Imported,
    ImportGraph,
    Link,
    Module,
    Ranked,
    Ranking,
)

HARDEST: Final = 25
_BOUNDS: Final = (1, 2, 3, 5, 8, 13, 21, 34)


def rank_modules(modules: list[Module]) -> Ranking:
    """Rank functions by complexity, and add up files by what they belong to at the top level."""
    functions = [(module, function) for module in modules for function in module.functions]
    values = sorted(function.complexity for _, function in functions)
    hardest = sorted(functions, key=lambda pair: (-pair[1].complexity, pair[0].name, pair[1].line))[:HARDEST]
    return Ranking(
        files=len(modules),
        lines=sum(module.lines for module in modules),
        code=sum(module.code for module in modules),
        classes=sum(module.classes for module in modules),
        functions=len(values),
        median=int(median(values)) if values else 0,
        p95=values[len(values) * 95 // 100] if values else 0,
        hardest=[
            Ranked(module.name, function.name, function.line, function.lines, function.complexity)
            for module, function in hardest
        ],
        areas=_areas(modules),
        spread=_spread(function for _, function in functions),
    )


def build_graph(modules: list[Module]) -> ImportGraph:
    """Resolve what files import to other files, and find those that need each other to be loaded."""
    known = {module.name for module in modules}
    eager = {module.name: _resolved(module.name, module.imports, known) for module in modules}
    lazy = {module.name: _resolved(module.name, module.lazy_imports, known) for module in modules}
    edges = {name: eager[name] | lazy[name] for name in eager}
    links = {
        Link(_top(source), _top(target))
        for source, targets in edges.items()
        for target in targets
        if _top(source) != _top(target)
    }
    importers, imports = Counter(link.target for link in links), Counter(link.source for link in links)
    ranked = sorted({_top(name) for name in known}, key=lambda name: (-importers[name], -imports[name], name))
    return ImportGraph(
        edges=sum(map(len, edges.values())),
        links=sorted(links, key=lambda link: (link.source, link.target)),
        imported=[Imported(name, importers[name], imports[name]) for name in ranked],
        cycles=sorted(_cycles(eager), key=lambda cycle: (-len(cycle), cycle)),
    )


def _areas(modules: list[Module]) -> list[Area]:
    grouped: dict[str, list[Module]] = {}
    for module in modules:
        grouped.setdefault(module.package, []).append(module)
    areas = [_area(name, members) for name, members in grouped.items()]
    return sorted(areas, key=lambda area: (-area.code, area.name))


def _area(name: str, members: list[Module]) -> Area:
    values = [function.complexity for module in members for function in module.functions]
    return Area(
        name=name,
        files=len(members),
        code=sum(module.code for module in members),
        functions=len(values),
        complexity=round(sum(values) / len(values), 2) if values else 0.0,
    )


def _spread(functions: Iterable[Function]) -> list[Bucket]:
    """Count functions between Fibonacci numbers, which leaves room for the few that are very hard."""
    values = [function.complexity for function in functions]
    buckets: list[Bucket] = []
    low = 1
    for high in _BOUNDS:
        label = str(high) if low == high else f"{low}-{high}"
        buckets.append(Bucket(label, sum(low <= value <= high for value in values)))
        low = high + 1
    return [*buckets, Bucket(f"{low}+", sum(value >= low for value in values))]


def _top(name: str) -> str:
    return name.partition(".")[0]


def _resolved(importer: str, names: Iterable[str], known: set[str]) -> set[str]:
    """Return the files that names stand for: the longest beginning of each that is one."""
    targets: set[str] = set()
    for name in names:
        beginning = name
        while beginning and beginning not in known:
            beginning = beginning.rpartition(".")[0]
        if beginning and beginning != importer:
            targets.add(beginning)
    return targets


def _cycles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of more than one node that can all be reached from each other (Kosaraju's way)."""
    order = _finished(edges, sorted(edges))
    back: dict[str, set[str]] = {name: set() for name in edges}
    for source, targets in edges.items():
        for target in targets:
            back[target].add(source)
    groups: list[list[str]] = []
    seen: set[str] = set()
    for root in reversed(order):
        group: list[str] = []
        todo = [root]
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                group.append(name)
                todo.extend(back[name])
        if len(group) > 1:
            groups.append(sorted(group))
    return groups


def _finished(edges: Mapping[str, set[str]], roots: Iterable[str]) -> list[str]:
    """Return the nodes in the order in which a depth-first walk leaves them."""
    order: list[str] = []
    seen: set[str] = set()
    for root in roots:
        todo = [(root, False)]
        while todo:
            name, left = todo.pop()
            if left:
                order.append(name)
            elif name not in seen:
                seen.add(name)
                todo.append((name, True))
                todo.extend((target, False) for target in sorted(edges[name], reverse=True))
    return order
