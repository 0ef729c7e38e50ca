"""The bars of a timeline: stages, map items and steps, those of the whole run or of a part of its time."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import Final, TypeVar

import attrs

from holdfast.hosts.http.pages.html import Link
from holdfast.hosts.http.pages.page import Page
from holdfast.hosts.http.pages.run_graph import stage_address
from holdfast.hosts.http.pages.run_steps import step_addresses
from holdfast.hosts.inspection.newest_steps import ROWS_MAX, newest_steps
from holdfast.hosts.inspection.stage_spans import StageSpan, live_jobs, stage_spans
from holdfast.hosts.inspection.steps import StepDetails
from holdfast.hosts.inspection.time_windows import ItemSpan, RowsOfTime, Window, items_in, rows_in, steps_in
from holdfast.ports.clock import instant as instant_of
from holdfast.ports.clock import micros
from holdfast.ports.records.run import Run

S = TypeVar("S", StepDetails, ItemSpan, StageSpan)

BARS_MAX: Final = 500
"""How many bars are drawn."""
STEPS_MAX: Final = 100
"""How many steps of a run are drawn, the newest, if no part of its time was chosen."""
_CLASSES: Final = {"done": "good", "kept": "good", "failed": "bad", "stopped": "rest", "cancelled": "rest"}


@attrs.frozen(kw_only=True)
class Bar:
    """A stage or step along the axis of time."""

    name: str
    """Its name."""
    state: str
    """Its state."""
    note: str = ""
    """A short addition, such as a number of items."""
    waits_from: datetime
    """When it began to wait, or started."""
    started_at: datetime | None
    """When it started; None while it waits."""
    ended_at: datetime | None
    """When it ended; None if it is open."""
    address: Link
    """Where it leads."""
    stage: str = ""
    """The stage that it is, or that its item is of; "" for a step."""
    is_map: bool = False
    """Whether it is a map, whose items have bars of their own in a part of the time."""

    @property
    def kind(self) -> str:
        """The class of its colour."""
        return _CLASSES.get(self.state, "run")


@attrs.frozen(kw_only=True)
class Bars:
    """The bars of a timeline."""

    bars: Sequence[Bar]
    """The bars, from top to bottom."""
    note: str = ""
    """A sentence about what is left out."""
    is_newest: bool = False
    """Whether only the newest steps are drawn: the axis begins with them."""
    following: Window | None = None
    """The remaining time, if the bars are only the first ones of it."""


def bars_of_run(page: Page, run: Run) -> Bars:
    """Return a bar for each stage of a run that was reached, or for its newest steps."""
    if page.core.inputs.plan(run.plan).function is not None:
        return _newest_steps(page, run)
    reached = [bar for one in stage_spans(page.core, run).values() for bar in _bar_of_stage(page, run, one)]
    more = len(reached) - BARS_MAX
    return Bars(bars=reached[:BARS_MAX], note=f"{more:,} later stages are not drawn." if more > 0 else "")


def bars_of_window(page: Page, run: Run, window: Window) -> Bars:
    """Return a bar for each stage, map item and step that waited or ran in a part of the time of a run."""
    rows = rows_in(page.core, run, window)
    if page.core.inputs.plan(run.plan).function is not None:
        steps = _within(window, steps_in(page.core, run, rows), page.now)
        address = step_addresses(page, run)
        bars = [_bar_of_step(run, one, address) for one in steps[:BARS_MAX]]
        return _first(bars, window, rows, more=len(steps) > BARS_MAX)
    jobs = live_jobs(page.core, run)
    spans = stage_spans(page.core, run, jobs)
    reached = [one for one in spans.values() if one.waits_from is not None]
    stages = [bar for one in _within(window, reached, page.now) for bar in _bar_of_stage(page, run, one)]
    stages = stages[:BARS_MAX]
    has_maps = any(one.is_map for one in spans.values())
    items = _within(window, items_in(page.core, run, rows, jobs) if has_maps else (), page.now)
    most = BARS_MAX - len(stages)
    tab = page.links.page("runs", run.id, tab="history", generation=run.generation)
    found = _first(
        [_bar_of_item(run, one, tab) for one in items[:most]], window, rows, more=len(items) > most
    )
    by_stage: dict[str, list[Bar]] = {one.name: [one] for one in stages}
    for bar in found.bars:
        by_stage.setdefault(bar.stage, []).append(bar)
    return attrs.evolve(found, bars=list(chain.from_iterable(by_stage.values())))


def _newest_steps(page: Page, run: Run) -> Bars:
    found = newest_steps(page.core, run, with_open=True)
    more = len(found) - STEPS_MAX
    if run.last_row > ROWS_MAX:
        number = min(len(found), STEPS_MAX)
        note = f"The newest {number:,} steps, from the last {ROWS_MAX:,} history rows."
    else:
        note = f"{more:,} earlier steps are not drawn." if more > 0 else ""
    address = step_addresses(page, run)
    bars = [_bar_of_step(run, one, address) for one in found[-STEPS_MAX:]]
    bars.sort(key=lambda bar: bar.waits_from)
    return Bars(bars=bars, note=note, is_newest=bool(note))


def _within(window: Window, found: Iterable[S], now: datetime) -> list[S]:
    """Return what waited or ran in a window."""
    first, last = instant_of(window.first), instant_of(window.last)
    return [
        one
        for one in found
        if (began_at := _began_at(one)) <= last and (one.ended_at or max(now, began_at)) >= first
    ]


def _began_at(one: StepDetails | ItemSpan | StageSpan) -> datetime:
    began_at = one.waits_from if isinstance(one, StageSpan) else one.started_at
    assert began_at is not None
    return began_at


def _first(found: Sequence[Bar], window: Window, rows: RowsOfTime, *, more: bool) -> Bars:
    """Return the first bars of a window, by the end of each: the rows of a history are in this order."""
    bars = sorted(found, key=lambda bar: bar.waits_from)
    if not more and rows.cut_at is None:
        return Bars(bars=bars)
    note = f"The first {len(bars):,} bars of this time, which has {rows.number:,} history rows."
    reached = rows.cut_at or window.last
    if more:
        reached = max((micros(bar.ended_at) for bar in bars if bar.ended_at is not None), default=reached)
    if reached >= window.last:
        return Bars(bars=bars, note=note)
    following = Window(first=max(reached, window.first + 1), last=window.last)
    return Bars(bars=bars, note=note, following=following)


def _bar_of_stage(page: Page, run: Run, one: StageSpan) -> Iterator[Bar]:
    """Yield the bar of a stage, if it was reached."""
    if one.waits_from is None:
        return
    yield Bar(
        name=one.name,
        state=one.state,
        note=f"{one.note} items" if one.note else "",
        waits_from=one.waits_from,
        started_at=one.started_at,
        ended_at=one.ended_at,
        address=stage_address(page, run, one.name),
        stage=one.name,
        is_map=one.is_map,
    )


def _bar_of_item(run: Run, one: ItemSpan, tab: Link) -> Bar:
    # An item that was under way when its run ended has no row that ends it.
    is_stopped = one.ended_at is None and run.ended_at is not None
    return Bar(
        name=f"{one.stage}, item {one.item}",
        state="stopped" if is_stopped else one.state,
        note=_attempts(one.attempts),
        waits_from=one.started_at,
        started_at=one.started_at,
        ended_at=_end_of(run) if is_stopped else one.ended_at,
        address=Link(f"{tab.address}&row={one.row}#row-{one.row}") if one.row else tab,
        stage=one.stage,
    )


def _bar_of_step(run: Run, one: StepDetails, address: Callable[[StepDetails], Link]) -> Bar:
    # A step that was open when its run ended has no row that ends it.
    is_stopped = one.is_open and run.ended_at is not None
    return Bar(
        name=one.step or one.call,
        state="stopped" if is_stopped else one.state,
        note=_attempts(one.attempts),
        waits_from=one.started_at,
        started_at=None if one.state == "queued" else one.started_at,
        ended_at=_end_of(run) if is_stopped else one.ended_at,
        address=address(one),
    )


def _attempts(number: int) -> str:
    return f"{number} attempts" if number > 1 else ""


def _end_of(run: Run) -> datetime | None:
    return None if run.ended_at is None else instant_of(run.ended_at)
