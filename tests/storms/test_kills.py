"""Workers that are killed, stopped, poisoned, blocked or told to go."""

import os
import signal

import pytest

from holdfast import RunStatus
from holdfast.kernel.commands import RunRepair
from holdfast.ports.errors import RunFailedError
from tests.storms.fleet import Fleet, wait_until
from tests.storms.program import PHASES, chain, hogging, poison, poison_attempts, slow

pytestmark = pytest.mark.chaos

LEASE = 1.5
RECOVERY = 60.0


@pytest.mark.parametrize("phase", PHASES)
def test_a_worker_killed_at_any_phase_of_a_job_loses_and_doubles_nothing(ships: Fleet, phase: str) -> None:
    runs = [ships.engine.sync.start(chain(number), id=f"run-{number}") for number in range(12)]
    deaths = 0
    for number in (1, 2, 3):
        doomed = ships.worker("--die", phase, "--number", str(number))
        assert doomed.wait(timeout=30) == -signal.SIGKILL
        deaths += 1

    ships.worker()
    ships.wait_for_ends(runs, RECOVERY)

    assert deaths == 3
    assert [run.result() for run in runs] == [2 * (number + 1) + 1 for number in range(12)]
    assert ships.repeats() <= 3 * 8, "only what was under way may run again"
    ships.audit()


def test_a_worker_killed_in_the_middle_of_bodies_repeats_only_those(ships: Fleet) -> None:
    runs = [ships.start(slow, 1.0, f"run-{number}") for number in range(4)]
    doomed = ships.worker()
    wait_until(lambda: len(ships.started()) == 4, 30, "the bodies have not started")
    doomed.kill()
    ships.worker()
    ships.wait_for_ends(runs, RECOVERY)

    assert [run.result() for run in runs] == ["rested"] * 4
    assert ships.repeats() == 4
    assert {start.attempt for start in ships.started()} == {1, 2}
    ships.audit()


def test_a_worker_that_was_stopped_past_its_lease_is_refused_its_late_results(ships: Fleet) -> None:
    runs = [ships.start(slow, 1.0, f"run-{number}") for number in range(4)]
    zombie = ships.worker()
    wait_until(lambda: len(ships.started()) == 4, 30, "the bodies have not started")
    os.kill(zombie.pid, signal.SIGSTOP)
    ships.worker()
    ships.wait_for_ends(runs, RECOVERY)
    before = [run.row() for run in runs]
    os.kill(zombie.pid, signal.SIGCONT)
    zombie.terminate()

    assert zombie.wait(timeout=30) == 0
    assert [run.row() for run in runs] == before
    fenced, settled, _ = (ships.folder / f"stats-{zombie.pid}").read_text().split()
    assert int(settled) == 0
    # What it was still running when it woke was cancelled as lost, or fenced as late: in either case nothing was taken.
    assert int(fenced) <= 4
    assert ships.repeats() == 4
    ships.audit()


def test_poison_is_dead_after_exactly_its_attempts_and_its_neighbours_are_not(ships: Fleet) -> None:
    neighbours = [ships.start(slow, 0.6, f"neighbour-{number}") for number in range(4)]
    killer = ships.start(poison, 0.3, "killer")
    deaths = 0
    while killer.row().status is RunStatus.RUNNING:
        worker = ships.worker("--lease", "1")
        wait_until(
            lambda worker=worker: worker.poll() is not None or killer.row().status is not RunStatus.RUNNING,  # type: ignore[misc]
            RECOVERY,
            "the poison neither kills nor ends",
        )
        deaths += worker.poll() is not None
    ships.worker("--lease", "1")
    ships.wait_for_ends(neighbours, RECOVERY)

    drunk = [start for start in ships.started() if "/drink" in start.key]
    assert [start.attempt for start in drunk] == list(range(1, poison_attempts + 1))
    assert deaths >= poison_attempts
    assert [run.result() for run in neighbours] == ["rested"] * 4
    with pytest.raises(RunFailedError, match="was lost"):
        killer.result()
    ships.audit()


def test_sigterm_drains_and_gives_back_what_does_not_end_without_burning_an_attempt(ships: Fleet) -> None:
    short = ships.start(slow, 0.5, "short")
    long = ships.start(slow, 60.0, "long")
    worker = ships.worker("--grace", "2", "--lease", "30")
    wait_until(lambda: len(ships.started()) == 2, 30, "the bodies have not started")
    worker.terminate()

    assert worker.wait(timeout=20) == 0
    assert short.result() == "rested"
    (job,) = ships.jobs("long")
    assert (job.state, job.attempts, job.epoch) == ("queued", 0, 1)
    assert long.row().status is RunStatus.RUNNING
    ships.audit()


def test_a_second_signal_stops_at_once(ships: Fleet) -> None:
    ships.start(slow, 60.0, "long")
    worker = ships.worker("--grace", "60", "--lease", "30")
    wait_until(lambda: len(ships.started()) == 1, 30, "the body has not started")
    worker.terminate()
    wait_until(lambda: "draining" in ships.text_of_logs(), 10, "the first signal was not heard")
    worker.terminate()

    worker.wait(timeout=10)
    ships.audit()


def test_a_long_body_of_a_healthy_worker_keeps_its_one_epoch(ships: Fleet) -> None:
    run = ships.start(slow, 5.0, "long")
    ships.worker("--lease", "1")
    ships.worker("--lease", "1")
    ships.wait_for_ends([run], RECOVERY)

    assert [(start.epoch, start.attempt) for start in ships.started()] == [(1, 1)]
    assert ships.engine.kernel.dispatch(RunRepair()).repaired == ()
    ships.audit()


def test_a_body_that_blocks_the_event_loop_costs_its_worker_nothing_but_a_warning(ships: Fleet) -> None:
    run = ships.start(hogging, 5.0, "hog")
    ships.worker("--lease", "1")
    ships.worker("--lease", "1")
    ships.wait_for_ends([run], RECOVERY)

    assert [(start.epoch, start.attempt) for start in ships.started()] == [(1, 1)]
    assert "the event loop has been blocked" in ships.text_of_logs()
    assert "in hog" in ships.text_of_logs()
    ships.audit()


def test_work_of_code_that_a_worker_lacks_is_left_alone(ships: Fleet) -> None:
    unknown = ships.start(slow, 0.1, "unknown")
    known = ships.engine.sync.start(chain(1), id="known")
    ships.worker("--only", "chain")
    assert known.result() == 5
    (job,) = ships.jobs("unknown")
    assert (job.state, job.epoch, job.attempts) == ("queued", 0, 0)

    ships.worker("--only", "slow")
    ships.wait_for_ends([unknown], RECOVERY)
    assert unknown.result() == "rested"
    ships.audit()


def test_without_faults_nothing_is_wasted(ships: Fleet) -> None:
    """W1: one epoch for each attempt, one body for each stage, and nothing to repair."""
    ships.worker("--lease", "10")
    ships.worker("--lease", "10")
    runs = [ships.engine.sync.start(chain(number), id=f"run-{number}") for number in range(100)]
    ships.wait_for_ends(runs, RECOVERY)

    assert len(ships.started()) == 300
    assert {(start.epoch, start.attempt) for start in ships.started()} == {(1, 1)}
    assert ships.engine.kernel.dispatch(RunRepair()).repaired == ()
    ships.audit()
