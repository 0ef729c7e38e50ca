"""A worker delivers events to its sinks, whatever these do."""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.ports.events import Event
from holdfast.testing.sink import MemorySink


@stage
def double(x: int) -> int:
    return 2 * x


TWO = Pipeline("two", input=int).pipe(double).pipe(double.options(name="again"))
TYPES = ["run.created", "stage.completed", "stage.completed", "run.completed"]


def until(holds: Callable[[], bool], seconds: float = 10.0) -> float:
    began = time.monotonic()
    while not holds():
        assert time.monotonic() < began + seconds, "it took too long"
        time.sleep(0.01)
    return time.monotonic() - began


class Hanging:
    """A sink that blocks until released."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.let_go = threading.Event()

    def emit(self, _: Sequence[Event], /) -> None:
        self.entered.set()
        self.let_go.wait(30)


@pytest.fixture(params=["memory", "sqlite"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db"
    return Engine.open(url, workflows=[TWO])


def test_events_come_within_a_second_in_order_and_once(engine: Engine) -> None:
    sink = MemorySink()
    with engine.sync as sync:
        sync.register_sink("audit")
        with Worker(engine, sinks={"audit": sink}) as worker:
            run = sync.start(TWO(1))
            assert run.result() == 4
            assert until(lambda: len(sink.events) >= 4) < 1.0
            until(lambda: worker.stats().events == 4)

    assert [event.type for event in sink.events] == TYPES
    assert [event.number for event in sink.events] == [1, 2, 3, 4]


@pytest.mark.slow
def test_what_is_left_comes_when_the_worker_ends(engine: Engine) -> None:
    sink = MemorySink()
    with engine.sync as sync:
        sync.register_sink("audit")
        with Worker(engine, sinks={"audit": sink}):
            for number in range(20):
                sync.start(TWO(number))
            for info in list(sync.runs()):
                sync.handle(TWO, info.id).result()

    assert len(sink.events) == 20 * 4


@pytest.mark.slow
def test_a_sink_that_hangs_holds_up_no_body_and_no_other_sink(engine: Engine) -> None:
    hanging, sink = Hanging(), MemorySink()
    with engine.sync as sync:
        sync.register_sink("hanging")
        sync.register_sink("audit")
        with Worker(engine, sinks={"hanging": hanging, "audit": sink}) as worker:
            sync.run(TWO(1))
            assert hanging.entered.wait(10)
            for number in range(10):
                assert sync.run(TWO(number)) == 4 * number
            until(lambda: len(sink.events) == 11 * 4)
            worker.drain()
            until(lambda: worker.stats().phase == "stopped")
        hanging.let_go.set()


@pytest.mark.slow
def test_a_worker_without_the_sink_leaves_events_to_others(engine: Engine) -> None:
    sink = MemorySink()
    with engine.sync as sync:
        sync.register_sink("audit")
        with Worker(engine, sinks={"other": sink}):
            sync.run(TWO(1))
        assert sink.events == ()
        with Worker(engine, sinks={"audit": sink}):
            until(lambda: len(sink.events) == 4)
