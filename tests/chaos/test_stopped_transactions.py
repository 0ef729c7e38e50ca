"""A worker is stopped (SIGSTOP) within a transaction."""

import signal
import time

import pytest

from tests.chaos.faults import Fault
from tests.chaos.figures import report
from tests.chaos.programs import CHAIN
from tests.chaos.site import Site

pytestmark = pytest.mark.chaos


@pytest.mark.service
def test_a_worker_stopped_within_a_transaction_holds_up_the_others_for_seconds_only(
    postgres_site: Site,
) -> None:
    """The server ends idle transactions, which frees their locks."""
    site = postgres_site
    runs = {site.start(CHAIN(number)): number for number in range(5)}
    late = site.worker("late", concurrency=1, faults=[Fault("job.settle:inside", 2, "stop")])
    site.until(late.is_stopped, "the worker has stopped itself")
    stopped_at = time.monotonic()
    site.worker("other", concurrency=1)
    site.until_done(18)
    report(f"held up for {time.monotonic() - stopped_at:.1f} s")
    late.signal(signal.SIGCONT)
    late.signal(signal.SIGTERM)
    assert late.wait(40) == 0

    assert late.said["fenced"] == 1
    assert {run: site.result(run) for run in runs} == {run: number + 5 for run, number in runs.items()}
    audit = site.audit()
    assert (audit.repeats, audit.lost) == (1, 1)
