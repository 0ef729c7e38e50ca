"""The pages of schedules: their next times, the outcomes of their last times, and actions."""

from functools import partial
from typing import Final

import attrs

from holdfast.hosts.http.operations import Nothing, Table
from holdfast.hosts.http.pages.components import (
    badge,
    copy_button,
    facts,
    instant,
    list_nav,
    long_text,
    named,
    notice,
    region,
    run_link,
    shortened,
    table,
)
from holdfast.hosts.http.pages.forms import action_form, choice, filter_form, folded_form, text_field
from holdfast.hosts.http.pages.html import Content, Html, el, join
from holdfast.hosts.http.pages.page import Answer, Page
from holdfast.hosts.http.pages.shell import page_operation
from holdfast.hosts.http.schedule_operations import (
    NextQuery,
    SchedulesQuery,
    get_schedule,
    list_schedules,
    next_times,
    why_schedule,
)
from holdfast.hosts.inspection.schedules import ScheduleInfo

TIMES: Final = 5
"""How many next times a page shows."""
SEARCHED_MAX: Final = 1_000
"""How many schedules a search by a part of the name goes through."""
_TONES: Final = {"active": "good", "paused": "waiting", "blocked": "bad", "over": "ended", "late": "bad"}
_OUTCOMES: Final = {"started": "good", "skipped": "waiting", "superseded": "waiting", "existing": "ended"}


@attrs.frozen(kw_only=True)
class SchedulesPageQuery:
    """The query parameters of the list of schedules."""

    after: str | None = None
    """The `next` of the page before."""
    name: str = ""
    """A part of the name."""


def schedules_page(page: Page[SchedulesPageQuery]) -> Answer:
    """List schedules by name."""
    query, links = page.query, page.links
    wanted = SchedulesQuery(after=query.after or None, limit=SEARCHED_MAX if query.name else 100)
    found = list_schedules(page.reading(wanted))
    rows = [
        (
            badge(_state(page, one), _TONES.get(_state(page, one), "ended")),
            named(one.name, links.page("schedules", one.name)),
            named(one.workflow, links.page("workflows", one.workflow)),
            shortened(", ".join(one.when)),
            instant(one.next_at),
            _last_run(page, one),
        )
        for one in map(page.shown, found.items)
        if query.name.lower() in one.name.lower()
    ]
    heads = ("State", "Schedule", "Workflow", "When", "Next", "Last run")
    content = join(
        el("h1", "Schedules"),
        filter_form(text_field("name", "Part of the name", query.name)),
        region("list", table(heads, rows, caption="Schedules", empty="There is no such schedule.")),
        list_nav(partial(links.page, "schedules", name=query.name or None), query.after, found.next),
    )
    return Answer(
        title="Schedules", content=content, section="schedules", watch=links.api_path("schedule.list")
    )


def _state(page: Page, one: ScheduleInfo) -> str:
    return "late" if one.is_late(page.now) else one.state


def _last_run(page: Page, one: ScheduleInfo) -> Content:
    runs = [time.run_id for time in one.recent if time.run_id is not None and time.outcome == "started"]
    return run_link(page, runs[-1]) if runs else None


def schedule_page(page: Page[Nothing]) -> Answer:
    """Show a schedule."""
    one = page.shown(get_schedule(page.call))
    reasons = page.shown(why_schedule(page.call)).reasons
    times = next_times(page.reading(NextQuery(count=TIMES))).items if one.state == "active" else ()
    state = _state(page, one)
    why = el("ul", [el("li", shortened(reason.text, 2_000)) for reason in reasons])
    content = join(
        el("h1", el("span", shortened(one.name, 300), class_="id"), " ", copy_button(one.name)),
        region(
            "head",
            _facts(page, one, state),
            notice("bad" if state in {"blocked", "late"} else "waiting", why),
        ),
        el("div", _actions(page, one), class_="actions"),
        region(
            "next",
            el("h2", "Next times"),
            el("ol", [el("li", instant(at)) for at in times]) if times else _none(),
        ),
        region("recent", el("h2", "Last times"), _recent(page, one)),
        region("changes", el("h2", "Changes"), _changes(one)),
        join(el("h2", "Input of each run"), long_text(one.input)) if page.sees_values else None,
    )
    watch = page.links.api_path("schedule.get", name=one.name)
    return Answer(title=one.name[:200], content=content, section="schedules", watch=watch)


def _none() -> Html:
    return el("p", "No times follow.", class_="empty")


def _facts(page: Page, one: ScheduleInfo, state: str) -> Html:
    paused_by = f" by {one.paused_by}" if one.paused_by else ""
    return facts(
        [
            ("State", badge(state, _TONES.get(state, "ended"))),
            ("Workflow", named(one.workflow, page.links.page("workflows", one.workflow))),
            ("When", shortened(", ".join(one.when))),
            ("Overlap", one.overlap),
            ("Missed times", one.missed),
            ("Paused", None if one.paused_at is None else join(instant(one.paused_at), shortened(paused_by))),
            ("Reason", shortened(one.pause_reason)),
            ("Runs started", f"{one.runs_started:,}"),
            ("Times skipped", f"{one.times_skipped:,}"),
            ("Times missed", f"{one.times_missed:,}"),
        ]
    )


def _actions(page: Page, one: ScheduleInfo) -> list[Html | None]:
    path = {"name": one.name}
    why = text_field("reason", "Reason, for people")
    is_paused = one.state == "paused"
    backfill = action_form(
        page,
        "schedule.backfill",
        "Start the runs of these times",
        text_field("start", "From (UTC)", kind="datetime-local", required=True),
        text_field("end", "Before (UTC)", kind="datetime-local", required=True),
        choice("overlap", "Runs", {"queue": "one after the other", "allow": "at the same time"}),
        path=path,
    )
    back = page.links.path(page.links.page("schedules"))
    return [
        action_form(page, "schedule.resume", "Resume", path=path)
        if is_paused
        else folded_form("Pause…", action_form(page, "schedule.pause", "Pause the schedule", why, path=path)),
        action_form(page, "schedule.trigger", "Start a run now", path=path),
        folded_form("Backfill…", backfill),
        folded_form(
            "Remove…", action_form(page, "schedule.remove", "Remove the schedule", path=path, return_to=back)
        ),
    ]


def _recent(page: Page, one: ScheduleInfo) -> Html:
    rows = [
        (
            instant(time.at),
            instant(time.handled_at),
            badge(time.outcome, _OUTCOMES.get(time.outcome, "ended")),
            time.kind,
            None if time.run_id is None else run_link(page, time.run_id),
        )
        for time in reversed(one.recent)
    ]
    heads = ("Nominal time", "Handled", "Outcome", "Kind", "Run")
    return table(heads, rows, caption="Last times, newest first", empty="No time has come yet.")


def _changes(one: ScheduleInfo) -> Html:
    rows = [
        (instant(change.at), change.change, shortened(change.actor), shortened(change.reason))
        for change in reversed(one.changes)
    ]
    return table(
        ("Time", "Change", "By", "Reason"), rows, caption="Changes", empty="It has not been changed."
    )


OPERATIONS: Final[Table] = (
    page_operation("page.schedules", "/schedules", schedules_page, query=SchedulesPageQuery),
    page_operation("page.schedule", "/schedules/{name}", schedule_page),
)
