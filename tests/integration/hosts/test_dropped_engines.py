"""An engine that is dropped without `close`, as by a cell of a notebook that runs again, leaves nothing open."""

import gc
import threading
import time
from collections.abc import Callable

import psycopg
import pytest

from holdfast import Engine, step, workflow
from holdfast.adapters.memory.transport import MemoryTransport
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.ports.transport import JobTransport, RunEnded

SOON = 60.0


@step
async def add_one(number: int) -> int:
    return number + 1


@workflow
async def adds(number: int) -> int:
    return await add_one(number)


def start_and_wait(url: str, namespace: str, transport: JobTransport | None = None) -> SyncRunHandle[int]:
    """Use a new engine, with all of its threads and connections. Only the handle still holds it."""
    engine = Engine.open(url, workflows=[adds], namespace=namespace, transport=transport)
    handle = engine.sync.start(adds(1))
    with pytest.raises(TimeoutError):
        handle.result(timeout=0.05)
    return handle


def threads() -> frozenset[threading.Thread]:
    return frozenset(
        thread for thread in threading.enumerate() if thread.name.startswith(("holdfast-", "Dummy-"))
    )


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_its_threads_end(url: str, namespace: str) -> None:
    before = threads()
    handles = [start_and_wait(url, namespace) for _ in range(3)]
    assert len(threads() - before) >= 3
    del handles
    gc.collect()
    wait_until(lambda: not threads() - before)


@pytest.mark.slow
def test_its_connections_are_closed(shared_database: str, namespace: str) -> None:
    with psycopg.connect(shared_database, autocommit=True) as monitor:

        def connections() -> int:
            found = monitor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            )
            return next(iter(found))[0]  # type: ignore[no-any-return]

        before = connections()
        handles = [start_and_wait(shared_database, namespace) for _ in range(3)]
        assert connections() >= before + 6
        del handles
        gc.collect()
        wait_until(lambda: connections() == before)


def test_a_handle_keeps_its_engine(url: str, namespace: str) -> None:
    before = threads()
    handle = start_and_wait(url, namespace)
    gc.collect()
    kept = threads() - before
    assert kept
    assert handle.info().status == "running"
    assert kept <= threads()


def test_a_transport_of_the_application_stays_open(url: str, namespace: str) -> None:
    transport = MemoryTransport()
    before = threads()
    handle = start_and_wait(url, namespace, transport)
    assert threads() - before
    del handle
    gc.collect()
    wait_until(lambda: not threads() - before)
    transport.announce([RunEnded(run="a")])
    assert [delivery.hint for delivery in transport.receive(1, SOON)] == [RunEnded(run="a")]
    transport.close()
