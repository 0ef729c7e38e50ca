"""The workload of gathered starts: batches of a hundred, from one process."""

from typing import Final

from holdfast import Engine, Gather, Worker, workflow
from tests.benchmarks.floors import check
from tests.benchmarks.meter import Meter, Sample
from tests.benchmarks.sites import Site

BATCH: Final = 100


@workflow(gather=Gather(within=3_600, most=BATCH, keep="all"))
async def collect(numbers: list[int]) -> int:
    """Return how many numbers there are."""
    return len(numbers)


def gather(site: Site, starts: int) -> Sample:
    """Start runs that are gathered a hundred at a time, while a worker carries out the batches that are full."""
    full = starts - starts % BATCH or BATCH
    with (
        Meter(site) as meter,
        Engine.open(site.url, workflows=[collect]).sync as engine,
        Worker(engine),
    ):
        meter.start()
        handles = engine.start_all(collect([number]) for number in range(full))
        totals = {handle.id: handle.result(timeout=600) for handle in handles[::BATCH]}
        meter.stop()
        check(list(totals.values()) == [BATCH] * (full // BATCH), f"the batches had {totals}")
    return meter.sample(full)
