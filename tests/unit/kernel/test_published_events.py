"""Events that a body publishes are stored if and only if its result is."""

import attrs
import pytest

from holdfast.kernel.commands import Completed, JobSettle, PublishedEvent
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.events import EVENT_BYTES_MAX
from holdfast.ports.records.values import Payload
from tests.unit.kernel.world import World, completing, each, failed, payload, pipeline, settling, stage

PAID = PublishedEvent(type="order.paid", payload=payload({"cents": 5}))
SENT = PublishedEvent(type="sent", payload=payload(None))


def publishing(command: JobSettle, *events: PublishedEvent) -> JobSettle:
    return attrs.evolve(command, events=events)


def test_they_are_rows_before_the_result() -> None:
    world = World(pipeline(stage("a"), stage("b")))
    world.create()
    attempt = world.claim_one(world.open())
    world.do(publishing(completing(attempt), PAID, SENT))

    assert world.events() == ["run.created", "user.order.paid", "user.sent", "stage.completed"]
    paid = world.history()[1]
    assert (paid.node, paid.item, paid.epoch, paid.payload, paid.data) == ("a", None, 1, PAID.payload, None)
    world.complete(world.claim_one(world.open()))
    assert world.run().status == "completed"
    assert world.result() == "b"


def test_those_of_a_map_say_which_item_they_are_of_and_its_outputs_are_not_confused() -> None:
    world = World(pipeline(each("m"), stage("b")))
    world.create(input=[1, 2])
    session = world.open()
    world.expand(world.claim_one(session), [1, 2])
    for attempt in world.claim(session):
        world.do(publishing(completing(attempt, [attempt.item]), PAID))
    (last,) = world.claim(session)
    world.complete(last)

    rows = [row for row in world.history() if row.type == "user.order.paid"]
    assert [row.item for row in rows] == [0, 1]
    assert world.value(world.run().key, last.input) == [[0], [1]]


def test_those_that_come_too_late_change_nothing() -> None:
    world = World(pipeline(stage("a")))
    world.create()
    attempt = world.claim_one(world.open())
    world.release(attempt)
    with world.unchanged():
        assert world.do(publishing(completing(attempt), PAID)).status == "fenced"


@pytest.mark.parametrize(
    "event",
    [
        attrs.evolve(PAID, type="Paid"),
        attrs.evolve(PAID, type=""),
        attrs.evolve(PAID, payload=Payload(blob="k")),
        attrs.evolve(PAID, payload=Payload(inline="1" * (EVENT_BYTES_MAX + 1))),
    ],
    ids=["type", "no type", "blob", "large"],
)
def test_what_can_not_be_an_event_is_refused(event: PublishedEvent) -> None:
    world = World(pipeline(stage("a")))
    world.create()
    attempt = world.claim_one(world.open())
    with world.unchanged(), pytest.raises(InvalidCommandError):
        world.do(publishing(completing(attempt), SENT, event))


def test_only_a_body_that_completes_publishes() -> None:
    world = World(pipeline(stage("a")))
    world.create()
    attempt = world.claim_one(world.open())
    with world.unchanged(), pytest.raises(InvalidCommandError):
        world.do(publishing(settling(attempt, failed()), PAID))
    assert world.do(publishing(settling(attempt, Completed(output=payload(1))), PAID)).status == "settled"
