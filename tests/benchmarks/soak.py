"""Soak test: an hour at half of the highest rate of one worker: `python -m tests.benchmarks.soak`, `make soak`.

First a worker in a process of its own is given more than it can do, which tells its rate; then half of that, for as
long as is wanted. In the middle a reader keeps a snapshot open, so that vacuum can remove nothing: what a report does,
or a backup. Beside it, what should stay as it is is looked at again and again.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Final, cast

import psycopg

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.functions import workflow
from holdfast.kernel.authoring.steps import step
from holdfast.ports.records.run import RunStatus
from tests.benchmarks.floors import check
from tests.benchmarks.processes import READY
from tests.benchmarks.sites import postgres_store
from tests.benchmarks.soak_samples import Beat, Soaked, save_soak

CONCURRENCY: Final = 200
BACKLOG: Final = 1_000
"""Number of waiting runs during the search for the highest rate."""
BATCH_SECONDS: Final = 0.1
READER_SECONDS_MAX: Final = 180.0
LAG_SECONDS: Final = 3.0
"""Time after which the duration of a run is read; an unfinished run counts with its age."""
HOT: Final = ("holdfast_jobs", "holdfast_sessions", "holdfast_leaders")

_ROOT: Final = Path(__file__).resolve().parents[2]
_TABLES: Final = (
    "SELECT sum(n_tup_del) FILTER (WHERE relname = 'holdfast_jobs')::bigint, sum(n_dead_tup)::bigint, "
    "sum(pg_total_relation_size(relid))::bigint FROM pg_stat_user_tables WHERE relname = ANY(%s)"
)
_LATENCIES: Final = (
    "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY took), percentile_disc(0.99) WITHIN GROUP (ORDER BY took) "
    "FROM (SELECT (coalesce(ended_at, %(now)s) - created_at) / 1000.0 AS took FROM holdfast_runs "
    "WHERE namespace = 'default' AND created_at >= %(since)s AND created_at < %(to)s) AS runs"
)


@step
async def add(number: int) -> int:
    """Return the next number."""
    return number + 1


@workflow
async def one(number: int) -> int:
    """Add one, in a step."""
    return await add(number)


def soak(url: str, said: Sequence[str], *, seconds: float, look_every: float, find: float = 15.0) -> Soaked:
    """Find the highest rate, and soak at half of it. Raises if a run has a wrong result."""
    with Engine.open(url, workflows=[one]).sync as engine, _worker(url) as pid:
        with psycopg.connect(url, autocommit=True) as monitor:
            most = _highest(engine, monitor, find)
            _wait_until(lambda: _open(monitor) == 0, 120)
            held_since, held_for = seconds / 3, min(READER_SECONDS_MAX, seconds / 6)
            feeder = _Feeder(engine, most / 2)
            with feeder.running(), _reading(url, held_since, held_for):
                samples = tuple(_look(monitor, pid, seconds, look_every))
            _wait_until(lambda: _open(monitor) == 0, 120)
        counts = engine.count()
        check(counts[RunStatus.COMPLETED] == sum(counts.values()), f"not all was completed: {counts}")
        check(all(handle.result() == 2 for handle in feeder.some), "a run gave something else")
    return Soaked(
        said=said,
        most=most,
        given=most / 2,
        held_since=held_since,
        held_to=held_since + held_for,
        runs=feeder.started,
        samples=samples,
    )


class _Feeder:
    """Starter of runs at a fixed rate, until its block ends."""

    def __init__(self, engine: SyncEngine, rate: float) -> None:
        self._engine = engine
        self._rate = rate
        self._stop = threading.Event()
        self._failed: BaseException | None = None
        self.started = 0
        self.some = [engine.start(one(1))]

    @contextlib.contextmanager
    def running(self) -> Generator[None]:
        thread = threading.Thread(target=self._feed)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()
        if self._failed is not None:
            raise self._failed

    def _feed(self) -> None:
        began_at = time.monotonic()
        try:
            while not self._stop.wait(BATCH_SECONDS):
                due = int((time.monotonic() - began_at) * self._rate) - self.started
                for at in range(0, due, 100):
                    handles = self._engine.start_all([one(1)] * min(100, due - at))
                    self.some = [*self.some[-100:], handles[0]]
                self.started += due
        except BaseException as error:  # noqa: BLE001  # it is raised where the block ends
            self._failed = error


def _highest(engine: SyncEngine, monitor: psycopg.Connection[Any], seconds: float) -> float:
    """Return the number of runs per second under saturation."""
    ends_at = time.monotonic() + seconds
    began_at, before = 0.0, 0
    while time.monotonic() < ends_at:
        if _open(monitor) < BACKLOG:
            engine.start_all([one(1)] * 200)
        elif not began_at:
            began_at, before = time.monotonic(), _removed(monitor)
        time.sleep(0.02)
    check(bool(began_at), "one worker does more than can be started here")
    return (_removed(monitor) - before) / (time.monotonic() - began_at)


def _look(monitor: psycopg.Connection[Any], pid: int, seconds: float, every: float) -> Generator[Beat]:
    time.sleep(2 * LAG_SECONDS)
    began_at = last_at = time.monotonic()
    removed, since = _removed(monitor), _micros() - round(LAG_SECONDS * 1e6)
    while last_at < began_at + seconds:
        time.sleep(every)
        now, at = time.monotonic(), _micros()
        to = at - round(LAG_SECONDS * 1e6)
        gone, dead, size = _row(monitor, _TABLES, (list(HOT),))
        p50, p99 = _row(monitor, _LATENCIES, {"now": at, "since": since, "to": to})
        yield Beat(
            at=now - began_at,
            ended=(gone - removed) / (now - last_at),
            open=_open(monitor),
            p50_ms=float(p50 or 0),
            p99_ms=float(p99 or 0),
            memory=_memory(pid),
            files=len(os.listdir(f"/proc/{pid}/fd")),
            dead=dead,
            hot_bytes=size / 1e6,
        )
        last_at, removed, since = now, gone, to


@contextlib.contextmanager
def _reading(url: str, after: float, seconds: float) -> Generator[None]:
    """Keep a snapshot of a reader open for a part of the time."""
    stop = threading.Event()

    def read() -> None:
        if not stop.wait(after):
            with psycopg.connect(url) as connection:
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                connection.execute("SELECT count(*) FROM holdfast_jobs")
                stop.wait(seconds)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def _worker(url: str) -> Generator[int]:
    command = [sys.executable, "-m", "tests.benchmarks.soak", "--worker", url]
    with subprocess.Popen(
        command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            check(process.stdout.readline().strip() == READY, "the worker could not start")
            yield process.pid
        finally:
            process.kill()


def _work(url: str) -> None:
    with Engine.open(url, workflows=[one]).sync as engine, Worker(engine, concurrency=CONCURRENCY):
        print(READY, flush=True)
        sys.stdin.read()


def _open(monitor: psycopg.Connection[Any]) -> int:
    return cast("int", _row(monitor, "SELECT count(*) FROM holdfast_jobs")[0])


def _removed(monitor: psycopg.Connection[Any]) -> int:
    return cast("int", _row(monitor, _TABLES, (list(HOT),))[0])


def _row(monitor: psycopg.Connection[Any], query: str, parameters: object = None) -> tuple[Any, ...]:
    row = monitor.execute(query.encode(), cast("Any", parameters)).fetchone()
    assert row is not None
    return cast("tuple[Any, ...]", row)


def _memory(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _micros() -> int:
    return time.time_ns() // 1_000


def _wait_until(is_so: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        check(time.monotonic() < until, f"not within {seconds:g} s")
        time.sleep(0.05)


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak, and write the samples to a file."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument(
        "--data", metavar="FILE", default=str(Path(__file__).parent / "results" / "soak.json")
    )
    parser.add_argument("--beside", default="", metavar="WORDS", help="what else the machine does meanwhile")
    parser.add_argument("--worker", metavar="URL", help=argparse.SUPPRESS)
    told = parser.parse_args(arguments)
    if told.worker is not None:
        _work(told.worker)
        return 0
    seconds = told.minutes * 60
    with postgres_store(None) as store, store.site(counted=False) as site:
        said = [store.about, *([f"beside it: {told.beside}"] if told.beside else [])]
        found = soak(site.url, said, seconds=seconds, look_every=max(1.0, seconds / 240))
    save_soak(Path(told.data), found)
    print(found.about())
    for about, series in found.series().items():
        for name, values in series.items():
            print(
                f"{about} {name}: {values[0]:.4g} at first, {values[-1]:.4g} in the end, {max(values):.4g} at most"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
