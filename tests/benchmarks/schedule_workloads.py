"""Workloads of schedules: many that are not due, and many that are due at one instant."""

import time
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast import Cron, Engine, Every, Schedule, Worker
from holdfast.hosts.client.schedules import put_command
from holdfast.kernel.commands import SchedulePut
from holdfast.ports.records.run import RunStatus
from holdfast.ports.structs import evolve
from tests.benchmarks.floors import check
from tests.benchmarks.meter import Meter, Sample, wait_until
from tests.benchmarks.programs import ALL, ONE
from tests.benchmarks.sites import Before, Site

CONCURRENCY: Final = 200
_BATCH: Final = 500
_AHEAD: Final = timedelta(seconds=5)
"""How far ahead of the start of the worker the common nominal time is."""


def not_due(schedules: int) -> Before:
    """Schedules that fire at New Year."""

    def make(site: Site) -> None:
        yearly = Schedule("at-new-year", ONE(1), when=Cron("0 0 1 1 *", zone="Europe/Paris"))
        _put(site, yearly, schedules)

    return Before(f"schedules-{schedules}", make)


def fire(site: Site, due: int) -> Sample:
    """Fire schedules that are all due at one instant. The latencies are from that instant to each run's creation."""
    at = datetime.now(UTC) + _AHEAD + timedelta(milliseconds=due)
    hourly = Every(timedelta(hours=1), anchor=at.replace(microsecond=0))
    _put(site, Schedule("due", ONE(1), when=hourly), due)
    with Meter(site) as meter, Engine.open(site.url, workflows=ALL.values()).sync as engine:
        with Worker(engine, concurrency=CONCURRENCY) as worker:
            time.sleep(max(0.0, (hourly.anchor - datetime.now(UTC)).total_seconds()))
            meter.start()
            wait_until(lambda: worker.stats().settled >= due)
            meter.stop()
        runs = [run for run in engine.runs(status="completed") if run.id.startswith("due")]
        check(len(runs) == due, f"{len(runs)} runs were started by {due} schedules")
        check(engine.count(status="failed")[RunStatus.FAILED] == 0, "a run failed")
        latencies = tuple((run.created_at - hourly.anchor).total_seconds() for run in runs)
        check(min(latencies) >= 0, "a run was created before its time")
    return meter.sample(due, latencies=latencies)


def _put(site: Site, schedule: Schedule[object], number: int) -> None:
    """Create many schedules like one."""
    with Engine.open(site.url, workflows=ALL.values()).sync as engine:
        made = put_command(engine.core, schedule)
        puts: list[SchedulePut] = [evolve(made, schedule=f"{made.schedule}-{one}") for one in range(number)]
        for at in range(0, number, _BATCH):
            for answer in engine.kernel.dispatch_many(puts[at : at + _BATCH]):
                check(not isinstance(answer, Exception), f"a schedule was refused: {answer}")
