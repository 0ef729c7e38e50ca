"""Cost of a run by the number of ended and of waiting runs: `python -m tests.benchmarks.growth`.

Of what is there before, five hundred runs are real, and the others are copies of their rows.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import attrs
import cattrs
import psycopg

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.worker.worker import Worker
from tests.benchmarks.floors import check
from tests.benchmarks.meter import Meter, wait_until
from tests.benchmarks.peers.aging import COPIED, SEED, Copied, copy_rows
from tests.benchmarks.peers.environments import HOLDFAST
from tests.benchmarks.sites import Before, Site, Store, postgres_store
from tests.benchmarks.soak import CONCURRENCY, one

What = Literal["ended", "waiting"]

DONE: Final = 2_000
"""Number of measured runs."""
NUMBERS: Final = (0, 50_000, 100_000, 200_000)

_JOBS: Final = Copied("holdfast_jobs", {"run": COPIED[HOLDFAST][1].keys["run"]})


@attrs.frozen(kw_only=True)
class Point:
    """The cost of a run for worker and server, with a number of ended or waiting runs."""

    what: What
    number: int
    a_second: float
    python_ms: float
    server_ms: float


@attrs.frozen(kw_only=True)
class Growth:
    """All points, and the machine of the measurement."""

    said: Sequence[str]
    points: tuple[Point, ...]

    def line(self, what: What) -> list[tuple[float, float]]:
        """Return the total cost of a run by the number of other runs."""
        return [(one.number, one.python_ms + one.server_ms) for one in self.points if one.what == what]


def measure(store: Store, what: What, number: int, done: int) -> Point:
    """Execute runs beside many others, or wake a few waiting ones."""
    before = Before(f"{what}-{number}", lambda site: _make(site, what, number))
    with store.site(counted=False, before=before if number else None) as site:
        with Engine.open(site.url, workflows=[one]).sync as engine:
            _start(engine, done)
        with Meter(site) as meter, Engine.open(site.url, workflows=[one]).sync as engine:
            worker = Worker(engine, concurrency=CONCURRENCY)
            meter.start()
            with worker:
                wait_until(lambda: worker.stats().settled >= done, seconds_max=300)
                settled = worker.stats().settled
                meter.stop()
            check(worker.stats().failed == 0, "a run has failed")
        sample = meter.sample(settled)
    return Point(
        what=what,
        number=number,
        a_second=settled / sample.seconds,
        python_ms=sample.python_cpu * 1_000 / settled,
        server_ms=(sample.server_cpu or 0.0) * 1_000 / settled,
    )


def _make(site: Site, what: What, number: int) -> None:
    with Engine.open(site.url, workflows=[one]).sync as engine:
        _start(engine, SEED)
        if what == "ended":
            with Worker(engine, concurrency=CONCURRENCY) as worker:
                wait_until(lambda: worker.stats().settled >= SEED)
    tables = COPIED[HOLDFAST] if what == "ended" else (*COPIED[HOLDFAST], _JOBS)
    with psycopg.connect(site.url, autocommit=True) as connection:
        for copied in tables:
            copy_rows(connection, copied, number // SEED - 1)


def _start(engine: SyncEngine, runs: int) -> None:
    for first in range(0, runs, 100):
        engine.start_all([one(1)] * min(100, runs - first))


def save_growth(path: Path, growth: Growth) -> None:
    """Write the growth to a file."""
    points = ",\n  ".join(json.dumps(attrs.asdict(one)) for one in growth.points)
    path.write_text(f'{{\n "said": {json.dumps(list(growth.said))},\n "points": [\n  {points}\n ]\n}}\n')


def load_growth(path: Path) -> Growth:
    """Read a file of `save_growth`."""
    return cattrs.structure(json.loads(path.read_text()), Growth)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write the result to a file."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.growth", description=__doc__)
    parser.add_argument("--most", type=int, default=NUMBERS[-1], help="how many others at most")
    parser.add_argument("--done", type=int, default=DONE, help="how many runs are done, and measured")
    parser.add_argument(
        "--data", metavar="FILE", default=str(Path(__file__).parent / "results" / "growth.json")
    )
    parser.add_argument("--beside", default="", metavar="WORDS", help="what else the machine does meanwhile")
    told = parser.parse_args(arguments)
    points: list[Point] = []
    with postgres_store(None) as store:
        said = [store.about, *([f"beside it: {told.beside}"] if told.beside else [])]
        kinds: Sequence[What] = ("ended", "waiting")
        for what in kinds:
            for number in (number for number in NUMBERS if number <= told.most):
                points.append(measure(store, what, number, told.done))
                print(points[-1])
    save_growth(Path(told.data), Growth(said=said, points=tuple(points)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
