"""EventBridge schedules wake sleeping jobs, and the timer does where schedules are lost; in virtual time."""

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta

import pytest

from holdfast import Pipeline, Retry, StageContext, sleep, stage, step, workflow
from holdfast.adapters.aws.scheduler import EventBridgeScheduler
from holdfast.hosts.wiring.wake_ups import wake_up_key
from holdfast.kernel.authoring.step_context import step_context
from holdfast.ports.queries.runs import FindRun, JobsOfRun
from holdfast.ports.records.run import RunName
from holdfast.ports.scheduler import Scheduler
from tests.aws import FakeAws
from tests.cloud import Cloud

pytestmark = pytest.mark.service

SLEEPS, STEPS = 10, 100
EACH = timedelta(days=3) / SLEEPS

steps: Counter[str] = Counter()
"""The number of starts of each step, by idempotency key."""


@step
async def plus(x: int, y: int) -> int:
    steps[step_context().idempotency_key] += 1
    return x + y


@workflow
async def days(number: int) -> int:
    """Three days and a hundred steps."""
    x = 0
    for _ in range(SLEEPS):
        for _ in range(number // SLEEPS):
            x = await plus(x, 1)
        await sleep(EACH)
    return x


@stage(retry=Retry(attempts=3, wait=timedelta(seconds=20), backoff=1.0, jitter=0.0))
def third_time(ctx: StageContext, x: int) -> int:
    if ctx.attempt < 3:
        raise ConnectionError("busy")
    return x


RETRIED = Pipeline("retried", input=int).pipe(third_time)


class Counted:
    """Counts requests to a scheduler; `times` decides how often each wake-up is sent."""

    def __init__(self, inner: Scheduler, times: int) -> None:
        self._inner = inner
        self._times = times
        self.asked: Counter[str] = Counter()

    def schedule(self, key: str, command: str, at: datetime, /) -> None:
        self.asked["schedule"] += 1
        for number in range(self._times):  # one is in time; the others are early, by an hour each
            self._inner.schedule(f"{key}#{number}", command, at - number * timedelta(hours=1))

    def cancel(self, key: str, /) -> None:
        self.asked["cancel"] += 1
        for number in range(self._times):
            self._inner.cancel(f"{key}#{number}")


class Clouds:
    """Creates clouds with an EventBridge scheduler."""

    def __init__(self, aws: FakeAws, url: str, namespace: str) -> None:
        self.aws = aws
        self._url = url
        self._namespace = namespace
        self.client, self.group = aws.new_schedules()
        self.counted: list[Counted] = []

    def make(self, times: int) -> Cloud:
        def scheduler(cloud: Cloud) -> Scheduler:
            inner = EventBridgeScheduler(
                cloud.queue_url,
                role="arn:aws:iam::123456789012:role/wake-ups",
                group=self.group,
                client=self.client,
                queue_client=cloud.client,
                now=cloud.clock.now,
            )
            self.counted.append(Counted(inner, times))
            return self.counted[-1]

        return Cloud(self.aws, self._url, self._namespace, [days, RETRIED], scheduler=scheduler)

    def schedules(self) -> int:
        return len(self.client.list_schedules(GroupName=self.group)["Schedules"])


@pytest.fixture
def clouds(aws: FakeAws, shared_database: str, namespace: str) -> Clouds:
    steps.clear()
    return Clouds(aws, shared_database, namespace)


def pumped(cloud: Cloud) -> None:
    while cloud.source.poll():
        pass


def carried_out(clouds: Clouds, cloud: Cloud, an_hour: Callable[[], object]) -> int:
    """Carry out a run of three days and a hundred steps; return the hours that took."""
    run = cloud.engine.sync.start(days(STEPS))
    hours = 0
    while run.info().ended_at is None:
        assert hours < 80, "it does not end"
        pumped(cloud)
        clouds.aws.pass_time(3_600)
        hours += 1
        an_hour()
        pumped(cloud)
    assert run.result() == STEPS
    assert (len(steps), set(steps.values())) == (STEPS, {1})
    return hours


@pytest.mark.slow
def test_three_days_of_sleeps_need_no_round_of_the_timer(clouds: Clouds) -> None:
    """Each sleep is a schedule, with an invocation at its end."""
    with closing(clouds.make(1)) as cloud:
        hours = carried_out(clouds, cloud, lambda: clouds.aws.send_due(clouds.group, cloud.clock.now()))

        assert cloud.source.invocations == SLEEPS + 1
        assert clouds.counted[0].asked == {"schedule": SLEEPS}
        # After hours its session is dead: a new one is opened, the job claimed, the timer noted, the function parked.
        assert cloud.transactions == STEPS + 4 * SLEEPS + 3
        assert 72 <= hours <= 72 + SLEEPS  # sleeps of 7.2 hours, seen once an hour
        assert clouds.schedules() == 0


@pytest.mark.slow
def test_wake_ups_that_come_early_and_thrice_do_nothing(clouds: Clouds) -> None:
    with closing(clouds.make(3)) as cloud:
        carried_out(clouds, cloud, lambda: clouds.aws.send_due(clouds.group, cloud.clock.now()))

        assert clouds.counted[0].asked["schedule"] == SLEEPS
        assert cloud.source.invocations > SLEEPS + 1
        assert cloud.transactions <= STEPS + 4 * SLEEPS + 3 + 2 * (cloud.source.invocations - SLEEPS - 1)


@pytest.mark.slow
def test_where_all_wake_ups_are_lost_the_timer_wakes(clouds: Clouds) -> None:
    with closing(clouds.make(1)) as cloud:
        carried_out(clouds, cloud, cloud.tick)

        assert clouds.counted[0].asked["schedule"] == SLEEPS
        assert clouds.schedules() == 1, "each has replaced the one before, and nobody has sent it"
        # A hint may come twice, and then finds nothing to do.
        assert cloud.source.invocations - SLEEPS in (1, 2)


@pytest.mark.slow
def test_a_retry_that_is_soon_due_comes_to_the_second(clouds: Clouds) -> None:
    """It waits in the queue, without a timer tick in between."""
    with closing(clouds.make(1)) as cloud:
        run = cloud.engine.sync.start(RETRIED(7))
        for _ in range(2):
            pumped(cloud)
            clouds.aws.pass_time(18)
            pumped(cloud)
            assert run.info().ended_at is None
            clouds.aws.pass_time(3)
        pumped(cloud)

        assert run.result(timeout=120) == 7
        assert cloud.source.invocations == 3


@pytest.mark.slow
def test_a_wake_up_is_known_by_its_job(clouds: Clouds, namespace: str) -> None:
    with closing(clouds.make(1)) as cloud:
        run = cloud.engine.sync.start(days(STEPS))
        pumped(cloud)
        store = cloud.engine.core.stores.persistence
        found = store.read(FindRun(RunName(namespace, run.id)))
        assert found is not None
        (job,) = store.read(JobsOfRun(found.key))
        assert clouds.schedules() == 1
        EventBridgeScheduler(
            cloud.queue_url,
            role="arn:aws:iam::123456789012:role/wake-ups",
            group=clouds.group,
            client=clouds.client,
            queue_client=cloud.client,
        ).cancel(f"{wake_up_key(namespace, job.key.text)}#0")
        assert clouds.schedules() == 0
