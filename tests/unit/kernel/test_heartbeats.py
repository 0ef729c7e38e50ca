"""Heartbeats: a body without them is lost, a body with them is not."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kernel.commands import (
    Attempt,
    AttemptOutput,
    AttemptReport,
    JobHeartbeat,
    JobReapUnresponsive,
    JobSettled,
    RunCancel,
    UnresponsiveReaped,
)
from holdfast.kernel.pipelines.plan import MapPlan, RetryPolicy, StagePlan
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.json import parse
from holdfast.ports.queries.history import LastHeartbeat
from holdfast.ports.records.job import JobState
from tests.unit.kernel.world import SECOND, World, completing, pipeline, stage

MINUTE = 60
PATIENT = RetryPolicy(attempts=3, wait_us=10 * SECOND, backoff=1.0, jitter=0.0)
WATCHED = StagePlan(name="a", retry=PATIENT, heartbeat_timeout_us=2 * MINUTE * SECOND)
LONG = 10**15


@pytest.fixture
def world() -> World:
    world = World(pipeline(WATCHED))
    world.create()
    return world


def beat(world: World, attempt: Attempt, details: str = "null", kind: str = "heartbeat") -> tuple[str, ...]:
    """Send a body's heartbeat; return the lost attempts."""
    said = AttemptOutput(kind="heartbeat" if kind == "heartbeat" else "progress", at=world.now, data=details)
    return world.do(
        JobHeartbeat(attempts=(AttemptReport(job=attempt.job, epoch=attempt.epoch, outputs=(said,)),))
    ).lost


def reap(world: World, grace: int = 0) -> UnresponsiveReaped:
    return world.do(JobReapUnresponsive(grace=grace))


def test_an_attempt_that_says_nothing_for_too_long_is_lost_and_tried_again(world: World) -> None:
    attempt = world.claim_one(world.open())
    world.wait(2 * MINUTE)
    with world.unchanged():
        assert reap(world) == UnresponsiveReaped(freed=0, dead=0)
    world.wait(0.000001)
    assert reap(world) == UnresponsiveReaped(freed=1, dead=0)

    job = world.job(attempt)
    assert (job.state, job.wake_at, job.attempts) == (JobState.SLEEPING, world.now + 10 * SECOND, 1)
    assert (job.session, job.heartbeat_by) == (None, None)
    row = world.history()[-1]
    assert row.type == "stage.retrying"
    facts = parse(row.data or "")
    assert (facts["code"], facts["attempt"]) == ("heartbeat_timeout", 1)
    assert facts["message"] == "no heartbeat of attempt 1 was stored for 0:02:00"
    with world.unchanged():
        assert reap(world) == UnresponsiveReaped(freed=0, dead=0)


def test_who_was_silent_can_write_no_more(world: World) -> None:
    attempt = world.claim_one(world.open(lease=LONG))
    world.wait(3 * MINUTE)
    reap(world)

    with world.unchanged():
        assert beat(world, attempt) == (attempt.job,)
        assert world.do(completing(attempt)) == JobSettled(status="fenced")


def test_a_stage_of_twenty_minutes_that_is_heard_from_each_minute_lives(world: World) -> None:
    attempt = world.claim_one(world.open(lease=LONG))
    for minute in range(20):
        world.wait(MINUTE)
        assert beat(world, attempt, str(minute)) == ()
        assert reap(world) == UnresponsiveReaped(freed=0, dead=0)

    assert world.complete(attempt).status == "settled"
    assert world.run().status == "completed"


def test_it_fails_for_good_after_its_attempts(world: World) -> None:
    session = world.open(lease=LONG)
    reaped: list[UnresponsiveReaped] = []
    for _ in range(3):
        world.claim_one(session)
        world.wait(3 * MINUTE)
        reaped.append(reap(world))
        world.wait(MINUTE)
        world.wake_due()

    assert [(one.freed, one.dead) for one in reaped] == [(1, 0), (1, 0), (0, 1)]
    assert parse(world.run().error or "")["code"] == "heartbeat_timeout"
    assert world.jobs() == []


def test_a_heartbeat_that_is_late_but_before_anybody_looked_keeps_the_attempt(world: World) -> None:
    attempt = world.claim_one(world.open(lease=LONG))
    world.wait(5 * MINUTE)
    assert beat(world, attempt) == ()

    assert reap(world) == UnresponsiveReaped(freed=0, dead=0)
    assert world.job(attempt).heartbeat_by == world.now + 2 * MINUTE * SECOND


def test_the_grace_is_added_to_what_a_stage_allows(world: World) -> None:
    world.claim_one(world.open(lease=LONG))
    world.wait(2 * MINUTE + 3)

    assert reap(world, 3 * SECOND).freed == 0
    assert reap(world, 3 * SECOND - 1).freed == 1


def test_only_heartbeats_count(world: World) -> None:
    attempt = world.claim_one(world.open(lease=LONG))
    world.wait(MINUTE)
    beat(world, attempt, kind="progress")
    world.do(JobHeartbeat(attempts=(AttemptReport(job=attempt.job, epoch=attempt.epoch),)))
    world.wait(1.5 * MINUTE)

    assert reap(world).freed == 1


def test_without_a_heartbeat_timeout_nobody_waits_for_heartbeats() -> None:
    world = World(pipeline(stage("a")))
    world.create()
    attempt = world.claim_one(world.open(lease=LONG))
    beat(world, attempt, '"still here"')
    world.wait(10**7)

    assert world.job(attempt).heartbeat_by is None
    with world.unchanged():
        assert reap(world).freed == 0


def test_what_is_not_held_is_not_silent(world: World) -> None:
    session = world.open(lease=LONG)
    world.release(world.claim_one(session), delay=SECOND)
    world.wait(10 * MINUTE)
    with world.unchanged():
        assert reap(world).freed == 0
    world.wake_due()
    world.claim_one(session)
    world.do(RunCancel(run_id="x"))
    world.wait(10 * MINUTE)
    with world.unchanged():
        assert reap(world).freed == 0


def test_a_lost_worker_s_job_has_its_whole_time_when_it_is_claimed_again(world: World) -> None:
    world.claim_one(world.open())
    world.wait(MINUTE)
    world.lose()
    attempt = world.claim_one(world.open(lease=LONG))

    assert world.job(attempt).heartbeat_by == world.now + 2 * MINUTE * SECOND


def test_the_silent_ones_among_many_are_taken_and_no_others() -> None:
    world = World(pipeline(MapPlan(stage=attrs.evolve(WATCHED, name="m"))))
    world.create("x")
    world.create("y")
    session = world.open(lease=LONG)
    for expand in world.claim(session):
        assert world.job(expand).heartbeat_by is None
        world.expand(expand, range(5))
    items = world.claim(session)
    world.wait(1.5 * MINUTE)
    for item in items[::2]:
        beat(world, item)
    world.wait(MINUTE)

    assert reap(world).freed == 5
    silent = {item.job for item in items[1::2]}
    assert {item.job for item in items if world.job(item).state is JobState.SLEEPING} == silent


def test_one_item_that_is_silent_for_good_ends_its_run_once() -> None:
    once = attrs.evolve(WATCHED, name="m", retry=attrs.evolve(PATIENT, attempts=1))
    world = World(pipeline(MapPlan(stage=once)))
    world.create()
    session = world.open(lease=LONG)
    world.expand(world.claim_one(session), range(4))
    world.claim(session)
    world.wait(3 * MINUTE)

    assert reap(world) == UnresponsiveReaped(freed=0, dead=1)
    assert world.run().status == "failed"
    assert world.events().count("run.failed") == 1


def test_so_many_are_taken_at_once(world: World) -> None:
    world.create("y")
    world.claim(world.open(lease=LONG))
    world.wait(3 * MINUTE)

    assert [world.do(JobReapUnresponsive(limit=1)).freed for _ in range(3)] == [1, 1, 0]


@pytest.mark.parametrize("wrong", [JobReapUnresponsive(grace=-1), JobReapUnresponsive(limit=-1)])
def test_a_negative_grace_or_limit_is_refused(world: World, wrong: JobReapUnresponsive) -> None:
    with world.unchanged(), pytest.raises(InvalidCommandError):
        world.do(wrong)


def test_what_was_said_last_is_found_by_the_next_attempt(world: World) -> None:
    session = world.open(lease=LONG)
    first = world.claim_one(session)
    beat(world, first, '"page 1"')
    beat(world, first, '"page 2"')
    beat(world, first, "0.5", kind="progress")
    world.wait(3 * MINUTE)
    reap(world)
    world.wait(MINUTE)
    world.wake_due()
    second = world.claim_one(session)
    beat(world, second, '"page 7"')

    number = world.job(first).number
    said = [world.store.read(LastHeartbeat(first.run, number, epoch)) for epoch in (1, 2, 3)]
    assert [note and note.data for note in said] == [None, '"page 2"', '"page 7"']


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(0, 150 * SECOND), st.booleans()), min_size=1, max_size=20),
    st.integers(0, 10 * SECOND),
)
def test_it_is_lost_if_and_only_if_it_was_silent_for_too_long(
    steps: list[tuple[int, bool]], grace: int
) -> None:
    world = World(pipeline(WATCHED))
    world.create()
    attempt = world.claim_one(world.open(lease=LONG))
    heard = world.now
    for wait, says in steps:
        world.wait(wait / SECOND)
        overdue = world.now > heard + 2 * MINUTE * SECOND + grace
        assert reap(world, grace).freed == overdue
        if overdue:
            return
        if says:
            assert beat(world, attempt) == ()
            heard = world.now
