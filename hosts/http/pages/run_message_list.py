"""The messages that a run was sent, and whether its function received them."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from holdfast.hosts.http.output_reads import MessagesQuery, list_messages
from holdfast.hosts.http.pages.components import badge, instant, list_nav, run_link, shortened, table
from holdfast.hosts.http.pages.html import Content, Html, el, join
from holdfast.hosts.http.pages.page import Page
from holdfast.hosts.http.pages.run_query import RunQuery
from holdfast.hosts.inspection.messages import MessageInfo, MessageState
from holdfast.ports.records.run import Run

MESSAGES: Final = 50
"""How many messages a page shows."""
_HEADS: Final = ("Row", "Sent", "Channel", "Sender", "State", "Key")
_TONES: Final[Mapping[MessageState, str]] = {
    "unread": "waiting",
    "received": "good",
    "refused": "bad",
    "handed_on": "ended",
    "never_received": "bad",
}


def received_messages(page: Page[RunQuery], run: Run) -> Html:
    """Return a page of the messages of a generation, the newest first, each with a link to its history row."""
    after = page.query.after or ""
    query = MessagesQuery(
        generation=run.generation,
        after=int(after) if after.isascii() and after.isdigit() and 0 < len(after) < 16 else None,
        limit=MESSAGES,
    )
    found = page.shown(list_messages(page.reading(query)))
    rows = [_row(page, run, one) for one in found.items]
    address = partial(page.links.page, "runs", run.id, generation=run.generation, tab="messages")
    following = None if found.next is None else str(found.next)
    return join(
        table(_HEADS, rows, caption="Messages, newest first", empty="It was sent no messages."),
        list_nav(address, page.query.after, following, first="Newest", next_="Older"),
    )


def _row(page: Page[RunQuery], run: Run, one: MessageInfo) -> tuple[Content, ...]:
    address = page.links.page("runs", run.id, generation=run.generation, tab="history", row=one.number)
    return (
        el("a", f"{one.number:,}", href=address),
        instant(one.sent_at),
        shortened(one.channel),
        None if one.sender is None else run_link(page, one.sender),
        join(badge(one.state.replace("_", " "), _TONES[one.state]), *_more(one)),
        shortened(one.key or ""),
    )


def _more(one: MessageInfo) -> tuple[Content, ...]:
    if one.why is not None:
        return (" ", shortened(one.why, 200))
    if one.state == "handed_on":
        return (f" to generation {one.generation + 1}",)
    return (" with a start",) if one.has_start else ()
