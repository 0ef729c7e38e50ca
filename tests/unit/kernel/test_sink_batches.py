"""Sinks that clients read by themselves: batches that stay as they are until they are acknowledged."""

import pytest

from holdfast.kernel.commands import (
    OutboxBatch,
    OutboxFlush,
    OutboxRead,
    RunCancel,
    RunRemove,
    SinkRegister,
    SinkRemove,
)
from holdfast.kernel.rules.sink_batches import stored_batch
from holdfast.ports.errors import RemoveRefusedError, SinkCursorError
from tests.unit.kernel.world import World, pipeline, stage

PLAN = pipeline(stage("a"), stage("b"))


def world_with(*runs: str) -> World:
    world = World(PLAN)
    world.do(SinkRegister(sink="audit", since=0))
    for one in runs:
        world.create(one)
    return world


def read(
    world: World, of: OutboxBatch | None = None, *, number: int | None = None, rows: int = 500
) -> OutboxBatch:
    """Acknowledge a batch, and read on."""
    if of is None:
        return world.do(OutboxRead(sink="audit", rows_max=rows))
    acknowledged = of.number if number is None else number
    command = OutboxRead(sink="audit", registration=of.registration, acknowledged=acknowledged, rows_max=rows)
    return world.do(command)


def ranges(batch: OutboxBatch) -> list[tuple[int, int]]:
    return [(one.after, one.last) for one in batch.streams]


def test_a_batch_stays_as_it_is_until_it_is_acknowledged() -> None:
    world = world_with("x")
    first = read(world)
    world.do(RunCancel(run_id="x"))
    world.create("y")

    assert (first.number, ranges(first)) == (1, [(0, 1)])
    with world.unchanged():
        assert read(world) == first
        assert read(world, first, number=0) == first
    second = read(world, first)
    assert second.number == 2
    assert sorted(ranges(second)) == [(0, 1), (1, 2)]
    third = read(world, second)
    assert (third.number, third.streams) == (2, ())
    with world.unchanged():
        assert read(world, second) == third


def test_it_is_acknowledged_without_reading_on() -> None:
    world = world_with("x", "y")
    first = read(world, rows=1)
    acknowledge = OutboxRead(sink="audit", registration=first.registration, acknowledged=1, reads_on=False)

    assert world.do(acknowledge).streams == ()
    (sink,) = world.tables().sinks.values()
    assert (batch := stored_batch(sink)) is not None
    assert (batch.number, batch.streams) == (1, ())
    with world.unchanged():
        world.do(acknowledge)
    assert len(read(world).streams) == 1


def test_a_batch_has_no_more_rows_than_wanted_and_the_rest_follows() -> None:
    world = world_with("x")
    world.do(RunCancel(run_id="x"))
    found, batch = list[tuple[int, int]](), read(world, rows=1)
    while batch.streams:
        found += ranges(batch)
        batch = read(world, batch, rows=1)

    assert found == [(0, 1), (1, 2)]


@pytest.mark.parametrize("number", [-1, 0, 3, 9])
def test_a_cursor_of_another_batch_is_refused(number: int) -> None:
    """Another client reads the sink too, or this one went back: neither must lose events silently."""
    world = world_with("x")
    first = read(world)
    world.do(RunCancel(run_id="x"))
    second = read(world, first)
    assert second.number == 2

    with world.unchanged(), pytest.raises(SinkCursorError, match="batch 2"):
        read(world, second, number=number)


def passed(world: World, of: OutboxBatch) -> OutboxBatch:
    """Pass over a batch that has nothing for the client, and read on."""
    return world.do(
        OutboxRead(
            sink="audit",
            registration=of.registration,
            acknowledged=of.number,
            passes_over=of.passed_over,
            rows_max=1,
        )
    )


def test_a_batch_that_is_passed_over_gives_its_number_to_the_next_one() -> None:
    """So a client that got no answer reads on from the batch before, whatever was passed over meanwhile."""
    world = world_with("x", "y", "z")
    first = read(world, rows=1)
    second = read(world, first, rows=1)
    third = passed(world, second)

    assert (second.number, third.number) == (2, 2)
    assert third.streams
    assert third.streams != second.streams
    with world.unchanged():
        assert read(world, first, rows=1) == third
        assert passed(world, second) == third, "another host has passed over it already"
    nothing = passed(world, third)
    assert (nothing.number, nothing.streams) == (1, ())
    with world.unchanged():
        assert read(world, first) == nothing
        assert passed(world, third) == nothing
    world.create("w")
    fourth = read(world, first)
    assert fourth.number == 2
    assert len(fourth.streams) == 1
    with world.unchanged():
        assert passed(world, second) == passed(world, third) == fourth, "they are gone"
    fifth = read(world, fourth)
    assert (fifth.number, fifth.streams) == (2, ())


def test_what_is_acknowledged_is_not_read_again_from_the_cursor_before() -> None:
    world = world_with("x")
    first = read(world)
    read(world, first)

    with world.unchanged(), pytest.raises(SinkCursorError):
        read(world, first, number=0)


def test_a_cursor_of_a_sink_that_was_registered_anew_is_refused() -> None:
    world = world_with("x")
    first = read(world)
    world.do(SinkRemove(sink="audit"))
    world.do(SinkRegister(sink="audit"))

    with world.unchanged(), pytest.raises(SinkCursorError, match="anew"):
        read(world, first)


def test_there_is_no_batch_of_a_sink_that_does_not_exist() -> None:
    world = World(PLAN)
    with world.unchanged():
        assert world.do(OutboxRead(sink="audit")) == OutboxBatch()


def test_a_sink_that_was_read_is_flushed_by_no_host() -> None:
    world = world_with("x")
    read(world)
    world.create("y")

    assert world.do(OutboxFlush(sink="audit", lease=1_000_000)).streams == ()


def test_a_run_is_not_removed_while_its_rows_are_in_a_batch_that_is_not_acknowledged() -> None:
    world = world_with("x")
    world.do(RunCancel(run_id="x"))
    batch = read(world)
    with world.unchanged(), pytest.raises(RemoveRefusedError, match="'audit'"):
        world.do(RunRemove(run_id="x"))

    read(world, batch)
    assert world.do(RunRemove(run_id="x")).removed
