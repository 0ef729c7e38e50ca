"""External work, child runs and conditions in serverless hosts, message by message, on every store."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.serverless.host import JobOutcome, ServerlessHost
from holdfast.hosts.serverless.job_messages import JobMessage
from holdfast.kernel.authoring.completion_policies import PartialResults, TolerateFailures
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.external import NotReady, Suspended, suspend
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.invariants import check
from holdfast.ports.errors import RunFailedError
from holdfast.ports.queries.runs import FindRun, JobsOfRun
from holdfast.ports.records.job import Job
from holdfast.ports.records.run import RunName
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine

NEVER = timedelta(days=1)
DONE = JobOutcome(status="completed")
WAITS = JobOutcome(status="suspended")


def jobs_of(engine: Engine, id: str) -> Sequence[Job]:
    persistence = engine.core.stores.persistence
    run = persistence.read(FindRun(RunName(engine.core.namespace, id)))
    assert run is not None
    return persistence.read(JobsOfRun(run.key))


def message(engine: Engine, id: str = "x") -> JobMessage:
    """Return the message of a run's only job."""
    (job,) = jobs_of(engine, id)
    return JobMessage(job_id=job.key.text, epoch=job.epoch)


def sound(engine: Engine) -> None:
    assert check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


@stage.external
def hand_on(ctx: StageContext, number: int) -> Suspended[int, int]:
    return suspend(number, check_after=NEVER, key=f"job-{number}")


answers: dict[int, int] = {}


@hand_on.check(retry=Retry(attempts=3, wait=timedelta(hours=1), jitter=0.0))
def handed_on(ctx: StageContext, number: int) -> int | NotReady:
    if number == 13:
        raise ConnectionError("busy")
    return answers[number] if number in answers else NotReady()


@stage
def double(number: int) -> int:
    return 2 * number


@stage(retry=Retry(attempts=1))
def picky(number: int) -> int:
    if number == 3:
        raise ValueError("not three")
    return number


@stage
def shorten(numbers: list[int]) -> list[int]:
    return numbers[:9]


@stage
def total(part: PartialResults[int]) -> int:
    return sum(part.results)


OUTSIDE = Pipeline("outside", input=int).pipe(handed_on)
INNER = Pipeline("inner", input=int).pipe(double)
PICKY = Pipeline("picky", input=int).pipe(picky)


@pytest.fixture(autouse=True)
def _forget() -> None:
    answers.clear()


def test_work_is_handed_on_and_asked_about_by_the_messages_of_those_who_wake_it(
    open_engine: OpenEngine,
) -> None:
    engine = open_engine(OUTSIDE)
    host = ServerlessHost(engine)
    run = engine.sync.start(OUTSIDE(4), id="x")
    first = message(engine)
    assert host.handle_job(first) == WAITS
    assert host.handle_job(first) == JobOutcome(status="ignored", reason="closed")

    early = host.handle_job(message(engine))  # nobody should have sent it: the check sleeps until tomorrow
    assert (early.status, early.reason, early.acknowledge) == ("ignored", "not_due", False)

    engine.sync.wake("job-4")
    assert host.handle_job(message(engine)) == WAITS  # it is not done yet, and sleeps again
    answers[4] = 16
    run.wake(handed_on)
    assert host.handle_job(message(engine)) == DONE
    assert run.result() == 16
    sound(engine)


def test_a_check_that_fails_is_tried_again_later(open_engine: OpenEngine) -> None:
    engine = open_engine(OUTSIDE)
    host = ServerlessHost(engine)
    run = engine.sync.start(OUTSIDE(13), id="x")
    assert host.handle_job(message(engine)) == WAITS
    engine.sync.wake("job-13")

    assert host.handle_job(message(engine)) == JobOutcome(status="retrying")
    assert [line.message for line in run.logs()] == ["the check failed: ConnectionError: busy"]
    assert run.info().ended_at is None
    sound(engine)


def test_who_handles_the_last_message_of_a_child_tells_its_parent(open_engine: OpenEngine) -> None:
    pipeline = Pipeline("w", input=int).pipe(stage(INNER)).pipe(double.options(name="again"))
    engine = open_engine(pipeline)
    host = ServerlessHost(engine)
    run = engine.sync.start(pipeline(3), id="x")

    assert host.handle_job(message(engine)) == WAITS
    waiting = host.handle_job(message(engine))
    assert (waiting.status, waiting.reason, waiting.acknowledge) == ("ignored", "waiting", True)
    assert host.handle_job(message(engine, "x/inner")) == DONE
    assert host.handle_job(message(engine)) == DONE
    assert run.result() == 12
    assert jobs_of(engine, "x") == jobs_of(engine, "x/inner") == ()
    sound(engine)


def test_a_child_that_fails_fails_its_parent(open_engine: OpenEngine) -> None:
    pipeline = Pipeline("w", input=int).pipe(stage(PICKY))
    engine = open_engine(pipeline)
    host = ServerlessHost(engine)
    run = engine.sync.start(pipeline(3), id="x")
    assert host.handle_job(message(engine)) == WAITS
    assert host.handle_job(message(engine, "x/picky")) == JobOutcome(status="failed")
    with pytest.raises(RunFailedError, match="run 'x/picky' failed: not three"):
        run.result()
    sound(engine)


@pytest.mark.parametrize(("given", "wanted"), [(1, 2), (5, 5)])
def test_a_test_has_a_message_of_its_own(open_engine: OpenEngine, given: int, wanted: int) -> None:
    pipeline = Pipeline("w", input=int).when(lambda number: number < 3, double)
    engine = open_engine(pipeline)
    host = ServerlessHost(engine)
    run = engine.sync.start(pipeline(given), id="x")
    assert host.handle_job(message(engine)) == DONE
    if given < 3:
        assert host.handle_job(message(engine)) == DONE
    assert run.result() == wanted
    sound(engine)


def test_whoever_takes_what_there_is_does_all_of_it(open_engine: OpenEngine) -> None:
    pipeline = (
        Pipeline("w", input=list[int])
        .when(lambda numbers: len(numbers) > 9, shorten)
        .map(stage(PICKY), enough=TolerateFailures(count=1))
        .pipe(total)
        .pipe(handed_on)
    )
    engine = open_engine(pipeline)
    host = ServerlessHost(engine)
    run = engine.sync.start(pipeline([1, 3, 5]), id="x")
    processed = host.process_available_jobs(max_jobs=100)
    assert processed.failed == 1
    answers[6] = 7
    engine.sync.wake("job-6")
    processed = host.process_available_jobs(max_jobs=100)
    assert (processed.processed, processed.completed, processed.more) == (1, 1, False)
    assert run.result() == 7
    sound(engine)
