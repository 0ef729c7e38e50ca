"""A simulated cloud: serverless functions, a queue and a timer on one database, in a test's virtual time."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from queue import LifoQueue
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from holdfast.adapters.aws.sqs import SqsJobTransport
from holdfast.adapters.aws.sqs_messages import SqsMessages
from holdfast.hosts.client.engine import Engine
from holdfast.hosts.serverless.aws.cron_handler import CronHandler
from holdfast.hosts.serverless.aws.queue_handler import QueueHandler
from holdfast.hosts.serverless.host import ServerlessHost
from holdfast.hosts.wiring.stores import Stores, open_stores
from holdfast.kernel.authoring.calls import WorkflowDefinition
from holdfast.ports.clock import Clock
from holdfast.ports.persistence import Persistence, Query, Transaction
from holdfast.ports.queries.store import StoreTime
from holdfast.ports.scheduler import Scheduler
from tests.aws import FakeAws
from tests.event_source_mapping import EventSource, Killed, PumpFaults
from tests.lambdas import FakeContext

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

R = TypeVar("R")

LIMIT = 60.0


class CloudClock:
    """The real time plus the time that the test let pass, for all of AWS."""

    def __init__(self, aws: FakeAws) -> None:
        self._aws = aws

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(milliseconds=self._aws.millis())

    def monotonic(self) -> float:
        return time.monotonic() + self._aws.millis() / 1_000

    def sleep(self, seconds: float, /) -> None:
        time.sleep(seconds)


class Mortal:
    """A process's persistence: counted, on the machine's clock, and disconnected when the process is killed."""

    def __init__(self, inner: Persistence) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self.dies_at: int | None = None
        """The number of transactions until the process dies, before or after the commit of the last."""
        self.is_dead = False
        self.calls = 0
        """The number of calls to the store."""
        self.transactions = 0

    def setup(self) -> None:
        self._inner.setup()

    def transact(self, work: Callable[[Transaction], R], /) -> R:
        with self._lock:
            self._check()
            self.calls += 1
            self.transactions += 1
            dies, after = False, False
            if self.dies_at is not None:
                self.dies_at -= 1
                dies, after = self.dies_at <= 0, self.calls % 2 == 0
                self.is_dead = dies
        if dies and not after:
            raise Killed
        answer = self._inner.transact(work)
        if dies:
            raise Killed
        return answer

    def read(self, query: Query[R], /) -> R:
        self._check()
        if isinstance(query, StoreTime):
            return None  # type: ignore[return-value]  # pyright: ignore[reportReturnType]  # as of a store without a clock
        self.calls += 1
        return self._inner.read(query)

    def prune(self, before: int, /) -> int:
        self._check()
        return self._inner.prune(before)

    def close(self) -> None:
        """Do nothing: other processes use the same store."""

    def _check(self) -> None:
        if self.is_dead:
            raise Killed


@attrs.define(kw_only=True)
class Process:
    """A process in which serverless functions run, one invocation after the other."""

    store: Mortal
    engine: Engine
    on_jobs: QueueHandler
    on_timer: CronHandler


@attrs.define
class Place:
    """A slot for one process at a time. `None` before the first use and after a kill."""

    stores: Stores
    process: Process | None = None


class Cloud:
    """A database, a queue, and functions whose processes are created on demand.

    Attributes:
        kills: The number of killed functions.
        cold_starts: The number of started processes.
        calls: The number of calls that functions made to the store.
        transactions: The number of these that were transactions, not queries.
        requests: The number of requests to the queue by any client, by operation.
        most_at_once: The most concurrent functions so far.
    """

    def __init__(
        self,
        aws: FakeAws,
        url: str,
        namespace: str,
        workflows: Iterable[WorkflowDefinition[object]],
        *,
        fifo: bool = False,
        width: int = 1,
        deaths: int = 0,
        hurried: int = 0,
        faults: PumpFaults | None = None,
        seed: int = 0,
        blobs: str | None = None,
        clock: Clock | None = None,
        scheduler: "Callable[[Cloud], Scheduler] | None" = None,
    ) -> None:
        """Create a cloud of `width` concurrent functions. Of 100, `deaths` are killed and `hurried` have less time."""
        self.aws = aws
        self.clock: Clock = clock or CloudClock(aws)
        self._workflows = tuple(workflows)
        self._namespace = namespace
        self._stores = open_stores(url, blobs)
        self._deaths = deaths
        self._hurried = hurried
        self._width = width
        self._random = Random(seed)
        self.client: SQSClient
        self.client, self.queue_url = aws.new_queue(fifo=fifo)
        self.kills = self.cold_starts = self.calls = self.transactions = 0
        self.requests: Counter[str] = Counter()
        self.client.meta.events.register("before-call.sqs", self._count, unique_id=f"cloud {self.queue_url}")
        self._scheduler = None if scheduler is None else scheduler(self)
        self._lock = threading.Lock()
        self._under_way = self.most_at_once = 0
        self._places = [Place(self._stores), *(Place(open_stores(url, blobs)) for _ in range(1, width))]
        self._free: LifoQueue[Place] = LifoQueue()
        for place in self._places:
            self._free.put(place)
        self._timer = Place(self._stores)
        self.processes: list[Process] = []
        self.outside = self._new(self._stores)
        """The process that starts runs and is never killed."""
        self.source = EventSource(
            self.client, self.queue_url, self._invoke, faults=faults, random=Random(seed + 1)
        )

    @property
    def engine(self) -> Engine:
        """The engine that starts runs."""
        return self.outside.engine

    def round(self) -> int:
        """Handle all available messages, then let a minute pass, and call the timer's function.

        Returns the number of messages.
        """
        if self._width == 1:
            received = self._drained()
            self.aws.pass_time(60)
            self.tick()
            return received
        self.aws.pass_time(60)
        threads = ThreadPoolExecutor(self._width + 1, "functions")
        try:
            ticked = threads.submit(self.tick)
            drained = [threads.submit(self._drained) for _ in range(self._width)]
            received = sum(one.result() for one in drained)
            ticked.result()
        finally:
            # A function that hangs must not hold up the failure of its test, by the timeout of all tests.
            threads.shutdown(wait=False, cancel_futures=True)
        return received

    def _drained(self) -> int:
        received = 0
        while got := self.source.poll():
            received += got
        return received

    def tick(self) -> Mapping[str, Any] | None:
        """Call the timer's function; None if it is killed."""
        return self._called(self._timer, lambda process: process.on_timer({}, FakeContext(LIMIT)))

    def invoke(self, event: Mapping[str, Any]) -> Mapping[str, Sequence[Mapping[str, str]]] | None:
        """Call the queue's function; None if it is killed."""
        return self._invoke(event)

    def close(self) -> None:
        """Close all."""
        self.client.meta.events.unregister("before-call.sqs", unique_id=f"cloud {self.queue_url}")
        for process in self.processes:
            process.engine.core.close()
        for place in self._places:
            place.stores.persistence.close()

    def _count(self, params: Mapping[str, Any], **_: object) -> None:
        """Count a request to this cloud's queue: other tests may have queues in the region."""
        if self.queue_url in json.dumps(params, default=str):
            with self._lock:
                self.requests[params["headers"]["X-Amz-Target"].partition(".")[2]] += 1

    def _invoke(self, event: Mapping[str, Any]) -> Mapping[str, Sequence[Mapping[str, str]]] | None:
        place = self._free.get()
        try:
            seconds = LIMIT * (self._random.random() if self._drawn(self._hurried) else 1.0)
            return self._called(place, lambda process: process.on_jobs(event, FakeContext(seconds)))
        finally:
            self._free.put(place)

    def _called(self, place: Place, call: Callable[[Process], R]) -> R | None:
        process = place.process = place.process or self._new(place.stores)
        store = process.store
        store.dies_at = 1 + self._random.randrange(3) if self._drawn(self._deaths) else None
        before = store.calls, store.transactions
        with self._lock:
            self._under_way += 1
            self.most_at_once = max(self.most_at_once, self._under_way)
        try:
            return call(process)
        except BaseException:
            if not store.is_dead:
                raise
            return None
        finally:
            with self._lock:
                self._under_way -= 1
                self.calls += store.calls - before[0]
                self.transactions += store.transactions - before[1]
                self.kills += store.is_dead
            if store.is_dead:
                process.engine.core.close()
                place.process = None

    def _drawn(self, percent: int) -> bool:
        return self._random.randrange(100) < percent

    def _new(self, on: Stores) -> Process:
        store = Mortal(on.persistence)
        transport = SqsJobTransport(self.queue_url, client=self.client, monotonic=self.clock.monotonic)
        stores: Stores = attrs.evolve(
            on, persistence=store, transport=transport, clock=self.clock, scheduler=self._scheduler
        )
        engine = Engine.on(stores, workflows=self._workflows, namespace=self._namespace)
        host = ServerlessHost(engine, time_limit=LIMIT)
        on_jobs = QueueHandler(
            host,
            SqsMessages(self.client),
            limit=LIMIT,
            concurrency=10,
            rejected_queue=None,
            queues=None,
        )
        process = Process(
            store=store, engine=engine, on_jobs=on_jobs, on_timer=CronHandler(host, limit=LIMIT)
        )
        with self._lock:
            self.cold_starts += 1
            self.processes.append(process)
        return process
