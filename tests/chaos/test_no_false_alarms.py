"""Quiet bodies and workers are not taken for lost, and without faults there is nothing to repair."""

import signal
import time

import pytest

from holdfast.ports.records.run import RunStatus
from tests.chaos.figures import report
from tests.chaos.programs import BLOCK, CHAIN, FAN, REST, block
from tests.chaos.site import Site

pytestmark = pytest.mark.chaos

LEASE = 1.0


def test_a_body_longer_than_several_leases_keeps_its_first(site: Site) -> None:
    """A second worker would take over if it could."""
    run = site.start(REST(4.0))
    site.worker("one", lease=LEASE)
    site.worker("other", lease=LEASE)
    site.until_started(2)
    while (status := site.run(run).status) is not RunStatus.COMPLETED:
        assert status is RunStatus.RUNNING
        assert site.repair() == ()
        assert all(job.epoch == job.attempts == 1 for job in site.jobs(run))
        time.sleep(0.1)

    assert site.result(run) == (4.0, 4.0)
    assert [(start.epoch, start.attempt) for start in site.book.entries()] == [(1, 1)] * 2
    audit = site.audit()
    assert (audit.repeats, audit.lost) == (0, 0)


def test_without_faults_every_body_is_started_once_and_repair_is_idle(site: Site) -> None:
    runs = [site.start(FAN(10)) for _ in range(20)] + [site.start(CHAIN(1)) for _ in range(20)]
    # On a machine that has other things to do a second is too short, and that would be a fault.
    workers = [site.worker(f"worker-{n}", lease=10.0, concurrency=10, work_seconds=0.02) for n in range(3)]
    repairs = 0
    while site.active():
        assert site.repair() == ()
        repairs += 1
    for worker in workers:
        worker.signal(signal.SIGTERM)
    assert [worker.wait() for worker in workers] == [0] * 3

    report(f"repairs beside it: {repairs}")
    assert repairs >= 10
    assert all(site.run(run).status is RunStatus.COMPLETED for run in runs)
    starts = site.book.entries()
    assert {(start.epoch, start.attempt) for start in starts} == {(1, 1)}
    audit = site.audit()
    assert (audit.starts, audit.repeats, audit.lost) == (20 * 13 + 20 * 5, 0, 0)
    said = [worker.said for worker in workers]
    # Expansions have no body of the user's, and are started too.
    assert sum(stats["settled"] for stats in said) == len(starts) + 20
    for stats in said:
        assert stats["claimed"] == stats["started"] == stats["settled"]
        assert (stats["fenced"], stats["failed"], stats["released"], stats["sessions_lost"]) == (0, 0, 0, 0)
        assert stats["store_errors"] == 0


def test_a_body_that_blocks_the_loop_costs_no_lease_and_is_named(site: Site) -> None:
    run = site.start(BLOCK(4.0))
    blocked = site.worker("blocked", lease=LEASE)
    site.until_started(1)
    site.worker("other", lease=LEASE)
    site.until_done()

    assert site.result(run) == 4.0
    assert [(start.epoch, start.pid) for start in site.book.entries()] == [(1, blocked.pid)]
    assert site.audit().lost == 0
    assert "the event loop has been blocked" in blocked.log
    assert f"in {block.name}" in blocked.log
    assert "time.sleep(seconds)" in blocked.log
