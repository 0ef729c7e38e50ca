"""The page of a rerun: where it starts, what the engine would do, and the form that does it."""

from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.hosts.http.operations import Table
from holdfast.hosts.http.pages.components import (
    facts,
    named,
    notice,
    run_link,
    scope_notice,
    shortened,
    status_badge,
)
from holdfast.hosts.http.pages.forms import action_form, filter_form, text_field
from holdfast.hosts.http.pages.html import Content, Html, Link, el, join
from holdfast.hosts.http.pages.page import Answer, Page
from holdfast.hosts.http.pages.schema_forms import once_field
from holdfast.hosts.http.pages.shell import page_operation
from holdfast.hosts.http.principals import Scope
from holdfast.hosts.http.problems import problem_of
from holdfast.hosts.http.run_actions import RerunPoint, preview
from holdfast.hosts.inspection.newest_steps import ROWS_MAX, newest_steps
from holdfast.hosts.inspection.run_info import find_run
from holdfast.kernel.runs.rerun_preview import RerunPreview
from holdfast.ports.errors import HoldfastError, RunNotFoundError
from holdfast.ports.records.run import Run

POINTS_MAX: Final = 200
"""How many stages or steps are offered as starting points."""
LISTED_MAX: Final = 200
"""How many stages or steps each list of the preview has."""


def rerun_page(page: Page[RerunPoint]) -> Answer:
    """Show where a rerun can start, what it would do, and its form."""
    run = find_run(page.core, page.call.path["run_id"])
    point = page.query
    content = join(
        run_head(page, "Run again", run),
        el("h2", "What it does"),
        _preview(page, run, point),
        el("h2", "Where it starts"),
        _points(page, run, point),
    )
    return Answer(title=f"Run again {run.id}"[:200], content=content, section="runs")


def run_head(page: Page, title: str, run: Run) -> Html:
    """Return the head of a page that does something with a run."""
    return join(
        el("h1", f"{title} ", run_link(page, run.id)),
        facts(
            [
                ("Workflow", named(run.workflow, page.links.page("workflows", run.workflow))),
                ("Generation", str(run.generation)),
                ("Status", status_badge(run.status)),
            ]
        ),
    )


def run_page_path(page: Page, run_id: str) -> str:
    """Return the path of the page of a run, below the mount: a form leads there."""
    return page.links.path(page.links.page("runs", run_id))


def _preview(page: Page[RerunPoint], run: Run, point: RerunPoint) -> Html:
    try:
        found = preview(page.call)
    except RunNotFoundError:
        raise
    except HoldfastError as error:
        problem = problem_of(error, page.call.root, sees_values=page.sees_values)
        if problem is None:
            raise
        detail = problem.detail or problem.title
        return notice("bad", el("p", "This rerun is refused: ", shortened(detail, 2_000)), role="alert")
    return join(_summary(found, run), _form(page, run, point))


def _summary(found: RerunPreview, run: Run) -> Html:
    start = "the beginning" if found.stage is None else found.stage
    again = frozenset(found.again)
    runs = [
        el(
            "li",
            el("strong", shortened(name)),
            " completed before: its effects are repeated" if name in again else None,
        )
        for name in found.runs[:LISTED_MAX]
    ]
    keeps = [
        el("li", shortened(name), f" of generation {generation}")
        for name, generation in list(found.keeps.items())[:LISTED_MAX]
    ]
    return join(
        notice("waiting", "The run is active: its present generation is terminated.")
        if found.terminates
        else None,
        facts(
            [
                ("Starts at", shortened(start)),
                ("New generation", str(found.generation)),
                ("Version", shortened(found.version)),
                ("First row that is not kept", None if found.row is None else str(found.row)),
                ("Messages delivered again", str(found.messages) if found.messages else None),
            ]
        ),
        el("h3", "Runs again"),
        el("ul", runs) if runs else el("p", _nothing_again(run), class_="empty"),
        _more(len(found.runs)),
        el("h3", "Kept"),
        el("ul", keeps) if keeps else el("p", "Nothing is kept.", class_="empty"),
        _more(len(found.keeps)),
        _named_list("Timers that it waits for again", found.timers),
        _named_list("Child runs that are started again", found.starts),
        _named_list("Child runs that are kept", found.children),
        _named_list("Compensations whose effect is done again", found.undone),
    )


def _nothing_again(run: Run) -> str:
    return f"No recorded step runs again; the code of {run.workflow[:100]} decides what follows."


def _more(number: int) -> Html | None:
    return el("p", f"{number - LISTED_MAX:,} more.", class_="note") if number > LISTED_MAX else None


def _named_list(title: str, names: Sequence[str]) -> Html | None:
    if not names:
        return None
    shown = [el("li", shortened(name)) for name in names[:LISTED_MAX]]
    return join(el("h3", title), el("ul", shown), _more(len(names)))


def _form(page: Page, run: Run, point: RerunPoint) -> Html:
    given = {"stage": point.stage, "row": point.row, "version": point.version}
    form = action_form(
        page,
        "run.rerun",
        "Run again",
        text_field("reason", "Reason", hint="For people; the audit log keeps it."),
        once_field(),
        path={"run_id": run.id},
        fixed={name: str(value) for name, value in given.items() if value is not None},
        return_to=run_page_path(page, run.id),
        generation=run.generation,
        class_="value",
    )
    return form or scope_notice(Scope.OPERATE, "You may look at this run, and not rerun it.")


def _points(page: Page[RerunPoint], run: Run, point: RerunPoint) -> Html:
    plan = page.core.inputs.plan(run.plan)
    is_default = point.stage is None and point.row is None
    default = _point(page, run, "Where it failed or stopped", is_current=is_default)
    if plan.function is None:
        names = list(plan.nodes)
        found = [
            _point(page, run, name, is_current=name == point.stage, stage=name) for name in names[:POINTS_MAX]
        ]
        return join(el("ul", default, found), _others(len(names) - POINTS_MAX, "stages"))
    whole = plan.function
    first = _point(page, run, "The beginning", is_current=point.stage == whole, stage=whole)
    steps = list(_steps(page, run, point))
    return join(
        el("ul", default, first, steps),
        filter_form(
            text_field("stage", "Another step or call", hint="Such as charge#2, or 3.1."), label="Preview"
        ),
        filter_form(
            text_field("row", "Or the first history row that is not kept", kind="number"), label="Preview"
        ),
    )


def _steps(page: Page[RerunPoint], run: Run, point: RerunPoint) -> Iterator[Html]:
    """Yield links to the newest steps, those that failed with their state."""
    found = newest_steps(page.core, run)
    yield from (
        _point(
            page,
            run,
            f"{one.step} · call {one.call}",
            f" {one.state}",
            is_current=point.stage == one.call,
            stage=one.call,
        )
        for one in reversed(found[-POINTS_MAX:])
    )
    if len(found) > POINTS_MAX or run.last_row > ROWS_MAX:
        yield el("li", "There are earlier steps: name one of them below.")


def _point(
    page: Page, run: Run, text: str, *note: Content, is_current: bool, stage: str | None = None
) -> Html:
    address: Link = page.links.page("runs", run.id, "rerun", stage=stage)
    link = el("a", shortened(text), href=address, aria_current="true" if is_current else None)
    return el("li", el("strong", link) if is_current else link, *note)


def _others(number: int, what: str) -> Html | None:
    if number <= 0:
        return None
    text = f"{number:,} more {what}: name one."
    return join(el("p", text, class_="note"), filter_form(text_field("stage", "Stage"), label="Preview"))


OPERATIONS: Final[Table] = (
    page_operation("page.rerun", "/runs/{run_id}/rerun", rerun_page, query=RerunPoint),
)
"""The page of a rerun."""
