"""Edda: `start` runs a workflow in the caller, so its drain is start and run, so many at once."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import uvloop
from edda import EddaApp, WorkflowContext, activity, workflow
from protocol import Outcome, Work, check, main, marks, several

MARKS: list[float] = []
RESULTS: list[int] = []
logging.disable(logging.ERROR)


@activity
async def add(ctx: WorkflowContext, number: int) -> int:
    return number + 1


@workflow
async def one(ctx: WorkflowContext, number: int) -> int:
    RESULTS.append(await add(ctx, number))
    return RESULTS[-1]


@workflow
async def chain(ctx: WorkflowContext, length: int) -> int:
    number = 0
    for _ in range(length):
        number = await add(ctx, number)
    RESULTS.append(number)
    return number


@workflow
async def long(ctx: WorkflowContext, length: int) -> int:
    number = 0
    for _ in range(length):
        MARKS.append(time.perf_counter())
        number = await add(ctx, number)
    MARKS.append(time.perf_counter())
    RESULTS.append(number)
    return number


@workflow
async def fan(ctx: WorkflowContext, width: int) -> int:
    calls = (add(ctx, number, activity_id=f"add:{number}") for number in range(width))
    RESULTS.append(sum(await asyncio.gather(*calls)))
    return RESULTS[-1]


def run_all(
    url: str, start: Callable[[int], Coroutine[Any, Any, str]], runs: int, at_once: int, items: int
) -> Work:
    async def work() -> Outcome:
        app = EddaApp(
            service_name="bench",
            db_url=url.replace("postgresql://", "postgresql+asyncpg://"),
            pool_size=min(at_once, 100),
            pool_pre_ping=False,
        )
        await app.initialize()
        await one.start(number=0)  # the first starts of a workflow fail if they come together
        await start(1)
        RESULTS.clear()
        MARKS.clear()
        left = iter(range(runs))

        async def some() -> None:
            for number in left:
                await start(number)

        began_at = time.perf_counter()
        await asyncio.gather(*(some() for _ in range(at_once)))
        seconds = time.perf_counter() - began_at
        await app.shutdown()
        return Outcome(items, seconds)

    return lambda: uvloop.run(work())


def drainer(url: str, runs: int, at_once: int) -> Generator[Work]:
    yield run_all(url, lambda number: one.start(number=number), runs, at_once, runs)
    check(sorted(RESULTS) == list(range(1, runs + 1)), "it gave something else")


def drain(url: str, runs: int, at_once: int, workers: int) -> Generator[Work]:
    """Each of the workers starts its share."""
    share = runs // workers
    with several(workers, "drainer", url, runs=share, at_once=at_once) as processes:

        def work() -> Outcome:
            for process in processes:
                process.go()
            return Outcome(share * workers, max(process.outcome().seconds for process in processes))

        yield work


def steps(url: str, runs: int, length: int, at_once: int) -> Generator[Work]:
    yield run_all(url, lambda _: chain.start(length=length), runs, at_once, runs * length)
    check([length] * runs == RESULTS, "it gave something else")


def long_run(url: str, length: int, ends: int) -> Generator[Work]:
    run = run_all(url, lambda number: long.start(length=1 if number else length), 1, 1, length)

    def work() -> Outcome:
        run()
        return marks(MARKS, ends=ends)

    yield work
    check([length] == RESULTS, "it gave something else")


def fan_out(url: str, width: int) -> Generator[Work]:
    yield run_all(url, lambda number: fan.start(width=1 if number else width), 1, 20, width)
    check([width * (width + 1) // 2] == RESULTS, "it gave something else")


if __name__ == "__main__":
    main(drain, drainer, steps, long_run, fan_out)
