"""Quotas of namespaces under concurrent starts, and namespaces that are deleted, on every store."""

import pytest

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.decorators import stage
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.ports.errors import QuotaExceededError
from holdfast.ports.records.run import RunStatus
from holdfast.testing.conformance.threads import in_threads
from tests.integration.hosts.conftest import OpenEngine

QUOTA, THREADS, EACH = 9, 4, 5


@stage
def echo(number: int) -> int:
    return number


ECHO = Pipeline("echo", input=int).pipe(echo)


def beside(engine: Engine, namespace: str) -> Engine:
    """Return an engine with a kernel of its own on the same store."""
    return Engine.on(engine.core.adapters, workflows=[ECHO], namespace=namespace)


def test_concurrent_starts_never_exceed_a_quota(open_engine: OpenEngine) -> None:
    """Of several processes, of which each thinks at first that there is none."""
    engine = open_engine(ECHO)
    engines = [engine, *(beside(engine, engine.core.namespace) for _ in range(THREADS - 1))]
    first = engine.sync
    first.namespaces.create(engines[0].core.namespace, max_active_runs=QUOTA, max_starts_per_minute=QUOTA + 3)

    def start(thread: int) -> int:
        refused = 0
        for number in range(EACH):
            try:
                engines[thread].sync.start(ECHO(number))
            except QuotaExceededError:
                refused += 1
        return refused

    assert sum(in_threads(THREADS, start)) == THREADS * EACH - QUOTA
    assert first.count() == {**first.count(), RunStatus.RUNNING: QUOTA}
    with Worker(engines[0]):
        for run in list(first.runs()):
            first.handle(ECHO, run.id).result()
    assert sum(in_threads(THREADS, start)) == THREADS * EACH - 3


@pytest.mark.slow
def test_a_purged_namespace_is_gone(open_engine: OpenEngine, namespace: str) -> None:
    engine = open_engine(ECHO)
    other = beside(engine, f"{namespace}-other")
    engine.sync.start_all(map(ECHO, range(250)))
    other.sync.start(ECHO(1))
    assert other.sync.namespaces.delete(namespace, purge=True)
    assert engine.sync.count() == dict.fromkeys(RunStatus, 0)
    known = [one.name for one in other.sync.namespaces.list(after=f"{namespace[:-1]}")]
    assert namespace not in known
    assert other.core.namespace in known
