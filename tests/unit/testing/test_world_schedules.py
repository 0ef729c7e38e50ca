"""Schedules in a test world: they fire as its time passes."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Channel, Cron, Every, Schedule, scheduled, step, workflow
from holdfast.ports.errors import DefinitionError
from holdfast.testing import RunStuckError, World
from holdfast.testing.clock import DEFAULT_START

go = Channel("go", str)


@step
def make(text: str) -> str:
    return text.upper()


@workflow
async def report(region: str) -> str:
    started = scheduled()
    assert started is not None
    await asyncio.sleep(60)
    return await make(f"{region} {started.at:%d. %H:%M %z} {started.kind}")


@workflow
async def waiting() -> str:
    return await go.receive()


NIGHTLY = Schedule("nightly", report("emea"), when=Cron("30 2 * * *", zone="Europe/Paris"))


def test_schedules_fire_as_time_passes() -> None:
    with World(schedules=[NIGHTLY]) as world:
        world.advance(days=3)
        runs = [world.engine.sync.handle(report, run.id) for run in world.engine.sync.runs(oldest_first=True)]
        assert [(run.id, run.result()) for run in runs] == [
            (f"nightly/2026-01-0{day}T01:30:00Z", f"EMEA 0{day}. 02:30 +0100 DUE") for day in (1, 2, 3)
        ]
        assert [run.info().created_at for run in runs] == [
            datetime(2026, 1, day, 1, 30, tzinfo=UTC) for day in (1, 2, 3)
        ]
        assert world.now == DEFAULT_START + timedelta(days=3)


def test_a_world_with_a_schedule_becomes_quiet() -> None:
    with World(schedules=[NIGHTLY]) as world:
        world.run_until_quiet()
        assert world.now == DEFAULT_START
        triggered = world.engine.sync.schedule("nightly").trigger()
        world.run_until_quiet()
        assert world.now == DEFAULT_START + timedelta(minutes=1)
        assert world.engine.sync.handle(report, triggered.run_id or "").result().endswith("MANUAL")


@pytest.mark.slow
def test_schedules_fire_while_a_run_is_awaited() -> None:
    with World([waiting], schedules=[NIGHTLY]) as world:
        with pytest.raises(RunStuckError):
            world.run(waiting())
        assert len(list(world.engine.sync.runs(workflow="report"))) > 300


def test_a_schedule_that_is_created_later_fires_too() -> None:
    with World([report]) as world:
        handle = world.engine.sync.create_schedule(
            Schedule("often", report("x"), when=Every(timedelta(hours=6)))
        )
        world.advance(hours=13)
        assert [one.outcome for one in handle.info().recent] == ["started", "started"]
        handle.pause()
        world.advance(days=1)
        assert handle.info().runs_started == 2


def test_two_schedules_of_one_name_are_refused() -> None:
    with pytest.raises(DefinitionError, match="two schedules are named 'nightly'"):
        World(schedules=[NIGHTLY, NIGHTLY])
