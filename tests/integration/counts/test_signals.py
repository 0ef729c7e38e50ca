"""The cost of signals to a running function: a transaction for each, and looks of its driver at new rows."""

import asyncio
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from threading import Event

import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.wiring.interceptors import CommandBatch
from holdfast.hosts.worker import worker as worker_module
from holdfast.hosts.worker.settings import Settings
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.channels import Channel
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.steps import step

SIGNALS = 100
SOON = 60.0

numbers = Channel("numbers", int)
ALL_RECEIVED = Event()


@step
async def work() -> None:
    """Keep the function running, so that no signal has to wake it."""
    while not ALL_RECEIVED.is_set():  # noqa: ASYNC110  # an event of asyncio is bound to one loop
        await asyncio.sleep(0.001)


@workflow
async def receive_while_working() -> int:
    working = asyncio.create_task(work())
    total = 0
    for _ in range(SIGNALS):
        total += await numbers.receive()
    ALL_RECEIVED.set()
    await working
    return total


class CountedTransactions:
    """An interceptor that counts the dispatched batches, each a transaction, by the types of their commands."""

    def __init__(self) -> None:
        self.with_type = Counter[str]()

    @contextmanager
    def dispatch(self, batch: CommandBatch, /) -> Generator[None]:
        self.with_type.update({command.type for command in batch.commands})
        yield


@pytest.mark.slow
def test_signals_to_a_running_function_cost_no_heartbeat(
    url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "Settings", partial(Settings, heartbeat_interval=10_000.0))
    ALL_RECEIVED.clear()
    counted = CountedTransactions()
    engine = Engine.open(url, workflows=[receive_while_working], namespace=namespace, interceptors=[counted])
    with engine.sync as runs, Worker(engine):
        run = runs.start(receive_while_working(), id="x")
        until = time.monotonic() + SOON
        while not engine.core.run_notifier.is_listened_to and time.monotonic() < until:
            time.sleep(0.001)
        counted.with_type.clear()
        for _ in range(SIGNALS):
            run.signal(numbers(1))
        assert run.result(timeout=SOON) == SIGNALS

    assert counted.with_type["run.signal"] == SIGNALS
    # One look each, fewer if signals come together; the driver also looks every five seconds.
    assert 0 < counted.with_type["job.record"] <= 1.2 * SIGNALS
    assert counted.with_type["job.heartbeat"] == 0
