"""`python -m tests.benchmarks.server`: prints figures as JSON lines on stdout and a table on stderr."""

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from tests.benchmarks.server import measures, pages, peers, programs
from tests.benchmarks.server.measures import Row, Target
from tests.benchmarks.server.remote import remote_steps
from tests.benchmarks.sites import Store, postgres_store

_ROOT: Final = Path(__file__).resolve().parents[3]


@attrs.frozen(kw_only=True)
class Sizes:
    """How much is measured."""

    starts: int = 2_000
    results: int = 200
    streams: int = 1_000
    idle_seconds: float = 10.0
    changes: int = 20
    runs: int = 100_000
    jobs: int = 10_000
    reads: int = 200
    page_reads: int = 100
    long_rows: int = 50_000
    items: int = 10_000
    viewers: int = 100
    drained: int = 8_000
    rounds: int = 5
    remote_runs: int = 40
    remote_idle: int = 100


TINY: Final = Sizes(
    starts=20,
    results=3,
    streams=5,
    idle_seconds=0.1,
    changes=2,
    runs=2_000,
    jobs=100,
    reads=5,
    page_reads=2,
    long_rows=700,
    items=300,
    viewers=3,
    drained=10,
    rounds=1,
    remote_runs=1,
    remote_idle=3,
)
"""Sizes for the smoke test."""
PEERS: Final = "peers"
"""The group of other servers, which are installed when they are measured first."""
GROUPS: Final = ("starts", PEERS, "results", "streams", "watchers", "many_runs", "pages", "viewers", "remote")


@contextlib.contextmanager
def server(store: str, *, worker: bool = True) -> Generator[Target]:
    """Run `holdfast serve` as a process, and a worker as another one if wanted; provide it once it listens."""
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(_process(store, "serve", "--port", "0", "--json"))
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError("the server could not start")
        if worker:
            stack.enter_context(_process(store, "worker"))
        yield Target(url=json.loads(line)["url"], store=store, pid=process.pid)


@contextlib.contextmanager
def _process(store: str, command: str, *options: str) -> Generator[subprocess.Popen[str]]:
    """Run a command of `holdfast` on the programs until the end of the block."""
    engine = f"{programs.__name__}:engine"
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast.hosts.cli.main", command, engine, *options],
        cwd=_ROOT,
        env={**os.environ, programs.URL_VARIABLE: store, "PYTHONPATH": str(_ROOT)},
        stdout=subprocess.PIPE if options else subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)


def measured(target: Target, sizes: Sizes, groups: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of these groups."""
    if "starts" in groups:
        yield from measures.starts(target, sizes.starts)
    if "results" in groups:
        yield from measures.results(target, sizes.results)
    if "streams" in groups:
        yield from measures.streams(target, sizes.streams, sizes.idle_seconds)
    if "watchers" in groups:
        yield from measures.watchers(target, sizes.streams, sizes.idle_seconds, sizes.changes)
    if "many_runs" in groups:
        yield from measures.many_runs(target, sizes.runs, sizes.jobs, sizes.reads)
    if "pages" in groups:
        yield from pages.pages(target, sizes.runs, sizes.jobs, sizes.long_rows, sizes.items, sizes.page_reads)
    if "viewers" in groups:
        yield from pages.viewers(target, sizes.runs, sizes.jobs, sizes.viewers, sizes.drained, sizes.rounds)


def _rows(store: Store, sizes: Sizes, groups: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of these groups. Remote steps have a database of their own, whose server needs a key."""
    if PEERS in groups:
        with store.site(counted=False) as site:
            yield from peers.prefect_starts(site.url, sizes.starts // 4)
        yield from peers.restate_starts(sizes.starts)
    if set(groups) - {PEERS, "remote"}:
        with store.site(counted=False) as site, server(site.url) as target:
            yield from measured(target, sizes, groups)
    if "remote" in groups:
        with store.site(counted=False) as site, server(site.url, worker=False) as target:
            yield from remote_steps(target, sizes.remote_runs, sizes.remote_idle)


def _line(row: Row) -> str:
    value = f"{row.value:,.0f}" if row.value >= 1_000 else f"{row.value:.1f}"
    return f"{row.name:<62} {value:>8} {row.unit:<15} {row.goal}"


def main(arguments: Sequence[str] | None = None, sizes: Sizes | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="bench-server", description=__doc__)
    parser.add_argument(
        "--postgres-url", help="a server where databases may be created; a new one by default"
    )
    parser.add_argument("--only", action="append", choices=GROUPS, help="may be repeated")
    parser.add_argument("--runs", type=int, help="how many runs the lists and metrics find")
    parser.add_argument("--jobs", type=int, help="how many of their jobs are queued")
    given = parser.parse_args(arguments)
    size = sizes or Sizes()
    size = attrs.evolve(size, runs=given.runs or size.runs, jobs=given.jobs or size.jobs)
    with postgres_store(given.postgres_url) as store:
        print(f"{store.about}, {os.cpu_count()} processors", file=sys.stderr)
        for row in _rows(store, size, given.only or GROUPS):
            print(json.dumps(attrs.asdict(row)), flush=True)
            print(_line(row), file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
