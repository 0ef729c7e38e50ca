"""PostgreSQL crashes and comes back, over and over, while there is work."""

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from holdfast.ports.errors import UnavailableError
from holdfast.ports.records import JobState
from tests.chaos.programs import CHAIN, GATE_ASYNC
from tests.chaos.site import Site
from tests.postgres import PrivatePostgres

pytestmark = [pytest.mark.chaos, pytest.mark.service]

RUNS = 200
RESTARTS = 5
STAGES = 5


@pytest.fixture
def server() -> Iterator[PrivatePostgres]:
    """A server of the test's own, that it can crash."""
    with PrivatePostgres() as server:
        yield server


@pytest.fixture
def crashing_site(server: PrivatePostgres, open_site: Callable[[str], Site]) -> Site:
    return open_site(server.url)


def test_crashes_of_the_database_lose_nothing_and_double_nothing(
    server: PrivatePostgres, crashing_site: Site
) -> None:
    site = crashing_site
    draw = random.Random(5)
    acknowledged: dict[str, int] = {}

    def start_all() -> None:
        for number in range(RUNS):
            while True:
                try:
                    run = site.start(CHAIN(number), idempotency_key=f"start {number}")
                except UnavailableError:
                    continue
                acknowledged[run] = number
                break
            time.sleep(0.01)

    starter = threading.Thread(target=start_all)
    workers = [site.worker(f"worker-{n}", concurrency=8, lease=2.0, work_seconds=0.06) for n in range(2)]
    starter.start()
    seen = 0
    for _ in range(RESTARTS):
        seen += draw.randrange(60, 160)
        site.until(lambda: len(site.book.entries()) >= seen, f"{seen} bodies were started", 60)  # noqa: B023
        time.sleep(draw.uniform(0.0, 0.1))
        server.stop("immediate")
        time.sleep(draw.uniform(0.0, 0.5))
        server.start()
        assert site.active() > 0, "it was over before the crash"
    starter.join(60)
    assert not starter.is_alive()
    assert len(acknowledged) == RUNS
    site.until_done(60)

    assert [worker.code for worker in workers] == [None, None]
    assert {run: site.result(run) for run in acknowledged} == {
        run: number + STAGES for run, number in acknowledged.items()
    }
    audit = site.audit()
    assert (audit.runs, audit.starts - audit.repeats) == (RUNS, RUNS * STAGES)
    assert server.log.count("automatic recovery in progress") >= RESTARTS
    print("restarts", RESTARTS, audit)


def test_a_worker_that_is_to_stop_while_the_database_is_away_does_so(
    server: PrivatePostgres, crashing_site: Site
) -> None:
    """It gives up telling the store about its jobs, which come back when its session has expired."""
    site = crashing_site
    runs = [site.start(GATE_ASYNC(number)) for number in range(4)]
    patient = site.worker("patient", drain_grace=1.0, concurrency=2)
    hasty = site.worker("hasty", drain_grace=60.0, concurrency=2)
    site.until_started(4)
    server.stop("immediate")
    told_at = time.monotonic()
    for worker in (patient, hasty):
        worker.signal(signal.SIGTERM)
    site.until(lambda: "draining" in hasty.log, "it drains")
    hasty.signal(signal.SIGTERM)
    hasty_code = hasty.wait(5.0)
    patient_code = patient.wait(20.0)
    took = time.monotonic() - told_at
    server.start()

    assert (hasty_code, patient_code) == (0, 0)
    assert 1.0 <= took <= 18.0
    assert {site.job(run).state for run in runs} == {JobState.LEASED}
    site.open_gate()
    site.worker("next")
    site.until_done()
    assert [site.result(run) for run in runs] == list(range(4))
    audit = site.audit()
    assert (audit.repeats, audit.lost) == (4, 4)
    print("ended after", took)
