"""The doctor's findings about schedules: nothing fires them, or they can't fire."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import attrs
import pytest

from holdfast import Every, Schedule, workflow
from holdfast.hosts.inspection.schedules import read_schedule, schedule_rows
from holdfast.kernel.commands import ScheduleFire
from holdfast.ports.changes import Update
from holdfast.ports.persistence import Transaction
from holdfast.ports.records.schedule import ScheduleRow
from holdfast.ports.tables import SCHEDULES
from holdfast.testing import World

HOUR = timedelta(hours=1)


@workflow
async def report(region: str) -> str:
    return region


def a_world(namespace: str = "default") -> World:
    world = World([report], namespace=namespace)
    world.engine.sync.create_schedule(Schedule("hourly", report("emea"), when=Every(HOUR)))
    return world


@pytest.fixture
def world() -> Iterator[World]:
    with a_world() as world:
        yield world


def write(world: World, row: ScheduleRow) -> None:
    def apply(tx: Transaction) -> None:
        tx.lock(SCHEDULES, [row.key])
        tx.apply([Update(row)])

    world.store.transact(apply)


def fire(world: World) -> None:
    world.engine.core.kernel.dispatch(ScheduleFire(namespace="default", workflows=("report",)))


@pytest.mark.parametrize(("seconds", "is_sound"), [(60, True), (61, False)])
def test_a_schedule_that_nothing_fires_is_found_after_a_minute(
    world: World, seconds: int, *, is_sound: bool
) -> None:
    world.clock.advance(HOUR + timedelta(seconds=seconds))
    assert world.engine.sync.doctor().is_sound is is_sound


def test_the_finding_names_the_code_that_is_missing(world: World) -> None:
    world.clock.advance(2 * HOUR)
    (finding,) = world.engine.sync.doctor().findings
    assert (finding.code, finding.key, finding.namespace) == ("schedule_late", "hourly", "default")
    assert (
        finding.text
        == "schedule 'hourly': it was due 1h ago, and no host that has the code of 'report' fired it"
    )
    assert "start a worker that has it" in finding.advice
    assert not finding.repaired


def test_a_blocked_schedule_is_found(world: World) -> None:
    row = read_schedule(world.engine.core, "hourly")
    write(world, attrs.evolve(row, next_at=None, problem="UnknownZoneError: no Mars/Base"))
    (finding,) = world.engine.sync.doctor().findings
    assert (finding.code, finding.text) == (
        "schedule_blocked",
        "schedule 'hourly': it can't fire: UnknownZoneError: no Mars/Base",
    )


def test_a_paused_schedule_is_no_finding(world: World) -> None:
    world.engine.sync.schedule("hourly").pause()
    world.clock.advance(2 * HOUR)
    assert world.engine.sync.doctor().is_sound


def test_a_schedule_that_fires_between_two_looks_is_no_finding(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.clock.advance(2 * HOUR)

    def first_look(*arguments: Any, **options: Any) -> Iterator[ScheduleRow]:
        found = list(schedule_rows(*arguments, **options))
        assert found
        fire(world)
        yield from found

    monkeypatch.setattr("holdfast.hosts.maintenance.doctor.doctor.schedule_rows", first_look)
    assert world.engine.sync.doctor().is_sound


def test_schedules_of_other_namespaces_are_checked_on_request() -> None:
    with a_world("one") as world:  # a namespace that has schedules and no run
        world.clock.advance(2 * HOUR)
        other = world.engine.on(world.engine.core.adapters, workflows=[report], namespace="two").sync
        assert other.doctor().is_sound
        found = [one for one in other.doctor(all_namespaces=True).findings if one.code == "schedule_late"]
        assert [(one.namespace, one.key) for one in found] == [("one", "hourly")]
