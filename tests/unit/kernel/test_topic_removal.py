"""A topic is removed with its messages and groups, if nobody uses it."""

import pytest
from attrs import evolve

from holdfast.kernel.commands import (
    RunCreate,
    RunTerminate,
    TopicDeliver,
    TopicRemove,
    TriggerPut,
    TriggerRemove,
)
from holdfast.ports.changes import Delete
from holdfast.ports.errors import InvalidCommandError, TopicInUseError
from holdfast.ports.records.topic import TopicName
from holdfast.ports.records.values import Payload
from holdfast.ports.tables import GROUPS
from tests.unit.kernel.test_topic_groups import member, taken, waiting
from tests.unit.kernel.topic_worlds import (
    TOPIC,
    deliver,
    function,
    new_world,
    publish,
    received,
    record,
    subscriber,
)
from tests.unit.kernel.world import World

REMOVE = TopicRemove(topic=TOPIC)


@pytest.fixture
def world() -> World:
    return new_world()


def rows(world: World) -> int:
    """How many rows topics have."""
    tables = world.tables()
    return (
        len(tables.topics) + len(tables.topic_messages) + len(tables.groups) + len(tables.returned_messages)
    )


def given_a_topic(world: World) -> None:
    """A topic with five messages, of which one went back to a group."""
    attempt = function(world, "a")
    record(world, attempt, waiting())
    publish(world, *"12345")
    deliver(world)
    world.do(RunTerminate(run_id="a"))


def test_a_topic_is_removed_in_parts(world: World) -> None:
    given_a_topic(world)
    publish(world, "not delivered")
    steps = [world.do(evolve(REMOVE, limit=3)) for _ in range(3)]
    assert [(one.rows, one.more) for one in steps] == [(3, True), (3, True), (2, False)]
    assert rows(world) == 0
    with world.unchanged():
        assert world.do(REMOVE).rows == 0
        assert world.do(TopicDeliver()).topic is None


def test_a_topic_begins_anew_after_it_was_removed(world: World) -> None:
    given_a_topic(world)
    world.do(REMOVE)
    member(world, "b")
    deliver(world)
    assert taken(world, "b") == [[]]
    publish(world, "new")
    deliver(world)
    assert received(world, "b") == [("new", 1)]


def test_other_topics_stay(world: World) -> None:
    given_a_topic(world)
    with world.unchanged():
        world.do(TopicRemove(topic="other"))
        world.do(TopicRemove(topic=TOPIC, namespace="other"))


@pytest.mark.parametrize("is_member", [False, True])
def test_a_topic_to_which_a_run_has_subscribed_stays_until_it_ends(world: World, is_member: bool) -> None:
    """Also if it holds a message of a group, which it has not read."""
    publish(world, "1")
    if is_member:
        member(world, "a")
    else:
        subscriber(world, "a")
    deliver(world)
    with (
        world.unchanged(),
        pytest.raises(TopicInUseError, match="topic 'orders' has subscriptions: end the runs"),
    ):
        world.do(REMOVE)
    world.do(RunTerminate(run_id="a"))
    world.do(REMOVE)
    assert rows(world) == 0


def test_a_topic_with_a_trigger_stays_until_that_is_removed(world: World) -> None:
    start = RunCreate(workflow="f", input=Payload(inline="null"))
    world.do(TriggerPut(trigger="ship", topic=TOPIC, start=start))
    publish(world, "1")
    with world.unchanged(), pytest.raises(TopicInUseError) as refused:
        world.do(REMOVE)
    assert (refused.value.topic, refused.value.users) == (TOPIC, ("triggers",))
    world.do(TriggerRemove(trigger="ship"))
    world.do(REMOVE)
    assert rows(world) == 0


def test_a_member_that_began_to_wait_as_its_topic_was_removed_gets_its_message(world: World) -> None:
    """It found its group, and the removal did not find it. The delivery after its wait stores the group again."""
    attempt = function(world, "a")
    record(world, attempt, waiting(country="nz"))
    member(world, "b")
    (of_nz, _) = sorted(world.tables().groups, reverse=True)
    stored = world.tables().groups[of_nz]
    world.put(*(Delete(GROUPS, name) for name in world.tables().groups))
    assert TopicName("default", TOPIC) not in world.tables().topics
    deliver(world)
    assert len(world.tables().groups) == 2
    again = world.tables().groups[of_nz]
    assert (again.name, again.selection, again.since) == (stored.name, stored.selection, stored.since)
    publish(world, "1", country="nz")
    deliver(world)
    assert taken(world, "a", "b") == [["1"], ["1"]]


@pytest.mark.parametrize(
    "wrong", [evolve(REMOVE, topic=""), evolve(REMOVE, limit=0), evolve(REMOVE, limit=10_001)]
)
def test_a_removal_that_is_not_valid_is_refused(world: World, wrong: TopicRemove) -> None:
    with world.unchanged(), pytest.raises(InvalidCommandError):
        world.do(wrong)
