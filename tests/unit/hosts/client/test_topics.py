"""`engine.topics()`: what topics have, and how far they were delivered."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, cast

import pytest

from holdfast import Topic, workflow
from holdfast.client import TopicInfo
from holdfast.errors import InvalidArgumentError, InvalidCommandError, InvalidFilterError, TopicInUseError
from holdfast.hosts.inspection import topics as inspected
from holdfast.kernel.commands import TopicDeliver, TopicPublish
from holdfast.ports.actors import Actor
from holdfast.testing import World

orders = Topic("orders", str)
refunds = Topic("refunds", str)


@workflow
async def follow() -> str:
    return await orders.receive()


@pytest.fixture
def world() -> Iterator[World]:
    with World([follow]) as world:
        yield world


def info(name: str, **others: Any) -> TopicInfo:
    empty: dict[str, Any] = {"undelivered_since": None} | dict.fromkeys(
        ("last", "messages", "undelivered", "subscriptions"), 0
    )
    return TopicInfo(name=name, **empty | others)


def test_topics_have_what_was_published_and_who_subscribed(world: World) -> None:
    engine = world.engine.sync
    assert list(engine.topics()) == []
    for text in "ab":
        engine.publish(refunds(text))
    engine.start(follow())
    world.work()
    assert list(engine.topics()) == [info("orders", subscriptions=1), info("refunds", messages=2, last=2)]


def test_a_topic_is_removed_with_all_that_it_has(world: World) -> None:
    engine = world.engine.sync
    for number in range(1_200):
        engine.publish(refunds(str(number)))
    engine.start(follow(), id="follower")
    world.work()
    with pytest.raises(TopicInUseError, match="topic 'orders' has subscriptions"):
        engine.remove_topic("orders", actor=Actor("user", "ann"))
    assert engine.remove_topic("refunds", actor=Actor("user", "ann")) == 1_200
    assert [one.name for one in engine.topics()] == ["orders"]
    assert engine.remove_topic("refunds") == 0
    removals = [one for one in engine.audit() if one.action == "topic.remove"]
    assert {(one.target, one.actor and one.actor.id) for one in removals} == {("refunds", "ann")}
    with pytest.raises(InvalidCommandError):
        engine.remove_topic("")


def test_messages_without_a_number_are_undelivered_since_the_first(world: World) -> None:
    engine = world.engine.sync
    start = world.now
    for text in "ab":
        command = TopicPublish(namespace="default", message=orders(text).as_new())
        world.engine.kernel.dispatch(command)  # without what follows
        world.clock.advance(timedelta(minutes=1))
    assert list(engine.topics()) == [info("orders", messages=2, undelivered=2, undelivered_since=start)]
    world.engine.kernel.dispatch(TopicDeliver(namespace="default"))
    assert list(engine.topics()) == [info("orders", messages=2, last=2)]


def test_topics_are_read_page_by_page(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspected, "_PAGE", 2)
    engine = world.engine.sync
    names = [f"topic-{number}" for number in range(5)]
    for name in names:
        engine.publish(Topic(name, str)("a"))
    assert [one.name for one in engine.topics()] == names
    assert [one.name for one in engine.topics(after="topic-1", limit=3)] == names[2:]
    assert list(engine.in_namespace("other").topics()) == []


def test_options_are_checked_before_the_store_is_read(world: World) -> None:
    engine = world.engine.sync
    with pytest.raises(InvalidFilterError, match="limit"):
        engine.topics(limit=0)
    with pytest.raises(InvalidArgumentError, match="after"):
        engine.topics(after=cast("str", 1))
