"""Jobs in serverless hosts, whose processes live for seconds, on every store."""

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol, TypeVar

import anyio
import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.serverless import attempt_executor
from holdfast.hosts.serverless.host import MARGIN, JobOutcome, ProcessedJobs, ServerlessHost
from holdfast.hosts.serverless.job_messages import JobMessage
from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.commands import (
    JobClaim,
    LeaseReapStale,
    RunCancel,
    SessionClose,
    SessionOpen,
)
from holdfast.ports.errors import RunFailedError, UnavailableError
from holdfast.ports.json import parse
from holdfast.ports.queries.history import NotesOf
from holdfast.ports.queries.runs import FindRun, JobsOfRun
from holdfast.ports.records.history import OutputRow
from holdfast.ports.records.job import Job, JobState
from holdfast.ports.records.run import Run, RunName, RunStatus
from holdfast.ports.searches import QueueClaim
from holdfast.ports.tables import SESSIONS
from holdfast.testing.conformance.threads import in_threads
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.pipelines import FAILING, PATIENT, SIMPLE, WIDE, double

T = TypeVar("T")

DONE = JobOutcome(status="completed")


def ignored(reason: str, *, acknowledge: bool = True, retry_after: float | None = None) -> JobOutcome:
    return JobOutcome(status="ignored", reason=reason, acknowledge=acknowledge, retry_after=retry_after)


def run_of(engine: Engine, id: str = "x") -> Run:
    run = engine.core.stores.persistence.read(FindRun(RunName(engine.core.namespace, id)))
    assert run is not None
    return run


def jobs_of(engine: Engine, id: str = "x") -> Sequence[Job]:
    return engine.core.stores.persistence.read(JobsOfRun(run_of(engine, id).key))


def started(engine: Engine, call: Call[object], id: str = "x") -> JobMessage:
    """Start a run; return the message of its first job."""
    engine.sync.start(call, id=id)
    return message(engine, id)


def message(engine: Engine, id: str = "x") -> JobMessage:
    """Return the message of a run's only job."""
    (job,) = jobs_of(engine, id)
    return JobMessage(job_id=job.key.text, epoch=job.epoch)


def lose_session(engine: Engine, session: str) -> None:
    """Expire a session and release its jobs, as happens to a function that is frozen for long."""
    engine.kernel.dispatch(SessionClose(namespace=engine.core.namespace, session=session))
    engine.kernel.dispatch(LeaseReapStale(namespace=engine.core.namespace))


class Called(Protocol):
    """Calls sync code from outside or inside an event loop."""

    def __call__(self, call: Callable[[], T], /) -> T: ...


@pytest.fixture(params=["outside a loop", *(f"inside {name}" for name in anyio.get_available_backends())])
def called(request: pytest.FixtureRequest) -> Called:
    backend = request.param.removeprefix("inside ")

    def call_inside(call: Callable[[], T], /) -> T:
        async def inside() -> T:
            return call()

        return anyio.run(inside, backend=backend)

    def call_outside(call: Callable[[], T], /) -> T:
        return call()

    return call_outside if request.param == "outside a loop" else call_inside


# One message ----------------------------------------------------------------------------------------------------


def test_a_message_s_job_is_carried_out(open_engine: OpenEngine, called: Called) -> None:
    engine = open_engine(SIMPLE)
    host = ServerlessHost(engine)
    told = started(engine, SIMPLE(4))

    assert called(lambda: host.handle_job(told)) == DONE
    assert engine.sync.handle(SIMPLE, "x").result() == 8


def test_a_run_is_carried_out_message_by_message(open_engine: OpenEngine) -> None:
    """Messages are mappings or texts, as queues deliver them."""
    engine = open_engine(WIDE)
    host = ServerlessHost(engine)
    engine.sync.start(WIDE(5), id="x")
    handled = 0
    while jobs := jobs_of(engine):
        for job in jobs:
            told = {"job_id": job.key.text, "epoch": job.epoch}
            assert host.handle_job(told) == DONE
            handled += 1

    assert handled == 1 + 1 + 5 + 1
    assert engine.sync.handle(WIDE, "x").result() == 20


def test_a_message_that_is_delivered_again_is_done_with(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE)
    host = ServerlessHost(engine)
    told = started(engine, SIMPLE(4))

    outcomes = [host.handle_job(told) for _ in range(3)]
    assert outcomes == [DONE, ignored("closed"), ignored("closed")]


def test_a_message_that_is_delivered_three_times_at_once_is_carried_out_once(
    open_engine: OpenEngine,
) -> None:
    bodies: list[int] = []

    @stage
    def body(x: int) -> int:
        bodies.append(x)
        time.sleep(0.02)
        return x

    pipeline = Pipeline("w", input=int).pipe(body)
    engine = open_engine(pipeline)
    host = ServerlessHost(engine)
    told = started(engine, pipeline(4))
    outcomes = in_threads(3, lambda _: host.handle_job(told))

    assert len(bodies) == 1
    assert [outcome.status for outcome in outcomes].count("completed") == 1
    assert all(outcome.acknowledge for outcome in outcomes)


def test_a_message_of_a_cancelled_run_or_of_none_is_done_with(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE)
    host = ServerlessHost(engine)
    told = started(engine, SIMPLE(4))
    engine.sync.handle(SIMPLE, "x").cancel()

    assert host.handle_job(told) == ignored("closed")
    assert host.handle_job(JobMessage(job_id="NOTHING.1", epoch=0)) == ignored("closed")
    assert host.handle_job(JobMessage(job_id="nul \0 half \ud800.1", epoch=0)) == ignored("closed")


def test_a_message_of_another_namespace_is_none_of_ours(
    open_engine: OpenEngine, url: str, namespace: str
) -> None:
    if url == "memory://":
        pytest.skip("two engines in memory are two stores")
    theirs = open_engine(SIMPLE, namespace=f"{namespace}-theirs")
    told = started(theirs, SIMPLE(4))

    assert ServerlessHost(open_engine(SIMPLE)).handle_job(told) == ignored("closed")
    assert ServerlessHost(theirs).handle_job(told) == DONE


def test_a_failed_attempt_is_a_message_dealt_with(open_engine: OpenEngine) -> None:
    engine = open_engine(FAILING, PATIENT)
    host = ServerlessHost(engine)

    assert host.handle_job(started(engine, FAILING(1), "a")) == JobOutcome(status="failed")
    assert host.handle_job(started(engine, PATIENT(1), "b")) == JobOutcome(status="retrying")
    with pytest.raises(RunFailedError):
        engine.sync.handle(FAILING, "a").result()


def test_a_job_that_is_not_due_yet_is_to_come_again_when_it_is(open_engine: OpenEngine) -> None:
    engine = open_engine(PATIENT)
    host = ServerlessHost(engine)
    told = started(engine, PATIENT(1))
    host.handle_job(told)

    outcome = host.handle_job(message(engine))
    assert (outcome.status, outcome.reason, outcome.acknowledge) == ("ignored", "not_due", False)
    assert outcome.retry_after == pytest.approx(300, abs=60)


def test_a_message_from_before_another_attempt_is_done_with(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE)
    host = ServerlessHost(engine)
    told = started(engine, SIMPLE(4))
    session = engine.kernel.dispatch(
        SessionOpen(namespace=engine.core.namespace, host="h", lease=60_000_000)
    ).session
    lane = QueueClaim(queue="default", definitions=("simple@1",), limit=1)
    claim = JobClaim(namespace=engine.core.namespace, session=session, queue_claims=(lane,), limit=1)
    assert len(engine.kernel.dispatch(claim).attempts) == 1

    assert host.handle_job(told) == ignored("leased")
    lose_session(engine, session)
    assert host.handle_job(told) == ignored("stale")
    assert host.handle_job(message(engine)) == DONE


def test_a_run_that_fails_is_logged_however_its_message_came(
    open_engine: OpenEngine, caplog: pytest.LogCaptureFixture
) -> None:
    engine = open_engine(FAILING)
    host = ServerlessHost(engine)
    host.handle_job(started(engine, FAILING(1), "a"))
    host.handle_jobs([started(engine, FAILING(1), "b")])
    engine.sync.start(FAILING(1), id="c")
    host.process_available_jobs(max_jobs=1)

    errors = [one.getMessage() for one in caplog.records if one.name == "holdfast.runs"]
    assert [text.split()[1] for text in errors if " failed: " in text] == ["a", "b", "c"]


def test_code_that_a_host_lacks_is_left_to_another(open_engine: OpenEngine, url: str) -> None:
    if url == "memory://":
        pytest.skip("two engines in memory are two stores")
    ours, theirs = open_engine(SIMPLE), open_engine(SIMPLE, WIDE)
    told = started(theirs, WIDE(1))

    outcome = ServerlessHost(ours).handle_job(told)
    assert outcome == ignored("unknown_code", acknowledge=False, retry_after=5.0)
    (job,) = jobs_of(theirs)
    assert (job.state, job.epoch, job.attempts) == (JobState.QUEUED, 0, 0)
    assert ServerlessHost(theirs).handle_job(told) == DONE


def test_a_stage_that_a_host_lacks_is_given_back(open_engine: OpenEngine, url: str) -> None:
    """Its workflow changed without a new version."""
    if url == "memory://":
        pytest.skip("two engines in memory are two stores")
    old = Pipeline("simple", input=int).pipe(double.options(name="gone"))
    told = started(open_engine(old), old(1))
    engine = open_engine(SIMPLE)
    host = ServerlessHost(engine)

    assert host.handle_job(told) == ignored("unknown_code", acknowledge=False, retry_after=5.0)
    (job,) = jobs_of(engine)
    assert (job.state, job.attempts) == (JobState.SLEEPING, 0)
    assert host.process_available_jobs(max_jobs=5).processed == 0


def test_a_body_that_is_poison_is_a_failed_attempt(open_engine: OpenEngine, called: Called) -> None:
    @stage(retry=Retry(attempts=1))
    async def poison(x: int) -> int:
        raise BaseExceptionGroup("all", [KeyboardInterrupt(), SystemExit()])

    pipeline = Pipeline("w", input=int).pipe(poison)
    engine = open_engine(pipeline)
    told = started(engine, pipeline(1))

    assert called(lambda: ServerlessHost(engine).handle_job(told)).status == "failed"


# Frozen ---------------------------------------------------------------------------------------------------------


def session_of(engine: Engine, id: str = "x") -> str:
    """Return the session that holds a run's only job."""
    (job,) = jobs_of(engine, id)
    assert job.session is not None
    return job.session


def test_a_host_that_was_frozen_between_calls_works_on_under_a_new_session(
    open_engine: OpenEngine, called: Called
) -> None:
    seen: list[str] = []

    @stage
    def body(ctx: StageContext, x: int) -> int:
        seen.append(session_of(engine, ctx.run_id))
        return x

    pipeline = Pipeline("w", input=int).pipe(body)
    engine = open_engine(pipeline)
    host = ServerlessHost(engine)
    host.handle_job(started(engine, pipeline(1)))
    lose_session(engine, seen[0])
    engine.sync.start(pipeline(2), id="y")

    assert called(lambda: host.handle_job(message(engine, "y"))) == DONE
    lose_session(engine, seen[1])
    engine.sync.start(pipeline(3), id="z")
    assert called(lambda: host.process_available_jobs(max_jobs=5)).completed == 1
    assert len(set(seen)) == 3


def test_a_host_that_was_frozen_while_its_body_ran_comes_too_late_and_says_so(
    open_engine: OpenEngine,
) -> None:
    """The result is fenced; the job is available to others."""

    @stage
    def body(ctx: StageContext, x: int) -> int:
        if ctx.epoch == 1:
            lose_session(engine, session_of(engine))
        return ctx.epoch

    pipeline = Pipeline("w", input=int).pipe(body)
    engine = open_engine(pipeline)
    host = ServerlessHost(engine)

    assert host.handle_job(started(engine, pipeline(1))) == JobOutcome(status="fenced")
    assert host.handle_job(message(engine)) == DONE
    assert engine.sync.handle(pipeline, "x").result() == 2


def test_a_session_lasts_longer_than_an_invocation_can(open_engine: OpenEngine) -> None:
    seen: list[int] = []

    @stage
    def body(ctx: StageContext, x: int) -> int:
        (session,) = engine.core.stores.persistence.transact(
            lambda tx: tx.get(SESSIONS, [session_of(engine)])
        )
        seen.append(session.expires_at - session.opened_at)
        return x

    pipeline = Pipeline("w", input=int).pipe(body)
    engine = open_engine(pipeline)
    assert ServerlessHost(engine, time_limit=3.0).handle_job(started(engine, pipeline(1))) == DONE
    assert seen[0] >= (3 + MARGIN) * 1_000_000


# Many jobs ------------------------------------------------------------------------------------------------------


def test_jobs_are_processed_until_there_are_none(open_engine: OpenEngine, called: Called) -> None:
    engine = open_engine(WIDE, FAILING)
    engine.sync.start(WIDE(25), id="x")
    for number in range(3):
        engine.sync.start(FAILING(number), id=str(number))
    host = ServerlessHost(engine)

    processed = called(lambda: host.process_available_jobs(max_jobs=1_000, concurrency=10))
    assert processed == ProcessedJobs(processed=31, completed=28, failed=3, fenced=0, more=False)
    assert engine.sync.handle(WIDE, "x").result() == 600


def test_no_more_jobs_are_processed_than_were_asked_for(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE)
    for number in range(7):
        engine.sync.start(SIMPLE(number), id=str(number))
    host = ServerlessHost(engine)

    counts = [host.process_available_jobs(max_jobs=3, concurrency=2) for _ in range(3)]
    assert [(count.processed, count.more) for count in counts] == [(3, True), (3, True), (1, False)]


def test_processing_ends_when_it_is_told_to(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE)
    for number in range(6):
        engine.sync.start(SIMPLE(number), id=str(number))
    answers = iter([True, True, False])

    processed = ServerlessHost(engine).process_available_jobs(
        max_jobs=100, concurrency=2, keep_on=lambda: next(answers)
    )
    assert (processed.processed, processed.more) == (4, True)
    never = ServerlessHost(engine).process_available_jobs(max_jobs=100, keep_on=lambda: False)
    assert (never.processed, never.more) == (0, True)


def test_bodies_that_are_processed_together_run_at_the_same_time(open_engine: OpenEngine) -> None:
    barrier = threading.Barrier(4, timeout=10)

    @stage
    def body(x: int) -> int:
        barrier.wait()
        return x

    pipeline = Pipeline("w", input=int).pipe(body)
    engine = open_engine(pipeline)
    for number in range(4):
        engine.sync.start(pipeline(number), id=str(number))

    assert ServerlessHost(engine).process_available_jobs(max_jobs=4, concurrency=4).completed == 4


def test_jobs_of_every_queue_that_stages_name_are_processed(open_engine: OpenEngine) -> None:
    pipeline = Pipeline("w", input=int).pipe(double).pipe(double.options(name="gpu", queue="gpu"))
    engine = open_engine(pipeline)
    engine.sync.start(pipeline(1), id="x")

    assert ServerlessHost(engine).process_available_jobs(max_jobs=10).completed == 2


def test_several_hosts_process_every_job_once(open_engine: OpenEngine, url: str) -> None:
    engines = [open_engine(SIMPLE)] if url == "memory://" else [open_engine(SIMPLE) for _ in range(3)]
    for number in range(40):
        engines[0].sync.start(SIMPLE(number), id=str(number))
    hosts = [ServerlessHost(engine) for engine in engines]
    counts = in_threads(
        3, lambda number: hosts[number % len(hosts)].process_available_jobs(max_jobs=100, concurrency=3)
    )

    assert sum(count.processed for count in counts) == sum(count.completed for count in counts) == 40


# Heartbeats -----------------------------------------------------------------------------------------------------


@pytest.fixture
def beating(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the interval at which hosts check bodies."""
    monkeypatch.setattr(attempt_executor, "HEARTBEAT_INTERVAL", 0.02)


@pytest.mark.usefixtures("beating")
@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
def test_cancelling_a_run_reaches_its_body(open_engine: OpenEngine, sync: bool, called: Called) -> None:
    """Also a run among others, some of which have ended before."""
    ended = threading.Event()

    @stage(name="body")
    async def on_loop(ctx: StageContext, x: int) -> int:
        if x == 0:
            return x
        cancel()
        try:
            await anyio.sleep(20)
        finally:
            assert ctx.cancelled
            ended.set()
        return x

    @stage(name="body")
    def in_thread(ctx: StageContext, x: int) -> int:
        if x == 0:
            return x
        cancel()
        until = time.monotonic() + 20
        while not ctx.cancelled and time.monotonic() < until:
            time.sleep(0.005)
        ended.set()
        return x

    def cancel() -> None:
        engine.kernel.dispatch(RunCancel(namespace=engine.core.namespace, run_id="1", reason="enough"))

    pipeline = Pipeline("w", input=int).pipe(in_thread if sync else on_loop)
    engine = open_engine(pipeline)
    for number in range(2):
        engine.sync.start(pipeline(number), id=str(number))
    began = time.monotonic()
    processed = called(lambda: ServerlessHost(engine).process_available_jobs(max_jobs=2, concurrency=2))

    assert ended.wait(10)
    assert time.monotonic() - began < 15
    assert (processed.completed, processed.fenced) == (1, 1)
    assert run_of(engine, "1").status is RunStatus.CANCELLED


@pytest.mark.usefixtures("beating")
def test_what_a_body_says_is_stored_while_it_runs(open_engine: OpenEngine) -> None:
    seen: list[object] = []

    @stage
    def talk(ctx: StageContext, x: int) -> int:
        ctx.progress(1, 2, "half")
        until = time.monotonic() + 10
        while not seen and time.monotonic() < until:
            seen.extend(parse(note.data) for note in said())
            time.sleep(0.005)
        return x

    def said() -> Sequence[OutputRow]:
        return engine.core.stores.persistence.read(NotesOf(run_of(engine).key))

    pipeline = Pipeline("w", input=int).pipe(talk)
    engine = open_engine(pipeline)
    ServerlessHost(engine).handle_job(started(engine, pipeline(1)))

    assert seen == [{"done": 1, "of": 2, "message": "half", "stage": "talk", "attempt": 1}]


# Maintenance ----------------------------------------------------------------------------------------------------


def test_maintenance_wakes_what_is_due(open_engine: OpenEngine, called: Called) -> None:
    @stage(retry=Retry(attempts=2, wait=timedelta(milliseconds=1), jitter=0.0))
    def flaky(ctx: StageContext, x: int) -> int:
        if ctx.attempt == 1:
            raise ValueError
        return x

    pipeline = Pipeline("w", input=int).pipe(flaky)
    engine = open_engine(pipeline)
    host = ServerlessHost(engine)
    assert host.handle_job(started(engine, pipeline(7))).status == "retrying"
    time.sleep(0.005)

    assert called(host.run_maintenance_tick).woken >= 1
    assert host.process_available_jobs(max_jobs=1).completed == 1
    assert engine.sync.handle(pipeline, "x").result() == 7


@pytest.mark.slow
def test_maintenance_brings_back_the_jobs_of_a_function_that_was_killed(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE)
    engine.sync.start(SIMPLE(4), id="x")
    session = engine.kernel.dispatch(
        SessionOpen(namespace=engine.core.namespace, host="killed", lease=1)
    ).session
    lane = QueueClaim(queue="default", definitions=("simple@1",), limit=1)
    engine.kernel.dispatch(
        JobClaim(namespace=engine.core.namespace, session=session, queue_claims=(lane,), limit=1)
    )
    time.sleep(0.01)
    host = ServerlessHost(engine, time_limit=0.01)
    grace = ServerlessHost(engine, time_limit=900)
    assert grace.run_maintenance_tick().freed == 0
    until = time.monotonic() + 5
    while (tick := host.run_maintenance_tick()).freed == 0 and time.monotonic() < until:
        time.sleep(0.05)

    assert (tick.sessions >= 1, tick.freed >= 1, tick.dead, tick.more) == (True, True, 0, False)
    assert host.process_available_jobs(max_jobs=5).completed == 1


def test_maintenance_that_runs_twice_at_once_does_no_harm(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE)
    engine.sync.start(SIMPLE(4), id="x")
    hosts = [ServerlessHost(engine) for _ in range(4)]
    ticks = in_threads(4, lambda number: hosts[number].run_maintenance_tick())

    assert all(tick.repaired == () and tick.dead == 0 for tick in ticks)
    assert hosts[0].process_available_jobs(max_jobs=5).completed == 1


@pytest.mark.slow
def test_maintenance_goes_on_until_nothing_is_left_or_it_is_told_to_stop(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE)
    engine.kernel.dispatch(SessionOpen(namespace=engine.core.namespace, host="gone", lease=1))
    time.sleep(1.1)
    host = ServerlessHost(engine, time_limit=0.01)

    tick = host.run_maintenance_tick(keep_on=lambda: False)
    assert (tick.sessions >= 1, tick.more) == (True, True)
    assert not host.run_maintenance_tick().more


# Faults ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["by message", "by claim"])
def test_a_job_that_could_not_be_settled_is_not_kept_by_a_host_that_lives_on(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Its session is not renewed any more, so the job is released at its expiry."""
    engine = open_engine(SIMPLE)
    host = ServerlessHost(engine)
    told = started(engine, SIMPLE(4))
    dispatch_many = type(engine.kernel).dispatch_many
    failing = threading.Event()
    failing.set()

    def unavailable(kernel: object, commands: Sequence[object], /) -> object:
        if failing.is_set() and any(type(command).__name__ == "JobSettle" for command in commands):
            raise UnavailableError("away")
        return dispatch_many(kernel, commands)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(type(engine.kernel), "dispatch_many", unavailable)
    with pytest.raises(UnavailableError):
        if how == "by message":
            host.handle_job(told)
        else:
            host.process_available_jobs(max_jobs=1)
    failing.clear()
    held_by = session_of(engine)
    (expires_at,) = expirations(engine, held_by)

    assert host.handle_job(told) == ignored("leased")
    engine.sync.start(SIMPLE(1), id="y")
    assert host.process_available_jobs(max_jobs=5).completed == 1
    assert expirations(engine, held_by) == [expires_at]
    lose_session(engine, held_by)
    assert host.handle_job(message(engine)) == DONE


def expirations(engine: Engine, session: str) -> list[int]:
    """Return the expiry of each session."""
    return engine.core.stores.persistence.transact(
        lambda tx: [found.expires_at for found in tx.get(SESSIONS, [session])]
    )
