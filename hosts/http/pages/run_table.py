"""Tables of runs, as several pages have them."""

from collections.abc import Sequence
from typing import Final

from holdfast.hosts.http.pages.components import (
    SHOWN_MAX,
    attribute_links,
    cut,
    duration,
    instant,
    run_link,
    shortened,
    status_badge,
    table,
    table_row,
)
from holdfast.hosts.http.pages.html import Content, Html, el
from holdfast.hosts.http.pages.page import Page
from holdfast.hosts.inspection.run_info import RunInfo

HEADS: Final = ("Status", "Run", "Workflow", "Created", "Took", "Reason", "Attributes")
SELECT: Final = "Select"
ATTRIBUTES: Final = 3
"""How many attributes of a run a table shows."""


def run_table(
    page: Page, runs: Sequence[RunInfo], *, caption: str, empty: str, form_id: str | None = None
) -> Html:
    """Return a table of runs, or a sentence in place of an empty one.

    Args:
        page: The page.
        runs: The runs.
        caption: What it lists, for screen readers.
        empty: The sentence.
        form_id: The id of a form. It gets a box in each row, whose value is the id of the run.
    """
    heads = HEADS if form_id is None else (SELECT, *HEADS)
    rows = [_row(page, page.shown(one), heads, form_id) for one in runs]
    return table(heads, rows, caption=caption, empty=empty)


def _row(page: Page, one: RunInfo, heads: Sequence[str], form_id: str | None) -> Html:
    cells: Sequence[Content] = (
        *(() if form_id is None else (_box(one.id, form_id),)),
        status_badge(one.status),
        run_link(page, one.id),
        shortened(f"{one.workflow} @{one.version}"),
        instant(one.created_at),
        # Not that of an active run: a row changes only when its run does.
        duration(one.duration) if one.ended_at is not None else None,
        None if one.error is None else shortened(one.error.text or one.error.code),
        attribute_links(page, one.attributes, ATTRIBUTES),
    )
    return table_row(heads, cells, data_key=one.key)


def _box(run_id: str, form_id: str) -> Html:
    label = f"Select {cut(run_id, SHOWN_MAX)}"
    return el("input", type="checkbox", name="ids", value=run_id, form=form_id, aria_label=label)
