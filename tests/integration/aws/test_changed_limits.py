"""Paused queues and changed limits with serverless functions behind SQS: nothing starts too soon, nothing is lost."""

import threading
import time
from collections import Counter
from contextlib import closing
from typing import Final

import pytest

from holdfast import Pipeline, SyncEngine, stage
from holdfast.kernel.invariants import check
from holdfast.ports.records.run import TERMINAL, RunStatus
from holdfast.testing.snapshots import snapshot_of
from tests.aws import FakeAws
from tests.cloud import Cloud

pytestmark = [pytest.mark.slow, pytest.mark.service]

RUNS: Final = 12
ACTIVE: Final = frozenset(RunStatus) - TERMINAL

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
    global under_way, most  # noqa: PLW0603  # bodies of several functions of one process share the gauge
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


@pytest.fixture(autouse=True)
def _fresh_counters() -> None:
    global most  # noqa: PLW0603
    begun.clear()
    most = 0


def finish(cloud: Cloud, engine: SyncEngine) -> None:
    for _ in range(20):
        if not any(engine.count(status=ACTIVE).values()):
            return
        cloud.round()
    raise AssertionError("the runs do not end")


@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
@pytest.mark.parametrize("width", [1, 3])
def test_a_paused_queue_starts_nothing_and_loses_nothing(
    aws: FakeAws, shared_database: str, namespace: str, width: int, *, fifo: bool
) -> None:
    """Other queues go on, and functions that were started for a message of the queue leave its jobs alone."""
    cloud = Cloud(aws, shared_database, namespace, [BOOKS, NOTES], width=width, fifo=fifo)
    with closing(cloud):
        engine = cloud.engine.sync
        early = engine.start(BOOKS("early"))
        cloud.round()
        announced = [engine.start(BOOKS(f"announced {number}")) for number in range(RUNS // 2)]
        engine.limits.set("queue:llm", paused=True, reason="the key is being replaced")
        runs = [*announced, *(engine.start(BOOKS(f"later {number}")) for number in range(RUNS // 2))]
        note = engine.start(NOTES("a note"))
        for _ in range(5):
            cloud.round()

        assert dict(begun) == {"early": 1}
        assert (early.result(), note.result()) == (5, 6)
        assert {run.info().status for run in runs} == {RunStatus.RUNNING}
        assert {reason.code for run in runs for reason in run.why()} == {"queue_paused"}

        engine.limits.clear("queue:llm")
        finish(cloud, engine)

        assert [run.result() for run in runs] == [*[11] * (RUNS // 2), *[7] * (RUNS // 2)]
        assert set(begun.values()) == {1}
        assert check(snapshot_of(cloud.engine.core.stores.persistence, [namespace])) == []


def test_a_changed_limit_holds_for_all_functions(aws: FakeAws, shared_database: str, namespace: str) -> None:
    """No more bodies run at once than the limit in force allows; with none allowed, nothing starts."""
    cloud = Cloud(aws, shared_database, namespace, [PAGES], width=4)
    with closing(cloud):
        engine = cloud.engine.sync
        engine.limits.set("stage:pages/limited", slots=0)
        runs = [engine.start(PAGES(f"page {number}")) for number in range(RUNS)]
        for _ in range(3):
            cloud.round()
        assert not begun

        engine.limits.set("stage:pages/limited", slots=1)
        cloud.round()
        assert (len(begun) > 0, most) == (True, 1)

        engine.limits.clear("stage:pages/limited")
        finish(cloud, engine)

        assert [run.result() for run in runs] == [f"page {number}" for number in range(RUNS)]
        assert most <= 3
        assert set(begun.values()) == {1}
        assert check(snapshot_of(cloud.engine.core.stores.persistence, [namespace])) == []
