"""What both type checkers must infer of schedules."""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import assert_type

from holdfast import Cron, Engine, Every, Pipeline, Schedule, StageContext, scheduled, stage, workflow
from holdfast.client import (
    AppliedSchedule,
    Scheduled,
    ScheduleHandle,
    ScheduleInfo,
    ScheduleStarted,
    SyncScheduleHandle,
    WaitReason,
)


@workflow
async def report(region: str, *, days: int = 1) -> list[str]:
    assert_type(scheduled(), Scheduled | None)
    return [region] * days


@stage
def look(ctx: StageContext[None], region: str) -> int:
    assert_type(ctx.scheduled, Scheduled | None)
    return len(region)


LOOKS = Pipeline("looks", input=str).pipe(look)

plain = Schedule("plain", report("emea"), when=Cron("30 2 * * *"))
assert_type(plain, Schedule[list[str]])
assert_type(Schedule("looks", LOOKS("emea"), when=[Cron(["@daily", "@weekly"]), Every(60)]), Schedule[int])
Schedule(
    "all",
    report("emea", days=7),
    when=(Cron("0 9 * * MON", zone="Europe/Paris", gap="skip", fold="last", except_on=[date(2026, 12, 25)]),),
    overlap="queue_one",
    missed="all",
    missed_within=timedelta(hours=1),
    jitter=30,
    pause_after_failures=3,
    max_runs=10,
    queue="slow",
    priority=-5,
    attributes={"team": "a"},
    annotations={"size": 3},
    deadline=3_600.0,
)
engine = Engine.open("memory://", workflows=[report, LOOKS], schedules=[plain])


def use_sync() -> None:
    sync = engine.sync
    handle = sync.create_schedule(plain)
    assert_type(handle, SyncScheduleHandle)
    assert_type(sync.schedules(), Iterator[ScheduleInfo])
    assert_type(handle.why(), tuple[WaitReason, ...])
    assert_type(handle.next(3), tuple[datetime, ...])
    assert_type(handle.trigger(overlap="allow"), ScheduleStarted)
    assert_type(handle.backfill(datetime.now(UTC), datetime.now(UTC), dry_run=True), tuple[str, ...])
    assert_type(sync.apply_schedules(dry_run=True), list[AppliedSchedule])


async def use_async() -> None:
    handle = engine.schedule("plain")
    assert_type(handle, ScheduleHandle)
    assert_type(engine.schedules(), AsyncIterator[ScheduleInfo])
    assert_type(await handle.info(), ScheduleInfo)
    assert_type(await handle.remove(), bool)
