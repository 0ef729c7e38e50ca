"""Workers are killed while runs wait for child runs and for external work."""

import random
import signal
from collections import Counter

import pytest

from holdfast.kernel.invariants import check
from holdfast.ports.records.run import RunStatus
from tests.chaos.external_service import ASKS, Outside
from tests.chaos.faults import Fault
from tests.chaos.figures import report
from tests.chaos.programs import TREE, TREE_ODD
from tests.chaos.site import Site

pytestmark = pytest.mark.chaos

POINTS = (
    "job.claim:inside",
    "job.claim:after",
    "body",
    "check",
    "job.settle:before",
    "job.settle:inside",
    "job.settle:after",
)
ROUNDS = 2
TREES = 2
WIDTH = 4


def test_every_parent_ends_and_work_is_handed_on_once(sqlite_site: Site) -> None:
    site = sqlite_site
    draw = random.Random(47)
    points = [*POINTS] * ROUNDS
    draw.shuffle(points)
    runs: list[str] = []
    for name, point in enumerate(points):
        runs += [site.start(TREE(WIDTH)) for _ in range(TREES)]
        victim = site.worker(f"{name} {point}", faults=[Fault(point, draw.randrange(1, 6))], concurrency=4)
        assert victim.wait() == -signal.SIGKILL, point
    assert Counter(site.book.faults()) == dict.fromkeys(POINTS, ROUNDS)

    site.worker("survivor")
    site.until_done(60)

    # Each number becomes one more in its child, of which the odd ones are made even by the test's stage.
    wanted = sum(number + 1 + (number + 1) % 2 for number in range(WIDTH))
    assert [site.result(run) for run in runs] == [wanted] * len(runs)
    snapshot = site.snapshot()
    assert check(snapshot) == []
    assert site.repair() == ()
    assert Counter(run.status for run in snapshot.runs.values()) == {
        RunStatus.COMPLETED: len(runs) * (1 + WIDTH)
    }

    jobs = Outside(site.folder).jobs()
    assert len(jobs) == len(runs) * WIDTH  # one for each child, whoever was killed
    assert [job for job in jobs if job.late] == []
    assert all(job.asks > ASKS for job in jobs)
    again = sum(job.submits - 1 for job in jobs)
    assert again <= len(points) * 4
    # The test of a child is made by a worker that may be lost with it; what it chose is done for the odd numbers only.
    chosen = {entry.run for entry in site.book.entries() if entry.stage == TREE_ODD}
    assert len(chosen) == len(runs) * WIDTH // 2
    report(f"kills: {len(points)}, runs: {len(snapshot.runs)}, jobs: {len(jobs)}, handed on again: {again}")
