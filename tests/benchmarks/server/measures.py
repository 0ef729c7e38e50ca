"""The measurements of the server. Each returns its rows of the table."""

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import psycopg

from holdfast import Engine
from holdfast.hosts.metrics.metrics import STORE_AGE_SECONDS
from tests.benchmarks.server.clients import RUNS, Client, Streams, at_once
from tests.benchmarks.server.programs import WORKFLOWS, one
from tests.benchmarks.server.rows import fill

BATCH: Final = 100
CLIENTS: Final = 8
SETTLE_SECONDS_MAX: Final = 300.0
SETTLED_SECONDS: Final = 12.0
"""How long streams must have read little before they are idle. An idle process of PostgreSQL reports after ten."""
_LITTLE: Final = 150
"""Transactions in that time: those of the worker, of the listener, and of the statistics themselves."""
FILTERS: Final = {
    "none": "",
    "status": "&status=failed",
    "workflow": "&workflow=bulk-7",
    "nothing matches": "&workflow=nothing",
}
_OPEN: Final = (
    "SELECT count(*) FROM holdfast_jobs WHERE state IN ('queued', 'leased') AND definition NOT LIKE 'bulk-%'"
)
_PAGE_SIZE: Final = 4_096


@attrs.frozen(kw_only=True)
class Row:
    """One figure."""

    name: str
    value: float
    unit: str
    goal: str = ""
    """What is aimed at."""
    about: str = ""
    """How it was measured."""


@attrs.frozen(kw_only=True)
class Target:
    """A server that runs."""

    url: str
    """Of the server."""
    store: str
    """The URL of its database."""
    pid: int

    def memory(self) -> int:
        """Return its resident memory in bytes."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE_SIZE

    def transactions(self, monitor: psycopg.Connection[Any]) -> int:
        """Return how many transactions its database has ended so far, without those of the monitor."""
        row = monitor.execute(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s",
            (self.store.rpartition("/")[2].partition("?")[0],),
        ).fetchone()
        assert row is not None
        return int(row[0])

    def settle(self) -> None:
        """Wait until the worker has nothing to do."""
        until = time.monotonic() + SETTLE_SECONDS_MAX
        with psycopg.connect(self.store, autocommit=True) as connection:
            while (row := connection.execute(_OPEN).fetchone()) is None or row[0]:
                if time.monotonic() > until:
                    raise RuntimeError(f"{row} jobs are still open")
                time.sleep(0.05)


def percentile(times: Sequence[float], share: int) -> float:
    """Return a percentile of times in seconds, as milliseconds."""
    return sorted(times)[min(len(times) * share // 100, len(times) - 1)] * 1_000


def timed(call: Callable[[], object]) -> float:
    """Return how many seconds a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def starts(target: Target, number: int) -> Iterator[Row]:
    """Start runs one by one and by the hundred. The worker runs them meanwhile."""

    def singly(client: Client, place: int) -> None:
        client.send("POST", RUNS, {"workflow": "one", "input": {"number": place}})

    def together(client: Client, place: int) -> None:
        new = {"type": "run.create", "workflow": "one", "input": {"inline": f'{{"number": {place}}}'}}
        answer = client.json("POST", "/v1/namespaces/default/commands", {"commands": [new] * BATCH})
        assert len(answer["answers"]) == BATCH, answer

    about = f"{CLIENTS} connections, while a worker in a process of its own runs them"
    took = at_once(target.url, CLIENTS, singly, number)
    yield Row(name="start, single", value=number / took, unit="runs/s", goal=">= 1,000", about=about)
    target.settle()
    batches = max(1, number // 25)
    took = at_once(target.url, CLIENTS, together, batches)
    rate = batches * BATCH / took
    yield Row(name="start, batches of 100", value=rate, unit="runs/s", goal=">= 5,000", about=about)
    target.settle()


def results(target: Target, number: int) -> Iterator[Row]:
    """From start to result, over HTTP and by an engine in this process; the worker is the server's in both."""
    with Client(target.url) as client, Engine.open(target.store, workflows=WORKFLOWS).sync as engine:

        def over_http(place: int) -> None:
            found = client.json(
                "POST", RUNS, {"workflow": "one", "input": {"number": place}}, headers={"Prefer": "wait=30"}
            )
            assert found["result"] == place + 1, found

        def by_engine(place: int) -> None:
            assert engine.run(one(place)) == place + 1

        over_http(0)
        by_engine(0)
        ours = [timed(partial(over_http, place)) for place in range(number)]
        base = [timed(partial(by_engine, place)) for place in range(number)]
    yield Row(name="start to result, p50", value=percentile(ours, 50), unit="ms")
    yield Row(name="start to result, p95", value=percentile(ours, 95), unit="ms")
    yield Row(name="the same by an engine, p50", value=percentile(base, 50), unit="ms")
    ratio = statistics.median(ours) / statistics.median(base)
    yield Row(name="start to result, beside the engine", value=ratio, unit="times", goal="< 2")


def streams(target: Target, number: int, seconds: float) -> Iterator[Row]:
    """Open a stream for each of many runs, idle and then with events."""
    with Client(target.url) as client:
        ids = [f"stream-{place}" for place in range(number)]
        for start in range(0, number, BATCH):
            new = [
                {
                    "type": "run.create",
                    "workflow": "waiting",
                    "id": one_id,
                    "input": {"inline": '{"number": 0}'},
                }
                for one_id in ids[start : start + BATCH]
            ]
            client.send("POST", "/v1/namespaces/default/commands", {"commands": new})
    target.settle()
    yield from asyncio.run(_streams(target, ids, seconds))


async def _idle(target: Target, monitor: psycopg.Connection[Any]) -> int:
    """Wait until opened streams have read what there is. Return the number of transactions so far."""
    until = time.monotonic() + SETTLE_SECONDS_MAX
    before = target.transactions(monitor)
    while True:
        await asyncio.sleep(SETTLED_SECONDS)
        now = target.transactions(monitor)
        if now - before < _LITTLE:
            return now
        if time.monotonic() > until:
            raise RuntimeError(
                f"{now - before} transactions in {SETTLED_SECONDS} s: the streams are not idle"
            )
        before = now


async def _streams(target: Target, ids: Sequence[str], seconds: float) -> list[Row]:
    before = target.memory()
    open_streams = Streams(target.url, [f"{RUNS}/{one}/history" for one in ids])
    with psycopg.connect(target.store.rpartition("/")[0] + "/postgres", autocommit=True) as monitor:
        await open_streams.open()
        memory = target.memory() - before
        first = await _idle(target, monitor)
        await asyncio.sleep(seconds)
        transactions = target.transactions(monitor) - first
    times: list[float] = []
    with Client(target.url) as client:
        for place in range(0, len(ids), max(1, len(ids) // 200)):
            open_streams.got[place].clear()
            began = time.perf_counter()
            await asyncio.to_thread(
                client.send, "POST", f"{RUNS}/{ids[place]}/signals/signals", {"message": 1}
            )
            await asyncio.wait_for(open_streams.got[place].wait(), 60)
            times.append(time.perf_counter() - began)
    await open_streams.close()
    label = f"{len(ids):,} streams"
    return [
        Row(
            name=f"{label}, idle",
            value=transactions / seconds,
            unit="transactions/s",
            goal="<= 2 of the streams",
            about="with those of the idle worker beside them",
        ),
        Row(name=f"{label}, memory", value=memory / len(ids) / 1_000, unit="kB each", goal="< 40"),
        Row(name=f"{label}, event p50", value=percentile(times, 50), unit="ms"),
        Row(
            name=f"{label}, event p95",
            value=percentile(times, 95),
            unit="ms",
            goal="< 150",
            about="from sending the signal to the first event",
        ),
    ]


def watchers(target: Target, number: int, seconds: float, changes: int) -> Iterator[Row]:
    """Let many clients watch one list, idle and then while it changes."""
    yield from asyncio.run(_watchers(target, number, seconds, changes))


async def _watchers(target: Target, number: int, seconds: float, changes: int) -> list[Row]:
    path = f"{RUNS}?workflow=waiting&limit=50"
    with psycopg.connect(target.store.rpartition("/")[0] + "/postgres", autocommit=True) as monitor:
        await asyncio.sleep(SETTLED_SECONDS)
        first = target.transactions(monitor)
        await asyncio.sleep(seconds)
        alone = target.transactions(monitor) - first
        before = target.memory()
        open_streams = Streams(target.url, [path] * number)
        await open_streams.open()
        memory = target.memory() - before
        await asyncio.sleep(SETTLED_SECONDS)
        first = target.transactions(monitor)
        await asyncio.sleep(seconds)
        transactions = target.transactions(monitor) - first - alone
    times: list[float] = []
    with Client(target.url) as client:
        for place in range(changes):
            for event in open_streams.got:
                event.clear()
            began = time.perf_counter()
            new = {"workflow": "waiting", "id": f"watched-{place}", "input": {"number": 0}}
            await asyncio.to_thread(client.send, "POST", RUNS, new)
            for event in open_streams.got:
                await asyncio.wait_for(event.wait(), 60)
            times.append(time.perf_counter() - began)
    await open_streams.close()
    label = f"{number:,} who watch one list"
    return [
        Row(
            name=f"{label}, idle",
            value=transactions / seconds,
            unit="transactions/s",
            goal="1 read/s",
            about="without those of the idle worker",
        ),
        Row(name=f"{label}, memory", value=memory / number / 1_000, unit="kB each", goal="< 40"),
        Row(
            name=f"{label}, change p50",
            value=percentile(times, 50),
            unit="ms",
            about="from the start of a run until all have the new page; a list is read once a second",
        ),
        Row(name=f"{label}, change p95", value=percentile(times, 95), unit="ms"),
    ]


def many_runs(target: Target, runs: int, jobs: int, number: int) -> Iterator[Row]:
    """List runs by one filter, and scrape metrics, where there are many runs and queued jobs."""
    fill(target.store, runs=runs, jobs=jobs)
    label = f"{runs:,} runs"
    with Client(target.url) as client:
        for name, query in FILTERS.items():
            path = f"{RUNS}?limit=50{query}"
            found = client.json("GET", path)["items"]
            assert bool(found) is (name != "nothing matches"), name
            times = [timed(partial(client.send, "GET", path)) for _ in range(number)]
            yield Row(
                name=f"list of {label}, filter: {name}, p95",
                value=percentile(times, 95),
                unit="ms",
                goal="< 15",
                about=f"p50 {percentile(times, 50):.1f} ms, with the client's own time",
            )
    time.sleep(STORE_AGE_SECONDS + 1)  # then the figures of the store are read again
    with Client(target.url) as client:
        yield Row(
            name=f"metrics at {label}, {jobs:,} queued, one that reads",
            value=timed(partial(client.send, "GET", "/metrics")) * 1_000,
            unit="ms",
            goal="< 50",
        )
        times = [timed(partial(client.send, "GET", "/metrics")) for _ in range(number)]
        yield Row(name="metrics, others, p95", value=percentile(times, 95), unit="ms", goal="< 50")
