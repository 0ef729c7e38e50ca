"""Schedules: each nominal time has one run at most, and what becomes of it is noted."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import attrs
import pytest

from holdfast.kernel.calendars.specs import Cron, Every, Spec
from holdfast.kernel.commands import (
    FollowUp,
    Missed,
    Overlap,
    RunCancel,
    RunCreate,
    RunPause,
    RunRemove,
    ScheduleBackfill,
    ScheduleFire,
    SchedulePause,
    SchedulePolicy,
    SchedulePut,
    ScheduleRemove,
    ScheduleReplan,
    ScheduleResume,
    SchedulesFired,
    ScheduleStored,
    ScheduleTrigger,
    admissions,
)
from holdfast.kernel.pipelines.plan import Plan
from holdfast.kernel.schedules.row_data import (
    NominalOutcome,
    OperatorChange,
    scheduled_start,
    timing_of,
    values_of,
)
from holdfast.kernel.schedules.timetable import utc_text
from holdfast.ports.actors import Actor
from holdfast.ports.changes import Update
from holdfast.ports.clock import micros
from holdfast.ports.errors import (
    InvalidCommandError,
    ScheduleExistsError,
    ScheduleNotFoundError,
    UnknownWorkflowError,
    UnknownZoneError,
)
from holdfast.ports.queries.schedules import FindSchedule
from holdfast.ports.records.run import RunStatus
from holdfast.ports.records.schedule import ScheduleName, ScheduleRow
from holdfast.ports.records.values import Micros, Payload
from holdfast.ports.structs import evolve
from holdfast.ports.zones import ZoneTable
from tests.unit.kernel.world import SECOND, World, completing, payload, pipeline, stage
from tests.unit.kernel.world import failed as failing

PLAN = pipeline(stage("a", attempts=1))
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
HOURLY: Final = Every(timedelta(hours=1))


@pytest.fixture
def world() -> World:
    return World(PLAN)  # its clock begins at 2026-01-01T00:00:00Z


def put(world: World, *specs: Spec, name: str = "s", **options: Any) -> ScheduleStored:
    policy = {field.name for field in attrs.fields(SchedulePolicy)}
    command = SchedulePut(
        schedule=name,
        start=RunCreate(workflow="w", input=payload(0)),
        timing=timing_of(specs or (HOURLY,)),
        policy=SchedulePolicy(**{key: value for key, value in options.items() if key in policy}),
        **{key: value for key, value in options.items() if key not in policy},
    )
    return world.do(command)


def fire(world: World, *, limit: int = 100, workflows: Sequence[str] = ("w",)) -> SchedulesFired:
    return world.do(ScheduleFire(workflows=tuple(workflows), limit=limit))


def row(world: World, name: str = "s") -> ScheduleRow:
    found = world.store.read(FindSchedule(ScheduleName("default", name)))
    assert found is not None
    return found


def outcomes(world: World, name: str = "s") -> list[tuple[str, str, str]]:
    noted = values_of(row(world, name).recent, NominalOutcome)
    return [(utc_text(one.at)[5:16], one.outcome, one.kind.value) for one in noted]


def follow(world: World, follow_up: FollowUp) -> None:
    for command in admissions("default", follow_up):
        world.do(command)


def end(world: World, run: str, *, fails: bool = False) -> None:
    for attempt in world.claim(world.open()):
        if attempt.job.startswith(f"{world.run(run).key}."):
            world.settle(attempt, failing(retryable=False) if fails else completing(attempt, 0).outcome)


def at(text: str) -> Micros:
    return micros(datetime.fromisoformat(text).replace(tzinfo=UTC))


# Firing ---------------------------------------------------------------------------------------------------------


def test_a_run_starts_at_each_nominal_time(world: World) -> None:
    assert put(world).next_at == at("2026-01-01T01:00")
    assert fire(world) == SchedulesFired(next_at=at("2026-01-01T01:00"))
    world.clock.advance(timedelta(hours=1))
    fired = fire(world)
    assert fired.runs == ("s/2026-01-01T01:00:00Z",)
    assert fired.next_at == at("2026-01-01T02:00")
    run = world.run("s/2026-01-01T01:00:00Z")
    assert run.status is RunStatus.RUNNING
    started = scheduled_start(run.scheduled)
    assert started is not None
    assert (started.schedule, started.at, started.kind, started.previous) == (
        "s",
        at("2026-01-01T01:00"),
        "due",
        None,
    )
    assert outcomes(world) == [("01-01T01:00", "started", "due")]


def test_nothing_starts_before_its_time_and_nothing_twice(world: World) -> None:
    put(world)
    world.clock.advance(timedelta(minutes=59, seconds=59))
    assert fire(world).runs == ()
    world.clock.advance(timedelta(seconds=1))
    assert len(fire(world).runs) == 1
    assert fire(world).runs == ()
    world.clock.jump(-timedelta(hours=1))
    assert fire(world).runs == ()
    world.clock.jump(timedelta(hours=1))
    assert fire(world).runs == ()


def test_a_schedule_that_is_made_at_a_nominal_time_fires_at_the_next_one(world: World) -> None:
    world.clock.advance(timedelta(hours=1))
    assert put(world).next_at == at("2026-01-01T02:00")


def test_only_hosts_with_the_code_fire(world: World) -> None:
    put(world)
    world.clock.advance(timedelta(hours=1))
    assert fire(world, workflows=["other"]) == SchedulesFired()
    assert len(fire(world).runs) == 1


def test_the_previous_run_is_known(world: World) -> None:
    put(world, overlap=Overlap.ALLOW)
    for _ in range(2):
        world.clock.advance(timedelta(hours=1))
        fire(world)
    started = scheduled_start(world.run("s/2026-01-01T02:00:00Z").scheduled)
    assert started is not None
    assert started.previous == at("2026-01-01T01:00")


def test_a_run_keeps_its_schedule_when_it_is_run_again(world: World) -> None:
    put(world)
    world.clock.advance(timedelta(hours=1))
    (run,) = fire(world).runs
    end(world, run, fails=True)
    before = world.run(run)
    world.rerun(id=run)
    assert world.run(run).generation == 2
    assert world.run(run).scheduled == before.scheduled is not None


def test_a_time_in_a_zone(world: World) -> None:
    put(world, Cron("30 2 * * *", zone="Europe/Paris"))
    world.clock.jump(datetime(2026, 3, 29, 2, tzinfo=UTC) - world.clock.now())
    assert fire(world).runs == ("s/2026-03-29T01:30:00Z",)
    started = scheduled_start(world.run("s/2026-03-29T01:30:00Z").scheduled)
    assert started is not None
    assert (started.zone, started.offset) == ("Europe/Paris", 7_200)


def test_the_limit_bounds_the_runs_of_a_command(world: World) -> None:
    for name in "abc":
        put(world, name=name)
    world.clock.advance(timedelta(hours=1))
    first = fire(world, limit=2)
    assert (len(first.runs), first.more) == (2, True)
    second = fire(world, limit=2)
    assert (len(second.runs), second.more) == (1, False)


def test_jitter_delays_the_run_and_nothing_else(world: World) -> None:
    put(world, jitter=10 * MINUTE)
    world.clock.advance(timedelta(hours=1))
    (run,) = fire(world).runs
    assert run == "s/2026-01-01T01:00:00Z"
    start_at = world.run(run).start_at
    assert start_at is not None
    assert 0 < start_at - at("2026-01-01T01:00") <= 10 * MINUTE
    assert row(world).next_at == at("2026-01-01T02:00")


def test_a_triggered_run_is_not_delayed(world: World) -> None:
    put(world, jitter=10 * MINUTE)
    started = world.do(ScheduleTrigger(schedule="s"))
    assert started.run_id is not None
    assert world.run(started.run_id).status is RunStatus.RUNNING


def test_a_schedule_ends_after_its_runs(world: World) -> None:
    put(world, overlap=Overlap.ALLOW, runs_max=2)
    for _ in range(4):
        world.clock.advance(timedelta(hours=1))
        fire(world)
    assert row(world).started == 2
    assert row(world).next_at is None


def test_a_schedule_ends_with_its_times(world: World) -> None:
    put(world, Every(timedelta(hours=1), end=datetime(2026, 1, 1, 2, tzinfo=UTC)), overlap=Overlap.ALLOW)
    world.clock.advance(timedelta(hours=5))
    assert len(fire(world).runs) == 1
    assert row(world).next_at is None


@pytest.mark.parametrize(
    ("overlap", "run", "skipped"),
    [
        (Overlap.ALLOW, 1, 0),
        (Overlap.QUEUE, 1, 0),
        (Overlap.SKIP, 1, 0),
        (Overlap.QUEUE_ONE, 3, 2),
        (Overlap.CANCEL, 3, 2),
        (Overlap.TERMINATE, 3, 2),
    ],
)
def test_the_last_run_of_a_schedule_is_for_the_time_that_its_policy_selects(
    world: World, overlap: Overlap, run: int, skipped: int
) -> None:
    put(world, overlap=overlap, missed=Missed.ALL, runs_max=1)
    world.clock.advance(timedelta(hours=3))
    fired = fire(world)
    assert (fired.runs, fired.skipped, fired.next_at) == ((f"s/2026-01-01T0{run}:00:00Z",), skipped, None)
    assert fire(world) == SchedulesFired()


def test_times_that_are_skipped_do_not_end_a_schedule(world: World) -> None:
    put(world, missed=Missed.ALL, runs_max=2)
    world.clock.advance(timedelta(hours=1))
    fire(world)
    world.clock.advance(timedelta(hours=4))
    assert fire(world).skipped == 4
    end(world, FIRST)
    world.clock.advance(timedelta(hours=1))
    assert len(fire(world).runs) == 1
    assert row(world).next_at is None


def previous(world: World, run: str) -> str | None:
    started = scheduled_start(world.run(run).scheduled)
    assert started is not None
    return None if started.previous is None else utc_text(started.previous)[11:16]


def test_the_previous_run_is_that_of_the_nominal_time_before(world: World) -> None:
    """Not one that was triggered, nor the last of a backfill."""
    put(world, overlap=Overlap.ALLOW)
    world.clock.advance(timedelta(hours=5, seconds=1))
    first = fire(world).runs[0]
    assert previous(world, first) is None
    triggered = world.do(ScheduleTrigger(schedule="s")).run_id
    assert triggered is not None
    times = tuple(at(f"2026-01-01T0{hour}:00") for hour in (1, 2))
    filled = world.do(ScheduleBackfill(schedule="s", times=times, overlap="allow")).runs
    world.clock.advance(timedelta(hours=1))
    (later,) = fire(world).runs
    found = [previous(world, run) for run in (triggered, *filled, later)]
    assert found == ["05:00", None, "01:00", "05:00"]


def test_the_previous_run_is_known_however_many_times_were_skipped(world: World) -> None:
    put(world, Every(timedelta(minutes=1)))
    world.clock.advance(timedelta(minutes=1))
    (first,) = fire(world).runs
    for _ in range(45):
        world.clock.advance(timedelta(minutes=1))
        fire(world)
    assert len(outcomes(world)) == 20
    assert outcomes(world)[0] == ("01-01T00:01", "started", "due")
    end(world, first)
    world.clock.advance(timedelta(minutes=1))
    (run,) = fire(world).runs
    assert previous(world, run) == "00:01"


# Overlap --------------------------------------------------------------------------------------------------------


def two_times(world: World, overlap: Overlap) -> SchedulesFired:
    """Fire twice, an hour apart; the first run has not ended."""
    put(world, overlap=overlap)
    world.clock.advance(timedelta(hours=1))
    follow(world, fire(world).follow_up)
    world.clock.advance(timedelta(hours=1))
    fired = fire(world)
    follow(world, fired.follow_up)
    return fired


FIRST, SECOND_RUN, THIRD = (f"s/2026-01-01T0{hour}:00:00Z" for hour in (1, 2, 3))


def test_skip_starts_nothing_while_a_run_is_under_way(world: World) -> None:
    fired = two_times(world, Overlap.SKIP)
    assert (fired.runs, fired.skipped) == ((), 1)
    assert outcomes(world)[-1] == ("01-01T02:00", "skipped", "due")
    end(world, FIRST)
    world.clock.advance(timedelta(hours=1))
    assert fire(world).runs == (THIRD,)


def test_skip_counts_a_paused_run(world: World) -> None:
    put(world)
    world.clock.advance(timedelta(hours=1))
    fire(world)
    world.do(RunPause(run_id=FIRST))
    world.clock.advance(timedelta(hours=1))
    assert fire(world).skipped == 1


def test_queue_lets_runs_wait_for_each_other(world: World) -> None:
    two_times(world, Overlap.QUEUE)
    world.clock.advance(timedelta(hours=1))
    follow(world, fire(world).follow_up)
    found = [world.run(run).status.value for run in (FIRST, SECOND_RUN, THIRD)]
    assert found == ["running", "pending", "pending"]


def test_queue_one_keeps_the_newest_that_waits(world: World) -> None:
    two_times(world, Overlap.QUEUE_ONE)
    world.clock.advance(timedelta(hours=1))
    follow(world, fire(world).follow_up)
    found = [world.run(run).status.value for run in (FIRST, SECOND_RUN, THIRD)]
    assert found == ["running", "cancelled", "pending"]


@pytest.mark.parametrize("overlap", [Overlap.CANCEL, Overlap.TERMINATE])
def test_the_new_run_ends_the_old_one(world: World, overlap: Overlap) -> None:
    two_times(world, overlap)
    assert [world.run(run).status.value for run in (FIRST, SECOND_RUN)] == ["cancelled", "running"]
    assert f"{SECOND_RUN} took its place" in (world.run(FIRST).error or "")


def test_allow_starts_runs_beside_each_other(world: World) -> None:
    two_times(world, Overlap.ALLOW)
    assert [world.run(run).status.value for run in (FIRST, SECOND_RUN)] == ["running", "running"]


# Missed times ---------------------------------------------------------------------------------------------------


def test_two_weeks_of_downtime_bring_one_run(world: World) -> None:
    put(world, Every(timedelta(seconds=5)))
    world.clock.advance(timedelta(days=14))
    fired = fire(world)
    assert fired.runs == ("s/2026-01-15T00:00:00Z",)
    assert (fired.missed, fired.more) == (1_000, False)
    assert row(world).next_at == at("2026-01-15T00:00:05")
    assert fire(world).runs == ()


def test_all_missed_times_within_the_window_are_made_up_oldest_first(world: World) -> None:
    put(world, overlap=Overlap.ALLOW, missed=Missed.ALL, window=3 * HOUR)
    world.clock.advance(timedelta(hours=5, minutes=1))
    fired = fire(world, limit=2)
    assert (fired.missed, fired.more) == (2, True)
    assert fired.runs == ("s/2026-01-01T03:00:00Z", "s/2026-01-01T04:00:00Z")
    assert fire(world, limit=2).runs == ("s/2026-01-01T05:00:00Z",)
    assert [kind for _, _, kind in outcomes(world)] == ["made_up", "made_up", "due"]


def test_a_time_that_is_exactly_as_late_as_the_window_is_made_up(world: World) -> None:
    put(world, overlap=Overlap.ALLOW, missed=Missed.ALL, window=2 * HOUR)
    world.clock.advance(timedelta(hours=3))
    assert fire(world).runs == tuple(f"s/2026-01-01T0{hour}:00:00Z" for hour in (1, 2, 3))


@pytest.mark.parametrize(("late", "starts"), [(5, True), (6, False)])
def test_none_starts_only_what_is_a_little_late(world: World, late: int, *, starts: bool) -> None:
    put(world, missed=Missed.NONE)
    world.clock.advance(timedelta(hours=2, minutes=late))
    fired = fire(world)
    assert bool(fired.runs) is starts
    assert fired.missed == (1 if starts else 2)
    assert row(world).next_at == at("2026-01-01T03:00")


@pytest.mark.parametrize("overlap", [Overlap.CANCEL, Overlap.TERMINATE, Overlap.QUEUE_ONE])
def test_of_many_missed_times_only_the_last_takes_the_place_of_others(world: World, overlap: Overlap) -> None:
    put(world, missed=Missed.ALL, overlap=overlap)
    world.clock.advance(timedelta(hours=3))
    fired = fire(world)
    assert (fired.runs, fired.skipped) == ((THIRD,), 2)
    assert [outcome for _, outcome, _ in outcomes(world)] == ["superseded", "superseded", "started"]


def test_of_many_missed_times_skip_starts_the_first(world: World) -> None:
    put(world, missed=Missed.ALL, overlap=Overlap.SKIP)
    world.clock.advance(timedelta(hours=3))
    assert fire(world).runs == (FIRST,)


# Failures -------------------------------------------------------------------------------------------------------


def test_failures_in_a_row_pause_the_schedule(world: World) -> None:
    put(world, pause_after_failures=2)
    for run in (FIRST, SECOND_RUN):
        world.clock.advance(timedelta(hours=1))
        assert fire(world).runs == (run,)
        end(world, run, fails=True)
    world.clock.advance(timedelta(hours=1))
    assert fire(world).runs == ()
    assert row(world).paused is not None
    assert row(world).next_at is None
    world.do(ScheduleResume(schedule="s", make_up=True))
    assert fire(world).runs == (THIRD,)


def test_a_success_ends_the_row_of_failures(world: World) -> None:
    put(world, pause_after_failures=2)
    for hour, fails in enumerate((True, False, True, False), start=1):
        world.clock.advance(timedelta(hours=1))
        (run,) = fire(world).runs
        assert run.startswith(f"s/2026-01-01T0{hour}")
        end(world, run, fails=fails)


# Operators ------------------------------------------------------------------------------------------------------


def test_a_paused_schedule_does_not_fire_and_leaves_out_what_passed(world: World) -> None:
    put(world)
    world.do(SchedulePause(schedule="s", reason="holiday", actor=Actor(id="ann")))
    world.clock.advance(timedelta(hours=3))
    assert fire(world) == SchedulesFired()
    world.clock.advance(timedelta(minutes=30))
    assert world.do(ScheduleResume(schedule="s")).next_at == at("2026-01-01T04:00")
    assert fire(world).runs == ()
    changes = values_of(row(world).changes, OperatorChange)
    assert [(one.change, one.reason, one.actor and one.actor.id) for one in changes] == [
        ("created", "", None),
        ("paused", "holiday", "ann"),
        ("resumed", "", None),
    ]


def test_a_pause_may_count_as_downtime(world: World) -> None:
    put(world)
    world.do(SchedulePause(schedule="s"))
    world.clock.advance(timedelta(hours=3))
    world.do(ScheduleResume(schedule="s", make_up=True))
    fired = fire(world)
    assert (fired.runs, fired.missed) == ((THIRD,), 2)


def test_a_change_of_the_times_counts_from_now(world: World) -> None:
    put(world)
    world.clock.advance(timedelta(hours=1, minutes=10))
    stored = put(world, Every(timedelta(minutes=30)), if_exists="update")
    assert (stored.created, stored.changed, stored.next_at) == (False, True, at("2026-01-01T01:30"))
    assert fire(world).runs == ()


def test_another_change_leaves_what_is_due(world: World) -> None:
    put(world)
    world.clock.advance(timedelta(hours=1, minutes=10))
    assert put(world, if_exists="update", overlap=Overlap.ALLOW).next_at == at("2026-01-01T01:00")
    assert fire(world).runs == (FIRST,)


def test_an_update_does_not_end_a_pause(world: World) -> None:
    put(world)
    world.do(SchedulePause(schedule="s"))
    assert put(world, Every(timedelta(minutes=1)), if_exists="update").next_at is None
    world.clock.advance(timedelta(hours=1))
    assert fire(world).runs == ()


def test_the_same_declaration_changes_nothing(world: World) -> None:
    put(world, declared="v1")
    before = row(world)
    assert put(world, Every(timedelta(minutes=1)), declared="v1", if_exists="update").changed is False
    assert row(world) == before
    assert put(world, Every(timedelta(minutes=1)), declared="v2", if_exists="update").changed is True


def test_a_declaration_does_not_undo_what_an_operator_changed(world: World) -> None:
    put(world, declared="v1")
    put(world, Every(timedelta(minutes=1)), if_exists="update")
    assert put(world, declared="v1", if_exists="update").changed is False
    assert row(world).next_at == at("2026-01-01T00:01")
    assert put(world, declared="v2", if_exists="update").changed is True
    assert row(world).next_at == at("2026-01-01T01:00")


@pytest.mark.parametrize("by", ["resume", "declaration"])
def test_a_schedule_that_could_not_fire_is_late_and_not_lost(world: World, by: str) -> None:
    put(world, declared="v1")
    good = row(world)
    world.put(Update(evolve(good, start="{")))
    world.clock.advance(timedelta(hours=1))
    assert fire(world).runs == ()
    world.put(Update(evolve(row(world), start=good.start)))
    if by == "resume":
        assert world.do(ScheduleResume(schedule="s")).changed
        assert fire(world).runs == (FIRST,)
    else:
        assert put(world, declared="v1", if_exists="update").changed
        assert row(world).problem is None


def test_a_schedule_is_made_once(world: World) -> None:
    put(world)
    with pytest.raises(ScheduleExistsError):
        put(world)


def test_a_removed_schedule_does_not_fire_and_a_new_one_repeats_no_run(world: World) -> None:
    put(world)
    world.clock.advance(timedelta(hours=1))
    fire(world)
    assert world.do(ScheduleRemove(schedule="s")).removed
    assert not world.do(ScheduleRemove(schedule="s")).removed
    world.clock.jump(-timedelta(minutes=5))
    put(world)
    world.clock.jump(timedelta(minutes=5))
    assert fire(world).runs == ()
    assert outcomes(world) == [("01-01T01:00", "existing", "due")]


def test_a_prune_removes_only_what_it_declared(world: World) -> None:
    put(world)
    assert not world.do(ScheduleRemove(schedule="s", declared="v1")).removed
    put(world, name="t", declared="v1")
    assert world.do(ScheduleRemove(schedule="t", declared="v1")).removed


def test_a_trigger_starts_a_run_beside_the_plan(world: World) -> None:
    put(world)
    started = world.do(ScheduleTrigger(schedule="s"))
    assert started.run_id is not None
    assert started.run_id.startswith("s/manual/")
    assert row(world).next_at == at("2026-01-01T01:00")
    again = world.do(ScheduleTrigger(schedule="s"))
    assert (again.run_id, again.skipped_for) == (None, started.run_id)
    allowed = world.do(ScheduleTrigger(schedule="s", overlap=Overlap.ALLOW))
    assert allowed.run_id not in {None, started.run_id}


def test_a_backfill_starts_what_has_no_run(world: World) -> None:
    put(world, overlap=Overlap.ALLOW)
    world.clock.advance(timedelta(hours=1))
    fire(world)
    before = row(world).next_at
    times = (at("2025-12-31T22:00"), at("2025-12-31T23:00"), at("2026-01-01T01:00"))
    filled = world.do(ScheduleBackfill(schedule="s", times=times, overlap="allow"))
    assert filled.runs == ("s/2025-12-31T22:00:00Z", "s/2025-12-31T23:00:00Z")
    assert filled.existing == 1
    assert row(world).next_at == before
    again = world.do(ScheduleBackfill(schedule="s", times=times, overlap="allow"))
    assert (again.runs, again.existing) == ((), 3)


def test_backfilled_runs_wait_for_each_other_behind_live_ones(world: World) -> None:
    put(world)
    world.clock.advance(timedelta(hours=3))
    times = tuple(at(f"2026-01-01T0{hour}:00") for hour in (1, 2))
    filled = world.do(ScheduleBackfill(schedule="s", times=times))
    follow(world, filled.follow_up)
    assert [world.run(run).status.value for run in filled.runs] == ["running", "pending"]
    assert {world.run(run).priority for run in filled.runs} == {-1_440}


@pytest.mark.parametrize(
    ("times", "message"),
    [((at("2026-01-01T00:30"),), "no nominal time"), ((at("2026-01-01T09:00"),), "past times")],
)
def test_a_backfill_of_other_times_is_refused(world: World, times: tuple[Micros, ...], message: str) -> None:
    put(world)
    world.clock.advance(timedelta(hours=1))
    with pytest.raises(InvalidCommandError, match=message):
        world.do(ScheduleBackfill(schedule="s", times=times))


def test_a_backfill_is_bounded(world: World) -> None:
    put(world)
    with pytest.raises(InvalidCommandError, match="at most 100 times"):
        world.do(ScheduleBackfill(schedule="s", times=tuple(range(101))))


# Bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"schedule": ""}, "1 to 200 characters"),
        ({"schedule": "a//b"}, "no /"),
        ({"schedule": "/a"}, "no /"),
        ({"schedule": "a\nb"}, "control character"),
        ({"timing": "[]"}, "1 to 50"),
        ({"timing": "{"}, "can't be used"),
        ({"start": RunCreate(workflow="w", input=payload(0), id="x")}, r"start\.id"),
        ({"start": RunCreate(workflow="w", input=payload(0), start_at=1)}, r"start\.start_at"),
        ({"start": RunCreate(workflow="w", input=Payload(blob="b"))}, "stored with it"),
        ({"start": RunCreate(workflow="w", input=Payload(inline='"' + "x" * 65_536 + '"'))}, "65,536"),
    ],
)
def test_what_can_not_be_is_refused(world: World, fields: dict[str, Any], message: str) -> None:
    command = SchedulePut(
        schedule="s", start=RunCreate(workflow="w", input=payload(0)), timing=timing_of([HOURLY])
    )
    with pytest.raises(InvalidCommandError, match=message):
        world.do(attrs.evolve(command, **fields))
    assert world.tables().schedules == {}


def test_a_key_and_a_policy_with_a_slot_do_not_combine(world: World) -> None:
    start = RunCreate(workflow="w", input=payload(0), concurrency_key="k")
    for overlap in Overlap:
        policy = SchedulePolicy(overlap=overlap)
        command = SchedulePut(schedule=overlap.value, start=start, timing=timing_of([HOURLY]), policy=policy)
        if overlap in {Overlap.QUEUE, Overlap.QUEUE_ONE, Overlap.CANCEL}:
            with pytest.raises(InvalidCommandError, match="combined"):
                world.do(command)
        else:
            world.do(command)


def test_an_unknown_workflow_is_refused(world: World) -> None:
    start = RunCreate(workflow="other", input=payload(0))
    with pytest.raises(UnknownWorkflowError):
        world.do(SchedulePut(schedule="s", start=start, timing=timing_of([HOURLY])))


@pytest.mark.parametrize(
    "command",
    [
        SchedulePause(schedule="s"),
        ScheduleResume(schedule="s"),
        ScheduleTrigger(schedule="s"),
        ScheduleBackfill(schedule="s", times=()),
    ],
    ids=lambda command: command.type,
)
def test_a_schedule_that_does_not_exist(world: World, command: Any) -> None:
    with pytest.raises(ScheduleNotFoundError):
        world.do(command)


def test_times_that_are_over_are_refused(world: World) -> None:
    with pytest.raises(InvalidCommandError, match="never fires after now"):
        put(world, Every(timedelta(hours=1), end=datetime(2025, 1, 1, tzinfo=UTC)))


@pytest.mark.parametrize(
    ("field", "text"),
    [("timing", "{"), ("policy", "[1]"), ("start", "{}"), ("timing", '[{"kind":"cron"}]')],
)
def test_a_damaged_schedule_says_so_and_holds_up_no_other(world: World, field: str, text: str) -> None:
    put(world, name="bad")
    put(world, name="good")
    damaged: dict[str, Any] = {field: text}
    world.put(Update(evolve(row(world, "bad"), **damaged)))
    world.clock.advance(timedelta(hours=1))
    assert fire(world).runs == ("good/2026-01-01T01:00:00Z",)
    assert row(world, "bad").problem
    assert row(world, "bad").next_at is None
    world.clock.advance(timedelta(hours=1))
    put(world, name="bad", if_exists="update")
    assert row(world, "bad").problem is None
    assert row(world, "bad").next_at == at("2026-01-01T03:00")


# Time zone data -------------------------------------------------------------------------------------------------


@attrs.define
class Zones:
    """Two releases of the database: in the second, the zone is an hour further east."""

    version: str = "2025a"

    def table(self, name: str) -> ZoneTable:
        if self.version == "2024a":
            raise UnknownZoneError(name, self.version, "")
        offset = {"2025a": 3_600, "2026a": 7_200, "2026b": 0}[self.version]
        return ZoneTable(name, self.version, (), (offset,))


def test_a_newer_release_of_the_time_zones_plans_again(world: World) -> None:
    zones = Zones()
    world.kernel.zones = zones
    assert put(world, Cron("0 9 * * *", zone="A/B")).next_at == at("2026-01-01T08:00")
    zones.version = "2026a"
    replanned = world.do(ScheduleReplan(workflows=("w",), version="2026a"))
    assert (replanned.replanned, replanned.moved) == (1, ("s",))
    assert row(world).next_at == at("2026-01-01T07:00")
    assert world.do(ScheduleReplan(workflows=("w",), version="2026a")).replanned == 0
    assert world.do(ScheduleReplan(workflows=("w",), version="2025a")).replanned == 0


def test_a_local_time_that_was_handled_does_not_come_again(world: World) -> None:
    zones = Zones()
    world.kernel.zones = zones
    put(world, Cron("0 9 * * *", zone="A/B"))
    world.clock.advance(timedelta(hours=8))
    assert fire(world).runs == ("s/2026-01-01T08:00:00Z",)
    zones.version = "2026b"  # nine o'clock is an hour later now, and has been handled
    world.do(ScheduleReplan(workflows=("w",), version="2026b"))
    assert row(world).next_at == at("2026-01-02T09:00")


def test_a_zone_that_this_host_does_not_know_is_a_problem_that_others_can_solve(world: World) -> None:
    put(world, Cron("0 9 * * *", zone="Europe/Paris"))
    timing = row(world).timing.replace("Europe/Paris", "Europe/Atlantis")
    world.put(Update(evolve(row(world), timing=timing)))
    world.clock.advance(timedelta(hours=9))
    assert fire(world).runs == ()
    assert "Europe/Atlantis" in (row(world).problem or "")


def test_without_time_zone_data_only_utc_and_intervals_can_be_used(world: World) -> None:
    world.kernel.zones = None
    with pytest.raises(InvalidCommandError, match=r"Europe/Paris.*pip install \"holdfast\[schedules\]\""):
        put(world, Cron("0 9 * * *", zone="Europe/Paris"))
    put(world, Cron("0 1 * * *"), HOURLY)
    world.clock.advance(timedelta(hours=1))
    assert fire(world).runs == (FIRST,)


def test_a_removed_run_is_not_started_again(world: World) -> None:
    put(world)
    world.clock.advance(timedelta(hours=1))
    (run,) = fire(world).runs
    world.do(RunCancel(run_id=run))
    world.do(RunRemove(run_id=run))
    assert fire(world).runs == ()
    world.clock.advance(timedelta(hours=1))
    assert fire(world).runs == (SECOND_RUN,)


def test_a_local_time_that_was_handled_is_not_fired_again_by_newer_data(world: World) -> None:
    zones = Zones()
    world.kernel.zones = zones
    put(world, Cron("*/30 * * * *", zone="A/B"), overlap=Overlap.ALLOW, missed=Missed.ALL)
    world.clock.advance(timedelta(hours=8))
    fire(world)
    assert row(world).last_local == "2026-01-01T09:00:00+01:00 A/B"
    zones.version = "2026b"  # the clock shows eight again, and reaches half past nine at 09:30Z
    world.clock.advance(timedelta(hours=2))
    fired = fire(world)
    assert (fired.runs, fired.missed) == (("s/2026-01-01T09:30:00Z", "s/2026-01-01T10:00:00Z"), 0)


def test_a_schedule_that_may_start_more_runs_does_not_fire_a_handled_local_time_again(world: World) -> None:
    zones = Zones()
    world.kernel.zones = zones
    times = Cron("*/30 * * * *", zone="A/B")
    put(world, times, overlap=Overlap.ALLOW, missed=Missed.ALL, runs_max=16)
    world.clock.advance(timedelta(hours=8))
    fire(world)
    assert (row(world).last_local, row(world).next_at) == ("2026-01-01T09:00:00+01:00 A/B", None)
    zones.version = "2026b"  # the clock shows eight again, and reaches half past nine at 09:30Z
    put(world, times, overlap=Overlap.ALLOW, missed=Missed.ALL, if_exists="update")
    assert row(world).next_at == at("2026-01-01T09:30")


def test_a_schedule_that_is_resumed_in_a_repeated_hour_fires_in_it(world: World) -> None:
    world.clock.jump(datetime(2026, 10, 24, 23, 50, tzinfo=UTC) - world.clock.now())
    put(world, Cron("*/30 * * * *", zone="Europe/Paris"), overlap=Overlap.ALLOW)
    world.clock.advance(timedelta(minutes=45))
    assert fire(world).runs == ("s/2026-10-25T00:30:00Z",)  # half past two, the first time
    world.do(SchedulePause(schedule="s"))
    assert world.do(ScheduleResume(schedule="s")).next_at == at("2026-10-25T01:00")


def test_newer_data_plans_a_schedule_whose_zone_older_data_does_not_have(world: World) -> None:
    zones = Zones()
    world.kernel.zones = zones
    put(world, Cron("0 * * * *", zone="A/New"))
    world.clock.advance(timedelta(hours=1))
    zones.version = "2024a"  # a host with an older release
    assert fire(world).runs == ()
    assert (row(world).next_at, row(world).zones) == (None, "2024a")
    zones.version = "2025a"
    world.do(ScheduleReplan(workflows=("w",), version="2025a"))
    assert row(world).problem is None
    assert fire(world).runs == ("s/2026-01-01T01:00:00Z",)


def test_a_host_without_data_leaves_the_schedule_to_those_that_have_it(world: World) -> None:
    zones = Zones()
    world.kernel.zones = zones
    put(world, Cron("0 * * * *", zone="A/B"))
    world.clock.advance(timedelta(hours=1))
    world.kernel.zones = None
    assert fire(world).runs == ()
    assert "no time zone data" in (row(world).problem or "")
    world.kernel.zones = zones
    world.do(ScheduleReplan(workflows=("w",), version="2025a"))
    assert fire(world).runs == ("s/2026-01-01T01:00:00Z",)


# Limits of runs -------------------------------------------------------------------------------------------------


def test_times_beyond_the_last_run_are_left_alone(world: World) -> None:
    put(world, overlap=Overlap.ALLOW, missed=Missed.ALL, runs_max=2)
    world.clock.advance(timedelta(hours=4))
    assert fire(world).runs == (FIRST, SECOND_RUN)
    assert (row(world).handled_until, row(world).next_at) == (at("2026-01-01T02:00"), None)


def test_a_skipped_time_is_no_run_of_those_that_a_schedule_may_start(world: World) -> None:
    put(world, missed=Missed.ALL, runs_max=2)
    world.clock.advance(timedelta(hours=1))
    fire(world)
    world.clock.advance(timedelta(hours=3))
    assert fire(world).skipped == 3
    assert outcomes(world)[1:] == [
        ("01-01T02:00", "skipped", "made_up"),
        ("01-01T03:00", "skipped", "made_up"),
        ("01-01T04:00", "skipped", "due"),
    ]


def test_runs_by_hand_and_of_a_backfill_count_for_the_limit(world: World) -> None:
    put(world, overlap=Overlap.ALLOW, missed=Missed.ALL, runs_max=2)
    put(world, name="t", overlap=Overlap.ALLOW, missed=Missed.ALL, runs_max=2)
    for _ in range(2):
        world.do(ScheduleTrigger(schedule="s"))
    times = tuple(at(f"2025-12-31T0{hour}:00") for hour in range(4))
    world.do(ScheduleBackfill(schedule="t", times=times, overlap="allow"))
    world.clock.advance(timedelta(hours=5))
    assert fire(world).runs == ()
    assert row(world).next_at is row(world, "t").next_at is None


# Clocks and versions --------------------------------------------------------------------------------------------


def test_an_update_after_the_clock_was_set_back_plans_nothing_that_was_handled(world: World) -> None:
    put(world)
    world.clock.advance(timedelta(hours=3))
    fire(world)
    world.clock.jump(-timedelta(hours=2))
    assert put(world, Every(timedelta(minutes=30)), if_exists="update").next_at == at("2026-01-01T03:30")


def test_a_host_starts_the_version_that_it_has(world: World) -> None:
    start = RunCreate(workflow="w", version="1", input=payload(0))
    world.do(SchedulePut(schedule="s", start=start, timing=timing_of([HOURLY])))
    world.clock.advance(timedelta(hours=1))
    plan = world.kernel.workflows["w", None]
    later: dict[tuple[str, str | None], Plan] = {("w", None): plan, ("w", "2"): plan}
    world.kernel.workflows = later
    assert fire(world).runs == (FIRST,)


@pytest.mark.parametrize("hours", [(1, 1), (2, 1)])
def test_the_times_of_a_backfill_ascend(world: World, hours: tuple[int, ...]) -> None:
    put(world)
    world.clock.advance(timedelta(hours=3))
    times = tuple(at(f"2026-01-01T0{hour}:00") for hour in hours)
    with pytest.raises(InvalidCommandError, match="ascending"):
        world.do(ScheduleBackfill(schedule="s", times=times))
