"""Workers that are stopped past their leases, at moments of chance, while there is work for all."""

import random
import signal
import time

import pytest

from tests.chaos.faults import Fault
from tests.chaos.programs import CHAIN
from tests.chaos.site import Site

pytestmark = pytest.mark.chaos

WORKERS = 3
STOPS = 6
ACTIVE_MIN = 40


def test_workers_that_are_stopped_and_go_on_change_nothing_any_more(site: Site) -> None:
    draw = random.Random(17)
    workers = [site.worker(f"worker-{n}", concurrency=6, work_seconds=0.15) for n in range(WORKERS)]
    with site.busy(ACTIVE_MIN) as runs:
        site.until_started(30)
        for stop in range(STOPS):
            victim = workers[stop % WORKERS]
            time.sleep(draw.uniform(0.0, 0.2))
            victim.signal(signal.SIGSTOP)
            time.sleep(draw.uniform(1.6, 2.0))
            victim.signal(signal.SIGCONT)
    site.until_done(60)
    for worker in workers:
        worker.signal(signal.SIGTERM)
    assert [worker.wait() for worker in workers] == [0] * WORKERS

    assert {run: site.result(run) for run in runs} == {run: number + 5 for run, number in runs.items()}
    audit = site.audit()
    said = [worker.said for worker in workers]
    lost = sum(stats["sessions_lost"] for stats in said)
    fenced = sum(stats["fenced"] for stats in said)
    assert lost >= STOPS / 2
    assert fenced >= 1, "no result came too late"
    assert audit.lost >= STOPS / 2
    print("sessions lost", lost, "fenced", fenced, audit)


@pytest.mark.service
def test_a_worker_stopped_within_a_transaction_holds_up_the_others_for_seconds_only(
    postgres_site: Site,
) -> None:
    """The server ends transactions that stay idle: what they have locked is free again."""
    site = postgres_site
    runs = {site.start(CHAIN(number)): number for number in range(5)}
    late = site.worker("late", concurrency=1, faults=[Fault("job.settle:inside", 2, "stop")])
    site.until(late.is_stopped, "the worker has stopped itself")
    stopped_at = time.monotonic()
    site.worker("other", concurrency=1)
    site.until_done(18)
    print("held up for", time.monotonic() - stopped_at)
    late.signal(signal.SIGCONT)
    late.signal(signal.SIGTERM)
    assert late.wait(40) == 0

    assert late.said["fenced"] == 1
    assert {run: site.result(run) for run in runs} == {run: number + 5 for run, number in runs.items()}
    audit = site.audit()
    assert (audit.repeats, audit.lost) == (1, 1)
