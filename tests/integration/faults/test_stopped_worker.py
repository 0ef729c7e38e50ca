"""A worker is stopped past its lease and resumes: its writes are fenced."""

import signal

from tests.chaos.faults import Fault
from tests.chaos.programs import ONE
from tests.chaos.site import Site

RUNS = 4


def test_results_that_come_after_the_lease_are_refused_and_counted(site: Site) -> None:
    runs = [site.start(ONE(number)) for number in range(RUNS)]
    late = site.worker(
        "late", concurrency=RUNS, work_seconds=0.3, faults=[Fault("job.settle:before", do="stop")]
    )
    site.until(late.is_stopped, "the worker has stopped itself")
    assert site.book.faults() == ["job.settle:before"]
    assert len(site.book.entries()) == RUNS
    other = site.worker("other")
    site.until_done()
    other.signal(signal.SIGTERM)
    assert other.wait() == 0
    before = site.snapshot()

    late.signal(signal.SIGCONT)
    # It finds out by itself, begins another life, and is of use again.
    another = site.start(ONE(10))
    site.until_done()
    late.signal(signal.SIGTERM)
    assert late.wait() == 0

    after = site.snapshot()
    assert [site.result(run) for run in runs] == [number + 1 for number in range(RUNS)]
    assert site.result(another) == 11
    for key, run in before.runs.items():
        assert (after.runs[key], after.history[key]) == (run, before.history[key])
    assert 1 <= late.said["fenced"] <= RUNS
    assert (late.said["sessions_lost"], late.said["settled"]) == (1, 1)
    assert other.said["fenced"] == 0
    audit = site.audit()
    assert (audit.repeats, audit.lost) == (RUNS, RUNS)
