"""The workloads of topics.

A message for one and for many runs, runs that each wait for a message of their own, and members of a group.
"""

from collections.abc import Callable
from typing import TypeVar

from holdfast import Channel, Engine, SyncEngine, Topic, Worker, workflow
from tests.benchmarks.floors import check
from tests.benchmarks.meter import Meter, Sample, wait_until
from tests.benchmarks.sites import Site

R = TypeVar("R")

CONCURRENCY = 200

news = Topic("news", int)
orders = Topic("orders", dict[str, str], keys=("order",))
direct = Channel("direct", int)


@workflow
async def follow(messages: int) -> int:
    """Receive messages of a topic."""
    subscription = await news.subscribe()
    return sum([await subscription.receive() for _ in range(messages)])


@workflow
async def listen(messages: int) -> int:
    """Receive messages that are sent to the run."""
    return sum([await direct.receive() for _ in range(messages)])


@workflow
async def wait_for(order: str) -> str:
    """Wait for the message of one order."""
    return (await orders.where(order=order).receive())["order"]


@workflow
async def pack(messages: int) -> int:
    """Receive messages as a member of a group."""
    group = news.group("packers")
    return len([await group.receive() for _ in range(messages)])


def publish(site: Site, subscribers: int, messages: int) -> Sample:
    """Publish messages to subscribers that wait, until all have received them."""
    return _measured(
        site,
        subscribers,
        messages,
        lambda engine: engine.start_all([follow(messages) for _ in range(subscribers)]),
        lambda engine, _: [engine.publish(news(number)) for number in range(messages)],
    )


def share(site: Site, members: int, messages: int) -> Sample:
    """Publish messages for a group, so many for each of its members, until all have received theirs."""
    return _measured(
        site,
        members,
        messages,
        lambda engine: engine.start_all([pack(messages) for _ in range(members)]),
        lambda engine, _: [engine.publish(news(number)) for number in range(members * messages)],
    )


def signal(site: Site, subscribers: int, messages: int) -> Sample:
    """Send the same messages to each run by itself."""
    return _measured(
        site,
        subscribers,
        messages,
        lambda engine: engine.start_all([listen(messages) for _ in range(subscribers)]),
        lambda _, runs: [run.signal(direct(number)) for number in range(messages) for run in runs],
    )


def wake(site: Site, waits: int) -> Sample:
    """Publish a message for each of many runs that wait for one message each."""
    return _measured(
        site,
        waits,
        1,
        lambda engine: engine.start_all([wait_for(str(number)) for number in range(waits)]),
        lambda engine, _: [engine.publish(orders({"order": str(number)})) for number in range(waits)],
    )


def signal_waits(site: Site, waits: int) -> Sample:
    """Send a message to each of many runs that wait for one."""
    return signal(site, waits, 1)


def _measured(
    site: Site,
    runs: int,
    messages: int,
    start: Callable[[SyncEngine], list[R]],
    send: Callable[[SyncEngine, list[R]], object],
) -> Sample:
    with (
        Meter(site) as meter,
        Engine.open(site.url, workflows=[follow, listen, pack, wait_for]).sync as engine,
        Worker(engine, concurrency=CONCURRENCY) as worker,
    ):
        started = start(engine)
        wait_until(lambda: worker.stats().settled >= runs)  # all of them wait
        meter.start()
        send(engine, started)
        wait_until(lambda: not sum(engine.count(status=["running", "pending"]).values()))
        meter.stop()
        completed = sum(engine.count(status="completed").values())
        check(completed == runs, f"{completed} of {runs} runs completed")
    return meter.sample(runs * messages)
