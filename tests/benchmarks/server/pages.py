"""The measurements of the dashboard: how long its pages take, how large they are, and what viewers cost a worker."""

import asyncio
import statistics
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final
from urllib.parse import quote

import psycopg

from holdfast import Engine
from tests.benchmarks.processes import cpu_seconds
from tests.benchmarks.server.clients import RUNS, Client, Streams
from tests.benchmarks.server.measures import Row, Target, percentile, timed
from tests.benchmarks.server.programs import WORKFLOWS, many_items, many_steps, one, waiting
from tests.benchmarks.server.rows import fill, lengthen

PAGES: Final = "/ui/namespaces/default"
SECONDS_MAX: Final = 600.0
_HTML: Final = {"Accept": "text/html"}
_OPEN: Final = (
    "SELECT count(*) FROM holdfast_runs WHERE namespace = 'default' AND workflow = 'one' "
    "AND status IN ('pending', 'running')"
)
_LIST_GOAL: Final = "< 50"
_WORST_GOAL: Final = "stops at its limit"
_RUN_GOAL: Final = "< 80"
_TIMELINE_GOAL: Final = "< 150"


def pages(target: Target, runs: int, jobs: int, rows: int, items: int, number: int) -> Iterator[Row]:
    """Read the pages of many runs, of a run with a long history, and of a large map."""
    fill(target.store, runs=runs, jobs=jobs)
    with Engine.open(target.store, workflows=WORKFLOWS).sync as engine:
        for place, wanted in (("long", rows), ("steps", items)):
            engine.start(many_steps(2), id=f"bench-{place}").result()
            lengthen(target.store, f"bench-{place}", "step.completed", wanted)
        engine.start(many_items(2), id="bench-items").result()
        lengthen(target.store, "bench-items", "stage.completed", items)
    long, steps, mapped = (f"/runs/bench-{place}" for place in ("long", "steps", "items"))
    middle = items // 200
    measured = (
        (f"run, {rows:,} steps", long, _RUN_GOAL),
        (f"run, {rows:,} steps, tab steps", f"{long}?tab=steps", ""),
        (f"run, {rows:,} steps, steps in the middle", f"{long}?tab=steps&row={rows // 2}", ""),
        (f"run, {rows:,} steps, tab history", f"{long}?tab=history", ""),
        (f"timeline, {rows:,} steps", f"{long}?tab=timeline", ""),
        (f"timeline, {items:,} steps", f"{steps}?tab=timeline", _TIMELINE_GOAL),
        (f"timeline, {items:,} steps, the first of all", f"{steps}?tab=timeline&from=0", _TIMELINE_GOAL),
        (f"timeline, map of {items:,}", f"{mapped}?tab=timeline", _TIMELINE_GOAL),
        (f"timeline, map of {items:,}, the first items", f"{mapped}?tab=timeline&from=0", _TIMELINE_GOAL),
        (
            f"timeline, map of {items:,}, items of one second",
            f"{mapped}?tab=timeline&from={middle}&to={middle + 1}",
            _TIMELINE_GOAL,
        ),
        (f"stages, map of {items:,}", f"{mapped}?tab=steps", ""),
    )
    with Client(target.url) as client:
        yield from _page(client, target, f"overview at {runs:,} runs", "", "", number)
        for name, query in _filters(runs).items():
            goal = _WORST_GOAL if name == "worst" else _LIST_GOAL
            yield from _page(
                client, target, f"runs page at {runs:,}, filter: {name}", f"/runs?{query}", goal, number
            )
        for name, path, goal in measured:
            size = "< 200" if goal == _RUN_GOAL else ""
            yield from _page(client, target, name, path, goal, number, size)


def _filters(runs: int) -> dict[str, str]:
    """Return the query of each filter. The runs were created one each millisecond."""
    middle = quote((datetime.now(UTC) - timedelta(milliseconds=runs / 2)).isoformat())
    return {
        "none": "",
        "status": "status=failed",
        "workflow": "workflow=bulk-7",
        "attribute": "attribute=tenant%3Dt-7",
        "attribute of half": "attribute=half%3D1",
        "since": f"since={middle}",
        "until": f"until={middle}",
        "waits": "waiting=true",
        "worst": "attribute=half%3D1&status=failed",
    }


def _page(
    client: Client, target: Target, name: str, path: str, goal: str, number: int, size_goal: str = ""
) -> Iterator[Row]:
    read = partial(client.send, "GET", f"{PAGES}{path}", headers=_HTML)
    size = len(read())
    before = cpu_seconds(target.pid)
    times = [timed(read) for _ in range(number)]
    spent = (cpu_seconds(target.pid) - before) / number * 1_000
    about = f"p50 {percentile(times, 50):.1f} ms, of which the server computes {spent:.1f} ms"
    yield Row(name=f"{name}, p95", value=percentile(times, 95), unit="ms", goal=goal, about=about)
    yield Row(name=f"{name}, size", value=size / 1_000, unit="kB", goal=size_goal)


def viewers(target: Target, runs: int, jobs: int, number: int, drained: int, rounds: int) -> Iterator[Row]:
    """Let a worker run what was started, with and without streams of many viewers, in turn."""
    fill(target.store, runs=runs, jobs=jobs)
    with Engine.open(target.store, workflows=WORKFLOWS).sync as engine:
        ids = [run.id for run in engine.start_all(waiting(0) for _ in range(number))]
    views = {
        "runs page": [f"{RUNS}?limit=50"] * number,
        "runs page, one workflow": [f"{RUNS}?limit=50&workflow=one"] * number,
        "pages of runs": [f"{RUNS}/{one_id}/why?generation=1" for one_id in ids],
    }
    for name, paths in views.items():
        yield from asyncio.run(_viewers(target, name, paths, drained, rounds))


async def _viewers(target: Target, name: str, paths: Sequence[str], drained: int, rounds: int) -> list[Row]:
    alone: list[float] = []
    watched: list[float] = []
    await asyncio.to_thread(_drained, target, drained)
    for _ in range(rounds):
        alone.append(await asyncio.to_thread(_drained, target, drained))
        streams = Streams(target.url, paths)
        await streams.open()
        watched.append(await asyncio.to_thread(_drained, target, drained))
        await streams.close()
    cost = 1 - statistics.median(watched) / statistics.median(alone)
    spread = (
        f"{min(alone):,.0f} to {max(alone):,.0f} without, {min(watched):,.0f} to {max(watched):,.0f} with"
    )
    label = f"{len(paths):,} viewers, {name}"
    return [
        Row(name=f"{label}: a worker without them", value=statistics.median(alone), unit="runs/s"),
        Row(
            name=f"{label}: cost",
            value=cost * 100,
            unit="% of throughput",
            goal="< 3",
            about=f"{rounds} rounds in turn, {spread}; all on the same processors",
        ),
    ]


def _drained(target: Target, number: int) -> float:
    """Start runs, and return how many of them the worker has ended in a second."""
    with (
        Engine.open(target.store, workflows=WORKFLOWS).sync as engine,
        psycopg.connect(target.store, autocommit=True) as monitor,
    ):
        began = time.perf_counter()
        engine.start_all(one(place) for place in range(number))
        while (row := monitor.execute(_OPEN.encode()).fetchone()) is None or row[0]:
            if time.perf_counter() - began > SECONDS_MAX:
                raise RuntimeError(f"{row} runs are still open")
            time.sleep(0.02)
        return number / (time.perf_counter() - began)
