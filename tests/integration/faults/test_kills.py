"""A worker that is killed -9 at each phase of a job: what was in flight is done again, and nothing else."""

import signal

import pytest

from holdfast.ports.records import RunStatus
from tests.chaos.faults import Fault
from tests.chaos.programs import CHAIN
from tests.chaos.site import Site

# Where each worker is killed, while it has the third stage: how often the bodies of its run are started, and how many
# attempts are lost.
PHASES = {
    "job.claim:inside": (5, 0),
    "job.claim:after": (5, 1),
    "body": (6, 1),
    "job.settle:before": (6, 1),
    "job.settle:inside": (6, 1),
    "job.settle:after": (5, 0),
}


def test_a_worker_killed_at_any_phase_of_a_job_costs_what_was_in_flight(site: Site) -> None:
    runs = {phase: site.start(CHAIN(10), queue=phase.replace(":", "-")) for phase in PHASES}
    victims = [
        site.worker(phase, faults=[Fault(phase, 3)], only_queues=[phase.replace(":", "-")], concurrency=1)
        for phase in PHASES
    ]
    assert [victim.wait() for victim in victims] == [-signal.SIGKILL] * len(PHASES)
    assert sorted(site.book.faults()) == sorted(PHASES)

    site.worker("survivor", queues={phase.replace(":", "-"): 10 for phase in PHASES})
    site.until_done()

    for phase, run in runs.items():
        starts, lost = PHASES[phase]
        assert (site.run(run).status, site.result(run)) == (RunStatus.COMPLETED, 15)
        assert len(site.book.entries(run=run)) == starts, phase
        assert sum(row.type == "stage.lost" for row in site.history(run)) == lost, phase
    audit = site.audit()
    assert (audit.repeats, audit.lost) == (3, 4)


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
