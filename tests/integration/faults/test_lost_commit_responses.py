"""A connection is cut at a commit: the caller gets the result, and the commit has happened once."""

from collections.abc import Iterator

import pytest

from holdfast import Engine, SyncEngine
from holdfast.client import RunStatus
from holdfast.kernel.commands import (
    Attempt,
    Completed,
    JobClaim,
    JobsClaimed,
    JobSettle,
    JobSettled,
    SessionOpen,
)
from holdfast.ports.records.history import STAGE_COMPLETED
from holdfast.ports.records.job import JobState
from holdfast.ports.records.values import Payload
from holdfast.ports.searches import QueueClaim
from tests.chaos.programs import CHAIN, ONE, WORKFLOWS
from tests.chaos.site import Site
from tests.integration.sql.proxy import Mode, Proxy

pytestmark = pytest.mark.service

CUTS: list[Mode] = ["cut after commit", "cut before commit"]


@pytest.fixture
def proxy(postgres_database: str) -> Iterator[Proxy]:
    with Proxy(postgres_database) as proxy:
        yield proxy


@pytest.fixture
def engine(proxy: Proxy) -> Iterator[SyncEngine]:
    """An engine whose connections can be cut. There is no listener: every cut hits a call of the test's."""
    with Engine.open(proxy.url, workflows=list(WORKFLOWS.values())).sync as engine:
        yield engine


def claim(engine: SyncEngine, session: str, limit: int) -> tuple[Attempt, ...]:
    """Lease jobs of any workflow in the default queue."""
    lane = QueueClaim(queue="default", definitions=tuple(WORKFLOWS), limit=limit)
    claimed = engine.kernel.dispatch(JobClaim(session=session, queue_claims=(lane,), limit=limit))
    assert isinstance(claimed, JobsClaimed)
    return claimed.attempts


def settle(attempt: Attempt, output: int) -> JobSettle:
    return JobSettle(
        job=attempt.job, epoch=attempt.epoch, outcome=Completed(output=Payload(inline=str(output)))
    )


# After a commit that did happen there is no second one to cut.
@pytest.mark.parametrize(("how", "times"), [("cut after commit", 1), ("cut before commit", 3)])
def test_a_run_is_created_once(
    postgres_site: Site, proxy: Proxy, engine: SyncEngine, how: Mode, times: int
) -> None:
    proxy.fail(how, times=times)
    connections = proxy.connections

    run = engine.start(CHAIN(1)).id

    assert proxy.connections - connections >= times, "it was not cut"
    assert list(postgres_site.snapshot().runs) == [postgres_site.run(run).key]
    assert [row.type for row in postgres_site.history(run)] == ["run.created"]
    postgres_site.audit()


@pytest.mark.parametrize("how", CUTS)
def test_a_claim_is_made_once_and_answered(
    postgres_site: Site, proxy: Proxy, engine: SyncEngine, how: Mode
) -> None:
    runs = [postgres_site.start(ONE(number)) for number in range(3)]
    session = engine.kernel.dispatch(SessionOpen(host="here", lease=60_000_000)).session
    proxy.fail(how)
    connections = proxy.connections

    attempts = claim(engine, session, 2)

    assert proxy.connections > connections, "it was not cut"
    assert [attempt.epoch for attempt in attempts] == [1, 1]
    jobs = [postgres_site.job(run) for run in runs]
    assert sorted(job.state for job in jobs) == [JobState.LEASED, JobState.LEASED, JobState.QUEUED]
    assert {job.key.text for job in jobs if job.session == session} == {attempt.job for attempt in attempts}


@pytest.mark.parametrize("how", CUTS)
def test_results_are_settled_once_and_answered(
    postgres_site: Site, proxy: Proxy, engine: SyncEngine, how: Mode
) -> None:
    run, other = postgres_site.start(CHAIN(1)), postgres_site.start(ONE(1))
    session = engine.kernel.dispatch(SessionOpen(host="here", lease=60_000_000)).session
    attempts = claim(engine, session, 2)
    settles = [settle(attempt, 2) for attempt in attempts]
    proxy.fail(how)
    connections = proxy.connections

    answers = engine.kernel.dispatch_many(settles)

    assert proxy.connections > connections, "it was not cut"
    assert [answer.status for answer in answers if isinstance(answer, JobSettled)] == ["settled", "settled"]
    for started, status, jobs in ((run, RunStatus.RUNNING, 1), (other, RunStatus.COMPLETED, 0)):
        assert (postgres_site.run(started).status, len(postgres_site.jobs(started))) == (status, jobs)
        assert sum(row.type == STAGE_COMPLETED for row in postgres_site.history(started)) == 1
    again = engine.kernel.dispatch_many(settles)
    assert [answer.status for answer in again if isinstance(answer, JobSettled)] == ["fenced", "fenced"]


def test_starting_again_with_the_same_key_gives_the_run_there_is(
    postgres_site: Site, proxy: Proxy, engine: SyncEngine
) -> None:
    ids: set[str] = set()
    for _ in range(3):
        proxy.fail("cut after commit")
        ids.add(engine.start(CHAIN(1), idempotency_key="the same").id)

    assert len(ids) == 1
    assert len(postgres_site.snapshot().runs) == 1
