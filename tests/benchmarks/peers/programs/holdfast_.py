"""Holdfast: durable functions with inline steps, as the tutorial has them, with the settings that it comes with."""

import asyncio
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from protocol import Outcome, Work, asked, beside, check, main, marks, timed, until

from holdfast import Engine, RunStatus, Worker, step, workflow

SOON = timedelta(seconds=300)
MARKS: list[float] = []


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


@workflow
async def fan(width: int) -> int:
    return sum(await asyncio.gather(*(add(number) for number in range(width))))


@workflow
async def parent(width: int) -> int:
    return sum(await asyncio.gather(*(one(number) for number in range(width))))


def engine_of(url: str) -> Engine:
    engine = Engine.open(url, workflows=[one, chain, long, fan, parent])
    engine.sync.count()  # the tables are there
    return engine


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


def drain(url: str, runs: int, at_once: int) -> Generator[Work]:
    with engine_of(url).sync as engine:
        handles = [
            handle
            for first in range(0, runs, 100)
            for handle in engine.start_all([one(number) for number in range(first, min(first + 100, runs))])
        ]

        def work() -> None:
            with Worker(engine, concurrency=at_once):
                until(lambda: engine.count(status="completed")[RunStatus.COMPLETED] == runs, every=0.05)

        yield lambda: timed(runs, work)
        check([one.result() for one in handles] == list(range(1, runs + 1)), "it gave something else")


def steps(url: str, runs: int, length: int, at_once: int) -> Generator[Work]:
    with engine_of(url).sync as engine:
        handles = engine.start_all([chain(length) for _ in range(runs)])

        def work() -> None:
            with Worker(engine, concurrency=at_once):
                check(
                    [one.result(timeout=SOON) for one in handles] == [length] * runs, "it gave something else"
                )

        yield lambda: timed(runs * length, work)


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
            outcome = timed(
                length, lambda: check(engine.run(long(length)) == length, "it gave something else")
            )
            outcome.more = marks(MARKS, ends=ends)
            return outcome

        yield work


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


if __name__ == "__main__":
    main(submit, submit_batches, drain, steps, latency, long_run, fan_out, children, worker)
