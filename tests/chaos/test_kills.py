"""Workers with many concurrent jobs are killed at chosen points."""

import random
import signal
from collections import Counter

import pytest

from tests.chaos.faults import Fault
from tests.chaos.figures import report
from tests.chaos.programs import CHAIN, FAN, FAN_BODIES
from tests.chaos.site import Site

pytestmark = pytest.mark.chaos

POINTS = (
    "job.claim:inside",
    "job.claim:after",
    "body",
    "job.settle:before",
    "job.settle:inside",
    "job.settle:after",
)
ROUNDS = 2
CONCURRENCY = 6
WIDTH = 12


def test_workers_killed_at_every_phase_lose_only_what_was_in_flight(site: Site) -> None:
    draw = random.Random(31)
    points = [*POINTS] * ROUNDS
    draw.shuffle(points)
    runs: list[tuple[str, object, int]] = []
    for name, point in enumerate(points):
        for number in range(4):
            runs.append((site.start(CHAIN(number)), number + 5, 5))
            given = (sum(range(WIDTH + 1)), WIDTH)
            runs.append((site.start(FAN(WIDTH)), given, WIDTH + FAN_BODIES))
        nth = draw.randrange(1, 6)
        victim = site.worker(f"{name} {point}", faults=[Fault(point, nth)], concurrency=CONCURRENCY)
        assert victim.wait() == -signal.SIGKILL, point
    assert Counter(site.book.faults()) == dict.fromkeys(POINTS, ROUNDS)

    site.worker("survivor")
    site.until_done()

    for run, result, bodies in runs:
        assert site.result(run) == result
        assert len({start.work for start in site.book.entries(run=run)}) == bodies
    audit = site.audit()
    assert len(points) / 2 <= audit.lost <= len(points) * CONCURRENCY
    assert audit.repeats <= audit.lost
    report(f"kills: {len(points)}, {audit}")
