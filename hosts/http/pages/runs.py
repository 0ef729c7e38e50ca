"""The page of runs: filters in the address, a bounded count, and a list whose rows stay in their places."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from holdfast.hosts.http.operations import Redirect, Table
from holdfast.hosts.http.pages.bulk import ACTIONS
from holdfast.hosts.http.pages.components import counted, cut, list_nav, region
from holdfast.hosts.http.pages.forms import check_box, choice, filter_form, text_field
from holdfast.hosts.http.pages.found_runs import FoundRuns, found_runs
from holdfast.hosts.http.pages.html import Html, el, join
from holdfast.hosts.http.pages.links import QueryValue
from holdfast.hosts.http.pages.page import Answer, Page
from holdfast.hosts.http.pages.run_filters import CHOICES, RunsPageQuery
from holdfast.hosts.http.pages.run_table import run_table
from holdfast.hosts.http.pages.shell import page_operation


def runs_page(page: Page[RunsPageQuery]) -> Answer | Redirect:
    """List the runs that match the filters, newest first."""
    query, links = page.query, page.links
    if query.id.strip():
        return Redirect(links.path(links.page("runs", query.id.strip())))
    result = found_runs(page)
    found = result.page
    actions = [(name, verb) for name, (operation, verb) in ACTIONS.items() if page.may(operation)]
    listed = run_table(
        page,
        found.items,
        caption="Runs, newest first",
        empty="No run matches.",
        form_id=SELECTION if actions else None,
    )
    address = partial(links.page, "runs", **query.parameters, limit=query.limit)
    content = join(
        el("h1", "Runs"),
        _filters(page),
        _selected(page),
        _view(page),
        region("count", _count(result), " ", _bulk_links(page), tag="p"),
        el("p", el("button", "New runs", type="button", id="newer", hidden=True)),
        region("rows", listed if found.items else join(listed, _without_filters(page)), data_list=True),
        _selection(page, actions),
        list_nav(address, query.after, found.next, first="Newest", next_="Older"),
    )
    # The address of the API has the same filters, so that the stream has the runs of this page.
    watch = None if query.after else links.api_path("run.list", _api_parameters(query))
    return Answer(title="Runs", content=content, section="runs", watch=watch)


def _api_parameters(query: RunsPageQuery) -> dict[str, QueryValue]:
    found = query.conditions
    return {
        "status": tuple(one.value for one in found.status),
        "workflow": found.workflow,
        **{f"attributes[{name}]": text for name, text in found.attributes.items()},
        "since": None if found.since is None else found.since.isoformat(),
        "until": None if found.until is None else found.until.isoformat(),
        "ids": found.ids or (),
        "id_prefix": found.id_prefix,
        "waiting": found.waiting,
        "limit": query.limit,
    }


def _filters(page: Page[RunsPageQuery]) -> Html:
    query = page.query
    status = query.status[0] if len(query.status) == 1 else ""
    return filter_form(
        choice("status", "Status", CHOICES, status),
        text_field("workflow", "Workflow", query.workflow),
        *(
            text_field("attribute", "Attribute", one, placeholder="name=text")
            for one in (*query.attribute, "")[:3]
        ),
        text_field("since", "Created since (UTC)", query.since, kind="datetime-local"),
        text_field("until", "Created before (UTC)", query.until, kind="datetime-local"),
        text_field("id_prefix", "Run id begins with", query.id_prefix),
        text_field("id", "Open the run with the id"),
        check_box("waiting", "waits", checked=query.waiting),
    )


def _view(page: Page[RunsPageQuery]) -> Html | None:
    """Return the form that names this filter. The script shows it, and keeps the name in the browser."""
    if not page.query.words:
        return None
    # Without fields that are empty, so that a filter is the same view however a person has come to it.
    _, _, filters = page.links.page("runs", **page.query.parameters).address.partition("?")
    return el(
        "form",
        text_field("view", "Name of this view", required=True),
        el("button", "Save view"),
        el("button", "Remove view", type="button", id="remove-view", hidden=True),
        el("output"),
        id="view",
        class_="view",
        hidden=True,
        data_view=filters,
    )


def _selected(page: Page[RunsPageQuery]) -> Html | None:
    """Return a line about the selected runs, for which the filter has no field; None without a selection."""
    if not page.query.ids:
        return None
    number = len(set(page.query.ids))
    every = el("a", "Show others too", href=page.links.page("runs", **_without(page, "ids")))
    return el("p", f"Only {number} selected {'run' if number == 1 else 'runs'}. ", every)


def _selection(page: Page[RunsPageQuery], actions: Iterable[tuple[str, str]]) -> Html | None:
    """Return the form with the actions on selected runs. It is not live: a box of the table names it by its id.

    Each action leads to a preview, so the form only makes its address.
    """
    buttons = [el("button", f"{verb}…", name="action", value=name) for name, verb in actions]
    if not buttons:
        return None
    return el(
        "form",
        el("span", "Selected runs:"),
        buttons,
        id=SELECTION,
        method="get",
        action=page.links.page("runs:bulk"),
        class_="selection",
    )


def _count(found: FoundRuns) -> str:
    count = found.count
    text = f"{counted(count.total, more=count.more)} {'run' if count.total == 1 else 'runs'}"
    if found.among is None:
        return text
    which = "next" if found.is_later else "newest"
    return f"{text} of the {which} {found.among:,}: to look through all of them would take too long."


def _bulk_links(page: Page[RunsPageQuery]) -> Iterator[Html]:
    if not page.query.words:
        return
    for name, (operation, title) in ACTIONS.items():
        if page.may(operation):
            yield el(
                "a",
                f"{title} all…",
                href=page.links.page("runs:bulk", action=name, **page.query.parameters),
            )
            yield join(" ")


def _without_filters(page: Page[RunsPageQuery]) -> Html | None:
    """Return a link that removes each filter, for a list without runs."""
    words = page.query.words
    if not words:
        return None
    entries = [
        el(
            "li",
            el("a", f"Without {cut(text, 200)}", href=page.links.page("runs", **_without(page, name))),
        )
        for name, text in words.items()
    ]
    return el("ul", entries)


def _without(page: Page[RunsPageQuery], name: str) -> dict[str, QueryValue]:
    return {key: value for key, value in page.query.parameters.items() if key != name}


SELECTION: Final = "selection"
"""The id of the form with the actions on selected runs."""

OPERATIONS: Final[Table] = (page_operation("page.runs", "/runs", runs_page, query=RunsPageQuery),)
