"""Remote steps: a server without a worker, a remote worker of 8 slots, and the worker of the functions in this process.

Run as a program, `python -m tests.benchmarks.server.remote URL KEY`, it is the remote worker.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from holdfast import Engine, Worker, step, workflow
from holdfast.remote import RemoteWorker
from tests.benchmarks.server.measures import Row, Target, percentile

SLOTS: Final = 8
STEPS: Final = 50
"""The steps of each run."""
SECONDS_MAX: Final = 300.0
_ROOT: Final = Path(__file__).resolve().parents[3]


@step(queue="far")
async def far(number: int) -> float:
    """Return when the body began. Only the remote worker serves its queue."""
    return time.time()


@step(queue="near")
async def near(number: int) -> float:
    """The same, for a worker with the database."""
    return time.time()


@workflow
async def spread(is_far: bool, number: int) -> list[float]:
    """Run many steps at once."""
    body = far if is_far else near
    return list(await asyncio.gather(*(body(one) for one in range(number))))


def remote_steps(target: Target, runs: int, idle: int) -> Iterator[Row]:
    """Run steps by a remote worker and, beside it, by a worker with the database; and single ones on an idle worker."""
    engine = Engine.open(target.store, workflows=[spread], steps=[far, near])
    with engine.sync as client:
        key = client.keys.create("bench", scopes=["work"]).text
        assert key is not None
        with Worker(engine, only_queues=["default"]), _worker(target.url, key):
            _timed_runs(engine, 1, is_far=True)
            distant = runs * STEPS / _timed_runs(engine, runs, is_far=True)
            waits = sorted(_waits(engine, idle))
        with Worker(engine, only_queues=["default", "near"], concurrency=SLOTS):
            _timed_runs(engine, 1, is_far=False)
            local = runs * STEPS / _timed_runs(engine, runs, is_far=False)
    about = f"{runs} runs of {STEPS} steps at once; server, workers and PostgreSQL on the same processors"
    yield Row(name="remote steps, 8 slots", value=distant, unit="steps/s", goal=">= 1,500", about=about)
    yield Row(name="the same by a worker with the database", value=local, unit="steps/s", about=about)
    yield Row(name="remote steps, beside that worker", value=distant / local, unit="times")
    yield Row(
        name="remote step on an idle worker, queued to body, p50", value=percentile(waits, 50), unit="ms"
    )
    yield Row(
        name="remote step on an idle worker, queued to body, p95",
        value=percentile(waits, 95),
        unit="ms",
        goal="< 30",
        about="from the instant of the row `step.queued`, by the same clock",
    )


def _timed_runs(engine: Engine, number: int, *, is_far: bool) -> float:
    """Start runs, wait for their ends, and return how many seconds that took."""
    began = time.perf_counter()
    handles = [engine.sync.start(spread(is_far, STEPS)) for _ in range(number)]
    for handle in handles:
        handle.result(timeout=SECONDS_MAX)
    return time.perf_counter() - began


def _waits(engine: Engine, number: int) -> Iterator[float]:
    for _ in range(number):
        handle = engine.sync.start(spread(True, 1))
        (began,) = handle.result(timeout=SECONDS_MAX)
        (queued,) = (row for row in handle.history() if row.type == "step.queued")
        yield max(0.0, began - queued.at.timestamp())


@contextmanager
def _worker(url: str, key: str) -> Generator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.server.remote", url, key],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        stderr=subprocess.DEVNULL,
    )
    with process:
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)


if __name__ == "__main__":
    RemoteWorker(sys.argv[1], sys.argv[2], steps=[far], concurrency=SLOTS).run()
