"""Workers are killed while runs signal each other: each message is received exactly once."""

import secrets
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

import pytest

from holdfast import Channel, Engine, step, workflow
from holdfast.kernel.invariants import check
from holdfast.testing.snapshots import snapshot_of
from holdfast.workflows import run_info, signal_run
from tests.integration.faults.killed_workers import KilledWorkers
from tests.postgres import fresh_database

SOON = timedelta(minutes=3)
PAIRS: Final = 4
ROUNDS: Final = 12
KILLS_MIN: Final = 6
BETWEEN_KILLS: Final = 1.2
"""Seconds. A worker takes about one to start, and has a lease of one."""
PROGRAM: Final = """
import sys
from holdfast import Engine, Worker
from tests.integration.faults.test_message_kills import play

url, namespace = sys.argv[1:]
Worker(Engine.open(url, workflows=[play], namespace=namespace), lease=1, poll_interval=0.1).run()
"""

ball = Channel("ball", int)


@pytest.fixture(scope="module")
def shared_database(postgres_url: str) -> Iterator[str]:
    """The database of `database_url` on PostgreSQL."""
    with fresh_database(postgres_url) as url:
        yield url


@step
def think(number: int) -> int:
    time.sleep(0.4)
    return number


@workflow
async def play(other: str, *, serves: bool) -> list[int]:
    """Send balls to another run, and return the numbers of those that came back."""
    received: list[int] = []
    for number in range(ROUNDS):
        if serves:
            await signal_run(other, ball(await think(number)))
        message = await ball.receive_message()
        assert message.sender == other != run_info().id
        received.append(message.value)
        if not serves:
            await signal_run(other, ball(await think(number)))
    return received


@pytest.mark.slow
def test_each_message_between_runs_is_received_once_when_workers_are_killed(database_url: str) -> None:
    namespace = f"test-{secrets.token_hex(6)}"
    engine = Engine.open(database_url, workflows=[play], namespace=namespace)
    ids = [f"{pair}-{side}" for pair in range(PAIRS) for side in ("waits", "serves")]
    with engine.sync as sync:
        for one in ids:
            pair, _, side = one.partition("-")
            other = f"{pair}-{'waits' if side == 'serves' else 'serves'}"
            sync.start(play(other, serves=side == "serves"), id=one)
        with KilledWorkers(PROGRAM, database_url, namespace) as workers:
            workers.kill_until(
                lambda: sum(sync.count(status=["pending", "running"]).values()) == 0,
                most=KILLS_MIN,
                seconds_between=BETWEEN_KILLS,
            )
            results = [sync.handle(play, one).result(timeout=SOON) for one in ids]
        rows = {one: Counter(event.type for event in sync.handle(play, one).history()) for one in ids}
        violations = check(snapshot_of(engine.core.stores.persistence, [namespace]))

    assert results == [list(range(ROUNDS))] * len(ids)
    for types in rows.values():
        assert (types["signal.sent"], types["signal.received"]) == (ROUNDS, ROUNDS)
    assert violations == []
    assert workers.kills == KILLS_MIN
