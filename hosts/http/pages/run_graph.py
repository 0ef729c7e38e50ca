"""The plan of a pipeline as a drawing: its groups from left to right, and how far a run has got."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import attrs

from holdfast.hosts.http.pages.components import badge, cut, shortened
from holdfast.hosts.http.pages.html import Html, Link, el
from holdfast.hosts.http.pages.page import Page
from holdfast.hosts.inspection.stage_spans import StageSpan, stage_spans
from holdfast.kernel.pipelines.plan import Group, MapPlan, Plan
from holdfast.ports.records.run import Run

NODES_MAX: Final = 200
"""How many stages are drawn. A larger plan is listed."""
LISTED_MAX: Final = 2_000
"""How many stages the list has."""
_LETTER: Final = 7.4
_HEIGHT: Final = 46
_GAP: Final = 44
_SPACE: Final = 18
_TOP: Final = 16
"""Space for the name of a condition."""
_TEXT_MAX: Final = 26
_TONES: Final = {
    "done": "good",
    "kept": "good",
    "failed": "bad",
    "stopped": "ended",
    "running": "active",
    "retrying": "active",
    "queued": "waiting",
    "sleeping": "waiting",
    "limited": "waiting",
    "paused": "waiting",
}


@attrs.frozen(kw_only=True)
class NodeLook:
    """How a stage is drawn."""

    state: str = ""
    """Its state, such as `done`; "" in a drawing of a plan alone."""
    note: str = ""
    """What stands below its name, such as a number of items."""
    address: Link | None = None
    """Where it leads."""

    @property
    def tone(self) -> str:
        """The class of its colour; `pale` if it is not reached."""
        return _TONES.get(self.state, "pale" if self.state else "plain")


def graph(page: Page, run: Run) -> Html:
    """Return the plan of a run with the path that it has executed; nothing for a durable function."""
    plan = page.core.inputs.plan(run.plan)
    if plan.function is not None:
        return el("p", "A durable function has no plan: its steps follow from its code.", class_="empty")
    spans = stage_spans(page.core, run)
    return plan_graph(
        plan, {name: _look(span, stage_address(page, run, name)) for name, span in spans.items()}
    )


def stage_address(page: Page, run: Run, name: str) -> Link:
    """Return the address of a stage in the steps of a run."""
    found = page.links.page("runs", run.id, tab="steps", generation=run.generation)
    return Link(f"{found.address}#stage-{stage_anchor(name)}")


def stage_anchor(name: str) -> str:
    """Return a name as a part of the id of an element."""
    return "".join(char if char.isascii() and char.isalnum() else f"_{ord(char):x}" for char in name[:100])


def _look(span: StageSpan, address: Link) -> NodeLook:
    return NodeLook(state=span.state, note=span.note, address=address)


def plan_graph(plan: Plan, looks: Mapping[str, NodeLook]) -> Html:
    """Return a drawing of a plan, or a list if it has too many stages.

    Args:
        plan: The plan.
        looks: How stages are drawn, by name.
    """
    if len(plan.nodes) > NODES_MAX:
        return _listed(plan, looks)
    tallest = max((len(group.nodes) for group in plan.groups), default=1)
    wide = _box_width(plan, looks)
    width = len(plan.groups) * (wide + _GAP) - _GAP + 4
    height = tallest * (_HEIGHT + _SPACE) - _SPACE + 4 + _TOP
    columns = [_places(group, at, wide, height) for at, group in enumerate(plan.groups)]
    middle = _TOP + (height - _TOP) // 2
    edges = [edge for before, after in pairwise(columns) for edge in _edges(before, after, looks, middle)]
    boxes = [
        _box(group, place, looks.get(place.name, NodeLook()))
        for group, column in zip(plan.groups, columns, strict=True)
        for place in column
    ]
    tests = [_test(group, column) for group, column in zip(plan.groups, columns, strict=True)]
    return el(
        "div",
        el(
            "svg",
            el("title", "The stages of the plan, in their order"),
            edges,
            boxes,
            [one for one in tests if one is not None],
            viewBox=f"0 0 {width} {height}",
            width=width,
            height=height,
            class_="graph",
            role="group",
        ),
        class_="drawing",
        tabindex=0,
        role="region",
        aria_label="Graph of the plan",
    )


@attrs.frozen(kw_only=True)
class _Place:
    """Where a stage is drawn."""

    name: str
    is_map: bool
    x: int
    y: int
    width: int


def _box_width(plan: Plan, looks: Mapping[str, NodeLook]) -> int:
    """Return how wide boxes are: as their longest text, within bounds."""
    texts = [*plan.nodes]
    texts += (_note(looks.get(name, NodeLook()), is_map=False) for name in plan.nodes)
    longest = max(map(len, texts), default=0)
    return round(min(max(longest, 9), _TEXT_MAX) * _LETTER) + 26


def _note(look: NodeLook, *, is_map: bool) -> str:
    return " · ".join(one for one in (look.state, look.note or ("map" if is_map else "")) if one)


def _places(group: Group, at: int, width: int, height: int) -> Sequence[_Place]:
    used = len(group.nodes) * (_HEIGHT + _SPACE) - _SPACE
    top = _TOP + (height - _TOP - used) // 2
    return [
        _Place(
            name=node.name,
            is_map=isinstance(node, MapPlan),
            x=2 + at * (width + _GAP),
            y=top + number * (_HEIGHT + _SPACE),
            width=width,
        )
        for number, node in enumerate(group.nodes)
    ]


def _edges(
    before: Sequence[_Place], after: Sequence[_Place], looks: Mapping[str, NodeLook], middle: int
) -> Iterator[Html]:
    """Yield the lines between two groups: through one point, as each of many stages gets the output of all."""
    if not before or not after:
        return
    x, to_x = before[0].x + before[0].width - 4, after[0].x
    between = (x + to_x) // 2
    for one in before:
        yield _edge(x, one.y + _HEIGHT // 2, between, middle, is_pale=_is_pale(one, looks))
    for one in after:
        yield _edge(between, middle, to_x, one.y + _HEIGHT // 2, is_pale=_is_pale(one, looks))


def _is_pale(place: _Place, looks: Mapping[str, NodeLook]) -> bool:
    return looks.get(place.name, NodeLook()).tone == "pale"


def _edge(x: int, y: int, to_x: int, to_y: int, *, is_pale: bool) -> Html:
    return el(
        "path",
        d=f"M{x} {y}L{to_x} {to_y}",
        class_="edge",
        fill="none",
        stroke_dasharray="3 4" if is_pale else None,
        stroke_opacity="0.5" if is_pale else None,
    )


def _box(group: Group, place: _Place, look: NodeLook) -> Html:
    note = _note(look, is_map=place.is_map)
    full = f"{place.name}: {note}" if note else place.name
    is_choice = group.test is not None
    drawn = el(
        "g",
        el("title", full[:300]),
        _rectangle(place, 4) if place.is_map else None,
        _rectangle(place, 0, dashes="5 3" if is_choice else None),
        el("text", cut(place.name, _TEXT_MAX), x=place.x + 10, y=place.y + 19),
        el("text", cut(note, _TEXT_MAX), x=place.x + 10, y=place.y + 36, opacity="0.75") if note else None,
        el("rect", x=place.x, y=place.y, width=5, height=_HEIGHT, class_=_fill(look.tone)),
        class_=look.tone,
        opacity="0.5" if look.tone == "pale" else None,
    )
    return drawn if look.address is None else el("a", drawn, href=look.address)


def _fill(tone: str) -> str:
    return {"good": "good", "bad": "bad", "active": "run", "waiting": "wait"}.get(tone, "rest")


def _rectangle(place: _Place, shift: int, dashes: str | None = None) -> Html:
    return el(
        "rect",
        x=place.x + shift,
        y=place.y - shift,
        width=place.width - 4,
        height=_HEIGHT,
        rx=3,
        class_="box",
        stroke_dasharray=dashes,
    )


def _test(group: Group, column: Sequence[_Place]) -> Html | None:
    if group.test is None or not column:
        return None
    return el("text", cut(f"if {group.test}", _TEXT_MAX), x=column[0].x, y=column[0].y - 5, opacity="0.75")


def _listed(plan: Plan, looks: Mapping[str, NodeLook]) -> Html:
    rows = list(_rows(plan, looks))
    more = len(plan.nodes) - len(rows)
    return el(
        "div",
        el("p", f"The plan has {len(plan.nodes):,} stages, in {len(plan.groups):,} groups.", class_="note"),
        el("ol", rows),
        el("p", f"{more:,} more.", class_="note") if more > 0 else None,
    )


def _rows(plan: Plan, looks: Mapping[str, NodeLook]) -> Iterator[Html]:
    left = LISTED_MAX
    for group in plan.groups:
        for node in group.nodes:
            if left == 0:
                return
            left -= 1
            look = looks.get(node.name, NodeLook())
            name = shortened(node.name)
            yield el(
                "li",
                name if look.address is None else el("a", name, href=look.address),
                " " if look.state else None,
                badge(look.state, look.tone) if look.state else None,
                f" {look.note}" if look.note else None,
            )
