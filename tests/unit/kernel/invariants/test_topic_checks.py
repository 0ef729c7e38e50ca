"""The invariants of topics (X1 to X4) find what goes wrong: each case has one change."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from holdfast.kernel.commands import (
    Completed,
    ContinuedAsNew,
    FunctionRecord,
    JobRecord,
    NewTopicMessage,
    RunRerunFrom,
    TopicDeliver,
    TopicPublish,
    TopicSubscribe,
    TopicUnsubscribe,
)
from holdfast.kernel.history import events
from holdfast.kernel.invariants import Snapshot, check
from holdfast.kernel.invariants.snapshots import as_snapshot
from holdfast.kernel.topics.selections import channel_of, selection_text
from holdfast.ports.json import canonical
from holdfast.ports.mailboxes import mailbox_from
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.topic import MessageName, SubscriptionName, TopicName
from holdfast.ports.records.values import Payload
from tests.unit.kernel.world import World, payload, pipeline, stage

TOPIC = "orders"
NAME = TopicName("default", TOPIC)
ALL = channel_of(TOPIC, {})
NZ = channel_of(TOPIC, {"country": "nz"})

Damage = Callable[[Snapshot], Snapshot]


def subscribing(call: str = "1", **selected: str) -> TopicSubscribe:
    return TopicSubscribe(
        call=call,
        topic=TOPIC,
        channel=channel_of(TOPIC, selected),
        selection=selection_text(selected),
        since=0,
    )


def publish(world: World, *texts: str, country: str = "nz") -> None:
    for text in texts:
        message = NewTopicMessage(
            topic=TOPIC, payload=canonical(text), attributes=selection_text({"country": country})
        )
        world.do(TopicPublish(message=message, id=text))


def deliver(world: World) -> None:
    while world.do(TopicDeliver(topic=TOPIC)).more:
        pass


def new_world() -> World:
    return World(pipeline(attrs.evolve(stage("f", attempts=1), function=True), workflow="f"))


def delivered() -> World:
    """A world in which `s` has messages 1 and 2 of New Zealand, the run `old` has ended, and message 4 is new."""
    world = new_world()
    world.create("old", workflow="f")
    world.settle(world.claim_one(world.open()), Completed(output=payload(1)))
    world.create("s", workflow="f")
    attempt = world.claim_one(world.open())
    world.do(JobRecord(job=attempt.job, epoch=attempt.epoch, seen=1, records=(subscribing(country="nz"),)))
    publish(world, "a", "b")
    publish(world, "c", country="fr")
    deliver(world)
    publish(world, "d")
    return world


SOUND = as_snapshot(delivered().tables())
[S] = [run.key for run in SOUND.runs.values() if run.id == "s"]
[OLD] = [run.key for run in SOUND.runs.values() if run.id == "old"]


def message(text: str, **fields: Any) -> Damage:
    """Change fields of a stored message."""

    def damage(snapshot: Snapshot) -> Snapshot:
        name = MessageName(*NAME, text)
        messages = dict(snapshot.topic_messages or {})
        messages[name] = attrs.evolve(messages[name], **fields)
        return attrs.evolve(snapshot, topic_messages=messages)

    return damage


def topic(**fields: Any) -> Damage:
    """Change fields of the topic's row."""

    def damage(snapshot: Snapshot) -> Snapshot:
        assert snapshot.topics is not None
        return attrs.evolve(snapshot, topics={NAME: attrs.evolve(snapshot.topics[NAME], **fields)})

    return damage


def row(place: int, **fields: Any) -> Damage:
    """Change fields of the event of a row of `s`."""

    def damage(snapshot: Snapshot) -> Snapshot:
        rows = list(snapshot.history[S])
        event = attrs.evolve(events.event_of(rows[place]), **fields)
        rows[place] = attrs.evolve(rows[place], data=event.data)
        return attrs.evolve(snapshot, history={**snapshot.history, S: rows})

    return damage


def run_row(key: str, **fields: Any) -> Damage:
    """Change fields of the row of a run."""

    def damage(snapshot: Snapshot) -> Snapshot:
        return attrs.evolve(snapshot, runs={**snapshot.runs, key: attrs.evolve(snapshot.runs[key], **fields)})

    return damage


def other_payload(snapshot: Snapshot) -> Snapshot:
    rows: list[HistoryRow] = list(snapshot.history[S])
    rows[-1] = attrs.evolve(rows[-1], payload=Payload(inline='"other"'))
    return attrs.evolve(snapshot, history={**snapshot.history, S: rows})


def no_topics(snapshot: Snapshot) -> Snapshot:
    return attrs.evolve(snapshot, topics={})


def no_subscriptions(snapshot: Snapshot) -> Snapshot:
    return attrs.evolve(snapshot, subscriptions={})


def one_more_subscription(run_id: str, channel: str = NZ) -> Damage:
    def damage(snapshot: Snapshot) -> Snapshot:
        [known] = (snapshot.subscriptions or {}).values()
        more = attrs.evolve(known, run_id=run_id, channel=channel)
        subscriptions = {**(snapshot.subscriptions or {}), more.subscription_name: more}
        return attrs.evolve(snapshot, subscriptions=subscriptions)

    return damage


def without_message(text: str) -> Damage:
    def damage(snapshot: Snapshot) -> Snapshot:
        messages = dict(snapshot.topic_messages or {})
        del messages[MessageName(*NAME, text)]
        return attrs.evolve(snapshot, topic_messages=messages)

    return damage


def test_a_sound_world_has_no_violations() -> None:
    assert check(SOUND) == []
    assert SOUND.subscriptions is not None
    assert [events.event_of(one).type for one in SOUND.history[S][-2:]] == ["signal.received"] * 2
    assert list(SOUND.subscriptions) == [SubscriptionName("default", "s", NZ)]


@pytest.mark.parametrize(
    ("invariant", "what", "damage"),
    [
        ("X1", "is message 1", row(-1, number=1, message="a")),
        ("X1", "after message 7", row(-2, number=7)),
        ("X2", "differs from message 'b'", row(-1, number=9)),
        ("X2", "differs from message 'b'", row(-1, sender="x")),
        ("X2", "differs from message 'b'", other_payload),
        ("X2", "the subscription selects", message("a", attributes=selection_text({"country": "fr"}))),
        ("X2", "which has no subscription", row(-1, channel=ALL)),
        ("X3", "both have number 1", message("b", number=1)),
        ("X3", "has number 5, but the numbers end with 3", message("c", number=5)),
        ("X3", "has number 4, but the numbers end with 3", message("d", number=4)),
        ("X3", "has number 0", message("a", number=0)),
        ("X3", "which is not stored", topic(after_subscription='["s","x"]')),
        ("X3", "the numbers end with 0", no_topics),
        ("X4", "but [] are stored", no_subscriptions),
        ("X4", f"but ['{ALL}', '{NZ}'] are stored", one_more_subscription("s", ALL)),
        ("X4", f"lists the subscriptions [], but ['{NZ}'] are stored", one_more_subscription("old")),
        ("X4", "of a run that does not exist", one_more_subscription("unknown")),
        (
            "X4",
            "has ended, but its mailbox lists",
            run_row(OLD, mailbox=attrs.evolve(mailbox_from(None), subscribed=(NZ,)).to_text()),
        ),
    ],
)
def test_a_change_is_found(invariant: str, what: str, damage: Damage) -> None:
    found = [str(one) for one in check(damage(SOUND)) if one.invariant == invariant]
    assert any(what in one for one in found), found


def test_a_message_that_some_subscribers_have_has_its_number() -> None:
    world = delivered()
    world.create("t", workflow="f")
    attempt = world.claim_one(world.open())
    world.do(JobRecord(job=attempt.job, epoch=attempt.epoch, seen=1, records=(subscribing(country="nz"),)))
    while world.do(TopicDeliver(topic=TOPIC, limit=1)).deliveries != 1 or not _is_partial(world):
        pass
    assert check(world.tables()) == []


def _is_partial(world: World) -> bool:
    return world.tables().topics[NAME].after_subscription is not None


def test_messages_that_were_deleted_are_not_compared() -> None:
    assert check(without_message("a")(SOUND)) == []


def test_tables_that_were_not_read_are_not_checked() -> None:
    part = attrs.evolve(SOUND, topics=None, topic_messages=None, subscriptions=None)
    assert check(row(-1, number=1)(part)) == []
    assert check(attrs.evolve(SOUND, topics=None, topic_messages=None)) == []


def test_only_messages_of_the_named_runs_are_checked() -> None:
    assert check(row(-1, number=1)(SOUND), runs=[OLD]) == []


def test_a_generation_that_continues_a_run_does_not_begin_anew() -> None:
    world = new_world()
    world.create("s", workflow="f")
    attempt = world.claim_one(world.open())
    world.do(JobRecord(job=attempt.job, epoch=attempt.epoch, seen=1, records=(subscribing(country="nz"),)))
    publish(world, "a", "b")
    deliver(world)
    world.settle(attempt, ContinuedAsNew(workflow="f", version="1", input=payload(2), seen=4))
    publish(world, "c")
    deliver(world)
    sound = as_snapshot(world.tables())
    assert check(sound) == []
    last = world.run("s").key
    rows = list(sound.history[last])
    event = attrs.evolve(events.SignalReceived.from_row(rows[-1]), number=2, message="b")
    rows[-1] = attrs.evolve(rows[-1], data=event.data)
    damaged = attrs.evolve(sound, history={**sound.history, last: rows})
    assert "X1" in {one.invariant for one in check(damaged)}


@pytest.mark.parametrize("row_number", [1, 3])
def test_a_rerun_may_get_messages_again_that_are_marked(row_number: int) -> None:
    """After a kept subscription, the numbers go on ascending; a subscription that begins anew begins with any."""
    world = new_world()
    world.create("s", workflow="f")
    attempt = world.claim_one(world.open())
    world.do(JobRecord(job=attempt.job, epoch=attempt.epoch, seen=1, records=(subscribing(country="nz"),)))
    publish(world, "a", "b")
    deliver(world)
    world.settle(attempt, Completed(output=payload(1)))
    world.do(RunRerunFrom(run_id="s", row=row_number))
    world.wait(1)
    publish(world, "c")
    deliver(world)
    assert check(world.tables()) == []
    if row_number == 1:
        return
    sound = as_snapshot(world.tables())
    last = world.run("s").key
    rows = list(sound.history[last])
    event = attrs.evolve(events.SignalReceived.from_row(rows[-1]), number=2, message="b")
    rows[-1] = attrs.evolve(rows[-1], data=event.data)
    damaged = attrs.evolve(sound, history={**sound.history, last: rows})
    assert "X1" in {one.invariant for one in check(damaged)}


def test_a_subscription_that_begins_anew_may_get_stored_messages_again() -> None:
    world = new_world()
    world.create("s", workflow="f")
    attempt = world.claim_one(world.open())

    def record(*records: FunctionRecord, seen: int) -> None:
        world.do(JobRecord(job=attempt.job, epoch=attempt.epoch, seen=seen, records=records))

    record(subscribing(country="nz"), seen=1)
    publish(world, "a")
    deliver(world)
    record(TopicUnsubscribe(call="2", topic=TOPIC, channel=NZ), seen=3)
    record(subscribing("3", country="nz"), seen=4)
    deliver(world)
    numbers = [
        events.SignalReceived.from_row(one).number
        for one in world.history("s")
        if one.type == events.SignalReceived.type
    ]
    assert numbers == [1, 1]
    assert check(world.tables()) == []
