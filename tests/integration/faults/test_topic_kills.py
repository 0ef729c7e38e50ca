"""Workers are killed while runs publish to a topic and follow it, beside a publisher that holds its transaction open.

Each subscriber gets each message once, and all in one order; each message starts one run of a trigger.
"""

import secrets
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

import pytest
from sqlalchemy import create_engine

from holdfast import Engine, Topic, Trigger, continue_as_new, step, workflow
from holdfast.kernel.invariants import check
from holdfast.testing.snapshots import snapshot_of
from tests.integration.faults.killed_workers import KilledWorkers
from tests.postgres import fresh_database

SOON = timedelta(minutes=3)
PUBLISHERS: Final = 3
SUBSCRIBERS: Final = 4
MESSAGES: Final = 10
KILLS_MIN: Final = 6
BETWEEN_KILLS: Final = 1.2
"""Seconds. A worker takes about one to start, and has a lease of one."""
PROGRAM: Final = """
import sys
from holdfast import Engine, Worker
from tests.integration.faults.test_topic_kills import announce, follow, keep

url, namespace = sys.argv[1:]
Worker(Engine.open(url, workflows=[follow, announce, keep], namespace=namespace), lease=1, poll_interval=0.1).run()
"""

news = Topic("news", str)


@pytest.fixture(scope="module")
def shared_database(postgres_url: str) -> Iterator[str]:
    """The database of `database_url` on PostgreSQL."""
    with fresh_database(postgres_url) as url:
        yield url


@step
def think(number: int) -> int:
    time.sleep(0.8)
    return number


@workflow
async def announce(name: str) -> None:
    """Publish messages, in pairs, with a step before each pair."""
    for number in range(0, MESSAGES, 2):
        await think(number)
        await news.publish(f"{name} {number}")
        await news.publish(f"{name} {number + 1}")


@workflow
async def follow(most: int, found: list[str]) -> list[str]:
    """Collect messages, and continue as new after each ten."""
    subscription = await news.subscribe()
    found += [await subscription.receive() for _ in range(min(10, most - len(found)))]
    if len(found) == most:
        return found
    return await continue_as_new(follow(most, found))


@workflow
async def keep(text: str) -> str:
    """A trigger starts it for each message."""
    return text


@pytest.mark.slow
def test_each_subscriber_gets_each_message_once_though_workers_are_killed(database_url: str) -> None:
    namespace = f"topics-{secrets.token_hex(4)}"
    keeps = [Trigger("keep", news, keep)]
    engine = Engine.open(
        database_url, workflows=[follow, announce, keep], triggers=keeps, namespace=namespace
    )
    total = PUBLISHERS * MESSAGES + 1
    with engine.sync as client:
        followers = [
            client.start(follow(total, []), id=f"follower-{number}") for number in range(SUBSCRIBERS)
        ]
        held = create_engine(database_url.replace("postgresql://", "postgresql+psycopg://"))
        slow = held.connect() if "postgres" in database_url else None
        if slow is not None:  # SQLite has one writer: an open transaction would hold up all
            engine.sync.within(slow).publish(news("slow"))
        for number in range(PUBLISHERS):
            client.start(announce(str(number)), id=f"publisher-{number}")
        with KilledWorkers(PROGRAM, database_url, namespace) as workers:
            workers.kill_until(
                lambda: sum(client.count(status=["pending", "running"], workflow="announce").values()) == 0,
                most=KILLS_MIN,
                seconds_between=BETWEEN_KILLS,
            )
            if slow is None:
                client.publish(news("slow"))
            else:
                slow.commit()
                slow.close()
            held.dispose()
            found = [run.result(timeout=SOON) for run in followers]
            kept = [
                client.handle(keep, one.id).result(timeout=SOON)
                for one in client.runs(workflow="keep", oldest_first=True)
            ]
            state = client.triggers.get("keep")
            snapshot = snapshot_of(engine.core.stores.persistence, [namespace])
            assert check(snapshot) == []
    assert workers.kills == KILLS_MIN
    expected = [f"{name} {number}" for name in range(PUBLISHERS) for number in range(MESSAGES)]
    assert sorted(found[0]) == sorted([*expected, "slow"])
    assert all(one == found[0] for one in found)
    for name in range(PUBLISHERS):
        own = [one for one in found[0] if one.startswith(f"{name} ")]
        assert own == [f"{name} {number}" for number in range(MESSAGES)]
    assert kept == found[0]  # each message has started one run, in the order of the topic
    assert (state.started, state.behind) == (total, 0)
    assert found[0][-1] == "slow"  # it was published first, and committed last
