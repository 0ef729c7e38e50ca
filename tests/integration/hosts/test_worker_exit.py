"""A worker process ends when asked to, whatever its bodies do."""

import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.ports.queries.runs import FindRun, JobsOfRun
from holdfast.ports.records.job import Job, JobState
from holdfast.ports.records.run import RunName
from tests.integration.hosts.stuck_worker import STUCK

pytestmark = pytest.mark.slow

SOON = 120.0


@contextmanager
def stuck_worker(url: str, grace: float) -> Generator["subprocess.Popen[str]"]:
    """A process whose body has started and will not end."""
    script = Path(__file__).parent / "stuck_worker.py"
    command = [sys.executable, str(script), url, str(grace)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        yield process
        process.kill()


def only_job(engine: Engine) -> Job:
    store = engine.core.stores.persistence
    run = store.read(FindRun(RunName("default", "x")))
    assert run is not None
    (job,) = store.read(JobsOfRun(run.key))
    return job


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """An engine with a run whose body will hang."""
    engine = Engine.open(f"sqlite:///{tmp_path}/holdfast.db", workflows=[STUCK])
    engine.sync.start(STUCK(1), id="x")
    yield engine
    engine.core.close()


def test_after_its_grace_it_gives_a_stuck_body_s_job_back_and_ends(engine: Engine) -> None:
    with stuck_worker(str(engine.core.stores.url), 0.1) as process:
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=SOON)

    job = only_job(engine)
    assert (out, process.returncode) == ("ended\n", 0)
    assert (job.state, job.attempts, job.lost_attempts) == (JobState.QUEUED, 0, 0)


def test_told_twice_it_ends_at_once(engine: Engine) -> None:
    with stuck_worker(str(engine.core.stores.url), 600.0) as process:
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=SOON)

    job = only_job(engine)
    assert (out, process.returncode) == ("ended\n", 0)
    assert (job.state, job.attempts) == (JobState.LEASED, 1)
