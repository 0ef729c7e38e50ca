"""The first page of a namespace: what needs a person, the newest runs as a strip, failed and active runs, queues."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import islice
from typing import Final

from holdfast.hosts.http.operations import Nothing, Table
from holdfast.hosts.http.pages.components import (
    TONES,
    counted,
    duration,
    named,
    notice,
    region,
    run_link,
    shortened,
    table,
)
from holdfast.hosts.http.pages.html import Content, Html, el, join
from holdfast.hosts.http.pages.page import Answer, Page
from holdfast.hosts.http.pages.run_table import run_table
from holdfast.hosts.http.pages.shell import page_operation
from holdfast.hosts.inspection.run_info import RunInfo
from holdfast.hosts.inspection.workers import QueueInfo
from holdfast.ports.records.run import RunStatus

STRIP_MAX: Final = 120
"""How many of the newest runs the strip shows. The page stays under 60 KB with its assets."""
LISTED_MAX: Final = 8
"""How many runs each list shows."""
SCHEDULES_MAX: Final = 500
"""How many schedules are looked at for late ones."""
_LONG_WAIT: Final = timedelta(minutes=1)


def overview_page(page: Page[Nothing]) -> Answer:
    """Show what needs a person, the newest runs, and the queues."""
    engine, links = page.call.engine, page.links
    newest = list(engine.runs(limit=STRIP_MAX))
    blocked = list(engine.runs(status=RunStatus.BLOCKED, limit=LISTED_MAX + 1))
    failed = list(engine.runs(status=RunStatus.FAILED, limit=LISTED_MAX))
    active = list(engine.runs(status=(RunStatus.RUNNING, RunStatus.PENDING), limit=LISTED_MAX))
    queues = engine.queues()
    needs = list(_needs(page, blocked, queues))
    nothing = el("p", "Nothing is blocked, late or without a worker.", class_="notice good")
    content = join(
        el("h1", "Overview"),
        region("needs", el("h2", "What needs you"), el("ul", needs, class_="needs") if needs else nothing),
        region("strip", el("h2", f"The newest {len(newest)} runs"), _strip(page, newest)),
        region(
            "failed",
            _head(page, "Failed last", "failed"),
            run_table(page, failed, caption="Runs that failed last", empty="No run has failed."),
        ),
        region(
            "active",
            _head(page, "Active", "running"),
            run_table(page, active, caption="Active runs", empty="No run is active."),
        ),
        region("queues", el("h2", el("a", "Queues", href=links.page("queues"))), _queues(page, queues)),
    )
    watch = links.api_path("run.list", {"limit": LISTED_MAX})
    return Answer(title="Overview", content=content, section="", watch=watch)


def _needs(page: Page, blocked: Sequence[RunInfo], queues: Sequence[QueueInfo]) -> Iterator[Html]:
    links = page.links
    if blocked:
        number = counted(min(len(blocked), LISTED_MAX), more=len(blocked) > LISTED_MAX)
        text = f"{number} {'run is' if len(blocked) == 1 else 'runs are'} blocked"
        first = [run_link(page, one.id) for one in blocked[:3]]
        yield _need(named(text, links.page("runs", status="blocked")), ": ", _separated(first))
    if next(iter(page.call.engine.dead_letters(limit=1)), None) is not None:
        yield _need(named("Events could not be delivered", links.page("events")))
    to_queues = links.page("queues")
    for queue in queues:
        for code in queue.unserved:
            yield _need(named(f"No worker on queue {queue.name!r} has {code.definition}", to_queues))
        if queue.is_paused:
            yield _need(named(f"Queue {queue.name!r} is paused", to_queues))
        elif queue.waiting_since is not None and (waits := page.now - queue.waiting_since) > _LONG_WAIT:
            yield _need(named(f"Work waits on queue {queue.name!r} for {duration(waits)}", to_queues))
    for one in islice(page.call.engine.schedules(), SCHEDULES_MAX):
        if one.state == "blocked" or one.is_late(page.now):
            state = "is blocked" if one.state == "blocked" else "is late"
            yield _need(named(f"Schedule {one.name!r} {state}", links.page("schedules", one.name)))


def _need(*content: Content) -> Html:
    return el("li", *content, class_="bad")


def _separated(nodes: Sequence[Html]) -> Html:
    return join(*(join(", " if number else None, one) for number, one in enumerate(nodes)))


def _head(page: Page, title: str, status: str) -> Html:
    return el("h2", el("a", title, href=page.links.page("runs", status=status)))


def _strip(page: Page, runs: Sequence[RunInfo]) -> Html:
    """Return one mark for each run, the oldest on the left."""
    if not runs:
        return notice("waiting", "There are no runs yet. Start one, and it is shown here.")
    marks = [
        el(
            "a",
            href=page.links.page("runs", one.id),
            title=f"{one.workflow} {one.id}: {one.status}"[:300],
            class_=f"mark {TONES[one.status]}",
        )
        for one in reversed(runs)
    ]
    return el("div", marks, class_="strip")


def _queues(page: Page, queues: Sequence[QueueInfo]) -> Html:
    rows = [
        (
            shortened(one.name),
            counted(one.queued, more=one.is_partial),
            counted(one.running, more=one.is_partial),
            None if one.waiting_since is None else duration(page.now - one.waiting_since),
            str(one.workers),
        )
        for one in queues
    ]
    heads = ("Queue", "Queued", "Running", "Oldest waits", "Workers")
    return table(heads, rows, caption="Queues", empty="No queue has work, and no worker is there.")


OPERATIONS: Final[Table] = (page_operation("page.overview", "", overview_page),)
