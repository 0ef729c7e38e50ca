"""Leader leases: one session at a time does the maintenance."""

import pytest

from holdfast.kernel.commands import LeaderAcquire, LeaderAcquired, SessionClose
from holdfast.ports.errors import SessionLostError
from tests.unit.kernel.world import SECOND, World, pipeline, stage


@pytest.fixture
def world() -> World:
    return World(pipeline(stage("a")))


def _take(session: str, name: str = "sweep") -> LeaderAcquire:
    return LeaderAcquire(name=name, session=session, lease=10 * SECOND)


def test_a_free_duty_is_taken(world: World) -> None:
    session = world.open()

    assert world.do(_take(session)) == LeaderAcquired(taken=True, expires_at=world.now + 10 * SECOND)
    assert world.tables().leaders["sweep"].session == session


def test_a_duty_that_another_has_is_not_taken(world: World) -> None:
    world.do(_take(world.open()))
    until = world.now + 10 * SECOND
    world.wait(9.999999)
    other = world.open()

    with world.unchanged():
        assert world.do(_take(other)) == LeaderAcquired(taken=False, expires_at=until)


def test_a_duty_is_free_again_when_it_ends(world: World) -> None:
    world.do(_take(world.open()))
    world.wait(10)
    other = world.open()

    assert world.do(_take(other)).taken
    assert world.tables().leaders["sweep"].session == other


def test_who_has_a_duty_keeps_it_by_asking_again(world: World) -> None:
    session = world.open()
    world.do(_take(session))
    world.wait(9)

    assert world.do(_take(session)) == LeaderAcquired(taken=True, expires_at=world.now + 10 * SECOND)


def test_of_two_in_a_batch_the_first_gets_it(world: World) -> None:
    first, second = world.send(_take(world.open()), _take(world.open()))

    assert first == LeaderAcquired(taken=True, expires_at=world.now + 10 * SECOND)
    assert second == LeaderAcquired(taken=False, expires_at=world.now + 10 * SECOND)


def test_different_duties_are_had_by_different_sessions(world: World) -> None:
    world.do(_take(world.open(), "sweep"))

    assert world.do(_take(world.open(), "flush")).taken


def test_the_dead_have_no_duties(world: World) -> None:
    session = world.open()
    world.do(SessionClose(session=session))

    with world.unchanged():
        for unfit in (session, "unknown"):
            with pytest.raises(SessionLostError):
                world.do(_take(unfit))
