"""A world with a topic, its publishers and its subscribers."""

from collections.abc import Callable
from typing import Any

import attrs

from holdfast.adapters.memory.persistence import MemoryPersistence
from holdfast.kernel.commands import (
    Attempt,
    FunctionRecord,
    FunctionWaiting,
    JobRecord,
    JobRecorded,
    NewTopicMessage,
    TopicDeliver,
    TopicPublish,
    TopicSubscribe,
)
from holdfast.kernel.history import events
from holdfast.kernel.topics.selections import channel_of, selection_text
from holdfast.ports.json import canonical
from holdfast.ports.persistence import Persistence
from holdfast.ports.records.job import job_key
from holdfast.ports.records.values import Micros
from holdfast.ports.searches import LatestRuns, Search
from tests.unit.kernel.world import World, pipeline, stage

TOPIC = "orders"
ALL = channel_of(TOPIC, {})
NZ = channel_of(TOPIC, {"country": "nz"})
DAY = 86_400_000_000


def new_world(wrap: Callable[[MemoryPersistence], Persistence] | None = None) -> World:
    return World(pipeline(attrs.evolve(stage("f", attempts=1), function=True), workflow="f"), wrap=wrap)


def function(world: World, name: str) -> Attempt:
    """A function that was started and waits to be driven."""
    world.create(name, workflow="f")
    run = world.run(name).key
    return next(one for one in world.claim(world.open()) if job_key(one.job).run == run)


def record(world: World, attempt: Attempt, *records: FunctionRecord, seen: int = 1) -> JobRecorded:
    return world.do(JobRecord(job=attempt.job, epoch=attempt.epoch, seen=seen, records=records))


def subscribing(
    call: str = "1", *, since: Micros | None = None, topic: str = TOPIC, **selected: str
) -> TopicSubscribe:
    return TopicSubscribe(
        call=call,
        topic=topic,
        channel=channel_of(topic, selected),
        selection=selection_text(selected),
        since=since,
    )


def subscriber(world: World, name: str, *, since: Micros | None = None, **selected: str) -> Attempt:
    """A function that has subscribed and waits."""
    attempt = function(world, name)
    record(world, attempt, subscribing(since=since, **selected))
    world.settle(attempt, FunctionWaiting(seen=2))
    return attempt


def message(text: str, **attributes: str) -> NewTopicMessage:
    return NewTopicMessage(topic=TOPIC, payload=canonical(text), attributes=selection_text(attributes))


def publish(world: World, *texts: str, **attributes: str) -> None:
    for text in texts:
        world.do(TopicPublish(message=message(text, **attributes), id=text))


def deliver(world: World, limit: int = 500) -> int:
    """Deliver everything; return in how many transactions."""
    for number in range(1, 1_000):
        if not world.do(TopicDeliver(topic=TOPIC, limit=limit)).more:
            return number
    raise AssertionError("the delivery does not end")


def received(world: World, name: str) -> list[tuple[str, int | None]]:
    """The messages in a run's history, each with its number in the topic."""
    rows = [row for row in world.history(name) if row.type == events.SignalReceived.type]
    return [
        (str(row.payload.inline)[1:-1], events.SignalReceived.from_row(row).number)
        for row in rows
        if row.payload is not None
    ]


class Racing:
    """A store, and a transaction of it, in which another one commits while it waits for the locks of runs."""

    def __init__(self, wrapped: Any, others: list[Callable[[], object]]) -> None:
        self._wrapped = wrapped
        self._others = others

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)

    def transact(self, work: Callable[[Any], object]) -> object:
        def racing(tx: Any) -> object:
            return work(Racing(tx, self._others))

        return self._wrapped.transact(racing)

    def find(self, search: Search[object], /, now: Micros = 0) -> object:
        if isinstance(search, LatestRuns) and self._others:
            self._others.pop()()
        return self._wrapped.find(search, now)
