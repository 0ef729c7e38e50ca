"""Workers are killed while runs update each other: each update is carried out once, and replied once."""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

import pytest

from holdfast import Engine, expose, step, update, workflow
from holdfast.kernel.invariants import check
from holdfast.testing.snapshots import snapshot_of
from holdfast.workflows import update_run
from tests.integration.faults.killed_workers import KilledWorkers
from tests.postgres import fresh_database

SOON = timedelta(minutes=3)
PAIRS: Final = 3
ROUNDS: Final = 8
KILLS_MIN: Final = 5
BETWEEN_KILLS: Final = 1.2
"""Seconds. A worker takes about one to start, and has a lease of one."""
PROGRAM: Final = """
import sys
from holdfast import Engine, Worker
from tests.integration.faults.test_update_kills import count

url, namespace = sys.argv[1:]
Worker(Engine.open(url, workflows=[count], namespace=namespace), lease=1, poll_interval=0.1).run()
"""


@pytest.fixture(scope="module")
def shared_database(postgres_url: str) -> Iterator[str]:
    """The database of `database_url` on PostgreSQL."""
    with fresh_database(postgres_url) as url:
        yield url


@step
def think(number: int) -> int:
    time.sleep(0.3)
    return number


class Counted:
    def __init__(self) -> None:
        self.total = 0
        self.is_full = asyncio.Event()

    @update
    async def add(self, number: int) -> int:
        """Return how many updates came before, with this one."""
        await think(number)
        self.total += 1
        if self.total == ROUNDS:
            self.is_full.set()
        return self.total


@workflow
async def count(other: str) -> list[int]:
    """Update another run, which updates this one, and return its replies."""
    state = expose(Counted())
    replies = [await update_run(other, Counted.add(number)) for number in range(ROUNDS)]
    await state.is_full.wait()
    return replies


@pytest.mark.slow
def test_each_update_between_runs_is_replied_once_when_workers_are_killed(database_url: str) -> None:
    namespace = f"test-{secrets.token_hex(6)}"
    engine = Engine.open(database_url, workflows=[count], namespace=namespace)
    ids = [f"{pair}-{side}" for pair in range(PAIRS) for side in (0, 1)]
    with engine.sync as sync:
        for one in ids:
            sync.start(count(f"{one[0]}-{1 - int(one[-1])}"), id=one)
        with KilledWorkers(PROGRAM, database_url, namespace) as workers:
            workers.kill_until(
                lambda: sum(sync.count(status=["pending", "running"]).values()) == 0,
                most=KILLS_MIN,
                seconds_between=BETWEEN_KILLS,
            )
            results = [sync.handle(count, one).result(timeout=SOON) for one in ids]
        rows = {one: Counter(event.type for event in sync.handle(count, one).history()) for one in ids}
        violations = check(snapshot_of(engine.core.stores.persistence, [namespace]))
    assert results == [list(range(1, ROUNDS + 1))] * len(ids)
    for types in rows.values():
        assert [types[f"update.{one}"] for one in ("sent", "received", "completed", "replied")] == [
            ROUNDS
        ] * 4
    assert violations == []
    assert workers.kills == KILLS_MIN
