"""The cost of topics: a publication is one insert, and waits for other messages cost it nothing."""

from collections.abc import Iterator
from zlib import crc32

import attrs
import pytest

from holdfast.adapters.sql.persistence import SqlPersistence
from holdfast.kernel.commands import (
    JobClaim,
    JobRecord,
    NewTopicMessage,
    RunCreate,
    SessionOpen,
    TopicDeliver,
    TopicPublish,
    TopicSubscribe,
    TriggerFire,
    TriggerPut,
)
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.kernel.topics.selections import channel_of, group_channel_of, selection_text
from holdfast.kernel.topics.trigger_data import trigger_digest
from holdfast.ports.changes import Insert
from holdfast.ports.errors import CommandError
from holdfast.ports.queries.triggers import FindTrigger
from holdfast.ports.records.topic import SubscriptionRow
from holdfast.ports.records.trigger import TriggerName
from holdfast.ports.records.values import Payload
from holdfast.ports.searches import QueueClaim
from holdfast.testing.clock import ManualClock
from holdfast.testing.ids import SeededIds
from tests.integration.counts.statement_counter import Statements
from tests.sizes import sized
from tests.unit.kernel.world import pipeline, stage

pytestmark = pytest.mark.sized

FEW, MANY = 2, sized(200, 10_000)
PLAN = pipeline(attrs.evolve(stage("f", attempts=1), function=True), workflow="f")


class Host:
    """A kernel on a database, with counted statements."""

    def __init__(self, url: str, namespace: str, statements: Statements) -> None:
        clock = ManualClock()
        self.store = SqlPersistence(url)
        self.store.setup()
        ids = SeededIds(crc32(namespace.encode()), clock=clock)
        self.kernel = Kernel(persistence=self.store, clock=clock, ids=ids, plans=[PLAN])
        self.namespace = namespace
        self.statements = statements

    def subscribe(self, name: str, **selected: str) -> None:
        """Start a function and subscribe it."""
        self._record(
            name,
            TopicSubscribe(
                call="1",
                topic="orders",
                channel=channel_of("orders", selected),
                selection=selection_text(selected),
            ),
        )
        self.deliver()

    def wait_in_group(self, name: str) -> None:
        """Start a function that waits for the next message of a group."""
        channel = group_channel_of("orders", "packers", "1")
        self._record(name, TopicSubscribe(call="1", topic="orders", channel=channel, group="packers"))

    def _record(self, name: str, record: TopicSubscribe) -> None:
        dispatch, namespace = self.kernel.dispatch, self.namespace
        dispatch(RunCreate(namespace=namespace, workflow="f", input=Payload(inline="1"), id=name, queue=name))
        session = dispatch(SessionOpen(namespace=namespace, host="here", lease=60_000_000)).session
        claim = QueueClaim(queue=name, definitions=(PLAN.definition,), limit=1)
        (attempt,) = dispatch(
            JobClaim(namespace=namespace, session=session, queue_claims=(claim,), limit=1)
        ).attempts
        dispatch(
            JobRecord(namespace=namespace, job=attempt.job, epoch=attempt.epoch, seen=1, records=(record,))
        )

    def started(self, *numbers: int) -> Statements:
        """Start runs by a trigger, or without it for a number below 1; return what was sent."""
        commands: list[RunCreate | TriggerFire] = []
        for number in numbers:
            start = RunCreate(
                namespace=self.namespace,
                workflow="f",
                input=Payload(inline="1"),
                id=f"ship/orders/{number}",
                if_exists="return",
            )
            fire = TriggerFire(
                namespace=self.namespace,
                trigger="ship",
                expected=number,
                digest=self._digest(),
                number=number,
                next=number + 1,
                start=start,
            )
            commands.append(fire if number > 0 else start)
        with self.statements.of() as sent:
            answers = self.kernel.dispatch_many(commands)
        assert not [one for one in answers if isinstance(one, CommandError)]
        return sent

    def _digest(self) -> str:
        entry = self.store.read(FindTrigger(TriggerName(self.namespace, "ship")))
        return "" if entry is None else trigger_digest(entry.row)

    def wait_for_others(self, number: int) -> None:
        """Store subscriptions of runs that wait for other messages."""
        rows = [
            SubscriptionRow(
                namespace=self.namespace,
                run_id=f"other-{one}",
                channel="topic:orders#1",
                topic="orders",
                selection='{"customer":"x"}',
                digest=f"{one:016}",
                since=0,
            )
            for one in range(number)
        ]
        self.store.transact(lambda tx: tx.apply([Insert(row) for row in rows]))

    def publish(self) -> Statements:
        """Publish a message, and return what it took."""
        message = NewTopicMessage(topic="orders", payload="1", attributes='{"customer":"ann"}')
        with self.statements.of() as sent:
            self.kernel.dispatch(TopicPublish(namespace=self.namespace, message=message))
        return sent

    def deliver(self) -> Statements:
        """Deliver what there is, and return what it took."""
        with self.statements.of() as sent:
            while self.kernel.dispatch(TopicDeliver(namespace=self.namespace, topic="orders")).more:
                pass
        return sent


@pytest.fixture
def host(url: str, namespace: str, statements: Statements) -> Iterator[Host]:
    host = Host(url, namespace, statements)
    yield host
    host.store.close()


def test_a_publication_is_one_insert(host: Host) -> None:
    """It reads and locks nothing, so it waits for no other publisher."""
    host.publish()
    sent = host.publish()
    assert (sent.commits, sent.queries) == (1, 1)
    (statement,) = (sql for sql in sent.sent if "holdfast" in sql)
    assert "INSERT INTO holdfast_topic_messages" in statement


@pytest.mark.parametrize("many", [FEW, MANY])
def test_waits_for_other_messages_cost_a_delivery_nothing(host: Host, many: int) -> None:
    host.subscribe("ann", customer="ann")
    host.wait_for_others(many)
    host.publish()
    host.deliver()
    host.publish()
    sent = host.deliver()
    # Reads: the topic, subscriptions behind, new messages, subscribers, groups with members, expired messages, the run
    # (twice), its subscriptions, its job. Writes: the topic, the message, the run, its history.
    assert (sent.commits, sent.queries) == (1, 14)


@pytest.mark.parametrize("many", [FEW, MANY])
def test_members_that_wait_cost_a_message_of_their_group_nothing(host: Host, many: int) -> None:
    """One of them is handed it, however many wait."""
    for number in range(many):
        host.wait_in_group(f"member-{number}")
    host.publish()
    host.deliver()
    host.publish()
    sent = host.deliver()
    # Beside the reads and writes of a delivery to one run: the members, messages that went back, the stored messages
    # from where the group is; the group, and the wait that ends.
    assert sent.commits == 1
    assert sent.queries == 18


def test_a_trigger_costs_a_message_a_lock_and_an_update_beside_its_run(host: Host) -> None:
    start = RunCreate(namespace=host.namespace, workflow="f", input=Payload(inline="null"))
    host.kernel.dispatch(TriggerPut(namespace=host.namespace, trigger="ship", topic="orders", start=start))
    host.started(0)
    alone, fired = (host.started(number) for number in (-1, 1))
    # The trigger and its topic are read, and the trigger is written.
    assert (fired.commits, fired.queries) == (1, alone.queries + 3)


def test_a_hundred_messages_of_a_trigger_are_one_transaction(host: Host) -> None:
    start = RunCreate(namespace=host.namespace, workflow="f", input=Payload(inline="null"))
    host.kernel.dispatch(TriggerPut(namespace=host.namespace, trigger="ship", topic="orders", start=start))
    host.started(0)
    one = host.started(1)
    many = host.started(*range(2, 102))
    assert (many.commits, many.queries) == (1, one.queries)
