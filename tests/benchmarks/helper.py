"""Helper process: `floor URL`; `worker URL CONCURRENCY` until its input ends; `handler URL JOB`; `imports URL`.

Each imports what it needs and nothing else, because the start of the process is measured too.
"""

import importlib
import sys

from tests.benchmarks.processes import READY


def work(url: str, concurrency: int) -> None:
    """Run a worker for runs of another process."""
    from holdfast.hosts.client.engine import Engine
    from holdfast.hosts.worker.worker import Worker
    from tests.benchmarks.programs import ALL

    with Engine.open(url, workflows=ALL.values()).sync as engine, Worker(engine, concurrency=concurrency):
        print(READY, flush=True)
        sys.stdin.read()


def handle_job(url: str, job: str) -> None:
    """Handle the message of a job, as a serverless function. RuntimeError if it was not handled."""
    from holdfast import Engine, ServerlessHost
    from tests.benchmarks.programs import ALL

    engine = Engine.open(url, workflows=ALL.values())
    outcome = ServerlessHost(engine, time_limit=60).handle_job({"job_id": job, "epoch": 0})
    if not outcome.acknowledge:
        raise RuntimeError(f"the job was not handled: {outcome}")
    print(READY, flush=True)


def connect(url: str) -> None:
    """Import the libraries that Holdfast needs, and connect."""
    for name in ("anyio", "attrs", "cattrs"):
        importlib.import_module(name)
    import sqlalchemy

    driver = "postgresql+psycopg://" if url.startswith("postgresql://") else ""
    address = f"{driver}{url.removeprefix('postgresql://')}" if driver else url
    with sqlalchemy.create_engine(address).connect() as connection:
        connection.execute(sqlalchemy.text("SELECT 1"))
        print(READY, flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["floor", url]:
            from tests.benchmarks.floors import serve

            serve(url)
        case ["worker", url, concurrency]:
            work(url, int(concurrency))
        case ["handler", url, job]:
            handle_job(url, job)
        case ["imports", url]:
            connect(url)
        case wrong:
            raise SystemExit(f"unknown: {wrong}")
