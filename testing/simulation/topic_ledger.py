"""The ledger of topics: every message with its number, and what each subscription must have got of them (X5, X6).

- X5: a subscription gets each message that it selects, from the instant on from which it counts, up to the last one
  that it has got. A run that another generation replaces while it is active loses nothing by that.
- X6: no message is deleted before it has expired, or while a subscription may still get it. In the end, each has a
  number and is delivered.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final, TypeAlias

import attrs

from holdfast.kernel.commands import TopicDeliver
from holdfast.kernel.history import events
from holdfast.kernel.invariants import Violation
from holdfast.kernel.topics.selections import texts_from
from holdfast.ports.changes import Delete, Insert, Update
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import Run, RunName
from holdfast.ports.records.topic import (
    MessageName,
    SubscriptionRow,
    TopicMessageRow,
    TopicName,
    TopicRow,
)
from holdfast.ports.records.values import Micros
from holdfast.ports.tables import SUBSCRIPTIONS, TOPIC_MESSAGES
from holdfast.ports.working_set import Tables
from holdfast.testing.simulation.group_ledger import GroupLedger
from holdfast.testing.simulation.store import Commit
from holdfast.testing.simulation.trigger_ledger import TriggerLedger

LAG_MAX: Final[Micros] = 5_000_000
"""By how much the clock of a host may be behind that of another one."""

Since: TypeAlias = Callable[[Run], Micros]
"""Returns the instant from which a subscription counts that begins in a generation of a run."""


@attrs.define(kw_only=True)
class Span:
    """A subscription, from its beginning to its end, through the generations of its run that keep it."""

    run: str
    topic: TopicName
    selection: Mapping[str, str]
    since: Micros
    begun_at: Micros
    """Messages that were deleted by then are not to be had."""
    after: int = 0
    """The last number that an earlier generation of the run has got."""
    got: list[int] = attrs.field(factory=list[int])


class TopicLedger:
    """Records the messages of topics, also those that are deleted later, and checks what subscribers get."""

    def __init__(self, since: Since) -> None:
        self.seen = Counter[str]()
        """How often something happened that few histories have."""
        self.triggers = TriggerLedger()
        self.groups = GroupLedger()
        self._since = since
        self._messages: dict[TopicName, dict[int, TopicMessageRow]] = {}
        self._recorded_at: dict[tuple[str, int], Micros] = {}
        """When subscriptions were committed, by run and row: a process may freeze after it has read the time."""
        self._deleted_at: dict[tuple[TopicName, int], Micros] = {}

    def before(self, tables: Tables, commit: Commit, now: Micros) -> Iterator[Violation]:
        """Check and record a commit; `tables` are the rows before it."""
        for change in commit.changes:
            match change:
                case Insert(TopicMessageRow() as message) | Update(TopicMessageRow() as message):
                    known = tables.topic_messages.get(message.message_name)
                    if known is not None and known.expires_at < message.expires_at:
                        self.seen["kept longer"] += 1
                    if message.number is not None:
                        name = TopicName(message.namespace, message.topic)
                        self._messages.setdefault(name, {})[message.number] = message
                case Insert(HistoryRow(type=events.TopicSubscribed.type) as row):
                    self._recorded_at[row.run, row.number] = now
                case Delete(table, MessageName() as key) if table is TOPIC_MESSAGES:
                    self.seen["deleted"] += 1
                    number = tables.topic_messages[key].number or 0
                    self._deleted_at[TopicName(key.namespace, key.topic), number] = now
                    kept_from = _kept_from(tables, commit, TopicName(key.namespace, key.topic))
                    yield from (
                        Violation("X6", key.topic, what) for what in _deleted(tables, key, kept_from, now)
                    )
                case _:
                    pass
        yield from self.triggers.before(tables, commit, self._messages)
        yield from self.groups.before(tables, commit)
        self._count(tables, commit)

    def _count(self, tables: Tables, commit: Commit) -> None:
        is_delivery = any(isinstance(one, TopicDeliver) for one in commit.sent)
        for change in commit.changes:
            match change:
                case Insert(TopicRow(after_subscription=str())) | Update(TopicRow(after_subscription=str())):
                    self.seen["partial"] += 1
                case Update(SubscriptionRow() as row):
                    known = tables.subscriptions.get(row.subscription_name)
                    if known is not None and known.next_number is not None and is_delivery:
                        self.seen["caught up" if row.next_number is None else "caught up in part"] += 1
                case Insert(SubscriptionRow() as row) if row.subscription_name in tables.subscriptions:
                    self.seen["subscribed again"] += 1
                case Delete(table, _) if table is SUBSCRIPTIONS:
                    self.seen["ended"] += 1
                case Insert(HistoryRow() as row):
                    self._count_row(tables, row)
                case _:
                    pass

    def _count_row(self, tables: Tables, row: HistoryRow) -> None:
        match events.event_of(row):
            case events.SignalReceived(topic=str(), again=again):
                self.seen["delivered" if again is None else "delivered again"] += 1
                run = tables.runs.get(row.run)
                if again is None and run is not None and run.generation > 1:
                    self.seen["delivered to a later generation"] += 1
            case events.MessagePublished():
                self.seen["published by a run"] += 1
            case _:
                pass

    # The end --------------------------------------------------------------------------------------------------------

    def wrong(self, tables: Tables) -> Iterator[str]:
        """Yield what is wrong when everything has ended."""
        for message in tables.topic_messages.values():
            if message.number is None:
                yield f"X6: message {message.id} of {message.topic} was never delivered"
        for topic in tables.topics.values():
            if topic.after_subscription is not None:
                yield f"X6: only some subscribers of {topic.name} have message {topic.last + 1}"
        yield from self.triggers.wrong(tables)
        yield from self.groups.wrong(tables, self._messages)
        runs: dict[RunName, list[Run]] = {}
        for run in sorted(tables.runs.values(), key=attrgetter("generation")):
            runs.setdefault(run.name, []).append(run)
        for generations in runs.values():
            for span in self.spans(tables, generations):
                yield from self._missing(span)

    def _missing(self, span: Span) -> Iterator[str]:
        messages = self._messages.get(span.topic, {})
        where = f"X5: the subscription of {span.run} to {span.topic.name} {dict(span.selection)}"
        for number in span.got:
            message = messages.get(number)
            if message is None:
                yield f"{where} got message {number}, which does not exist"
            elif not _fits(span.selection, message):
                yield f"{where} got message {number}, which has {message.attributes}"
            elif message.at < span.since:
                yield f"{where} got message {number}, which was published before {span.since}: {message.at}"
        last = span.got[-1] if span.got else 0
        missing = [
            number
            for number, message in sorted(messages.items())
            if span.after < number < last
            and message.at >= span.since
            and self._deleted_at.get((span.topic, number), span.begun_at + LAG_MAX + 1)
            > span.begun_at + LAG_MAX
            and _fits(span.selection, message)
            and number not in span.got
        ]
        if missing:
            yield f"{where} got messages {span.got}, but not {missing}"
        if span.got != sorted(set(span.got)):
            yield f"{where} got messages in this order: {span.got}"

    def spans(self, tables: Tables, generations: Sequence[Run]) -> list[Span]:
        """Return the subscriptions of a run in the order of their beginnings."""
        found: list[Span] = []
        open_spans: dict[str, Span] = {}
        before: Run | None = None
        for run in generations:
            if before is None or not before.is_continued:
                open_spans = _kept(tables, before, run, open_spans) if run.rerun_of is not None else {}
                found += open_spans.values()
            for row in tables.history[run.key]:
                match events.event_of(row):
                    case events.TopicSubscribed(channel=channel, group=None) as event if (
                        channel not in open_spans
                    ):
                        open_spans[channel] = Span(
                            run=run.id,
                            topic=TopicName(run.namespace, event.topic),
                            selection={name: str(text) for name, text in event.selection.items()},
                            since=self._since(run),
                            begun_at=self._recorded_at.get((row.run, row.number), row.at),
                        )
                        found.append(open_spans[channel])
                    case events.TopicUnsubscribed(channel=channel):
                        open_spans.pop(channel, None)
                    case events.SignalReceived(channel=channel, number=int(number), again=None):
                        if channel in open_spans:
                            open_spans[channel].got.append(number)
                    case _:
                        pass
            before = run
        return found


def _fits(selection: Mapping[str, str], message: TopicMessageRow) -> bool:
    return selection.items() <= texts_from(message.attributes).items()


def _kept(tables: Tables, before: Run | None, run: Run, open_spans: Mapping[str, Span]) -> dict[str, Span]:
    """Return the subscriptions that a rerun keeps.

    Those of an active run stay. Of an ended one, those that kept rows have begun count from the beginning of the rerun.
    """
    assert before is not None
    rows = tables.history[before.key]
    is_replaced = any(_is_replaced(row) for row in rows)
    channels = set(open_spans) if is_replaced else _subscribed_in(tables, run)
    return {
        channel: attrs.evolve(
            span,
            since=span.since if is_replaced else run.created_at,
            after=max([span.after, *span.got]),
            begun_at=run.created_at,
            got=[],
        )
        for channel, span in open_spans.items()
        if channel in channels
    }


def _is_replaced(row: HistoryRow) -> bool:
    """Return whether a row ends an active generation because of the next one."""
    match events.event_of(row):
        case events.RunTerminated(rerun=rerun):
            return rerun is not None
        case events.RunFailed(retry_at=at):
            return at is not None
        case _:
            return False


def _subscribed_in(tables: Tables, run: Run) -> set[str]:
    """Return the channels of the subscriptions that the kept rows of a rerun have begun and not ended."""
    channels: set[str] = set()
    for row in tables.whole_history(run):
        if row.run == run.key:
            break
        match events.event_of(row):
            case events.TopicSubscribed(channel=channel, group=None):
                channels.add(channel)
            case events.TopicUnsubscribed(channel=channel):
                channels.discard(channel)
            case _:
                pass
    return channels


def _kept_from(tables: Tables, commit: Commit, name: TopicName) -> int:
    """Return the number of the first message that a topic keeps after a commit."""
    topics = [
        change.record
        for change in commit.changes
        if isinstance(change, Insert | Update) and isinstance(change.record, TopicRow)
    ]
    found = [one.kept_from for one in (*tables.topics.values(), *topics) if one.topic_name == name]
    return found[-1] if found else 0


def _deleted(tables: Tables, key: MessageName, kept_from: int, now: Micros) -> Iterator[str]:
    """Yield why a message must not be deleted."""
    message = tables.topic_messages[key]
    topic = tables.topics.get(TopicName(key.namespace, key.topic))
    is_beyond = (message.number or 0) < kept_from
    if message.expires_at > now and not is_beyond:
        yield f"message {key.id} was deleted at {now}, but expires at {message.expires_at}"
    if message.number is None or topic is None or message.number > topic.last:
        yield f"message {key.id} was deleted, but was not delivered"
        return
    for row in tables.subscriptions.values():
        if (row.namespace, row.topic, row.next_number is None) != (key.namespace, key.topic, False):
            continue
        is_due = (row.next_number or 0) <= message.number and message.at >= row.since
        if is_due and _fits(texts_from(row.selection), message):
            yield f"message {key.id} was deleted, but run {row.run_id} has not got it yet"
    for one in tables.triggers.values():
        if (one.namespace, one.topic) == (key.namespace, key.topic) and one.next_number <= message.number:
            yield f"message {key.id} was deleted, but trigger {one.name} has not handled it yet"
