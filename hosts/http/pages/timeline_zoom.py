"""The part of the time of a run that a timeline shows: `from` and `to` in its address, and links to other parts."""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

import attrs

from holdfast.hosts.http.json_input import invalid
from holdfast.hosts.http.pages.forms import filter_form, text_field
from holdfast.hosts.http.pages.html import Html, Link, el, join
from holdfast.hosts.http.pages.links import QueryValue
from holdfast.hosts.http.pages.page import Page
from holdfast.hosts.http.pages.run_history import kept_fields
from holdfast.hosts.http.pages.run_query import RunQuery
from holdfast.hosts.inspection.time_windows import Window
from holdfast.ports.clock import micros
from holdfast.ports.records.run import Run
from holdfast.ports.records.values import Micros

TIMES: Final = 4
"""How many times smaller or larger the next part is."""
LENGTH_MIN: Final = 1_000
"""The shortest part, in microseconds."""
_SECONDS: Final = re.compile(r"-?[0-9]{1,10}(\.[0-9]{1,6})?")
_SECOND: Final = 1_000_000


@attrs.frozen
class Zoom:
    """Reads and makes addresses of parts of the time of a run."""

    page: Page[RunQuery]
    run: Run

    @property
    def whole(self) -> Window:
        """The time of the run, until now if it has not ended."""
        end = micros(self.page.now) if self.run.ended_at is None else self.run.ended_at
        return Window(first=self.run.created_at, last=max(end, self.run.created_at + LENGTH_MIN))

    def chosen(self) -> Window | None:
        """Return the part in the address; None without one. HttpError if it is not understood."""
        query, whole = self.page.query, self.whole
        first, last = self._micros("from", query.from_), self._micros("to", query.to)
        if first is None and last is None:
            return None
        found = Window(
            first=whole.first if first is None else first, last=whole.last if last is None else last
        )
        if found.length < LENGTH_MIN:
            raise invalid("to", "it must be at least a millisecond after `from`")
        return found

    def _micros(self, name: str, text: str) -> Micros | None:
        if not text.strip():
            return None
        if not _SECONDS.fullmatch(text.strip()):
            raise invalid(name, f"{text!r:.80} is not a number of seconds, such as 12.5")
        whole, _, part = text.strip().lstrip("-").partition(".")
        offset = int(whole) * _SECOND + int(part.ljust(6, "0"))
        return self.run.created_at + (-offset if text.strip().startswith("-") else offset)

    def link(self, first: Micros, last: Micros) -> Link:
        """Return the address of a part."""
        return self._address(self.seconds(first), self.seconds(last))

    def between(self, first: datetime, last: datetime) -> Link:
        """Return the address of the part between two instants."""
        start = micros(first)
        return self.link(start, max(micros(last), start + LENGTH_MIN))

    def _address(self, first: str | None, last: str | None) -> Link:
        query: dict[str, QueryValue] = {
            "generation": self.run.generation,
            "tab": "timeline",
            "from": first,
            "to": last,
        }
        return self.page.links.page("runs", self.run.id, **query)

    def seconds(self, at: Micros) -> str:
        """Return an instant as seconds since the run was created, as in the address."""
        offset = at - self.run.created_at
        text = f"{abs(offset) // _SECOND}.{abs(offset) % _SECOND:06}".rstrip("0").rstrip(".")
        return f"-{text}" if offset < 0 else text

    def nav(self, shown: Window, following: Window | None, others: Iterable[tuple[str, Link]] = ()) -> Html:
        """Return the links to other parts than the one that is shown, and the form for any part."""
        found = [*self._links(shown, following), *others]
        links = [el("a", text, href=address) for text, address in found]
        form = filter_form(
            *kept_fields(self.run, "timeline"),
            text_field("from", "From, in seconds", self.seconds(shown.first)),
            text_field("to", "To", self.seconds(shown.last)),
            label="Show",
        )
        return join(el("nav", links, class_="pages", aria_label="Parts of the time"), form)

    def _links(self, shown: Window, following: Window | None) -> Iterator[tuple[str, Link]]:
        whole, middle, half = self.whole, (shown.first + shown.last) // 2, shown.length // 2
        if shown.length >= LENGTH_MIN * TIMES:
            yield f"Zoom in {TIMES} times", self.link(middle - half // TIMES, middle + half // TIMES)
        if shown.first > whole.first or shown.last < whole.last:
            first = max(middle - half * TIMES, min(whole.first, shown.first))
            last = min(middle + half * TIMES, max(whole.last, shown.last))
            yield f"Zoom out {TIMES} times", self.link(first, last)
        if shown.first > whole.first:
            yield "Earlier", self.link(shown.first - half, shown.last - half)
        if shown.last < whole.last:
            yield "Later", self.link(shown.first + half, shown.last + half)
        if following is not None:
            yield (
                "The next bars",
                self.link(following.first, max(following.last, following.first + LENGTH_MIN)),
            )
        if self.page.query.from_ or self.page.query.to:
            yield "Without zoom", self._address(None, None)
