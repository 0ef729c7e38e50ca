"""Absurd: async tasks; four clients in a worker, each with a connection of its own, that poll every 20 ms."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import local
from typing import Any

import psycopg
from absurd_sdk import Absurd, AsyncAbsurd
from protocol import Outcome, Work, asked, beside, check, main, marks, timed

POLL = 0.02
CLIENTS = 4
MARKS: list[float] = []


async def add(context: Any, name: str, number: int) -> int:
    async def body() -> int:
        return number + 1

    return await context.step(name, body)


async def one(number: int, context: Any) -> int:
    return await add(context, "add", number)


async def chain(length: int, context: Any) -> int:
    number = 0
    for _ in range(length):
        number = await add(context, "add", number)
    return number


async def long(length: int, context: Any) -> int:
    number = 0
    for _ in range(length):
        MARKS.append(time.perf_counter())
        number = await add(context, "add", number)
    MARKS.append(time.perf_counter())
    return number


async def fan(width: int, context: Any) -> int:
    return sum(await asyncio.gather(*(add(context, f"add-{number}", number) for number in range(width))))


async def parent(width: int, context: Any) -> int:
    spawner = AsyncAbsurd(URL, queue_name="children")

    async def spawn() -> list[str]:
        made = [await spawner.spawn("one", number, queue="children") for number in range(width)]
        return [str(one["task_id"]) for one in made]

    total = 0
    for task in await context.step("spawn", spawn):
        snapshot = await context.await_task_result(task, queue_name="children", step_name=f"result-{task}")
        total += snapshot.result
    return total


TASKS: dict[str, Callable[[int, Any], Coroutine[Any, Any, int]]] = {
    "one": one,
    "chain": chain,
    "long": long,
    "fan": fan,
    "parent": parent,
}
URL = ""


def made(url: str, *queues: str) -> Absurd:
    global URL
    URL = url
    program = shutil.which("absurdctl", path=str(Path(sys.executable).parent)) or "absurdctl"
    subprocess.run(
        [sys.executable, program, "init", "-d", url], check=True, capture_output=True, env={**os.environ}
    )
    client = Absurd(url, queue_name="work")
    for queue in queues or ("work",):
        client.create_queue(queue)
    return client


async def work_until(url: str, queue: str, at_once: int, done: asyncio.Event) -> None:
    clients = [AsyncAbsurd(url, queue_name=queue) for _ in range(CLIENTS)]
    for client in clients:
        for name, task in TASKS.items():
            client.register_task(name=name)(task)
    each = max(1, at_once // CLIENTS)
    running = [
        asyncio.create_task(client.start_worker(concurrency=each, poll_interval=POLL)) for client in clients
    ]
    await done.wait()
    for client, task in zip(clients, running, strict=True):
        client.stop_worker()
        await task


def counted(url: str, runs: int, queue: str = "work") -> Callable[[], bool]:
    connection = psycopg.connect(url, autocommit=True)

    def are_done() -> bool:
        row = connection.execute(
            f"SELECT count(*) FROM absurd.t_{queue} WHERE state = 'completed'"
        ).fetchone()
        return row is not None and row[0] >= runs

    return are_done


def worked(url: str, runs: int, items: int, at_once: int) -> Outcome:
    are_done = counted(url, runs)

    async def work() -> None:
        done = asyncio.Event()
        task = asyncio.create_task(work_until(url, "work", at_once, done))
        while not await asyncio.to_thread(are_done):
            await asyncio.sleep(0.02)
        done.set()
        await task

    return timed(items, lambda: asyncio.run(work()))


def results(url: str) -> list[object]:
    with psycopg.connect(url) as connection:
        return [
            row[0]
            for row in connection.execute("SELECT completed_payload FROM absurd.t_work ORDER BY 1").fetchall()
        ]


def submit(url: str, runs: int, threads: int) -> Generator[Work]:
    made(url)
    own = local()

    def store(number: int) -> None:
        if not hasattr(own, "client"):
            own.client = Absurd(url, queue_name="work")
        own.client.spawn("one", number, queue="work")

    def work() -> Outcome:
        with ThreadPoolExecutor(threads) as pool:
            return timed(runs, lambda: list(pool.map(store, range(runs))))

    yield work
    check(len(results(url)) == runs, "not all were stored")


def submit_batches(url: str, runs: int, batch: int) -> Generator[Work]:
    made(url)
    connection = psycopg.connect(url, autocommit=True)
    client = Absurd(connection, queue_name="work")

    def store() -> None:
        for first in range(0, runs, batch):
            with connection.transaction():
                for number in range(first, first + batch):
                    client.spawn("one", number, queue="work")

    yield lambda: timed(runs, store)
    check(len(results(url)) == runs, "not all were stored")


def queued(url: str, name: str, runs: int, *arguments: int) -> None:
    made(url)
    connection = psycopg.connect(url, autocommit=True)
    client = Absurd(connection, queue_name="work")
    with connection.transaction():
        for number in range(runs):
            client.spawn(name, arguments[0] if arguments else number, queue="work")


def drain(url: str, runs: int, at_once: int) -> Generator[Work]:
    queued(url, "one", runs)
    yield lambda: worked(url, runs, runs, at_once)
    check(sorted(map(int, results(url))) == list(range(1, runs + 1)), "it gave something else")


def steps(url: str, runs: int, length: int, at_once: int) -> Generator[Work]:
    queued(url, "chain", runs, length)
    yield lambda: worked(url, runs, runs * length, at_once)
    check(set(results(url)) == {length}, "it gave something else")


def worker(url: str) -> Generator[Work]:
    import threading

    threading.Thread(
        target=lambda: asyncio.run(work_until(url, "work", 16, asyncio.Event())), daemon=True
    ).start()
    yield lambda: Outcome(0, 0.0)


def latency(url: str, times: int) -> Generator[Work]:
    client = made(url)

    def ask(number: int) -> None:
        task = client.spawn("one", number, queue="work")["task_id"]
        snapshot = client.await_task_result(task)
        check(snapshot.result == number + 1, "it gave something else")

    with beside("worker", url):
        asked(10, ask)
        yield lambda: asked(times, ask)


def long_run(url: str, length: int, ends: int) -> Generator[Work]:
    queued(url, "long", 1, length)

    def work() -> Outcome:
        outcome = worked(url, 1, length, 4)
        outcome.more = marks(MARKS, ends=ends)
        return outcome

    yield work
    check(results(url) == [length], "it gave something else")


def fan_out(url: str, width: int) -> Generator[Work]:
    queued(url, "fan", 1, width)
    yield lambda: worked(url, 1, width, 4)
    check(results(url) == [width * (width + 1) // 2], "it gave something else")


def children(url: str, width: int) -> Generator[Work]:
    client = made(url, "work", "children")
    client.spawn("parent", width, queue="work")
    are_done = counted(url, 1)

    async def work() -> None:
        done = asyncio.Event()
        tasks = [
            asyncio.create_task(work_until(url, "work", 4, done)),
            asyncio.create_task(work_until(url, "children", 48, done)),
        ]
        while not await asyncio.to_thread(are_done):
            await asyncio.sleep(0.005)
        done.set()
        await asyncio.gather(*tasks)

    yield lambda: timed(width, lambda: asyncio.run(work()))
    check(results(url) == [width * (width + 1) // 2], "it gave something else")


if __name__ == "__main__":
    main(submit, submit_batches, drain, steps, latency, long_run, fan_out, children, worker)
