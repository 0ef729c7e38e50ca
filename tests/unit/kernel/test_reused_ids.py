"""Creating a run with an existing id: refused, the existing run, or a new generation."""

from typing import Any

import attrs
import pytest

from holdfast.kernel.commands import RunClaimPending, RunCreate, RunCreated
from holdfast.ports.errors import RunExistsError
from holdfast.ports.queries.runs import FindRun
from holdfast.ports.records.run import Run, RunName, RunStatus
from holdfast.ports.transport import RunEnded
from tests.unit.kernel.world import World, payload, pipeline, stage


@pytest.fixture
def world() -> World:
    return World(pipeline(stage("a")))


def create(world: World, **options: Any) -> RunCreated:
    return world.do(attrs.evolve(RunCreate(workflow="w", id="x", input=payload(0)), **options))


def generation(world: World, number: int) -> Run:
    run = world.store.read(FindRun(RunName("default", "x"), number))
    assert run is not None
    return run


def end(world: World, how: str) -> None:
    attempt = world.claim_one(world.open())
    if how == "completed":
        world.complete(attempt)
    else:
        world.fail(attempt, retryable=False)
    assert world.run().status == how


@pytest.mark.parametrize("how", ["active", "completed", "failed"])
def test_an_id_that_is_taken_is_refused_or_given_back(world: World, how: str) -> None:
    first = create(world)
    if how != "active":
        end(world, how)
    options: dict[str, str] = {"if_active" if how == "active" else "if_ended": "return"}

    with world.unchanged():
        with pytest.raises(RunExistsError):
            create(world)
        for given in (options, {"if_exists": "return"}):
            again = create(world, **given)
            assert (again.created, again.run, again.generation) == (False, first.run, 1)
        with pytest.raises(RunExistsError):
            create(world, **{**dict.fromkeys(options, "error"), "if_exists": "return"})


def test_a_policy_for_the_other_case_says_nothing(world: World) -> None:
    create(world)
    with pytest.raises(RunExistsError):
        create(world, if_ended="rerun")
    end(world, "completed")
    with pytest.raises(RunExistsError):
        create(world, if_active="terminate")


def test_an_active_run_is_ended_in_the_commit_that_takes_its_place(world: World) -> None:
    first = create(world)
    attempt = world.claim_one(world.open())
    world.heard.hints.clear()

    second = create(world, if_active="terminate", input=payload("new"))

    assert (second.created, second.run_id, second.generation) == (True, "x", 2)
    assert second.run != first.run
    old = generation(world, 1)
    assert (old.status, old.error) == (
        RunStatus.CANCELLED,
        '{"code":"terminated","message":"generation 2 took its place"}',
    )
    assert RunEnded(run=first.run) in world.heard.hints
    assert world.complete(attempt).status == "fenced"
    end(world, "completed")
    assert (generation(world, 2).status, generation(world, 1).status) == ("completed", "cancelled")


def test_a_pending_run_that_is_replaced_leaves_its_place_to_its_successor(world: World) -> None:
    create(world, concurrency_key="old")
    world.do(RunClaimPending())

    replaced = create(world, if_active="terminate", concurrency_key="new")

    assert replaced.status is RunStatus.PENDING
    assert set(replaced.follow_up.runs) == {"old", "new"}


@pytest.mark.parametrize(
    ("how", "policy", "reruns"),
    [
        ("completed", "rerun", True),
        ("failed", "rerun", True),
        ("completed", "rerun_failed", False),
        ("failed", "rerun_failed", True),
    ],
)
def test_an_ended_run_is_followed_by_a_new_generation(
    world: World, how: str, policy: str, reruns: bool
) -> None:
    create(world)
    end(world, how)
    old = world.run()

    if not reruns:
        with pytest.raises(RunExistsError), world.unchanged():
            create(world, if_ended=policy)
        return
    again = create(world, if_ended=policy)
    assert (again.created, again.generation, again.status) == (True, 2, RunStatus.RUNNING)
    assert generation(world, 1) == old
    end(world, "completed")


def test_a_new_id_needs_no_policy(world: World) -> None:
    assert create(world, if_active="terminate", if_ended="rerun").generation == 1
