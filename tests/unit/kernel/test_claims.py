"""Claims: jobs are leased to one session at a time, in order, no more often than allowed."""

from itertools import pairwise

import attrs
import pytest

from holdfast.kernel.commands import (
    JobClaim,
    JobClaimed,
    JobClaimOne,
    RunCancel,
    RunClaimPending,
    RunCreate,
    RunPause,
    SessionClose,
)
from holdfast.ports.changes import Update
from holdfast.ports.errors import InvalidCommandError, SessionLostError
from holdfast.ports.records.job import JobState
from holdfast.ports.searches import QueueClaim
from tests.unit.kernel.world import SECOND, World, completing, field, payload, pipeline, stage


@pytest.fixture
def world() -> World:
    return World(pipeline(stage("a"), stage("b")))


def _one(session: str, job: str, epoch: int = 0, *, namespace: str = "default") -> JobClaimOne:
    return JobClaimOne(session=session, job=job, epoch=epoch, definitions=("w@1",), namespace=namespace)


# Many at once ---------------------------------------------------------------------------------------------------


def test_a_claim_is_a_lease_with_a_new_epoch(world: World) -> None:
    run = world.create(input="in")
    session = world.open()
    world.wait(2)
    attempt = world.claim_one(session)

    job = world.job(attempt)
    assert (job.state, job.session, job.leased_at) == (JobState.LEASED, session, world.now)
    assert (job.epoch, job.attempts) == (1, 1)
    assert (attempt.epoch, attempt.attempt, attempt.max_attempts) == (1, 1, 3)
    assert (attempt.run, attempt.definition, attempt.queue, attempt.node) == (run.run, "w@1", "default", "a")
    assert world.value(run.run, attempt.input) == "in"


def test_a_claim_writes_neither_the_run_nor_its_history(world: World) -> None:
    world.create()
    before = (world.run(), world.history())
    world.claim_one(world.open())

    assert (world.run(), world.history()) == before


def test_what_is_held_is_not_claimed_again(world: World) -> None:
    world.create()
    session = world.open()
    world.claim_one(session)

    with world.unchanged():
        assert world.claim(session) == ()
        assert world.claim("unknown") == ()


def test_two_sessions_in_one_batch_get_different_jobs(world: World) -> None:
    for _ in range(3):
        world.create(None)
    sessions = [world.open(), world.open()]
    answers = world.send(
        *(JobClaim(session=session, queue_claims=world.lanes(), limit=2) for session in sessions)
    )

    claimed = [
        attempt.job for answer in answers if not isinstance(answer, Exception) for attempt in answer.attempts
    ]
    assert len(claimed) == len(set(claimed)) == 2


def test_a_claim_keeps_its_limit_and_that_of_each_lane(world: World) -> None:
    for _ in range(6):
        world.create(None)
    session = world.open()

    assert len(world.claim(session, limit=1)) == 1
    assert len(world.do(JobClaim(session=session, queue_claims=world.lanes(limit=2), limit=9)).attempts) == 2
    assert world.claim(session, limit=0) == ()
    assert len(world.claim(session)) == 3


def test_a_greater_priority_goes_first_and_an_older_run_before_a_newer(world: World) -> None:
    for priority, name in ((0, "p"), (5, "q"), (0, "r"), (-5, "s"), (5, "t")):
        world.do(RunCreate(workflow="w", id=name, input=payload(0), priority=priority))
        world.wait(1)
    session = world.open()

    claimed = [world.claim(session, limit=1)[0].run for _ in range(5)]
    assert claimed == [world.run(name).key for name in "qtprs"]


def test_priority_is_a_head_start_of_a_minute_for_each_step_and_no_more(world: World) -> None:
    world.create("patient")
    order: list[str] = []
    for minute in range(1, 8):
        world.wait(60)
        world.do(RunCreate(workflow="w", id=f"urgent-{minute}", input=payload(0), priority=5))
        (attempt,) = world.claim(world.open(), limit=1)
        order.append(next(run.id for run in world.tables().runs.values() if run.key == attempt.run))

    assert order == [*(f"urgent-{minute}" for minute in range(1, 5)), "patient", "urgent-5", "urgent-6"]


def test_what_began_later_waits_only_since_then(world: World) -> None:
    later = RunCreate(workflow="w", id="later", input=payload(0), start_at=world.now + 3600 * SECOND)
    world.do(later)
    world.wait(3500)
    world.create("now")
    world.wait(100)
    world.do(RunClaimPending())

    session = world.open()
    assert [world.claim(session, limit=1)[0].run for _ in range(2)] == [
        world.run("now").key,
        world.run("later").key,
    ]


def test_a_stage_s_own_priority_counts_from_the_same_instant(world: World) -> None:
    world = World(pipeline((stage("a"), stage("b", priority=2), stage("c", priority=-1))))
    world.do(RunCreate(workflow="w", id="x", input=payload(0), priority=1))

    a, b, c = (job.queue_position for job in world.jobs())
    assert (a - b, c - a) == (60 * SECOND, 120 * SECOND)
    assert a == world.run("x").queue_position == world.now - 60 * SECOND


def test_only_what_is_asked_for_is_claimed() -> None:
    world = World(pipeline(stage("a"), version="1"), pipeline(stage("a"), version="2"))
    for queue in ("default", "slow"):
        for version in ("1", "2"):
            for namespace in ("default", "other"):
                world.do(
                    RunCreate(
                        workflow="w", version=version, input=payload(0), queue=queue, namespace=namespace
                    )
                )
    session = world.open()

    lane = QueueClaim(queue="slow", definitions=("w@2",), limit=100)
    (attempt,) = world.do(JobClaim(session=session, queue_claims=(lane,), limit=100)).attempts
    assert (attempt.queue, attempt.definition) == ("slow", "w@2")
    assert world.job(attempt).namespace == "default"
    assert world.do(JobClaim(session=session, queue_claims=(), limit=100)).attempts == ()


def test_a_dead_session_claims_nothing(world: World) -> None:
    world.create()
    session = world.open()
    world.do(SessionClose(session=session))

    with world.unchanged():
        for unfit in (session, "unknown"):
            with pytest.raises(SessionLostError):
                world.claim(unfit)


def test_a_session_that_closes_in_a_batch_claims_nothing_after(world: World) -> None:
    world.create()
    session = world.open()
    claim = JobClaim(session=session, queue_claims=world.lanes(), limit=1)
    _, refused = world.send(SessionClose(session=session), claim)

    assert isinstance(refused, SessionLostError)
    assert [job.state for job in world.jobs()] == [JobState.QUEUED]


def test_nothing_is_asked_about_the_session_where_there_is_nothing_to_claim(world: World) -> None:
    """So the claim of an idle worker is one query."""
    assert world.claim("unknown") == ()


def test_a_run_that_is_cancelled_in_a_batch_is_not_claimed_after(world: World) -> None:
    world.create()
    claim = JobClaim(session=world.open(), queue_claims=world.lanes(), limit=1)
    _, answer = world.send(RunCancel(run_id="x"), claim)

    assert field(answer, "attempts") == ()


@pytest.mark.parametrize(("limit", "of_lane"), [(-1, 1), (1, -1)])
def test_a_negative_limit_is_refused(world: World, limit: int, of_lane: int) -> None:
    world.create()
    session = world.open()
    with world.unchanged(), pytest.raises(InvalidCommandError):
        world.do(JobClaim(session=session, queue_claims=world.lanes(limit=of_lane), limit=limit))


def test_a_job_without_attempts_left_is_never_claimed(world: World) -> None:
    """No kernel leaves one in the queue; if there is one, it does not run a fourth time."""
    world.create()
    session = world.open()
    (job,) = world.jobs()
    spent = attrs.evolve(job, attempts=3, epoch=3)
    world.put(Update(spent))
    claims = (
        JobClaim(session=session, queue_claims=world.lanes(), limit=1),
        _one(session, spent.key.text, 3),
    )

    answers = world.kernel.dispatch_many(claims)

    assert field(answers[0], "attempts") == ()
    assert answers[1] == JobClaimed(attempt=None, ignored="closed")
    assert world.jobs() == [spent]


def test_epochs_rise_by_one_whatever_becomes_of_the_attempts(world: World) -> None:
    world.create()
    epochs: list[int] = []
    session = world.open()
    for number in range(6):
        attempt = world.claim_one(session)
        epochs.append(attempt.epoch)
        if number == 0:
            world.fail(attempt)
        elif number == 1:
            world.lose()
            session = world.open()
        else:
            world.release(attempt)

    assert epochs == [1, 2, 3, 4, 5, 6]
    assert [after - before for before, after in pairwise(epochs)] == [1] * 5


# One by its id --------------------------------------------------------------------------------------------------


def test_one_job_is_claimed_by_its_id(world: World) -> None:
    world.create("x")
    world.create("y")
    (job,) = world.jobs("y")
    session = world.open()
    claimed = world.do(_one(session, job.key.text))

    assert claimed.attempt is not None
    assert (claimed.ignored, claimed.retry_after) == (None, None)
    assert (claimed.attempt.job, claimed.attempt.epoch, claimed.attempt.attempt) == (job.key.text, 1, 1)
    assert world.job(claimed.attempt).session == session
    assert [job.state for job in world.jobs("x")] == [JobState.QUEUED]


def test_a_message_about_a_job_that_is_gone_is_to_be_acknowledged(world: World) -> None:
    world.create()
    session = world.open()
    attempt = world.claim_one(session)
    world.complete(attempt)

    with world.unchanged():
        for job, namespace in (
            (attempt.job, "default"),
            ("never.1", "default"),
            (world.jobs()[0].key.text, "other"),
        ):
            claimed = world.do(_one(session, job, namespace=namespace))
            assert claimed == JobClaimed(attempt=None, ignored="closed")


def test_a_message_about_a_job_that_is_held_is_to_be_acknowledged(world: World) -> None:
    world.create()
    session = world.open()
    attempt = world.claim_one(session)

    with world.unchanged():
        for epoch in (0, 1):
            assert world.do(_one(session, attempt.job, epoch)) == JobClaimed(attempt=None, ignored="leased")


def test_a_message_from_before_the_last_claim_is_stale(world: World) -> None:
    world.create()
    session = world.open()
    attempt = world.claim_one(session)
    world.release(attempt)

    with world.unchanged():
        for epoch in (0, 2):
            assert world.do(_one(session, attempt.job, epoch)) == JobClaimed(attempt=None, ignored="stale")
    assert world.do(_one(session, attempt.job, 1)).attempt is not None


def test_a_message_about_a_sleeper_is_to_come_again_when_it_is_due(world: World) -> None:
    world.create()
    session = world.open()
    attempt = world.claim_one(session)
    world.release(attempt, delay=10 * SECOND)
    world.wait(4)

    with world.unchanged():
        claimed = world.do(_one(session, attempt.job, 1))
        assert claimed == JobClaimed(attempt=None, ignored="not_due", retry_after=6 * SECOND)


def test_a_message_about_a_sleeper_that_is_due_gets_it_before_any_round_of_maintenance(world: World) -> None:
    world.create()
    session = world.open()
    attempt = world.claim_one(session)
    world.release(attempt, delay=10 * SECOND)
    world.wait(10)

    late, fitting = _one(session, attempt.job, 0), _one(session, attempt.job, 1)
    with world.unchanged():
        for message in (late, attrs.evolve(fitting, definitions=("other@1",))):
            assert world.do(message).attempt is None
    claimed = world.do(fitting).attempt
    assert claimed is not None
    assert claimed.epoch == 2
    assert world.do(fitting).ignored == "leased"


def test_a_message_about_unknown_code_or_a_paused_job_is_to_come_later(world: World) -> None:
    world.create()
    session = world.open()
    (job,) = world.jobs()
    unknown = attrs.evolve(_one(session, job.key.text), definitions=("w@2", "v@1"))
    with world.unchanged():
        claimed = world.do(unknown)
    world.do(RunPause(run_id="x"))
    paused = world.do(_one(session, job.key.text))

    assert (claimed.ignored, paused.ignored) == ("unknown_code", "paused")
    assert (claimed.retry_after or 0) > 0
    assert (paused.retry_after or 0) > 0


def test_a_dead_session_does_not_claim_one_either(world: World) -> None:
    world.create()
    session = world.open()
    world.do(SessionClose(session=session))
    (job,) = world.jobs()

    with world.unchanged(), pytest.raises(SessionLostError):
        world.do(_one(session, job.key.text))


@pytest.mark.parametrize("job", ["", "x", ".1", "x.", "x.-1", "x.1.y", "x.٣", "x.12345678901"])
def test_what_is_no_job_id_is_refused(world: World, job: str) -> None:
    session = world.open()
    with world.unchanged(), pytest.raises(InvalidCommandError, match="job id"):
        world.do(_one(session, job))


def test_of_two_messages_about_a_job_in_a_batch_one_gets_it(world: World) -> None:
    world.create()
    (job,) = world.jobs()
    first, second = world.send(_one(world.open(), job.key.text), _one(world.open(), job.key.text))

    assert field(first, "attempt") is not None
    assert second == JobClaimed(attempt=None, ignored="leased")


def test_a_job_can_be_claimed_and_settled_in_one_batch(world: World) -> None:
    """By a caller that knows the next epoch."""
    world.create()
    session = world.open()
    (job,) = world.jobs()
    attempt = world.kernel.dispatch(_one(session, job.key.text)).attempt
    assert attempt is not None
    world.release(attempt)
    again, settled = world.send(_one(session, job.key.text, 1), completing(attrs.evolve(attempt, epoch=2)))

    assert field(field(again, "attempt"), "epoch") == 2
    assert field(settled, "status") == "settled"
