"""A worker that is replaced leaves sleeping jobs: another one wakes them when due, by its idle claims."""

from datetime import timedelta

import pytest

from holdfast import Worker, sleep, stage, workflow
from holdfast.client import RunStatus
from holdfast.hosts.worker import worker as worker_module
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.ports.queries.runs import FindRun, JobsOfRun
from holdfast.ports.records.job import JobState
from holdfast.ports.records.run import RunName
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.polling import until

pytestmark = pytest.mark.anyio
LONG = timedelta(seconds=1.5)
POLL = 0.2
LEASE = 36_000.0
"""The interval of a worker's maintenance is a third of its lease, up to the default."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _no_maintenance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Except for the tick with which each worker starts, no maintenance could wake anything."""
    monkeypatch.setattr(worker_module, "MAINTENANCE_INTERVAL", 3_600.0)


@workflow
async def naps(number: int) -> int:
    await sleep(LONG)
    return number


tries: list[int] = []


@stage(retry=Retry(attempts=2, wait=LONG, jitter=0.0))
def flaky(number: int) -> int:
    tries.append(number)
    if len(tries) == 1:
        raise ConnectionError("busy")
    return number


pipe = Pipeline("pipe", input=int).pipe(flaky)


@pytest.mark.slow
async def test_a_sleeper_goes_on_with_the_worker_that_comes(open_engine: OpenEngine) -> None:
    """A sleeping function and a stage that waits for a retry: only the first worker knew of them."""
    tries.clear()
    async with open_engine(naps, pipe) as engine:
        runs = [await engine.start(naps(1), id="nap"), await engine.start(pipe(2), id="flaky")]
        read = engine.core.stores.persistence.read

        def all_sleep() -> bool:
            found = [read(FindRun(RunName(engine.core.namespace, id_))) for id_ in ("nap", "flaky")]
            jobs = [job for run in found if run is not None for job in read(JobsOfRun(run.key))]
            return [job.state for job in jobs] == [JobState.SLEEPING] * 2

        async with Worker(engine, poll_interval=POLL, lease=LEASE):
            await until(all_sleep)
        async with Worker(engine, poll_interval=POLL, lease=LEASE):
            assert all_sleep()
            results = [await run.result(timeout=120) for run in runs]

        assert results == [1, 2]
        assert [(await run.info()).status for run in runs] == [RunStatus.COMPLETED] * 2
