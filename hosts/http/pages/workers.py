"""The page of workers: where they are, which code they have, and what they hold."""

from functools import partial
from typing import Final

from holdfast.hosts.http.namespace_operations import list_workers
from holdfast.hosts.http.operations import PageQuery, Table
from holdfast.hosts.http.pages.components import (
    badge,
    duration,
    instant,
    list_nav,
    region,
    run_link,
    shortened,
    table,
)
from holdfast.hosts.http.pages.html import Content, Html, el, join
from holdfast.hosts.http.pages.page import Answer, Page
from holdfast.hosts.http.pages.shell import page_operation
from holdfast.hosts.inspection.workers import WorkerInfo

HELD: Final = 20
"""How many jobs of a worker are shown."""


def workers_page(page: Page[PageQuery]) -> Answer:
    """List the workers."""
    found = list_workers(page.reading(page.query))
    rows = [
        (
            badge("live" if one.is_live else "lost", "good" if one.is_live else "bad"),
            shortened(one.name or one.host),
            shortened(one.host),
            shortened(f"{one.language} {', '.join(one.versions)}".strip()),
            shortened(", ".join(one.queues)),
            _code(one),
            f"{len(one.holds):,} of {one.slots:,}",
            _held(page, one),
            instant(one.started_at),
            f"{duration(page.now - one.renewed_at)} ago",
        )
        for one in found.items
    ]
    heads = ("State", "Name", "Host", "Program", "Queues", "Code", "Slots", "Holds", "Since", "Last heard")
    links = page.links
    content = join(
        el("h1", "Workers"),
        region("workers", table(heads, rows, caption="Workers", empty="No worker has a session.")),
        list_nav(partial(links.page, "workers"), page.query.after, found.next),
    )
    return Answer(title="Workers", content=content, section="workers", watch=links.api_path("worker.list"))


def _code(one: WorkerInfo) -> Content:
    if not one.definitions:
        return None
    more = " and more" if one.has_more else ""
    entries = el("ul", [el("li", shortened(name)) for name in one.definitions])
    return el("details", el("summary", f"{len(one.definitions)}{more}"), entries)


def _held(page: Page, one: WorkerInfo) -> Html | None:
    runs = list(dict.fromkeys(job.run_id for job in one.holds))
    links = [el("li", run_link(page, run_id)) for run_id in runs[:HELD]]
    return el("details", el("summary", f"{len(runs)} runs"), el("ul", links)) if links else None


OPERATIONS: Final[Table] = (page_operation("page.workers", "/workers", workers_page, query=PageQuery),)
