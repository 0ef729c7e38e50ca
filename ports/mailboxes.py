"""The state of a run's mailbox: which messages its function has not received, and which channels are closed.

The messages themselves are history rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, cast

import attrs

from holdfast.ports.json import canonical, parse
from holdfast.ports.structs import evolve, frozen


@frozen(kw_only=True)
class Mailbox:
    """The unread messages of one generation, by the numbers of their history rows.

    Attributes:
        unread: The messages that the function has not received, as far as is recorded; ascending.
        starts: For an unread message that was sent with a start, the number of the row of that start. If this
            generation ends before the message is received, the next one begins with it.
        closed: The channels that the function has closed, sorted.
        subscribed: The channels in which it gets messages of topics, sorted.
    """

    unread: tuple[int, ...] = ()
    starts: Mapping[int, int] = attrs.field(factory=dict[int, int])
    closed: tuple[str, ...] = ()
    subscribed: tuple[str, ...] = ()

    def put(self, number: int, start: int | None = None) -> "Mailbox":
        """Return the mailbox with one more message; `start` is the row of the start that it was sent with, if any."""
        starts = self.starts if start is None else {**self.starts, number: start}
        return evolve(self, unread=(*self.unread, number), starts=starts)

    def received(self, numbers: Iterable[int]) -> "Mailbox":
        """Return the mailbox without these messages. Unknown numbers are ignored."""
        taken = frozenset(numbers)
        if taken.isdisjoint(self.unread):
            return self
        return evolve(
            self,
            unread=tuple(number for number in self.unread if number not in taken),
            starts={number: row for number, row in self.starts.items() if number not in taken},
        )

    def without_starts(self) -> "Mailbox":
        """Return the mailbox with `starts` cleared, so that no message begins another generation: the run is to end."""
        return evolve(self, starts={}) if self.starts else self

    def close(self, channel: str) -> "Mailbox":
        """Return the mailbox with this channel closed."""
        return evolve(self, closed=tuple(sorted({*self.closed, channel})))

    def subscribe(self, channel: str) -> "Mailbox":
        """Return the mailbox with a channel for messages of a topic."""
        return evolve(self, subscribed=tuple(sorted({*self.subscribed, channel})))

    def unsubscribe(self, channel: str) -> "Mailbox":
        """Return the mailbox without a channel for messages of a topic."""
        return evolve(self, subscribed=tuple(one for one in self.subscribed if one != channel))

    def rows(self) -> tuple[int, ...]:
        """Return the numbers of the rows of the messages and their starts, ascending."""
        return tuple(sorted({*self.unread, *self.starts.values()}))

    def to_text(self) -> str | None:
        """Return the mailbox as JSON text; None if it is empty."""
        fields: dict[str, object] = {}
        if self.unread:
            fields["unread"] = _spans(self.unread)
        if self.starts:
            fields["starts"] = sorted([number, row] for number, row in self.starts.items())
        if self.closed:
            fields["closed"] = list(self.closed)
        if self.subscribed:
            fields["subscribed"] = list(self.subscribed)
        return canonical(fields) if fields else None


EMPTY: Final = Mailbox()


def mailbox_from(text: str | None) -> Mailbox:
    """Return the mailbox that `to_text` encoded."""
    if text is None:
        return EMPTY
    fields = cast("dict[str, object]", parse(text))
    spans = cast("Sequence[Sequence[int]]", fields.get("unread", ()))
    starts = cast("Sequence[tuple[int, int]]", fields.get("starts", ()))
    return Mailbox(
        unread=tuple(chain.from_iterable(range(first, last + 1) for first, last in spans)),
        starts=dict(starts),
        closed=tuple(cast("Sequence[str]", fields.get("closed", ()))),
        subscribed=tuple(cast("Sequence[str]", fields.get("subscribed", ()))),
    )


def _spans(numbers: Sequence[int]) -> list[list[int]]:
    """Return ascending numbers as [first, last] spans: most of them are consecutive."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return spans
