"""Jobs by the thousand through a queue that loses, doubles and delays, and functions that are killed: none is lost."""

from collections import Counter
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import Pipeline, Retry, StageContext, sleep, stage, step, workflow
from holdfast.kernel.authoring.step_context import step_context
from holdfast.kernel.invariants import check
from holdfast.testing.snapshots import snapshot_of
from tests.aws import FakeAws
from tests.cloud import Cloud
from tests.pump import PumpFaults

FAULTS = PumpFaults(lost=3, delayed=3, doubled=10, kept=5)
PATIENT = Retry(attempts=30, wait=timedelta(seconds=1), jitter=0.0)

begun: Counter[str] = Counter()
"""How often a body began, by its idempotency key."""
effects: dict[str, int] = {}
"""What a service did that honours those keys."""


def effect(key: str, value: int) -> int:
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
"""Its items are read by a job of their own."""
EFFECTS_OF_WIDE = 1 + 1 + 3 + 1
EFFECTS_OF_SUMS = 2


@pytest.fixture(autouse=True)
def _forget() -> None:
    begun.clear()
    effects.clear()


@pytest.mark.service
@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
@pytest.mark.parametrize(
    "jobs", [300, pytest.param(2_000, marks=[pytest.mark.slow, pytest.mark.timeout(1_800)])]
)
def test_no_job_is_lost_and_no_effect_doubled(
    aws: FakeAws, shared_database: str, namespace: str, tmp_path: Path, jobs: int, *, fifo: bool
) -> None:
    cloud = Cloud(
        aws,
        shared_database,
        namespace,
        [WIDE, sums],
        fifo=fifo,
        deaths=20,
        faults=FAULTS,
        seed=jobs,
        blobs=f"file://{tmp_path}",
    )
    wide, functions = jobs // JOBS_OF_WIDE, jobs // 10
    with closing(cloud):
        runs = cloud.engine.sync
        waiting = [(runs.start(WIDE(number)), 6 * number + 12) for number in range(wide)]
        waiting += [(runs.start(sums(number)), number + 11) for number in range(functions)]
        active, rounds = [run for run, _ in waiting], 0
        while active:
            cloud.round()
            active = [run for run in active if run.info().ended_at is None]
            rounds += 1
            assert rounds < 200, "they do not end"

        assert [run.result() for run, _ in waiting] == [expected for _, expected in waiting]
        assert check(snapshot_of(cloud.engine.core.stores.persistence, [namespace])) == []

    assert len(effects) == wide * EFFECTS_OF_WIDE + functions * EFFECTS_OF_SUMS
    # A body begins again where the function was killed that ran it, with all others of its batch; never otherwise.
    assert sum(begun.values()) - len(begun) <= 10 * cloud.kills
    assert cloud.kills >= jobs // 100
    assert all(cloud.source.faults[fault] >= jobs // 100 for fault in ("lost", "delayed", "kept"))
    assert cloud.source.faults["doubled"] >= jobs // 200
    if not fifo:  # a queue of groups drops what it was given before
        assert begun.most_common(1)[0][1] <= 5
