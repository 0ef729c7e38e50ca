"""PostgreSQL is down while workers are asked to stop."""

import signal
import time

import pytest

from holdfast.ports.records.job import JobState
from tests.chaos.figures import report
from tests.chaos.programs import GATE_ASYNC
from tests.chaos.site import OpenSite, Site
from tests.postgres import PrivatePostgres

pytestmark = [pytest.mark.chaos, pytest.mark.service]


@pytest.fixture
def crashing_site(server: PrivatePostgres, open_site: OpenSite) -> Site:
    return open_site(server.url)


def test_a_worker_that_is_to_stop_while_the_database_is_away_does_so(
    server: PrivatePostgres, crashing_site: Site
) -> None:
    """It gives up writing to the store; its jobs are released when its session expires."""
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
    report(f"ended after {took:.1f} s")
