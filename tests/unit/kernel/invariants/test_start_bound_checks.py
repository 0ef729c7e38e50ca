"""The invariants about starts of a bounded key (F2, F3) find what goes wrong: each case has one change."""

from typing import Any

import attrs
import pytest

from holdfast.kernel.commands import RunClaimPending, RunCreate
from holdfast.kernel.invariants import Snapshot
from holdfast.kernel.invariants.snapshots import as_snapshot
from holdfast.kernel.invariants.start_bound_checks import bounded_keys, runs_ended_by_starts
from holdfast.ports.records.limits import WhenFull
from holdfast.ports.records.run import Run, RunStatus
from tests.unit.kernel.world import World, payload, pipeline, stage

FUNCTION = pipeline(attrs.evolve(stage("w"), function=True))


def start(world: World, name: str, full: WhenFull) -> None:
    world.wait(1)
    world.do(
        RunCreate(
            workflow="w",
            id=name,
            input=payload(0),
            concurrency_key="k",
            concurrency_limit=2,
            concurrency_waiting=2 if full is WhenFull.REPLACE else 0,
            concurrency_full=full,
        )
    )


def transition(full: WhenFull) -> tuple[Snapshot, Snapshot]:
    """Return the snapshots around a start that ends `a`, the oldest of those under way or, with `replace`, waiting."""
    world = World(FUNCTION)
    for name in ("a", "b"):
        start(world, name, full)
    if full is WhenFull.REPLACE:
        start(world, "c", full)
        start(world, "d", full)
    else:
        world.do(RunClaimPending(keys=("k",)))
    before = as_snapshot(world.tables())
    start(world, "new", full)
    return before, as_snapshot(world.tables())


def changed(snapshot: Snapshot, name: str, **fields: Any) -> Snapshot:
    """Return a snapshot in which a run has other fields."""
    runs: dict[str, Run] = {
        key: attrs.evolve(run, **fields) if run.id == name else run for key, run in snapshot.runs.items()
    }
    return attrs.evolve(snapshot, runs=runs)


def found(before: Snapshot, after: Snapshot) -> list[str]:
    return [one.what for one in runs_ended_by_starts(before, after)]


@pytest.mark.parametrize("full", [WhenFull.CANCEL, WhenFull.TERMINATE, WhenFull.REPLACE])
def test_the_oldest_may_be_ended(full: WhenFull) -> None:
    before, after = transition(full)

    assert [run.id for run in after.runs.values() if run.error is not None] == ["a"]
    assert found(before, after) == []


@pytest.mark.parametrize("full", [WhenFull.CANCEL, WhenFull.TERMINATE, WhenFull.REPLACE])
def test_it_is_found_if_another_one_is_older(full: WhenFull) -> None:
    before, after = (changed(one, "b", created_at=0) for one in transition(full))

    how = {
        WhenFull.CANCEL: "cancelled",
        WhenFull.TERMINATE: "terminated",
        WhenFull.REPLACE: "superseded",
    }
    assert found(before, after) == [f"the run was {how[full]}, but 'b' has been there longer"]


@pytest.mark.parametrize("full", [WhenFull.CANCEL, WhenFull.TERMINATE])
def test_it_is_found_if_the_start_does_not_say_so(full: WhenFull) -> None:
    before, after = transition(full)

    assert "whose start does not say so" in str(
        found(before, changed(after, "new", concurrency_full=WhenFull.REPLACE))
    )


@pytest.mark.parametrize("full", [WhenFull.CANCEL, WhenFull.TERMINATE, WhenFull.REPLACE])
def test_it_is_found_if_the_new_run_has_another_key(full: WhenFull) -> None:
    before, after = transition(full)

    assert "which is no new run of its key" in str(
        found(before, changed(after, "new", concurrency_key="another"))
    )


def test_it_is_found_if_what_is_superseded_was_under_way() -> None:
    before, after = transition(WhenFull.REPLACE)
    under_way = changed(before, "a", status=RunStatus.RUNNING, last_job=1)

    assert found(under_way, after) == ["the run was superseded, but it was under way"]


@pytest.mark.parametrize("full", [WhenFull.CANCEL, WhenFull.TERMINATE])
def test_the_parent_of_the_new_run_is_never_ended_for_it(full: WhenFull) -> None:
    before, after = (changed(one, "b", created_at=0) for one in transition(full))
    [parent] = [run.key for run in before.runs.values() if run.id == "b"]

    assert found(before, changed(after, "new", parent=f"{parent}.1")) == []


def test_more_open_runs_than_the_bound_are_found() -> None:
    _, after = transition(WhenFull.REPLACE)
    assert list(bounded_keys(after)) == []

    (violation,) = bounded_keys(_with_bounds(after, 1))
    assert violation.what == "4 runs in namespace default are open, but the highest bound is 2"


def test_the_next_generation_of_a_run_that_was_under_way_may_wait() -> None:
    """More were under way because of a higher limit of another run, which has ended since."""
    _, after = transition(WhenFull.REPLACE)
    bounded = _with_bounds(after, 1)

    for name in ("b", "c"):
        bounded = changed(bounded, name, generation=2)
        assert list(bounded_keys(bounded)) != []
    assert list(bounded_keys(changed(bounded, "d", generation=2))) == []


def _with_bounds(snapshot: Snapshot, number: int) -> Snapshot:
    for run in snapshot.runs.values():
        snapshot = changed(snapshot, run.id, concurrency_limit=number, concurrency_waiting=number)
    return snapshot
