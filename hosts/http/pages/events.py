"""The page of events: the sinks that get them, and the streams that a sink has refused."""

from functools import partial
from typing import Final

from holdfast.hosts.http.operations import Nothing, Table
from holdfast.hosts.http.pages.components import badge, instant, list_nav, region, run_link, shortened, table
from holdfast.hosts.http.pages.forms import action_form, check_box, folded_form, text_field
from holdfast.hosts.http.pages.html import Content, Html, el, join
from holdfast.hosts.http.pages.page import Answer, Page
from holdfast.hosts.http.pages.shell import page_operation
from holdfast.hosts.http.sink_operations import DeadLettersQuery, list_dead_letters, list_sinks


def events_page(page: Page[DeadLettersQuery]) -> Answer:
    """Show the sinks and the dead letters."""
    links, query = page.links, page.query
    found = page.shown(list_dead_letters(page.reading(query)))
    sinks = page.shown(list_sinks(page.reading(Nothing()))).items
    letters = [
        (
            shortened(one.sink),
            run_link(page, one.run_id),
            el("a", f"row {one.number}", href=links.page("runs", one.run_id, tab="history", row=one.number)),
            f"{one.waiting:,}",
            f"{one.attempts:,}",
            instant(one.dead_lettered_at),
            shortened(one.error, 300),
            _replay(page, one.sink, one.run_id),
        )
        for one in found.items
    ]
    kept = {"sink": query.sink or None, "run_id": query.run_id or None}
    heads = ("Sink", "Run", "Refused event", "Held", "Attempts", "Stopped", "Error", "Actions")
    rows: list[tuple[Content, ...]] = [
        (
            shortened(one.name),
            badge("failing", "bad") if one.error else badge("taking events", "good"),
            shortened(", ".join(one.types) or "all"),
            "by hosts" if one.read_at is None else join("by a client, last ", instant(one.read_at)),
            instant(one.since),
            f"{one.dead_letters:,}" if one.dead_letters else None,
            shortened(one.error or "", 300),
        )
        for one in sinks
    ]
    sink_heads = ("Sink", "State", "Types", "Read", "Since", "Dead letters", "Error")
    content = join(
        el("h1", "Events"),
        region(
            "letters", el("h2", "Dead letters"), table(heads, letters, caption="Dead letters", empty=_EMPTY)
        ),
        list_nav(partial(links.page, "events", **kept), query.after, found.next),
        region(
            "sinks",
            el("h2", "Sinks"),
            table(sink_heads, rows, caption="Sinks", empty="No sink is registered."),
        ),
    )
    return Answer(title="Events", content=content, section="events", watch=links.api_path("sink.list"))


_EMPTY: Final = "No sink has refused an event."


def _replay(page: Page, sink: str, run_id: str) -> Html | None:
    form = action_form(
        page,
        "dead_letter.replay",
        "Deliver again",
        check_box("skip", "without the refused event"),
        text_field("reason", "Reason, for people"),
        fixed={"sink": sink, "run_id": run_id},
    )
    return folded_form("Replay…", form)


OPERATIONS: Final[Table] = (page_operation("page.events", "/events", events_page, query=DeadLettersQuery),)
