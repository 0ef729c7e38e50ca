"""Job messages that are repeated, late, lost or forged."""

from collections import Counter

import pytest

from holdfast import Engine, ServerlessHost
from holdfast.client import RunStatus
from holdfast.kernel.commands import JobRelease
from holdfast.ports.errors import InvalidMessageError
from holdfast.ports.records.job import JobState
from holdfast.serverless import JobMessage, JobOutcome
from holdfast.testing.conformance.threads import in_threads
from tests.chaos.programs import CHAIN, ONE, STUMBLE, WORKFLOWS
from tests.chaos.site import Site

CLOSED = JobOutcome(status="ignored", reason="closed")
STALE = JobOutcome(status="ignored", reason="stale")
COMPLETED = JobOutcome(status="completed")


def host_on(site: Site, *, work_seconds: float = 0.0) -> ServerlessHost:
    """Return a host with its own connections, like an instance of a function."""
    site.open_here(work_seconds=work_seconds)
    engine = Engine.open(site.url, workflows=list(WORKFLOWS.values()))
    site.engines.append(engine.sync)
    return ServerlessHost(engine)


def message_of(site: Site, run: str) -> JobMessage:
    """Return the message that announces a run's current job."""
    job = site.job(run)
    return JobMessage(job_id=job.key.text, epoch=job.epoch)


def test_a_message_that_comes_thrice_does_its_work_once(site: Site) -> None:
    run = site.start(ONE(1))
    host = host_on(site)
    message = message_of(site, run)

    assert [host.handle_job(message) for _ in range(3)] == [COMPLETED, CLOSED, CLOSED]
    assert site.result(run) == 2
    assert site.audit().starts == 1


def test_a_message_that_comes_thrice_at_once_does_its_work_once(site: Site) -> None:
    hosts = [host_on(site, work_seconds=0.1) for _ in range(3)]
    reasons: Counter[str | None] = Counter()
    for number in range(5):
        run = site.start(ONE(number))
        message = message_of(site, run)
        outcomes = in_threads(3, lambda at: hosts[at].handle_job(message))  # noqa: B023
        assert all(outcome.acknowledge and outcome.retry_after is None for outcome in outcomes)
        assert sorted(outcome.status for outcome in outcomes) == ["completed", "ignored", "ignored"]
        reasons.update(outcome.reason for outcome in outcomes)
        assert site.result(run) == number + 1

    assert reasons.keys() <= {None, "leased", "closed"}
    assert reasons["leased"] >= 5, "they were hardly ever handled at the same time"
    assert site.audit().repeats == 0


def test_a_message_that_comes_late_finds_nothing_to_do(site: Site) -> None:
    host = host_on(site)
    done, cancelled = site.start(CHAIN(1)), site.start(CHAIN(1))
    first, other = message_of(site, done), message_of(site, cancelled)
    for _ in range(5):
        assert host.handle_job(message_of(site, done)) == COMPLETED
    site.engine.handle(CHAIN, cancelled).cancel()
    before = site.snapshot()

    assert [host.handle_job(first), host.handle_job(other)] == [CLOSED, CLOSED]
    assert site.snapshot() == before
    assert (site.result(done), site.run(cancelled).status) == (6, RunStatus.CANCELLED)
    assert site.audit().starts == 5


def test_a_message_of_an_earlier_lease_is_stale_and_that_of_the_current_one_is_not(site: Site) -> None:
    host = host_on(site)
    run = site.start(STUMBLE(1))
    early = message_of(site, run)
    assert host.handle_job(early) == JobOutcome(status="retrying")
    assert host.handle_job(early).reason == "not_due"
    site.until(lambda: host.run_maintenance_tick().woken == 1, "the job has woken")

    assert host.handle_job(early) == STALE
    assert host.handle_job(message_of(site, run)) == COMPLETED
    assert site.audit().starts == 2


def test_what_no_message_came_for_is_found(site: Site) -> None:
    host = host_on(site)
    runs = [site.start(CHAIN(number)) for number in range(3)]
    sleeper = site.start(STUMBLE(1))

    first = host.process_available_jobs(max_jobs=100)
    assert (first.completed, first.failed, first.more) == (15, 1, False)
    assert host.process_available_jobs(max_jobs=100).processed == 0
    site.until(lambda: host.run_maintenance_tick().woken == 1, "the job has woken")
    assert host.process_available_jobs(max_jobs=100).completed == 1

    assert [site.result(run) for run in [*runs, sleeper]] == [5, 6, 7, 1]
    assert site.audit().starts == 17


def test_a_message_that_was_made_up_changes_nothing(site: Site) -> None:
    host = host_on(site)
    run = site.start(ONE(1))
    job = site.job(run)
    before = site.snapshot()
    key = job.key

    made_up = [
        (JobMessage(job_id=key.text, epoch=1), STALE),
        (JobMessage(job_id=key.text, epoch=2**53), STALE),
        (JobMessage(job_id=key.text, epoch=2**80), STALE),
        (JobMessage(job_id=f"{key.run}.2", epoch=0), CLOSED),
        (JobMessage(job_id=f"{key.run}.9999999999", epoch=0), CLOSED),
        (JobMessage(job_id=f"{key.run.lower()}.1", epoch=0), CLOSED),
        (JobMessage(job_id="nobody.1", epoch=0), CLOSED),
        (JobMessage(job_id="' OR 1=1 --.1", epoch=0), CLOSED),
        (JobMessage(job_id="\x00.1", epoch=0), CLOSED),
        (JobMessage(job_id="\ud800.1", epoch=0), CLOSED),
        (JobMessage(job_id=f"{'x' * 10_000}.1", epoch=0), CLOSED),
    ]
    for one, outcome in made_up:
        assert host.handle_job(one) == outcome, one
    for message in ("{}", '{"job_id": 1, "epoch": 0}', f'{{"job_id": "{key.text}", "epoch": -1}}', "\ud800"):
        with pytest.raises(InvalidMessageError):
            host.handle_job(message)

    assert site.snapshot() == before
    together = [*made_up, (JobMessage(job_id=key.text, epoch=0), COMPLETED)]
    assert host.handle_jobs([one for one, _ in together]) == [outcome for _, outcome in together]


def test_a_message_of_another_namespace_changes_nothing(site: Site) -> None:
    engine = Engine.open(site.url, workflows=list(WORKFLOWS.values()), namespace="other")
    site.open_here()
    site.engines.append(engine.sync)
    stranger = ServerlessHost(engine)
    run = site.start(ONE(1))
    before = site.snapshot()

    assert stranger.handle_job(message_of(site, run)) == CLOSED
    assert stranger.process_available_jobs(max_jobs=10).processed == 0
    (fenced,) = engine.sync.kernel.dispatch_many(
        [JobRelease(namespace="other", job=site.job(run).key.text, epoch=0)]
    )
    assert "fenced" in repr(fenced)
    assert site.snapshot() == before
    assert (site.job(run).state, site.job(run).epoch) == (JobState.QUEUED, 0)
