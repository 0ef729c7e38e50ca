"""A serverless function is killed in a body: the first tick after its lease requeues the job."""

import signal

import pytest

from holdfast import Engine, ServerlessHost
from holdfast.hosts.maintenance.tick import Maintenance
from holdfast.ports.records.job import JobState
from tests.chaos.faults import Fault
from tests.chaos.programs import CHAIN, WORKFLOWS
from tests.chaos.site import Site

pytestmark = pytest.mark.chaos

LEASE = 1.0


@pytest.mark.parametrize("point", ["job.claim:after", "body", "job.settle:inside"])
def test_what_a_killed_function_held_comes_back_after_its_lease(site: Site, point: str) -> None:
    run = site.start(CHAIN(1))
    victim = site.process("function", "victim", faults=[Fault(point, 3)])
    assert victim.wait() == -signal.SIGKILL
    assert site.book.faults() == [point]
    tick = Maintenance(site.open_here().core, lease=LEASE).tick

    first = tick()
    assert (first.sessions, first.freed, site.job(run).state) == (0, 0, JobState.LEASED)
    site.until(lambda: tick().sessions == 1, "the session is dead")
    assert tick().freed == 1
    job = site.job(run)
    assert (job.state, job.epoch, job.attempts, job.lost_attempts) == (JobState.QUEUED, 1, 1, 1)

    site.open_here()
    engine = Engine.open(site.url, workflows=list(WORKFLOWS.values()))
    site.engines.append(engine.sync)
    assert ServerlessHost(engine).process_available_jobs(max_jobs=10).completed == 3
    assert site.result(run) == 6
    audit = site.audit()
    assert (audit.repeats, audit.lost) == (0 if point == "job.claim:after" else 1, 1)
