"""What each fast path saves: the same work with it and without it, in turns, in one run.

    python -m tests.benchmarks.fast_paths [--rounds 5] [--store sqlite]

A fast path is a second way to do what the plain way does, for speed alone. Each stands behind one seam, which is
replaced here by what the plain way does. The figures are without over with: of the processor time of this process
(client, worker and, on SQLite, the database), and of the time by the clock.
"""

import argparse
import contextlib
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from holdfast import Engine, Pipeline, Worker, stage, step, workflow
from holdfast.adapters.sql import narrow_updates
from holdfast.adapters.sql.postgresql.connection import PostgresDatabase
from holdfast.hosts.worker.running_attempts import JobSeries
from holdfast.kernel.rules import starts
from holdfast.ports.records.run import RunStatus
from tests.postgres import PrivatePostgres, fresh_database

RUNS: Final = 50
STEPS: Final = 20
STARTS: Final = 1_000
_WAIT: Final = 60.0
_NUMBERS: Final = itertools.count()


@step
async def add_one(number: int) -> int:
    """Return the next number."""
    return number + 1


@workflow
async def count(steps: int) -> int:
    """Call a step several times."""
    number = 0
    for _ in range(steps):
        number = await add_one(number)
    return number


def _stage(place: int) -> Any:
    @stage(name=f"stage-{place}")
    def add(number: int) -> int:
        return number + 1

    return add


def _chain() -> Pipeline[int, object]:
    chain: Any = Pipeline("chain", input=int)
    for place in range(STEPS):
        chain = chain.pipe(_stage(place))
    made: Pipeline[int, object] = chain
    return made


STAGES: Final = _chain()


def functions(engine: Engine) -> None:
    """Run durable functions of many steps."""
    _work(engine, [count(STEPS)] * RUNS)


def pipelines(engine: Engine) -> None:
    """Run pipelines of many stages."""
    _work(engine, [STAGES(0)] * RUNS)


def starts_in_batches(engine: Engine) -> None:
    """Start runs, many in a transaction."""
    engine.sync.start_all([STAGES(0)] * STARTS)


def _work(engine: Engine, calls: Sequence[Any]) -> None:
    runs = engine.sync.start_all(calls)
    with Worker(engine, concurrency=RUNS):
        until = time.monotonic() + _WAIT
        while engine.sync.count(status="completed")[RunStatus.COMPLETED] < len(runs):
            assert time.monotonic() < until
            time.sleep(0.02)


def _nothing(*_: object, **__: object) -> None:
    """Stand in for a fast path that does not apply."""


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Generator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@attrs.frozen
class FastPath:
    """A fast path, how it is left out, and the work that it is for."""

    name: str
    seam: str
    """Where it can be left out."""
    without: Callable[[], contextlib.AbstractContextManager[None]]
    works: tuple[Callable[[Engine], None], ...]
    stores: tuple[str, ...] = ("sqlite", "postgres")


FAST_PATHS: Final = (
    FastPath(
        "optimistic transactions",
        "Database.fast_path",
        lambda: _replaced(PostgresDatabase, "fast_path", _nothing),
        (functions,),
        ("postgres",),
    ),
    FastPath(
        "narrow updates",
        "narrow_updates.NARROW",
        lambda: _replaced(narrow_updates, "NARROW", {}),
        (functions, pipelines),
    ),
    FastPath(
        "start template",
        "starts._create_from_template",
        lambda: _replaced(starts, "_create_from_template", _nothing),
        (starts_in_batches,),
    ),
    FastPath(
        "next job with the settle",
        "JobSeries.may_continue",
        lambda: _replaced(JobSeries, "may_continue", _nothing),
        (pipelines,),
    ),
)


def main() -> None:
    """Measure each fast path, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--store", choices=["sqlite", "postgres"])
    options = parser.parse_args()
    with PrivatePostgres() as server, tempfile.TemporaryDirectory() as folder:
        for path in FAST_PATHS:
            for store in path.stores:
                for work in path.works:
                    if options.store in {None, store}:
                        print(_line(path, work, store, options.rounds, server.url, Path(folder)), flush=True)


def _line(
    path: FastPath,
    work: Callable[[Engine], None],
    store: str,
    rounds: int,
    server: str,
    folder: Path,
) -> str:
    samples: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for number in range(rounds + 1):
        for with_it in (True, False):
            with contextlib.ExitStack() as stack:
                if store == "postgres":
                    url = stack.enter_context(fresh_database(server))
                else:
                    url = f"sqlite:///{folder}/{next(_NUMBERS)}.db"
                if not with_it:
                    stack.enter_context(path.without())
                spent = _measured(work, url)
            if number:  # the first round warms up
                samples[with_it].append(spent)
    ratios = [
        statistics.median(one[place] for one in samples[False])
        / statistics.median(one[place] for one in samples[True])
        for place in (0, 1)
    ]
    return f"{path.name:26} {store:9} {work.__name__:18} processor {ratios[0]:.2f}  time {ratios[1]:.2f}  ({path.seam})"


def _measured(work: Callable[[Engine], None], url: str) -> tuple[float, float]:
    """Return the seconds of this process's processor and of the clock that the work took."""
    engine = Engine.open(url, workflows=[count, STAGES])
    with engine.sync:
        began, began_at = time.process_time(), time.perf_counter()
        work(engine)
        return time.process_time() - began, time.perf_counter() - began_at


if __name__ == "__main__":
    main()
