"""The state of a run's mailbox: which messages its function has not received, and which channels are closed.

Also which updates between it and other runs have no reply yet. The messages themselves are history rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple, cast

import attrs

from holdfast.ports.json import canonical, parse
from holdfast.ports.records.topic import GROUP_CHANNEL
from holdfast.ports.structs import evolve, frozen


class GroupMessage(NamedTuple):
    """An unread message that a run has as a member of a group, by its channel and its place in the group."""

    channel: str
    topic: str
    group_key: str
    number: int
    """Its number in the topic."""


@frozen
class ReplyAddress:
    """Where the reply to an update goes that another run has sent."""

    sender: str
    """The id of the run that sent it."""
    key: str
    """The key of the update: that of the sender's generation, a slash, and the call."""

    @property
    def call(self) -> str:
        """The call of the sender's function."""
        return self.key.partition("/")[2]


@frozen(kw_only=True)
class Mailbox:
    """The unread messages of one generation, by the numbers of their history rows, and its updates without a reply.

    Attributes:
        unread: The messages that the function has not received, as far as is recorded; ascending.
        starts: For an unread message that was sent with a start, the number of the row of that start. If this
            generation ends before the message is received, the next one begins with it.
        closed: The channels that the function has closed, sorted.
        subscribed: The channels in which it gets messages of topics, sorted.
        groups: Of the unread messages those that it has as a member of a group, by the numbers of their rows: they go
            back to the group when the generation ends.
        read_before: The unread messages of groups that an earlier generation has read: the channel of each, by the
            number of its row. They belong to the run, so they do not go back.
        returned: The numbers of the rows of messages that went back, ascending.
        updates: The updates that other runs have sent it and that have no answer yet, by row number.
        sent: The updates that its function has sent and whose replies have not arrived: the key of each, by call.
    """

    unread: tuple[int, ...] = ()
    starts: Mapping[int, int] = attrs.field(factory=dict[int, int])
    closed: tuple[str, ...] = ()
    subscribed: tuple[str, ...] = ()
    groups: Mapping[int, GroupMessage] = attrs.field(factory=dict[int, GroupMessage])
    read_before: Mapping[int, str] = attrs.field(factory=dict[int, str])
    returned: tuple[int, ...] = ()
    updates: Mapping[int, ReplyAddress] = attrs.field(factory=dict[int, ReplyAddress])
    sent: Mapping[str, str] = attrs.field(factory=dict[str, str])

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
            groups={number: one for number, one in self.groups.items() if number not in taken},
            read_before={number: one for number, one in self.read_before.items() if number not in taken},
        )

    def put_of_group(self, number: int, message: GroupMessage) -> "Mailbox":
        """Return the mailbox with one more message, which a member of a group got: it waits for no other."""
        return evolve(self.put(number), groups={**self.groups, number: message}).unsubscribe(message.channel)

    def mark_read_before(self, number: int) -> "Mailbox":
        """Return the mailbox with a message of a group as one that an earlier generation has read."""
        groups = dict(self.groups)
        channel = groups.pop(number).channel
        return evolve(self, groups=groups, read_before={**self.read_before, number: channel})

    def return_to_groups(self, numbers: Iterable[int]) -> "Mailbox":
        """Return the mailbox without these messages, which go back to their groups."""
        back = frozenset(numbers)
        return evolve(self.received(back), returned=tuple(sorted({*self.returned, *back})))

    def without_groups(self) -> "Mailbox":
        """Return what the next generation gets: no message of a group, and no member waits."""
        kept = self.received((*self.groups, *self.read_before))
        channels = tuple(one for one in self.subscribed if not one.startswith(GROUP_CHANNEL))
        return evolve(kept, subscribed=channels, returned=())

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

    def with_update(self, number: int, address: ReplyAddress) -> "Mailbox":
        """Return the mailbox with one more update of another run, in this row."""
        return evolve(self, updates={**self.updates, number: address})

    def without_updates(self, numbers: Iterable[int]) -> "Mailbox":
        """Return the mailbox without the updates of these rows: they have an answer."""
        answered = frozenset(numbers)
        left = {number: address for number, address in self.updates.items() if number not in answered}
        return evolve(self, updates=left)

    def with_sent(self, call: str, key: str) -> "Mailbox":
        """Return the mailbox with one more update that the function has sent."""
        return evolve(self, sent={**self.sent, call: key})

    def without_sent(self, call: str) -> "Mailbox":
        """Return the mailbox without the update of this call: its reply has arrived."""
        return evolve(self, sent={one: key for one, key in self.sent.items() if one != call})

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
        if self.groups:
            fields["groups"] = sorted([number, *message] for number, message in self.groups.items())
        if self.read_before:
            fields["read_before"] = sorted([number, channel] for number, channel in self.read_before.items())
        if self.returned:
            fields["returned"] = list(self.returned)
        if self.updates:
            fields["updates"] = sorted([number, to.sender, to.key] for number, to in self.updates.items())
        if self.sent:
            fields["sent"] = sorted([call, key] for call, key in self.sent.items())
        return canonical(fields) if fields else None


EMPTY: Final = Mailbox()


def mailbox_from(text: str | None) -> Mailbox:
    """Return the mailbox that `to_text` encoded."""
    if text is None:
        return EMPTY
    fields = cast("dict[str, object]", parse(text))
    spans = cast("Sequence[Sequence[int]]", fields.get("unread", ()))
    starts = cast("Sequence[tuple[int, int]]", fields.get("starts", ()))
    updates = cast("Sequence[tuple[int, str, str]]", fields.get("updates", ()))
    sent = cast("Sequence[tuple[str, str]]", fields.get("sent", ()))
    groups = cast("Sequence[tuple[int, str, str, str, int]]", fields.get("groups", ()))
    return Mailbox(
        unread=tuple(chain.from_iterable(range(first, last + 1) for first, last in spans)),
        starts=dict(starts),
        closed=tuple(cast("Sequence[str]", fields.get("closed", ()))),
        subscribed=tuple(cast("Sequence[str]", fields.get("subscribed", ()))),
        groups={one[0]: GroupMessage(*one[1:]) for one in groups},
        read_before=dict(cast("Sequence[tuple[int, str]]", fields.get("read_before", ()))),
        returned=tuple(cast("Sequence[int]", fields.get("returned", ()))),
        updates={number: ReplyAddress(sender, key) for number, sender, key in updates},
        sent=dict(sent),
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
