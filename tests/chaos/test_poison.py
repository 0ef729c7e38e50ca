"""A body that takes its process with it is tried as often as it may be, and then no more."""

import json

import pytest

from holdfast.kernel.work import LOST_WORKER
from holdfast.ports.records import RunStatus
from tests.chaos.figures import report
from tests.chaos.programs import FRAGILE, NEIGHBOUR, POISON, POISON_CODE
from tests.chaos.site import Site

pytestmark = pytest.mark.chaos

ATTEMPTS = 3
NEIGHBOURS = 8
FRAGILE_NEIGHBOURS = 4


@pytest.mark.parametrize("poisons", [1, 2])
def test_poison_is_given_up_after_its_attempts_and_its_neighbours_live(site: Site, poisons: int) -> None:
    poison = [site.start(POISON(number)) for number in range(poisons)]
    neighbours = [site.start(NEIGHBOUR(number)) for number in range(NEIGHBOURS)]
    deaths = supervise(site, work_seconds=0.4)

    # Of two in one worker the quicker one has killed it, and the other has lost an attempt all the same.
    assert ATTEMPTS <= deaths <= len(site.book.faults()) <= ATTEMPTS * poisons
    for run in poison:
        epochs = [(start.epoch, start.attempt) for start in site.book.entries(run=run)]
        assert set(epochs) <= {(1, 1), (2, 2), (3, 3)}
        assert len(epochs) == ATTEMPTS or poisons > 1
        row = site.run(run)
        assert row.status is RunStatus.FAILED
        error = json.loads(row.error or "{}")
        assert (error["code"], error["attempt"], error["stage"]) == (LOST_WORKER, ATTEMPTS, "swallow")
    assert [site.result(run) for run in neighbours] == list(range(NEIGHBOURS))
    audit = site.audit()
    assert audit.lost >= NEIGHBOURS, "the neighbours were hardly ever in the way"
    report(f"deaths: {deaths}, {audit}")


def test_poison_takes_no_neighbour_along_that_has_fewer_attempts(site: Site) -> None:
    """After the first death they are on their last attempt, and it is not."""
    neighbours = [site.start(FRAGILE(number)) for number in range(2)]
    poison = site.start(POISON(0))
    neighbours += [site.start(FRAGILE(number)) for number in range(2, FRAGILE_NEIGHBOURS)]
    deaths = supervise(site, work_seconds=0.4)

    assert deaths == ATTEMPTS
    starts = site.book.entries(run=poison)
    assert [(start.epoch, start.attempt) for start in starts] == [(1, 1), (2, 2), (3, 3)]
    row = site.run(poison)
    error = json.loads(row.error or "{}")
    assert (row.status, error["code"], error["attempt"]) == (RunStatus.FAILED, LOST_WORKER, ATTEMPTS)
    assert [site.result(run) for run in neighbours] == list(range(FRAGILE_NEIGHBOURS))
    audit = site.audit()
    assert audit.lost > ATTEMPTS - 1, "no neighbour was ever in the way"
    report(f"deaths: {deaths}, {audit}")


def supervise(site: Site, *, work_seconds: float, concurrency: int = 20, deaths_max: int = 20) -> int:
    """Restart a worker whenever it dies, as a supervisor does, until all runs have ended. Return how often it died."""
    deaths = 0
    worker = site.worker("worker-0", work_seconds=work_seconds, concurrency=concurrency)
    while True:
        site.until(lambda: worker.code is not None or not site.active(), "all has ended, or the worker", 30)  # noqa: B023
        if worker.code is None:
            return deaths
        assert worker.code == POISON_CODE
        deaths += 1
        assert deaths <= deaths_max
        worker = site.worker(f"worker-{deaths}", work_seconds=work_seconds, concurrency=concurrency)
