"""Procrastinate: a queue of jobs. An async worker that is told by LISTEN and NOTIFY."""

import asyncio
import time
from collections.abc import Generator

import psycopg
from procrastinate import App, PsycopgConnector
from protocol import Outcome, Work, asked, beside, check, main, several, timed

SUM = 0


def app_of(url: str, *, pool: int = 20) -> App:
    app = App(connector=PsycopgConnector(conninfo=url, min_size=1, max_size=pool))

    @app.task(name="one", queue="work")
    async def one(number: int) -> int:
        global SUM
        SUM += number + 1
        return number + 1

    return app


async def made(url: str) -> None:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT to_regclass('procrastinate_jobs')").fetchone()
    if row == (None,):
        async with app_of(url).open_async() as app:
            await app.schema_manager.apply_schema_async()


def count(url: str, status: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM procrastinate_jobs WHERE status = %s", (status,)
        ).fetchone()
    return 0 if row is None else row[0]


def submit(url: str, runs: int, threads: int) -> Generator[Work]:
    asyncio.run(made(url))

    async def store() -> Outcome:
        async with app_of(url, pool=threads).open_async() as app:
            one = app.tasks["one"]
            left = iter(range(runs))

            async def some() -> None:
                for number in left:
                    await one.defer_async(number=number)

            began_at = time.perf_counter()
            await asyncio.gather(*(some() for _ in range(threads)))
            return Outcome(runs, time.perf_counter() - began_at)

    yield lambda: asyncio.run(store())
    check(count(url, "todo") == runs, "not all were stored")


async def stored(url: str, runs: int, batch: int) -> float:
    async with app_of(url).open_async() as app:
        one = app.tasks["one"]
        began_at = time.perf_counter()
        for first in range(0, runs, batch):
            await one.batch_defer_async(
                *({"number": number} for number in range(first, min(first + batch, runs)))
            )
        return time.perf_counter() - began_at


def submit_batches(url: str, runs: int, batch: int) -> Generator[Work]:
    asyncio.run(made(url))
    yield lambda: Outcome(runs, asyncio.run(stored(url, runs, batch)))
    check(count(url, "todo") == runs, "not all were stored")


def drainer(url: str, at_once: int) -> Generator[Work]:
    async def drain_all() -> None:
        async with app_of(url, pool=at_once).open_async() as app:
            await app.run_worker_async(
                queues=["work"], concurrency=at_once, wait=False, install_signal_handlers=False
            )

    def work() -> Outcome:
        outcome = timed(0, lambda: asyncio.run(drain_all()))
        outcome.more["sum"] = SUM
        return outcome

    yield work


def drain(url: str, runs: int, at_once: int, workers: int) -> Generator[Work]:
    asyncio.run(made(url))
    before = count(url, "succeeded")
    asyncio.run(stored(url, runs, min(runs, 100)))
    with several(workers, "drainer", url, at_once=at_once) as processes:
        total = 0.0

        def work() -> None:
            nonlocal total
            for process in processes:
                process.go()
            total = sum(process.outcome().more["sum"] for process in processes)

        yield lambda: timed(runs, work)
    done = count(url, "succeeded") - before
    check((done, total) == (runs, runs * (runs + 1) // 2), "it did something else")


def worker(url: str) -> Generator[Work]:
    import threading

    async def work() -> None:
        async with app_of(url).open_async() as app:
            await app.run_worker_async(queues=["work"], concurrency=16, install_signal_handlers=False)

    threading.Thread(target=lambda: asyncio.run(work()), daemon=True).start()
    time.sleep(2)
    yield lambda: Outcome(0, 0.0)


def latency(url: str, times: int) -> Generator[Work]:
    """It has no call that waits for an end: the job's row is asked for every two milliseconds."""
    asyncio.run(made(url))
    loop = asyncio.new_event_loop()
    app = app_of(url)
    loop.run_until_complete(app.open_async())
    connection = psycopg.connect(url, autocommit=True)

    def ask(number: int) -> None:
        job = loop.run_until_complete(app.tasks["one"].defer_async(number=number))
        while True:
            row = connection.execute(
                "SELECT status::text FROM procrastinate_jobs WHERE id = %s", (job,)
            ).fetchone()
            if row is not None and row[0] == "succeeded":
                return
            time.sleep(0.002)

    with beside("worker", url):
        asked(10, ask)
        yield lambda: asked(times, ask)
    loop.run_until_complete(app.close_async())


if __name__ == "__main__":
    main(submit, submit_batches, drain, drainer, latency, worker)
