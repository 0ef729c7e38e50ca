"""What a process counts of its own work, and what that may not change."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from holdfast import Engine, Pipeline, Retry, stage, workflow
from holdfast.errors import UnavailableError
from holdfast.hosts.metrics.process_metrics import ProcessMetrics
from holdfast.hosts.wiring.interceptors import CommandBatch
from holdfast.kernel.commands import (
    Attempt,
    Completed,
    Failed,
    Failure,
    JobClaim,
    JobRelease,
    JobSettle,
    JobWakeDue,
    LeaseReapStale,
    Outcome,
    RunCancel,
    SessionOpen,
    SessionReap,
)
from holdfast.metrics import Metrics
from holdfast.ports.records.values import Payload
from holdfast.ports.searches import QueueClaim
from holdfast.testing import World


@stage(retry=Retry(attempts=2, wait=timedelta(0)))
def fail(text: str) -> str:
    raise ValueError(text)


@workflow
async def nothing() -> None:
    return None


failing = Pipeline("failing", input=str).pipe(fail)


@pytest.fixture
def world() -> Iterator[World]:
    with World([failing, nothing]) as world:
        yield world


def attempts(metrics: Metrics) -> dict[str, float]:
    value = metrics.registry.get_sample_value
    outcomes = ("completed", "failed", "retried", "waiting", "fenced", "released", "lost")
    found = {one: value("holdfast_attempts_total", {"outcome": one}) for one in outcomes}
    return {one: number for one, number in found.items() if number}


def test_each_end_of_an_attempt_is_counted_once(world: World) -> None:
    engine = world.engine
    metrics = Metrics(engine)
    kernel = engine.core.kernel
    session = kernel.dispatch(SessionOpen(host="h", lease=10_000_000)).session

    def claimed() -> Attempt:
        claims = (QueueClaim(queue="default", definitions=("nothing@1", "failing@1"), limit=1),)
        (attempt,) = kernel.dispatch(JobClaim(session=session, queue_claims=claims, limit=1)).attempts
        return attempt

    def settle(attempt: Attempt, outcome: Outcome) -> str:
        return kernel.dispatch(JobSettle(job=attempt.job, epoch=attempt.epoch, outcome=outcome)).status

    done = Completed(output=Payload(inline="null"))
    broken = Failed(failure=Failure(code="error", message="no"))
    engine.sync.start(nothing())
    attempt = claimed()
    kernel.dispatch(JobRelease(job=attempt.job, epoch=attempt.epoch))
    attempt = claimed()
    assert [settle(attempt, done), settle(attempt, done)] == ["settled", "fenced"]
    engine.sync.start(failing("a"))
    assert settle(claimed(), broken) == "settled"
    world.clock.advance(timedelta(seconds=1))
    kernel.dispatch(JobWakeDue())
    assert settle(claimed(), broken) == "settled"
    engine.sync.start(failing("b"))
    claimed()
    world.clock.advance(timedelta(minutes=1))
    kernel.dispatch(SessionReap(grace=0))
    kernel.dispatch(LeaseReapStale())

    assert attempts(metrics) == dict.fromkeys(
        ("released", "completed", "fenced", "retried", "failed", "lost"), 1
    )


def test_commands_are_counted_by_what_became_of_them() -> None:
    registry = CollectorRegistry()
    metrics = ProcessMetrics(registry, lambda: 0.0)
    command = RunCancel(namespace="default", run_id="one")
    batch = CommandBatch([command, command])
    with pytest.raises(UnavailableError), metrics.dispatch(batch):
        raise UnavailableError("away")

    value = registry.get_sample_value
    assert value("holdfast_commands_total", {"command": "run.cancel", "outcome": "failed"}) == 2
    assert value("holdfast_commit_seconds_count") == 0


def test_starts_of_several_threads_still_share_transactions(world: World) -> None:
    """As an engine's own interceptors prevent."""
    engine = world.engine
    metrics = Metrics(engine)
    engine.sync.start(nothing())

    assert metrics.registry.get_sample_value("holdfast_commit_commands_count") == 1
    assert not engine.core.interceptors[1:]
    assert engine.sync.client.core.interceptors == (metrics.process,)


def test_two_engines_have_metrics_of_their_own(world: World) -> None:
    """There is no registry that the process shares."""
    other = Engine.open("memory://", workflows=[nothing])
    first, second = Metrics(world.engine), Metrics(other)
    world.engine.sync.start(nothing())

    name, labels = "holdfast_commands_total", {"command": "run.create", "outcome": "done"}
    assert first.registry.get_sample_value(name, labels) == 1
    assert second.registry.get_sample_value(name, labels) is None
