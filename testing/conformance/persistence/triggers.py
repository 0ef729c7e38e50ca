"""The contract of a store for triggers: their rows, and the messages that they have not handled."""

from typing import Any, Final

import attrs
import pytest

from holdfast.ports.changes import Delete, Insert, Update
from holdfast.ports.errors import ConflictError
from holdfast.ports.persistence import Persistence, Transaction
from holdfast.ports.queries.triggers import FindTrigger, ListNumberedMessages, ListTriggers, TriggerEntry
from holdfast.ports.records.topic import TopicMessageRow, TopicRow
from holdfast.ports.records.trigger import TriggerName, TriggerRow
from holdfast.ports.searches import ExpiredMessages, MessagesBefore
from holdfast.ports.structs import evolve
from holdfast.ports.tables import TRIGGERS
from holdfast.testing.conformance.builders import NAMESPACE, NOW
from holdfast.testing.conformance.persistence.case import PersistenceCase, put, query
from holdfast.testing.conformance.persistence.topics import OTHER, found
from holdfast.testing.conformance.threads import in_threads

FULL_TRIGGER: Final = TriggerRow(
    namespace=NAMESPACE,
    name="ship/Größe",
    topic="orders",
    selection='{"country":"nz"}',
    workflow="ship",
    start='{"workflow":"ship"}',
    since=NOW,
    next_number=8,
    started=5,
    refused=2,
    recent='[{"number":7}]',
    changes='[{"at":1}]',
    paused='{"since":1}',
    problem="a quota",
    declared="abc",
    created_at=NOW,
    updated_at=NOW + 1,
)
_MESSAGE: Final = TopicMessageRow(
    namespace=NAMESPACE, topic="orders", id="a", at=NOW, payload="1", expires_at=NOW - 1
)


def _trigger(
    name: str, next_number: int = 1, *, namespace: str = NAMESPACE, topic: str = "orders"
) -> TriggerRow:
    return evolve(
        FULL_TRIGGER,
        namespace=namespace,
        name=name,
        topic=topic,
        next_number=next_number,
        declared=None,
    )


def _stored(store: Persistence, name: TriggerName = FULL_TRIGGER.trigger_name) -> TriggerRow | None:
    return next(iter(query(store, lambda tx: tx.lock(TRIGGERS, [name]))), None)


class Triggers(PersistenceCase):
    """What a store promises about triggers."""

    def test_every_field_of_a_trigger_comes_back(self, store: Persistence) -> None:
        """As it was stored, also by name and in a list."""
        put(store, Insert(FULL_TRIGGER))
        assert _stored(store) == FULL_TRIGGER
        assert query(store, lambda tx: tx.get(TRIGGERS, [FULL_TRIGGER.trigger_name])) == [FULL_TRIGGER]
        entry = TriggerEntry(FULL_TRIGGER, 0)
        assert store.read(FindTrigger(FULL_TRIGGER.trigger_name)) == entry
        assert store.read(ListTriggers(namespace=NAMESPACE)) == (entry,)

    def test_an_update_changes_each_field_of_a_trigger(self, store: Persistence) -> None:
        """Each alone, whatever the others are."""
        row: Any = FULL_TRIGGER
        put(store, Insert(row))
        for name in sorted(set(attrs.asdict(row)) - set(TRIGGERS.key)):
            row = evolve(row, **{name: 77 if isinstance(getattr(row, name), int) else "text"})
            put(store, Update(row))
            assert _stored(store) == row
        put(store, Update(evolve(row, paused=None, problem=None, declared=None)))
        assert _stored(store) == evolve(row, paused=None, problem=None, declared=None)

    def test_a_trigger_is_inserted_once_and_deleted(self, store: Persistence) -> None:
        """Of two transactions that insert a trigger, one is repeated."""
        put(store, Insert(FULL_TRIGGER))
        with pytest.raises(ConflictError):
            put(store, Insert(FULL_TRIGGER))
        put(store, Delete(TRIGGERS, FULL_TRIGGER.trigger_name))
        assert _stored(store) is None
        assert store.read(FindTrigger(FULL_TRIGGER.trigger_name)) is None

    def test_triggers_are_listed_by_name_with_the_progress_of_their_topics(self, store: Persistence) -> None:
        """Page by page, of one namespace, or only those that are declared."""
        put(
            store,
            *(Insert(_trigger(name)) for name in ("b", "a", "c")),
            Insert(evolve(FULL_TRIGGER, name="d", topic="other")),
            Insert(_trigger("a", namespace=OTHER)),
            Insert(TopicRow(namespace=NAMESPACE, name="orders", last=9)),
            Insert(TopicRow(namespace=OTHER, name="other", last=3)),
        )
        listed = store.read(ListTriggers(namespace=NAMESPACE))
        assert [(one.row.name, one.last, one.behind) for one in listed] == [
            ("a", 9, 9),
            ("b", 9, 9),
            ("c", 9, 9),
            ("d", 0, 0),
        ]
        assert store.read(ListTriggers(namespace=NAMESPACE, after="a", limit=2)) == listed[1:3]
        assert store.read(ListTriggers(namespace=NAMESPACE, limit=0)) == ()
        assert store.read(ListTriggers(namespace=NAMESPACE, declared=True)) == listed[3:]
        assert store.read(ListTriggers(namespace="nowhere")) == ()

    def test_numbered_messages_are_listed_from_a_number_on(self, store: Persistence) -> None:
        """Of one topic, those that have a number."""
        numbered = [evolve(_MESSAGE, id=f"m{number}", number=number) for number in (1, 2, 3)]
        put(
            store,
            *map(Insert, numbered),
            Insert(_MESSAGE),
            Insert(evolve(_MESSAGE, topic="other", number=2)),
            Insert(evolve(_MESSAGE, namespace=OTHER, number=2)),
        )

        def listed(number: int, limit: int) -> list[TopicMessageRow]:
            wanted = ListNumberedMessages(namespace=NAMESPACE, topic="orders", number=number, limit=limit)
            return list(store.read(wanted))

        assert listed(1, 10) == numbered
        assert listed(2, 1) == numbered[1:2]
        assert listed(4, 10) == []
        assert listed(1, 0) == []

    def test_messages_that_a_trigger_has_not_handled_do_not_expire(self, store: Persistence) -> None:
        """Whatever their time: the trigger of a topic that is furthest behind counts."""
        put(
            store,
            *(Insert(evolve(_MESSAGE, id=f"m{number}", number=number)) for number in (1, 2, 3)),
            Insert(evolve(_MESSAGE, topic="other", number=1)),
            Insert(_trigger("a", 3)),
            Insert(_trigger("b", 2)),
            Insert(_trigger("c", 1, topic="another")),
            Insert(_trigger("d", 1, namespace=OTHER)),
        )

        def free() -> list[str]:
            expired = found(store, ExpiredMessages(NAMESPACE, "orders", 3, 10))
            free = [one.id for one in expired if not one.is_kept]
            assert found(store, MessagesBefore(NAMESPACE, "orders", 4, 10)) == free
            return free

        assert free() == ["m1"]
        put(store, Update(_trigger("b", 1)))
        assert free() == []
        put(store, Update(_trigger("a", 4)), Delete(TRIGGERS, TriggerName(NAMESPACE, "b")))
        assert free() == ["m1", "m2", "m3"]

    def test_one_transaction_at_a_time_holds_a_trigger(self, store: Persistence) -> None:
        """A message is handled under the lock of the trigger: none is handled twice."""
        put(store, Insert(_trigger("a")), Insert(TopicRow(namespace=NAMESPACE, name="orders", last=40)))
        name = TriggerName(NAMESPACE, "a")

        def move_on(tx: Transaction) -> None:
            (row,) = tx.lock(TRIGGERS, [name])
            tx.apply([Update(evolve(row, next_number=row.next_number + 1, started=row.started + 1))])

        in_threads(4, lambda _: [store.transact(move_on) for _ in range(10)])
        entry = store.read(FindTrigger(name))
        assert entry is not None
        assert (entry.row.next_number, entry.row.started, entry.behind) == (41, 45, 0)
