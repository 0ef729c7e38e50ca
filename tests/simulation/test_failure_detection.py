"""The simulator reports broken invariants, stuck runs and crashed hosts."""

import pytest

from holdfast.adapters.memory.persistence import MemoryPersistence
from holdfast.hosts.execution.child_results import RunEndDelivery
from holdfast.hosts.worker.machine import WorkerMachine
from holdfast.hosts.worker.session_renewal import Renewal
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.kernel.rules import leases
from holdfast.ports.records.job import Job, JobState
from holdfast.ports.records.values import PlanRow
from holdfast.testing.simulation import Exit, FaultSchedule, SeedOutcome, draw_workload, shrink, simulate_seed
from holdfast.testing.simulation.__main__ import main
from holdfast.testing.simulation.reports import report

pytestmark = pytest.mark.slow

SEEDS_MAX = 60


def _first_that_fails(wastes_nothing: bool = False) -> SeedOutcome:
    for seed in range(1, SEEDS_MAX + 1):
        outcome = simulate_seed(seed, draw_workload, wastes_nothing=wastes_nothing)
        if outcome.exit is not Exit.FINE:
            return outcome
    pytest.fail(f"nothing was found in {SEEDS_MAX} seeds")


def test_writes_that_are_not_fenced_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that was paused for longer than its lease settles the attempt of the one that has it now."""

    def is_held(job: Job | None, _: int, namespace: str) -> bool:
        return job is not None and job.namespace == namespace and job.state is JobState.LEASED

    monkeypatch.setattr(leases, "is_held", is_held)

    outcome = _first_that_fails()

    assert outcome.exit is Exit.BROKEN
    assert outcome.found[0].startswith("S3 ")


def test_ends_that_are_never_told_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def tell(_: RunEndDelivery, __: Kernel) -> int:
        return 0

    monkeypatch.setattr(RunEndDelivery, "deliver_all", tell)

    outcome = _first_that_fails()

    assert outcome.exit is Exit.STUCK
    assert any("is still to be delivered" in line or "is running" in line for line in outcome.found)


def test_a_host_that_raises_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(_: WorkerMachine) -> None:
        raise AssertionError("a bug of a host")

    monkeypatch.setattr(WorkerMachine, "leave", leave)

    outcome = _first_that_fails()

    assert outcome.exit is Exit.CRASHED
    assert "a bug of a host" in outcome.found[0]


def test_what_is_done_in_vain_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that does not renew its session loses what it runs: all ends well, but for what is done twice."""

    def idle(renewal: Renewal) -> float:
        return renewal.interval

    monkeypatch.setattr(Renewal, "round", idle)

    outcome = _first_that_fails(wastes_nothing=True)

    assert outcome.exit is Exit.BROKEN
    assert outcome.found[0].startswith("W1 ")


def test_a_failure_is_shrunk_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.kernel.dispatch.kernel.reply_of", _other_row)
    outcome = _first_that_fails()

    def play(schedule: FaultSchedule) -> SeedOutcome:
        return simulate_seed(outcome.seed, draw_workload, schedule=schedule, wastes_nothing=False)

    shrunk = shrink(play, outcome, tries_max=60)

    assert len(shrunk.outcome.fired) < max(2, len(outcome.fired) / 2)
    assert shrunk.outcome.found[0].split()[0] == outcome.found[0].split()[0]
    assert play(shrunk.schedule).hash == shrunk.outcome.hash
    lines = list(report(outcome, shrunk))
    assert lines[0] == f"seed {outcome.seed}: BROKEN"
    assert any("shrunk from" in line for line in lines)


def _other_row(*_: object) -> PlanRow:
    """Return a row to store in place of a reply."""
    return PlanRow(fingerprint="none", workflow="none", version="1", body="{}")


def test_the_command_line_says_what_it_did_and_how_it_ended(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--no-kept"]) == 0

    out = capsys.readouterr().out
    assert "2 seeds of runs on memory" in out
    assert "a minute" in out
    assert "crash" in out
    assert "no violations" in out


def test_the_command_line_fails_as_the_seed_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def transact(self: MemoryPersistence, work: object) -> object:
        raise KeyError("a bug of the simulator")

    monkeypatch.setattr(MemoryPersistence, "transact", transact)
    monkeypatch.setattr("holdfast.testing.simulation.shrinker.TRIES_MAX", 1)

    assert main(["--seeds", "1", "--no-kept"]) == 127

    assert "FAILED: CRASHED" in capsys.readouterr().out
