"""A serverless process that was frozen between two invocations."""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.serverless.host import ServerlessHost
from holdfast.hosts.wiring.interceptors import CommandBatch
from holdfast.hosts.wiring.stores import Stores
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.options import Retry
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.ports.clock import micros
from holdfast.ports.records.job import JobState
from holdfast.testing.clock import ManualClock
from holdfast.testing.ids import SeededIds
from holdfast.testing.transport import memory_transport
from tests.faults.fleet import ClockedStore

HOURS = timedelta(hours=5)
WAIT = timedelta(minutes=1)


@stage(retry=Retry(attempts=9, wait=WAIT, jitter=0.0))
def fail(x: int) -> int:
    raise ValueError


class Sent:
    """Records the commands sent."""

    def __init__(self) -> None:
        self.types: list[str] = []

    @contextmanager
    def dispatch(self, batch: CommandBatch, /) -> Generator[None]:
        self.types += [command.type for command in batch.commands]
        yield


class Frozen:
    """A store with a clock of its own, and a host in a process whose clock can stand still."""

    def __init__(self) -> None:
        self.time = ManualClock()
        self.machine = ManualClock()
        self.store = ClockedStore(self.time)
        self.sent = Sent()
        self.stores = Stores(
            persistence=self.store,
            transport=memory_transport(self.machine),
            blobs=None,
            clock=self.machine,
            ids=SeededIds(),
        )
        pipeline = Pipeline("failing", input=int).pipe(fail)
        self.engine = Engine.on(self.stores, workflows=[pipeline], interceptors=[self.sent])
        self.host = ServerlessHost(self.engine, time_limit=30)
        self.other = ServerlessHost(self.engine, time_limit=30)
        for number in range(3):
            self.engine.sync.start(pipeline(1), id=f"r{number}")

    def work(self) -> list[str]:
        """Run one job whose body fails; return the types of the commands that this took."""
        self.sent.types.clear()
        assert self.host.process_available_jobs(max_jobs=1, concurrency=1).failed == 1
        return list(self.sent.types)

    def wakes_at(self) -> int:
        """Return when the last job is retried."""
        jobs = self.store.dump().all_jobs()
        return max(job.wake_at or 0 for job in jobs if job.state is JobState.SLEEPING)


def test_what_is_to_wait_waits_from_now_on_however_long_the_clock_stood_still() -> None:
    frozen = Frozen()
    frozen.work()
    frozen.time.advance(HOURS)
    frozen.machine.jump(HOURS)  # it is thawed: its wall clock is set, its monotonic clock knows nothing of it
    frozen.work()

    assert frozen.wakes_at() >= micros(frozen.time.now() + WAIT)


def test_a_session_that_nobody_has_renewed_for_minutes_is_not_tried_again() -> None:
    frozen = Frozen()
    assert frozen.work() == ["session.open", "session.renew", "job.claim", "job.settle"]
    frozen.time.advance(HOURS)
    frozen.machine.advance(HOURS)
    frozen.other.run_maintenance_tick()

    assert frozen.work() == ["session.open", "session.renew", "job.claim", "job.settle"]


def test_a_session_that_may_live_is_renewed() -> None:
    frozen = Frozen()
    frozen.work()
    frozen.time.advance(timedelta(minutes=1))
    frozen.machine.advance(timedelta(minutes=1))

    assert frozen.work() == ["session.renew", "job.claim", "job.settle"]
