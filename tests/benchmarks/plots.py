"""Plots as SVG: line plots and bar charts."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

import attrs

WIDTH: Final = 760
HEIGHT: Final = 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 46, 42
COLOURS: Final = ("#1f6feb", "#d1671f", "#2f8f4e", "#8250df", "#b3364a", "#6e7781", "#0f8b8d")
_INK, _FAINT, _PAPER = "#24292f", "#d8dee4", "#ffffff"
_STYLE: Final = "font-family:system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif"

Points = Sequence[tuple[float, float]]


@attrs.frozen(kw_only=True)
class Band:
    """A labelled part of the horizontal axis."""

    since: float
    to: float
    label: str


@attrs.frozen(kw_only=True)
class Plot:
    """A line plot, with lines by name. The vertical axis starts at zero and ends above all points."""

    title: str
    across: str
    up: str
    lines: Mapping[str, Points]
    bands: Sequence[Band] = ()
    height: int = HEIGHT

    def svg(self) -> str:
        """Return the plot as an SVG file."""
        return _file(WIDTH, self.height, self.parts())

    def parts(self) -> list[str]:
        """Return the SVG elements."""
        points = [point for line in self.lines.values() for point in line]
        across = _Axis.over([x for x, _ in points], _LEFT, WIDTH - _RIGHT)
        floor = self.height - _BOTTOM
        up = _Axis.over([0.0, max((y for _, y in points), default=1.0)], floor, _TOP, parts=self.height // 60)
        drawn = [_text(_LEFT, 20, self.title, size=14, weight=600)]
        for band in self.bands:
            left, right = across.at(band.since), across.at(band.to)
            drawn.append(
                f'<rect x="{left:.1f}" y="{_TOP}" width="{right - left:.1f}" height="{floor - _TOP}" '
                f'fill="#f6d9a8" opacity="0.45"/>'
            )
            drawn.append(_text((left + right) / 2, _TOP + 13, band.label, size=11, anchor="middle"))
        for tick in up.ticks:
            drawn.append(_line(_LEFT, up.at(tick), WIDTH - _RIGHT, up.at(tick), _FAINT))
            drawn.append(_text(_LEFT - 8, up.at(tick) + 4, _number(tick), anchor="end"))
        for tick in across.ticks:
            is_last = across.at(tick) > WIDTH - _RIGHT - 20
            x, anchor = (WIDTH - 4, "end") if is_last else (across.at(tick), "middle")
            drawn += [_text(x, floor + 16, _number(tick), anchor=anchor)]
        drawn.append(_line(_LEFT, up.at(0), WIDTH - _RIGHT, up.at(0), _INK))
        drawn.append(_text((_LEFT + WIDTH - _RIGHT) / 2, self.height - 8, self.across, anchor="middle"))
        drawn.append(_text(_LEFT, 36, self.up, size=11))
        for (name, line), colour in zip(self.lines.items(), _colours(len(self.lines)), strict=True):
            place = " ".join(f"{across.at(x):.1f},{up.at(y):.1f}" for x, y in line)
            drawn.append(
                f'<polyline points="{place}" fill="none" stroke="{colour}" stroke-width="2" '
                f'stroke-linejoin="round"><title>{escape(name)}</title></polyline>'
            )
        if len(self.lines) > 1:
            drawn += _legend(list(self.lines))
        return drawn


@attrs.frozen(kw_only=True)
class Bars:
    """A bar chart with a row of bars for each name; the first bar is that of Holdfast."""

    title: str
    note: str
    values: Mapping[str, float]

    def parts(self) -> list[str]:
        """Return the SVG elements, with the total height `height`."""
        most = max(self.values.values())
        drawn = [_text(16, 20, self.title, size=14, weight=600), _text(16, 36, self.note, size=11)]
        room = WIDTH - 130 - 100
        for place, (name, value) in enumerate(self.values.items()):
            y = 46 + place * 22
            width = max(room * value / most, 1.5)
            colour = COLOURS[0] if not place else "#9aa4af"
            drawn.append(_text(122, y + 13, name, anchor="end", weight=600 if not place else 400))
            drawn.append(f'<rect x="130" y="{y}" width="{width:.1f}" height="16" rx="2" fill="{colour}"/>')
            drawn.append(_text(136 + width, y + 13, _number(value)))
        return drawn

    @property
    def height(self) -> int:
        """Height in pixels."""
        return 46 + 22 * len(self.values) + 10


def below_each_other(plots: Sequence[Plot | Bars]) -> str:
    """Return an SVG file with all of these plots."""
    y = 0
    drawn: list[str] = []
    for plot in plots:
        drawn += [f'<g transform="translate(0 {y})">', *plot.parts(), "</g>"]
        y += plot.height
    return _file(WIDTH, y, drawn)


@attrs.frozen(kw_only=True)
class _Axis:
    """A scale from values to pixels."""

    begin: float
    end: float
    first: float
    last: float
    ticks: Sequence[float]

    @classmethod
    def over(cls, values: Sequence[float], first: float, last: float, *, parts: int = 5) -> "_Axis":
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        step = _step((high - low) or high or 1.0, parts)
        end = math.ceil(high / step - 1e-9) * step if low == 0 else high
        begin = 0.0 if low == 0 else low
        number = math.floor((end + step * 1e-6) / step)
        ticks = [place * step for place in range(math.ceil(begin / step - 1e-9), number + 1)]
        return cls(begin=begin, end=end or 1.0, first=first, last=last, ticks=ticks)

    def at(self, value: float) -> float:
        return self.first + (value - self.begin) / ((self.end - self.begin) or 1.0) * (self.last - self.first)


def _step(span: float, parts: int) -> float:
    """Return a round step that divides a span into at most this many parts."""
    rough = span / parts
    power = math.pow(10, math.floor(math.log10(rough)))
    return min(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)


def _legend(names: Sequence[str]) -> list[str]:
    """Return the names with their colours, in the top right corner, from right to left."""
    drawn: list[str] = []
    x = float(WIDTH - _RIGHT)
    for name, colour in reversed(list(zip(names, _colours(len(names)), strict=True))):
        drawn.append(_text(x, 36, name, anchor="end"))
        x -= 7.0 * len(name) + 6
        drawn.append(_line(x - 18, 32, x - 2, 32, colour, width=3))
        x -= 34
    return drawn


def _colours(number: int) -> list[str]:
    return [COLOURS[place % len(COLOURS)] for place in range(number)]


def _number(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:.3g} M"
    if value >= 10_000:
        return f"{value:,.0f}"
    return f"{value:,.4g}" if value >= 1_000 else f"{value:.3g}"


def _text(x: float, y: float, text: str, *, size: int = 12, anchor: str = "start", weight: int = 400) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="{_INK}">{escape(text)}</text>'
    )


def _line(x: float, y: float, to_x: float, to_y: float, colour: str, *, width: float = 1) -> str:
    return (
        f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{colour}" '
        f'stroke-width="{width:g}"/>'
    )


def _file(width: int, height: int, drawn: Sequence[str]) -> str:
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} style="{_STYLE}">'
    paper = f'<rect width="{width}" height="{height}" fill="{_PAPER}"/>'
    return "\n".join([head, paper, *drawn, "</svg>\n"])
