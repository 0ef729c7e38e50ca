"""Runs that wait for a concurrency key, and stages with a concurrency limit, on every store."""

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Concurrency
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.serverless.host import ServerlessHost
from holdfast.hosts.worker import worker as worker_module
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.decorators import each, stage
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.authoring.stage_context import StageContext
from holdfast.kernel.invariants import check
from holdfast.ports.errors import (
    InvalidArgumentError,
    RunCancelledError,
    RunExistsError,
    RunFailedError,
)
from holdfast.ports.queries.store import CountAll
from holdfast.ports.records.run import RunStatus
from holdfast.testing.snapshots import snapshot_of
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.pipelines import SIMPLE, up_to

SOON = timedelta(minutes=2)
WAITS = Retry(attempts=2, wait=timedelta(seconds=3600))


@pytest.fixture
def no_maintenance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable maintenance after a first tick: everything must continue without it."""
    monkeypatch.setattr(worker_module, "MAINTENANCE_INTERVAL", 3_600.0)


class Gauge:
    """The current and the highest number of running bodies."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now = 0
        self.most = 0

    def __enter__(self) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.now -= 1


def sound(engine: Engine) -> bool:
    return check(snapshot_of(engine.core.stores.persistence, [engine.core.namespace])) == []


def status(engine: Engine, id: str) -> RunStatus:
    return engine.sync.handle(SIMPLE, id).info().status


# Runs of one key ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("no_maintenance")
@pytest.mark.parametrize("limit", [1, 2])
def test_runs_of_a_key_go_one_after_the_other(open_engine: OpenEngine, limit: int) -> None:
    gauge = Gauge()

    @stage
    def slow(x: int) -> int:
        with gauge:
            time.sleep(0.05)
        return x

    pipeline = Pipeline("keyed", input=int).pipe(slow).pipe(slow.options(name="again"))
    engine = open_engine(pipeline)
    handles = [
        engine.sync.start(pipeline(number), concurrency=Concurrency("k", limit=limit)) for number in range(6)
    ]
    with Worker(engine, poll_interval=0.5), Worker(engine, poll_interval=0.5):
        assert [handle.result(timeout=SOON) for handle in handles] == list(range(6))

    assert gauge.most == limit
    assert sound(engine)


@pytest.mark.usefixtures("no_maintenance")
@pytest.mark.parametrize("how", ["cancel", "terminate"])
def test_an_end_from_outside_lets_the_next_one_in(open_engine: OpenEngine, how: str) -> None:
    engine = open_engine(SIMPLE)
    first = engine.sync.start(SIMPLE(1), id="first", concurrency=Concurrency("k"))
    second = engine.sync.start(SIMPLE(2), id="second", concurrency=Concurrency("k"))
    assert (status(engine, "first"), status(engine, "second")) == (RunStatus.RUNNING, RunStatus.PENDING)

    getattr(first, how)()
    assert status(engine, "second") is RunStatus.RUNNING
    with Worker(engine):
        assert second.result(timeout=SOON) == 4


def test_what_was_lost_is_found_by_maintenance(open_engine: OpenEngine) -> None:
    """The hint that follows a start is suppressed here, as if its process had been killed before sending it."""
    engine = open_engine(SIMPLE)
    created = engine.kernel.dispatch(engine.client.create(SIMPLE(3), {"concurrency": Concurrency("k")}))
    assert created.status is RunStatus.PENDING

    tick = ServerlessHost(engine).run_maintenance_tick()
    assert tick.admitted == 1
    with Worker(engine):
        assert engine.sync.handle(SIMPLE, created.run_id).result(timeout=SOON) == 6


# Later, and until when ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_begins_at_its_time(open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "MAINTENANCE_INTERVAL", 0.1)
    began: list[datetime] = []

    @stage
    def now(x: int) -> int:
        began.append(datetime.now(UTC))
        return x

    pipeline = Pipeline("later", input=int).pipe(now)
    engine = open_engine(pipeline)
    with Worker(engine):
        at = datetime.now(UTC) + timedelta(seconds=0.6)
        handle = engine.sync.start(pipeline(1), start_at=at, deadline=timedelta(seconds=30))
        assert handle.info().status is RunStatus.PENDING
        assert handle.result(timeout=SOON) == 1

    assert at <= began[0] < at + timedelta(seconds=5)
    assert handle.info().status is RunStatus.COMPLETED


@pytest.mark.slow
def test_a_run_that_takes_too_long_fails_and_its_body_is_cancelled(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "MAINTENANCE_INTERVAL", 0.1)
    seen: list[datetime | None] = []
    stopped = threading.Event()

    @stage(timeout=timedelta(hours=1))
    def endless(ctx: StageContext, x: int) -> int:
        seen.append(ctx.deadline)
        while not ctx.cancelled:
            time.sleep(0.01)
        stopped.set()
        return x

    pipeline = Pipeline("endless", input=int).pipe(endless)
    engine = open_engine(pipeline)
    with Worker(engine):
        before = datetime.now(UTC)
        handle = engine.sync.start(pipeline(1), deadline=timedelta(seconds=0.5))
        with pytest.raises(RunFailedError, match="deadline_exceeded"):
            handle.result(timeout=SOON)
        assert stopped.wait(10)

    assert seen[0] is not None
    assert timedelta(seconds=0.4) < seen[0] - before < timedelta(seconds=5)
    assert sound(engine)


def test_a_start_that_is_repeated_with_its_key_is_the_same_start(open_engine: OpenEngine) -> None:
    """A deadline counts from the first start, whenever the second is sent."""
    engine = open_engine(SIMPLE)
    options: dict[str, Any] = {
        "idempotency_key": "once",
        "deadline": timedelta(hours=1),
        "concurrency": Concurrency("k", waiting=0, full="refuse"),
    }
    first = engine.sync.start(SIMPLE(1), **options)
    time.sleep(0.01)

    assert engine.sync.start(SIMPLE(1), **options).id == first.id


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start_at": datetime(2030, 1, 1)}, "start_at is .*time zone"),  # noqa: DTZ001  # that is the mistake
        ({"start_at": 5}, "start_at is 5; it must be a datetime"),
        ({"start_at": datetime(9999, 6, 1, tzinfo=UTC)}, "from 1970 to 9998"),
        ({"deadline": timedelta(0)}, "deadline is .*longer than nothing"),
        ({"deadline": "5"}, "deadline is '5'; it must be a timedelta or a number of seconds"),
        ({"concurrency": "k"}, "concurrency is 'k'; it must be a Concurrency"),
        ({"concurrency_key": "k"}, "start has no option 'concurrency_key'.*did you mean 'concurrency'"),
        ({"if_active": "rerun"}, "if_active is 'rerun'; it must be 'error', 'return' or 'terminate'"),
        ({"if_ended": "terminate"}, "if_ended is 'terminate'"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_stored(
    open_engine: OpenEngine, options: dict[str, Any], message: str
) -> None:
    engine = open_engine(SIMPLE)
    with engine.sync, pytest.raises(InvalidArgumentError, match=message):
        engine.sync.start(SIMPLE(1), **options)

    assert engine.core.adapters.persistence.read(CountAll(engine.core.namespace)).runs == {}


# Ids that are taken ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_id_is_used_again_as_the_start_says(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE)
    first = engine.sync.start(SIMPLE(1), id="x")
    with pytest.raises(RunExistsError):
        engine.sync.start(SIMPLE(2), id="x", if_ended="rerun")
    second = engine.sync.start(SIMPLE(2), id="x", if_active="terminate")
    assert first.info().generation == second.info().generation == 2
    with Worker(engine):
        assert second.result(timeout=SOON) == 4
        assert engine.sync.start(SIMPLE(3), id="x", if_ended="return").result(timeout=SOON) == 4
        with pytest.raises(RunExistsError):
            engine.sync.start(SIMPLE(3), id="x", if_ended="rerun_failed")
        assert engine.sync.start(SIMPLE(3), id="x", if_ended="rerun").result(timeout=SOON) == 6
        handle = engine.sync.start(SIMPLE(4), id="y", start_at=datetime.now(UTC) + timedelta(hours=1))
        handle.cancel()
        with pytest.raises(RunCancelledError):
            handle.result(timeout=SOON)
        again = engine.sync.start(SIMPLE(5), id="y", if_ended="rerun_failed")
        assert again.result(timeout=SOON) == 10

    assert second.info().generation == 3
    assert sound(engine)


# Stages of which so many bodies run -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("no_maintenance")
@pytest.mark.parametrize("most", [1, 3])
def test_no_more_bodies_of_a_stage_run_than_may(open_engine: OpenEngine, most: int) -> None:
    """Over runs, map items and workers, with failures that are retried at once."""
    gauge = Gauge()
    met = threading.Event()
    """Set once as many bodies run as the limit allows: until then running ones wait for the others."""
    failed: set[int] = set()

    @stage(max_concurrency=most, retry=Retry(attempts=3, wait=timedelta(0)))
    def narrow(x: int) -> int:
        with gauge:
            if gauge.most == most:
                met.set()
            met.wait(10)
            time.sleep(0.01)
        if x % 4 == 0 and x not in failed:
            failed.add(x)
            raise ValueError(x)
        return x

    pipeline = Pipeline("narrow", input=int).pipe(up_to).pipe(each(narrow))
    engine = open_engine(pipeline)
    handles = [engine.sync.start(pipeline(8)) for _ in range(3)]
    with Worker(engine, poll_interval=0.5), Worker(engine, poll_interval=0.5):
        for handle in handles:
            assert handle.result(timeout=SOON) == list(range(8))

    assert gauge.most == most
    assert sound(engine)


@pytest.mark.usefixtures("no_maintenance")
def test_what_sleeps_leaves_its_place_to_others(open_engine: OpenEngine) -> None:
    @stage(max_concurrency=1, retry=WAITS)
    def narrow(x: int) -> int:
        if x == 0:
            raise ValueError(x)
        return x

    pipeline = Pipeline("sleepy", input=int).pipe(narrow)
    engine = open_engine(pipeline)
    engine.sync.start(pipeline(0), priority=5)
    others = [engine.sync.start(pipeline(number)) for number in (1, 2)]
    with Worker(engine, poll_interval=0.5):
        assert [handle.result(timeout=SOON) for handle in others] == [1, 2]


def test_functions_that_live_for_seconds_let_the_next_ones_in(open_engine: OpenEngine) -> None:
    @stage(max_concurrency=1)
    def narrow(x: int) -> int:
        return x

    pipeline = Pipeline("narrow", input=int).pipe(narrow)
    engine = open_engine(pipeline)
    host = ServerlessHost(engine)
    handles = [
        engine.sync.start(pipeline(number), concurrency=Concurrency("k", limit=2)) for number in range(5)
    ]
    assert [handle.info().status for handle in handles].count(RunStatus.RUNNING) == 2

    done = host.process_available_jobs(max_jobs=100)

    assert done.completed == 5
    assert [handle.result(timeout=SOON) for handle in handles] == list(range(5))


def test_a_message_of_a_job_that_has_no_slot_comes_again(open_engine: OpenEngine) -> None:
    @stage(max_concurrency=1)
    def narrow(x: int) -> int:
        return x

    pipeline = Pipeline("narrow", input=int).pipe(narrow)
    engine = open_engine(pipeline)
    host = ServerlessHost(engine)
    first, second = (engine.sync.start(pipeline(number)) for number in range(2))
    runs = [handle.row().key for handle in (first, second)]

    outcome = host.handle_job({"job_id": f"{runs[1]}.1", "epoch": 0})
    assert (outcome.reason, outcome.acknowledge, outcome.retry_after) == ("limited", False, 5.0)
    assert host.handle_job({"job_id": f"{runs[0]}.1", "epoch": 0}).status == "completed"
    assert host.handle_job({"job_id": f"{runs[1]}.1", "epoch": 0}).status == "completed"
    assert second.info().status is RunStatus.COMPLETED
