"""Workers are killed several times a second while their database crashes, also during recovery."""

import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from holdfast.ports.errors import UnavailableError
from tests.chaos.execution_tables import Ledger
from tests.chaos.figures import pick, report
from tests.chaos.fork_server import Process
from tests.chaos.programs import STORM, STORM_STAGES
from tests.chaos.site import OpenSite, Site
from tests.postgres import PrivatePostgres

pytestmark = [pytest.mark.chaos, pytest.mark.service]

RUNS = pick(short=60, full=1_000)
WORKERS = 4
CONCURRENCY = 6
WORK_SECONDS = 0.05
KILL_EVERY = 0.3
KILLS_MIN = pick(short=15, full=150)
CRASHES = pick(short=3, full=5)
SECONDS_MAX = pick(short=120.0, full=900.0)


@pytest.fixture
def ledger(postgres_database: str, tmp_path: Path) -> Iterator[Ledger]:
    ledger = Ledger(tmp_path, postgres_database)
    ledger.prepare()
    yield ledger
    ledger.close()


@attrs.define
class Crew:
    """A group of workers; a killed one is replaced."""

    site: Site
    draw: random.Random
    workers: list[Process] = attrs.field(factory=list[Process])
    kills: int = 0
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def __attrs_post_init__(self) -> None:
        self.workers += [self._another(number) for number in range(WORKERS)]

    def kill_one(self) -> None:
        with self._lock:
            at = self.draw.randrange(WORKERS)
            self.workers[at].kill()
            assert self.workers[at].wait() == -signal.SIGKILL, self.workers[at].log
            self.kills += 1
            self.workers[at] = self._another(WORKERS + self.kills)

    def _another(self, number: int) -> Process:
        return self.site.worker(
            f"worker-{number}", concurrency=CONCURRENCY, work_seconds=WORK_SECONDS, lease=1.0
        )


def start_all(site: Site, started: dict[str, int]) -> None:
    for number in range(RUNS):
        while True:
            try:
                run = site.start(STORM(number), idempotency_key=f"start {number}")
            except UnavailableError:
                continue
            started[run] = number
            break


def crash_over_and_over(
    server: PrivatePostgres, crew: Crew, ledger: Ledger, draw: random.Random, errors: list[BaseException]
) -> None:
    """Crash the server repeatedly while work continues; every second time again as soon as it is back."""
    try:
        for crash in range(CRASHES):
            goal = RUNS * STORM_STAGES * (crash + 1) // (CRASHES + 2)
            until = time.monotonic() + SECONDS_MAX
            while ledger.done() < goal:
                assert time.monotonic() < until, "nothing happens any more"
                time.sleep(0.02)
            for again in range(1 + crash % 2):
                server.stop("immediate")
                crew.kill_one()
                time.sleep(draw.uniform(0.0, 0.3))
                server.start()
                time.sleep(draw.uniform(0.0, 0.5) if again == 0 else 0.0)
    except BaseException as error:  # noqa: BLE001  # the test itself raises it
        errors.append(error)


def test_a_storm_of_kills_and_crashes_loses_nothing_and_doubles_nothing(
    server: PrivatePostgres, ledger: Ledger, open_site: OpenSite
) -> None:
    site = open_site(server.url, ledger)
    draw = random.Random(300)
    started: dict[str, int] = {}
    errors: list[BaseException] = []
    crew = Crew(site, draw)
    began = time.monotonic()
    others = [
        threading.Thread(target=start_all, args=(site, started)),
        threading.Thread(target=crash_over_and_over, args=(server, crew, ledger, random.Random(5), errors)),
    ]
    for other in others:
        other.start()
    while not errors and (ledger.done() < RUNS * STORM_STAGES or any(other.is_alive() for other in others)):
        assert time.monotonic() - began < SECONDS_MAX, f"{ledger.done()} stages in all this time"
        crew.kill_one()
        time.sleep(KILL_EVERY)
    for other in others:
        other.join()
    assert errors == []
    calm = time.monotonic()
    site.until_done(60)
    ended = time.monotonic()

    assert [worker.code for worker in crew.workers] == [None] * WORKERS
    assert len(started) == RUNS
    assert {run: site.result(run) for run in started} == {
        run: number + STORM_STAGES for run, number in started.items()
    }
    audit = site.audit()
    crashes = server.log.count("automatic recovery in progress")
    report(
        f"kills: {crew.kills}, crashes of the database: {crashes}, runs: {audit.runs}, "
        f"stages: {audit.starts - audit.repeats}, bodies begun again: {audit.repeats}, attempts lost: {audit.lost}, "
        f"storm: {calm - began:.1f} s, all ended {ended - calm:.1f} s after it"
    )
    assert (audit.runs, audit.starts - audit.repeats) == (RUNS, RUNS * STORM_STAGES)
    assert crew.kills >= KILLS_MIN
    assert crashes >= CRASHES
    assert audit.repeats <= audit.lost <= (crew.kills + crashes * WORKERS) * CONCURRENCY
    assert audit.repeats >= crew.kills / 4, "those that were killed did nothing"
