"""A worker is killed (-9) while it cancels external work: another one does it, and the run's end stays."""

import signal
from collections.abc import Sequence

import pytest

from holdfast.kernel.invariants import check
from holdfast.ports.json import parse
from holdfast.ports.records.history import HistoryRow
from holdfast.ports.records.run import RunStatus
from tests.chaos.external_service import Outside
from tests.chaos.faults import Fault
from tests.chaos.programs import ENDLESS
from tests.chaos.site import Site

# Where the worker is killed, how often the work is cancelled then, and in which attempt that is told.
POINTS = {
    "job.claim:after": (1, 2),
    "cancel:before": (1, 2),
    "cancel:after": (2, 2),
    "job.settle:before": (2, 2),
    "job.settle:inside": (2, 2),
    "job.settle:after": (1, 1),
}


def _paid(site: Site, run: str) -> Sequence[HistoryRow]:
    return [row for row in site.history(run) if row.type in ("stage.cancelled", "stage.cancel_failed")]


def _cancelled(site: Site, *runs: str) -> None:
    """Suspend the external stages of these runs, and cancel the runs while no worker runs."""
    first = site.worker("first", concurrency=4)
    site.until(
        lambda: all(any(row.type == "stage.suspended" for row in site.history(run)) for run in runs),
        "the work is handed on",
    )
    first.signal(signal.SIGTERM)
    assert first.wait() == 0
    for run in runs:
        site.engine.handle(ENDLESS, run).cancel()


@pytest.mark.parametrize("point", POINTS)
def test_work_is_cancelled_though_its_worker_is_killed(site: Site, point: str) -> None:
    run = site.start(ENDLESS(1))
    _cancelled(site, run)
    victim = site.worker("victim", faults=[Fault(point)], concurrency=1)
    assert victim.wait() == -signal.SIGKILL
    assert site.book.faults() == [point]

    site.worker("survivor")
    site.until(lambda: _paid(site, run), "the work is cancelled")

    cancels, attempt = POINTS[point]
    (job,) = Outside(site.folder).jobs()
    assert (job.submits, job.cancels) == (1, cancels)
    (row,) = _paid(site, run)
    assert (row.type, parse(row.data or "")["attempt"]) == ("stage.cancelled", attempt)
    assert site.run(run).status is RunStatus.CANCELLED
    assert site.jobs(run) == ()
    assert check(site.snapshot()) == []
    assert site.repair() == ()


def test_work_that_kills_whoever_cancels_it_is_given_up_and_that_is_told(site: Site) -> None:
    run = site.start(ENDLESS(1))
    _cancelled(site, run)
    for number in range(5):  # as often as it has attempts, and at least five times
        victim = site.worker(f"victim {number}", faults=[Fault("cancel:before")])
        assert victim.wait() == -signal.SIGKILL
    site.worker("survivor")
    site.until(lambda: _paid(site, run), "the work is given up")

    (row,) = _paid(site, run)
    facts = parse(row.data or "")
    assert (row.type, facts["code"], facts["attempt"]) == ("stage.cancel_failed", "worker_lost", 5)
    assert "cleanup_failed" in {reason.code for reason in site.engine.handle(ENDLESS, run).why()}
    assert site.run(run).status is RunStatus.CANCELLED
    assert check(site.snapshot()) == []
