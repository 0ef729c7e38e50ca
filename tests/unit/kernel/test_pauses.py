"""A paused run accepts results and starts nothing; once resumed, it continues where it was."""

import attrs
import pytest

from holdfast.kernel.commands import (
    MapExpanded,
    RunCancel,
    RunPause,
    RunPaused,
    RunRepair,
    RunResume,
    RunTransition,
)
from holdfast.ports.errors import RunNotFoundError
from holdfast.ports.records.job import JobState
from holdfast.ports.records.run import RunStatus
from tests.unit.kernel.world import SECOND, World, completing, each, payload, pipeline, settling, stage


@pytest.fixture
def world() -> World:
    return World(pipeline(stage("a"), (stage("b"), stage("c"))))


def pause(world: World, run: str = "x") -> RunPaused:
    return world.do(RunPause(run_id=run, reason="look"))


def resume(world: World, run: str = "x") -> RunPaused:
    return world.do(RunResume(run_id=run))


def states(world: World) -> list[JobState]:
    return [job.state for job in world.jobs()]


def test_a_paused_run_starts_nothing(world: World) -> None:
    session = world.open()
    world.create()

    assert pause(world) == RunPaused(status=RunStatus.PAUSED, changed=True)
    assert states(world) == [JobState.PAUSED]
    assert world.claim(session) == ()
    assert world.events()[-1] == "run.paused"


def test_a_resumed_run_goes_on_where_it_is(world: World) -> None:
    session = world.open()
    world.create()
    pause(world)

    assert resume(world) == RunPaused(status=RunStatus.RUNNING, changed=True)
    assert world.claim_one(session).node == "a"
    assert world.events()[-1] == "run.resumed"


def test_whoever_has_seen_an_older_row_resumes_nothing(world: World) -> None:
    world.open()
    world.create()
    pause(world)
    run = world.run()

    assert world.do(RunResume(run_id="x", row=run.last_row - 1)) == RunPaused(
        status=RunStatus.PAUSED, changed=False
    )
    assert states(world) == [JobState.PAUSED]
    assert world.do(RunResume(run_id="x", row=run.last_row)).changed


def test_what_is_under_way_is_settled_and_what_it_opens_is_held(world: World) -> None:
    session = world.open()
    world.create()
    attempt = world.claim_one(session)
    pause(world)

    assert states(world) == [JobState.LEASED]
    settled = world.complete(attempt, 1)

    assert (settled.status, settled.run_status) == ("settled", RunStatus.PAUSED)
    assert states(world) == [JobState.PAUSED, JobState.PAUSED]
    assert world.claim(session) == ()
    resume(world)
    assert [one.node for one in world.claim(session)] == ["b", "c"]


def test_a_run_may_complete_while_it_is_paused(world: World) -> None:
    session = world.open()
    world.create()
    world.complete(world.claim_one(session))
    attempts = world.claim(session)
    pause(world)

    for attempt in attempts:
        world.complete(attempt, attempt.node)

    assert world.run().status is RunStatus.COMPLETED
    assert world.result() == ["b", "c"]


def test_a_body_that_fails_meanwhile_is_tried_again_after_the_resume_and_not_before_its_time() -> None:
    world = World(pipeline(stage("a", attempts=2, wait_us=60 * SECOND)))
    session = world.open()
    world.create()
    attempt = world.claim_one(session)
    pause(world)
    world.fail(attempt)

    assert states(world) == [JobState.PAUSED]
    world.wait(30)
    resume(world)
    assert states(world) == [JobState.SLEEPING]
    world.wait(30)
    assert world.wake_due() == 1
    assert world.claim_one(session).attempt == 2


def test_a_sleeper_whose_time_comes_while_it_is_held_is_queued_by_the_resume() -> None:
    world = World(pipeline(stage("a", attempts=2, wait_us=60 * SECOND)))
    session = world.open()
    world.create()
    world.fail(world.claim_one(session))
    pause(world)
    world.wait(120)

    assert world.wake_due() == 0
    resume(world)
    assert world.claim_one(session).attempt == 2


def test_what_is_given_back_or_lost_meanwhile_is_held(world: World) -> None:
    session = world.open()
    world.create("x")
    world.create("y")
    first, second = world.claim(session)
    pause(world, "x")
    pause(world, "y")
    world.release(first)
    world.lose()

    assert (world.job(first).state, world.job(first).attempts) == (JobState.PAUSED, 0)
    assert (world.job(second).state, world.job(second).lost_attempts) == (JobState.PAUSED, 1)


def test_the_items_of_a_map_wait_as_well() -> None:
    world = World(pipeline(each("m", limit=2)))
    session = world.open()
    world.create(input=[1, 2, 3])
    world.do(settling(world.claim_one(session), MapExpanded(items=tuple(map(payload, (1, 2, 3))))))
    (first, second) = world.claim(session)
    pause(world)
    world.complete(first, 1)

    assert [job.item for job in world.jobs()] == [1, 2]
    assert states(world) == [JobState.LEASED, JobState.PAUSED]
    resume(world)
    world.complete(second, 2)
    world.complete(world.claim_one(session), 3)
    assert world.result() == [1, 2, 3]


def test_pausing_and_resuming_twice_changes_nothing(world: World) -> None:
    world.create()
    with world.unchanged():
        assert resume(world) == RunPaused(status=RunStatus.RUNNING, changed=False)
    pause(world)
    with world.unchanged():
        assert pause(world) == RunPaused(status=RunStatus.PAUSED, changed=False)


def test_a_run_that_has_ended_is_not_paused(world: World) -> None:
    world.create()
    world.do(RunCancel(run_id="x"))

    with world.unchanged():
        assert pause(world) == RunPaused(status=RunStatus.CANCELLED, changed=False)


def test_a_run_that_is_not_there_is_not_paused(world: World) -> None:
    for command in (RunPause(run_id="nobody"), RunResume(run_id="nobody")):
        with world.unchanged(), pytest.raises(RunNotFoundError):
            world.do(command)


def test_a_paused_run_can_be_cancelled(world: World) -> None:
    world.create()
    pause(world)

    assert world.do(RunCancel(run_id="x")).status is RunStatus.CANCELLED
    assert world.jobs() == []


def test_repair_has_nothing_to_do_in_a_paused_run(world: World) -> None:
    session = world.open()
    world.create()
    world.complete(world.claim_one(session))
    pause(world)

    with world.unchanged():
        assert world.do(RunRepair()).repaired == ()
        assert world.do(RunTransition(run_id="x")).action == "none"


def test_a_paused_run_takes_no_part_in_a_settle_that_takes_the_next_job(world: World) -> None:
    session = world.open()
    world.create()
    attempt = world.claim_one(session)
    pause(world)

    settled = world.do(attrs.evolve(completing(attempt), take_next=session))

    assert settled.next is None
    assert states(world) == [JobState.PAUSED, JobState.PAUSED]


def test_commands_of_a_batch_see_the_pause_before_them(world: World) -> None:
    session = world.open()
    world.create("x")
    world.create("y")

    claimed = world.send(RunPause(run_id="x"), RunPause(run_id="y"), RunResume(run_id="y"))

    assert [getattr(answer, "status", None) for answer in claimed] == ["paused", "paused", "running"]
    assert [one.run for one in world.claim(session)] == [world.run("y").key]
