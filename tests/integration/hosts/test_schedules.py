"""Schedules in an engine: made at run time, declared in code, fired by workers and by maintenance ticks."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from holdfast import (
    Cron,
    Engine,
    Every,
    Pipeline,
    Schedule,
    ServerlessHost,
    StageContext,
    Worker,
    continue_as_new,
    scheduled,
    sleep,
    stage,
    step,
    workflow,
)
from holdfast.client import Actor
from holdfast.hosts.client.sync_engine import SyncEngine
from holdfast.hosts.inspection.schedules import read_schedule
from holdfast.ports.changes import Update
from holdfast.ports.errors import (
    InvalidArgumentError,
    InvalidCommandError,
    ScheduleExistsError,
    ScheduleNotFoundError,
    UnknownWorkflowError,
)
from holdfast.ports.persistence import Transaction
from holdfast.ports.structs import evolve
from holdfast.ports.tables import SCHEDULES
from tests.integration.hosts.polling import until

ANN = Actor("user", "ann")
DAY = timedelta(days=1)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)

Open = Callable[..., Engine]


def scheduled_for() -> str:
    """Return what the running function knows about its schedule."""
    start = scheduled()
    return "none" if start is None else f"{start.name} {start.kind} {start.at.isoformat()} {start.zone}"


@step
def keep(text: str) -> str:
    return text


@workflow
async def report(region: str) -> str:
    return await keep(f"{region}: {scheduled_for()}")


@workflow
async def rounds(left: int) -> str:
    if left:
        return await continue_as_new(rounds(left - 1))
    return await keep(scheduled_for())


@workflow
async def napping(region: str) -> str:
    await sleep(3_600)
    return region


@stage
def look(ctx: StageContext[None], region: str) -> str:
    start = ctx.scheduled
    return f"{region}: none" if start is None else f"{region}: {start.name} {start.kind}"


LOOKS = Pipeline("looks", input=str).pipe(look)
DAILY = Cron("30 2 * * *", zone="Europe/Paris")
NIGHTLY = Schedule("nightly", report("emea"), when=DAILY)


@pytest.fixture
def open_one(url: str, namespace: str) -> Iterator[Open]:
    """Opens engines on one store and namespace, and closes them at the end."""
    opened: list[Engine] = []
    if url == "memory://":
        opened.append(Engine.open(url))

    def open_engine(*workflows: object, **options: object) -> Engine:
        given = {"workflows": workflows, "namespace": namespace, **options}
        open_it: Any = Engine.open if url != "memory://" else Engine.on
        opened.append(open_it(opened[0].core.adapters if url == "memory://" else url, **given))
        return opened[-1]

    yield open_engine
    for engine in opened:
        engine.core.close()


def make_due(engine: SyncEngine, name: str, *, late: timedelta = timedelta(seconds=1)) -> None:
    """Plan a schedule as if its next time had come a moment ago."""
    row = read_schedule(engine.core, name)
    now = engine.core.trusted_now()
    at = (now - late // timedelta(microseconds=1)) // 1_000_000 * 1_000_000
    when = Schedule(name, report(""), when=Every(DAY, anchor=datetime.fromtimestamp(at / 1e6, UTC))).timing

    def write(tx: Transaction) -> None:
        tx.lock(SCHEDULES, [row.key])
        tx.apply([Update(evolve(row, timing=when, zones="", next_at=at, handled_until=at - 1))])

    engine.core.stores.persistence.transact(write)


# Made at run time -----------------------------------------------------------------------------------------------


def test_a_schedule_is_created_looked_at_and_removed(open_one: Open) -> None:
    engine = open_one(report).sync
    assert list(engine.schedules()) == []
    handle = engine.create_schedule(NIGHTLY, actor=ANN)
    info = handle.info()
    assert (info.name, info.workflow, info.state, info.declared) == ("nightly", "report", "active", False)
    assert info.when == ("30 2 * * * (Europe/Paris)",)
    assert [(one.change, one.actor) for one in info.changes] == [("created", "user ann")]
    first, second = handle.next(2)
    assert (info.next_at, first.minute) == (first, 30)
    assert timedelta(hours=23) <= second - first <= timedelta(hours=25)
    (reason,) = handle.why()
    assert (reason.code, reason.until) == ("next", first)
    assert [one.name for one in engine.schedules()] == ["nightly"]
    with pytest.raises(ScheduleExistsError):
        engine.create_schedule(NIGHTLY)
    assert handle.remove()
    assert not handle.remove()
    assert list(engine.schedules()) == []
    with pytest.raises(ScheduleNotFoundError):
        handle.info()


@pytest.mark.anyio
async def test_the_async_engine_does_the_same(open_one: Open) -> None:
    async with open_one(report) as engine:
        handle = await engine.create_schedule(NIGHTLY)
        assert [one.name async for one in engine.schedules()] == ["nightly"]
        await handle.pause(reason="no money", actor=ANN)
        assert [one.code for one in await engine.schedule("nightly").why()] == ["paused"]
        await handle.resume()
        assert (await handle.info()).next_at == (await handle.next())[0]
        started = await handle.trigger()
        assert (await handle.trigger()).skipped_for == started.run_id
        days = (BEGIN, BEGIN + 3 * DAY)
        dry = await handle.backfill(*days, dry_run=True)
        assert (
            await handle.backfill(*days)
            == dry
            == tuple(f"nightly/2026-01-0{day}T01:30:00Z" for day in (1, 2, 3))
        )
        assert await handle.backfill(*days) == await handle.backfill(*days, dry_run=True) == ()
        await handle.update(Schedule("nightly", report("us"), when=Every(60)))
        assert (await handle.info()).when == ("every 1m",)
        assert await engine.apply_schedules() == []
        assert await handle.remove()


def test_a_pause_is_kept_by_an_update_and_ends_with_a_resume(open_one: Open) -> None:
    engine = open_one(report).sync
    handle = engine.create_schedule(NIGHTLY)
    handle.pause(reason="no money", actor=ANN)
    handle.update(Schedule("nightly", report("us"), when=Cron("0 4 * * *")))
    info = handle.info()
    assert (info.state, info.pause_reason, info.paused_by) == ("paused", "no money", "user ann")
    assert info.next_at is None
    handle.resume(actor=ANN)
    resumed = handle.info()
    assert resumed.state == "active"
    assert resumed.next_at is not None
    assert (resumed.next_at.hour, resumed.next_at.minute) == (4, 0)
    assert [one.change for one in resumed.changes] == ["created", "paused", "updated", "resumed"]


def test_what_can_not_be_is_refused(open_one: Open) -> None:
    engine = open_one(report).sync
    handle = engine.create_schedule(NIGHTLY)
    with pytest.raises(UnknownWorkflowError):
        engine.create_schedule(Schedule("other", napping("x"), when=DAILY))
    with pytest.raises(InvalidArgumentError, match="named 'other', and this is the handle of 'nightly'"):
        handle.update(Schedule("other", report("x"), when=DAILY))
    with pytest.raises(InvalidCommandError, match="never fires after now"):
        engine.create_schedule(Schedule("over", report("x"), when=Cron("@daily", end=BEGIN)))
    with pytest.raises(InvalidArgumentError, match="must be after start"):
        handle.backfill(BEGIN, BEGIN)
    with pytest.raises(InvalidArgumentError, match="must not be in the future"):
        handle.backfill(BEGIN, datetime(2999, 1, 1, tzinfo=UTC))
    with pytest.raises(InvalidArgumentError, match="more than 10,000 nominal times"):
        handle.backfill(datetime(1975, 1, 1, tzinfo=UTC), BEGIN)
    assert list(engine.runs()) == []
    without_code = open_one().sync
    with pytest.raises(UnknownWorkflowError):
        without_code.schedule("nightly").trigger()
    without_code.schedule("nightly").pause()
    assert handle.info().state == "paused"


def test_a_long_backfill_is_done_in_parts(open_one: Open) -> None:
    engine = open_one(report).sync
    handle = engine.create_schedule(Schedule("often", report("x"), when=Every(3_600)))
    runs = handle.backfill(BEGIN, BEGIN + 10 * DAY)
    assert len(set(runs)) == len(runs) == 240
    assert (runs[0], runs[-1]) == ("often/2026-01-01T00:00:00Z", "often/2026-01-10T23:00:00Z")
    assert handle.info().runs_started == 240
    last = engine.handle(report, runs[-1]).info()
    assert (last.status, last.priority) == ("pending", -1_440)


# Declared in code -----------------------------------------------------------------------------------------------


def applied(engine: SyncEngine, **options: Any) -> dict[str, str]:
    return {one.name: one.change for one in engine.apply_schedules(**options)}


def test_what_the_code_declares_is_stored_at_the_first_use(open_one: Open) -> None:
    first = open_one(report, schedules=[NIGHTLY]).sync
    assert [(one.name, one.declared) for one in first.schedules()] == [("nightly", True)]
    assert applied(first) == {"nightly": "unchanged"}
    other = Schedule("nightly", report("us"), when=DAILY)
    second = open_one(report, schedules=[other, Schedule("more", report("x"), when=Every(60))]).sync
    assert [one.input for one in second.schedules()] == ['{"region":"x"}', '{"region":"us"}']
    assert applied(first, dry_run=True) == {"nightly": "updated", "more": "removed"}
    assert [one.name for one in first.schedules()] == ["more", "nightly"]
    assert applied(first, prune=False) == {"nightly": "updated"}
    assert applied(first) == {"nightly": "unchanged", "more": "removed"}


def test_only_schedules_of_own_workflows_are_pruned(open_one: Open) -> None:
    open_one(napping, schedules=[Schedule("naps", napping("x"), when=DAILY)]).sync.count()
    made = open_one(report).sync
    made.create_schedule(Schedule("by-hand", report("x"), when=DAILY))
    engine = open_one(report, schedules=[NIGHTLY]).sync
    assert [one.name for one in engine.schedules()] == ["by-hand", "naps", "nightly"]
    open_one(report, schedules=[]).sync.count()
    assert [one.name for one in engine.schedules()] == ["by-hand", "naps"]
    assert applied(open_one(napping, report).sync) == {}, "an engine without `schedules` declares nothing"
    assert [one.name for one in engine.schedules()] == ["by-hand", "naps"]


def test_an_engine_that_does_not_migrate_does_not_apply(open_one: Open) -> None:
    open_one(report).sync.count()
    engine = open_one(report, schedules=[NIGHTLY], migrate=False).sync
    assert list(engine.schedules()) == []
    assert applied(engine) == {"nightly": "created"}
    assert [one.name for one in engine.schedules()] == ["nightly"]


def test_a_pause_outlasts_a_deploy(open_one: Open) -> None:
    first = open_one(report, schedules=[NIGHTLY]).sync
    first.schedule("nightly").pause(reason="no money")
    second = open_one(report, schedules=[Schedule("nightly", report("us"), when=DAILY)]).sync
    (info,) = second.schedules()
    assert (info.state, info.pause_reason, info.input) == ("paused", "no money", '{"region":"us"}')


# Fired ----------------------------------------------------------------------------------------------------------


def has_ended(engine: SyncEngine, number: int) -> bool:
    """Return whether so many runs, or more, have completed, and no other one is there."""
    found = list(engine.runs())
    return len(found) >= number and all(run.status == "completed" for run in found)


def start_once(engine: Engine, *handles: str) -> None:
    """Make these schedules due, and let a worker run until each has started a run that has ended."""

    async def work() -> None:
        async with Worker(engine):
            for name in handles:
                await anyio.to_thread.run_sync(make_due, engine.sync, name)
            await until(lambda: has_ended(engine.sync, len(handles)))

    anyio.run(work)


def test_a_worker_fires_what_is_due(open_one: Open) -> None:
    engine = open_one(report, LOOKS, rounds)
    calls = {"functions": report("emea"), "pipelines": LOOKS("emea"), "rounds": rounds(2)}
    for name, call in calls.items():
        engine.sync.create_schedule(Schedule(name, call, when=DAILY))
    start_once(engine, *calls)

    found = {run.id.partition("/")[0]: run for run in engine.sync.runs()}
    at = {name: run.id.partition("/")[2].removesuffix("Z") + "+00:00" for name, run in found.items()}
    function = engine.sync.handle(report, found["functions"].id)
    assert function.result() == f"emea: functions due {at['functions']} UTC"
    assert engine.sync.handle(LOOKS, found["pipelines"].id).result() == "emea: pipelines due"
    continued = engine.sync.handle(rounds, found["rounds"].id)
    assert found["rounds"].generation == 3
    assert continued.result() == f"rounds due {at['rounds']} UTC"
    for run in found.values():
        assert run.scheduled is not None
        assert run.scheduled.at.isoformat() == at[run.scheduled.name]
    info = engine.sync.schedule("functions").info()
    assert [(one.outcome, one.kind, one.run_id) for one in info.recent] == [("started", "due", function.id)]


def test_a_run_knows_its_schedule_when_it_is_run_again(open_one: Open) -> None:
    engine = open_one(report, LOOKS)
    for name, call in {"functions": report("emea"), "pipelines": LOOKS("emea")}.items():
        engine.sync.create_schedule(Schedule(name, call, when=DAILY))
    start_once(engine, "functions", "pipelines")
    before = {run.id: run.scheduled for run in engine.sync.runs()}
    for run_id in before:
        engine.sync.handle(report, run_id).rerun_from()

    async def work() -> None:
        async with Worker(engine):
            for run_id in before:
                await engine.handle(LOOKS if run_id.startswith("pipe") else report, run_id).result()

    anyio.run(work)
    again = {run.id: run for run in engine.sync.runs()}
    assert {run_id: run.scheduled for run_id, run in again.items()} == before
    assert {run.generation for run in again.values()} == {2}
    results = [engine.sync.handle(LOOKS if "pipe" in one else report, one).result() for one in sorted(again)]
    assert [result.split()[:3] for result in results] == [
        ["emea:", "functions", "due"],
        ["emea:", "pipelines", "due"],
    ]


@pytest.mark.slow
def test_a_worker_fires_within_a_second(open_one: Open) -> None:
    engine = open_one(report, schedules=[Schedule("often", report("x"), when=Every(1))])

    async def work() -> list[float]:
        async with engine, Worker(engine):
            await anyio.sleep(4.5)
            (info,) = [one async for one in engine.schedules()]
            return [(one.handled_at - one.at).total_seconds() for one in info.recent]

    late = anyio.run(work)
    assert len(late) >= 3
    assert max(late[1:]) < 1, "the first time may pass while the worker starts"


def test_a_serverless_tick_fires(open_one: Open) -> None:
    engine = open_one(report)
    engine.sync.create_schedule(NIGHTLY)
    host = ServerlessHost(engine, time_limit=30)
    assert host.run_maintenance_tick().scheduled == 0
    make_due(engine.sync, "nightly")
    assert host.run_maintenance_tick().scheduled == 1
    (run,) = engine.sync.runs()
    assert run.scheduled is not None
    assert (run.scheduled.name, run.scheduled.kind) == ("nightly", "due")
    assert host.run_maintenance_tick().scheduled == 0
    host.process_available_jobs(max_jobs=10)
    assert engine.sync.handle(report, run.id).info().status == "completed"


def test_a_host_without_the_code_leaves_it_to_others(open_one: Open) -> None:
    engine = open_one(report)
    engine.sync.create_schedule(NIGHTLY)
    make_due(engine.sync, "nightly", late=timedelta(minutes=2))
    other = ServerlessHost(open_one(napping), time_limit=30)
    assert other.run_maintenance_tick().scheduled == 0
    codes = [finding.code for finding in engine.sync.doctor().findings]
    assert codes == ["schedule_late"]
    assert [one.code for one in engine.sync.schedule("nightly").why()] == ["late"]
    assert ServerlessHost(engine, time_limit=30).run_maintenance_tick().scheduled == 1
    assert engine.sync.doctor().is_sound
