"""Functions, a queue and a timer on one database, whose time passes when a test lets it; functions can be killed."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from holdfast.adapters.aws.messages import SqsMessages
from holdfast.adapters.aws.sqs import SqsJobTransport
from holdfast.hosts.engine import Engine
from holdfast.hosts.serverless.aws.cron import CronHandler
from holdfast.hosts.serverless.aws.queue import QueueHandler
from holdfast.hosts.serverless.host import ServerlessHost
from holdfast.hosts.stores import Stores, open_stores
from holdfast.kernel.authoring.calls import Definition
from holdfast.ports.clock import Clock
from holdfast.ports.persistence import Persistence, Query, StoreTime, Transaction
from tests.aws import FakeAws
from tests.lambdas import FakeContext
from tests.pump import EventSource, Killed, PumpFaults

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

R = TypeVar("R")

LIMIT = 60.0


class CloudClock:
    """The real time, and as much as was let pass, for all of AWS."""

    def __init__(self, aws: FakeAws) -> None:
        self._aws = aws

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(milliseconds=self._aws.millis())

    def monotonic(self) -> float:
        return time.monotonic() + self._aws.millis() / 1_000

    def sleep(self, seconds: float, /) -> None:
        time.sleep(seconds)


class Mortal:
    """A process's way to the store: counted, by the machine's clock, and cut off when the process is killed."""

    def __init__(self, inner: Persistence) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self.dies_at: int | None = None
        """At which transaction from now on the process dies: after its commit if the number is even."""
        self.is_dead = False
        self.calls = 0
        """How often the store was asked for anything."""
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
        """Others are on the same store."""

    def _check(self) -> None:
        if self.is_dead:
            raise Killed


@attrs.define(kw_only=True)
class Process:
    """One process in which functions run, one invocation after the other."""

    store: Mortal
    engine: Engine
    on_jobs: QueueHandler
    on_timer: CronHandler


class Cloud:
    """A database, a queue, and functions that are made when one is wanted and there is none.

    Attributes:
        kills: How many functions were killed.
        cold_starts: How many processes were begun.
        calls: How often functions asked the store for anything.
        transactions: How many of these were transactions, and not questions.
        requests: How many requests were made of the queue, by whomever, by what they are called.
    """

    def __init__(
        self,
        aws: FakeAws,
        url: str,
        namespace: str,
        workflows: Iterable[Definition[object]],
        *,
        fifo: bool = False,
        deaths: int = 0,
        faults: PumpFaults | None = None,
        seed: int = 0,
        blobs: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.aws = aws
        self.clock: Clock = clock or CloudClock(aws)
        self._workflows = tuple(workflows)
        self._namespace = namespace
        self._stores = open_stores(url, blobs)
        self._deaths = deaths
        self._random = Random(seed)
        self.client: SQSClient
        self.client, self.queue_url = aws.new_queue(fifo=fifo)
        self.kills = self.cold_starts = self.calls = self.transactions = 0
        self.requests: Counter[str] = Counter()
        self.client.meta.events.register("before-call.sqs", self._count, unique_id=f"cloud {self.queue_url}")
        self._process: Process | None = None
        self._timer: Process | None = None
        self.processes: list[Process] = []
        self.outside = self._new()
        """Who starts runs, and is never killed."""
        self.source = EventSource(
            self.client, self.queue_url, self._invoke, faults=faults, random=Random(seed + 1)
        )

    @property
    def engine(self) -> Engine:
        """The engine of whoever starts runs."""
        return self.outside.engine

    def round(self) -> int:
        """Have messages handled until none can be had, then let a minute pass, and call the timer's function.

        Return how many messages there were.
        """
        received = 0
        while got := self.source.poll():
            received += got
        self.aws.pass_time(60)
        self.tick()
        return received

    def tick(self) -> Mapping[str, Any] | None:
        """Call the timer's function; None if it is killed."""
        timer = self._timer = self._timer or self._new()
        return self._called(timer, lambda: timer.on_timer({}, FakeContext(LIMIT)))

    def invoke(self, event: Mapping[str, Any]) -> Mapping[str, Sequence[Mapping[str, str]]] | None:
        """Call the queue's function; None if it is killed."""
        return self._invoke(event)

    def close(self) -> None:
        """Close all."""
        self.client.meta.events.unregister("before-call.sqs", unique_id=f"cloud {self.queue_url}")
        for process in self.processes:
            process.engine.core.close()
        self._stores.persistence.close()

    def _count(self, params: Mapping[str, Any], **_: object) -> None:
        """Count a request of ours: others may have queues in this region."""
        if self.queue_url in json.dumps(params, default=str):
            self.requests[params["headers"]["X-Amz-Target"].partition(".")[2]] += 1

    def _invoke(self, event: Mapping[str, Any]) -> Mapping[str, Sequence[Mapping[str, str]]] | None:
        process = self._process = self._process or self._new()
        return self._called(process, lambda: process.on_jobs(event, FakeContext(LIMIT)))

    def _called(self, process: Process, call: Callable[[], R]) -> R | None:
        store = process.store
        store.dies_at = 1 + self._random.randrange(3) if self._random.randrange(100) < self._deaths else None
        before = store.calls, store.transactions
        try:
            return call()
        except BaseException:
            if not store.is_dead:
                raise
            return None
        finally:
            self.calls += store.calls - before[0]
            self.transactions += store.transactions - before[1]
            if store.is_dead:
                self.kills += 1
                process.engine.core.close()
                self._process = None if self._process is process else self._process
                self._timer = None if self._timer is process else self._timer

    def _new(self) -> Process:
        self.cold_starts += 1
        store = Mortal(self._stores.persistence)
        transport = SqsJobTransport(self.queue_url, client=self.client, monotonic=self.clock.monotonic)
        stores: Stores = attrs.evolve(self._stores, persistence=store, transport=transport, clock=self.clock)
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
        self.processes.append(
            Process(store=store, engine=engine, on_jobs=on_jobs, on_timer=CronHandler(host, limit=LIMIT))
        )
        return self.processes[-1]
