"""The contract of a store for topics: messages, how far they were delivered, and subscriptions."""

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import attrs
import pytest
from attrs import evolve

from holdfast.ports.changes import Delete, Insert, Update
from holdfast.ports.errors import ConflictError
from holdfast.ports.persistence import Persistence, Transaction
from holdfast.ports.queries.topics import COUNTED_MAX, ListTopics, TopicEntry
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
    EXPIRED_WINDOW,
    ExpiredMessage,
    ExpiredMessages,
    FirstNumberSince,
    NewMessages,
    NumberedMessages,
    Search,
    SubscriptionsBehind,
    SubscriptionsOfDigests,
    TopicToDeliver,
)
from holdfast.ports.tables import SUBSCRIPTIONS, TABLE_OF, TOPIC_MESSAGES, TOPICS, Table
from holdfast.testing.conformance.builders import NAMESPACE, NOW
from holdfast.testing.conformance.persistence.case import PersistenceCase, put, query
from holdfast.testing.conformance.persistence.values import TEXTS
from holdfast.testing.conformance.threads import in_threads

T = TypeVar("T")

OTHER: Final = "tenant-2"
FIRST: Final = TopicName("", "")
"""No topic comes before it."""
TOPIC: Final = TopicRow(namespace=NAMESPACE, name="orders")
MESSAGE: Final = TopicMessageRow(
    namespace=NAMESPACE, topic="orders", id="a", at=NOW, payload="1", expires_at=NOW + 9
)
SUBSCRIPTION: Final = SubscriptionRow(
    namespace=NAMESPACE,
    run_id="run-1",
    channel="topic:orders",
    topic="orders",
    selection="{}",
    digest="d",
    since=NOW,
)
GROUP_OF_E: Final = GroupRow(
    namespace=NAMESPACE, topic="e", group_key="g", name="g", selection="{}", since=NOW, used_at=NOW
)
FULL_MESSAGE: Final = TopicMessageRow(
    namespace=NAMESPACE,
    topic="orders/Größe",
    id="order \u2013 17",
    number=2**40,
    at=NOW - 1,
    payload='{"text":"é"}',
    attributes='{"country":"nz"}',
    checked=1,
    sender="run-7",
    sender_row=12,
    expires_at=NOW + 7,
    keep_last=1_000,
)
FULL_SUBSCRIPTION: Final = evolve(
    SUBSCRIPTION,
    selection='{"country":"nz"}',
    digest="0f" * 16,
    next_number=17,
    group_key="packers",
    waits_since=NOW - 3,
    holds=2**40,
)


def found(store: Persistence, search: Search[T], now: Micros = NOW) -> T:
    """Return what a search finds."""
    return store.transact(lambda tx: tx.find(search, now))


def ids(messages: Sequence[TopicMessageRow]) -> list[str]:
    """Return the ids of messages."""
    return [one.id for one in messages]


def to_deliver(store: Persistence, after: TopicName = FIRST) -> list[TopicName]:
    """Return the topics with something to deliver, one after the other."""
    names: list[TopicName] = []
    while (name := found(store, TopicToDeliver(*after))) is not None:
        names.append(name)
        after = name
    return names


def row_of(store: Persistence, table: Table[Any, Any], key: tuple[str, ...]) -> object:
    """Return the row with a key, or None."""
    rows = query(store, lambda tx: tx.get(table, [key]))
    return rows[0] if rows else None


class Topics(PersistenceCase):
    """What a store promises about topics."""

    @pytest.mark.parametrize(
        ("table", "row"),
        [
            (TOPICS, evolve(TOPIC, last=7, after_subscription='["run-1","topic:orders"]')),
            (TOPIC_MESSAGES, FULL_MESSAGE),
            (TOPIC_MESSAGES, evolve(FULL_MESSAGE, payload=f'{{"text":"{"é" * 10_000}"}}')),
            (SUBSCRIPTIONS, FULL_SUBSCRIPTION),
        ],
    )
    def test_every_field_comes_back(self, store: Persistence, table: Table[Any, Any], row: Any) -> None:
        """As it was stored, of each of the three kinds of rows."""
        put(store, Insert(row))
        assert row_of(store, table, table.key_of(row)) == row

    @pytest.mark.parametrize("row", [TOPIC, FULL_MESSAGE, FULL_SUBSCRIPTION])
    def test_an_update_changes_each_field_that_is_not_the_key(self, store: Persistence, row: Any) -> None:
        """Each alone, whatever the others are."""
        table = TABLE_OF[type(row)]
        put(store, Insert(row))
        names = set(attrs.asdict(row)) - set(table.key)
        for name in sorted(names):
            row = evolve(row, **{name: 77 if isinstance(getattr(row, name), int) else "text"})
            put(store, Update(row))
            assert row_of(store, table, table.key_of(row)) == row

    @pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
    def test_names_are_any_text(self, store: Persistence, text: str) -> None:
        """Names are compared bytewise, and never parsed."""
        message, subscription = evolve(MESSAGE, id=text), evolve(SUBSCRIPTION, run_id=text)
        put(store, Insert(message), Insert(subscription))
        assert found(store, NewMessages(NAMESPACE, "orders", 10)) == [message]
        assert found(store, SubscriptionsOfDigests(NAMESPACE, "orders", ["d"], "", "", 10)) == [subscription]

    def test_a_message_and_a_subscription_are_stored_once(self, store: Persistence) -> None:
        """A second insert of the same name changes nothing."""
        put(store, Insert(MESSAGE), Insert(SUBSCRIPTION))
        put(store, Insert(evolve(MESSAGE, payload="2")), Insert(evolve(SUBSCRIPTION, digest="other")))
        assert found(store, NewMessages(NAMESPACE, "orders", 10)) == [MESSAGE]
        assert found(store, SubscriptionsOfDigests(NAMESPACE, "orders", ["d", "other"], "", "", 10)) == [
            SUBSCRIPTION
        ]

    def test_a_topic_is_inserted_once(self, store: Persistence) -> None:
        """Of two transactions that insert a topic, one is repeated."""
        put(store, Insert(TOPIC))
        with pytest.raises(ConflictError):
            put(store, Insert(TOPIC))
        put(store, Insert(evolve(TOPIC, namespace=OTHER)))

    def test_new_messages_come_by_instant_row_and_id(self, store: Persistence) -> None:
        """Those without a number, of one topic, up to the limit."""
        put(
            store,
            *(
                Insert(evolve(MESSAGE, id=one, at=at))
                for one, at in [("c", NOW), ("b", NOW + 1), ("d", NOW - 1)]
            ),
            Insert(evolve(MESSAGE, id="a", at=NOW)),
            *(Insert(evolve(MESSAGE, id=one, sender_row=row)) for one, row in (("0", 10), ("1", 2))),
            Insert(evolve(MESSAGE, id="numbered", number=1)),
            Insert(evolve(MESSAGE, id="other", topic="other")),
            Insert(evolve(MESSAGE, id="other", namespace=OTHER)),
        )
        assert ids(found(store, NewMessages(NAMESPACE, "orders", 10))) == ["d", "a", "c", "1", "0", "b"]
        assert ids(found(store, NewMessages(NAMESPACE, "orders", 2))) == ["d", "a"]
        assert ids(found(store, NewMessages(NAMESPACE, "orders", 0))) == []

    def test_numbered_messages_come_by_number(self, store: Persistence) -> None:
        """From a number on, up to the limit."""
        put(store, *(Insert(evolve(MESSAGE, id=f"m{number}", number=number)) for number in (1, 10, 2, 3)))
        put(store, Insert(MESSAGE), Insert(evolve(MESSAGE, topic="other", number=2)))
        assert ids(found(store, NumberedMessages(NAMESPACE, "orders", 2, 10))) == ["m2", "m3", "m10"]
        assert ids(found(store, NumberedMessages(NAMESPACE, "orders", 0, 2))) == ["m1", "m2"]

    def test_the_first_number_since_an_instant(self, store: Persistence) -> None:
        """The lowest number of those that were published then or later, whatever their order is."""
        put(
            store,
            *(
                Insert(evolve(MESSAGE, id=f"m{number}", number=number, at=NOW + at))
                for number, at in ((1, 0), (2, 7), (3, 5), (4, 9))
            ),
            Insert(evolve(MESSAGE, at=NOW + 99)),
        )
        firsts = [found(store, FirstNumberSince(NAMESPACE, "orders", NOW + since)) for since in (0, 1, 8, 10)]
        assert firsts == [1, 2, 4, None]

    def test_messages_expire_once_they_were_delivered(self, store: Persistence) -> None:
        """Those without a number, or with a higher one, are left."""
        put(
            store,
            Insert(evolve(MESSAGE, id="old", number=1, expires_at=NOW - 1)),
            Insert(evolve(MESSAGE, id="older", number=2, expires_at=NOW - 2)),
            Insert(evolve(MESSAGE, id="beyond", number=3, expires_at=NOW - 2)),
            Insert(evolve(MESSAGE, id="kept", number=4, expires_at=NOW)),
            Insert(evolve(MESSAGE, id="new", expires_at=NOW - 2)),
        )
        old = [ExpiredMessage(one, is_kept=False) for one in ("beyond", "older", "old")]
        assert found(store, ExpiredMessages(NAMESPACE, "orders", 2, 10)) == old[1:]
        assert found(store, ExpiredMessages(NAMESPACE, "orders", 9, 2)) == old[:2]

    def test_the_topics_of_many_expired_messages(self, store: Persistence) -> None:
        """So many of the first are looked at: topics whose messages expired later are found once these are gone."""
        put(
            store,
            *(
                Insert(evolve(MESSAGE, topic="b", id=str(one), number=one, expires_at=NOW - 2))
                for one in range(EXPIRED_WINDOW)
            ),
            Insert(evolve(MESSAGE, topic="a", number=1, expires_at=NOW - 1)),
        )
        assert to_deliver(store) == [TopicName(NAMESPACE, "b")]
        put(store, Delete(TOPIC_MESSAGES, MessageName(NAMESPACE, "b", "0")))
        assert to_deliver(store) == [TopicName(NAMESPACE, one) for one in "ab"]

    def test_subscriptions_are_found_by_digest(self, store: Persistence) -> None:
        """In the order of their names, from a name on; only those that have caught up."""
        put(
            store,
            *(
                Insert(evolve(SUBSCRIPTION, run_id=run, digest=run[-1]))
                for run in ("3-a", "1-b", "2-a", "4-c")
            ),
            Insert(evolve(SUBSCRIPTION, run_id="2-a", channel="topic:orders#1", digest="b")),
            Insert(evolve(SUBSCRIPTION, run_id="5-a", digest="a", next_number=1)),
            Insert(evolve(SUBSCRIPTION, run_id="6-a", digest="a", topic="other")),
            Insert(evolve(SUBSCRIPTION, run_id="6-a", digest="a", namespace=OTHER)),
        )

        def of(
            digests: list[str], after: tuple[str, str] = ("", ""), limit: int = 10
        ) -> list[tuple[str, str]]:
            search = SubscriptionsOfDigests(NAMESPACE, "orders", digests, *after, limit)
            return [(one.run_id, one.channel) for one in found(store, search)]

        plain, filtered = "topic:orders", "topic:orders#1"
        assert of(["a", "b"]) == [("1-b", plain), ("2-a", plain), ("2-a", filtered), ("3-a", plain)]
        assert of(["a", "b"], ("2-a", plain)) == [("2-a", filtered), ("3-a", plain)]
        assert of(["a"], limit=1) == [("2-a", plain)]
        assert of([]) == of(["none"]) == []

    def test_subscriptions_that_are_behind(self, store: Persistence) -> None:
        """They are found until they have caught up, or are gone."""
        put(
            store,
            *(Insert(evolve(SUBSCRIPTION, run_id=run, next_number=1)) for run in ("b", "a", "c")),
            Insert(SUBSCRIPTION),
            Insert(evolve(SUBSCRIPTION, run_id="d", next_number=1, topic="other")),
        )
        behind = found(store, SubscriptionsBehind(NAMESPACE, "orders", 2))
        assert [one.run_id for one in behind] == ["a", "b"]
        put(
            store,
            Update(evolve(behind[0], next_number=None)),
            Delete(SUBSCRIPTIONS, behind[1].subscription_name),
        )
        assert [one.run_id for one in found(store, SubscriptionsBehind(NAMESPACE, "orders", 2))] == ["c"]

    def test_topics_with_something_to_deliver(self, store: Persistence) -> None:
        """New messages, subscriptions behind, a delivery that was begun, expired messages."""
        put(
            store,
            Insert(evolve(MESSAGE, topic="new")),
            Insert(evolve(MESSAGE, topic="delivered", number=1)),
            Insert(evolve(MESSAGE, topic="expired", number=1, expires_at=NOW - 1)),
            Insert(evolve(SUBSCRIPTION, topic="behind", next_number=1)),
            Insert(evolve(SUBSCRIPTION, run_id="2", topic="caught-up")),
            Insert(evolve(TOPIC, name="begun", after_subscription='["a","b"]')),
            Insert(evolve(TOPIC, name="idle")),
            Insert(evolve(MESSAGE, topic="of another", namespace=OTHER)),
        )
        names = [TopicName(NAMESPACE, name) for name in ("begun", "behind", "expired", "new")]
        names.append(TopicName(OTHER, "of another"))
        assert to_deliver(store) == names
        assert to_deliver(store, names[0]) == names[1:]
        assert to_deliver(store, names[2]) == names[3:]

    def test_one_transaction_at_a_time_holds_a_topic(self, store: Persistence) -> None:
        """Numbers are given under the lock of the topic: none is given twice, and none is left out."""
        put(store, Insert(TOPIC))

        def number_next(tx: Transaction) -> None:
            (topic,) = tx.lock(TOPICS, [TopicName(NAMESPACE, "orders")])
            tx.apply([Update(evolve(topic, last=topic.last + 1))])

        in_threads(4, lambda _: [store.transact(number_next) for _ in range(10)])
        assert row_of(store, TOPICS, TOPIC.topic_name) == evolve(TOPIC, last=40)

    def test_a_row_that_is_inserted_again_and_deleted_is_gone(self, store: Persistence) -> None:
        """A subscription that is there already stays as it is when it is inserted; the deletion after it counts."""
        put(store, Insert(SUBSCRIPTION))
        put(
            store,
            Insert(evolve(SUBSCRIPTION, next_number=0)),
            Delete(SUBSCRIPTIONS, SUBSCRIPTION.subscription_name),
        )
        assert store.transact(lambda tx: tx.get(SUBSCRIPTIONS, [SUBSCRIPTION.subscription_name])) == []

    def test_a_removed_subscription_is_gone(self, store: Persistence) -> None:
        """Removing it again does nothing."""
        put(store, Insert(SUBSCRIPTION))
        name = SubscriptionName(NAMESPACE, "run-1", "topic:orders")
        put(store, Delete(SUBSCRIPTIONS, name))
        put(store, Delete(SUBSCRIPTIONS, name))
        assert row_of(store, SUBSCRIPTIONS, name) is None

    def test_topics_are_listed_with_what_they_have(self, store: Persistence) -> None:
        """A topic is listed if it has a row, messages, subscriptions or groups; what others have is not counted."""
        put(
            store,
            Insert(evolve(TOPIC, name="d", last=7)),
            Insert(evolve(TOPIC, last=2)),
            Insert(evolve(MESSAGE, id="1", number=1, at=NOW - 9)),
            Insert(evolve(MESSAGE, id="2", number=2)),
            Insert(evolve(MESSAGE, id="3", at=NOW - 1)),
            Insert(evolve(MESSAGE, id="4", at=NOW - 2, sender_row=9)),
            Insert(SUBSCRIPTION),
            Insert(evolve(SUBSCRIPTION, channel="topic:orders#1", next_number=1)),
            Insert(evolve(MESSAGE, topic="b")),
            Insert(evolve(SUBSCRIPTION, topic="a", channel="topic:a")),
            Insert(evolve(SUBSCRIPTION, topic="c", channel="topic:c", next_number=1)),
            Insert(GROUP_OF_E),
            Insert(evolve(GROUP_OF_E, namespace=OTHER)),
            Insert(evolve(TOPIC, namespace=OTHER, last=9)),
            Insert(evolve(MESSAGE, namespace=OTHER)),
            Insert(evolve(SUBSCRIPTION, namespace=OTHER)),
        )
        listed = store.read(ListTopics(namespace=NAMESPACE))
        assert listed == (
            TopicEntry(name="a", subscriptions=1),
            TopicEntry(name="b", messages=1, undelivered=1, undelivered_since=NOW),
            TopicEntry(name="c", subscriptions=1),
            TopicEntry(name="d", last=7),
            TopicEntry(name="e"),
            TopicEntry(
                name="orders",
                last=2,
                messages=4,
                undelivered=2,
                undelivered_since=NOW - 2,
                subscriptions=2,
            ),
        )
        assert store.read(ListTopics(namespace=NAMESPACE, limit=2)) == listed[:2]
        assert store.read(ListTopics(namespace=NAMESPACE, after="b", limit=2)) == listed[2:4]
        assert store.read(ListTopics(namespace=NAMESPACE, after="orders")) == ()
        assert store.read(ListTopics(namespace=NAMESPACE, limit=0)) == ()
        assert store.read(ListTopics(namespace="none")) == ()

    def test_what_a_topic_has_is_counted_up_to_a_bound(self, store: Persistence) -> None:
        """Each count ends there, that of both kinds of subscriptions together."""
        many = range(COUNTED_MAX // 2 + 1)
        put(
            store,
            *(Insert(evolve(MESSAGE, id=f"n{one}")) for one in range(COUNTED_MAX + 1)),
            *(Insert(evolve(SUBSCRIPTION, run_id=f"r{one}")) for one in many),
            *(Insert(evolve(SUBSCRIPTION, run_id=f"b{one}", next_number=1)) for one in many),
        )
        (entry,) = store.read(ListTopics(namespace=NAMESPACE))
        assert (entry.messages, entry.undelivered, entry.subscriptions) == (COUNTED_MAX,) * 3

    @pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
    def test_topics_are_listed_whatever_their_names_are(self, store: Persistence, text: str) -> None:
        """And from any name on."""
        put(store, Insert(evolve(MESSAGE, namespace=text, topic=text)))
        entry = TopicEntry(name=text, messages=1, undelivered=1, undelivered_since=NOW)
        assert store.read(ListTopics(namespace=text)) == ((entry,) if text else ())
        assert store.read(ListTopics(namespace=text, after=text)) == ()

    def test_topics_of_names_that_no_store_has(self, store: Persistence) -> None:
        """No text breaks the query."""
        for text in ("nul \0", "half \ud800", "'; DROP TABLE holdfast_runs; --", "%", "x" * 10_000):
            assert store.read(ListTopics(namespace=text)) == ()
            assert store.read(ListTopics(namespace=NAMESPACE, after=text)) == ()
