"""What is measured. Each takes an empty site, does its work, checks every result, and returns a sample."""

import contextlib
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Final

from holdfast.hosts.engine import Engine, SyncEngine
from holdfast.hosts.process.worker import Worker
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.commands import RunCreate
from holdfast.ports.errors import CommandError
from holdfast.ports.persistence import ListRuns, RunFilter
from holdfast.ports.records import Payload, Run, RunPlace, RunStatus
from holdfast.ports.references import reference_from
from tests.benchmarks.floors import BATCH, WARM_UP, check
from tests.benchmarks.meter import Meter, Sample, wait_until
from tests.benchmarks.processes import helper, pauses
from tests.benchmarks.programs import ALL, CHAIN, FAN, ONE, STAGES
from tests.benchmarks.sites import Site

CONCURRENCY: Final = 200
_RESULT_SECONDS_MAX: Final = timedelta(seconds=60)
_PAGE: Final = 1_000


def create_singly(site: Site, runs: int, threads: int) -> Sample:
    """Start runs one by one, from one engine."""
    _set_up(site)
    with Meter(site) as meter, _engine(site) as engine:

        def start(place: int) -> None:
            for value in range(place, runs, threads):
                engine.start(ONE(value), id=_id(value))

        with ThreadPoolExecutor(threads) as pool:
            meter.start()
            list(pool.map(start, range(threads)))
            meter.stop()
        _check_created(engine, runs)
    return meter.sample(runs)


def create_batches(site: Site, runs: int) -> Sample:
    """Create runs, a hundred for each commit."""
    _set_up(site)
    with Meter(site) as meter, _engine(site) as engine:
        meter.start()
        _create(engine, ONE, range(runs))
        meter.stop()
        _check_created(engine, runs)
    return meter.sample(runs)


def drain(site: Site, runs: int) -> Sample:
    """Have one worker run all that there is, from its start until it has settled the last."""
    _set_up(site, ONE, runs)
    with Meter(site) as meter, _engine(site) as engine:
        commits = _drain(meter, engine, runs, CONCURRENCY)
        _check_results(engine, [value + 1 for value in range(runs)])
    return meter.sample(runs, worker_commits=commits)


def chain(site: Site, runs: int, at_once: int) -> Sample:
    """Have one worker take runs through their stages, so many at once."""
    _set_up(site, CHAIN, runs)
    with Meter(site) as meter, _engine(site) as engine:
        commits = _drain(meter, engine, runs * STAGES, at_once)
        _check_results(engine, [value + STAGES for value in range(runs)])
    return meter.sample(runs * STAGES, worker_commits=commits)


def fan(site: Site, items: int) -> Sample:
    """Map one run over items, from its start until its result is there."""
    _set_up(site)
    with Meter(site) as meter, _engine(site) as engine, Worker(engine, concurrency=CONCURRENCY) as worker:
        engine.run(FAN(1))  # it is all set up by then
        before = worker.stats().commits
        meter.start()
        result = engine.start(FAN(items)).result(timeout=_RESULT_SECONDS_MAX)
        meter.stop()
        commits = worker.stats().commits - before
        check(result == items * (items + 1) // 2, f"the map gave {result}")
    return meter.sample(items, worker_commits=commits)


def latency_in_process(site: Site, runs: int) -> Sample:
    """Start a run when nothing else happens and wait for its result, with a worker in this process."""
    _set_up(site)
    with Meter(site) as meter, _engine(site) as engine:
        with Worker(engine, concurrency=CONCURRENCY):
            latencies = _ask(meter, engine, runs)
        _check_results(engine, [value + 1 for value in range(runs + WARM_UP)])
    return meter.sample(runs + WARM_UP, latencies=latencies)


def latency_to_process(site: Site, runs: int) -> Sample:
    """Start a run when nothing else happens and wait for its result, with a worker in another process."""
    _set_up(site)
    with Meter(site) as meter, _engine(site) as engine:
        with helper("worker", site.url, str(CONCURRENCY)) as pid:
            meter.include(pid)
            latencies = _ask(meter, engine, runs)
        _check_results(engine, [value + 1 for value in range(runs + WARM_UP)])
    return meter.sample(runs + WARM_UP, latencies=latencies)


@contextlib.contextmanager
def _engine(site: Site) -> Generator[SyncEngine]:
    with Engine.open(site.url, workflows=ALL.values()).sync as engine:
        yield engine


def _set_up(site: Site, workflow: Pipeline[int, int] = ONE, runs: int = 0) -> None:
    """Make the tables, with so many runs in them that nobody works on yet."""
    with _engine(site) as engine:
        _create(engine, workflow, range(runs))


def _create(engine: SyncEngine, workflow: Pipeline[int, int], values: Sequence[int]) -> None:
    for at in range(0, len(values), BATCH):
        commands = [
            RunCreate(workflow=workflow.name, input=Payload(inline=str(value)), id=_id(value))
            for value in values[at : at + BATCH]
        ]
        for answer in engine.kernel.dispatch_many(commands):
            if isinstance(answer, CommandError):
                raise answer


def _drain(meter: Meter, engine: SyncEngine, bodies: int, concurrency: int) -> int:
    worker = Worker(engine, concurrency=concurrency)
    meter.start()
    with worker:
        wait_until(lambda: worker.stats().settled >= bodies)
        meter.stop()
    stats = worker.stats()
    check(
        (stats.settled, stats.started, stats.failed, stats.fenced) == (bodies, bodies, 0, 0),
        f"{bodies} bodies should have run once each: {stats}",
    )
    return stats.commits


def _ask(meter: Meter, engine: SyncEngine, runs: int) -> list[float]:
    """Start runs one after the other; return how long each took, without the first few."""
    latencies: list[float] = []
    meter.start()
    for value, pause in zip(range(runs + WARM_UP), pauses(), strict=False):
        time.sleep(pause)
        asked_at = time.perf_counter()
        result = engine.start(ONE(value), id=_id(value)).result(timeout=_RESULT_SECONDS_MAX)
        latencies.append(time.perf_counter() - asked_at)
        check(result == value + 1, f"the run gave {result}")
    meter.stop()
    return latencies[WARM_UP:]


def _check_created(engine: SyncEngine, runs: int) -> None:
    found = {run.id: run for run in _runs(engine)}
    check(set(found) == {_id(value) for value in range(runs)}, "not all runs are there")
    check(all(run.open_jobs == 1 for run in found.values()), "not every run has its first job")


def _check_results(engine: SyncEngine, expected: Sequence[int]) -> None:
    """Raise unless there are these runs and no others, each completed with its result."""
    found = {run.id: run for run in _runs(engine)}
    wanted = {_id(value): result for value, result in enumerate(expected)}
    check(set(found) == set(wanted), f"there are {len(found)} runs, not {len(wanted)}")
    unfinished = [run.id for run in found.values() if run.status is not RunStatus.COMPLETED]
    check(not unfinished, f"{len(unfinished)} runs have not been completed")
    references = {run.id: (run.key, reference_from(run.result or "null")) for run in found.values()}
    values = engine.core.inputs.values(tuple(references.values()))
    for id_, result in wanted.items():
        given = engine.core.inputs.one(values[references[id_]])
        check(given == str(result), f"{id_} gave {given}, not {result}")


def _runs(engine: SyncEngine) -> list[Run]:
    found: list[Run] = []
    which = RunFilter(namespace=engine.core.namespace)
    after: RunPlace | None = None
    while True:
        query = ListRuns(which, after=after, limit=_PAGE)
        page = engine.core.stores.persistence.read(query)
        found += page
        if len(page) < _PAGE:
            return found
        after = page[-1].place


def _id(value: int) -> str:
    return f"run-{value:07}"
