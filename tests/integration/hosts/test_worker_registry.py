"""Workers in the registry: those that run, and what they hold, on every store."""

import threading

import pytest

from holdfast.hosts.inspection.workers import WorkerInfo
from holdfast.hosts.serverless.host import ServerlessHost
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.pipelines import Pipeline
from tests.integration.hosts.conftest import OpenEngine
from tests.integration.hosts.pipelines import SIMPLE

BEGUN, END = threading.Event(), threading.Event()


@stage(queue="slow")
def hold(number: int) -> int:
    BEGUN.set()
    assert END.wait(30)
    return number


HOLDING = Pipeline("holding", input=int).pipe(hold)


def test_a_worker_is_listed_while_it_runs(open_engine: OpenEngine) -> None:
    BEGUN.clear()
    END.clear()
    engine = open_engine(HOLDING)
    run = engine.sync.start(HOLDING(7), id="r")
    with Worker(engine, name="demo", concurrency=5, queues={"slow": 2}):
        assert BEGUN.wait(30)
        (info,) = engine.sync.workers()
        (queue,) = [one for one in engine.sync.queues() if one.name == "slow"]
        END.set()
        assert run.result() == 7
    assert isinstance(info, WorkerInfo)
    assert (info.name, info.host, info.slots, info.is_live) == ("demo", engine.core.host, 5, True)
    assert (info.definitions, info.queues) == (("holding@1",), ("default", "slow"))
    assert [(held.run_id, held.node, held.attempt) for held in info.holds] == [("r", "hold", 1)]
    assert (queue.running, queue.workers, queue.slots) == (1, 1, 2)
    assert list(engine.sync.workers()) == []


def test_a_serverless_host_is_listed_while_its_session_lasts(open_engine: OpenEngine) -> None:
    engine = open_engine(SIMPLE)
    ServerlessHost(engine).process_available_jobs(max_jobs=1)
    (info,) = engine.sync.workers()
    assert (info.definitions, info.slots, info.holds) == ((SIMPLE.plan().definition,), 1, ())


@pytest.mark.parametrize("name", ["", "x" * 201, "a\0b", 7])
def test_a_worker_must_have_a_name_that_can_be_stored(open_engine: OpenEngine, name: str) -> None:
    with pytest.raises(ValueError, match="1 to 200 characters"):
        Worker(open_engine(SIMPLE), name=name)
