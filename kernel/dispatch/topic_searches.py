"""Searches for what is to be delivered of a topic: each transaction makes one step, under the lock of the topic's row.

In this order: it goes on with a message that some of its subscribers have; it lets subscriptions behind catch up with
the stored messages; it delivers new messages, hands messages to members of groups that wait, and deletes those that
have expired.
"""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, cast

import attrs

from holdfast.kernel.composed_searches import (
    NamedTrigger,
    PublishedMessages,
    RemovedTopic,
    TopicDeliveries,
    slot_place,
)
from holdfast.kernel.search_results import GroupTurn, SearchResult, TopicRound
from holdfast.kernel.state import State
from holdfast.kernel.topics.selections import digests_of, group_of, is_selected, texts_from
from holdfast.ports.json import parse
from holdfast.ports.persistence import Transaction
from holdfast.ports.records.run import RunName
from holdfast.ports.records.topic import (
    GroupRow,
    MessageName,
    SubscriptionName,
    SubscriptionRow,
    TopicMessageRow,
    TopicName,
    TopicRow,
)
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import (
    ExpiredMessages,
    FirstNumberSince,
    GroupsToServe,
    LatestRuns,
    MembersWithoutGroup,
    MessagesBefore,
    NewMessages,
    NumberedMessages,
    ReturnedMessages,
    RowsOfTopic,
    RunOutlines,
    SubscriptionsBehind,
    SubscriptionsOfDigests,
    TopicToDeliver,
    TopicUsers,
    WaitingMembers,
)
from holdfast.ports.structs import evolve
from holdfast.ports.tables import SUBSCRIPTIONS, TOPIC_MESSAGES, TOPICS, TRIGGERS
from holdfast.ports.unreadable import NUMBER_MAX, PARSE_ERRORS

BEHIND_MAX: Final = 50
"""Most subscriptions that catch up in one transaction: each takes a statement or two."""
GROUPS_MAX: Final = 20
"""Most groups that are served in one transaction: each takes a few statements."""
MEMBERS_MAX: Final = 25
"""Most members of a group that get a message in one transaction."""
POSTPONED_MAX: Final = 50
"""Most messages that get another expiry in one transaction: each takes a statement."""
LOST_MAX: Final = 1_000
"""Most members whose groups are stored again in one transaction."""
NEW_MAX: Final = 50
"""Most new messages in one transaction: each takes a statement."""


def published_messages(tx: Transaction, state: State, search: PublishedMessages, _: Micros) -> SearchResult:
    """Find messages of topics by name."""
    for message in tx.get(TOPIC_MESSAGES, search.names):
        state.tables.put(message)
    return SearchResult()


def named_trigger(tx: Transaction, state: State, search: NamedTrigger, _: Micros) -> SearchResult:
    """Lock a trigger, and read how far its topic was delivered."""
    topic, namespace = search.topic, search.name.namespace
    for row in tx.lock(TRIGGERS, [search.name]):
        state.tables.put(row)
        topic = topic or row.topic
    if topic is None:
        return SearchResult()
    for found in tx.get(TOPICS, [TopicName(namespace, topic)]):
        state.tables.put(found)
    if search.since is None:
        return SearchResult()
    return SearchResult(first_number=tx.find(FirstNumberSince(namespace, topic, search.since)))


def removed_topic(tx: Transaction, state: State, search: RemovedTopic, _: Micros) -> SearchResult:
    """Lock a topic, and find what uses it, and the first of its rows."""
    for row in tx.lock(TOPICS, [TopicName(search.namespace, search.topic)]):
        state.tables.put(row)
    return SearchResult(
        contents=tuple(tx.find(TopicUsers(search.namespace, search.topic))),
        topic_rows=tuple(tx.find(RowsOfTopic(search.namespace, search.topic, search.limit))),
    )


def topic_deliveries(tx: Transaction, state: State, search: TopicDeliveries, now: Micros) -> SearchResult:
    """Find the next deliveries of a topic, and lock the topic and the runs that get them."""
    name: TopicName | None = None if search.topic is None else TopicName(search.namespace, search.topic)
    if name is None:
        after = slot_place(search.after)
        name = tx.find(TopicToDeliver(after.namespace, after.key), now)
    if name is None:
        return SearchResult()
    known = tx.lock(TOPICS, [name])
    for row in known:
        state.tables.put(row)
    topic = known[0] if known else TopicRow(namespace=name.namespace, name=name.name)
    if (problem := _problem(topic)) is not None:
        problem = f"the row of topic {topic.name!r} {problem}"
        return SearchResult(topic=TopicRound(namespace=topic.namespace, topic=topic.name, problem=problem))
    step = _Step(tx, state, topic, search.limit, now)
    found = step.go_on() if topic.after_subscription is not None else step.catch_up() or step.deliver_new()
    if not known and (groups := _lost_groups(tx, name, now)):
        found = evolve(found, groups=groups, more=True)
    return _with_runs(tx, state, found)


def _lost_groups(tx: Transaction, name: TopicName, now: Micros) -> tuple[GroupRow, ...]:
    """Return the groups of members that wait, if they are not stored.

    A topic is removed under the lock of its row, and members begin to wait without it: one may have found its group
    just before. The delivery that follows its wait comes after the removal, and finds no row of the topic.
    """
    members = tx.find(MembersWithoutGroup(*name, LOST_MAX))
    return tuple({one.group_key: group_of(one, now) for one in reversed(members)}.values())


@attrs.frozen
class _Step:
    """One step of the delivery of a topic."""

    tx: Transaction
    state: State
    topic: TopicRow
    limit: int
    now: Micros

    def go_on(self) -> TopicRound:
        """Deliver the message that some of its subscribers have to those that follow."""
        messages = self._numbered(self.topic.last + 1, 1)
        if not messages:  # damage: nothing deletes a message that some subscribers lack
            return self._round(finished=1, more=True)
        subscribers = self._subscribers(messages[0], _place(self.topic), self.limit)
        is_whole = len(subscribers) < self.limit
        return self._new([(messages[0], subscribers)], is_last_whole=is_whole, more=True)

    def catch_up(self) -> TopicRound | None:
        """Deliver stored messages to subscriptions behind; None without any."""
        topic, limit = self.topic, self.limit
        search = SubscriptionsBehind(topic.namespace, topic.name, BEHIND_MAX + 1 + len(self.state.excluded))
        every = self.tx.find(search)
        unreadable = {run.id for run in self._excluded(one.run_id for one in every)}
        behind = [one for one in every if one.run_id not in unreadable]
        if not behind:
            return None
        deliveries: list[tuple[SubscriptionName, str]] = []
        reached: list[tuple[SubscriptionName, int]] = []
        messages: dict[str, None] = {}
        for subscription in behind[:BEHIND_MAX]:
            if limit <= 0:
                break
            self.state.tables.put(subscription)
            first = subscription.next_number or self._first_number(subscription.since)
            stored = [] if first > topic.last else self._numbered(first, limit)
            stored = [one for one in stored if (one.number or 0) <= topic.last]
            selected = [one for one in stored if _gets(subscription, one)]
            deliveries += ((subscription.subscription_name, one.id) for one in selected)
            messages.update((one.id, None) for one in selected)
            is_all = len(stored) < limit
            limit -= len(stored)
            reached.append(
                (subscription.subscription_name, topic.last + 1 if is_all else (stored[-1].number or 0) + 1)
            )
        return self._round(
            messages=tuple(messages),
            deliveries=tuple(deliveries),
            behind=tuple(reached),
            more=True,
        )

    def deliver_new(self) -> TopicRound:
        """Deliver new messages, as many as the limit allows; the last of them maybe to some of its subscribers."""
        new = self.tx.find(NewMessages(self.topic.namespace, self.topic.name, NEW_MAX + 1))
        left = self.limit
        found: list[tuple[TopicMessageRow, Sequence[SubscriptionRow]]] = []
        is_whole = True
        for message in new[:NEW_MAX]:
            if left <= 0:
                break
            subscribers = self._subscribers(message, ("", ""), left)
            is_whole = len(subscribers) < left
            left -= len(subscribers)
            found.append((message, subscribers))
        return self._new(found, is_last_whole=is_whole, more=len(new) > len(found))

    def _new(
        self,
        found: Sequence[tuple[TopicMessageRow, Sequence[SubscriptionRow]]],
        *,
        is_last_whole: bool,
        more: bool = False,
    ) -> TopicRound:
        for message, subscribers in found:
            self.state.tables.put(message)
            for subscription in subscribers:
                self.state.tables.put(subscription)
        last = None if is_last_whole or not found else found[-1][1][-1]
        return self._round(
            messages=tuple(message.id for message, _ in found),
            deliveries=tuple(
                (one.subscription_name, message.id)
                for message, subscribers in found
                for one in subscribers
                if _gets(one, message)
            ),
            finished=len(found) - (last is not None),
            after=None if last is None else (last.run_id, last.channel),
            more=more or last is not None,
        )

    def _round(
        self,
        *,
        messages: tuple[str, ...] = (),
        deliveries: tuple[tuple[SubscriptionName, str], ...] = (),
        finished: int = 0,
        after: tuple[str, str] | None = None,
        behind: tuple[tuple[SubscriptionName, int], ...] = (),
        more: bool = False,
    ) -> TopicRound:
        topic = self.topic
        expired: tuple[str, ...] = ()
        postponed: tuple[str, ...] = ()
        turns = () if behind or topic.after_subscription is not None else self._turns(messages[:finished])
        # Those that catch up may get them, also those that began while some subscribers had the message.
        if not behind and topic.after_subscription is None:
            search = ExpiredMessages(topic.namespace, topic.name, topic.last, self.limit)
            old = self.tx.find(search, self.now)
            expired = tuple(one.id for one in old if not one.is_kept)
            postponed = tuple(one.id for one in old if one.is_kept)[:POSTPONED_MAX]
            self._read(postponed)
            more = more or len(old) >= self.limit or len(old) > len(expired) + len(postponed)
            kept_from = self._kept_from(messages[:finished])
            if kept_from and len(expired) < self.limit:
                expired += self._surplus(expired, kept_from)
            # Of more messages than the topic keeps, the next transaction deletes those that this one delivers.
            more = more or kept_from > topic.last + 1
        return TopicRound(
            namespace=topic.namespace,
            topic=topic.name,
            messages=messages,
            deliveries=deliveries,
            finished=finished,
            after=after,
            behind=behind,
            turns=turns,
            expired=expired,
            postponed=postponed,
            more=more
            or len(expired) >= self.limit
            or len(turns) >= GROUPS_MAX
            or any(self._has_more(one) for one in turns),
        )

    def _read(self, messages: Sequence[str]) -> None:
        if messages:
            names = [MessageName(self.topic.namespace, self.topic.name, one) for one in messages]
            for message in self.tx.get(TOPIC_MESSAGES, names):
                self.state.tables.put(message)

    def _kept_from(self, new: Sequence[str]) -> int:
        """Return the number of the first message that the topic keeps once these have their numbers."""
        topic, stored = self.topic, self.state.tables.topic_messages
        limits = (stored[MessageName(topic.namespace, topic.name, one)].keep_last for one in new)
        numbered = enumerate(limits, topic.last + 1)
        return max([topic.kept_from, *(number - most + 1 for number, most in numbered if most is not None)])

    def _surplus(self, expired: Collection[str], kept_from: int) -> tuple[str, ...]:
        """Return the ids of messages that are more than the topic keeps, without those that have expired."""
        first = min(kept_from, self.topic.last + 1)
        search = MessagesBefore(self.topic.namespace, self.topic.name, first, self.limit)
        found = (one for one in self.tx.find(search, self.now) if one not in expired)
        return tuple(islice(found, self.limit - len(expired)))

    def _turns(self, new: Sequence[str]) -> tuple[GroupTurn, ...]:
        """Return the turns of groups at stored messages and at those that get their numbers now."""
        topic, tables = self.topic, self.state.tables
        last = topic.last + len(new)
        arrived = [
            evolve(tables.topic_messages[MessageName(topic.namespace, topic.name, one)], number=number)
            for number, one in enumerate(new, topic.last + 1)
        ]
        most = GROUPS_MAX + len(self.state.excluded)
        found = self.tx.find(GroupsToServe(topic.namespace, topic.name, last, most))
        # Without a member whose run can be read, there is nothing to do.
        turns = (turn for turn in (self._turn(group, arrived) for group in found) if turn.members)
        return tuple(islice(turns, GROUPS_MAX))

    def _turn(self, group: GroupRow, new: Sequence[TopicMessageRow]) -> GroupTurn:
        tx, tables, name = self.tx, self.state.tables, group.group_name
        tables.put(group)
        waiting = tx.find(WaitingMembers(*name, MEMBERS_MAX + len(self.state.excluded)))
        unreadable = {run.id for run in self._excluded(one.run_id for one in waiting)}
        members = [one for one in waiting if one.run_id not in unreadable][:MEMBERS_MAX]
        for member in members:
            tables.put(member)
        returned = tx.find(ReturnedMessages(*name, len(members)))
        first = group.next_number or self._first_number(group.since)
        stored = self._numbered(first, self.limit) if first <= self.topic.last else []
        stored = [one for one in stored if (one.number or 0) <= self.topic.last]
        is_all = len(stored) < self.limit
        for message in returned:
            tables.put(message)
        end = self.topic.last + len(new) + 1 if is_all else (stored[-1].number or 0) + 1
        selected = [one for one in (*stored, *(new if is_all else ())) if _is_for(group, one)]
        return GroupTurn(
            group_key=group.group_key,
            members=tuple(one.subscription_name for one in members),
            messages=tuple(one.id for one in (*returned, *selected)),
            returned=len(returned),
            end=end,
            is_page=len(members) >= MEMBERS_MAX,
        )

    def _has_more(self, turn: GroupTurn) -> bool:
        """Whether the group may have more members that wait, or more messages."""
        # If each of these members gets a message, the others are for members of the next page.
        has_idle = len(turn.messages) < len(turn.members)
        has_stored = turn.end <= self.topic.last
        return (has_stored and (has_idle or turn.is_page)) or (turn.is_page and turn.returned >= MEMBERS_MAX)

    def _first_number(self, since: Micros) -> int:
        topic = self.topic
        if not topic.last:
            return 1
        first = self.tx.find(FirstNumberSince(topic.namespace, topic.name, since))
        return topic.last + 1 if first is None else first

    def _numbered(self, first: int, limit: int) -> list[TopicMessageRow]:
        search = NumberedMessages(self.topic.namespace, self.topic.name, first, limit)
        found = list(self.tx.find(search))
        for message in found:
            self.state.tables.put(message)
        return found

    def _subscribers(
        self, message: TopicMessageRow, after: tuple[str, str], limit: int
    ) -> Sequence[SubscriptionRow]:
        topic = self.topic
        try:
            digests = digests_of(texts_from(message.attributes))
        except PARSE_ERRORS:
            digests = digests_of({})
        return self.tx.find(SubscriptionsOfDigests(topic.namespace, topic.name, digests, *after, limit))

    def _excluded(self, run_ids: Iterable[str]) -> list[RunName]:
        """Return those of these runs that can't be read."""
        return _excluded(self.tx, self.state, self.topic.namespace, run_ids)


def _problem(topic: TopicRow) -> str | None:
    """Return what is wrong with the row of a topic; None if it can be read. A database may hold anything."""
    last = cast("object", topic.last)
    if not isinstance(last, int) or not 0 <= last <= NUMBER_MAX:
        return f"has the number {last!r:.100}"
    kept_from = cast("object", topic.kept_from)
    if not isinstance(kept_from, int):
        return f"has {kept_from!r:.100} as the first number that is kept"
    try:
        _place(topic)
    except PARSE_ERRORS:
        return f"has the place {topic.after_subscription!r:.100}"
    return None


def _place(topic: TopicRow) -> tuple[str, str]:
    """Return the run id and the channel of the last subscription that has the message whose delivery has begun."""
    if topic.after_subscription is None:
        return "", ""
    run, channel = cast("tuple[object, object]", parse(topic.after_subscription))
    if not isinstance(run, str) or not isinstance(channel, str):
        raise TypeError
    return run, channel


def _gets(subscription: SubscriptionRow, message: TopicMessageRow) -> bool:
    """Whether a subscription gets a message: it fits, and it was not published before the subscription begins."""
    with suppress(*PARSE_ERRORS):
        fits = is_selected(texts_from(subscription.selection), texts_from(message.attributes))
        return fits and message.at >= subscription.since
    return False


def _is_for(group: GroupRow, message: TopicMessageRow) -> bool:
    """Whether a message is for a group: it fits, and it was not published before the group begins."""
    with suppress(*PARSE_ERRORS):
        fits = is_selected(texts_from(group.selection), texts_from(message.attributes))
        return fits and message.at >= group.since
    return False


def _excluded(tx: Transaction, state: State, namespace: str, run_ids: Iterable[str]) -> list[RunName]:
    if not state.excluded:
        return []
    outlines = tx.find(RunOutlines(sorted(state.excluded), locks=False))
    wanted = {RunName(namespace, run_id) for run_id in run_ids}
    return sorted(wanted & {RunName(one.namespace, one.id) for one in outlines})


def _with_runs(tx: Transaction, state: State, found: TopicRound) -> SearchResult:
    """Lock the runs of the subscriptions, and leave out the subscriptions that have changed before.

    A function changes its subscriptions under the lock of its run. So after this, nothing changes them but this
    transaction. Of a run that can't be read, the subscription falls behind.
    """
    members = {one for turn in found.turns for one in turn.members}
    subscriptions = sorted(
        {*(one for one, _ in found.deliveries), *(one for one, _ in found.behind), *members}
    )
    ids = {one.run_id for one in subscriptions}
    unreadable = {name.id for name in _excluded(tx, state, found.namespace, ids)}
    names = sorted(RunName(found.namespace, run_id) for run_id in ids - unreadable)
    for run in tx.find(LatestRuns(names)) if names else ():
        state.tables.put(run)
    now = {row.subscription_name: row for row in tx.get(SUBSCRIPTIONS, subscriptions)} if names else {}
    known = state.tables.subscriptions
    left_out = {one for one in subscriptions if one.run_id in unreadable or now.get(one) != known[one]}
    if left_out:
        found = evolve(
            found,
            deliveries=tuple(one for one in found.deliveries if one[0] not in left_out),
            behind=tuple(one for one in found.behind if one[0] not in left_out),
            unreadable=tuple(sorted(one for one in left_out - members if one.run_id in unreadable)),
            turns=tuple(
                evolve(turn, members=tuple(one for one in turn.members if one not in left_out))
                for turn in found.turns
            ),
        )
    return SearchResult(run_names=tuple(names), topic=found)
