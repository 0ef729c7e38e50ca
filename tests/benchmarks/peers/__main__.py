"""`python -m tests.benchmarks.peers`: figures as lines of JSON on stdout, a table of them in the end on stderr."""

import argparse
import os
import platform
import sys
import time
from collections.abc import Sequence

from tests.benchmarks.peers.asking import PeerFailedError, Taken, take
from tests.benchmarks.peers.environments import python_of, version_of
from tests.benchmarks.peers.rows import ALL, Row, rows
from tests.benchmarks.peers.table import Result, result_of, table
from tests.benchmarks.sites import Store, postgres_store


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print. Return the exit code: 1 if somebody could not do its work."""
    told = _parser().parse_args(arguments)
    who = [one for one in ALL if not told.who or one in told.who]
    wanted = [one for one in rows(told.share) if not told.only or one.workload in told.only]
    for one in who:
        python_of(one)  # what is fetched is fetched before anything is measured
    began_at = time.monotonic()
    _say(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    _say(", ".join(f"{one} {version_of(one)}" for one in who))
    results: list[Result] = []
    with postgres_store(told.postgres_url) as store:
        _say(store.about)
        for row in wanted:
            for one in who:
                if one in row.who:
                    result = _measured(store, row, one)
                    print(result.line(), flush=True)
                    results.append(result)
    _say(f"\n{table(results)}\n")
    _say(f"{time.monotonic() - began_at:.0f} s in all, load {os.getloadavg()[0]:.1f}")
    return int(any(one.failed for one in results))


def _measured(store: Store, row: Row, who: str) -> Result:
    taken: list[Taken] = []
    try:
        for number in range(row.repeats):
            with store.site(counted=number == row.repeats - 1) as site:
                taken.append(take(who, row, site))
    except PeerFailedError as error:
        _say(f"{who} failed at {row.name!r}: {error}")
        return Result(row=row, who=who, figures={}, failed=str(error))
    return result_of(row, who, taken)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.peers",
        description="How fast Holdfast is, beside what people would pick instead.",
    )
    names = sorted({one.workload for one in rows()})
    parser.add_argument("--only", action="append", choices=names, help="one or several rows")
    parser.add_argument(
        "--who", action="append", choices=ALL, help="one or several of those that are measured"
    )
    parser.add_argument("--share", type=float, default=1.0, help="how much of the work to do: 0.1 is a tenth")
    parser.add_argument("--postgres-url", metavar="URL", help="a server whose user may create databases")
    return parser


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
