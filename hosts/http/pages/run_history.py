"""The history of a run, from its end, and its log."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from holdfast.hosts.http.pages.components import (
    badge,
    instant,
    json_value,
    list_nav,
    pages_nav,
    preview,
    scope_notice,
    shortened,
    table,
    table_row,
)
from holdfast.hosts.http.pages.forms import choice, filter_form, text_field
from holdfast.hosts.http.pages.html import Content, Html, Link, el, join
from holdfast.hosts.http.pages.page import Page
from holdfast.hosts.http.pages.run_query import RunQuery
from holdfast.hosts.http.principals import Scope
from holdfast.hosts.http.run_reads import LogQuery, read_log
from holdfast.hosts.inspection.run_info import RunEvent
from holdfast.ports.records.run import Run

ROWS: Final = 100
"""How many history rows a page shows."""
LINES: Final = 200
"""How many log lines a page shows."""
_HEADS: Final = ("Row", "Time", "Type", "Stage or step", "Data")
_LOG_HEADS: Final = ("Time", "Level", "Message", "Stage", "Attempt")
_LEVELS: Final = {
    "": "all levels",
    "info": "info and above",
    "warning": "warning and above",
    "error": "error and above",
}
_TONES: Final = {"error": "bad", "critical": "bad", "warning": "waiting"}


def history(page: Page[RunQuery], run: Run) -> Html:
    """Return a page of history rows, the newest first."""
    last = run.last_row
    newest = min(page.query.row or last, last)
    found = page.call.run.history(
        after=max(0, newest - ROWS), limit=min(ROWS, max(1, newest)), generation=run.generation
    )
    rows = [_row(page, run, page.shown(one)) for one in reversed(found) if one.number <= newest]
    listed = table(_HEADS, rows, caption="History, newest first", empty="The run has no history.")
    return join(row_form(run, "history", newest), listed, rows_nav(page, run, "history", newest, ROWS))


def row_form(run: Run, tab: str, newest: int) -> Html:
    """Return the form that leads to the page of a history that ends with a certain row."""
    return filter_form(
        *kept_fields(run, tab),
        text_field("row", f"Row, 1 to {run.last_row:,}", str(newest), kind="number"),
        label="Go to row",
    )


def rows_nav(page: Page, run: Run, tab: str, newest: int, rows: int) -> Html | None:
    """Return links to the pages of a history, of so many rows, beside the one that ends with row `newest`."""
    oldest, last = newest - rows, run.last_row
    older = None if oldest < 1 else _address(page, run, tab, row=oldest)
    newer = None if newest >= last else _address(page, run, tab, row=min(last, newest + rows))
    return pages_nav(newer, older, first="Newer")


def _row(page: Page[RunQuery], run: Run, one: RunEvent) -> Html:
    whole = page.links.api(
        "run.row_value", {"generation": run.generation}, run_id=run.id, number=str(one.number)
    )
    data: list[Content] = []
    if one.data:
        data.append(el("details", el("summary", _summary(one.data)), json_value(one.data)))
    if one.payload is not None:
        data.append(el("details", el("summary", "value"), preview(one.payload, whole)))
    cells: tuple[Content, ...] = (
        el("span", str(one.number), id=f"row-{one.number}"),
        instant(one.at),
        el("code", shortened(one.type)),
        shortened(_place(one.stage, one.item)),
        join(*data),
    )
    return table_row(_HEADS, cells)


def _summary(data: Mapping[str, object]) -> Content:
    return shortened(", ".join(data))


def log(page: Page[RunQuery], run: Run) -> Html:
    """Return a page of the log of a run, in order of time."""
    if not page.sees_values:
        return hidden_values()
    query = LogQuery(
        after=page.query.after, limit=LINES, level=page.query.level, stage=page.query.stage or None
    )
    found = read_log(page.reading(query))
    level = page.query.level or ""
    filters = filter_form(
        *kept_fields(run, "logs"),
        choice("level", "Level", _LEVELS, level),
        text_field("stage", "Stage", page.query.stage or ""),
    )
    rows = [
        (
            instant(one.at),
            badge(one.level, _TONES.get(one.level, "ended")),
            join(
                shortened(one.message, 2_000), el("details", el("summary", "fields"), json_value(one.fields))
            )
            if one.fields
            else shortened(one.message, 2_000),
            shortened(_place(one.stage, one.item)),
            None if one.attempt is None else str(one.attempt),
        )
        for one in found.items
    ]
    address = partial(_address, page, run, tab="logs", level=page.query.level, stage=page.query.stage)
    listed = table(_LOG_HEADS, rows, caption="Log lines, oldest first", empty="There are no such lines.")
    return join(filters, listed, list_nav(address, page.query.after, found.next, next_="Later"))


def _place(stage: str | None, item: int | None) -> str:
    return (stage or "") if item is None else f"{stage}, item {item}"


def hidden_values() -> Html:
    """Return the notice in place of what only the scope `payloads` shows."""
    return scope_notice(Scope.PAYLOADS, "What the code has written is not shown to you.")


def _address(page: Page, run: Run, tab: str = "history", **query: str | int | None) -> Link:
    return page.links.page("runs", run.id, generation=run.generation, tab=tab, **query)


def kept_fields(run: Run, tab: str) -> list[Html]:
    """Return the hidden fields of a filter that stays on this tab and generation."""
    fields = {"generation": str(run.generation), "tab": tab}
    return [el("input", type="hidden", name=name, value=value) for name, value in fields.items()]
