"""DBOS: workflows of sync steps in threads, as its documentation has them; queues polled every 10 ms."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from dbos import DBOS, DBOSClient
from protocol import (
    Outcome,
    Work,
    asked,
    beside,
    check,
    drained,
    fired,
    heard,
    instant_ahead,
    main,
    marks,
    say,
    shuffled,
    timed,
    until,
)

POLL = 0.01
MARKS: list[float] = []
HEIR = False
SEEN: list[float] = []


@DBOS.step()
def add(number: int) -> int:
    return number + 1


@DBOS.workflow()
def one(number: int) -> int:
    return add(number)


@DBOS.workflow()
def chain(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = add(number)
    return number


@DBOS.workflow()
def long(steps: int) -> int:
    number = 0
    for _ in range(steps):
        MARKS.append(time.perf_counter())
        number = add(number)
    MARKS.append(time.perf_counter())
    return number


@DBOS.step()
def echo(text: str) -> str:
    return text


@DBOS.workflow()
def carry(text: str) -> str:
    return echo(text)


@DBOS.step()
def add_slowly(number: int) -> int:
    time.sleep(0.005)
    return number + 1


@DBOS.workflow()
def slow_chain(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = add_slowly(number)
    return number


@DBOS.workflow()
def approved(number: int) -> int:
    return number + DBOS.recv("approvals", timeout_seconds=300)


@DBOS.step()
def hold() -> None:
    say("held")
    time.sleep(3_600 if not HEIR else 0)


@DBOS.workflow()
def held(length: int) -> int:
    say("entered")
    number = 0
    for _ in range(length):
        number = add(number)
    hold()
    return number


@DBOS.step()
async def add_async(number: int) -> int:
    return number + 1


@DBOS.workflow()
async def fan(width: int) -> int:
    return sum(await asyncio.gather(*(add_async(number) for number in range(width))))


@DBOS.workflow()
def parent(width: int) -> int:
    handles = [DBOS.start_workflow(one, number) for number in range(width)]
    return sum(handle.get_result(polling_interval_sec=POLL) for handle in handles)


def launched(url: str, *, threads: int, queued: int | None = None, executor: str = "local") -> None:
    """Launch it. Executors of one name take each other's runs for their own of before."""
    logging.getLogger("dbos").setLevel(logging.ERROR)
    system = url.replace("postgresql://", "postgresql+psycopg://")
    DBOS(
        config={
            "name": "bench",
            "executor_id": executor,
            "system_database_url": system,
            "sys_db_pool_size": max(20, threads),
            "db_engine_kwargs": {"pool_pre_ping": False} if url.startswith("postgresql") else {},
            "max_executor_threads": threads,
            "log_level": "ERROR",
            "application_version": "1",
            "run_migrations": True,
        }
    )
    DBOS.launch()
    if queued is not None:
        DBOS.register_queue("work", worker_concurrency=queued, polling_interval_sec=POLL)


def client_of(url: str) -> DBOSClient:
    return DBOSClient(system_database_url=url.replace("postgresql://", "postgresql+psycopg://"))


def options(name: str) -> dict[str, str]:
    return {"queue_name": "work", "workflow_name": name, "app_version": "1"}


def made(url: str) -> None:
    """Have the tables made, by a process that ends with this block."""
    launched(url, threads=1)
    DBOS.destroy()


def submit(url: str, runs: int, threads: int) -> Generator[Work]:
    made(url)
    client = client_of(url)

    def work() -> Outcome:
        with ThreadPoolExecutor(threads) as pool:
            return timed(
                runs,
                lambda: list(pool.map(lambda number: client.enqueue(options("one"), number), range(runs))),
            )

    yield work
    check(len(client.list_workflows(limit=runs + 1)) == runs, "not all were stored")


def submit_batches(url: str, runs: int, batch: int) -> Generator[Work]:
    made(url)
    client = client_of(url)
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))

    def store() -> None:
        for first in range(0, runs, batch):
            with engine.begin() as connection:
                for number in range(first, first + batch):
                    client.enqueue_in_transaction(connection, options("one"), number)

    yield lambda: timed(runs, store)
    check(len(client.list_workflows(limit=runs + 1)) == runs, "not all were stored")


def queued(url: str, name: str, runs: int, *arguments: object) -> DBOSClient:
    made(url)
    client = client_of(url)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: client.enqueue(options(name), *(arguments or (number,))), range(runs)))
    return client


def drainer(url: str, at_once: int) -> Generator[Work]:
    launched(url, threads=at_once, executor=str(os.getpid()))

    def work() -> None:
        DBOS.register_queue("work", worker_concurrency=at_once, polling_interval_sec=POLL)
        time.sleep(3_600)

    yield lambda: timed(0, work)


def are_done(client: DBOSClient) -> Callable[[], bool]:
    return lambda: (
        not client.list_workflows(
            status=["PENDING", "ENQUEUED"], limit=1, load_input=False, load_output=False
        )
    )


def drain(url: str, runs: int, at_once: int, workers: int) -> Generator[Work]:
    before = time.time_ns() // 1_000_000
    client = queued(url, "one", runs)
    yield from drained(workers, url, runs, are_done(client), at_once=at_once)
    own = datetime.fromtimestamp(before / 1_000, UTC).isoformat()
    results = sorted(one.output for one in client.list_workflows(limit=runs, start_time=own))
    check(results == list(range(1, runs + 1)), "it gave something else")


def steps(url: str, runs: int, length: int, at_once: int) -> Generator[Work]:
    client = queued(url, "chain", runs, length)
    yield from drained(1, url, runs * length, are_done(client), at_once=at_once)
    check({one.output for one in client.list_workflows(limit=runs)} == {length}, "it gave something else")


def slow_steps(url: str, runs: int, length: int, at_once: int) -> Generator[Work]:
    client = queued(url, "slow_chain", runs, length)
    yield from drained(1, url, runs * length, are_done(client), at_once=at_once)
    check({one.output for one in client.list_workflows(limit=runs)} == {length}, "it gave something else")


def values(url: str, runs: int, size: int, at_once: int) -> Generator[Work]:
    text = "x" * size
    client = queued(url, "carry", runs, text)
    yield from drained(1, url, runs, are_done(client), at_once=at_once)
    check({one.output for one in client.list_workflows(limit=runs)} == {text}, "it gave something else")


def signals(url: str, runs: int) -> Generator[Work]:
    client = queued(url, "approved", runs)
    with beside("drainer", url, at_once=runs + 10) as worker:
        worker.go()
        until(lambda: len(client.list_workflows(status=["PENDING"], load_input=False)) == runs)
        time.sleep(1)  # they have begun, and wait by then
        ids = [one.workflow_id for one in client.list_workflows(limit=runs, load_input=False)]

        def work() -> None:
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda one: client.send(one, 1, topic="approvals"), shuffled(ids)))
            until(are_done(client), every=0.05)

        yield lambda: timed(runs, work)
    results = sorted(one.output for one in client.list_workflows(limit=runs))
    check(results == list(range(1, runs + 1)), "it gave something else")


def worker(url: str) -> Generator[Work]:
    launched(url, threads=16, queued=16)
    yield lambda: Outcome(0, 0.0)


def latency(url: str, times: int) -> Generator[Work]:
    made(url)
    client = client_of(url)

    def ask(number: int) -> None:
        result = client.enqueue(options("one"), number).get_result(polling_interval_sec=POLL)
        check(result == number + 1, "it gave something else")

    with beside("worker", url):
        asked(10, ask)
        yield lambda: asked(times, ask)


def long_run(url: str, length: int, ends: int) -> Generator[Work]:
    launched(url, threads=4)

    def work() -> Outcome:
        check(long(length) == length, "it gave something else")
        return marks(MARKS, ends=ends)

    yield work


def holder(url: str, length: int, heir: bool) -> Generator[Work]:
    """The heir has the name of the first, and starts when that is gone: so it finds what was left, at its launch."""
    global HEIR
    HEIR = heir

    def work() -> None:
        launched(url, threads=4)
        if not heir:
            held(length)
        time.sleep(3_600)

    yield lambda: timed(0, work)


def replay(url: str, length: int, lease: int) -> Generator[Work]:
    del lease
    made(url)
    with beside("holder", url, length=length, heir=False) as first:
        first.go()
        heard(first, "held")
        first.process.kill()
        with beside("holder", url, length=length, heir=True) as heir:
            heir.go()
            entered_at = heard(heir, "entered")
            seconds = heard(heir, "held") - entered_at
            client = client_of(url)
            until(are_done(client))
        (run,) = client.list_workflows(limit=2)
        check(run.output == length, "it gave something else")
    yield lambda: Outcome(1, seconds)


def fan_out(url: str, width: int) -> Generator[Work]:
    launched(url, threads=50)

    def work() -> None:
        total = asyncio.run(fan(width))
        check(total == width * (width + 1) // 2, "it gave something else")

    yield lambda: timed(width, work)


def children(url: str, width: int) -> Generator[Work]:
    launched(url, threads=50)
    yield lambda: timed(
        width, lambda: check(parent(width) == width * (width + 1) // 2, "it gave something else")
    )


@DBOS.workflow()
def scheduled(at: datetime, context: Any) -> None:
    SEEN.append(time.time())


def schedules(url: str, due: int, others: int) -> Generator[Work]:
    check(not others, "each schedule has a thread: as many as are due must do")
    launched(url, threads=64)
    at = instant_ahead(30 + due / 20)
    when = datetime.fromtimestamp(at, UTC)
    for number in range(due):
        DBOS.create_schedule(
            schedule_name=f"due-{number}",
            workflow_fn=scheduled,
            schedule=f"{when.second} {when.minute} {when.hour} * * *",
        )
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
        holder,
        fan_out,
        children,
    )
