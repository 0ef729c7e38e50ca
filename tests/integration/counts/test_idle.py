"""What a worker asks of its store: next to nothing while it is idle, and no value that nobody needs."""

import time
from collections.abc import Callable
from typing import TypeVar

import attrs
import pytest

from holdfast.hosts.engine import Engine
from holdfast.hosts.process import worker as worker_module
from holdfast.hosts.process.worker import Worker
from holdfast.hosts.stores import open_stores
from holdfast.kernel.authoring.calls import Definition
from holdfast.kernel.authoring.decorators import each, stage
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.ports.persistence import LoadValues, Persistence, Query, StoreTime, Transaction
from holdfast.testing.sink import MemorySink
from tests.integration.counts.statements import Statements

R = TypeVar("R")

POLL = 0.1


class Counting:
    """A store that counts transactions and questions."""

    def __init__(self, inner: Persistence, *, has_clock: bool) -> None:
        self._inner = inner
        self._has_clock = has_clock
        self.calls = 0
        self.values: list[LoadValues] = []

    def setup(self) -> None:
        self._inner.setup()

    def transact(self, work: Callable[[Transaction], R], /) -> R:
        self.calls += 1
        return self._inner.transact(work)

    def read(self, query: Query[R], /) -> R:
        asked: object = query
        if self._has_clock or not isinstance(asked, StoreTime):
            self.calls += 1
        if isinstance(asked, LoadValues):
            self.values.append(asked)
        return self._inner.read(query)

    def prune(self, before: int, /) -> int:
        self.calls += 1
        return self._inner.prune(before)

    def close(self) -> None:
        self._inner.close()


def counting_engine(url: str, namespace: str, workflow: Definition[object]) -> tuple[Engine, Counting]:
    stores = open_stores(url)
    counting = Counting(stores.persistence, has_clock=stores.file is None)
    engine = Engine.on(attrs.evolve(stores, persistence=counting), workflows=[workflow], namespace=namespace)
    return engine, counting


@stage
def nothing() -> int:
    return 1


@stage
def plain(x: int) -> int:
    return x


@stage
def five(x: int) -> list[int]:
    return list(range(x))


IDLE = Pipeline("idle", input=int).pipe(plain)
UNREAD = (
    Pipeline("unread", input=int).pipe(nothing).parallel(nothing.options(name="a"), nothing.options(name="b"))
)


@pytest.mark.parametrize("with_sinks", [False, True])
def test_an_idle_worker_calls_the_store_at_most_once_in_a_poll_interval(
    url: str, namespace: str, monkeypatch: pytest.MonkeyPatch, with_sinks: bool
) -> None:
    """All its intervals are a tenth of what they are by default: polling, maintenance, renewal."""
    sinks = {"audit": MemorySink(), "search": MemorySink()} if with_sinks else {}
    monkeypatch.setattr(worker_module, "MAINTENANCE_INTERVAL", 0.5)
    engine, counting = counting_engine(url, namespace, IDLE)
    for sink in sinks:
        engine.sync.register_sink(sink)
    with engine.sync, Worker(engine, poll_interval=POLL, lease=3.0, sinks=sinks) as worker:
        engine.sync.run(IDLE(1))
        while worker.stats().unsettled or worker.stats().events < 3 * len(sinks):
            time.sleep(0.01)
        time.sleep(5 * POLL)
        before, began = counting.calls, time.monotonic()
        time.sleep(2.5)
        calls, intervals = counting.calls - before, (time.monotonic() - began) / POLL

    assert intervals / 4 < calls <= intervals * (1.2 if with_sinks else 1)


def test_no_value_is_read_for_bodies_that_take_none(url: str, namespace: str, statements: Statements) -> None:
    engine, counting = counting_engine(url, namespace, UNREAD)
    with engine.sync, Worker(engine):
        assert engine.sync.run(UNREAD(1)) == (1, 1)
    of_the_result = 1

    assert len(counting.values) == of_the_result
    assert sum(times for sql, times in statements.sent.items() if "h.payload" in sql) == of_the_result


def test_each_value_is_read_once_for_a_batch_of_bodies(url: str, namespace: str) -> None:
    pipeline = Pipeline("w", input=int).pipe(five).parallel(each(plain), each(plain.options(name="again")))
    engine, counting = counting_engine(url, namespace, pipeline)
    with engine.sync, Worker(engine):
        handle = engine.sync.start(pipeline(40))
        assert handle.result() == (list(range(40)), list(range(40)))

    wanted = [key for query in counting.values for key in query.wanted]
    items = [key for key in wanted if isinstance(key[1], tuple) and key[1][0] == "item"]
    assert len(items) == len(set(items)) == 80
    assert len(counting.values) < 20
