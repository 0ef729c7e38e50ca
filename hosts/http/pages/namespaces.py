"""The page of namespaces."""

from functools import partial
from typing import Final

from holdfast.hosts.http.namespace_operations import list_namespaces
from holdfast.hosts.http.operations import PageQuery, Reach, Table
from holdfast.hosts.http.pages.components import instant, list_nav, named, shortened, table
from holdfast.hosts.http.pages.forms import action_form, folded_form, text_field
from holdfast.hosts.http.pages.html import el, join
from holdfast.hosts.http.pages.page import Answer, Page
from holdfast.hosts.http.pages.shell import page_operation
from holdfast.hosts.http.request_forms import PAGES


def namespaces_page(page: Page[PageQuery]) -> Answer:
    """List the namespaces that the person reaches."""
    links = page.links
    found = list_namespaces(page.reading(page.query))
    rows = [
        (
            named(one.name, links.of_namespace(one.name)),
            shortened(one.note),
            _quota(one.max_active_runs),
            _quota(one.max_starts_per_minute),
            instant(one.created_at),
        )
        for one in found.items
    ]
    heads = ("Namespace", "Note", "Active runs at most", "Starts a minute at most", "Created")
    form = action_form(
        page,
        "namespace.create",
        "Create the namespace",
        text_field("name", "Name", required=True),
        text_field("note", "Note, for people"),
        text_field("max_active_runs", "Active runs at most", kind="number"),
        text_field("max_starts_per_minute", "Starts a minute at most", kind="number"),
    )
    content = join(
        el("h1", "Namespaces"),
        table(heads, rows, caption="Namespaces", empty="There is no namespace that you reach."),
        list_nav(partial(links.server_page, "namespaces"), page.query.after, found.next),
        folded_form("Create, or change quotas…", form),
    )
    return Answer(title="Namespaces", content=content, section="namespaces")


def _quota(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


OPERATIONS: Final[Table] = (
    page_operation(
        "page.namespaces", f"{PAGES}/namespaces", namespaces_page, query=PageQuery, reach=Reach.ANY
    ),
)
