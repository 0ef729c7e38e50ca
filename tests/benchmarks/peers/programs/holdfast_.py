"""Holdfast: durable functions with inline steps, as the tutorial has them, with the settings that it comes with.

A process has Python look for garbage seldom, as `docs/howto/workers.md` says of one with a worker beside other code.
"""

import asyncio
import gc
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import psycopg
from protocol import (
    Left,
    Outcome,
    Work,
    asked,
    beside,
    check,
    drained,
    fired,
    instant_ahead,
    left_behind,
    main,
    marks,
    say,
    shuffled,
    timed,
    until,
)

from holdfast import Channel, Cron, Engine, Every, Schedule, SyncEngine, Worker, step, workflow
from holdfast.client import RunStatus
from holdfast.workflows import Call

SOON = timedelta(seconds=300)
MARKS: list[float] = []
HEIR = False
SEEN: list[float] = []
T = TypeVar("T")


@step
async def add(number: int) -> int:
    return number + 1


@workflow
async def one(number: int) -> int:
    return await add(number)


@workflow
async def chain(length: int) -> int:
    number = 0
    for _ in range(length):
        number = await add(number)
    return number


@workflow
async def long(length: int) -> int:
    number = 0
    for _ in range(length):
        MARKS.append(time.perf_counter())
        number = await add(number)
    MARKS.append(time.perf_counter())
    return number


@step
async def hold() -> None:
    """Say that all before it is done, and wait: for a signal that nobody survives, or a second."""
    say("held")
    await asyncio.sleep(1 if HEIR else 3_600)


@workflow
async def held(length: int) -> int:
    say("entered")
    number = 0
    for _ in range(length):
        number = await add(number)
    await hold()
    return number


@workflow
async def fan(width: int) -> int:
    return sum(await asyncio.gather(*(add(number) for number in range(width))))


@workflow
async def parent(width: int) -> int:
    return sum(await asyncio.gather(*(one(number) for number in range(width))))


@step
async def echo(text: str) -> str:
    return text


@workflow
async def carry(text: str) -> str:
    return await echo(text)


@step
async def add_slowly(number: int) -> int:
    await asyncio.sleep(0.005)
    return number + 1


@workflow
async def slow_chain(length: int) -> int:
    number = 0
    for _ in range(length):
        number = await add_slowly(number)
    return number


approvals = Channel("approvals", int)


@workflow
async def approved(number: int) -> int:
    return number + await approvals.receive()


@step
async def note() -> None:
    SEEN.append(time.time())


@workflow
async def scheduled() -> None:
    await note()


def engine_of(url: str) -> Engine:
    engine = Engine.open(url, workflows=[one, chain, long, held, fan, parent, carry, slow_chain, approved])
    engine.sync.count()  # the tables are there
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)
    return engine


def under_way(engine: SyncEngine) -> int:
    return sum(engine.count(status=(RunStatus.PENDING, RunStatus.RUNNING)).values())


def submit(url: str, runs: int, threads: int) -> Generator[Work]:
    with engine_of(url).sync as engine:

        def work() -> Outcome:
            with ThreadPoolExecutor(threads) as pool:
                return timed(
                    runs, lambda: list(pool.map(lambda number: engine.start(one(number)), range(runs)))
                )

        yield work
        check(sum(engine.count().values()) == runs, "not all were stored")


def submit_batches(url: str, runs: int, batch: int) -> Generator[Work]:
    with engine_of(url).sync as engine:

        def store() -> None:
            for first in range(0, runs, batch):
                engine.start_all([one(number) for number in range(first, first + batch)])

        yield lambda: timed(runs, store)
        check(sum(engine.count().values()) == runs, "not all were stored")


def drainer(url: str, at_once: int) -> Generator[Work]:
    with engine_of(url).sync as engine:

        def work() -> None:
            with Worker(engine, concurrency=at_once):
                time.sleep(3_600)

        yield lambda: timed(0, work)


def drain(url: str, runs: int, at_once: int, workers: int) -> Generator[Work]:
    with engine_of(url).sync as engine:
        handles = [
            handle
            for first in range(0, runs, 100)
            for handle in engine.start_all([one(number) for number in range(first, min(first + 100, runs))])
        ]

        yield from drained(workers, url, runs, lambda: not under_way(engine), at_once=at_once)
        check([one.result() for one in handles] == list(range(1, runs + 1)), "it gave something else")


def steps(url: str, runs: int, length: int, at_once: int) -> Generator[Work]:
    yield from worked(url, [chain(length)] * runs, length, runs * length, at_once)


def slow_steps(url: str, runs: int, length: int, at_once: int) -> Generator[Work]:
    yield from worked(url, [slow_chain(length)] * runs, length, runs * length, at_once)


def values(url: str, runs: int, size: int, at_once: int) -> Generator[Work]:
    text = "x" * size
    yield from worked(url, [carry(text)] * runs, text, runs, at_once)


def worked(url: str, calls: list[Call[T]], result: T, items: int, at_once: int) -> Generator[Work]:
    """Do runs that all have the same result."""
    with engine_of(url).sync as engine:
        handles = [one for at in range(0, len(calls), 20) for one in engine.start_all(calls[at : at + 20])]

        def work() -> None:
            with Worker(engine, concurrency=at_once):
                until(lambda: not under_way(engine), every=0.05)

        yield lambda: timed(items, work)
        check([one.result() for one in handles] == [result] * len(calls), "it gave something else")


def signals(url: str, runs: int) -> Generator[Work]:
    def wait(connection: psycopg.Connection[Any]) -> bool:
        row = connection.execute(
            "SELECT count(*) FROM holdfast_jobs WHERE state IN ('queued', 'leased')"
        ).fetchone()
        return row == (0,)

    with engine_of(url).sync as engine, beside("worker", url), psycopg.connect(url, autocommit=True) as state:
        handles = engine.start_all([approved(number) for number in range(runs)])
        until(lambda: wait(state))

        def work() -> None:
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda one: one.signal(approvals(1)), shuffled(handles)))
            until(lambda: not under_way(engine), every=0.05)

        yield lambda: timed(runs, work)
        check([one.result() for one in handles] == list(range(1, runs + 1)), "it gave something else")


def worker(url: str) -> Generator[Work]:
    with engine_of(url).sync as engine, Worker(engine):
        yield lambda: Outcome(0, 0.0)


def latency(url: str, times: int) -> Generator[Work]:
    with engine_of(url).sync as engine:

        def ask(number: int) -> None:
            check(engine.run(one(number)) == number + 1, "it gave something else")

        with beside("worker", url):
            asked(10, ask)
            yield lambda: asked(times, ask)


def long_run(url: str, length: int, ends: int) -> Generator[Work]:
    with engine_of(url).sync as engine, Worker(engine):

        def work() -> Outcome:
            check(engine.start(long(length)).result(timeout=SOON) == length, "it gave something else")
            return marks(MARKS, ends=ends)

        yield work


def holder(url: str, lease: int, heir: bool) -> Generator[Work]:
    global HEIR
    HEIR = heir
    with engine_of(url).sync as engine:

        def work() -> None:
            with Worker(engine, lease=lease):
                time.sleep(3_600)

        yield lambda: timed(0, work)


def left(url: str, length: int, lease: int) -> Left:
    def taken_at() -> float:
        with psycopg.connect(url) as connection:
            row = connection.execute("SELECT leased_at FROM holdfast_jobs").fetchone()
        return 0.0 if row is None else row[0] / 1e6

    with engine_of(url).sync as engine, beside("holder", url, lease=lease, heir=False) as first:
        first.go()
        handle = engine.start(held(length))
        found = left_behind(url, first, taken_at, lambda: not under_way(engine), lease=lease)
        check(handle.result() == length, "it gave something else")
        return found


def takeover(url: str, length: int, lease: int) -> Generator[Work]:
    yield lambda: left(url, length, lease).takeover()


def replay(url: str, length: int, lease: int) -> Generator[Work]:
    yield lambda: left(url, length, lease).replay()


def fan_out(url: str, width: int) -> Generator[Work]:
    with engine_of(url).sync as engine, Worker(engine):
        engine.run(fan(1))
        total = width * (width + 1) // 2
        yield lambda: timed(width, lambda: check(engine.run(fan(width)) == total, "it gave something else"))


def children(url: str, width: int) -> Generator[Work]:
    with engine_of(url).sync as engine, Worker(engine):
        engine.run(parent(1))
        total = width * (width + 1) // 2
        yield lambda: timed(
            width, lambda: check(engine.run(parent(width)) == total, "it gave something else")
        )


def schedules(url: str, due: int, others: int) -> Generator[Work]:
    yearly = Cron("0 0 1 1 *", zone="UTC")
    later = [Schedule(f"other-{number}", scheduled(), when=yearly) for number in range(others)]
    with Engine.open(url, workflows=[scheduled], schedules=later).sync as engine:
        engine.count()  # the schedules are there
    at = instant_ahead(10 + due / 100)
    hourly = Every(timedelta(hours=1), anchor=datetime.fromtimestamp(at, UTC))
    now = [Schedule(f"due-{number}", scheduled(), when=hourly) for number in range(due)]
    with Engine.open(url, workflows=[scheduled], schedules=now, migrate=False).sync as engine:
        engine.apply_schedules(prune=False)
        with Worker(engine, concurrency=200):
            yield lambda: fired(SEEN, due, at)


if __name__ == "__main__":
    main(
        schedules,
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
