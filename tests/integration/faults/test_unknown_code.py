"""Workers with different workflows on one database: each runs its own and leaves the others alone."""

from holdfast.ports.records.job import JobState
from tests.chaos.programs import DEPLOYED_1, DEPLOYED_2, ONE
from tests.chaos.site import Site


def test_a_run_that_a_worker_does_not_know_waits_for_one_that_does(site: Site) -> None:
    stranger = site.start(DEPLOYED_1("done"))
    site.worker("knows one", "one@1", poll_interval=0.02)
    # Each of these is asked for after the stranger was, and by then it was passed over.
    for number in range(10):
        run = site.start(ONE(number))
        site.until(lambda: site.jobs(run) == (), "a run is done")  # noqa: B023
        assert site.result(run) == number + 1
        job = site.job(stranger)
        assert (job.state, job.epoch, job.attempts) == (JobState.QUEUED, 0, 0)

    site.worker("knows the other", "deployed@1")
    site.until_done()
    assert site.result(stranger) == "done by 1"
    assert site.audit().repeats == 0


def test_while_two_versions_are_deployed_each_run_keeps_to_its_own(site: Site) -> None:
    old = [site.start(DEPLOYED_1(f"{number}")) for number in range(10)]
    new = [site.start(DEPLOYED_2(f"{number}")) for number in range(10)]
    is_new = site.worker("new", "deployed@2")
    site.until(lambda: site.active() == 10, "the new runs are done")
    for run in old:
        job = site.job(run)
        assert (job.state, job.epoch, job.attempts) == (JobState.QUEUED, 0, 0)

    is_old = site.worker("old", "deployed@1")
    site.until_done()

    assert [site.result(run) for run in old] == [f"{number} by 1" for number in range(10)]
    assert [site.result(run) for run in new] == [f"{number} by 2" for number in range(10)]
    pids = {start.run: start.pid for start in site.book.entries()}
    assert {pids[run] for run in old} == {is_old.pid}
    assert {pids[run] for run in new} == {is_new.pid}
    site.audit()
