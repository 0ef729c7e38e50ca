"""Many faults at once, on whole fleets."""

import random
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from holdfast import SyncRunHandle
from tests.postgres import PrivatePostgres
from tests.storms.fleet import fleet, wait_until
from tests.storms.program import chain, hard, slow

pytestmark = pytest.mark.chaos


def test_a_postgresql_that_dies_again_and_again_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """It is stopped hard five times while two workers work, and a client starts runs meanwhile."""
    with PrivatePostgres(durable=True) as server, fleet(server.url, tmp_path) as ships:
        chance = random.Random(5)
        ships.worker("--lease", "5")
        ships.worker("--lease", "5")
        runs: list[SyncRunHandle[int]] = []
        deaths = 0
        for number in range(200):
            if number % 40 == 20:
                server.restart("immediate")
                deaths += 1
            runs.append(
                ships.engine.sync.start(chain(number), id=f"run-{number}", idempotency_key=f"key-{number}")
            )
            time.sleep(chance.random() / 100)
        ships.wait_for_ends(runs, 120)

        assert deaths == 5
        assert [run.result() for run in runs] == [2 * (number + 1) + 1 for number in range(200)]
        assert ships.repeats() <= deaths * 2 * 8
        ships.audit()


def test_eight_workers_on_one_sqlite_file_are_killed_again_and_again(tmp_path: Path) -> None:
    database = tmp_path / "chaos.db"
    with fleet(f"sqlite:///{database}", tmp_path) as ships:
        chance = random.Random(8)
        runs = [ships.engine.sync.start(chain(number), id=f"run-{number}") for number in range(150)]
        workers = [ships.worker("--lease", "1", "--concurrency", "4") for _ in range(8)]
        kills = 0
        until = time.monotonic() + 10
        while time.monotonic() < until:
            time.sleep(0.5)
            victim = chance.randrange(8)
            workers[victim].kill()
            kills += workers[victim].wait() == -signal.SIGKILL
            workers[victim] = ships.worker("--lease", "1", "--concurrency", "4")
        ships.wait_for_ends(runs, 120)

        assert kills >= 10
        assert [run.result() for run in runs] == [2 * (number + 1) + 1 for number in range(150)]
        assert ships.repeats() <= kills * 4
        ships.audit()
        with sqlite3.connect(database) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_maintenance_of_several_workers_at_once_frees_every_lost_job_once(tmp_path: Path) -> None:
    """Two reapers race for what three killed workers held."""
    with fleet(f"sqlite:///{tmp_path}/chaos.db", tmp_path) as ships:
        runs = [ships.start(slow, 0.5, f"run-{number}") for number in range(24)]
        doomed = [ships.worker("--lease", "1") for _ in range(3)]
        wait_until(lambda: len(ships.started()) == 24, 30, "the bodies have not started")
        for worker in doomed:
            worker.kill()
        held = [job for number in range(24) for job in ships.jobs(f"run-{number}")]
        for _ in range(3):
            ships.worker("--lease", "1")
        ships.wait_for_ends(runs, 60)

        assert held, "the workers were killed too late"
        assert [run.result() for run in runs] == ["rested"] * 24
        assert ships.repeats() == len(held)
        assert max(start.epoch for start in ships.started()) == 2
        ships.audit()


def test_cancellation_reaches_running_bodies(tmp_path: Path) -> None:
    """An async body is cancelled; a sync one is told, and asks."""
    with fleet(f"sqlite:///{tmp_path}/chaos.db", tmp_path) as ships:
        sleeper = ships.start(slow, 60.0, "sleeper")
        toiler = ships.start(hard, 60.0, "toiler")
        worker = ships.worker("--lease", "5")
        wait_until(lambda: len(ships.started()) == 2, 30, "the bodies have not started")
        assert sleeper.cancel(reason="enough").changed
        assert toiler.terminate(reason="enough").changed

        wait_until((tmp_path / "toil-was-told").exists, 15, "the sync body was not told")
        worker.terminate()
        assert worker.wait(timeout=15) == 0, "a body that was cancelled kept its worker"
        assert not sleeper.cancel().changed
        ships.audit()
