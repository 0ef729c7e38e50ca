"""The stages of a pipeline, or the steps of a durable function, with the child runs among them."""

from collections.abc import Callable, Sequence
from typing import Final

from holdfast.hosts.http.pages.components import (
    badge,
    duration,
    instant,
    long_text,
    preview,
    run_link,
    shortened,
    status_badge,
    table,
    table_row,
)
from holdfast.hosts.http.pages.html import Content, Html, Link, el, join
from holdfast.hosts.http.pages.page import Page
from holdfast.hosts.http.pages.run_graph import stage_anchor
from holdfast.hosts.http.pages.run_history import row_form, rows_nav
from holdfast.hosts.http.pages.run_query import RunQuery
from holdfast.hosts.inspection import stages
from holdfast.hosts.inspection.bounds import CHILDREN_SHOWN
from holdfast.hosts.inspection.children import ChildInfo, children_of
from holdfast.hosts.inspection.run_details import read_run
from holdfast.hosts.inspection.stage_spans import summed_stages
from holdfast.hosts.inspection.stages import StageDetails
from holdfast.hosts.inspection.step_pages import ROWS, steps_page
from holdfast.hosts.inspection.steps import StepDetails
from holdfast.hosts.inspection.value_previews import ValuePreview
from holdfast.ports.records.run import TERMINAL, Run

WHOLE_MAX: Final = 300
"""Up to how many rows a history is read as a whole; of a longer one, a page of its rows is read."""
STAGES_MAX: Final = 1_000
"""Up to how many rows the history of a pipeline is read as a whole; of a longer one, sums are read."""
_HEADS: Final = ("Name", "State", "Attempts", "Started", "Took", "Host", "Result")
_TONES: Final = {
    "done": "good",
    "kept": "good",
    "failed": "bad",
    "running": "active",
    "retrying": "waiting",
    "queued": "waiting",
    "sleeping": "waiting",
    "limited": "waiting",
    "paused": "waiting",
}


def steps(page: Page[RunQuery], run: Run) -> Html:
    """Return the stages or the steps of a run with their states, attempts, errors and results."""
    if page.core.inputs.plan(run.plan).function is None:
        return _stages(page, run)
    if run.last_row > WHOLE_MAX:
        return _page(page, run)
    found = page.shown(read_run(page.core, run))
    rows = _calls(page, run, found.steps or (), found.children)
    listed = table(_HEADS, rows, caption="Steps and child runs", empty="The function has called no step.")
    return join(_more_children(found.has_more_children), listed)


def step_addresses(page: Page, run: Run) -> Callable[[StepDetails], Link]:
    """Return what makes the address of a step: in a long history, of the page which ends shortly after it."""
    tab = page.links.page("runs", run.id, tab="steps", generation=run.generation).address

    def address(one: StepDetails) -> Link:
        is_long = run.last_row > WHOLE_MAX and one.row
        row = f"&row={min(one.row + ROWS // 2, run.last_row)}" if is_long else ""
        return Link(f"{tab}{row}#call-{stage_anchor(one.call)}")

    return address


def _page(page: Page[RunQuery], run: Run) -> Html:
    found = page.shown(steps_page(page.core, run, page.query.row))
    rows = _calls(page, run, found.steps, found.children)
    empty = "The function has called no step in this part of its history."
    is_newest = found.last == run.last_row
    return join(
        row_form(run, "steps", found.last),
        el(
            "p",
            f"The steps of the history rows {found.first:,} to {found.last:,} of {run.last_row:,}.",
            None if is_newest else " A step that is not done here may have gone on later.",
            " Steps that run now are shown once they have a row."
            if is_newest and run.status not in TERMINAL and not found.has_running
            else None,
            class_="note",
        ),
        table(_HEADS, rows, caption="Steps and child runs", empty=empty),
        rows_nav(page, run, "steps", found.last, ROWS),
    )


def _stages(page: Page[RunQuery], run: Run) -> Html:
    if run.last_row > STAGES_MAX:
        children = list(children_of(page.core, run, {"limit": CHILDREN_SHOWN + 1}))
        has_more = len(children) > CHILDREN_SHOWN
        now = page.now
        found = [stages.timed(one, now) for one in summed_stages(page.core, run).values()]
    else:
        details = read_run(page.core, run)
        found, children, has_more = list(details.stages), list(details.children), details.has_more_children
    rows = [_stage(page, run, page.shown(one)) for one in found]
    listed = table(_HEADS, rows, caption="Stages", empty="The pipeline has no stages.")
    return join(
        _more_children(has_more),
        listed,
        _children_of([_child(page, one) for one in children[:CHILDREN_SHOWN]]),
    )


def _more_children(has_more: bool) -> Html | None:
    return el("p", f"The newest {CHILDREN_SHOWN} child runs.", class_="note") if has_more else None


def _children_of(rows: Sequence[Html]) -> Html | None:
    return join(el("h2", "Child runs"), table(_HEADS, rows, caption="Child runs", empty="")) if rows else None


def _stage(page: Page[RunQuery], run: Run, one: StageDetails) -> Html:
    note = "" if one.items_total is None else f", {one.items_done or 0:,} of {one.items_total:,} items"
    state = one.state if one.kept_of is None else f"kept of generation {one.kept_of}"
    is_done = one.state in {"done", "kept"}
    whole = page.links.api("run.part_result", {"generation": run.generation}, run_id=run.id, name=one.name)
    link = el("p", el("a", "The whole result", href=whole)) if is_done and page.sees_values else None
    name = el("span", shortened(f"{one.name}{note}"), id=f"stage-{stage_anchor(one.name)}")
    cells: tuple[Content, ...] = (
        name,
        badge(state, _TONES.get(one.state, "ended")),
        _attempts(one.attempts, one.lost_attempts),
        instant(one.started_at),
        duration(one.duration),
        shortened(one.host),
        join(_outcome(one.error, one.traceback, one.result), link),
    )
    return table_row(_HEADS, cells)


def _calls(
    page: Page[RunQuery], run: Run, found: Sequence[StepDetails], children: Sequence[ChildInfo]
) -> list[Html]:
    """Return the rows of steps and child runs in the order of their calls: a call `3.1` stands below `3`."""
    rows = [(_order(one.call), _step(page, run, one)) for one in found]
    rows += [(_order(one.call or ""), _child(page, one)) for one in children]
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


def _order(call: str) -> tuple[tuple[int, int | str], ...]:
    return tuple((0, int(part)) if part.isdigit() else (1, part) for part in call.split("."))


def _step(page: Page[RunQuery], run: Run, one: StepDetails) -> Html:
    depth = min(one.call.count("."), 4)
    site = el("small", shortened(one.site), class_="note") if one.site and page.sees_values else None
    anchor = f"call-{stage_anchor(one.call)}"
    name = el(
        "span", el("code", one.call), " ", shortened(one.step), " ", site, id=anchor, class_=f"depth{depth}"
    )
    whole = None
    if one.state == "done" and one.row and page.sees_values:
        address = page.links.api(
            "run.row_value", {"generation": run.generation}, run_id=run.id, number=str(one.row)
        )
        whole = el("p", el("a", "The whole result", href=address))
    cells: tuple[Content, ...] = (
        name,
        badge(one.state, _TONES.get(one.state, "ended")),
        _attempts(one.attempts, one.lost_attempts),
        instant(one.started_at),
        duration(one.duration),
        shortened(one.host),
        join(_arguments(one), _outcome(one.error, one.traceback, one.result), whole),
    )
    return table_row(_HEADS, cells)


def _arguments(one: StepDetails) -> Html | None:
    found = one.arguments
    return None if found is None else el("details", el("summary", "arguments"), preview(found))


def _child(page: Page[RunQuery], one: ChildInfo) -> Html:
    label = one.call or one.stage or ""
    took = None if one.ended_at is None else one.ended_at - one.started_at
    cells: tuple[Content, ...] = (
        join(el("code", label) if label else None, " child run ", run_link(page, one.id)),
        None if one.status is None else status_badge(one.status),
        None,
        instant(one.started_at),
        duration(took),
        None,
        shortened(one.workflow),
    )
    return table_row(_HEADS, cells)


def _attempts(number: int, lost: int) -> str:
    return f"{number}, {lost} lost" if lost else str(number)


def _outcome(error: str | None, traceback: str | None, result: ValuePreview | None) -> Html:
    parts: list[Html | None] = []
    if error is not None:
        inside = long_text(traceback) if traceback else long_text(error)
        parts.append(el("details", el("summary", shortened(error, 200), class_="bad"), inside))
    if result is not None:
        parts.append(el("details", el("summary", "result"), preview(result)))
    return join(*parts)
