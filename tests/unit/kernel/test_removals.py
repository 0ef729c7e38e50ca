"""Removal of runs: with all generations, and only when no other run or sink needs them."""

import pytest

from holdfast.kernel.commands import (
    OutboxFlush,
    RunCancel,
    RunCreate,
    RunRemove,
    RunRemoved,
    RunRerunFrom,
    SinkRegister,
    SinkRemove,
)
from holdfast.kernel.commands.sinks import OutboxSettle, StreamProgress
from holdfast.ports.errors import RemoveRefusedError, RunNotFoundError
from holdfast.ports.records.values import Payload
from tests.unit.kernel.world import World, child, field, payload, pipeline, stage

PLAN = pipeline(stage("a"), stage("b"))
CHILD = pipeline(stage("c"), workflow="c")


def _done(world: World, id: str = "x") -> None:
    world.create(id)
    session = world.open()
    while attempts := world.claim(session):
        for attempt in attempts:
            world.complete(attempt)


def test_a_run_that_has_ended_is_removed() -> None:
    world = World(PLAN)
    _done(world)
    _done(world, "y")
    key = world.run().key

    assert world.do(RunRemove(run_id="x")) == RunRemoved(removed=True, runs=(key,))
    assert list(world.tables().runs) == [world.run("y").key]
    assert set(world.tables().history) == {world.run("y").key}
    with world.unchanged(), pytest.raises(RunNotFoundError):
        world.do(RunRemove(run_id="x"))


def test_all_generations_go_at_once_and_the_id_is_free() -> None:
    world = World(PLAN)
    _done(world)
    first = world.run().key
    world.rerun(stage="b")
    second = world.run().key
    world.do(RunCancel(run_id="x"))

    assert world.do(RunRemove(run_id="x")).runs == (first, second)
    assert world.tables().runs == {}
    world.create("x")
    assert world.run().generation == 1


def test_the_blobs_of_inputs_are_named() -> None:
    """Of every generation, each once: the caller that keeps the blobs deletes them."""
    world = World(PLAN)
    blob = Payload(blob="default/somewhere/input/0/" + "0" * 64)
    world.do(RunCreate(id="x", workflow="w", input=blob))
    world.do(RunCancel(run_id="x"))
    world.rerun(stage="a")
    world.do(RunCancel(run_id="x"))

    assert world.do(RunRemove(run_id="x")).inputs == (blob.blob,)


@pytest.mark.parametrize("generation", [1, 3])
def test_another_generation_than_was_meant_is_left_alone(generation: int) -> None:
    world = World(PLAN)
    _done(world)
    world.rerun(stage="b")
    world.do(RunCancel(run_id="x"))

    with world.unchanged():
        assert world.do(RunRemove(run_id="x", generation=generation)) == RunRemoved(removed=False)


def test_an_active_run_is_not_removed() -> None:
    world = World(PLAN)
    world.create()

    with world.unchanged(), pytest.raises(RemoveRefusedError, match="it is running"):
        world.do(RunRemove(run_id="x"))


def test_a_run_that_is_run_again_in_the_same_batch_is_not_removed() -> None:
    world = World(PLAN)
    _done(world)
    rerun, ended, removed = world.send(
        RunRerunFrom(run_id="x", stage="b"), RunCancel(run_id="x"), RunRemove(run_id="x")
    )
    assert (field(rerun, "started"), field(ended, "changed")) == (True, True)
    assert isinstance(removed, RemoveRefusedError)
    assert world.run().generation == 2


def test_a_run_that_is_removed_and_started_in_one_batch_is_another() -> None:
    world = World(PLAN)
    _done(world)
    former = world.run().key
    removed, created = world.send(RunRemove(run_id="x"), RunCreate(id="x", workflow="w", input=payload(1)))

    assert (field(removed, "removed"), field(created, "generation")) == (True, 1)
    assert list(world.tables().runs) == [world.run().key] != [former]


def test_a_child_is_not_removed_before_its_parent_has_heard_of_its_end() -> None:
    world = World(pipeline(child("k")), CHILD)
    world.create()
    session = world.open()
    world.start_child(world.claim_one(session), "x/k")
    world.complete(world.claim_one(session))

    with world.unchanged(), pytest.raises(RemoveRefusedError, match="its end has not been delivered yet"):
        world.do(RunRemove(run_id="x/k"))
    world.deliver()
    assert world.do(RunRemove(run_id="x/k")).removed
    assert world.run().status == "completed"


def test_a_parent_goes_without_its_children() -> None:
    world = World(pipeline(child("k")), CHILD)
    world.create()
    session = world.open()
    world.start_child(world.claim_one(session), "x/k")
    world.complete(world.claim_one(session))
    world.deliver()

    assert world.do(RunRemove(run_id="x")).removed
    assert world.run("x/k").status == "completed"


def test_a_run_is_not_removed_before_every_sink_has_all_its_events() -> None:
    world = World(PLAN)
    world.do(SinkRegister(sink="audit", since=0))
    _done(world)
    with world.unchanged(), pytest.raises(RemoveRefusedError, match="'audit'"):
        world.do(RunRemove(run_id="x"))

    leased = world.do(OutboxFlush(sink="audit", lease=1_000_000))
    (stream,) = leased.streams
    world.do(
        OutboxSettle(
            sink="audit",
            registration=leased.registration,
            holder=leased.holder,
            delivered=(StreamProgress(run=stream.run, number=world.run().last_row),),
        )
    )
    assert world.do(RunRemove(run_id="x")).removed
    assert world.tables().streams == {}


def test_a_sink_that_has_yet_to_look_for_what_was_before_keeps_it_too() -> None:
    """It was registered after the run ended, for events from before."""
    world = World(PLAN)
    _done(world)
    world.do(SinkRegister(sink="late", since=0))

    with world.unchanged(), pytest.raises(RemoveRefusedError, match="'late'"):
        world.do(RunRemove(run_id="x"))
    world.do(SinkRemove(sink="late"))
    assert world.do(RunRemove(run_id="x")).removed
