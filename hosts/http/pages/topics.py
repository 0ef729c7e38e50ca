"""The pages of topics and of triggers: how far each topic was delivered, and which runs its messages have started."""

from functools import partial
from typing import Final

import attrs

from holdfast.hosts.http.operations import Nothing, PageQuery, Table
from holdfast.hosts.http.pages.components import (
    badge,
    copy_button,
    facts,
    instant,
    list_nav,
    named,
    notice,
    region,
    run_link,
    shortened,
    table,
)
from holdfast.hosts.http.pages.forms import action_form, check_box, folded_form, text_field
from holdfast.hosts.http.pages.html import Content, Html, Link, el, join
from holdfast.hosts.http.pages.page import Answer, Page
from holdfast.hosts.http.pages.shell import page_operation
from holdfast.hosts.http.topic_operations import list_topics
from holdfast.hosts.http.trigger_operations import get_trigger, list_triggers
from holdfast.hosts.inspection.topics import TopicInfo
from holdfast.hosts.inspection.triggers import TriggerInfo
from holdfast.ports.queries.topics import COUNTED_MAX

_LISTED: Final = 100
_TONES: Final = {"active": "good", "paused": "waiting", "held": "bad"}
_OUTCOMES: Final = {"started": "good", "joined": "good", "existing": "ended", "refused": "bad"}


@attrs.frozen(kw_only=True)
class TopicsPageQuery:
    """The query parameters of the list of topics and triggers."""

    after: str | None = None
    """The `next` of the page of topics before."""
    triggers_after: str | None = None
    """The `next` of the page of triggers before."""


def topics_page(page: Page[TopicsPageQuery]) -> Answer:
    """List topics and triggers, each by name."""
    query, links = page.query, page.links
    topics = list_topics(page.reading(PageQuery(after=query.after or None, limit=_LISTED)))
    triggers = list_triggers(page.reading(PageQuery(after=query.triggers_after or None, limit=_LISTED)))
    rows = [
        (
            shortened(one.name),
            f"{one.last:,}",
            _count(one.messages),
            _count(one.undelivered),
            instant(one.undelivered_since),
            _count(one.subscriptions),
        )
        for one in map(page.shown, topics.items)
    ]
    heads = ("Topic", "Last number", "Messages", "Undelivered", "Since", "Subscriptions")
    to = partial(links.page, "topics")

    def of_triggers(after: str | None = None) -> Link:
        return to(after=query.after or None, triggers_after=after)

    content = join(
        el("h1", "Topics"),
        region(
            "topics", table(heads, rows, caption="Topics", empty="No topic has messages or subscriptions.")
        ),
        list_nav(partial(to, triggers_after=query.triggers_after or None), query.after, topics.next),
        _groups(tuple(map(page.shown, topics.items))),
        el("h2", "Triggers"),
        region("triggers", _triggers(page, tuple(map(page.shown, triggers.items)))),
        list_nav(
            of_triggers,
            query.triggers_after,
            triggers.next,
        ),
    )
    return Answer(title="Topics", content=content, section="topics", watch=links.api_path("topic.list"))


def _groups(topics: tuple[TopicInfo, ...]) -> Content:
    rows = [
        (
            shortened(one.name),
            shortened(topic.name),
            shortened(", ".join(f"{name}={text}" for name, text in one.selected.items())),
            f"{one.behind:,}",
            _count(one.returned),
            _count(one.waiting),
            instant(one.used_at),
        )
        for topic in topics
        for one in topic.groups
    ]
    if not rows:
        return None
    heads = ("Group", "Topic", "Selects", "Behind", "Went back", "Waiting members", "Last used")
    return join(el("h2", "Groups"), region("groups", table(heads, rows, caption="Groups", empty="")))


def _count(number: int) -> str:
    return f"{number:,}{'+' if number >= COUNTED_MAX else ''}"


def _triggers(page: Page[TopicsPageQuery], found: tuple[TriggerInfo, ...]) -> Html:
    links = page.links
    rows = [
        (
            badge(one.state, _TONES[one.state]),
            named(one.name, links.page("triggers", one.name)),
            shortened(_messages(one)),
            named(one.workflow, links.page("workflows", one.workflow)),
            f"{one.behind:,}",
            f"{one.started:,}",
            f"{one.refused:,}",
        )
        for one in found
    ]
    heads = ("State", "Trigger", "Messages", "Workflow", "Behind", "Runs started", "Refused")
    return table(heads, rows, caption="Triggers", empty="No messages start runs.")


def _messages(one: TriggerInfo) -> str:
    """Return which messages start runs: `orders country=nz`."""
    return " ".join([one.topic, *(f"{name}={text}" for name, text in sorted(one.selected.items()))])


def trigger_page(page: Page[Nothing]) -> Answer:
    """Show a trigger."""
    one = page.shown(get_trigger(page.call))
    content = join(
        el("h1", el("span", shortened(one.name, 300), class_="id"), " ", copy_button(one.name)),
        region(
            "head",
            _facts(page, one),
            None if one.problem is None else notice("bad", shortened(one.problem, 2_000)),
        ),
        el("div", _actions(page, one), class_="actions"),
        region("recent", el("h2", "Last messages"), _recent(page, one)),
        region("changes", el("h2", "Changes"), _changes(one)),
    )
    watch = page.links.api_path("trigger.get", name=one.name)
    return Answer(title=one.name[:200], content=content, section="topics", watch=watch)


def _facts(page: Page[Nothing], one: TriggerInfo) -> Html:
    paused_by = f" by {one.paused_by}" if one.paused_by else ""
    return facts(
        [
            ("State", badge(one.state, _TONES[one.state])),
            ("Messages", shortened(_messages(one))),
            ("Workflow", named(one.workflow, page.links.page("workflows", one.workflow))),
            ("Next message", f"{one.next_number:,}"),
            ("Behind", f"{one.behind:,}"),
            ("Paused", None if one.paused_at is None else join(instant(one.paused_at), shortened(paused_by))),
            ("Reason", shortened(one.pause_reason)),
            ("Runs started", f"{one.started:,}"),
            ("Refused", f"{one.refused:,}"),
            ("Since", instant(one.since)),
        ]
    )


def _actions(page: Page[Nothing], one: TriggerInfo) -> list[Html | None]:
    path = {"name": one.name}
    back = page.links.path(page.links.page("topics"))
    skip = check_box("skip", "Pass over the messages of the pause")
    why = text_field("reason", "Reason, for people")
    return [
        action_form(page, "trigger.resume", "Resume", skip, path=path)
        if one.state == "paused"
        else folded_form("Pause…", action_form(page, "trigger.pause", "Pause the trigger", why, path=path)),
        folded_form(
            "Remove…", action_form(page, "trigger.remove", "Remove the trigger", path=path, return_to=back)
        ),
    ]


def _recent(page: Page[Nothing], one: TriggerInfo) -> Html:
    rows = [
        (
            f"{message.number:,}",
            instant(message.at),
            badge(message.outcome, _OUTCOMES.get(message.outcome, "ended")),
            None if message.run is None else run_link(page, message.run),
            shortened(message.reason, 300),
        )
        for message in reversed(one.recent)
    ]
    heads = ("Number", "Handled", "Outcome", "Run", "Reason")
    return table(heads, rows, caption="Last messages, newest first", empty="No message has come yet.")


def _changes(one: TriggerInfo) -> Html:
    rows = [
        (instant(change.at), change.change, shortened(change.by), shortened(change.reason))
        for change in reversed(one.changes)
    ]
    return table(
        ("Time", "Change", "By", "Reason"), rows, caption="Changes", empty="It has not been changed."
    )


OPERATIONS: Final[Table] = (
    page_operation("page.topics", "/topics", topics_page, query=TopicsPageQuery),
    page_operation("page.trigger", "/triggers/{name}", trigger_page),
)
