"""The doctor's findings about triggers: no host has handled a message, or a quota holds one up."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from holdfast import Topic, Trigger, workflow
from holdfast.hosts.client.engine import Engine
from holdfast.testing import World

orders = Topic("orders", str)


@workflow
async def ship(order: str) -> str:
    return order


@workflow
async def other(order: str) -> str:
    return order


@pytest.fixture
def world() -> Iterator[World]:
    with World([ship], namespace="default") as world:
        world.engine.sync.triggers.put(Trigger("ship", orders, ship))
        yield world


def publish_elsewhere(world: World, *texts: str) -> None:
    """Publish in a process without the code of the trigger."""
    elsewhere = Engine.on(world.engine.core.adapters, workflows=[other])
    for text in texts:
        elsewhere.sync.publish(orders(text))


@pytest.mark.parametrize(("seconds", "is_sound"), [(60, True), (61, False)])
def test_a_message_that_no_host_has_handled_is_found_after_a_minute(
    world: World, seconds: int, *, is_sound: bool
) -> None:
    publish_elsewhere(world, "a")
    world.clock.advance(timedelta(seconds=seconds))
    publish_elsewhere(world, "b")
    found = world.engine.sync.doctor()
    assert found.is_sound is is_sound
    for one in found.findings:
        assert (one.code, one.key, one.namespace) == ("trigger_late", "ship", "default")
        assert one.text == (
            "trigger 'ship': message 1 of 'orders' was published 1m 1s ago, "
            "and no host that has the code of 'ship' has handled it"
        )


def test_a_paused_trigger_is_no_finding(world: World) -> None:
    world.engine.sync.triggers.pause("ship")
    publish_elsewhere(world, "a")
    world.clock.advance(timedelta(hours=1))
    assert world.engine.sync.doctor().is_sound


def test_a_trigger_that_a_quota_holds_up_is_found(world: World) -> None:
    world.engine.sync.namespaces.create("default", max_active_runs=0)
    world.engine.sync.publish(orders("a"))
    (found,) = world.engine.sync.doctor().findings
    assert found.code == "trigger_held"
    assert found.text.startswith("trigger 'ship': it is held up at message 1 of 'orders': ")
