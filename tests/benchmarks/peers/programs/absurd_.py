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
from protocol import (
    Left,
    Outcome,
    Work,
    asked,
    beside,
    check,
    drained,
    left_behind,
    main,
    marks,
    say,
    shuffled,
    timed,
    until,
)

POLL = 0.02
CLIENTS = 4
MARKS: list[float] = []
HEIR = False


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


async def carry(text: str, context: Any) -> str:
    async def body() -> str:
        return text

    return await context.step("echo", body)


async def slow_chain(length: int, context: Any) -> int:
    number = 0

    async def body() -> int:
        await asyncio.sleep(0.005)
        return number + 1

    for _ in range(length):
        number = await context.step("add", body)
    return number


async def approved(number: int, context: Any) -> int:
    return number + await context.await_event(f"approval-{number}")


async def long(length: int, context: Any) -> int:
    number = 0
    for _ in range(length):
        MARKS.append(time.perf_counter())
        number = await add(context, "add", number)
    MARKS.append(time.perf_counter())
    return number


async def held(length: int, context: Any) -> int:
    say("entered")
    number = 0
    for _ in range(length):
        number = await add(context, "add", number)

    async def hold() -> None:
        say("held")
        await asyncio.sleep(1 if HEIR else 3_600)

    await context.step("hold", hold)
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


TASKS: dict[str, Callable[[Any, Any], Coroutine[Any, Any, object]]] = {
    "one": one,
    "chain": chain,
    "carry": carry,
    "slow_chain": slow_chain,
    "approved": approved,
    "long": long,
    "held": held,
    "fan": fan,
    "parent": parent,
}
URL = ""


def made(url: str, *queues: str) -> Absurd:
    global URL
    URL = url
    with psycopg.connect(url) as connection:
        is_there = connection.execute("SELECT to_regclass('absurd.queues')").fetchone() != (None,)
    client = Absurd(url, queue_name="work")
    if is_there:
        return client
    program = shutil.which("absurdctl", path=str(Path(sys.executable).parent)) or "absurdctl"
    subprocess.run(
        [sys.executable, program, "init", "-d", url], check=True, capture_output=True, env={**os.environ}
    )
    for queue in queues or ("work",):
        client.create_queue(queue)
    return client


async def work_until(url: str, queue: str, at_once: int, done: asyncio.Event, *, lease: int = 120) -> None:
    clients = [AsyncAbsurd(url, queue_name=queue) for _ in range(CLIENTS)]
    for client in clients:
        for name, task in TASKS.items():
            client.register_task(name=name)(task)
    each = max(1, at_once // CLIENTS)
    running = [
        asyncio.create_task(client.start_worker(concurrency=each, poll_interval=POLL, claim_timeout=lease))
        for client in clients
    ]
    await done.wait()
    for client, task in zip(clients, running, strict=True):
        client.stop_worker()
        await task


def are_done(url: str, queue: str = "work") -> Callable[[], bool]:
    connection = psycopg.connect(url, autocommit=True)
    query = f"SELECT count(*) FROM absurd.r_{queue} WHERE state = ANY('{{pending,running,sleeping}}') LIMIT 1"

    def none_is_left() -> bool:
        row = connection.execute(query).fetchone()
        return row is not None and row[0] == 0

    return none_is_left


def worked(url: str, items: int, at_once: int) -> Outcome:
    is_done = are_done(url)

    async def work() -> None:
        done = asyncio.Event()
        task = asyncio.create_task(work_until(url, "work", at_once, done))
        while not await asyncio.to_thread(is_done):
            await asyncio.sleep(0.02)
        done.set()
        await task

    return timed(items, lambda: asyncio.run(work()))


def results(url: str, runs: int = 0) -> list[object]:
    """Return what tasks gave: all, or so many of the newest."""
    query = "SELECT completed_payload FROM absurd.t_work ORDER BY enqueue_at DESC" + f" LIMIT {runs}" * bool(
        runs
    )
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute(query).fetchall()]


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


def queued(url: str, name: str, runs: int, *arguments: object) -> None:
    made(url)
    connection = psycopg.connect(url, autocommit=True)
    client = Absurd(connection, queue_name="work")
    with connection.transaction():
        for number in range(runs):
            client.spawn(name, arguments[0] if arguments else number, queue="work")


def drainer(url: str, at_once: int) -> Generator[Work]:
    yield lambda: timed(0, lambda: asyncio.run(work_until(url, "work", at_once, asyncio.Event())))


def drain(url: str, runs: int, at_once: int, workers: int) -> Generator[Work]:
    queued(url, "one", runs)
    yield from drained(workers, url, runs, are_done(url), at_once=at_once)
    check(sorted(map(int, results(url, runs))) == list(range(1, runs + 1)), "it gave something else")


def steps(url: str, runs: int, length: int, at_once: int) -> Generator[Work]:
    queued(url, "chain", runs, length)
    yield from drained(1, url, runs * length, are_done(url), at_once=at_once)
    check(set(results(url)) == {length}, "it gave something else")


def slow_steps(url: str, runs: int, length: int, at_once: int) -> Generator[Work]:
    queued(url, "slow_chain", runs, length)
    yield from drained(1, url, runs * length, are_done(url), at_once=at_once)
    check(set(results(url)) == {length}, "it gave something else")


def values(url: str, runs: int, size: int, at_once: int) -> Generator[Work]:
    text = "x" * size
    queued(url, "carry", runs, text)
    yield from drained(1, url, runs, are_done(url), at_once=at_once)
    check(set(results(url)) == {text}, "it gave something else")


def signals(url: str, runs: int) -> Generator[Work]:
    queued(url, "approved", runs)
    own = local()

    def send(number: int) -> None:
        if not hasattr(own, "client"):
            own.client = Absurd(url, queue_name="work")
        own.client.emit_event(f"approval-{number}", 1)

    with beside("drainer", url, at_once=48) as worker, psycopg.connect(url, autocommit=True) as state:
        worker.go()
        asleep = "SELECT count(*) FROM absurd.r_work WHERE state = 'sleeping'"
        until(lambda: state.execute(asleep).fetchone() == (runs,))

        def work() -> None:
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(send, shuffled(range(runs))))
            until(are_done(url), every=0.05)

        yield lambda: timed(runs, work)
    check(sorted(map(int, results(url))) == list(range(1, runs + 1)), "it gave something else")


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
        worked(url, length, 4)
        return marks(MARKS, ends=ends)

    yield work
    check(results(url) == [length], "it gave something else")


def holder(url: str, lease: int, heir: bool) -> Generator[Work]:
    global HEIR
    HEIR = heir
    yield lambda: timed(0, lambda: asyncio.run(work_until(url, "work", 4, asyncio.Event(), lease=lease)))


def left(url: str, length: int, lease: int) -> Left:
    def taken_at() -> float:
        with psycopg.connect(url) as connection:
            row = connection.execute(
                "SELECT extract(epoch FROM max(started_at))::float8 FROM absurd.r_work"
            ).fetchone()
        return 0.0 if row is None else row[0]

    queued(url, "held", 1, length)
    with beside("holder", url, lease=lease, heir=False) as first:
        first.go()
        found = left_behind(url, first, taken_at, are_done(url), lease=lease)
    check(results(url) == [length], "it gave something else")
    return found


def takeover(url: str, length: int, lease: int) -> Generator[Work]:
    yield lambda: left(url, length, lease).takeover()


def replay(url: str, length: int, lease: int) -> Generator[Work]:
    yield lambda: left(url, length, lease).replay()


def fan_out(url: str, width: int) -> Generator[Work]:
    queued(url, "fan", 1, width)
    yield lambda: worked(url, width, 4)
    check(results(url) == [width * (width + 1) // 2], "it gave something else")


def children(url: str, width: int) -> Generator[Work]:
    client = made(url, "work", "children")
    client.spawn("parent", width, queue="work")
    is_done = are_done(url)

    async def work() -> None:
        done = asyncio.Event()
        tasks = [
            asyncio.create_task(work_until(url, "work", 4, done)),
            asyncio.create_task(work_until(url, "children", 48, done)),
        ]
        while not await asyncio.to_thread(is_done):
            await asyncio.sleep(0.005)
        done.set()
        await asyncio.gather(*tasks)

    yield lambda: timed(width, lambda: asyncio.run(work()))
    check(results(url) == [width * (width + 1) // 2], "it gave something else")


if __name__ == "__main__":
    main(
        submit,
        submit_batches,
        drain,
        drainer,
        steps,
        slow_steps,
        values,
        signals,
        latency,
        worker,
        long_run,
        replay,
        takeover,
        holder,
        fan_out,
        children,
    )
