"""Thousands of jobs through a queue that loses, repeats and delays, with functions that are killed: none is lost."""

import threading
from collections import Counter
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from holdfast import Pipeline, Retry, StageContext, sleep, stage, step, workflow
from holdfast.hosts.client.sync_run_handle import SyncRunHandle
from holdfast.kernel.authoring.calls import Call
from holdfast.kernel.authoring.step_context import step_context
from holdfast.kernel.invariants import check
from holdfast.ports.records.run import TERMINAL, RunStatus
from holdfast.testing.snapshots import snapshot_of
from tests.aws import FakeAws
from tests.cloud import Cloud
from tests.event_source_mapping import PumpFaults
from tests.sizes import only_full, sized

FAULTS = PumpFaults(lost=3, delayed=3, kept=5, doubled=10, twice=10)
WIDTH = 4
"""The number of concurrent functions."""
ACTIVE = frozenset(RunStatus) - TERMINAL
A_MINUTE = 150
"""The number of runs started in each round."""
PATIENT = Retry(attempts=30, wait=timedelta(seconds=1), jitter=0.0)

begun: Counter[str] = Counter()
"""The number of starts of each body, by idempotency key."""
effects: dict[str, int] = {}
"""The effects in a service that honours those keys."""
lock = threading.Lock()


def effect(key: str, value: int) -> int:
    with lock:
        begun[key] += 1
        return effects.setdefault(key, value)


@stage(retry=PATIENT)
async def first(ctx: StageContext, x: int) -> int:
    return effect(ctx.idempotency_key, x + 1)


@stage(retry=PATIENT)
def spread(ctx: StageContext, x: int) -> list[int]:
    effect(ctx.idempotency_key, x)
    return [x, x + 1, x + 2]


@stage(retry=PATIENT)
def each(ctx: StageContext, x: int) -> int:
    return effect(ctx.idempotency_key, 2 * x)


@stage(retry=PATIENT)
def total(ctx: StageContext, xs: list[int]) -> int:
    return effect(ctx.idempotency_key, sum(xs))


@step(retry=PATIENT)
async def add(x: int, y: int) -> int:
    return effect(step_context().idempotency_key, x + y)


@workflow
async def sums(x: int) -> int:
    x = await add(x, 1)
    await sleep(timedelta(minutes=5))
    return await add(x, 10)


WIDE = Pipeline("wide", input=int).pipe(first).pipe(spread).map(each).pipe(total)
JOBS_OF_WIDE = 1 + 1 + 1 + 3 + 1
"""The jobs of WIDE besides its items: one reads the list."""
EFFECTS_OF_WIDE = 1 + 1 + 3 + 1
EFFECTS_OF_SUMS = 2


@pytest.fixture(autouse=True)
def _forget() -> None:
    begun.clear()
    effects.clear()


@pytest.mark.slow
@pytest.mark.service
@pytest.mark.parametrize(
    ("jobs", "fifo"),
    [
        pytest.param(200, False, id="200-standard"),
        pytest.param(sized(500, 2_000), True, id="fifo"),
        pytest.param(4_000, False, id="4000-standard", marks=[pytest.mark.timeout(1_200), only_full]),
    ],
)
def test_no_job_is_lost_and_no_effect_doubled(
    aws: FakeAws, shared_database: str, namespace: str, tmp_path: Path, jobs: int, *, fifo: bool
) -> None:
    """Several concurrent functions, some with the same messages, some killed."""
    cloud = Cloud(
        aws,
        shared_database,
        namespace,
        [WIDE, sums],
        fifo=fifo,
        width=WIDTH,
        deaths=20,
        hurried=10,
        faults=FAULTS,
        seed=jobs,
        blobs=f"file://{tmp_path}",
    )
    functions = jobs // 10
    wide = (jobs - functions) // JOBS_OF_WIDE + 1
    calls: list[tuple[Call[int], int]] = [(WIDE(number), 6 * number + 12) for number in range(wide)]
    calls += [(sums(number), number + 11) for number in range(functions)]
    Random(jobs).shuffle(calls)
    with closing(cloud):
        runs, started, rounds = cloud.engine.sync, list[SyncRunHandle[int]](), 0
        while len(started) < len(calls) or any(runs.count(status=ACTIVE).values()):
            started += runs.start_all([call for call, _ in calls[len(started) :][:A_MINUTE]])
            cloud.round()
            rounds += 1
            assert rounds < 200, "they do not end"

        assert [run.result() for run in started] == [expected for _, expected in calls]
        assert check(snapshot_of(cloud.engine.core.stores.persistence, [namespace])) == []

    assert wide * JOBS_OF_WIDE + functions >= jobs
    assert len(effects) == wide * EFFECTS_OF_WIDE + functions * EFFECTS_OF_SUMS
    # A body begins again where the function was killed that ran it, with all others of its batch; never otherwise.
    assert sum(begun.values()) - len(begun) <= 10 * cloud.kills
    assert cloud.most_at_once > WIDTH / 2
    assert cloud.kills >= jobs // 100
    assert all(cloud.source.faults[fault] >= jobs // 100 for fault in ("lost", "delayed", "kept"))
    assert all(cloud.source.faults[fault] >= jobs // 300 for fault in ("doubled", "twice"))
    assert begun.most_common(1)[0][1] <= 8
