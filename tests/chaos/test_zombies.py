"""Workers are stopped for twice their lease and resume, repeatedly, while there is work for all."""

import heapq
import random
import signal
import time

import pytest

from holdfast.ports.records.history import STAGE_COMPLETED
from tests.chaos.figures import pick, report
from tests.chaos.programs import SIGNED
from tests.chaos.site import Site

pytestmark = pytest.mark.chaos

WORKERS = 6
CONCURRENCY = 6
LEASE = 1.0
WORK_SECONDS = 0.15
STOPPED_AT_ONCE = 3
STOPS = pick(short=15, full=200)
LOST_MIN = -(-STOPS // 4)
STOPS_MAX = 4 * STOPS
"""A worker stopped within a transaction blocks, for a while, those that reap the others: then more are stopped."""
REFUSED_MIN = pick(short=3, full=100)
ACTIVE_MIN = 60


def test_workers_that_come_back_from_the_dead_change_nothing_any_more(site: Site) -> None:
    draw = random.Random(17)
    workers = [
        site.worker(f"worker-{n}", concurrency=CONCURRENCY, work_seconds=WORK_SECONDS, lease=LEASE)
        for n in range(WORKERS)
    ]
    stopped: list[tuple[float, int]] = []
    sessions: set[str] = set()
    stops = 0

    def is_enough() -> bool:
        """A worker whose session was lost opens another one."""
        return stops >= STOPS_MAX or (stops >= STOPS and len(sessions) - WORKERS >= LOST_MIN)

    with site.busy(ACTIVE_MIN, lambda number: SIGNED([number])) as runs:
        site.until_started(WORKERS * CONCURRENCY)
        while stopped or not is_enough():
            if len(stopped) < STOPPED_AT_ONCE and not is_enough():
                awake = [n for n in range(WORKERS) if n not in {other for _, other in stopped}]
                victim = draw.choice(awake)
                workers[victim].signal(signal.SIGSTOP)
                heapq.heappush(stopped, (time.monotonic() + 2 * LEASE + draw.uniform(0.0, 0.3), victim))
                stops += 1
            elif stopped[0][0] <= time.monotonic():
                sessions |= {worker.session for worker in site.engine.workers()}
                workers[heapq.heappop(stopped)[1]].signal(signal.SIGCONT)
            else:
                time.sleep(0.01)
    site.until_done(120)
    for worker in workers:
        worker.signal(signal.SIGTERM)
    assert [worker.wait() for worker in workers] == [0] * WORKERS

    for run, number in runs.items():
        epochs = [row.epoch for row in site.history(run) if row.type == STAGE_COMPLETED]
        assert site.result(run) == [number, *epochs], (
            "an output is not that of the attempt that was to give it"
        )
    audit = site.audit()
    said = [worker.said for worker in workers]
    refused = sum(stats["fenced"] for stats in said)
    lost = sum(stats["sessions_lost"] for stats in said)
    report(
        f"stops: {stops}, sessions lost: {lost}, late results refused: {refused}, runs: {audit.runs}, "
        f"bodies begun again: {audit.repeats}, attempts lost: {audit.lost}"
    )
    assert lost >= LOST_MIN, "too few were taken for dead"
    assert refused >= REFUSED_MIN, "too few results came too late"
    assert audit.repeats <= audit.lost <= (stops + lost) * CONCURRENCY
