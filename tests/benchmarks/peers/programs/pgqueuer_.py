"""PgQueuer: a queue of jobs, in batches of a hundred, on asyncpg and uvloop."""

import asyncio
import time
from collections.abc import Generator
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.core.completion import CompletionWatcher
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode
from protocol import Outcome, Work, beside, check, main, several, timed

BATCH = 100
SUM = 0
PAUSE = 0.01


async def made(url: str) -> None:
    connection = await asyncpg.connect(url)
    if await connection.fetchval("SELECT to_regclass('pgqueuer')") is None:
        await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def count(url: str) -> int:
    connection = await asyncpg.connect(url)
    row = await connection.fetchval("SELECT count(*) FROM pgqueuer")
    await connection.close()
    return int(row)


def submit(url: str, runs: int, threads: int) -> Generator[Work]:
    uvloop.run(made(url))

    async def store() -> Outcome:
        async with asyncpg.create_pool(url, min_size=threads, max_size=threads) as pool:
            queries = Queries(AsyncpgPoolDriver(pool))
            left = iter(range(runs))

            async def some() -> None:
                for number in left:
                    await queries.enqueue("one", str(number).encode())

            began_at = time.perf_counter()
            await asyncio.gather(*(some() for _ in range(threads)))
            return Outcome(runs, time.perf_counter() - began_at)

    yield lambda: uvloop.run(store())
    check(uvloop.run(count(url)) == runs, "not all were stored")


async def stored(url: str, runs: int, batch: int) -> float:
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    began_at = time.perf_counter()
    for first in range(0, runs, batch):
        numbers = range(first, min(first + batch, runs))
        await queries.enqueue(
            ["one"] * len(numbers), [str(number).encode() for number in numbers], [0] * len(numbers)
        )
    seconds = time.perf_counter() - began_at
    await connection.close()
    return seconds


def submit_batches(url: str, runs: int, batch: int) -> Generator[Work]:
    uvloop.run(made(url))
    yield lambda: Outcome(runs, uvloop.run(stored(url, runs, batch)))
    check(uvloop.run(count(url)) == runs, "not all were stored")


async def work_on(url: str, mode: QueueExecutionMode, batch: int) -> None:
    connection = await asyncpg.connect(url)
    queuer = PgQueuer(AsyncpgDriver(connection))

    @queuer.entrypoint("one")
    async def one(job: Job) -> None:
        global SUM
        SUM += int(job.payload or b"0") + 1

    await queuer.qm.run(batch_size=batch, mode=mode, dequeue_timeout=timedelta(seconds=1))
    await connection.close()


def drainer(url: str) -> Generator[Work]:
    def work() -> Outcome:
        outcome = timed(0, lambda: uvloop.run(work_on(url, QueueExecutionMode.drain, BATCH)))
        outcome.more["sum"] = SUM
        return outcome

    yield work


def drain(url: str, runs: int, at_once: int, workers: int) -> Generator[Work]:
    del at_once  # it has no limit: a batch at a time
    uvloop.run(made(url))
    uvloop.run(stored(url, runs, BATCH))
    with several(workers, "drainer", url) as processes:
        total = 0.0

        def work() -> None:
            nonlocal total
            for process in processes:
                process.go()
            total = sum(process.outcome().more["sum"] for process in processes)

        yield lambda: timed(runs, work)
    check((uvloop.run(count(url)), total) == (0, runs * (runs + 1) // 2), "it did something else")


def worker(url: str) -> Generator[Work]:
    import threading

    def work() -> None:
        uvloop.run(work_on(url, QueueExecutionMode.continuous, 10))

    threading.Thread(target=work, daemon=True).start()
    time.sleep(2)
    yield lambda: Outcome(0, 0.0)


def latency(url: str, times: int) -> Generator[Work]:
    uvloop.run(made(url))

    async def ask() -> Outcome:
        connection = await asyncpg.connect(url)
        driver = AsyncpgDriver(await asyncpg.connect(url))
        queries = Queries(AsyncpgDriver(connection))
        latencies: list[float] = []
        async with CompletionWatcher(driver, queries=Queries(driver)) as watcher:
            for number in range(times + 10):
                await asyncio.sleep(PAUSE)
                began_at = time.perf_counter()
                (job,) = await queries.enqueue("one", str(number).encode())
                check(await watcher.wait_for(job) == "successful", "it failed")
                latencies.append(time.perf_counter() - began_at)
        return Outcome(times, sum(latencies[10:]), latencies[10:])

    with beside("worker", url):
        yield lambda: uvloop.run(ask())


if __name__ == "__main__":
    main(submit, submit_batches, drain, drainer, latency, worker)
