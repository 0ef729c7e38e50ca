"""`engine.namespaces`: namespaces are created, listed, described and deleted, and limit the starts of clients."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Engine, Every, Pipeline, Schedule, Topic, stage
from holdfast.client import NamespaceInfo
from holdfast.errors import (
    InvalidArgumentError,
    InvalidFilterError,
    InvalidNamespaceError,
    NamespaceInUseError,
    QuotaExceededError,
)
from holdfast.hosts.inspection import namespaces as inspected
from holdfast.hosts.wiring.stores import open_stores
from holdfast.ports.records.run import RunStatus
from holdfast.testing import World


@stage
def send(text: str) -> str:
    return text


mails = Pipeline("mails", input=str).pipe(send)

NEWS = Topic("news", int)
DAILY = Schedule("daily", mails("x"), when=Every(timedelta(days=1)))


@pytest.fixture
def world() -> Iterator[World]:
    with World([mails]) as world:
        yield world


def beside(engine: Engine, namespace: str) -> Engine:
    """Return an engine in another namespace of the same store."""
    return Engine.on(engine.core.adapters, workflows=[mails], namespace=namespace)


def test_a_namespace_is_created_changed_and_deleted(world: World) -> None:
    namespaces, at = world.engine.sync.namespaces, world.now
    info = namespaces.create("team-a", note="ours", max_active_runs=2)
    assert info == NamespaceInfo(
        name="team-a",
        is_created=True,
        created_at=at,
        note="ours",
        max_active_runs=2,
        max_starts_per_minute=None,
    )
    world.clock.advance(timedelta(seconds=1))
    changed = namespaces.create("team-a", max_starts_per_minute=9)
    assert (changed.created_at, changed.note, changed.max_active_runs) == (at, "", None)
    assert list(namespaces.list()) == [changed]
    assert namespaces.delete("team-a")
    assert not namespaces.delete("team-a")
    assert list(namespaces.list()) == []


def test_one_that_is_only_used_is_listed_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspected, "_PAGE", 2)
    engine = world.engine
    engine.sync.start(mails("a"))
    for name in ("c", "b", "z"):
        engine.sync.namespaces.create(name)
    listed = engine.sync.namespaces.list
    assert [one.name for one in listed()] == ["b", "c", "default", "z"]
    assert [one.is_created for one in listed()] == [True, True, False, True]
    assert [one.name for one in listed(limit=3)] == ["b", "c", "default"]
    assert [one.name for one in listed(after="c", limit=1)] == ["default"]
    beside(engine, "events").sync.register_sink("audit")
    assert [one.name for one in listed()] == ["b", "c", "default", "events", "z"]


def test_what_a_namespace_has_is_described(world: World) -> None:
    engine, at = world.engine.sync, world.now
    engine.start(mails("a"), id="a")
    engine.start(mails("b"), id="b")
    world.clock.advance(timedelta(seconds=5))
    engine.handle(mails, "b").cancel()
    engine.register_sink("audit")
    engine.create_schedule(DAILY)
    found = engine.namespaces.describe("default")
    assert (found.name, found.is_created) == ("default", False)
    assert found.runs == {RunStatus.RUNNING: 1, RunStatus.CANCELLED: 1}
    assert (found.schedules, found.sinks, found.workers) == (1, 1, 0)
    assert (found.queued, found.running, found.waiting_since, found.is_partial) == (1, 0, at, False)
    nothing = engine.namespaces.describe("none")
    assert (nothing.runs, nothing.queued, nothing.waiting_since) == ({}, 0, None)


def test_a_quota_refuses_starts_of_clients(world: World) -> None:
    engine = world.engine.sync
    engine.namespaces.create("default", max_active_runs=1)
    engine.start(mails("a"), id="a")
    with pytest.raises(QuotaExceededError, match="max_active_runs"):
        engine.start(mails("b"), id="b")
    handles = engine.namespaces.create("default", max_active_runs=3)
    assert handles.max_active_runs == 3
    engine.start(mails("b"), id="b")


def test_a_schedule_starts_its_runs_beyond_the_quota(world: World) -> None:
    engine = world.engine.sync
    engine.namespaces.create("default", max_active_runs=0)
    schedule = engine.create_schedule(DAILY)
    assert schedule.trigger().run_id is not None


def test_a_namespace_in_use_is_deleted_only_with_all_that_it_has(world: World) -> None:
    engine = world.engine
    team = beside(engine, "team-a").sync
    engine.sync.namespaces.create("team-a", note="ours")
    engine.sync.start(mails("kept"), id="kept")
    for number in range(3):
        team.start(mails("a"), id=f"a-{number}")
    team.handle(mails, "a-0").cancel()
    team.register_sink("audit")
    team.create_schedule(DAILY)
    for number in range(150):
        team.publish(NEWS(number))
    described = engine.sync.namespaces.describe("team-a")
    assert (described.topics, described.messages, described.subscriptions) == (1, 150, 0)
    with pytest.raises(NamespaceInUseError, match="has runs and schedules and sinks and topics"):
        engine.sync.namespaces.delete("team-a")
    assert len(list(team.runs())) == 3

    assert engine.sync.namespaces.delete("team-a", purge=True)
    assert [one.name for one in engine.sync.namespaces.list()] == ["default"]
    assert [run.id for run in engine.sync.runs()] == ["kept"]
    assert list(team.runs()) == []
    assert list(team.schedules()) == []
    assert team.sinks() == []
    assert list(team.topics()) == []
    assert not engine.sync.namespaces.delete("team-a", purge=True)


def test_a_namespace_with_a_topic_only_is_in_use(world: World) -> None:
    beside(world.engine, "old").sync.publish(NEWS(1))
    with pytest.raises(NamespaceInUseError, match="has topics"):
        world.engine.sync.namespaces.delete("old")
    assert world.engine.sync.namespaces.delete("old", purge=True)
    assert list(world.engine.sync.namespaces.list()) == []


def test_an_implied_namespace_is_purged_too(world: World) -> None:
    beside(world.engine, "old").sync.start(mails("a"))
    assert world.engine.sync.namespaces.delete("old", purge=True)
    assert list(world.engine.sync.namespaces.list()) == []


def test_purging_removes_the_blobs_of_runs(tmp_path: Any) -> None:
    stores = open_stores(f"sqlite:///{tmp_path}/x.db")
    blobs = tmp_path / "x.db.blobs"
    engine = Engine.on(stores, workflows=[mails])
    with engine.sync:
        beside(engine, "team").sync.start(mails("x" * 1_000_000))
        assert [path for path in blobs.rglob("*") if path.is_file()]
        assert engine.sync.namespaces.delete("team", purge=True)
        assert [path for path in blobs.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("method", "arguments", "options", "error"),
    [
        ("create", ("a b",), {}, InvalidNamespaceError),
        ("create", (7,), {}, InvalidArgumentError),
        ("create", ("a",), {"max_active_runs": -1}, InvalidArgumentError),
        ("create", ("a",), {"max_active_runs": 100_001}, InvalidArgumentError),
        ("create", ("a",), {"max_starts_per_minute": "9"}, InvalidArgumentError),
        ("create", ("a",), {"note": None}, InvalidArgumentError),
        ("describe", ("../x",), {}, InvalidNamespaceError),
        ("delete", ("",), {}, InvalidNamespaceError),
        ("delete", ("a",), {"purge": 1}, InvalidArgumentError),
        ("list", (), {"limit": 0}, InvalidFilterError),
        ("list", (), {"after": 7}, InvalidArgumentError),
    ],
)
def test_wrong_arguments_are_refused(
    world: World, method: str, arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        getattr(world.engine.sync.namespaces, method)(*arguments, **options)
    assert list(world.engine.sync.namespaces.list()) == []


@pytest.mark.anyio
async def test_async_code(world: World) -> None:
    namespaces = world.engine.namespaces
    await namespaces.create("a")
    assert [one.name async for one in namespaces.list()] == ["a"]
    assert (await namespaces.describe("a")).runs == {}
    assert await namespaces.delete("a")
