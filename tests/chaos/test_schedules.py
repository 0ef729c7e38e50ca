"""Ten workers fire the same schedules, and are killed while they do: each nominal time has exactly one run."""

import itertools
import random
import signal
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Every, Schedule
from holdfast.client import SyncScheduleHandle
from holdfast.ports.clock import micros
from holdfast.ports.records.run import RunStatus
from tests.chaos.faults import Fault
from tests.chaos.figures import pick, report
from tests.chaos.programs import ONE
from tests.chaos.site import Site

pytestmark = pytest.mark.chaos

POINTS = ("schedule.fire:inside", "schedule.fire:after")
WORKERS = 10
SECONDS = pick(12, 120)
FAULTS_MIN = 3
"""How many workers are killed at least, and as many kill themselves: on a slow machine, that takes longer."""
SECOND = timedelta(seconds=1)


def _schedule(site: Site, name: str) -> SyncScheduleHandle:
    engine = site.open_here()
    made = Schedule(name, ONE(1), when=Every(SECOND), overlap="allow", missed="all")
    return engine.create_schedule(made)


def _nominal_times(site: Site, name: str) -> list[datetime]:
    """Return the nominal times of the runs of a schedule, of which each must have one."""
    ids = [run.id for run in site.engine.runs() if run.id.startswith(f"{name}/")]
    assert len(ids) == len(set(ids))
    return sorted(datetime.fromisoformat(one.rpartition("/")[2]) for one in ids)


def test_each_second_has_one_run_while_workers_are_killed(site: Site) -> None:
    draw = random.Random(7)
    names = [f"tick-{number}" for number in range(3)]
    handles = [_schedule(site, name) for name in names]
    workers = [site.worker(f"worker {number}", "one@1") for number in range(WORKERS)]
    began = time.monotonic()
    number = killed = 0
    while (past := time.monotonic() - began) < SECONDS or (
        past < 5 * SECONDS and (killed < FAULTS_MIN or len(site.book.faults()) < FAULTS_MIN)
    ):
        victim = draw.randrange(WORKERS)
        if draw.random() < 0.5:
            workers[victim].kill()
            assert workers[victim].wait() == -signal.SIGKILL
            killed += 1
            workers[victim] = site.worker(f"next {number}", "one@1")
        else:  # it kills itself in the middle of a firing
            fault = Fault(draw.choice(POINTS), 1)
            workers.append(site.worker(f"striking {number}", "one@1", faults=[fault]))
        number += 1
        time.sleep(draw.uniform(0.1, 0.6))
    for handle in handles:
        handle.pause()
    site.until_done(60)

    struck = Counter(site.book.faults())
    assert killed >= FAULTS_MIN
    assert sum(struck.values()) >= FAULTS_MIN, struck
    runs = 0
    for name, handle in zip(names, handles, strict=True):
        times = _nominal_times(site, name)
        assert len(times) >= SECONDS / 2, "a slow machine is some seconds behind when the schedule is paused"
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert set(gaps) == {SECOND}
        runs += len(times)
        info = handle.info()
        assert (info.runs_started, info.times_missed, info.times_skipped) == (len(times), 0, 0)
    assert {run.status for run in site.engine.runs()} == {RunStatus.COMPLETED}
    report(f"workers killed: {killed}, in a firing: {dict(struck)}, runs: {runs}")


def test_workers_with_wrong_clocks_fire_neither_early_nor_twice(site: Site) -> None:
    handle = _schedule(site, "tick")
    for number, wrong_by in enumerate((-300.0, 300.0, 0.0)):
        site.worker(f"wrong {number}", "one@1", wrong_by=wrong_by)
    time.sleep(pick(5, 30))
    handle.pause()
    site.until_done(60)

    times = _nominal_times(site, "tick")
    assert len(times) >= 4
    assert {later - earlier for earlier, later in itertools.pairwise(times)} == {SECOND}
    for at in times:
        stored_at = site.run(f"tick/{at.astimezone(UTC).isoformat().replace('+00:00', 'Z')}").created_at
        assert stored_at >= micros(at)
