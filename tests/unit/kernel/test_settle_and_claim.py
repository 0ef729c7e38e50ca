"""A settle that also claims the run's next job: one transaction fewer, and a claim like any other."""

import attrs
import pytest

from holdfast.kernel.commands import (
    Attempt,
    JobSettled,
    MapExpanded,
    Outcome,
    SessionClose,
)
from holdfast.ports.records.job import JobState
from holdfast.ports.records.run import RunStatus
from tests.unit.kernel.world import World, completing, each, failed, payload, pipeline, settling, stage


@pytest.fixture
def world() -> World:
    return World(pipeline(stage("a"), stage("b")))


def take(world: World, attempt: Attempt, session: str, outcome: Outcome | None = None) -> JobSettled:
    settle = completing(attempt, 5) if outcome is None else settling(attempt, outcome)
    return world.do(attrs.evolve(settle, take_next=session))


def test_the_next_job_is_leased_as_a_claim_leases_it(world: World) -> None:
    session = world.open()
    world.create("x")
    world.create("y")
    claimed, taking = world.claim(session)

    taken = take(world, taking, session).next
    world.complete(claimed, 5)
    (expected,) = world.claim(session)

    assert taken is not None
    assert taken == attrs.evolve(expected, run=taking.run, job=expected.job.replace(claimed.run, taking.run))
    rows = [world.job(taken), world.job(expected)]
    assert rows[0] == attrs.evolve(rows[1], run=taking.run)
    assert (rows[0].state, rows[0].epoch, rows[0].attempts, rows[0].session) == (
        JobState.LEASED,
        1,
        1,
        session,
    )
    assert world.claim(session) == ()


def test_the_reply_says_where_the_output_is_that_the_next_one_gets(world: World) -> None:
    session = world.open()
    world.create()

    settled = take(world, world.claim_one(session), session)

    assert settled.next is not None
    assert settled.next.input == str(settled.row)
    assert world.value(settled.next.run, settled.next.input) == 5


def test_what_was_taken_is_settled_and_the_run_completes(world: World) -> None:
    session = world.open()
    world.create()
    settled = take(world, world.claim_one(session), session)
    assert settled.next is not None

    last = take(world, settled.next, session)

    assert (last.run_status, last.next, last.row, last.more) == (RunStatus.COMPLETED, None, None, False)
    assert world.result() == 5


def test_a_dead_session_takes_nothing_and_its_result_is_stored(world: World) -> None:
    session, other = world.open(), world.open()
    world.create()
    attempt = world.claim_one(session)
    world.do(SessionClose(session=other))

    settled = take(world, attempt, other)

    assert (settled.status, settled.next) == ("settled", None)
    assert world.claim_one(session).node == "b"


def test_an_unknown_session_takes_nothing(world: World) -> None:
    session = world.open()
    world.create()

    assert take(world, world.claim_one(session), "nobody").next is None


def test_a_late_result_takes_nothing(world: World) -> None:
    session = world.open()
    world.create()
    attempt = world.claim_one(session)
    world.complete(attempt, 5)

    with world.unchanged():
        settled = take(world, attempt, session)

    assert (settled.status, settled.next) == ("fenced", None)


def test_a_body_that_failed_takes_nothing(world: World) -> None:
    session = world.open()
    world.create()

    assert take(world, world.claim_one(session), session, failed()).next is None


def test_a_job_of_another_queue_is_left_to_those_who_serve_it() -> None:
    world = World(pipeline(stage("a"), stage("b", queue="gpu")))
    session = world.open()
    world.create()

    settled = take(world, world.claim_one(session), session)

    assert settled.next is None
    assert [(job.node, job.state) for job in world.jobs()] == [("b", JobState.QUEUED)]


def test_of_several_jobs_one_is_taken_and_the_others_are_announced() -> None:
    world = World(pipeline(stage("a"), (stage("b"), stage("c"))))
    session = world.open()
    world.create()

    settled = take(world, world.claim_one(session), session)

    assert settled.next is not None
    assert settled.more
    assert settled.next.node == "b"
    assert [attempt.node for attempt in world.claim(session)] == ["c"]


def test_items_of_a_map_are_taken_as_well() -> None:
    world = World(pipeline(each("m", limit=2), stage("z")))
    session = world.open()
    world.create(input=[1, 2, 3])
    expanded = take(
        world, world.claim_one(session), session, MapExpanded(items=tuple(map(payload, (1, 2, 3))))
    )
    first = expanded.next
    assert first is not None
    assert expanded.more
    assert first.item == 0

    second = take(world, first, session).next

    assert second is not None
    assert second.item == 2
    assert [attempt.item for attempt in world.claim(session)] == [1]


def test_a_lost_worker_loses_what_it_took(world: World) -> None:
    session = world.open()
    world.create()
    taken = take(world, world.claim_one(session), session).next
    assert taken is not None

    assert world.lose().freed == 1
    again = world.claim_one(world.open())
    assert (again.job, again.epoch, again.attempt, again.lost_attempts) == (taken.job, 2, 2, 1)
