"""Eight processes on one SQLite file, of which one is killed twice a second."""

import random
import signal
import sqlite3
import time

import pytest

from tests.chaos.nursery import Process
from tests.chaos.site import Site

pytestmark = pytest.mark.chaos

PROCESSES = 8
KILLS = 20
EVERY = 0.5
ACTIVE_MIN = 60


def test_a_sqlite_file_survives_eight_processes_that_are_killed(sqlite_site: Site) -> None:
    site = sqlite_site
    draw = random.Random(11)
    names = iter(range(1_000))

    def another() -> Process:
        return site.worker(f"worker-{next(names)}", concurrency=4, work_seconds=0.03)

    workers = [another() for _ in range(PROCESSES)]
    killed = 0
    with site.busy(ACTIVE_MIN) as runs:
        site.until_started(PROCESSES)
        for _ in range(KILLS):
            time.sleep(EVERY)
            at = draw.randrange(PROCESSES)
            workers[at].kill()
            assert workers[at].wait() == -signal.SIGKILL
            workers[at] = another()
            killed += 1
    site.until_done(60)

    assert [worker.code for worker in workers] == [None] * PROCESSES
    assert {run: site.result(run) for run in runs} == {run: number + 5 for run, number in runs.items()}
    audit = site.audit()
    assert audit.lost >= killed / 2, "too few were killed while they did something"
    with sqlite3.connect(site.folder / "holdfast.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    print("killed", killed, audit)
