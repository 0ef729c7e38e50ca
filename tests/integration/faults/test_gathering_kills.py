"""Processes that start gathered runs are killed, and start again: each start is in exactly one run."""

import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from holdfast import Engine, Gather, Worker, workflow
from holdfast.kernel.invariants import check
from holdfast.testing.snapshots import snapshot_of
from tests.postgres import fresh_database

SOON = timedelta(seconds=60)
STARTS: Final = 60
"""How many runs each process starts."""
KILLED_AFTER: Final = (7, 23, 41)
PROGRAM: Final = """
import sys
from holdfast import Engine
from tests.integration.faults.test_gathering_kills import collect

url, namespace, first, last = sys.argv[1:]
with Engine.open(url, workflows=[collect], namespace=namespace).sync as engine:
    for number in range(int(first), int(last)):
        run = engine.start(collect([number]), idempotency_key=f"key-{number}")
        print(number, run.id, flush=True)
"""


@pytest.fixture(scope="module")
def shared_database(postgres_url: str) -> Iterator[str]:
    """The database of `database_url` on PostgreSQL."""
    with fresh_database(postgres_url) as url:
        yield url


@workflow(gather=Gather(within=0.3, most=7, keep="all"))
async def collect(rows: list[int]) -> list[int]:
    return rows


class Starter:
    """A process that starts runs."""

    def __init__(self, url: str, namespace: str, first: int) -> None:
        arguments = (url, namespace, str(first), str(first + STARTS))
        self.process = subprocess.Popen(  # a program of our own
            [sys.executable, "-c", PROGRAM, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )

    def accepted(self) -> Iterator[tuple[int, str]]:
        """Yield each start that was accepted, with its run."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            number, run = line.split()
            yield int(number), run

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.mark.slow
def test_no_start_is_lost_or_gathered_twice_when_its_process_is_killed(database_url: str) -> None:
    namespace = f"test-{secrets.token_hex(6)}"
    told: dict[int, set[str]] = {}
    engine = Engine.open(database_url, workflows=[collect], namespace=namespace)
    with engine.sync as sync, Worker(engine, poll_interval=0.2):
        firsts = [index * STARTS for index in range(len(KILLED_AFTER))]
        killed = [Starter(database_url, namespace, first) for first in firsts]
        for starter, after in zip(killed, KILLED_AFTER, strict=True):
            for count, (number, run) in enumerate(starter.accepted(), 1):
                told.setdefault(number, set()).add(run)
                if count == after:
                    break
            starter.kill()
        again = [Starter(database_url, namespace, first) for first in firsts]
        for starter in again:
            for number, run in starter.accepted():
                told.setdefault(number, set()).add(run)
            starter.kill()
        runs = {run for runs in told.values() for run in runs}
        results = {run: sync.handle(collect, run).result(timeout=SOON) for run in runs}
        stored = {run.id for run in sync.runs()}
        violations = check(snapshot_of(engine.core.stores.persistence, [namespace]))

    assert sorted(told) == list(range(3 * STARTS))
    assert all(len(runs) == 1 for runs in told.values())  # a repeated start got the same answer
    assert Counter(number for rows in results.values() for number in rows) == Counter(range(3 * STARTS))
    assert all(number in results[run] for number, (run,) in told.items())
    assert stored == runs
    assert violations == []
