"""The rule of delivery: new messages of a topic get their numbers and go into the channels of those who subscribed.

Numbers are given after the commits of the publishers, under the lock of the topic's row. So no message can appear later
with a lower number than one that was delivered, and each subscriber gets its messages in the order of their numbers.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from holdfast.kernel.commands import FollowUp, TopicDeliver, TopicDelivered, merge
from holdfast.kernel.composed_searches import TopicDeliveries
from holdfast.kernel.history import events
from holdfast.kernel.rules.signals import wake_driver
from holdfast.kernel.runs.builder import RunDraft
from holdfast.kernel.search_results import GroupTurn, TopicRound
from holdfast.kernel.state import Decision, Reads, State
from holdfast.ports.changes import Change, Delete, Insert, Update
from holdfast.ports.clock import Ids
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.json import canonical
from holdfast.ports.records.run import TERMINAL, RunName
from holdfast.ports.records.topic import (
    GroupName,
    GroupRow,
    MessageName,
    ReturnedName,
    SubscriptionName,
    SubscriptionRow,
    TopicMessageRow,
    TopicName,
    TopicRow,
)
from holdfast.ports.records.values import Micros, Payload
from holdfast.ports.structs import evolve, frozen
from holdfast.ports.tables import RETURNED_MESSAGES, SUBSCRIPTIONS, TOPIC_MESSAGES
from holdfast.ports.transport import Hint

_POSTPONED_BY: Final[Micros] = 86_400_000_000
"""How long a message that has expired and is still to be handed out or read is kept before the next look at it."""


def reads_of_deliver(command: TopicDeliver) -> Reads:
    """Search for what is to be delivered, with the runs that get it."""
    if not 1 <= command.limit <= 10_000:
        raise InvalidCommandError(f"limit is {command.limit}; it must be from 1 to 10,000")
    return Reads(search=_deliveries(command), drivers=True)


def _deliveries(command: TopicDeliver) -> TopicDeliveries:
    return TopicDeliveries(command.namespace, command.topic, command.after, command.limit)


def decide_deliver(state: State, command: TopicDeliver, now: Micros, _: Ids) -> Decision[TopicDelivered]:
    """Store what the search found: numbers, messages in histories, and how far the subscriptions and the topic got."""
    found = state.found[_deliveries(command)].topic
    if found is None:
        return Decision(TopicDelivered())
    name = TopicName(found.namespace, found.topic)
    if found.problem is not None:
        return Decision(TopicDelivered(topic=name.name, problem=found.problem, next=canonical(list(name))))
    known = state.tables.topics.get(name)
    topic = known or TopicRow(namespace=name.namespace, name=name.name)
    numbered = _numbered(state, found, topic)
    topic = evolve(
        topic,
        last=topic.last + found.finished,
        after_subscription=None if found.after is None else canonical(found.after),
        kept_from=max([topic.kept_from, *(_first_kept(one) for one in numbered.values())]),
    )
    changes: list[Change] = [Insert(topic) if known is None else Update(topic)] if topic != known else []
    changes += (
        Update(one) for one in numbered.values() if one != state.tables.topic_messages[one.message_name]
    )
    hints: list[Hint] = []
    follow_ups: list[FollowUp] = []
    over: set[SubscriptionName] = set()
    count = 0
    handed = [_hand_out(state, found, turn, numbered, now) for turn in found.turns]
    for run_id, deliveries in _by_run(found, handed):
        made = _deliver(state, found, numbered, run_id, deliveries, now)
        if made is None:
            over.update(subscription for subscription, _ in deliveries)
            continue
        count += len(deliveries)
        changes += made.changes()
        hints += made.hints
        follow_ups.append(made.follow_up)
    changes += _progress(state, found, topic, over)
    changes += chain.from_iterable(one.changes for one in handed)
    changes += (Delete(TOPIC_MESSAGES, MessageName(*name, message)) for message in found.expired)
    changes += (Insert(one) for one in found.groups)
    changes += (_postponed(state, MessageName(*name, message), now) for message in found.postponed)
    # Members that are gone may have left messages to those of the next page.
    more = found.more or any(
        turn.is_page and len(one.deliveries) < len(turn.messages)
        for turn, one in zip(found.turns, handed, strict=True)
    )
    reply = TopicDelivered(
        topic=found.topic,
        deliveries=count,
        more=more,
        next=command.after if more else canonical(list(name)),
        follow_up=merge(*follow_ups),
    )
    return Decision(reply, tuple(changes), tuple(hints))


def _postponed(state: State, name: MessageName, now: Micros) -> Update:
    """Return the change by which a message that is kept though it has expired is out of the way of those behind it."""
    return Update(evolve(state.tables.topic_messages[name], expires_at=now + _POSTPONED_BY))


def _first_kept(message: TopicMessageRow) -> int:
    """Return the number of the first message that a topic keeps after this one."""
    number, most = message.number, message.keep_last
    return 0 if number is None or most is None else number - most + 1


def _numbered(state: State, found: TopicRound, topic: TopicRow) -> dict[str, TopicMessageRow]:
    """Return the messages that are delivered by their ids, the new ones with their numbers."""
    stored = state.tables.topic_messages
    names = (MessageName(found.namespace, found.topic, message) for message in found.messages)
    messages = [stored[name] for name in names]
    numbers = iter(range(topic.last + 1, topic.last + 1 + len(messages)))
    return {
        one.id: one
        if one.number is not None and one.number <= topic.last
        else evolve(one, number=next(numbers))
        for one in messages
    }


@frozen
class _HandOut:
    """What the members of a group get, and the changes that record it."""

    deliveries: tuple[tuple[SubscriptionName, str], ...]
    changes: tuple[Change, ...]


def _hand_out(
    state: State, found: TopicRound, turn: GroupTurn, numbered: dict[str, TopicMessageRow], now: Micros
) -> _HandOut:
    """Hand each member that waits one message. Of the others, the group's `next_number` is the first."""
    name = GroupName(found.namespace, found.topic, turn.group_key)
    known: GroupRow = state.tables.groups[name]
    messages = [_message(state, found, one, numbered) for one in turn.messages]
    members = [one for one in turn.members if _is_active(state, one)]
    deliveries = tuple((member, message.id) for member, message in zip(members, messages, strict=False))
    left = messages[max(len(deliveries), turn.returned) :]
    group = evolve(
        known,
        next_number=(left[0].number or 0) if left else turn.end,
        used_at=now if deliveries else known.used_at,
    )
    back = messages[: min(len(deliveries), turn.returned)]
    changes: list[Change] = [Update(group)] if group != known else []
    numbers = {one.id: one.number for one in messages}
    changes += (
        Update(evolve(state.tables.subscriptions[member], holds=numbers[message]))
        for member, message in deliveries
    )
    changes += (Delete(SUBSCRIPTIONS, member) for member in turn.members if member not in members)
    changes += (Delete(RETURNED_MESSAGES, ReturnedName(*name, one.number or 0)) for one in back)
    return _HandOut(deliveries, tuple(changes))


def _message(
    state: State, found: TopicRound, message_id: str, numbered: dict[str, TopicMessageRow]
) -> TopicMessageRow:
    name = MessageName(found.namespace, found.topic, message_id)
    return numbered.get(message_id) or state.tables.topic_messages[name]


def _is_active(state: State, member: SubscriptionName) -> bool:
    run = state.tables.run_named(RunName(member.namespace, member.run_id))
    return run is not None and run.status not in TERMINAL


def _by_run(
    found: TopicRound, handed: Sequence[_HandOut]
) -> Iterator[tuple[str, list[tuple[SubscriptionName, str]]]]:
    by_run: dict[str, list[tuple[SubscriptionName, str]]] = {}
    of_groups = chain.from_iterable(one.deliveries for one in handed)
    for subscription, message in (*found.deliveries, *of_groups):
        by_run.setdefault(subscription.run_id, []).append((subscription, message))
    yield from sorted(by_run.items())


def _deliver(
    state: State,
    found: TopicRound,
    numbered: dict[str, TopicMessageRow],
    run_id: str,
    deliveries: list[tuple[SubscriptionName, str]],
    now: Micros,
) -> RunDraft | None:
    """Append messages to the history of a run and wake its function; None if the run has ended."""
    run = state.tables.run_named(RunName(found.namespace, run_id))
    if run is None or run.status in TERMINAL:
        return None
    draft = RunDraft(run, now)
    messages = ((one, _message(state, found, message_id, numbered)) for one, message_id in deliveries)
    for subscription, message in sorted(messages, key=lambda one: one[1].number or 0):
        event = events.SignalReceived(
            channel=subscription.channel,
            checked=bool(message.checked),
            sender=message.sender,
            topic=message.topic,
            message=message.id,
            number=message.number,
            group_key=state.tables.subscriptions[subscription].group_key,
        )
        draft.append_message(Payload(inline=message.payload), event)
    wake_driver(state, draft, run, now)
    return draft


def _progress(
    state: State, found: TopicRound, topic: TopicRow, over: set[SubscriptionName]
) -> Iterator[Change]:
    """Yield the changes of subscriptions: those of ended runs go, others catch up."""
    for name in sorted(over):
        yield Delete(SUBSCRIPTIONS, name)
    for name, number in found.behind:
        known: SubscriptionRow = state.tables.subscriptions[name]
        if name not in over:
            yield Update(evolve(known, next_number=None if number > topic.last else number))
    first = topic.last - found.finished + 1
    for name in found.unreadable:
        # The run that can't be read is blocked: it gets the message once it can be.
        yield Update(evolve(state.tables.subscriptions[name], next_number=first))
