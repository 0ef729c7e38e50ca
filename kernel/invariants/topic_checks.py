"""Checks of topics (X1 to X4): each subscription gets each message that it selects once, in the order of the numbers.

X1: within a subscription, the numbers of the messages ascend. X2: a message in the history of a run is the stored one,
and fits the selection of the subscription. X3: the numbers of stored messages are unique, and those of messages that
were delivered. X4: a run that has not ended has the subscriptions that its mailbox lists, and of members that hold
a message of a group which the mailbox has unread; an ended one has none.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Final

from holdfast.kernel.history import events
from holdfast.kernel.invariants.row_events import event_of
from holdfast.kernel.invariants.snapshots import Snapshot
from holdfast.kernel.invariants.violations import Violation
from holdfast.kernel.topics.selections import texts_from
from holdfast.ports.mailboxes import Mailbox, mailbox_from
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import TERMINAL, Run, RunName
from holdfast.ports.records.topic import MessageName, TopicMessageRow, TopicName, TopicRow

_NUMBER: Final = attrgetter("number")
_REPLACES: Final = frozenset({events.RunTerminated.type, events.RunFailed.type})
_OF_TOPICS: Final = frozenset(
    {events.TopicSubscribed.type, events.TopicUnsubscribed.type, events.SignalReceived.type}
)


def topic_violations(snapshot: Snapshot, keys: Collection[str]) -> Iterator[Violation]:
    """Check X1 to X4, the first two of the runs with these keys only. Tables that were not read are not checked."""
    if snapshot.topic_messages is not None and snapshot.topics is not None:
        yield from _numbers(snapshot.topics, snapshot.topic_messages)
    if snapshot.subscriptions is not None:
        yield from _subscriptions(snapshot)
    if not snapshot.topic_messages and not snapshot.subscriptions:
        return
    wanted = {snapshot.runs[key].name for key in keys if key in snapshot.runs}
    generations: dict[RunName, list[Run]] = {}
    for run in snapshot.runs.values():
        if run.name in wanted:
            generations.setdefault(run.name, []).append(run)
    for runs in generations.values():
        runs.sort(key=attrgetter("generation"))
        yield from _in_order(runs, snapshot)
        for run in runs:
            if run.key in keys:
                yield from (Violation("X2", run.key, what) for what in _selected(run, snapshot))


def _numbers(
    topics: Mapping[TopicName, TopicRow], messages: Mapping[MessageName, TopicMessageRow]
) -> Iterator[Violation]:
    """X3: numbers are unique, and at most that of the message that is being delivered."""
    numbered: dict[TopicName, list[TopicMessageRow]] = {}
    for message in messages.values():
        if message.number is not None:
            numbered.setdefault(TopicName(message.namespace, message.topic), []).append(message)
    for name in sorted({*topics, *numbered}):
        found = sorted(numbered.get(name, ()), key=_NUMBER)
        for before, after in pairwise(found):
            if before.number == after.number:
                what = f"messages {before.id!r} and {after.id!r} both have number {after.number}"
                yield Violation("X3", name.name, what)
        topic = topics.get(name) or TopicRow(namespace=name.namespace, name=name.name)
        is_partial = topic.after_subscription is not None
        most = topic.last + is_partial
        for message in found:
            if (message.number or 0) < 1 or (message.number or 0) > most:
                what = f"message {message.id!r} has number {message.number}, but the numbers end with {most}"
                yield Violation("X3", name.name, what)
        if is_partial and not any(message.number == most for message in found):
            yield Violation("X3", name.name, f"some subscribers have message {most}, which is not stored")


def _subscriptions(snapshot: Snapshot) -> Iterator[Violation]:
    """X4: the subscriptions are those of the mailboxes of runs that have not ended."""
    assert snapshot.subscriptions is not None
    stored: dict[RunName, list[str]] = {}
    for name in sorted(snapshot.subscriptions):
        holds = snapshot.subscriptions[name].holds
        channel = name.channel if holds is None else _held(name.channel, holds)
        stored.setdefault(RunName(name.namespace, name.run_id), []).append(channel)
    newest: dict[RunName, Run] = {}
    for run in snapshot.runs.values():
        if run.name not in newest or newest[run.name].generation < run.generation:
            newest[run.name] = run
    for channels in stored.values():
        channels.sort()
    for run in snapshot.runs.values():
        listed = _listed(mailbox_from(run.mailbox)) if run.mailbox is not None else []
        if (run.status in TERMINAL or run is not newest[run.name]) and listed:
            yield Violation(
                "X4", run.key, f"the run has ended, but its mailbox lists subscriptions: {listed}"
            )
        elif run is newest[run.name] and listed != stored.get(run.name, []):
            what = f"the mailbox lists the subscriptions {listed}, but {stored.get(run.name, [])} are stored"
            yield Violation("X4", run.key, what)
    for unknown in sorted(stored.keys() - newest.keys()):
        what = f"the subscriptions {stored[unknown]} are those of a run that does not exist"
        yield Violation("X4", unknown.id, what)


def _listed(mailbox: Mailbox) -> list[str]:
    held = (_held(one.channel, one.number) for one in mailbox.groups.values())
    return sorted((*mailbox.subscribed, *held))


def _held(channel: str, number: int) -> str:
    return f"{channel} holds {number}"


def _in_order(runs: Sequence[Run], snapshot: Snapshot) -> Iterator[Violation]:
    """X1: through the generations of a run, the numbers of the messages of each subscription ascend.

    Messages that a generation gets again were counted in the generation before it.
    """
    last: dict[str, int] = {}
    """The last number in each channel that has a subscription."""
    before: Run | None = None
    for run in runs:
        if before is None or not before.is_continued:
            kept = frozenset[str]()
            if before is not None and run.rerun_of is not None:
                kept = frozenset(last) if _is_replaced(before, snapshot) else _open_channels(run, snapshot)
            last = {channel: number for channel, number in last.items() if channel in kept}
        for row in snapshot.history.get(run.key, ()):
            match _event(row):
                case events.TopicSubscribed(channel=channel, group=None):
                    last.setdefault(channel, 0)
                case events.TopicUnsubscribed(channel=channel):
                    last.pop(channel, None)
                case events.SignalReceived(channel=channel, number=int(number), again=None, group_key=None):
                    if number <= last.get(channel, 0):
                        what = f"row {row.number} is message {number} in {channel!r}, after message {last[channel]}"
                        yield Violation("X1", run.key, what)
                    last[channel] = number
                case _:
                    pass
        before = run


def _is_replaced(run: Run, snapshot: Snapshot) -> bool:
    """Return whether an active generation ended because of the next one, which has its subscriptions."""
    for row in snapshot.history.get(run.key, ()):
        match event_of(row) if row.type in _REPLACES else None:
            case events.RunTerminated(rerun=int()) | events.RunFailed(retry_at=int()):
                return True
            case _:
                pass
    return False


def _open_channels(run: Run, snapshot: Snapshot) -> frozenset[str]:
    """Return the channels of the subscriptions that the kept rows of a rerun have begun and not ended."""
    found: set[str] = set()
    first = 0
    for part in run.kept_rows:
        for row in snapshot.history.get(part.run, ()):
            event = _event(row) if first < row.number <= part.last else None
            if isinstance(event, events.TopicSubscribed) and event.group is None:
                found.add(event.channel)
            elif isinstance(event, events.TopicUnsubscribed):
                found.discard(event.channel)
        first = part.last
    return frozenset(found)


def _selected(run: Run, snapshot: Snapshot) -> Iterator[str]:
    """X2: the messages in the history of a run are stored ones that fit. Those that were deleted are not checked."""
    selections = _selections(run, snapshot)
    messages = snapshot.topic_messages or {}
    for row in snapshot.history.get(run.key, ()):
        event = _event(row)
        if not isinstance(event, events.SignalReceived) or event.topic is None:
            continue
        if event.channel not in selections:
            if event.again is None:
                yield f"row {row.number} is a message in {event.channel!r}, which has no subscription"
            continue
        message = messages.get(MessageName(run.namespace, event.topic, event.message or ""))
        if message is None or message.number is None or message.number > (event.number or 0):
            continue  # it was deleted, and perhaps another one has been published under its id since
        payload = None if row.payload is None else row.payload.inline
        if (message.number, message.payload, message.sender) != (event.number, payload, event.sender):
            yield f"row {row.number} differs from message {message.id!r}, which has number {message.number}"
        if not selections[event.channel].items() <= texts_from(message.attributes).items():
            yield (
                f"row {row.number} is message {message.id!r} with {message.attributes}, but the subscription selects"
                f" {dict(selections[event.channel])}"
            )


def _selections(run: Run, snapshot: Snapshot) -> Mapping[str, Mapping[str, str]]:
    """Return the selections by channel that this generation and those before it have subscribed to."""
    found: dict[str, Mapping[str, str]] = {}
    for one in snapshot.runs.values():
        if one.name == run.name and one.generation <= run.generation:
            for row in snapshot.history.get(one.key, ()):
                event = _event(row)
                if isinstance(event, events.TopicSubscribed):
                    found[event.channel] = {name: str(text) for name, text in event.selection.items()}
    return found


def _event(row: HistoryRow) -> events.HistoryEvent | None:
    """Return the event of a row about subscriptions or messages."""
    return event_of(row) if row.type in _OF_TOPICS else None
