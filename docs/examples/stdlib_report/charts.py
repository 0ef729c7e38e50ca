"""Draws the charts of the report as SVG. Colours are classes of the page's style sheet, which knows light and dark."""

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final, NamedTuple

from docs.examples.stdlib_report.model import Area, Bucket, ImportGraph

STEPS: Final = (1.5, 2.25, 3.0, 3.75, 4.75)
"""Mean complexities at which the colour of an area changes."""

_WIDTH: Final = 1080
_WHEEL: Final = 44
_GLYPH: Final = 0.64
"""How wide a character is at most on average, in font sizes."""


class Box(NamedTuple):
    x: float
    y: float
    width: float
    height: float


def shade(complexity: float) -> int:
    """Return which of the six colours a mean complexity has."""
    return sum(complexity >= step for step in STEPS)


def treemap(areas: Sequence[Area], height: int = 520) -> str:
    """Draw areas as tiles, as large as their code and as dark as they are complex."""
    drawn = [area for area in areas if area.code > 0]
    tiles = squarified([area.code for area in drawn], Box(0, 0, _WIDTH, height))
    parts = [_tile(area, box) for area, box in zip(drawn, tiles, strict=True)]
    return _svg(
        "treemap",
        _WIDTH,
        height,
        "Map of the library",
        f"{len(drawn)} modules and packages as tiles. The largest are {_listed(area.name for area in drawn[:5])}."
        " The table of packages below has the numbers.",
        parts,
    )


def histogram(buckets: Sequence[Bucket], height: int = 300) -> str:
    """Draw how many functions there are of which complexity."""
    width, floor, top = 640, height - 44, 26
    most = max((bucket.functions for bucket in buckets), default=0) or 1
    room = width / max(1, len(buckets))
    parts: list[str] = []
    for index, bucket in enumerate(buckets):
        tall = (floor - top) * bucket.functions / most
        x, middle = index * room + room * 0.14, index * room + room / 2
        parts.append(
            f"<g><title>{bucket.functions:,} functions of complexity {escape(bucket.label)}</title>"
            f'<rect class="bar" x="{x:.1f}" y="{floor - tall:.1f}" width="{room * 0.72:.1f}"'
            f' height="{max(tall, 1):.1f}" rx="3"/>'
            f'<text class="value" x="{middle:.1f}" y="{floor - tall - 8:.1f}">{bucket.functions:,}</text>'
            f'<text class="tick" x="{middle:.1f}" y="{floor + 20}">{escape(bucket.label)}</text></g>'
        )
    parts.append(f'<line class="axis" x1="0" x2="{width}" y1="{floor}" y2="{floor}"/>')
    said = "; ".join(f"{bucket.label}: {bucket.functions:,}" for bucket in buckets)
    return _svg(
        "histogram", width, height, "Functions by complexity", f"Complexity: functions. {said}.", parts
    )


def wheel(graph: ImportGraph, size: int = 880) -> str:
    """Draw the modules that are imported most in a circle, and who of them imports whom as threads across."""
    chosen = graph.imported[:_WHEEL]
    names = sorted(one.name for one in chosen)
    most = max((one.importers for one in chosen), default=1) or 1
    weight = {one.name: one.importers / most for one in chosen}
    middle, radius = size / 2, size / 2 - 130
    angle = {name: 2 * math.pi * index / max(1, len(names)) - math.pi / 2 for index, name in enumerate(names)}
    at = {
        name: (middle + radius * math.cos(turn), middle + radius * math.sin(turn))
        for name, turn in angle.items()
    }
    parts: list[str] = []
    for name in names:
        threads = [
            _thread(at[name], at[link.target], middle)
            for link in graph.links
            if link.source == name and link.target in at
        ]
        said = f"{escape(name)} imports {len(threads)} of these"
        label = _label(name, angle[name], middle, radius)
        parts.append(f'<g class="node"><title>{said}</title>{"".join(threads)}{label}</g>')
    parts.extend(
        f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="{3 + 9 * math.sqrt(weight[name]):.1f}"/>'
        for name, (x, y) in at.items()
    )
    return _svg(
        "wheel",
        size,
        size,
        "Who imports whom",
        f"The {len(names)} modules that are imported by most others, in a circle, joined by their imports of each"
        f" other. Most imported: {_listed(one.name for one in chosen[:5])}. The table beside it has the numbers.",
        parts,
    )


def squarified(values: Sequence[float], box: Box) -> list[Box]:
    """Fill a box with rectangles as large as these values, which descend, and as square as may be."""
    scale = box.width * box.height / (sum(values) or 1)
    areas = [value * scale for value in values]
    boxes: list[Box] = []
    start = 0
    while start < len(areas):
        side = min(box.width, box.height)
        end = start + 1
        while end < len(areas) and _worst(areas[start : end + 1], side) <= _worst(areas[start:end], side):
            end += 1
        row, box = _laid(areas[start:end], box)
        boxes.extend(row)
        start = end
    return boxes


def _worst(row: Sequence[float], side: float) -> float:
    """Return how far from square the worst rectangle of a row along this side is."""
    thick = sum(row) / side
    return max(max(thick * thick / area, area / (thick * thick)) for area in row)


def _laid(row: Sequence[float], box: Box) -> tuple[list[Box], Box]:
    """Lay a row along the shorter side. Return its boxes, and what is left."""
    boxes: list[Box] = []
    if box.width >= box.height:
        thick, y = sum(row) / box.height, box.y
        for area in row:
            boxes.append(Box(box.x, y, thick, area / thick))
            y += area / thick
        return boxes, Box(box.x + thick, box.y, max(box.width - thick, 1e-9), box.height)
    thick, x = sum(row) / box.width, box.x
    for area in row:
        boxes.append(Box(x, box.y, area / thick, thick))
        x += area / thick
    return boxes, Box(box.x, box.y + thick, box.width, max(box.height - thick, 1e-9))


def _tile(area: Area, box: Box) -> str:
    step = shade(area.complexity)
    said = (
        f"{area.name}: {area.code:,} lines of code in {_counted(area.files, 'file')},"
        f" {_counted(area.functions, 'function')}, mean complexity {area.complexity:.2f}"
    )
    size = min(9 + box.width / 40, 16.0, (box.width - 12) / (len(area.name) * _GLYPH))
    text = ""
    if size >= 8.5 and box.height > size + 10:
        x, y = box.x + 7, box.y + size + 5
        text = f'<text class="on{step}" x="{x:.1f}" y="{y:.1f}" font-size="{size:.1f}">{escape(area.name)}</text>'
        if box.height > size + 32 and box.width > 56:
            text += f'<text class="on{step} small" x="{x:.1f}" y="{y + 17:.1f}">{area.code:,}</text>'
    return (
        f'<g><title>{escape(said)}</title><rect class="q{step}" x="{box.x + 1:.1f}" y="{box.y + 1:.1f}"'
        f' width="{max(box.width - 2, 0.5):.1f}" height="{max(box.height - 2, 0.5):.1f}" rx="3"/>{text}</g>'
    )


def _thread(source: tuple[float, float], target: tuple[float, float], middle: float) -> str:
    """Draw a line from one to the other that is bent towards the middle."""
    pull = 0.22
    x1, y1 = (middle + (value - middle) * pull for value in source)
    x2, y2 = (middle + (value - middle) * pull for value in target)
    return (
        f'<path d="M{source[0]:.1f} {source[1]:.1f}C{x1:.1f} {y1:.1f} {x2:.1f} {y2:.1f}'
        f' {target[0]:.1f} {target[1]:.1f}"/>'
    )


def _label(name: str, turn: float, middle: float, radius: float) -> str:
    degrees = math.degrees(turn)
    x, y = middle + (radius + 18) * math.cos(turn), middle + (radius + 18) * math.sin(turn)
    flipped = math.cos(turn) < -1e-9
    anchor, degrees = ("end", degrees + 180) if flipped else ("start", degrees)
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" dominant-baseline="central"'
        f' transform="rotate({degrees:.1f} {x:.1f} {y:.1f})">{escape(name)}</text>'
    )


def _svg(name: str, width: float, height: float, title: str, description: str, parts: Sequence[str]) -> str:
    return (
        f'<svg class="{name}" viewBox="0 0 {width} {height}" role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{escape(title)}</title><desc id="{name}-d">{escape(description)}</desc>'
        f"{''.join(parts)}</svg>"
    )


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    return ", ".join(found[:-1]) + f" and {found[-1]}" if len(found) > 1 else "".join(found)
