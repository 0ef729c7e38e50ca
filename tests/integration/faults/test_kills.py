"""A worker is killed (-9) at each phase of a job: only the work in flight is repeated."""

import signal

import pytest

from holdfast.ports.records.run import RunStatus
from tests.chaos.faults import Fault
from tests.chaos.programs import CHAIN
from tests.chaos.site import Site

# Where each worker is killed, and at which time: how often the bodies of its run are started, and how many attempts are
# lost. Only the first stage is claimed: each settle takes the next one, which is lost with a worker that dies after it.
PHASES = {
    ("job.claim:inside", 1): (5, 0),
    ("job.claim:after", 1): (5, 1),
    ("body", 3): (6, 1),
    ("job.settle:before", 3): (6, 1),
    ("job.settle:inside", 3): (6, 1),
    ("job.settle:after", 3): (5, 1),
    ("job.settle:after", 5): (5, 0),
}


def test_a_worker_killed_at_any_phase_of_a_job_costs_what_was_in_flight(site: Site) -> None:
    queues = {phase: f"{phase[0].replace(':', '-')}-{phase[1]}" for phase in PHASES}
    runs = {phase: site.start(CHAIN(10), queue=queue) for phase, queue in queues.items()}
    victims = [
        site.worker(queue, faults=[Fault(*phase)], only_queues=[queue], concurrency=1)
        for phase, queue in queues.items()
    ]
    assert [victim.wait() for victim in victims] == [-signal.SIGKILL] * len(PHASES)
    assert sorted(site.book.faults()) == sorted(point for point, _ in PHASES)

    site.worker("survivor", queues=dict.fromkeys(queues.values(), 10))
    site.until_done()

    for phase, run in runs.items():
        starts, lost = PHASES[phase]
        assert (site.run(run).status, site.result(run)) == (RunStatus.COMPLETED, 15)
        assert len(site.book.entries(run=run)) == starts, phase
        assert sum(row.type == "stage.lost" for row in site.history(run)) == lost, phase
    audit = site.audit()
    assert (audit.repeats, audit.lost) == (3, 5)


@pytest.mark.parametrize("moment", ["inside", "after"])
def test_a_starter_killed_while_it_creates_a_run_starts_it_once(site: Site, moment: str) -> None:
    """It does not know whether the run is stored, and starts it again with the same idempotency key."""
    first = site.process("starter", "first", faults=[Fault(f"run.create:{moment}", 4)], runs=6)
    assert first.wait() == -signal.SIGKILL
    assert site.book.faults() == [f"run.create:{moment}"]
    acknowledged = (site.folder / "acknowledged").read_text().split()
    assert acknowledged == [f"started-{number}" for number in range(3)]
    assert len(site.snapshot().runs) == (3 if moment == "inside" else 4)

    assert site.process("starter", "second", runs=6).wait() == 0

    assert sorted(run.id for run in site.snapshot().runs.values()) == [f"started-{n}" for n in range(6)]
    site.worker("worker")
    site.until_done()
    assert [site.result(f"started-{number}") for number in range(6)] == [5 + number for number in range(6)]
    assert site.audit().repeats == 0
