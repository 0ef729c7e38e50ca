"""Holdfast through a real PgBouncer in transaction mode, on machines that have one."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from holdfast import Engine, Pipeline, ServerlessHost, Worker, sleep, stage, step, workflow

SETTINGS = """
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
auth_type = any
pool_mode = transaction
default_pool_size = 2
unix_socket_dir =
"""

needs_pgbouncer = pytest.mark.skipif(shutil.which("pgbouncer") is None, reason="no pgbouncer on this machine")


@stage
def numbers(count: int) -> list[int]:
    return list(range(count))


@stage
def double(number: int) -> int:
    return 2 * number


@stage
def total(doubled: list[int]) -> int:
    return sum(doubled)


pooled = Pipeline("pooled", input=int).pipe(numbers).map(double).pipe(total)


@contextmanager
def pgbouncer(url: str) -> Generator[str]:
    """Start a PgBouncer in front of a server; yield the URL through it."""
    server = urlsplit(url)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = int(free.getsockname()[1])
    folder = Path(tempfile.mkdtemp(prefix="holdfast-pgbouncer-"))
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        SETTINGS.format(host=server.hostname, port=server.port, user=server.username, listen=listen)
    )
    folder.chmod(0o755)
    process = subprocess.Popen(
        ["pgbouncer", "-q", str(settings)],
        user="nobody" if os.geteuid() == 0 else None,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(listen)
        yield f"postgresql://{server.username}@127.0.0.1:{listen}{server.path}"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)


def _wait_for(port: int) -> None:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise TimeoutError("pgbouncer does not answer")


@needs_pgbouncer
@pytest.mark.anyio
async def test_runs_go_through_a_pooler_in_transaction_mode(postgres_database: str) -> None:
    """Migrations, starts, work and waits share two server connections."""
    with pgbouncer(postgres_database) as url:
        async with Engine.open(url, workflows=[pooled]) as engine, Worker(engine, concurrency=50):
            runs = [await engine.start(pooled(count)) for count in range(20)]
            results = [await run.result(timeout=timedelta(seconds=30)) for run in runs]

    assert results == [count * (count - 1) for count in range(20)]


@step
async def plus(x: int, y: int) -> int:
    return x + y


@workflow
async def summed(count: int) -> int:
    total_of = 0
    for number in range(count):
        total_of = await plus(total_of, number)
    await sleep(0.01)
    return total_of


@needs_pgbouncer
def test_functions_go_through_a_pooler_in_transaction_mode(postgres_database: str) -> None:
    """Several concurrent ones, each for a message, and the timer: none keeps session state on the server."""
    with pgbouncer(postgres_database) as url:
        engines = [Engine.open(url, workflows=[pooled, summed]) for _ in range(5)]
        runs = engines[0].sync
        started = [runs.start(pooled(count)) for count in range(5)]
        started += [runs.start(summed(count)) for count in range(5)]

        def functions(engine: Engine) -> None:
            host = ServerlessHost(engine, time_limit=60)
            while any(run.info().ended_at is None for run in started):
                host.process_available_jobs(max_jobs=10)
                host.run_maintenance_tick()

        with ThreadPoolExecutor(len(engines)) as threads:
            for _ in threads.map(functions, engines):
                pass
        results = [run.result(timeout=120) for run in started]
        for engine in engines:
            engine.core.close()

    assert results == [
        *(count * (count - 1) for count in range(5)),
        *(sum(range(count)) for count in range(5)),
    ]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
