"""What a run knows of its messages beside their rows: which nobody has received, and which channels are closed."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, cast

import attrs

from holdfast.ports.json import canonical, parse
from holdfast.ports.structs import evolve, frozen


@frozen(kw_only=True)
class Mailbox:
    """The messages of one generation of a run, by the numbers of their rows.

    Attributes:
        unread: Those that its function has not received, as far as is recorded; ascending.
        starts: Of those among them that came with a start, the row that has it: the next generation is to begin by it
            if this one ends before they are received.
        closed: The channels that it has closed, sorted.
    """

    unread: tuple[int, ...] = ()
    starts: Mapping[int, int] = attrs.field(factory=dict[int, int])
    closed: tuple[str, ...] = ()

    def put(self, number: int, start: int | None = None) -> "Mailbox":
        """Return it with a message more, which came with the start of this row, if with any."""
        starts = self.starts if start is None else {**self.starts, number: start}
        return evolve(self, unread=(*self.unread, number), starts=starts)

    def received(self, numbers: Iterable[int]) -> "Mailbox":
        """Return it without these messages. Those that it does not have change nothing."""
        taken = frozenset(numbers)
        if taken.isdisjoint(self.unread):
            return self
        return evolve(
            self,
            unread=tuple(number for number in self.unread if number not in taken),
            starts={number: row for number, row in self.starts.items() if number not in taken},
        )

    def without_starts(self) -> "Mailbox":
        """Return it with no message by which the next generation is to begin: somebody wants the run to end."""
        return evolve(self, starts={}) if self.starts else self

    def close(self, channel: str) -> "Mailbox":
        """Return it with this channel closed, too."""
        return evolve(self, closed=tuple(sorted({*self.closed, channel})))

    def rows(self) -> tuple[int, ...]:
        """Return the numbers of the rows that have the messages and their starts; ascending."""
        return tuple(sorted({*self.unread, *self.starts.values()}))

    def to_text(self) -> str | None:
        """Return its JSON text; None if there is nothing to say."""
        fields: dict[str, object] = {}
        if self.unread:
            fields["unread"] = _spans(self.unread)
        if self.starts:
            fields["starts"] = sorted([number, row] for number, row in self.starts.items())
        if self.closed:
            fields["closed"] = list(self.closed)
        return canonical(fields) if fields else None


EMPTY: Final = Mailbox()


def mailbox_from(text: str | None) -> Mailbox:
    """Return the mailbox of which this is the `to_text`."""
    if text is None:
        return EMPTY
    fields = cast("dict[str, object]", parse(text))
    spans = cast("Sequence[Sequence[int]]", fields.get("unread", ()))
    starts = cast("Sequence[tuple[int, int]]", fields.get("starts", ()))
    return Mailbox(
        unread=tuple(chain.from_iterable(range(first, last + 1) for first, last in spans)),
        starts=dict(starts),
        closed=tuple(cast("Sequence[str]", fields.get("closed", ()))),
    )


def _spans(numbers: Sequence[int]) -> list[list[int]]:
    """Return numbers that ascend as spans, each by its first and its last: mostly they follow each other."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return spans
