"""Actions on all runs that match a filter: first a preview and a confirmation, then one page for each request."""

from collections.abc import Callable
from typing import Final, Literal

import attrs

from holdfast.hosts.http.bulk_operations import BulkChanged, BulkPreview, BulkRequest, BulkStep, preview_bulk
from holdfast.hosts.http.operations import Invocation, Nothing, Table, Text
from holdfast.hosts.http.pages.components import counted, facts, notice, run_link, scope_notice, shortened
from holdfast.hosts.http.pages.forms import action_form, text_field
from holdfast.hosts.http.pages.html import Html, el, join
from holdfast.hosts.http.pages.links import operation_named
from holdfast.hosts.http.pages.page import Answer, Page
from holdfast.hosts.http.pages.run_filters import RunsAddress
from holdfast.hosts.http.pages.shell import page_operation, page_text
from holdfast.hosts.inspection.json_form import json_form
from holdfast.ports.json import compact

ACTIONS: Final = {
    "cancel": ("run.cancel_all", "Cancel"),
    "terminate": ("run.terminate_all", "Terminate"),
    "pause": ("run.pause_all", "Pause"),
    "resume": ("run.resume_all", "Resume"),
    "rerun": ("run.rerun_all", "Rerun"),
    "remove": ("run.remove_all", "Remove"),
}
"""The operation and the verb of each action."""
UNCONFIRMED_MAX: Final = 100
"""Up to how many runs an action needs no typed confirmation."""


@attrs.frozen(kw_only=True)
class BulkQuery(RunsAddress):
    """The query parameters of the page of a bulk action."""

    action: Literal["cancel", "terminate", "pause", "resume", "rerun", "remove"]
    """The action."""
    confirmed: str = ""
    """The number of runs that the person has typed."""


def bulk_page(page: Page[BulkQuery]) -> Answer:
    """Show on which runs an action would act, and the form that does it."""
    operation, verb = ACTIONS[page.query.action]
    words = page.query.words
    back = el("p", el("a", "Back to the runs", href=page.links.page("runs", **page.query.parameters)))
    if not words:
        content = notice(
            "waiting",
            "No run is selected. Without a filter, the action would act on all runs. Go back, and select or filter "
            "them.",
        )
    elif not page.may(operation) or not page.may("run.preview_bulk"):
        scope = operation_named(operation).scope
        content = scope_notice(scope, "You may look at the runs, and not act on them.")
    else:
        content = _confirmation(page, operation, verb)
    title = f"{verb} {'selected' if page.query.ids else 'all'} runs"
    return Answer(title=title, content=join(el("h1", title), content, back), section="runs")


def _confirmation(page: Page[BulkQuery], operation: str, verb: str) -> Html:
    query = page.query
    found = preview_bulk(page.sending(BulkRequest(action=query.action, filter=query.conditions)))
    number = counted(found.total, more=found.more)
    filters = el("ul", [el("li", shortened(text, 300)) for text in query.words.values()])
    statuses = ", ".join(f"{count:,} {status}" for status, count in found.by_status.items())
    head = join(
        el("p", "Runs with all of:"),
        filters,
        facts([("Runs on which it acts", number), ("By status", statuses)]),
        _first(page, found),
        _left_out(query, found),
    )
    if not found.total:
        return join(head, notice("good", "No run is left on which this would act."))
    typed = query.confirmed.replace(",", "").replace("+", "").strip()
    if found.total > UNCONFIRMED_MAX and typed != str(found.total):
        return join(head, _typed(page, found, wrong=bool(typed)))
    note = "One request acts on a few hundred runs. The page after it has its outcome, and the next request."
    form = action_form(
        page,
        operation,
        f"{verb} {number} runs",
        text_field("reason", "Reason, for people"),
        fixed={"filter": compact(json_form(query.conditions)), "cursor": found.cursor},
    )
    return join(head, form, el("p", note, class_="note"))


def bulk_answer(operation: str, verb: str) -> Callable[[Invocation[Nothing, BulkStep], BulkChanged], Text]:
    """Return the function that makes the page after a request of a bulk action: its outcome, and the next one."""

    def answer(call: Invocation[Nothing, BulkStep], reply: BulkChanged) -> Text:
        page = Page(call)
        ids = call.body.filter.ids
        title = f"{verb} {'selected' if ids else 'all'} runs"
        counts = facts(
            [
                ("Changed", f"{reply.changed:,}"),
                ("Unchanged", f"{reply.unchanged:,}"),
                ("Refused", f"{reply.refused:,}"),
            ]
        )
        refusals = [
            el("li", run_link(page, one.id), ": ", shortened(one.message, 300)) for one in reply.refusals
        ]
        form = None
        if reply.next is not None:
            form = action_form(
                page,
                operation,
                "Go on with the next runs",
                fixed={
                    "filter": compact(json_form(call.body.filter)),
                    "cursor": reply.next,
                    "reason": call.body.reason,
                },
                return_to=None,
            )
        over = notice("good", "All runs that matched have been gone through.")
        content = join(
            el("h1", title),
            counts,
            join(el("p", "The first that were refused:"), el("ul", refusals)) if refusals else None,
            form or over,
            el("p", el("a", "The selected runs", href=page.links.page("runs", ids=ids))) if ids else None,
            el("p", el("a", "All runs", href=page.links.page("runs"))),
        )
        return page_text(page, Answer(title=title, content=content, section="runs"))

    return answer


def _first(page: Page[BulkQuery], found: BulkPreview) -> Html | None:
    if not found.run_ids:
        return None
    title = "The first of them:" if found.total > len(found.run_ids) else "They are:"
    return join(el("p", title), el("ul", [el("li", run_link(page, one)) for one in found.run_ids]))


def _left_out(query: BulkQuery, found: BulkPreview) -> Html | None:
    number = len(set(query.ids)) - found.total
    if not query.ids or number < 1:
        return None
    why = "their status does not allow it, they do not match the other filters, or they no longer exist"
    if number == 1:
        why = "its status does not allow it, it does not match the other filters, or it no longer exists"
    return notice("waiting", f"{number} of the selected runs would be left alone: {why}.")


def _typed(page: Page[BulkQuery], found: BulkPreview, *, wrong: bool) -> Html:
    """Return the form in which a person types how many runs it will be."""
    hidden = [
        el("input", type="hidden", name=name, value=text)
        for name, value in {"action": page.query.action, **page.query.parameters}.items()
        for text in (value if isinstance(value, tuple) else (value,))
        if isinstance(text, str) and text
    ]
    if page.query.waiting:
        hidden.append(el("input", type="hidden", name="waiting", value="true"))
    label = f"Type {found.total} to go on"
    problem = notice("bad", f"There are {found.total:,} runs now.", role="alert") if wrong else None
    return el(
        "form",
        problem,
        hidden,
        text_field("confirmed", label, required=True),
        el("button", "Go on"),
        method="get",
    )


OPERATIONS: Final[Table] = (page_operation("page.bulk", "/runs:bulk", bulk_page, query=BulkQuery),)
