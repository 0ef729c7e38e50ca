"""A worker gets SIGTERM: the first drains it, the second ends it."""

import signal
import time

from holdfast.hosts.worker.machine import STOP_GRACE
from holdfast.ports.records.job import JobState
from holdfast.ports.records.run import RunStatus
from tests.chaos.programs import GATE, GATE_ASYNC, GATE_DEAF, GATE_SLOW
from tests.chaos.site import Site


def test_what_ends_within_the_grace_is_settled_and_the_rest_costs_no_attempt(site: Site) -> None:
    quick = [site.start(GATE(1)), site.start(GATE_ASYNC(2))]
    slow = [site.start(GATE(3)), site.start(GATE_ASYNC(4))]
    worker = site.worker("draining", drain_grace=1.0)
    site.until_started(4)
    told_at = time.monotonic()
    worker.signal(signal.SIGTERM)
    site.until(lambda: "draining" in worker.log, "it drains")
    later = site.start(GATE(5))
    for run in quick:
        site.open_gate(run)
    site.until(lambda: site.active() == 3, "what could end has ended")
    code = worker.wait()

    assert code == 0, worker.log
    assert 1.0 <= time.monotonic() - told_at <= 1.0 + STOP_GRACE
    assert [site.result(run) for run in quick] == [1, 2]
    for run in slow:
        job = site.job(run)
        assert (job.state, job.attempts, job.epoch, job.lost_attempts) == (JobState.QUEUED, 0, 1, 0)
        assert [row.type for row in site.history(run)] == ["run.created"]
    assert site.job(later).epoch == 0, "it has claimed while it drained"
    stats = worker.said
    assert (stats["settled"], stats["released"], stats["fenced"], stats["failed"]) == (2, 2, 0, 0)
    assert {told.run for told in site.book.entries("told")} == set(slow)

    site.open_gate()
    site.worker("next")
    site.until_done()
    assert site.audit().repeats == 2
    assert site.audit().lost == 0
    assert all(start.attempt == 1 for start in site.book.entries())


def test_a_sync_body_that_looks_for_its_cancellation_a_little_later_is_waited_for(site: Site) -> None:
    """Its thread would end with the process."""
    run = site.start(GATE_SLOW(1))
    worker = site.worker("draining", drain_grace=0.2)
    site.until_started(1)
    worker.signal(signal.SIGTERM)

    assert worker.wait(8.0) == 0
    assert [told.run for told in site.book.entries("told")] == [run]
    job = site.job(run)
    assert (job.state, job.attempts, job.lost_attempts) == (JobState.QUEUED, 0, 0)


def test_a_second_signal_stops_at_once(site: Site) -> None:
    """Whatever the bodies do: one stops, one ignores it."""
    runs = [site.start(GATE_ASYNC(1)), site.start(GATE_DEAF(2))]
    worker = site.worker("stopped", drain_grace=60.0)
    site.until_started(2)
    worker.signal(signal.SIGTERM)
    site.until(lambda: "draining" in worker.log, "it drains")
    worker.signal(signal.SIGTERM)

    assert worker.wait(5.0) == 0
    assert "stopping at once" in worker.log
    for run in runs:
        job = site.job(run)
        assert (job.state, job.attempts) == (JobState.LEASED, 1)
        assert site.run(run).status is RunStatus.RUNNING


def test_a_body_that_does_not_listen_does_not_keep_a_worker_from_ending(site: Site) -> None:
    run = site.start(GATE_DEAF(1))
    worker = site.worker("draining", drain_grace=0.2)
    site.until_started(1)
    worker.signal(signal.SIGTERM)

    assert worker.wait(8.0) == 0
    assert "did not stop within" not in worker.log
    job = site.job(run)
    assert (job.state, job.attempts, job.lost_attempts) == (JobState.QUEUED, 0, 0)
    assert worker.said["released"] == 1
