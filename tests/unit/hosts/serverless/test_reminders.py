"""Reminders: which jobs are announced again, how many, and how often."""

from datetime import timedelta

import pytest

from holdfast.hosts.serverless import reminders
from holdfast.hosts.serverless.host import ServerlessHost
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.commands import JobRelease
from holdfast.ports.queries.runs import QueuedJobs
from holdfast.ports.transport import Delivery, JobHint
from tests.unit.hosts.attempt_harness import Bench

MINUTE = timedelta(minutes=1)
MOMENT = timedelta(microseconds=1)


@stage
def double(x: int) -> int:
    return 2 * x


@stage(retry=Retry(attempts=9, wait=timedelta(hours=1), jitter=0.0))
def fail(x: int) -> int:
    raise ValueError


SIMPLE = Pipeline("simple", input=int).pipe(double)
FAILING = Pipeline("failing", input=int).pipe(fail)
WIDE = Pipeline("wide", input=list[int]).map(double)


class World:
    """A host on a bench, and the announced jobs."""

    def __init__(self) -> None:
        self.bench = Bench(SIMPLE, FAILING, WIDE)
        self.host = ServerlessHost(self.bench.engine)
        self.transport = self.bench.core.stores.transport

    def heard(self) -> list[str]:
        """Return the jobs announced since the last call, with repetitions."""
        deliveries: list[Delivery] = []
        while received := self.transport.receive(1_000, 0.0):
            deliveries += received
            for delivery in received:
                self.transport.ack(delivery.receipt)
        return [delivery.hint.job for delivery in deliveries if isinstance(delivery.hint, JobHint)]

    def tick(self, after: timedelta) -> tuple[int, list[str]]:
        """Let time pass and do a tick; return its counts and the announced jobs."""
        self.bench.clock.advance(after)
        self.heard()
        return self.host.run_maintenance_tick().reminded, self.heard()

    def job(self, id: str = "x") -> str:
        return f"{self.bench.row(id).key}.1"


@pytest.fixture
def world() -> World:
    return World()


def test_a_job_whose_message_was_lost_is_announced_again_after_a_minute(world: World) -> None:
    world.bench.start(SIMPLE(4))

    assert world.tick(MINUTE - MOMENT) == (0, [])
    assert world.tick(MOMENT) == (1, [world.job()])
    assert world.tick(MINUTE) == (1, [world.job()])


def test_the_message_that_is_sent_again_is_that_of_the_job_as_it_is_now(world: World) -> None:
    """So a host accepts it, and it is not announced again."""
    world.bench.start(SIMPLE(4))
    (attempt,) = world.bench.claim()
    world.bench.engine.kernel.dispatch(JobRelease(job=attempt.job, epoch=attempt.epoch))
    world.bench.clock.advance(MINUTE)
    world.heard()
    world.host.run_maintenance_tick()
    (delivery,) = world.transport.receive(10, 0.0)

    assert isinstance(delivery.hint, JobHint)
    message = {"job_id": delivery.hint.job, "epoch": delivery.hint.epoch}
    assert world.host.handle_job(message).status == "completed"
    assert world.tick(MINUTE)[0] == 0


def test_a_job_that_somebody_holds_is_not_announced(world: World) -> None:
    world.bench.start(SIMPLE(4))
    world.bench.claim()

    assert world.tick(MINUTE) == (0, [])


def test_a_job_that_sleeps_is_not_announced_before_it_is_woken_and_then_once(world: World) -> None:
    world.bench.start(FAILING(1))
    assert world.host.handle_job({"job_id": world.job(), "epoch": 0}).status == "retrying"

    assert world.tick(2 * MINUTE) == (0, [])
    assert world.tick(timedelta(hours=1)) == (0, [world.job()])
    assert world.tick(MOMENT) == (1, [world.job()])


def test_jobs_of_a_run_that_goes_on_are_not_announced(world: World) -> None:
    """They were opened a moment ago, or other jobs of the run are being done."""
    world.bench.start(WIDE([1, 2, 3]))
    world.host.process_available_jobs(max_jobs=1)
    world.bench.clock.advance(MINUTE)
    world.host.process_available_jobs(max_jobs=1)

    assert world.tick(MINUTE - MOMENT) == (0, [])
    assert world.tick(MOMENT)[0] == 2


def test_one_tick_announces_so_many_and_the_next_one_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reminders, "REMIND_LIMIT", 4)
    for number in range(10):
        world.bench.start(SIMPLE(number), id=str(number))
    ticks = [world.tick(MINUTE) for _ in range(4)]

    assert [count for count, _ in ticks] == [4, 4, 2, 4]
    first_round = [job for _, jobs in ticks[:3] for job in jobs]
    assert sorted(first_round) == sorted(world.job(str(number)) for number in range(10))
    assert ticks[3] == ticks[0]


@pytest.mark.slow
def test_a_tick_that_has_much_to_do_announces_only_once(world: World) -> None:
    for number in range(600):
        world.bench.start(FAILING(number), id=str(number))
    world.host.process_available_jobs(max_jobs=600, concurrency=200)
    world.bench.start(SIMPLE(1))
    count, jobs = world.tick(timedelta(hours=1))

    assert count == 1
    assert len(jobs) == 601
    assert sum(isinstance(query, QueuedJobs) for query in world.bench.store.asked) == 1


def test_jobs_that_this_process_has_no_code_for_are_left_to_others(world: World) -> None:
    world.bench.start(SIMPLE(4))
    other = ServerlessHost(Bench(WIDE, persistence=world.bench.store, clock=world.bench.clock).engine)
    world.bench.clock.advance(MINUTE)

    assert other.run_maintenance_tick().reminded == 0
