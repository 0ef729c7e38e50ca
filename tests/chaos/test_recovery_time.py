"""The time until work continues after the death of a worker and after an outage of the database."""

import random
import time

import psycopg
import pytest

from tests.chaos.figures import pick, report
from tests.chaos.programs import GATE, GATE_ASYNC
from tests.chaos.site import OpenSite, Site
from tests.postgres import PrivatePostgres

pytestmark = pytest.mark.chaos

LEASE = 3.0
CLAIMED_WITHIN = LEASE + LEASE / 3 + 1.0
DEATHS = pick(short=2, full=30)
RETURNS = pick(short=2, full=15)
COMMIT_WITHIN = 5.0
BACK_SECONDS = 3.0
"""How long the database stays up: longer than the pause between two retries, or some would never reach it."""
ACTIVE_MIN = 20


def test_a_dead_workers_job_is_claimed_again_soon_after_its_lease(site: Site) -> None:
    """The time is the lease, a third of it until a reaper looks, and a second."""
    draw = random.Random(18)
    took: list[float] = []
    victim = site.worker("worker-0", lease=LEASE, concurrency=2)
    for death in range(DEATHS):
        runs = [site.start(workflow(death)) for workflow in (GATE, GATE_ASYNC)]
        for run in runs:
            site.until_started(1, run)
        time.sleep(draw.uniform(0.0, LEASE))
        heir = site.worker(f"worker-{death + 1}", lease=LEASE, concurrency=2)
        site.until(lambda: site.book.commits(heir.pid), "the heir has opened a session")  # noqa: B023
        victim.kill()
        victim.wait()
        died = time.monotonic()
        for run in runs:
            took.append(site.until_started(2, run)[1].at - died)
            site.open_gate(run)
        site.until_done()
        victim = heir

    assert site.audit().lost == 2 * DEATHS
    report(
        f"deaths: {DEATHS}, claimed again after {min(took):.1f} to {max(took):.1f} s, of {CLAIMED_WITHIN:.1f} s"
    )
    assert max(took) <= CLAIMED_WITHIN


def completed(url: str) -> int:
    """Return the number of stages that workers completed."""
    with psycopg.connect(url) as connection:
        ((count,),) = connection.execute(
            "SELECT count(*) FROM holdfast_history WHERE type = 'stage.completed'"
        )
    assert isinstance(count, int)
    return count


@pytest.mark.service
def test_when_the_database_is_back_commits_come_within_seconds(
    server: PrivatePostgres, open_site: OpenSite
) -> None:
    """However long it was away, and although retries have backed off."""
    site = open_site(server.url)
    draw = random.Random(19)
    took: list[float] = []
    site.worker("worker", concurrency=4, work_seconds=0.02, lease=LEASE)
    with site.busy(ACTIVE_MIN):
        site.until_started(20)
        for _ in range(RETURNS):
            server.stop("immediate")
            time.sleep(draw.uniform(1.0, pick(short=4.0, full=12.0)))
            server.start()
            back = time.monotonic()
            done = completed(server.url)
            site.until(lambda: completed(server.url) > done, "a worker commits")  # noqa: B023
            took.append(time.monotonic() - back)
            time.sleep(BACK_SECONDS)
    site.until_done(60)

    audit = site.audit()
    report(f"returns: {len(took)}, first commit after {min(took):.1f} to {max(took):.1f} s, {audit}")
    assert len(took) == RETURNS
    assert max(took) <= COMMIT_WITHIN
