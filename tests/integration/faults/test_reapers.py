"""Several workers are killed, and several processes reap them at the same moment."""

import signal
from datetime import timedelta

from holdfast.hosts.maintenance.tick import Maintenance, Tick
from holdfast.ports.clock import instant
from holdfast.ports.records.job import JobState
from holdfast.testing.conformance.threads import in_threads
from tests.chaos.programs import GATE_ASYNC
from tests.chaos.site import Site

WORKERS = 4
EACH = 5
REAPERS = 4
LEASE = 1.0


def test_what_lost_workers_held_is_freed_once_however_many_reap(site: Site) -> None:
    runs = [site.start(GATE_ASYNC(number)) for number in range(WORKERS * EACH)]
    victims = [site.worker(f"victim-{number}", concurrency=EACH, lease=LEASE) for number in range(WORKERS)]
    starts = site.until_started(len(runs))
    for victim in victims:
        victim.kill()
    assert [victim.wait() for victim in victims] == [-signal.SIGKILL] * WORKERS
    assert {start.pid for start in starts} == {victim.pid for victim in victims}
    assert _until_expired(site) == WORKERS
    reapers = [Maintenance(site.open_here().core, lease=LEASE) for _ in range(REAPERS)]

    ticks = in_threads(REAPERS, lambda number: [reapers[number].tick() for _ in range(3)])

    found: list[Tick] = [tick for of_one in ticks for tick in of_one]
    assert sum(tick.sessions for tick in found) == WORKERS
    assert sum(tick.freed for tick in found) == len(runs)
    assert [(tick.dead, tick.repaired, tick.woken) for tick in found] == [(0, (), 0)] * len(found)
    for run in runs:
        job = site.job(run)
        assert (job.state, job.epoch, job.attempts, job.lost_attempts) == (JobState.QUEUED, 1, 1, 1)
    site.open_gate()
    site.worker("survivor")
    site.until_done()
    assert [site.result(run) for run in runs] == list(range(len(runs)))
    audit = site.audit()
    assert (audit.repeats, audit.lost) == (len(runs), len(runs))


def _until_expired(site: Site) -> int:
    """Wait until all sessions have expired with their grace; return their number."""
    sessions = site.snapshot().sessions.values()
    end = instant(max(session.expires_at for session in sessions)) + timedelta(seconds=LEASE / 10 + 0.05)
    site.engine.core.sync_clock()
    site.until(lambda: site.engine.core.clock.now() > end, "the sessions have expired")
    return len(sessions)
