"""A stage with `max_concurrency=1` on several workers that are killed."""

import signal
import time
from itertools import pairwise

import pytest

from holdfast.kernel.invariants import check
from tests.chaos.execution_log import Entry
from tests.chaos.faults import Fault
from tests.chaos.figures import report
from tests.chaos.programs import NARROW
from tests.chaos.site import Site

pytestmark = pytest.mark.chaos

RUNS = 24
ACTIVE_MIN = 8
WORK = 0.01


def spans(starts: list[Entry], ends: list[Entry]) -> list[tuple[float, float]]:
    """Return when the completed bodies ran, in order."""
    ended = {(entry.key, entry.epoch): entry.at for entry in ends}
    return sorted((one.at, ended[one.key, one.epoch]) for one in starts if (one.key, one.epoch) in ended)


def feed(site: Site, runs: dict[str, int]) -> None:
    """Start another run if little work is left: there must be work until the victim meets its fault."""
    if site.active() < ACTIVE_MIN:
        runs[site.start(NARROW(len(runs)))] = len(runs)


def test_workers_that_are_killed_never_run_more_of_a_stage_than_may(site: Site) -> None:
    runs = {site.start(NARROW(number)): number for number in range(RUNS)}
    for point, nth in (("body", 5), ("job.settle:inside", 3), ("job.settle:after", 3), ("body", 3)):
        bystander = site.worker(f"beside {point} {nth}", concurrency=4, work_seconds=WORK)
        victim = site.worker(f"{point} {nth}", faults=[Fault(point, nth)], concurrency=4, work_seconds=WORK)
        until = time.monotonic() + 60
        while victim.code is None:
            assert time.monotonic() < until, f"it has not met its fault: {victim.log}"
            feed(site, runs)
            time.sleep(WORK)
        assert victim.wait() == -signal.SIGKILL, point
        bystander.kill()
        assert check(site.snapshot()) == []

    site.worker("survivor", work_seconds=WORK)
    site.worker("other survivor", work_seconds=WORK)
    site.until_done(60.0)

    assert {run: site.result(run) for run in runs} == {run: number + 2 for run, number in runs.items()}
    starts, ends = (
        [entry for entry in site.book.entries(what) if entry.stage == "narrow"] for what in ("start", "end")
    )
    narrow = spans(starts, ends)
    assert len(narrow) >= RUNS
    assert all(ended <= began for (_, ended), (began, _) in pairwise(narrow))
    report(f"kills: 4, {site.audit()}")
