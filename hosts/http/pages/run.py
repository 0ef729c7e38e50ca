"""The page of a run: what it is, why it waits or how it failed, what can be done about it, and its tabs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from shlex import quote
from typing import Final, TypeAlias, cast

from holdfast.hosts.http.operations import Table
from holdfast.hosts.http.pages.components import (
    attribute_links,
    copy_button,
    duration,
    facts,
    instant,
    list_nav,
    long_text,
    named,
    notice,
    region,
    run_link,
    shortened,
    status_badge,
    table,
)
from holdfast.hosts.http.pages.forms import action_form, folded_form, text_field
from holdfast.hosts.http.pages.html import Content, Html, el, join
from holdfast.hosts.http.pages.page import Answer, Page
from holdfast.hosts.http.pages.run_graph import graph
from holdfast.hosts.http.pages.run_history import history, log
from holdfast.hosts.http.pages.run_message_list import received_messages
from holdfast.hosts.http.pages.run_query import RunQuery, TabName
from holdfast.hosts.http.pages.run_steps import steps
from holdfast.hosts.http.pages.run_timeline import timeline
from holdfast.hosts.http.pages.run_values import values
from holdfast.hosts.http.pages.shell import page_operation
from holdfast.hosts.http.pages.workflows import start_link
from holdfast.hosts.http.run_reads import ChildrenQuery, list_children
from holdfast.hosts.inspection.run_info import RunError, RunInfo, find_run, read_info
from holdfast.hosts.inspection.why import reasons_of
from holdfast.kernel.history import events
from holdfast.kernel.pipelines.plan import Plan
from holdfast.ports.records.run import TERMINAL, Run, RunStatus

TRACEBACK_ROWS: Final = 100
"""How many history rows from the end are searched for the traceback."""
LONG: Final = 10_000
"""From how many history rows on the summary has no child runs."""
CHILDREN: Final = 20
"""How many child runs a page shows."""
Tab: TypeAlias = Callable[[Page[RunQuery], Run], Html]
"""Returns the content of a tab."""


def run_page(page: Page[RunQuery]) -> Answer:
    """Show a generation of a run."""
    run = find_run(page.core, page.call.path["run_id"], page.query.generation)
    info, plan = page.shown(read_info(page.core, run)), page.core.inputs.plan(run.plan)
    is_newest = page.query.generation is None
    newest = run.generation if is_newest else find_run(page.core, run.id).generation
    render = next(tab for name, _, tab in TABS if name == page.query.tab)
    content = join(
        el("h1", el("span", shortened(run.id, 300), class_="id"), " ", copy_button(run.id)),
        region("head", _head(page, run, info, newest), tag="div"),
        el("div", _actions(page, run, info, plan), class_="actions") if run.generation == newest else None,
        region("cause", _cause(page, run, info), aria_live="polite"),
        _tabs(page, run, plan),
        region("tab", render(page, run)),
    )
    watch = page.links.api_path("run.why", {"generation": run.generation}, run_id=run.id)
    return Answer(title=run.id[:200], content=content, section="runs", watch=watch)


def _head(page: Page[RunQuery], run: Run, info: RunInfo, newest: int) -> Html:
    links = page.links
    parent = info.parent
    scheduled = info.scheduled
    found: list[tuple[str, Content]] = [
        ("Status", status_badge(info.status)),
        (
            "Workflow",
            join(named(info.workflow, links.page("workflows", info.workflow)), f" @{info.version[:100]}"),
        ),
        ("Generation", _generations(page, run, newest)),
        ("Created", instant(info.created_at)),
        ("Starts at", instant(info.start_at)),
        ("Ended", instant(info.ended_at)),
        ("Took" if info.ended_at else "For", duration(info.duration)),
        ("Deadline", instant(info.deadline)),
        ("Queue", shortened(info.queue)),
        ("Priority", str(info.priority) if info.priority else None),
        ("Concurrency key", shortened(info.concurrency_key)),
        ("Parent", None if parent is None else run_link(page, parent.id)),
        (
            "Schedule",
            None if scheduled is None else named(scheduled.name, links.page("schedules", scheduled.name)),
        ),
        ("Rerun from", shortened(info.rerun_from)),
        ("Attributes", attribute_links(page, info.attributes)),
    ]
    return facts(found)


def _generations(page: Page[RunQuery], run: Run, newest: int) -> Content:
    if newest == 1:
        return None
    around = [one for one in (run.generation - 1, run.generation + 1) if 1 <= one <= newest]
    others = [
        join(" ", el("a", f"generation {one}", href=page.links.page("runs", run.id, generation=one)))
        for one in around
    ]
    return join(f"{run.generation} of {newest}", others)


def _actions(page: Page[RunQuery], run: Run, info: RunInfo, plan: Plan) -> Iterator[Html | None]:
    """Yield what the person may do with the newest generation."""
    links, path = page.links, {"run_id": run.id}
    is_over = run.status in TERMINAL
    if run.status in {RunStatus.PAUSED, RunStatus.BLOCKED}:
        yield action_form(page, "run.resume", "Resume", path=path)
    elif not is_over and run.status is not RunStatus.CANCELLING:
        yield action_form(page, "run.pause", "Pause", path=path)
    if page.may("run.rerun"):
        yield el("a", "Rerun…", href=links.page("runs", run.id, "rerun"), class_="button")
    yield start_link(page, info)
    if not is_over and plan.function is not None and page.may("run.signal"):
        yield el("a", "Send a message…", href=links.page("runs", run.id, "signal"), class_="button")
    if is_over:
        back = links.path(links.page("runs"))
        form = action_form(page, "run.remove", "Remove the run for good", path=path, return_to=back)
        yield folded_form("Remove…", form)
        return
    why = text_field("reason", "Reason, for people")
    for operation, summary, label in _ENDS:
        form = action_form(page, operation, label, why, path=path, generation=run.generation)
        yield folded_form(summary, form)


def _cause(page: Page[RunQuery], run: Run, info: RunInfo) -> Html | None:
    if run.status is RunStatus.COMPLETED:
        return None
    if run.status is RunStatus.FAILED and info.error is not None:
        return _error(page, run, info.error)
    found = page.shown(reasons_of(page.core, run))
    reasons = [
        el(
            "li",
            el("code", one.code),
            " ",
            el("span", shortened(one.text, 2_000)),
            None if one.until is None else join(" Until ", instant(one.until), "."),
        )
        for one in found.reasons
    ]
    tone = "bad" if run.status is RunStatus.BLOCKED else "waiting"
    title = "Why it was cancelled" if run.status is RunStatus.CANCELLED else "Why it is not done"
    return join(el("h2", title), notice(tone, el("ul", reasons)))


def _error(page: Page[RunQuery], run: Run, error: RunError) -> Html:
    where = facts(
        [
            ("Code", el("code", error.code)),
            ("Class", None if error.type is None else el("code", shortened(error.type))),
            ("Stage", shortened(error.stage)),
            ("Item", None if error.item is None else str(error.item)),
            ("Attempt", None if error.attempt is None else str(error.attempt)),
        ]
    )
    tracebacks = _tracebacks(page, run, error) if page.sees_values else []
    shown = [el("details", el("summary", title), long_text(text), open=True) for title, text in tracebacks]
    return join(
        el("h2", "Why it failed"), notice("bad", long_text(error.text or error.message), where), shown
    )


def _tracebacks(page: Page[RunQuery], run: Run, error: RunError) -> list[tuple[str, str]]:
    """Return the tracebacks of the step and of the body that raised the error, among the newest history rows."""
    after = max(0, run.last_row - TRACEBACK_ROWS)
    found: dict[str, str] = {}
    for one in page.call.run.history(after=after, limit=TRACEBACK_ROWS, generation=run.generation):
        raised = cast("Mapping[str, object]", one.data.get("error") or {})
        # A function may catch what a step raises, and fail with something else.
        if one.type == events.StepFailed.type and raised.get("message") == error.message:
            found["step"] = str(raised.get("traceback") or "")
        of_body = one.data.get("traceback")
        if isinstance(of_body, str):
            found["body"] = of_body
    titles = {"step": "Traceback of the step", "body": "Traceback"}
    return [(title, found[key]) for key, title in titles.items() if found.get(key)]


def _tabs(page: Page[RunQuery], run: Run, plan: Plan) -> Html:
    entries = [
        el(
            "a",
            title,
            href=page.links.page("runs", run.id, generation=run.generation, tab=name),
            aria_current="page" if name == page.query.tab else None,
        )
        for name, title, _ in TABS
        if name != ("messages" if plan.function is None else "graph")
    ]
    return el("nav", entries, class_="tabs", aria_label="Tabs of the run")


def _summary(page: Page[RunQuery], run: Run) -> Html:
    # Child runs are found in the whole history, which takes as long as a page should.
    children = _children(page, run) if run.last_row <= LONG else _children_link(page, run)
    return join(children, el("h2", "Newest history"), history(page, run))


def _children_link(page: Page[RunQuery], run: Run) -> Html:
    tab = page.links.page("runs", run.id, generation=run.generation, tab="children")
    return el("p", "The history is long: ", el("a", "look for child runs", href=tab), class_="note")


def _children(page: Page[RunQuery], run: Run) -> Html | None:
    query = ChildrenQuery(generation=run.generation, after=page.query.after, limit=CHILDREN)
    found = list_children(page.reading(query))
    if not found.items:
        return None
    rows: Sequence[Sequence[Content]] = [
        (
            None if one.status is None else status_badge(one.status),
            run_link(page, one.id),
            shortened(one.workflow),
            instant(one.started_at),
            instant(one.ended_at),
            shortened(one.call or one.stage or ""),
        )
        for one in found.items
    ]
    heads = ("Status", "Run", "Workflow", "Started", "Ended", "Call")
    address = partial(page.links.page, "runs", run.id, generation=run.generation, tab="children")
    listed = table(heads, rows, caption="Child runs, newest first", empty="")
    return join(
        el("h2", "Child runs"),
        listed,
        list_nav(address, page.query.after, found.next, first="Newest", next_="Older"),
    )


def _children_tab(page: Page[RunQuery], run: Run) -> Html:
    return _children(page, run) or el("p", "It has started no child runs.", class_="empty")


def _raw(page: Page[RunQuery], run: Run) -> Html:
    query = {"generation": run.generation}
    documents = [
        el("li", el("a", title, href=page.links.api(operation, query, run_id=run.id)))
        for operation, title in _DOCUMENTS
        if page.may(operation)
    ]
    root = str(page.call.request.base_url).rstrip("/")
    api = root.removesuffix(page.links.root) + page.links.api("run.get", run_id=run.id).address
    server = f"--server {quote(root)} --namespace {quote(run.namespace)}"
    lines = [
        f"curl {quote(api)}",
        f"holdfast run show {quote(run.id)} {server}",
        f"holdfast why {quote(run.id)} {server}",
    ]
    commands = [el("p", el("code", shortened(one, 400)), " ", copy_button(one)) for one in lines]
    return join(el("h2", "Documents"), el("ul", documents), el("h2", "On the command line"), *commands)


_ENDS: Final = (
    ("run.cancel", "Cancel…", "Cancel the run"),
    ("run.terminate", "Terminate…", "End the run without cleanup"),
)
_DOCUMENTS: Final = (
    ("run.get", "The run"),
    ("run.why", "Why it waits"),
    ("run.history", "Its history"),
    ("run.messages", "Its messages"),
    ("run.input", "Its input"),
    ("run.result", "Its result"),
    ("run.logs", "Its log"),
)

TABS: Final[Sequence[tuple[TabName, str, Tab]]] = (
    ("summary", "Summary", _summary),
    ("timeline", "Timeline", timeline),
    ("graph", "Graph", graph),
    ("steps", "Steps", steps),
    ("history", "History", history),
    ("logs", "Log", log),
    ("values", "Values", values),
    ("messages", "Messages", received_messages),
    ("children", "Child runs", _children_tab),
    ("raw", "Raw", _raw),
)
"""The tabs: their names, titles and contents."""

OPERATIONS: Final[Table] = (page_operation("page.run", "/runs/{run_id}", run_page, query=RunQuery),)
