"""Helper process: `floor URL`, or `worker URL CONCURRENCY` until its input ends."""

import sys

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.worker.worker import Worker
from tests.benchmarks.floors import serve
from tests.benchmarks.processes import READY
from tests.benchmarks.programs import ALL


def work(url: str, concurrency: int) -> None:
    """Run a worker for runs of another process."""
    with Engine.open(url, workflows=ALL.values()).sync as engine, Worker(engine, concurrency=concurrency):
        print(READY, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    if sys.argv[1] == "floor":
        serve(sys.argv[2])
    else:
        work(sys.argv[2], int(sys.argv[3]))
