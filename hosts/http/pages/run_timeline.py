"""When the stages or steps of a run waited and ran: bars along an axis of time, and the same as a table."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

import attrs

from holdfast.hosts.http.pages.components import badge, cut, duration, shortened, table
from holdfast.hosts.http.pages.html import Html, Link, el, join
from holdfast.hosts.http.pages.page import Page
from holdfast.hosts.http.pages.run_query import RunQuery
from holdfast.hosts.http.pages.timeline_bars import Bar, Bars, bars_of_run, bars_of_window
from holdfast.hosts.http.pages.timeline_zoom import LENGTH_MIN, Zoom
from holdfast.hosts.inspection.stage_spans import TIMED_MAX
from holdfast.hosts.inspection.time_windows import Window
from holdfast.ports.clock import instant as instant_of
from holdfast.ports.clock import micros
from holdfast.ports.records.run import Run

MAPS_MAX: Final = 5
"""How many maps have a link to their items above the drawing."""
_WIDTH: Final = 1_000
_LEFT: Final = 190
_RIGHT: Final = 12
_ROW: Final = 22
_HEAD: Final = 26
_TEXT_MAX: Final = 24
_TICKS: Final = 6
_STEPS: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200),
    *(86_400, 172_800, 604_800, 2_592_000, 31_536_000),
)
"""Distances of ticks, in seconds."""
_SECTION_MIN: Final = timedelta(microseconds=LENGTH_MIN)
_TONES: Final = {"good": "good", "bad": "bad", "run": "active", "rest": "ended"}
_WAITS: Final = frozenset({"queued", "sleeping", "limited", "paused"})


def timeline(page: Page[RunQuery], run: Run) -> Html:
    """Return the timeline of a run, or of a part of its time, with a table of the same facts."""
    zoom = Zoom(page, run)
    chosen, now = zoom.chosen(), page.now
    found = bars_of_run(page, run) if chosen is None else bars_of_window(page, run, chosen)
    if chosen is None and not found.bars:
        plan = page.core.inputs.plan(run.plan)
        many = plan.function is None and len(plan.nodes) > TIMED_MAX and run.last_row > 1
        text = "It has too many stages for a timeline." if many else "Nothing has started yet."
        return el("p", text, class_="empty")
    shown = chosen or _extent(found, run, now)
    drawn = (
        _drawing(found.bars, now, _Scale(instant_of(shown.first), instant_of(shown.last)), zoom)
        if found.bars
        else el("p", "Nothing ran in this time.", class_="empty")
    )
    listed = _table(found.bars, now, run, zoom)
    return join(
        zoom.nav(shown, found.following, _maps(found, now, zoom) if chosen is None else ()),
        drawn,
        el("p", found.note, class_="note") if found.note else None,
        el("details", el("summary", "As a table"), listed) if found.bars else None,
    )


def _maps(found: Bars, now: datetime, zoom: Zoom) -> Iterator[tuple[str, Link]]:
    """Yield links to the items of the first maps."""
    for bar in islice((one for one in found.bars if one.is_map), MAPS_MAX):
        yield f"Items of {cut(bar.name, _TEXT_MAX)}", zoom.between(bar.waits_from, _end(bar, now))


def _extent(found: Bars, run: Run, now: datetime) -> Window:
    """Return the time of all bars: from the creation of the run, or from the first of its newest steps."""
    begins = [micros(bar.waits_from) for bar in found.bars]
    ends = [micros(_end(bar, now)) for bar in found.bars]
    first = min(begins) if found.is_newest else min(run.created_at, *begins)
    return Window(first=first, last=max(first + LENGTH_MIN, run.created_at, *ends))


@attrs.frozen
class _Scale:
    """Where instants are on the axis."""

    first: datetime
    last: datetime

    @property
    def length(self) -> float:
        return max((self.last - self.first).total_seconds(), 0.001)

    def x(self, at: datetime) -> float:
        share = (at - self.first).total_seconds() / self.length
        return round(_LEFT + min(max(share, 0.0), 1.0) * (_WIDTH - _LEFT - _RIGHT), 1)

    def ticks(self) -> Iterator[tuple[float, datetime, str]]:
        """Yield places on the axis with their instants, and the time since its beginning."""
        distance = next((one for one in _STEPS if self.length / one <= _TICKS), self.length / _TICKS)
        for number in range(_TICKS + 1):
            since = timedelta(seconds=number * distance)
            if since.total_seconds() <= self.length:
                at = self.first + since
                yield self.x(at), at, duration(since) if number else "0"


def _drawing(bars: Sequence[Bar], now: datetime, scale: _Scale, zoom: Zoom) -> Html:
    height = _HEAD + len(bars) * _ROW + 4
    ticks = list(scale.ticks())
    axis = [
        join(
            el("line", x1=str(x), x2=str(x), y1=_HEAD - 4, y2=height - 4),
            el("text", text, x=str(x), y=14, text_anchor="end" if x > _WIDTH - 60 else "start"),
        )
        for x, _, text in ticks
    ]
    rows = [_row(bar, at, scale, now) for at, bar in enumerate(bars)]
    return el(
        "div",
        el(
            "svg",
            el("title", "Timeline of the run; the table below has the same facts"),
            axis,
            _sections(ticks, scale, zoom),
            rows,
            viewBox=f"0 0 {_WIDTH} {height}",
            class_="timeline",
            role="group",
        ),
        class_="drawing",
        tabindex=0,
        role="region",
        aria_label="Timeline",
    )


def _sections(ticks: Sequence[tuple[float, datetime, str]], scale: _Scale, zoom: Zoom) -> list[Html]:
    """Return the parts of the axis between its ticks, each a link that shows this part alone."""
    ends = [*((x, at) for x, at, _ in ticks[1:]), (float(_WIDTH - _RIGHT), scale.last)]
    return [
        el(
            "a",
            el("title", f"Show {text} to {duration(to - scale.first)} of this axis alone"),
            _section(x, to_x),
            href=zoom.between(at, to),
        )
        for (x, at, text), (to_x, to) in zip(ticks, ends, strict=True)
        if to - at >= _SECTION_MIN and to_x - x >= _ROW
    ]


def _section(x: float, to_x: float) -> Html:
    return el("rect", x=str(x), y=0, width=str(round(to_x - x, 1)), height=_ROW, class_="section")


def _is_open(bar: Bar) -> bool:
    return bar.ended_at is None and bar.kind == "run"


def _end(bar: Bar, now: datetime) -> datetime:
    """Return where a bar ends: now if it is open."""
    return bar.ended_at or (now if _is_open(bar) else bar.started_at or bar.waits_from)


def _row(bar: Bar, at: int, scale: _Scale, now: datetime) -> Html:
    top = _HEAD + at * _ROW
    end = _end(bar, now)
    started_at = bar.started_at or end
    label = cut(bar.name, _TEXT_MAX)
    return el(
        "a",
        el("title", _sentence(bar, now)),
        el("text", label, x=_LEFT - 8, y=top + 15, text_anchor="end"),
        _rectangle("wait", scale.x(bar.waits_from), scale.x(started_at), top + 7, 6)
        if started_at > bar.waits_from
        else None,
        None
        if bar.started_at is None
        else _rectangle(bar.kind, scale.x(started_at), scale.x(end), top + 3, 14),
        _note(bar, scale, end, top) if bar.note else None,
        href=bar.address,
    )


def _note(bar: Bar, scale: _Scale, end: datetime, top: int) -> Html:
    """Return the note of a bar: right of it, or left near the end of the axis."""
    x, start = scale.x(end), scale.x(bar.waits_from)
    if x < _WIDTH - 220:
        return el("text", cut(bar.note, 28), x=str(x + 5), y=top + 15)
    if start > _LEFT + 220:
        return el("text", cut(bar.note, 28), x=str(start - 5), y=top + 15, text_anchor="end")
    return el("text", cut(bar.note, 28), x=_WIDTH - _RIGHT - 6, y=top + 15, text_anchor="end", class_="over")


def _rectangle(kind: str, x: float, to_x: float, y: int, height: int) -> Html:
    width = max(to_x - x, 2)
    return el("rect", x=str(x), y=y, width=str(round(width, 1)), height=height, rx=2, class_=kind)


def _sentence(bar: Bar, now: datetime) -> str:
    waited, ran = _times(bar, now)
    parts = [f"{bar.name[:200]}: {bar.state}", bar.note]
    parts += [
        f"waited {duration(waited)}" if waited else "",
        f"ran {duration(ran)}" if ran is not None else "",
    ]
    return ", ".join(part for part in parts if part)


def _times(bar: Bar, now: datetime) -> tuple[timedelta, timedelta | None]:
    """Return how long it waited, and how long it ran; None if it has not started."""
    end = _end(bar, now)
    if bar.started_at is None:
        return max(end - bar.waits_from, timedelta()), None
    return bar.started_at - bar.waits_from, max(end - bar.started_at, timedelta())


def _table(bars: Sequence[Bar], now: datetime, run: Run, zoom: Zoom) -> Html:
    heads = ("Name", "State", "Waited", "Started after", "Ran", "Note")
    created_at = instant_of(run.created_at)
    rows: list[Sequence[Html | str | None]] = []
    for bar in bars:
        waited, ran = _times(bar, now)
        tone = "waiting" if bar.state in _WAITS else _TONES[bar.kind]
        rows.append(
            (
                el("a", shortened(bar.name), href=bar.address),
                badge(bar.state, tone),
                duration(waited) if waited else None,
                None if bar.started_at is None else duration(bar.started_at - created_at),
                duration(ran),
                _noted(bar, now, zoom),
            )
        )
    return table(heads, rows, caption="Times of the run", empty="Nothing has started yet.")


def _noted(bar: Bar, now: datetime, zoom: Zoom) -> Html | str | None:
    if not bar.is_map:
        return bar.note or None
    return el("a", bar.note or "its items", href=zoom.between(bar.waits_from, _end(bar, now)))
