"""Paused queues and changed limits under NATS: nothing starts too soon, and what waits goes on after it."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import pytest

from holdfast import Engine, Pipeline, ServerlessHost, SyncEngine, Worker, stage
from holdfast.adapters.nats.transport import NatsJobTransport
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.kernel.invariants import check
from holdfast.ports.records.run import RunStatus
from holdfast.ports.transport import JobHint
from holdfast.serverless import JobMessage
from holdfast.testing.snapshots import snapshot_of
from tests.nats import PrivateNats, private_nats
from tests.poll_intervals import look_often

pytestmark = [pytest.mark.slow, pytest.mark.service]

RUNS: Final = 10

Out = TypeVar("Out")
Hosts: TypeAlias = Callable[[Callable[[], Engine]], AbstractContextManager[None]]

begun: Counter[str] = Counter()
"""The number of starts of each body, by its input."""
gauge_lock = threading.Lock()
under_way = 0
most = 0
"""The most bodies of `limited` at once."""


@stage(queue="llm")
def translate(page: str) -> str:
    begun[page] += 1
    return page.upper()


@stage
def store(page: str) -> int:
    return len(page)


@stage(max_concurrency=3)
def limited(page: str) -> str:
    global under_way, most  # noqa: PLW0603  # bodies of several threads share the gauge
    with gauge_lock:
        begun[page] += 1
        under_way += 1
        most = max(most, under_way)
    time.sleep(0.02)
    with gauge_lock:
        under_way -= 1
    return page


BOOKS: Final = Pipeline("books", input=str).pipe(translate).pipe(store)
NOTES: Final = Pipeline("notes", input=str).pipe(store)
PAGES: Final = Pipeline("pages", input=str).pipe(limited)
WORKFLOWS: Final = (BOOKS, NOTES, PAGES)


@pytest.fixture(autouse=True)
def _fresh_counters() -> None:
    global most  # noqa: PLW0603
    begun.clear()
    most = 0


@pytest.fixture
def server() -> Iterator[PrivateNats]:
    with private_nats() as server:
        yield server


@pytest.fixture
def open_engine(server: PrivateNats, tmp_path: Path) -> Iterator[Callable[[], Engine]]:
    """Opens engines on one database, each with a connection of its own."""
    with ExitStack() as opened:

        def open_one() -> Engine:
            transport = NatsJobTransport(server.url, visibility=1.0)
            engine = Engine.open(f"sqlite:///{tmp_path}/nats.db", workflows=WORKFLOWS, transport=transport)
            opened.enter_context(engine.sync)
            return engine

        yield open_one


def handle_messages(engine: Engine, ends: threading.Event) -> None:
    """Run the jobs that messages name, as a function does that NATS invokes. A refused message comes again."""
    host, transport = ServerlessHost(engine, time_limit=60), engine.core.stores.transport
    while not ends.is_set():
        host.run_maintenance_tick()
        for delivery in transport.receive(10, 0.1):
            assert isinstance(delivery.hint, JobHint)
            outcome = host.handle_job(JobMessage(job_id=delivery.hint.job, epoch=delivery.hint.epoch))
            if outcome.acknowledge:
                transport.ack(delivery.receipt)


@contextmanager
def functions(open_engine: Callable[[], Engine]) -> Generator[None]:
    """Three functions that handle messages at the same time."""
    ends = threading.Event()
    with ThreadPoolExecutor(3) as threads:
        running = [threads.submit(handle_messages, open_engine(), ends) for _ in range(3)]
        try:
            yield
        finally:
            ends.set()
        for one in running:
            one.result()


@contextmanager
def workers(open_engine: Callable[[], Engine]) -> Generator[None]:
    """Two workers."""
    with Worker(open_engine()), Worker(open_engine()):
        yield


HOSTS: Final = pytest.mark.parametrize("hosts", [functions, workers])


def result_of(run: SyncRunHandle[Out]) -> Out:
    """Wait for the end of a run. A client learns of ends by polling, as NATS has no messages about them."""
    until = time.monotonic() + 20
    while run.info().ended_at is None:
        assert time.monotonic() < until, run.why()
        time.sleep(0.01)
    return run.result()


def pass_time(engine: SyncEngine) -> None:
    """Let other runs come and go, each after the one before: all hosts look for jobs meanwhile."""
    for _ in range(10):
        assert result_of(engine.start(NOTES("note"))) == 4


@HOSTS
def test_a_paused_queue_starts_nothing_and_loses_nothing(
    open_engine: Callable[[], Engine], monkeypatch: pytest.MonkeyPatch, hosts: Hosts
) -> None:
    look_often(monkeypatch)
    engine = open_engine().sync
    announced = [engine.start(BOOKS(f"announced {number}")) for number in range(RUNS)]
    engine.limits.set("queue:llm", paused=True, reason="the key is being replaced")
    runs = [*announced, *(engine.start(BOOKS(f"later {number}")) for number in range(RUNS))]
    with hosts(open_engine):
        pass_time(engine)
        assert not begun
        assert {run.info().status for run in runs} == {RunStatus.RUNNING}
        assert {reason.code for run in runs for reason in run.why()} == {"queue_paused"}

        engine.limits.clear("queue:llm")

        assert [result_of(run) for run in runs] == [*[11] * RUNS, *[7] * RUNS]
    assert set(begun.values()) == {1}
    assert check(snapshot_of(engine.core.stores.persistence)) == []


@HOSTS
def test_a_changed_limit_holds_for_all_hosts(
    open_engine: Callable[[], Engine], monkeypatch: pytest.MonkeyPatch, hosts: Hosts
) -> None:
    """No more bodies run at once than the limit in force allows; with none allowed, nothing starts."""
    look_often(monkeypatch)
    engine = open_engine().sync
    engine.limits.set("stage:pages/limited", slots=0)
    runs = [engine.start(PAGES(f"page {number}")) for number in range(RUNS)]
    with hosts(open_engine):
        pass_time(engine)
        assert not begun

        engine.limits.set("stage:pages/limited", slots=1)
        assert result_of(runs[0]) == "page 0"
        assert most == 1
        pass_time(engine)
        assert most == 1

        engine.limits.clear("stage:pages/limited")
        assert [result_of(run) for run in runs] == [f"page {number}" for number in range(RUNS)]
    assert most <= 3
    assert set(begun.values()) == {1}
    assert check(snapshot_of(engine.core.stores.persistence)) == []
