"""Schedules as documents, and each reason why one waits."""

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import attrs
import pytest

from holdfast import Channel, Cron, Every, Schedule, workflow
from holdfast.client import Actor
from holdfast.hosts.inspection.schedules import (
    ScheduleReasons,
    read_schedule,
    schedule_info,
    schedule_reasons,
    schedule_rows,
    spec_text,
)
from holdfast.hosts.wiring.services import Core
from holdfast.kernel.calendars.specs import Spec
from holdfast.kernel.commands import ScheduleFire
from holdfast.ports.clock import micros
from holdfast.ports.errors import ScheduleNotFoundError
from holdfast.ports.records.schedule import ScheduleRow
from holdfast.testing import World
from holdfast.testing.clock import DEFAULT_START

HOUR = timedelta(hours=1)
go = Channel("go", str)


@workflow
async def report(region: str) -> str:
    return f"{region}: {await go.receive()}"


@pytest.fixture
def world() -> Iterator[World]:
    with World([report]) as world:
        yield world


def a_row(world: World, name: str = "s", **options: Any) -> ScheduleRow:
    """Create a schedule that fires every hour, and return its row."""
    made = Schedule(name, report("emea"), when=Every(HOUR), **options)
    world.engine.sync.create_schedule(made)
    return read_schedule(core(world), name)


def core(world: World) -> Core:
    return world.engine.core


def reasons(world: World, row: ScheduleRow | None = None) -> list[tuple[str, str]]:
    row = read_schedule(core(world), "s") if row is None else row
    return [(one.code, one.text) for one in schedule_reasons(core(world), row).reasons]


def test_a_schedule_that_waits_names_its_next_time(world: World) -> None:
    found = schedule_reasons(core(world), a_row(world))
    (reason,) = found.reasons
    assert (found.name, found.state, reason.code) == ("s", "active", "next")
    assert reason.text == "The next run starts in 1h (at 2026-01-01 01:00:00Z)."
    assert reason.until == DEFAULT_START + HOUR
    there = schedule_reasons(core(world), read_schedule(core(world), "s"), timezone(2 * HOUR))
    assert "(at 2026-01-01 03:00:00)" in there.reasons[0].text


def test_jitter_is_shown(world: World) -> None:
    assert reasons(world, a_row(world, jitter=90)) == [
        ("next", "The next run starts in 1h (at 2026-01-01 01:00:00Z), or up to 1m 30s later.")
    ]


def test_a_pause_names_its_actor_and_reason(world: World) -> None:
    a_row(world)
    world.engine.sync.schedule("s").pause(reason="no money", actor=Actor("user", "ann"))
    world.clock.advance(timedelta(minutes=5))
    text = "It was paused 5m ago by user ann, because 'no money'. Nothing starts until it is resumed."
    assert reasons(world) == [("paused", text)]
    info = world.engine.sync.schedule("s").info()
    assert (info.state, info.next_at, info.paused_at) == ("paused", None, DEFAULT_START)
    assert (info.paused_by, info.pause_reason) == ("user ann", "no money")


@pytest.mark.parametrize(("seconds", "code"), [(60, "next"), (61, "late")])
def test_a_schedule_is_late_after_a_minute(world: World, seconds: int, code: str) -> None:
    a_row(world)
    world.clock.advance(HOUR + timedelta(seconds=seconds))
    assert [code for code, _ in reasons(world)] == [code]


def test_a_late_schedule_names_the_code_that_is_missing(world: World) -> None:
    row = a_row(world)
    world.clock.advance(2 * HOUR)
    text = "It was due 1h ago (at 2026-01-01 01:00:00Z). Workers that have the code of"
    assert reasons(world) == [("late", f"{text} report fire it: start one.")]
    other = attrs.evolve(row, workflow="other")
    lacks = f"{text} other fire it: start one; this process lacks that code."
    assert reasons(world, other) == [("late", lacks)]


def test_a_blocked_schedule_names_its_problem(world: World) -> None:
    row = attrs.evolve(a_row(world), next_at=None, problem="UnknownZoneError: there is no Mars/Base")
    advice = "Update the schedule, or install what is missing and resume it."
    assert reasons(world, row) == [
        ("blocked", f"It can't fire: UnknownZoneError: there is no Mars/Base. {advice}")
    ]
    assert schedule_info(row).state == "blocked"


def test_a_schedule_that_is_over_says_why(world: World) -> None:
    ended = attrs.evolve(a_row(world), next_at=None)
    assert reasons(world, ended) == [
        ("over", "No more times come: its cron expressions and intervals have ended.")
    ]
    limited = attrs.evolve(a_row(world, "limited", max_runs=2), next_at=None, started=2)
    assert reasons(world, limited) == [("over", "It has started 2 runs, as many as it may.")]
    assert schedule_info(limited).state == "over"


def test_a_skipped_time_and_missed_ones_are_shown(world: World) -> None:
    a_row(world)
    world.advance(hours=1)
    world.advance(hours=1)
    why = "s/2026-01-01T01:00:00Z had not ended, and overlap is skip."
    skipped = ("skipped", f"The run for 2026-01-01 02:00:00Z was skipped, because {why}")
    assert reasons(world)[1:] == [skipped]
    world.clock.advance(4 * HOUR)
    core(world).kernel.dispatch(ScheduleFire(namespace="default", workflows=("report",)))
    assert ("missed", "3 times passed while no host fired it, without being made up for.") in reasons(world)
    assert world.engine.sync.schedule("s").info().times_missed == 3


def test_a_document_has_what_the_row_has(world: World) -> None:
    row = a_row(
        world,
        overlap="queue",
        missed="all",
        missed_within=7_200,
        jitter=1.5,
        pause_after_failures=3,
        max_runs=9,
    )
    info = schedule_info(row)
    assert (info.name, info.workflow, info.input) == ("s", "report", '{"region":"emea"}')
    assert info.when == ("every 1h",)
    assert (info.overlap, info.missed, info.missed_within) == ("queue", "all", 2 * HOUR)
    assert (info.jitter, info.pause_after_failures, info.max_runs) == (timedelta(seconds=1.5), 3, 9)
    assert (info.state, info.next_at, info.problem, info.declared) == (
        "active",
        DEFAULT_START + HOUR,
        None,
        False,
    )
    assert (info.runs_started, info.times_skipped, info.times_missed, info.failures) == (0, 0, 0, 0)
    assert [(one.change, one.at) for one in info.changes] == [("created", DEFAULT_START)]
    assert info.recent == ()
    assert (info.created_at, info.updated_at) == (DEFAULT_START, DEFAULT_START)


def test_the_outcomes_of_nominal_times_are_listed(world: World) -> None:
    a_row(world)
    world.advance(hours=2)
    started, skipped = world.engine.sync.schedule("s").info().recent
    assert (started.at, started.outcome, started.kind) == (DEFAULT_START + HOUR, "started", "due")
    assert started.handled_at == started.at
    assert (skipped.outcome, skipped.run_id) == ("skipped", started.run_id)


@pytest.mark.parametrize("field", ["start", "policy", "timing", "recent", "changes", "paused"])
def test_a_damaged_row_can_be_looked_at(world: World, field: str) -> None:
    damage: dict[str, Any] = {field: "{]"}
    row = attrs.evolve(a_row(world), **damage)
    info = schedule_info(row)
    assert info.name == "s"
    assert isinstance(schedule_reasons(core(world), row), ScheduleReasons)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (Cron("30 2 * * *"), "30 2 * * * (UTC)"),
        (Cron(["@daily", "0 12 * * *"], zone="Asia/Tokyo"), "@daily | 0 12 * * * (Asia/Tokyo)"),
        (
            Cron("@daily", gap="skip", fold="last", except_on=[date(2026, 12, 25), date(2026, 12, 26)]),
            "@daily (UTC, gap=skip, fold=last, except 2 dates)",
        ),
        (Every(5), "every 5s"),
        (Every(1.5), "every 1.5s"),
        (Every(5_400), "every 1h 30m"),
        (Every(timedelta(days=1)), "every 1d"),
        (Every(timedelta(days=1, hours=2, minutes=3, seconds=4)), "every 1d 2h 3m 4s"),
    ],
)
def test_times_are_shown_as_they_were_written(spec: Spec, text: str) -> None:
    assert spec_text(spec) == text


def test_schedules_are_read_page_by_page_by_name(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.hosts.inspection.schedules.SCHEDULES_PAGE", 2)
    for name in ("e", "b", "d", "a", "c"):
        a_row(world, name)
    assert [row.name for row in schedule_rows(core(world))] == ["a", "b", "c", "d", "e"]
    assert list(schedule_rows(core(world), "elsewhere")) == []
    assert list(schedule_rows(core(world), declared=True)) == []


def test_a_schedule_that_does_not_exist_is_not_found(world: World) -> None:
    for ask in (world.engine.sync.schedule("s").info, world.engine.sync.schedule("s").why):
        with pytest.raises(ScheduleNotFoundError, match=re.escape("there is no schedule 's'")):
            ask()


def test_the_schedule_of_a_run_is_in_its_document(world: World) -> None:
    a_row(world)
    world.advance(hours=1)
    (run,) = world.engine.sync.runs()
    assert run.scheduled is not None
    assert (run.scheduled.name, run.scheduled.kind, run.scheduled.previous) == ("s", "due", None)
    assert run.scheduled.at == datetime(2026, 1, 1, 1, tzinfo=UTC) == DEFAULT_START + HOUR
    assert micros(run.scheduled.at) == micros(run.created_at)
    assert world.start(report("x")).info().scheduled is None
