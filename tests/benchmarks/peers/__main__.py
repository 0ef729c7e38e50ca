"""`python -m tests.benchmarks.peers`: figures as lines of JSON on stdout, a table of them in the end on stderr."""

import argparse
import contextlib
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import attrs
import psycopg

from tests.benchmarks.peers.aging import finished
from tests.benchmarks.peers.environments import python_of, version_of
from tests.benchmarks.peers.measurement import PeerFailedError, Taken, take
from tests.benchmarks.peers.results import About, Result, result_of, save
from tests.benchmarks.peers.rows import ALL, Row, rows
from tests.benchmarks.peers.table import table
from tests.benchmarks.sites import Store, postgres_store, sqlite_store


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print. Return the exit code: 1 if somebody could not do its work."""
    told = _parser().parse_args(arguments)
    who = [one for one in ALL if not told.who or one in told.who]
    wanted = [
        attrs.evolve(one, repeats=min(one.repeats, told.repeats))
        for one in rows(told.share)
        if not told.only or one.name in told.only
    ]
    for one in who:
        python_of(one)  # what is fetched is fetched before anything is measured
    began_at, load = time.monotonic(), os.getloadavg()[0]
    results: list[Result] = []
    with contextlib.ExitStack() as stack:
        stores = {
            "postgres": stack.enter_context(postgres_store(told.postgres_url)),
            "sqlite": stack.enter_context(sqlite_store()),
        }
        about = About(
            at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            machine=f"Python {platform.python_version()}, {os.cpu_count()} cores",
            load=round(load, 1),
            stores={name: store.about for name, store in stores.items()},
            versions={one: version_of(one) for one in who},
            beside=told.beside,
        )
        _say("\n".join(about.lines()))
        for row in wanted:
            for one in who:
                if one in row.who:
                    results.append(_measured(stores, row, one))
                    print(results[-1].line(), flush=True)
    if told.data is not None:
        save(Path(told.data), about, results)
    _say(f"\n{table(results)}\n")
    _say(f"{time.monotonic() - began_at:.0f} s in all, load {os.getloadavg()[0]:.1f}")
    return int(any(one.failed for one in results))


def _measured(stores: Mapping[str, Store], row: Row, who: str) -> Result:
    taken: list[Taken] = []
    store = stores[row.store]
    before = finished(who, row, row.finished) if row.finished else None
    try:
        for number in range(row.repeats):
            with store.site(counted=number == row.repeats - 1, before=before) as site:
                taken.append(take(who, row, site))
    except (PeerFailedError, psycopg.Error) as error:
        _say(f"{who} failed at {row.name!r}: {error}")
        return Result(row=row, who=who, figures={}, failed=str(error).strip().rpartition("\n")[2])
    return result_of(row, who, taken)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.peers",
        description="How fast Holdfast is, beside what people would pick instead.",
    )
    names = [one.name for one in rows()]
    parser.add_argument(
        "--only", action="append", choices=names, metavar="ROW", help=f"one or several of {', '.join(names)}"
    )
    parser.add_argument(
        "--who", action="append", choices=ALL, help="one or several of those that are measured"
    )
    parser.add_argument("--share", type=float, default=1.0, help="how much of the work to do: 0.1 is a tenth")
    parser.add_argument("--repeats", type=int, default=3, help="how often at most; the median counts")
    parser.add_argument("--postgres-url", metavar="URL", help="a server whose user may create databases")
    parser.add_argument("--data", metavar="FILE", help="put what was measured into this file too, as JSON")
    parser.add_argument(
        "--beside", default="", metavar="WORDS", help="what else the machine does meanwhile, for the data"
    )
    return parser


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
