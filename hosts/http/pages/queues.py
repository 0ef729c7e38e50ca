"""The page of queues and limits: what waits for a worker or a slot, and why."""

from typing import Final

import attrs

from holdfast.hosts.http.limit_operations import list_limits
from holdfast.hosts.http.operations import Nothing, Table
from holdfast.hosts.http.pages.components import badge, counted, duration, instant, region, shortened, table
from holdfast.hosts.http.pages.forms import action_form, filter_form, folded_form, text_field
from holdfast.hosts.http.pages.html import Content, Html, el, join
from holdfast.hosts.http.pages.page import Answer, Page
from holdfast.hosts.http.pages.shell import page_operation
from holdfast.hosts.inspection.limits import LimitInfo
from holdfast.hosts.inspection.workers import QueueInfo

LIMITS: Final = 200
"""How many limits a page shows."""


@attrs.frozen(kw_only=True)
class QueuesQuery:
    """The query parameters of the page of queues."""

    set: str = ""
    """The name of a limit to set that is not listed."""


def queues_page(page: Page[QueuesQuery]) -> Answer:
    """Show the queues and the limits."""
    limits = list_limits(page.reading(Nothing())).items
    shown = [one for one in limits if not one.name.startswith("queue:")]
    content = join(
        el("h1", "Queues"),
        region("queues", _queues(page, page.call.engine.queues())),
        el("h2", "Limits"),
        region("limits", _limits(page, shown[:LIMITS])),
        el("p", f"The first {LIMITS:,} of {len(shown):,} limits.", class_="note")
        if len(shown) > LIMITS
        else None,
        _other_limit(page) if page.may("limit.set") else None,
    )
    return Answer(title="Queues", content=content, section="queues", watch=page.links.api_path("queue.list"))


def _queues(page: Page, queues: tuple[QueueInfo, ...]) -> Html:
    rows = [
        (
            join(shortened(one.name), " ", badge("paused", "waiting") if one.is_paused else None),
            counted(one.queued, more=one.is_partial),
            counted(one.running, more=one.is_partial),
            counted(one.sleeping, more=one.is_partial),
            None if one.waiting_since is None else duration(page.now - one.waiting_since),
            f"{one.workers:,} with {one.slots:,} slots",
            _code(one),
            _queue_actions(page, one),
        )
        for one in queues
    ]
    heads = ("Queue", "Queued", "Running", "Sleeping", "Oldest waits", "Workers", "Code", "Actions")
    return table(heads, rows, caption="Queues", empty="No queue has work, and no worker serves one.")


def _code(queue: QueueInfo) -> Html | None:
    entries = [
        el(
            "li",
            shortened(one.definition),
            f": {one.queued:,} queued, {one.workers:,} workers",
            join(" ", badge("no live worker has this code", "bad")) if one.is_unserved else None,
        )
        for one in queue.code
    ]
    if not entries:
        return None
    is_open = bool(queue.unserved)
    return el("details", el("summary", f"{len(entries)} kinds of code"), el("ul", entries), open=is_open)


def _queue_actions(page: Page, queue: QueueInfo) -> Html | None:
    path = {"name": queue.name}
    if queue.is_paused:
        return action_form(page, "queue.resume", "Resume", path=path)
    form = action_form(
        page, "queue.pause", "Pause the queue", text_field("reason", "Reason, for people"), path=path
    )
    return folded_form("Pause…", form)


def _limits(page: Page, limits: list[LimitInfo]) -> Html:
    rows = [
        (
            shortened(one.name),
            _slots(one),
            _rate(one),
            f"{one.waiting:,}" if one.waiting else None,
            None if one.waiting_since is None else duration(page.now - one.waiting_since),
            _set_by(one),
            _limit_actions(page, one),
        )
        for one in limits
    ]
    heads = ("Limit", "Slots", "Rate", "Waiting", "Oldest waits", "Set", "Actions")
    return table(heads, rows, caption="Limits", empty="No limit is set, and nothing waits for one.")


def _slots(one: LimitInfo) -> str:
    if one.slots is None:
        return ""
    planned = f", {one.planned_slots:,} in the code" if one.planned_slots not in {None, one.slots} else ""
    return f"{one.under_way:,} of {one.slots:,}{planned}"


def _rate(one: LimitInfo) -> str:
    if one.rate_limit is None:
        return ""
    return f"{one.started:,} of {one.rate_limit:,} in {duration(one.rate_period)}"


def _set_by(one: LimitInfo) -> Content:
    if not one.is_set:
        return None
    by = "" if one.actor is None else f" by {one.actor}"
    reason = f": {one.reason}" if one.reason else ""
    return join(instant(one.set_at), shortened(f"{by}{reason}"))


def _limit_actions(page: Page, one: LimitInfo) -> Html:
    why = text_field("reason", "Reason, for people")
    clear = action_form(page, "limit.clear", "Clear the limit", why, path={"name": one.name})
    return join(
        folded_form("Set…", _set_form(page, one.name)), folded_form("Clear…", clear) if one.is_set else None
    )


def _set_form(page: Page, name: str) -> Html | None:
    return action_form(
        page,
        "limit.set",
        "Set the limit",
        text_field("slots", "Slots", kind="number"),
        text_field("rate/number/limit", "Starts", kind="number", hint="with a period, for rates"),
        text_field("rate/number/period_seconds", "in so many seconds", kind="number"),
        text_field("reason", "Reason, for people"),
        path={"name": name},
        return_to=page.links.path(page.links.page("queues")),
    )


def _other_limit(page: Page[QueuesQuery]) -> Html:
    wanted = page.query.set.strip()
    form = join(el("h3", shortened(wanted)), _set_form(page, wanted)) if wanted else None
    hint = "such as run:acme, stage:order/charge or step:charge"
    search = filter_form(text_field("set", "Another limit", wanted, hint=hint), label="Set…")
    return join(search, form)


OPERATIONS: Final[Table] = (page_operation("page.queues", "/queues", queues_page, query=QueuesQuery),)
