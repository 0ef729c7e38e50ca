"""The contract of a store for groups: their members take turns at the messages of a topic."""

from typing import Final

from attrs import evolve

from holdfast.ports.changes import Delete, Insert
from holdfast.ports.persistence import Persistence
from holdfast.ports.queries.topics import GroupEntry, ListGroups
from holdfast.ports.records.topic import (
    GROUP_IDLE,
    GroupRow,
    ReturnedRow,
    SubscriptionRow,
    TopicMessageRow,
    TopicName,
    TopicRow,
)
from holdfast.ports.searches import (
    ExpiredMessages,
    GroupsToServe,
    MembersWithoutGroup,
    MessagesBefore,
    ReturnedMessages,
    RowOfTopic,
    RowsOfTopic,
    SubscriptionsBehind,
    SubscriptionsOfDigests,
    TopicUsers,
    WaitingMembers,
)
from holdfast.ports.tables import GROUPS, RETURNED_MESSAGES, SUBSCRIPTIONS
from holdfast.testing.conformance.builders import NAMESPACE, NOW
from holdfast.testing.conformance.persistence.case import PersistenceCase, put
from holdfast.testing.conformance.persistence.topics import found, to_deliver
from holdfast.testing.conformance.persistence.triggers import FULL_TRIGGER

TOPIC: Final = TopicRow(namespace=NAMESPACE, name="orders", last=5)
GROUP: Final = GroupRow(
    namespace=NAMESPACE,
    topic="orders",
    group_key="packers",
    name="packers",
    selection="{}",
    next_number=4,
    since=NOW,
    used_at=NOW,
)
MEMBER: Final = SubscriptionRow(
    namespace=NAMESPACE,
    run_id="run-1",
    channel="group:orders/packers@1",
    topic="orders",
    selection="{}",
    digest="",
    since=NOW,
    group_key="packers",
    waits_since=NOW,
)
RETURNED: Final = ReturnedRow(namespace=NAMESPACE, topic="orders", group_key="packers", number=2)
MESSAGE: Final = TopicMessageRow(
    namespace=NAMESPACE, topic="orders", id="a", number=2, at=NOW, payload="1", expires_at=NOW - 9
)


class TopicGroups(PersistenceCase):
    """Groups, the members that wait, and messages that went back."""

    def test_a_group_and_its_messages_are_stored_as_they_are(self, store: Persistence) -> None:
        """A second insert keeps what is stored: each member stores its group, and a message goes back once."""
        put(store, Insert(GROUP), Insert(RETURNED), Insert(MEMBER))
        put(store, Insert(evolve(GROUP, next_number=9)), Insert(RETURNED))
        names = GROUP.group_name, RETURNED.returned_name, MEMBER.subscription_name
        stored = store.transact(
            lambda tx: (
                *tx.get(GROUPS, [names[0]]),
                *tx.get(RETURNED_MESSAGES, [names[1]]),
                *tx.get(SUBSCRIPTIONS, [names[2]]),
            )
        )
        assert stored == (GROUP, RETURNED, MEMBER)

    def test_members_wait_in_order(self, store: Persistence) -> None:
        """Who has waited longest comes first; a member is no subscription that gets every message."""
        put(
            store,
            Insert(evolve(MEMBER, run_id="c")),
            Insert(evolve(MEMBER, run_id="b", waits_since=NOW + 1)),
            Insert(evolve(MEMBER, run_id="d", waits_since=NOW - 1)),
            Insert(evolve(MEMBER, run_id="a")),
            Insert(evolve(MEMBER, run_id="e", group_key="others")),
            Insert(evolve(MEMBER, run_id="f", topic="other")),
            Insert(evolve(MEMBER, run_id="g", group_key=None, waits_since=None)),
            Insert(evolve(MEMBER, run_id="h", waits_since=NOW - 2, holds=3)),
        )
        waiting = found(store, WaitingMembers(NAMESPACE, "orders", "packers", 3))
        assert [one.run_id for one in waiting] == ["d", "a", "c"]
        every = found(store, WaitingMembers(NAMESPACE, "orders", "packers", 9))
        assert [one.run_id for one in every] == ["d", "a", "c", "b"]
        assert found(store, SubscriptionsBehind(NAMESPACE, "orders", 9)) == []
        assert found(store, SubscriptionsOfDigests(NAMESPACE, "orders", ["d"], "", "", 9)) == []

    def test_groups_in_which_a_member_waits_and_a_message_may_be_handed_out(self, store: Persistence) -> None:
        """A message is one with a number that was not handed out, or one that went back. A member must wait."""

        def group(key: str, number: int, *, waits: bool = True, holds: int | None = None) -> list[Insert]:
            member = Insert(evolve(MEMBER, group_key=key, channel=f"group:orders/{key}@1", holds=holds))
            return [
                Insert(evolve(GROUP, group_key=key, next_number=number)),
                *([member] if waits else []),
            ]

        put(
            store,
            Insert(TOPIC),
            *group("new", 0),
            *group("behind", 5),
            *group("all handed out", 6),
            *group("nobody waits", 1, waits=False),
            *group("a member holds one", 1, holds=9),
            *group("back", 6),
            Insert(evolve(RETURNED, group_key="back")),
            *group("back, nobody waits", 6, waits=False),
            Insert(evolve(RETURNED, group_key="back, nobody waits")),
            *group("back, but not stored any more", 6),
            Insert(evolve(RETURNED, group_key="back, but not stored any more", number=RETURNED.number + 1)),
            Insert(evolve(MESSAGE, number=RETURNED.number)),
        )

        def keys(number: int, limit: int = 9) -> list[str]:
            return [one.group_key for one in found(store, GroupsToServe(NAMESPACE, "orders", number, limit))]

        assert keys(5) == ["back", "behind", "new"]
        assert keys(4) == ["back", "new"]
        assert keys(5, 1) == ["back"]
        assert found(store, GroupsToServe(NAMESPACE, "other", 5, 9)) == []

    def test_topics_of_groups_that_are_to_be_served(self, store: Persistence) -> None:
        """They are found whatever happens to the process that should have served them."""

        def of(topic: str, *, last: int | None, number: int, waits: bool = True) -> list[Insert]:
            return [
                *([] if last is None else [Insert(evolve(TOPIC, name=topic, last=last))]),
                Insert(evolve(GROUP, topic=topic, next_number=number)),
                *([Insert(evolve(MEMBER, run_id=topic, topic=topic))] if waits else []),
            ]

        put(
            store,
            *of("a new group", last=None, number=0),
            *of("behind", last=3, number=3),
            *of("handed out", last=3, number=4),
            *of("nobody waits", last=3, number=1, waits=False),
            *of("went back", last=3, number=4),
            Insert(evolve(RETURNED, topic="went back")),
            Insert(evolve(MESSAGE, topic="went back", number=RETURNED.number, expires_at=NOW + 1)),
            *of("went back, but not stored any more", last=3, number=4),
            Insert(evolve(RETURNED, topic="went back, but not stored any more")),
        )
        names = [TopicName(NAMESPACE, name) for name in ("a new group", "behind", "went back")]
        assert to_deliver(store) == names

    def test_messages_that_went_back(self, store: Persistence) -> None:
        """By number; those that are not stored any more, as nothing but damage removes them, are left out."""
        put(
            store,
            *(Insert(evolve(MESSAGE, id=str(number), number=number)) for number in (3, 1, 2, 10)),
            *(Insert(evolve(RETURNED, number=number)) for number in (10, 3, 4, 1)),
            Insert(evolve(RETURNED, group_key="others", number=2)),
        )

        def numbers(limit: int) -> list[int | None]:
            search = ReturnedMessages(NAMESPACE, "orders", "packers", limit)
            return [one.number for one in found(store, search)]

        assert numbers(9) == [1, 3, 10]
        assert numbers(2) == [1, 3]
        put(store, Delete(RETURNED_MESSAGES, evolve(RETURNED, number=1).returned_name))
        assert numbers(9) == [3, 10]

    def test_groups_are_listed_with_their_members_and_what_went_back(self, store: Persistence) -> None:
        """Of each topic the first ones, by name."""
        put(
            store,
            Insert(GROUP),
            Insert(evolve(GROUP, group_key="others", name="others", next_number=0)),
            Insert(evolve(GROUP, group_key="packers#1", selection='{"a":"b"}', used_at=NOW + 1)),
            Insert(evolve(GROUP, topic="offers")),
            Insert(evolve(GROUP, topic="unknown")),
            Insert(evolve(GROUP, namespace="tenant-2")),
            Insert(MEMBER),
            Insert(evolve(MEMBER, run_id="run-2")),
            Insert(evolve(MEMBER, run_id="run-3", group_key=None)),
            Insert(evolve(MEMBER, run_id="run-4", holds=3)),
            Insert(RETURNED),
        )
        packers = GroupEntry(
            topic="orders", name="packers", selection="{}", next_number=4, used_at=NOW, waiting=2, returned=1
        )
        selecting = evolve(packers, selection='{"a":"b"}', used_at=NOW + 1, waiting=0, returned=0)
        others = evolve(packers, name="others", next_number=0, waiting=0, returned=0)
        offers = evolve(packers, topic="offers", waiting=0, returned=0)
        topics = ("orders", "offers", "none", "nul \0")
        listed = store.read(ListGroups(namespace=NAMESPACE, topics=topics))
        assert listed == (offers, others, packers, selecting)
        assert store.read(ListGroups(namespace=NAMESPACE, topics=topics, limit=1)) == (offers, others)
        assert store.read(ListGroups(namespace=NAMESPACE, topics=())) == ()
        assert store.read(ListGroups(namespace="half \ud800", topics=topics)) == ()
        assert store.read(ListGroups(namespace=NAMESPACE, topics=topics, limit=0)) == ()

    def test_what_a_group_has_to_hand_out_is_kept(self, store: Persistence) -> None:
        """Unless the group was not used for long, and no member waits."""
        put(
            store,
            Insert(TOPIC),
            Insert(evolve(GROUP, group_key="ahead", next_number=9)),
            Insert(evolve(GROUP, topic="other", next_number=1)),
            Insert(evolve(GROUP, namespace="tenant-2", next_number=1)),
            Insert(evolve(GROUP, next_number=3)),
            *(Insert(evolve(MESSAGE, id=str(number), number=number)) for number in (4, 2, 3, 1)),
        )
        assert kept(store) == [3, 4]
        idle = evolve(GROUP, next_number=3, used_at=NOW - GROUP_IDLE - 1)
        put(store, Delete(GROUPS, GROUP.group_name))
        put(store, Insert(idle))
        assert kept(store) == []
        assert len(found(store, MessagesBefore(NAMESPACE, "orders", 9, 2))) == 2
        put(store, Insert(evolve(MEMBER, holds=1)))  # it does not wait
        assert kept(store) == [1]
        put(store, Insert(evolve(MEMBER, run_id="run-2")))
        assert kept(store) == [1, 3, 4]

    def test_what_a_member_holds_and_what_went_back_is_kept(self, store: Persistence) -> None:
        """Whatever its group is, until the member has read it, or it is handed out again."""
        member = evolve(MEMBER, group_key="others", holds=4)
        put(
            store,
            *(Insert(evolve(MESSAGE, id=str(number), number=number)) for number in range(1, 6)),
            Insert(evolve(RETURNED, number=2)),
            Insert(evolve(RETURNED, group_key="others", number=2)),
            Insert(evolve(RETURNED, topic="other", number=1)),
            Insert(evolve(RETURNED, namespace="tenant-2", number=1)),
            Insert(member),
            Insert(evolve(member, topic="other", run_id="2", holds=3)),
            Insert(evolve(member, namespace="tenant-2", run_id="3", holds=3)),
        )
        assert kept(store) == [2, 4]
        put(store, Delete(SUBSCRIPTIONS, member.subscription_name))
        put(store, Delete(RETURNED_MESSAGES, evolve(RETURNED, number=2).returned_name))
        assert kept(store) == [2]
        put(store, Delete(RETURNED_MESSAGES, evolve(RETURNED, group_key="others", number=2).returned_name))
        assert kept(store) == []

    def test_members_whose_group_is_not_stored(self, store: Persistence) -> None:
        """By group, then as they wait; those that hold a message do not wait."""
        put(
            store,
            Insert(evolve(GROUP, group_key="stored")),
            Insert(evolve(GROUP, topic="other")),
            Insert(evolve(MEMBER, group_key="stored")),
            Insert(evolve(MEMBER, run_id="c")),
            Insert(evolve(MEMBER, run_id="d", waits_since=NOW - 1)),
            Insert(evolve(MEMBER, run_id="e", group_key="a")),
            Insert(evolve(MEMBER, run_id="f", holds=3)),
            Insert(evolve(MEMBER, run_id="g", group_key=None, waits_since=None)),
            Insert(evolve(MEMBER, run_id="h", topic="another")),
        )
        members = found(store, MembersWithoutGroup(NAMESPACE, "orders", 9))
        assert [one.run_id for one in members] == ["e", "d", "c"]
        assert len(found(store, MembersWithoutGroup(NAMESPACE, "orders", 2))) == 2

    def test_what_uses_a_topic(self, store: Persistence) -> None:
        """Subscriptions, whether they have caught up or not, members of groups, and triggers."""

        def users() -> list[str]:
            return list(found(store, TopicUsers(NAMESPACE, "orders")))

        trigger = evolve(FULL_TRIGGER, namespace=NAMESPACE, topic="orders")
        put(store, Insert(TOPIC), Insert(GROUP), Insert(MESSAGE), Insert(evolve(MEMBER, topic="other")))
        put(
            store,
            Insert(evolve(MEMBER, namespace="tenant-2")),
            Insert(evolve(trigger, topic="other", name="x")),
        )
        assert users() == []
        for row in (MEMBER, evolve(MEMBER, holds=1), evolve(MEMBER, group_key=None, next_number=3)):
            put(store, Insert(evolve(row, channel="c")))
            assert users() == ["subscriptions"]
            put(store, Delete(SUBSCRIPTIONS, evolve(row, channel="c").subscription_name))
        put(store, Insert(trigger))
        assert users() == ["triggers"]
        put(store, Insert(evolve(MEMBER, channel="c")))
        assert users() == ["subscriptions", "triggers"]

    def test_the_rows_of_a_topic(self, store: Persistence) -> None:
        """Messages, messages that went back, groups: each by name, up to the limit."""
        messages = [
            evolve(MESSAGE, id=one, number=number) for one, number in (("b", 1), ("a", None), ("c", 2))
        ]
        others = [evolve(RETURNED, number=10), RETURNED, evolve(RETURNED, group_key="other", number=7)]
        put(
            store,
            *(Insert(one) for one in messages),
            *(Insert(one) for one in others),
            *(Insert(one) for one in (GROUP, evolve(GROUP, group_key="other"))),
            *(Insert(evolve(one, topic="other")) for one in (MESSAGE, RETURNED, GROUP)),
            *(Insert(evolve(one, namespace="tenant-2")) for one in (MESSAGE, RETURNED, GROUP)),
        )
        expected = [
            *(RowOfTopic("message", one) for one in "abc"),
            RowOfTopic("returned", "other", 7),
            *(RowOfTopic("returned", "packers", number) for number in (2, 10)),
            *(RowOfTopic("group", name) for name in ("other", "packers")),
        ]
        assert list(found(store, RowsOfTopic(NAMESPACE, "orders", 99))) == expected
        assert list(found(store, RowsOfTopic(NAMESPACE, "orders", 5))) == expected[:5]
        assert list(found(store, RowsOfTopic(NAMESPACE, "none", 5))) == []


def kept(store: Persistence) -> list[int]:
    """Return the numbers of the messages that have expired, and of those that a topic has too many of, and are kept."""
    expired = found(store, ExpiredMessages(NAMESPACE, "orders", 9, 9))
    before = found(store, MessagesBefore(NAMESPACE, "orders", 9, 9))
    assert before == [one.id for one in expired if not one.is_kept]
    return sorted(int(one.id) for one in expired if one.is_kept)
