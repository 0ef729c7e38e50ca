"""Hints: announced after a commit, and only then."""

import pytest

from holdfast.kernel.commands import Command, RunCancel, RunCreate, RunTerminate
from holdfast.ports.errors import UnavailableError
from holdfast.ports.records.job import LOSSES_MIN
from holdfast.ports.transport import JobHint, RunEnded
from holdfast.testing.faults import Fault, FaultPlan, FaultyPersistence
from tests.unit.kernel.world import SECOND, World, completing, each, payload, pipeline, stage


@pytest.fixture
def world() -> World:
    return World(pipeline(stage("a"), stage("b")))


def _hint(world: World, number: int, *, epoch: int = 0, queue: str = "default") -> JobHint:
    return JobHint(job=f"{world.run().key}.{number}", epoch=epoch, queue=queue)


def _heard(world: World) -> list[object]:
    heard: list[object] = list(world.heard.hints)
    world.heard.hints.clear()
    return heard


def test_a_created_run_announces_its_first_jobs() -> None:
    world = World(pipeline((stage("a"), stage("b", queue="gpu"))))
    world.create()

    assert _heard(world) == [_hint(world, 1), _hint(world, 2, queue="gpu")]


def test_a_settle_announces_what_it_opens_and_the_last_one_that_the_run_has_ended(world: World) -> None:
    world.create()
    session = world.open()
    _heard(world)
    world.complete(world.claim_one(session))
    assert _heard(world) == [_hint(world, 2)]
    world.complete(world.claim_one(session))

    assert _heard(world) == [RunEnded(run=world.run().key)]


def test_the_end_of_a_run_is_announced_however_it_ends(world: World) -> None:
    ends: list[Command[object]] = [RunCancel(run_id="x1"), RunTerminate(run_id="x2")]
    for number, command in enumerate(ends, 1):
        world.create(f"x{number}")
        _heard(world)
        world.do(command)
        assert _heard(world) == [RunEnded(run=world.run(f"x{number}").key)]
    world.create("x")
    _heard(world)
    world.fail(world.claim_one(world.open()), retryable=False)
    assert _heard(world) == [RunEnded(run=world.run().key)]


def test_a_run_that_dies_with_its_workers_is_announced(world: World) -> None:
    world.create()
    for _ in range(LOSSES_MIN):
        _heard(world)
        world.claim_one(world.open())
        world.lose()

    assert _heard(world) == [RunEnded(run=world.run().key)]


def test_jobs_that_can_be_claimed_again_are_announced_with_their_epoch(world: World) -> None:
    world.create()
    session = world.open()
    attempt = world.claim_one(session)
    _heard(world)
    world.release(attempt)
    assert _heard(world) == [_hint(world, 1, epoch=1)]
    attempt = world.claim_one(session)
    world.fail(attempt)
    assert _heard(world) == [_hint(world, 1, epoch=2)]
    world.claim_one(session)
    world.lose()
    assert _heard(world) == [_hint(world, 1, epoch=3)]


def test_sleepers_are_announced_when_they_wake_and_not_before(world: World) -> None:
    world.create()
    attempt = world.claim_one(world.open())
    _heard(world)
    world.release(attempt, delay=SECOND)
    assert _heard(world) == []
    world.wait(1)
    world.wake_due()

    assert _heard(world) == [_hint(world, 1, epoch=1)]


def test_what_changes_nothing_announces_nothing(world: World) -> None:
    world.create()
    session = world.open()
    attempt = world.claim_one(session)
    world.complete(attempt)
    _heard(world)
    world.complete(attempt)
    world.claim(session)
    world.wake_due()

    assert _heard(world) == []


def test_a_wide_map_announces_each_of_its_items() -> None:
    """Where each message invokes a function, a job without a hint waits for the next timer tick."""
    world = World(pipeline(each("m")))
    world.create()
    attempt = world.claim_one(world.open())
    _heard(world)
    world.expand(attempt, range(1_000))

    assert _heard(world) == [_hint(world, number) for number in range(2, 1_002)]


def test_a_batch_announces_once_and_nothing_twice(world: World) -> None:
    world.send(*(RunCreate(workflow="w", id="x", input=payload(0), if_exists="return") for _ in range(3)))

    assert _heard(world) == [_hint(world, 1)]


def test_an_end_in_a_batch_is_announced_with_all_that_came_before(world: World) -> None:
    """A hint about a deleted job does no harm."""
    world.create()
    attempt = world.claim_one(world.open())
    _heard(world)
    commands: list[Command[object]] = [completing(attempt), RunCancel(run_id="x")]
    world.send(*commands)

    assert _heard(world) == [_hint(world, 2), RunEnded(run=world.run().key)]


@pytest.mark.parametrize("fault", [Fault.FAILS_BEFORE, Fault.LOST_ANSWER])
def test_nothing_is_announced_that_is_not_known_to_be_stored(fault: Fault) -> None:
    world = World(pipeline(stage("a")), wrap=lambda store: FaultyPersistence(store, FaultPlan([fault])))
    with pytest.raises(UnavailableError):
        world.kernel.dispatch(RunCreate(workflow="w", input=payload(0)))

    assert _heard(world) == []
