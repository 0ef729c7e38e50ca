"""A body that kills its process is retried up to its limit of losses and then fails."""

import json
import signal

import pytest

from holdfast.kernel.runs.external_work import LOST_WORKER
from holdfast.ports.records.run import RunStatus
from tests.chaos.figures import report
from tests.chaos.poison import STEP_TRIES, live_on, swallow_beside
from tests.chaos.programs import FRAGILE, NEIGHBOUR, POISON, POISON_CODE
from tests.chaos.site import Site

pytestmark = pytest.mark.chaos

ATTEMPTS = 3
LOSSES = 5
"""The losses until a poison job with that many attempts fails: two in any company, the others alone."""
NEIGHBOURS = 8
FRAGILE_NEIGHBOURS = 4


@pytest.mark.parametrize("poisons", [1, 2])
def test_poison_is_given_up_after_its_losses_and_its_neighbours_live(site: Site, poisons: int) -> None:
    poison = [site.start(POISON(number)) for number in range(poisons)]
    neighbours = [site.start(NEIGHBOUR(number)) for number in range(NEIGHBOURS)]
    deaths = supervise(site, work_seconds=0.4)

    # Of two in one worker the quicker one has killed it, and the other was lost with it all the same.
    assert LOSSES <= deaths <= len(site.book.faults()) <= LOSSES * poisons
    for run in poison:
        epochs = [(start.epoch, start.attempt) for start in site.book.entries(run=run)]
        assert set(epochs) <= {(number, number) for number in range(1, LOSSES + 1)}
        assert len(epochs) == LOSSES or poisons > 1
        row = site.run(run)
        assert row.status is RunStatus.FAILED
        error = json.loads(row.error or "{}")
        assert (error["code"], error["attempt"], error["stage"]) == (LOST_WORKER, LOSSES, "swallow")
    assert [site.result(run) for run in neighbours] == list(range(NEIGHBOURS))
    audit = site.audit()
    assert audit.lost >= NEIGHBOURS, "the neighbours were hardly ever in the way"
    report(f"deaths: {deaths}, {audit}")


def test_poison_takes_no_neighbour_along_that_has_fewer_attempts(site: Site) -> None:
    """Losses use up none of their attempts."""
    neighbours = [site.start(FRAGILE(number)) for number in range(2)]
    poison = site.start(POISON(0))
    neighbours += [site.start(FRAGILE(number)) for number in range(2, FRAGILE_NEIGHBOURS)]
    deaths = supervise(site, work_seconds=0.4)

    assert deaths == LOSSES
    starts = site.book.entries(run=poison)
    assert [(start.epoch, start.attempt) for start in starts] == [(n, n) for n in range(1, LOSSES + 1)]
    row = site.run(poison)
    error = json.loads(row.error or "{}")
    assert (row.status, error["code"], error["attempt"]) == (RunStatus.FAILED, LOST_WORKER, LOSSES)
    assert [site.result(run) for run in neighbours] == list(range(FRAGILE_NEIGHBOURS))
    audit = site.audit()
    assert audit.lost > LOSSES - 1, "no neighbour was ever in the way"
    report(f"deaths: {deaths}, {audit}")


def test_an_inline_step_that_kills_takes_no_other_along(site: Site) -> None:
    """Beside steps of other runs and of its own, in workers that are killed with SIGKILL."""
    neighbours = [site.start(live_on(number)) for number in range(NEIGHBOURS)]
    poison = [site.start(swallow_beside(3)) for _ in range(2)]
    deaths = supervise(site, work_seconds=0.4, code=-signal.SIGKILL)

    assert [site.result(run) for run in neighbours] == list(range(NEIGHBOURS))
    assert [site.result(run) for run in poison] == [["lost", "0", "1", "2"]] * 2
    assert STEP_TRIES <= deaths <= STEP_TRIES * len(poison)
    report(f"deaths: {deaths}, {site.audit()}")


def test_a_node_that_dies_three_times_uses_up_no_tries(site: Site) -> None:
    runs = [site.start(live_on(number)) for number in range(NEIGHBOURS)] + [
        site.start(NEIGHBOUR(number)) for number in range(NEIGHBOURS)
    ]
    for death in range(3):
        worker = site.worker(f"worker-{death}", work_seconds=3.0)
        site.until(lambda: len(site.book.entries()) >= (death + 1) * 2, "something runs", 30)  # noqa: B023
        worker.kill()
        worker.wait()
    site.worker("worker-3", work_seconds=0.1)
    site.until_done(60)

    assert [site.result(run) for run in runs] == list(range(NEIGHBOURS)) * 2


def supervise(
    site: Site,
    *,
    work_seconds: float,
    concurrency: int = 20,
    deaths_max: int = 20,
    code: int = POISON_CODE,
) -> int:
    """Restart a worker whenever it dies, until all runs have ended. Return how often it died."""
    deaths = 0
    worker = site.worker("worker-0", work_seconds=work_seconds, concurrency=concurrency)
    while True:
        site.until(lambda: worker.code is not None or not site.active(), "all has ended, or the worker", 30)  # noqa: B023
        if worker.code is None:
            return deaths
        assert worker.code == code
        deaths += 1
        assert deaths <= deaths_max
        worker = site.worker(f"worker-{deaths}", work_seconds=work_seconds, concurrency=concurrency)
