"""The workloads. Each runs on a site, checks every result, and returns a sample."""

import contextlib
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Final

from holdfast.hosts.client.engine import Engine
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.wiring.input_loader import LoadedAttempt
from holdfast.hosts.worker.worker import Worker
from holdfast.kernel.authoring.pipelines import Pipeline
from holdfast.kernel.commands import (
    Command,
    JobClaim,
    JobSettle,
    RunCreate,
    SessionOpen,
    StageSuspended,
    StageWake,
)
from holdfast.ports.errors import CommandError
from holdfast.ports.pagination import ListPlace
from holdfast.ports.queries.runs import ListRuns, RunFilter
from holdfast.ports.records.run import Run, RunStatus
from holdfast.ports.records.values import Payload
from holdfast.ports.references import reference_from
from holdfast.ports.searches import QueueClaim
from tests.benchmarks.floors import BATCH, WARM_UP, check
from tests.benchmarks.meter import Meter, Sample, wait_until
from tests.benchmarks.processes import helper, pauses
from tests.benchmarks.programs import ALL, CHAIN, ELSEWHERE, FAN, LONG, ONE, STAGES
from tests.benchmarks.sites import Before, Site
from tests.integration.counts.call_counter import counting_engine

CONCURRENCY: Final = 200
_RESULT_SECONDS_MAX: Final = timedelta(seconds=60)
_PAGE: Final = 1_000
_BATCH_MAX: Final = 500
_HOUR: Final = 3_600_000_000
_SETTLED_SECONDS: Final = 3.0
"""Time until a worker without jobs is idle; at most the measured time."""


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
    """Create runs, a hundred per commit."""
    _set_up(site)
    with Meter(site) as meter, _engine(site) as engine:
        meter.start()
        _create(engine, ONE, range(runs))
        meter.stop()
        _check_created(engine, runs)
    return meter.sample(runs)


def drain(site: Site, runs: int) -> Sample:
    """Run all jobs on one worker, from its start until the last one is settled."""
    _set_up(site, ONE, runs)
    with Meter(site) as meter, _engine(site) as engine:
        commits = _drain(meter, engine, runs, CONCURRENCY)
        _check_results(engine, [value + 1 for value in range(runs)])
    return meter.sample(runs, worker_commits=commits)


def chain(site: Site, runs: int, at_once: int) -> Sample:
    """Run many runs on one worker, with this concurrency."""
    _set_up(site, CHAIN, runs)
    with Meter(site) as meter, _engine(site) as engine:
        commits = _drain(meter, engine, runs * STAGES, at_once)
        _check_results(engine, [value + STAGES for value in range(runs)], CHAIN)
    return meter.sample(runs * STAGES, worker_commits=commits)


def fan(site: Site, items: int, runs: int = 1) -> Sample:
    """Map runs over many items in total, from their start until their results are read."""
    width = items // runs
    _set_up(site)
    with Meter(site) as meter, _engine(site) as engine, Worker(engine, concurrency=CONCURRENCY) as worker:
        engine.run(FAN(1))  # it is all set up by then
        before = worker.stats().commits
        meter.start()
        _create(engine, FAN, range(runs), value=width)
        results = [
            engine.handle(FAN, _id(run, FAN)).result(timeout=_RESULT_SECONDS_MAX) for run in range(runs)
        ]
        meter.stop()
        commits = worker.stats().commits - before
        check(results == [width * (width + 1) // 2] * runs, f"the maps gave {results}")
    return meter.sample(width * runs, worker_commits=commits)


def latency_in_process(site: Site, runs: int) -> Sample:
    """Start a run on an idle system and wait for its result, with a worker in this process."""
    _set_up(site)
    with Meter(site) as meter, _engine(site) as engine:
        with Worker(engine, concurrency=CONCURRENCY):
            latencies = _ask(meter, engine, runs)
        _check_results(engine, [value + 1 for value in range(runs + WARM_UP)])
    return meter.sample(runs + WARM_UP, latencies=latencies)


def latency_to_process(site: Site, runs: int) -> Sample:
    """Start a run on an idle system and wait for its result, with a worker in another process."""
    _set_up(site)
    with Meter(site) as meter, _engine(site) as engine:
        with helper("worker", site.url, str(CONCURRENCY)) as pid:
            meter.include(pid)
            latencies = _ask(meter, engine, runs)
        _check_results(engine, [value + 1 for value in range(runs + WARM_UP)])
    return meter.sample(runs + WARM_UP, latencies=latencies)


def suspended(runs: int) -> Before:
    """Runs that are suspended on external work with a late first poll."""
    return Before(f"suspended-{runs}", lambda site: _suspend(site, runs))


def idle(site: Site, seconds: float) -> Sample:
    """Run a worker without jobs."""
    _set_up(site)
    with Meter(site) as meter:
        engine, counting = counting_engine(site.url, "default", *ALL.values())
        with engine.sync, Worker(engine, concurrency=CONCURRENCY) as worker:
            time.sleep(min(_SETTLED_SECONDS, seconds))
            before = counting.calls
            meter.start()
            time.sleep(seconds)
            meter.stop()
            calls = counting.calls - before
            check(worker.stats().claimed == 0, "there was something to do")
    return meter.sample(seconds / 60, calls=calls)


def wake(site: Site, runs: int) -> Sample:
    """Wake external work, a hundred per commit, until the runs have ended."""
    with Meter(site) as meter, _engine(site) as engine, Worker(engine, concurrency=CONCURRENCY) as worker:
        engine.run(ONE(1))  # it is all set up by then
        before = worker.stats()
        meter.start()
        for at in range(0, runs, BATCH):
            _dispatch(
                engine, [StageWake(key=_id(value, ELSEWHERE)) for value in range(at, min(at + BATCH, runs))]
            )
        wait_until(lambda: worker.stats().settled >= before.settled + runs)
        meter.stop()
        commits = worker.stats().commits - before.commits
        ended = _runs(engine, ELSEWHERE, RunStatus.COMPLETED)
        _check_values(engine, {_id(value, ELSEWHERE): value + 1 for value in range(runs)}, ended)
    return meter.sample(runs, worker_commits=commits)


@contextlib.contextmanager
def _engine(site: Site) -> Generator[SyncEngine]:
    with Engine.open(site.url, workflows=ALL.values()).sync as engine:
        yield engine


def _set_up(site: Site, workflow: Pipeline[int, int] = ONE, runs: int = 0) -> None:
    """Create the tables with a number of queued runs."""
    with _engine(site) as engine:
        _create(engine, workflow, range(runs))


def _suspend(site: Site, runs: int) -> None:
    """Start runs, and suspend them as a worker does."""
    with _engine(site) as engine:
        session = engine.kernel.dispatch(SessionOpen(host="bench", lease=_HOUR)).session
        lane = QueueClaim(queue="default", definitions=engine.core.registry.definitions, limit=_BATCH_MAX)
        claim = JobClaim(session=session, queue_claims=(lane,), limit=_BATCH_MAX)
        for at in range(0, runs, _BATCH_MAX):
            _create(engine, ELSEWHERE, range(at, min(at + _BATCH_MAX, runs)))
            works = engine.core.inputs.load(engine.kernel.dispatch(claim).attempts, lambda _: True)
            _dispatch(engine, [_hand_on(work) for work in works])
        check(len(_runs(engine, ELSEWHERE, RunStatus.RUNNING)) == runs, "not all runs are under way")
        check(not engine.kernel.dispatch(claim).attempts, "not all runs wait")


def _hand_on(work: LoadedAttempt) -> JobSettle:
    outcome = StageSuspended(
        state=Payload(inline=work.input), check_after=round(LONG.total_seconds() * 1e6), key=work.run.id
    )
    return JobSettle(job=work.attempt.job, epoch=work.attempt.epoch, outcome=outcome)


def _create(
    engine: SyncEngine, workflow: Pipeline[int, int], numbers: Sequence[int], *, value: int | None = None
) -> None:
    """Create runs with these numbers, which are also their inputs by default."""
    for at in range(0, len(numbers), BATCH):
        _dispatch(
            engine,
            [
                RunCreate(
                    workflow=workflow.name,
                    input=Payload(inline=str(number if value is None else value)),
                    id=_id(number, workflow),
                )
                for number in numbers[at : at + BATCH]
            ],
        )


def _dispatch(engine: SyncEngine, commands: Sequence[Command[object]]) -> None:
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
    """Start runs in sequence; return their durations, without the first few."""
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
    found = {run.id: run for run in _runs(engine, ONE)}
    check(set(found) == {_id(value) for value in range(runs)}, "not all runs are there")
    check(all(run.open_jobs == 1 for run in found.values()), "not every run has its first job")


def _check_results(engine: SyncEngine, expected: Sequence[int], workflow: Pipeline[int, int] = ONE) -> None:
    """Raise unless exactly these runs exist, each completed with its result."""
    found = _runs(engine, workflow)
    unfinished = [run.id for run in found if run.status is not RunStatus.COMPLETED]
    check(not unfinished, f"{len(unfinished)} runs have not been completed")
    _check_values(engine, {_id(value, workflow): result for value, result in enumerate(expected)}, found)


def _check_values(engine: SyncEngine, wanted: Mapping[str, int], runs: Sequence[Run]) -> None:
    """Raise unless these are the expected runs, each with its result."""
    found = {run.id: run for run in runs}
    check(set(found) == set(wanted), f"there are {len(found)} runs, not {len(wanted)}")
    references = {run.id: (run.key, reference_from(run.result or "null")) for run in runs}
    values = engine.core.inputs.values(tuple(references.values()))
    for id_, result in wanted.items():
        given = engine.core.inputs.one(values[references[id_]])
        check(given == str(result), f"{id_} gave {given}, not {result}")


def _runs(engine: SyncEngine, workflow: Pipeline[int, int], *statuses: RunStatus) -> list[Run]:
    found: list[Run] = []
    which = RunFilter(namespace=engine.core.namespace, workflow=workflow.name, statuses=frozenset(statuses))
    after: ListPlace | None = None
    while True:
        query = ListRuns(which, after=after, limit=_PAGE)
        page = engine.core.stores.persistence.read(query)
        found += page
        if len(page) < _PAGE:
            return found
        after = page[-1].place


def _id(value: int, workflow: Pipeline[int, int] = ONE) -> str:
    return f"{workflow.name}-{value:07}"
