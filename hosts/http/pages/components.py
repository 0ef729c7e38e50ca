"""What pages have in common: statuses, times, durations, tables, values, links to the next page."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.hosts.http.operations import Access
from holdfast.hosts.http.pages.html import Content, Html, Link, el, join
from holdfast.hosts.http.pages.page import Page
from holdfast.hosts.http.principals import Scope
from holdfast.hosts.inspection.value_previews import ValuePreview
from holdfast.ports.records.run import RunStatus
from holdfast.ports.validation import is_unicode

SHOWN_MAX: Final = 120
"""How many characters of an id, a name or a reason a list shows. Its tooltip has more."""
TITLE_MAX: Final = 1_000
"""How many characters a tooltip has."""
VALUE_MAX: Final = 16_384
"""How many characters of a value a page shows. What is longer can be read through the API."""

TONES: Final = {
    RunStatus.PENDING: "waiting",
    RunStatus.RUNNING: "active",
    RunStatus.PAUSED: "waiting",
    RunStatus.CANCELLING: "waiting",
    RunStatus.BLOCKED: "bad",
    RunStatus.COMPLETED: "good",
    RunStatus.FAILED: "bad",
    RunStatus.CANCELLED: "ended",
}
"""How the statuses are coloured. Their text always stands beside the colour."""


def status_badge(status: RunStatus | str) -> Html:
    """Return a status with its colour."""
    value = status.value if isinstance(status, RunStatus) else status
    tone = TONES.get(RunStatus(value)) if value in {one.value for one in RunStatus} else None
    return badge(value, tone or "ended")


def badge(text: str, tone: str) -> Html:
    """Return a short text with a colour: good, bad, active, waiting or ended."""
    return el("span", text, class_=f"badge {tone}")


def instant(at: datetime | None) -> Html | None:
    """Return an instant in UTC, which the script shows as the person has chosen; None for None."""
    if at is None:
        return None
    utc = at.astimezone(UTC)
    text = f"{utc:%Y-%m-%d %H:%M:%S}Z"
    return el("time", text, datetime=utc.isoformat(timespec="microseconds").replace("+00:00", "Z"))


def duration(length: timedelta | None) -> str:
    """Return a duration in the two largest units that it has; "" for None."""
    if length is None:
        return ""
    seconds = length.total_seconds()
    if seconds < 0:
        return "0 s"
    if seconds < 0.9995:  # more is rounded to a second
        return f"{seconds * 1_000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = max(60, int(seconds))
    for size, unit, small, small_unit in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            less = whole % size // small
            return f"{whole // size} {unit}" + (f" {less} {small_unit}" if less else "")
    return f"{whole} s"


def size(number: int) -> str:
    """Return a number of bytes for people."""
    if number < 1_000:
        return f"{number} B"
    for unit, scale in (("kB", 1_000), ("MB", 1_000_000)):
        if number < 1_000 * scale:
            return f"{number / scale:.1f} {unit}"
    return f"{number / 1_000_000_000:.1f} GB"


def cut(text: str, most: int) -> str:
    """Return a text of at most so many characters, for where no element can stand."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def shortened(text: str | None, most: int = SHOWN_MAX) -> Html | str | None:
    """Return a text; if it is long its beginning, with a longer part in the tooltip. None for None."""
    if text is None or len(text) <= most:
        return text
    return el("span", cut(text, most), title=text[:TITLE_MAX], class_="cut")


def counted(number: int, *, more: bool = False) -> str:
    """Return a number for people: "1,204", or "10,000+" if there are more than were counted."""
    return f"{number:,}+" if more else f"{number:,}"


def named(text: str, address: Link) -> Html:
    """Return a link with the name of something."""
    return el("a", shortened(text), href=address)


def run_link(page: Page, run_id: str) -> Html:
    """Return a link to the page of a run."""
    return el("a", shortened(run_id), href=page.links.page("runs", run_id), class_="id")


def table(
    heads: Sequence[str],
    rows: Iterable[Html | Iterable[Content]],
    *,
    caption: str,
    empty: str,
    **attributes: str,
) -> Html:
    """Return a table, or a sentence if it has no rows. On a narrow screen, each row is a card with these heads.

    Args:
        heads: The names of its columns.
        rows: The cells of each row; an element `tr` is taken as it is.
        caption: What it lists, for screen readers.
        empty: The sentence.
        attributes: Further attributes of the table.
    """
    body = [row if isinstance(row, Html) else table_row(heads, row) for row in rows]
    if not body:
        return el("p", empty, class_="empty")
    head = el("thead", el("tr", [el("th", one, scope="col") for one in heads]))
    return el(
        "div",
        el("table", el("caption", caption, class_="unseen"), head, el("tbody", body), **attributes),
        class_="wide",
        tabindex=0,
        role="region",
        aria_label=caption,
    )


def table_row(heads: Sequence[str], cells: Iterable[Content], **attributes: str | bool | None) -> Html:
    """Return a row of a table."""
    pairs = zip(heads, cells, strict=True)
    return el("tr", [el("td", cell, data_head=head) for head, cell in pairs], **attributes)


def facts(pairs: Iterable[tuple[str, Content]]) -> Html:
    """Return names with their values; those without one are left out."""
    shown = [el("div", el("dt", name), el("dd", value)) for name, value in pairs if value not in (None, "")]
    return el("dl", shown, class_="facts")


def region(name: str, *content: Content, tag: str = "section", **attributes: str | bool | None) -> Html:
    """Return a part of a page that is replaced when what the page watches has changed.

    Args:
        name: The name of the part, which no other part of the page has.
        content: What it contains.
        tag: Its element.
        attributes: Further attributes.
    """
    return el(tag, *content, data_region=name, **attributes)


def pages_nav(
    newer: Link | None, older: Link | None, *, first: str = "Newest", next_: str = "Older"
) -> Html | None:
    """Return links to the first and the next page of a list; None if there is only one."""
    if newer is None and older is None:
        return None
    return el(
        "nav",
        None if newer is None else el("a", first, href=newer, rel="first"),
        None if older is None else el("a", next_, href=older, rel="next"),
        class_="pages",
        aria_label="Pages of the list",
    )


def list_nav(
    address: Callable[..., Link],
    after: str | None,
    following: str | int | None,
    *,
    first: str = "First",
    next_: str = "Next",
) -> Html | None:
    """Return links to the first and the next page of a list; None if there is only one.

    Args:
        address: Returns the address of the list; called with `after`, that of a later page.
        after: Where this page begins; None for the first one.
        following: Where the next one begins; None for none.
        first: The text of the first link.
        next_: The text of the second one.
    """
    later = None if following is None else address(after=following)
    return pages_nav(None if after is None else address(), later, first=first, next_=next_)


def json_value(value: object) -> Html:
    """Return JSON data with indentation; a long text of it is cut, and its true size stands beside it."""
    return long_text(json.dumps(value, ensure_ascii=False, indent=2))


def long_text(text: str, most: int = VALUE_MAX) -> Html:
    """Return a text in its own lines; if it is long its beginning, with its true size."""
    if len(text) <= most:
        return el("pre", text, class_="value", tabindex=0)
    note = f"The first {most:,} of {len(text):,} characters ({size(len(text.encode(errors='replace')))})."
    return join(el("pre", text[:most], class_="value", tabindex=0), el("p", note, class_="note"))


def preview(value: ValuePreview | None, whole: Link | None = None) -> Html | None:
    """Return the preview of a stored value, with its true size and a link to the whole value if it is cut."""
    if value is None:
        return None
    link = None if whole is None else el("a", "the whole value", href=whole)
    if value.blob is not None:
        return el("p", "It is stored outside the database. ", link, class_="note")
    if value.text is not None:
        note = f"The first {len(value.text):,} characters of {size(value.size or 0)}. "
        return join(el("pre", value.text, class_="value", tabindex=0), el("p", note, link, class_="note"))
    return json_value(value.value)


def copy_button(text: str, label: str = "Copy") -> Html:
    """Return a button that copies a text; the script shows it."""
    return el("button", label, type="button", class_="copy", data_copy=text, hidden=True)


def notice(tone: str, *content: Content, **attributes: str) -> Html:
    """Return a box with a message: good, bad or waiting."""
    return el("div", *content, class_=f"notice {tone}", **attributes)


def scope_notice(scope: Scope | Access, text: str) -> Html:
    """Return the notice in place of something that needs a scope which the person lacks."""
    return notice("waiting", f"{text} That needs the scope ", el("code", scope.value), ".")


def attribute_links(page: Page, attributes: Mapping[str, str], most: int | None = None) -> Html | None:
    """Return links from attributes to the runs that have them; at most so many of them."""
    links = [
        join(_attribute_link(page, f"{name}={text}"), " ") for name, text in list(attributes.items())[:most]
    ]
    more = len(attributes) - len(links)
    return join(*links, f"and {more} more" if more else None) if links else None


def _attribute_link(page: Page, pair: str) -> Content:
    # No address can have half of a surrogate pair, which old runs may have in an attribute.
    if not is_unicode(pair):
        return shortened(pair, 60)
    return el("a", shortened(pair, 60), href=page.links.page("runs", attribute=pair))
