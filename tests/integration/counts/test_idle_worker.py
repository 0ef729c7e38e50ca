"""The load of an idle worker on its store: next to nothing, and no value that it does not need."""

import time

import pytest

from holdfast.hosts.client.sync_run_handle import NEW_SECONDS
from holdfast.hosts.worker import worker as worker_module
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.decorators import each, stage
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.testing.sink import MemorySink
from tests.integration.counts.call_counter import counting_engine
from tests.integration.counts.conftest import OpenEngine
from tests.integration.counts.statement_counter import Statements

POLL = 0.1


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


@pytest.mark.slow
@pytest.mark.parametrize("with_sinks", [False, True])
def test_an_idle_worker_calls_the_store_at_most_once_in_a_poll_interval(
    url: str, namespace: str, monkeypatch: pytest.MonkeyPatch, with_sinks: bool
) -> None:
    """All intervals are a tenth of the defaults: polling, maintenance, renewal."""
    sinks = {"audit": MemorySink(), "search": MemorySink()} if with_sinks else {}
    monkeypatch.setattr(worker_module, "MAINTENANCE_INTERVAL", 5 * POLL)
    engine, counting = counting_engine(url, namespace, IDLE)
    for sink in sinks:
        engine.sync.register_sink(sink)
    with engine.sync, Worker(engine, poll_interval=POLL, lease=30 * POLL, sinks=sinks) as worker:
        engine.sync.run(IDLE(1))
        while worker.stats().unsettled or worker.stats().events < 3 * len(sinks):
            time.sleep(0.01)
        time.sleep(5 * POLL)
        before, began = counting.calls, time.monotonic()
        time.sleep(25 * POLL)
        calls, intervals = counting.calls - before, (time.monotonic() - began) / POLL

    assert intervals / 4 < calls <= intervals * (1.2 if with_sinks else 1)


def test_whoever_finds_the_tables_there_asks_for_their_version_and_the_time_and_who_answers(
    url: str, open_engine: OpenEngine, statements: Statements
) -> None:
    """No writer is blocked and no migration is read, so that a serverless function starts fast."""
    open_engine(IDLE)
    with statements.of() as within:
        open_engine(IDLE)

    of_the_server = 0 if url.startswith("sqlite") else 2  # the time, and whether a pooler is before it
    assert (within.commits, within.queries) == (0, 1 + of_the_server)
    assert not within.texts_with("BEGIN")


@pytest.mark.slow
def test_no_value_is_read_for_bodies_that_take_none(url: str, namespace: str, statements: Statements) -> None:
    engine, counting = counting_engine(url, namespace, UNREAD)
    with engine.sync, Worker(engine):
        assert engine.sync.run(UNREAD(1)) == (1, 1)
    of_the_result = 1

    assert len(counting.values) == of_the_result
    assert sum(times for sql, times in statements.sent.items() if "h.payload" in sql) == of_the_result


@pytest.mark.slow
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


def test_who_waits_for_a_run_that_was_started_here_reads_it_once(url: str, namespace: str) -> None:
    engine, counting = counting_engine(url, namespace, UNREAD)
    with engine.sync as runs:
        started = runs.start(UNREAD(1))
        of_another = runs.handle(UNREAD, started.id)
        found: list[int] = []
        for handle in (started, started, of_another, of_another):
            counting.found = 0
            with pytest.raises(TimeoutError):
                handle.result(timeout=0)
            found.append(counting.found)

    assert found == [1, 1, 2, 1]


@pytest.mark.slow
def test_who_runs_something_does_not_look_whether_it_has_ended_at_once(url: str, namespace: str) -> None:
    """Unless the run existed before: then it may have ended long ago."""
    engine, counting = counting_engine(url, namespace, UNREAD)
    with engine.sync as runs, Worker(engine):
        assert runs.run(UNREAD(1), id="new") == (1, 1)  # what happens once is done
        counting.found, slow = 0, 0
        for _ in range(20):
            began = time.monotonic()
            assert runs.run(UNREAD(1)) == (1, 1)
            slow += time.monotonic() - began >= NEW_SECONDS
        assert counting.found <= slow
        counting.found = 0
        assert runs.run(UNREAD(1), id="new", if_exists="return") == (1, 1)
        assert (
            runs.run(UNREAD(1), idempotency_key="key") == runs.run(UNREAD(1), idempotency_key="key") == (1, 1)
        )
        assert counting.found == 3
