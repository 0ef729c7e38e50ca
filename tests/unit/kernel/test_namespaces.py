"""Namespaces: created, deleted, and with quotas of starts."""

from typing import Any

import attrs
import pytest

from holdfast.kernel.commands import (
    NamespaceCreate,
    NamespaceCreated,
    NamespaceDelete,
    NamespaceDeleted,
    RunCancel,
    RunCreate,
    RunCreated,
    RunTerminate,
    SinkRegister,
)
from holdfast.kernel.commands.namespaces import NOTE_MAX, QUOTA_MAX
from holdfast.kernel.dispatch.kernel import Kernel
from holdfast.kernel.dispatch.quotas import QUOTAS_KNOWN_FOR
from holdfast.kernel.pipelines.gather_plan import GatherPlan
from holdfast.ports.errors import (
    CommandError,
    InvalidCommandError,
    NamespaceInUseError,
    QuotaExceededError,
)
from holdfast.ports.records.namespace import NamespaceRow
from holdfast.testing.ids import SeededIds
from tests.unit.kernel.world import World, payload, pipeline, stage

TEAM = "team-a"


@pytest.fixture
def world() -> World:
    return World(pipeline(stage("a")))


def limited(world: World, *, active: int | None = None, starts: int | None = None, name: str = TEAM) -> None:
    world.do(NamespaceCreate(namespace=name, max_active_runs=active, max_starts_per_minute=starts))


def a_start(id: str | None = None, *, namespace: str = TEAM, **fields: Any) -> RunCreate:
    return RunCreate(namespace=namespace, workflow="w", id=id, input=payload(0), **fields)


def started(world: World, *ids: str) -> list[bool]:
    """Return for each of these starts of one batch whether it was carried out."""
    answers: list[RunCreated | CommandError] = world.send(*map(a_start, ids))
    for answer in answers:
        assert isinstance(answer, RunCreated | QuotaExceededError)
    return [isinstance(answer, RunCreated) for answer in answers]


def test_a_namespace_is_created_once_and_then_changed(world: World) -> None:
    at = world.now
    command = NamespaceCreate(namespace=TEAM, note="ours", max_active_runs=5)
    assert world.do(command) == NamespaceCreated(created=True)
    row = NamespaceRow(name=TEAM, created_at=at, note="ours", max_active_runs=5)
    assert world.tables().namespaces == {TEAM: row}
    world.wait(1)
    with world.unchanged():
        assert world.do(command) == NamespaceCreated(created=False)
    changed = NamespaceCreate(namespace=TEAM, max_starts_per_minute=7)
    assert world.do(changed) == NamespaceCreated(created=False)
    row = NamespaceRow(name=TEAM, created_at=at, max_starts_per_minute=7)
    assert world.tables().namespaces == {TEAM: row}


def test_an_empty_namespace_is_deleted(world: World) -> None:
    limited(world)
    assert world.do(NamespaceDelete(namespace=TEAM)) == NamespaceDeleted(deleted=True)
    assert world.tables().namespaces == {}
    assert world.do(NamespaceDelete(namespace=TEAM)) == NamespaceDeleted(deleted=False)


def test_a_namespace_with_runs_or_sinks_is_not_deleted(world: World) -> None:
    limited(world)
    world.do(a_start("x"))
    world.do(RunTerminate(namespace=TEAM, run_id="x"))
    world.do(SinkRegister(namespace=TEAM, sink="audit"))
    with pytest.raises(NamespaceInUseError, match="has runs and sinks") as refused, world.unchanged():
        world.do(NamespaceDelete(namespace=TEAM))
    assert refused.value.contents == ("runs", "sinks")


def test_a_namespace_in_which_the_same_batch_starts_a_run_is_not_deleted(world: World) -> None:
    limited(world)
    _, refused = world.send(a_start("x"), NamespaceDelete(namespace=TEAM))
    assert isinstance(refused, NamespaceInUseError)
    assert TEAM in world.tables().namespaces


@pytest.mark.parametrize("name", ["", "a b", "../x", "x" * 201, "a\0"])
def test_a_name_that_no_engine_can_use_is_refused(world: World, name: str) -> None:
    for command in (NamespaceCreate(namespace=name), NamespaceDelete(namespace=name)):
        with pytest.raises(InvalidCommandError, match="is not the name of a namespace"), world.unchanged():
            world.do(command)


@pytest.mark.parametrize(
    "fields",
    [
        {"max_active_runs": -1},
        {"max_active_runs": QUOTA_MAX + 1},
        {"max_starts_per_minute": -1},
        {"max_starts_per_minute": 10**30},
        {"note": "x" * (NOTE_MAX + 1)},
        {"note": "a\0b"},
    ],
)
def test_what_cannot_be_stored_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidCommandError):
        NamespaceCreate(namespace=TEAM, **fields)


def test_no_more_runs_than_the_quota_are_active(world: World) -> None:
    limited(world, active=2)
    assert started(world, "a", "b", "c") == [True, True, False]
    assert started(world, "d") == [False]
    world.do(RunTerminate(namespace=TEAM, run_id="a"))
    assert started(world, "d", "e") == [True, False]
    with pytest.raises(QuotaExceededError) as refused, world.unchanged():
        world.do(a_start("e"))
    error = refused.value
    assert (error.code, error.namespace, error.quota, error.limit) == (
        "quota_exceeded",
        TEAM,
        "max_active_runs",
        2,
    )
    assert "holdfast namespace create team-a" in str(error)


def test_a_run_that_was_cancelled_makes_room(world: World) -> None:
    limited(world, active=1)
    world.do(a_start("a"))
    world.do(RunCancel(namespace=TEAM, run_id="a"))
    assert started(world, "b") == [True]


def test_a_run_that_the_same_batch_cancels_makes_room(world: World) -> None:
    limited(world, active=1)
    assert started(world, "a") == [True]
    cancelled, first, second = world.send(RunCancel(namespace=TEAM, run_id="a"), a_start("b"), a_start("c"))
    assert not isinstance(cancelled, CommandError)
    assert isinstance(first, RunCreated)
    assert isinstance(second, QuotaExceededError)


def test_a_quota_of_zero_admits_nothing(world: World) -> None:
    limited(world, active=0)
    assert started(world, "a") == [False]
    limited(world, starts=0)
    assert started(world, "a") == [False]


def test_no_more_runs_than_the_quota_start_in_a_minute(world: World) -> None:
    """The minute slides: each start makes room after a minute."""
    limited(world, starts=2)
    assert started(world, "a") == [True]
    world.wait(30)
    assert started(world, "b", "c") == [True, False]
    world.wait(29.9)
    assert started(world, "c") == [False]
    world.wait(0.2)
    assert started(world, "c", "d") == [True, False]


def test_both_quotas_hold(world: World) -> None:
    limited(world, active=2, starts=3)
    assert started(world, "a", "b", "c") == [True, True, False]
    world.do(RunTerminate(namespace=TEAM, run_id="a"))
    assert started(world, "c") == [True]
    world.do(RunTerminate(namespace=TEAM, run_id="b"))
    with pytest.raises(QuotaExceededError) as refused:
        world.do(a_start("d"))
    assert refused.value.quota == "max_starts_per_minute"


def test_other_namespaces_are_not_affected(world: World) -> None:
    limited(world, active=0)
    limited(world, active=1, name="team-b")
    answers: list[Any] = world.send(
        a_start("a", namespace="free"),
        a_start("b"),
        a_start("c", namespace="team-b"),
        a_start("d", namespace="team-b"),
    )
    assert [isinstance(answer, RunCreated) for answer in answers] == [True, False, True, False]


def test_a_start_that_makes_no_run_more_is_not_refused(world: World) -> None:
    """One that returns an existing run, or repeats a key, or puts a run in the place of an active one."""
    limited(world, active=1)
    first = world.do(a_start("a", idempotency_key="k"))
    assert world.do(a_start("a", idempotency_key="k")) == first
    assert not world.do(a_start("a", if_exists="return")).created
    assert world.do(a_start("a", if_active="replace")).generation == 2
    assert started(world, "b") == [False]


def test_starts_that_join_a_gathering_run_are_not_refused() -> None:
    plan = attrs.evolve(pipeline(stage("a")), gather=GatherPlan(within_us=60_000_000, most=10))
    world = World(plan)
    limited(world, active=1)
    first = world.do(a_start())
    assert world.do(a_start()).run_id == first.run_id


def test_a_start_with_a_concurrency_key_counts(world: World) -> None:
    limited(world, active=1)
    assert world.do(a_start("a", concurrency_key="k")).created
    with pytest.raises(QuotaExceededError):
        world.do(a_start("b", concurrency_key="k"))


def test_a_changed_quota_holds_at_once_in_the_process_that_changed_it(world: World) -> None:
    assert started(world, "a") == [True]
    limited(world, active=1)
    assert started(world, "b") == [False]
    limited(world, active=2)
    assert started(world, "b") == [True]
    limited(world)
    assert started(world, "c", "d") == [True, True]


def test_other_processes_learn_of_a_first_quota_soon(world: World) -> None:
    ids = SeededIds(7, clock=world.clock)
    other = Kernel(persistence=world.store, clock=world.clock, ids=ids, plans=world.plans)
    assert other.dispatch(a_start("a")).created
    limited(world, active=1)
    world.wait(QUOTAS_KNOWN_FOR - 0.1)
    assert other.dispatch(a_start("b")).created
    world.wait(0.2)
    with pytest.raises(QuotaExceededError):
        other.dispatch(a_start("c"))
