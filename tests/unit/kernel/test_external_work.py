"""External work: submitted once, polled until done, woken by any caller."""

import attrs
import pytest

from holdfast.kernel.commands import (
    Attempt,
    Completed,
    Failed,
    Failure,
    JobClaimOne,
    JobsWoken,
    Outcome,
    PollNotReady,
    RunCancel,
    RunPause,
    RunRepair,
    RunResume,
    StagePollSuspended,
    StageSuspended,
    StagesWoken,
    StageWake,
)
from holdfast.kernel.pipelines.plan import CheckPlan, Enough, RetryPolicy
from holdfast.ports.changes import Delete
from holdfast.ports.errors import InvalidCommandError, NothingToWakeError
from holdfast.ports.json import parse
from holdfast.ports.records.job import LOSSES_MIN, Job, JobKind, JobState
from holdfast.ports.records.run import RunStatus
from holdfast.ports.tables import JOBS
from holdfast.ports.transport import JobHint
from tests.unit.kernel.world import (
    SECOND,
    World,
    each_of,
    external,
    failed,
    field,
    payload,
    pipeline,
    settling,
    stage,
)

PLAN = pipeline(external("e"), stage("z"))
DAY = 24 * 3_600


def _suspended(world: World, *, after: float = 60, give_up_in: float | None = None, key: str = "key") -> str:
    """A run with a suspended stage; return a session."""
    world.create(input="in")
    session = world.open(lease=365 * DAY * SECOND)
    world.suspend(world.claim_one(session), after=after, give_up_in=give_up_in, key=key)
    return session


def _check(world: World, session: str) -> Attempt:
    """Claim the check when it is due."""
    (job,) = world.jobs()
    if job.wake_at is not None:
        world.wait((job.wake_at - world.now) / SECOND)
        world.wake_due()
    attempt = world.claim_one(session)
    assert attempt.kind is JobKind.POLL
    return attempt


def _job(world: World) -> Job:
    (job,) = world.jobs()
    return job


# Suspending ------------------------------------------------------------------------------------------------------


def test_a_suspended_stage_is_a_check_asleep() -> None:
    world = World(PLAN)
    world.create(input="in")
    session = world.open()
    body = world.claim_one(session)
    assert (body.kind, world.value(body.run, body.input)) == (JobKind.STAGE, "in")
    settled = world.suspend(body, {"id": 7}, after=60)

    assert (settled.status, settled.run_status) == ("settled", RunStatus.RUNNING)
    assert settled.retry_at == world.now + 60 * SECOND
    job = _job(world)
    assert (job.kind, job.state, job.wake_at) == (JobKind.POLL, JobState.SLEEPING, settled.retry_at)
    assert (job.waiting_for, job.epoch, job.attempts) == ("key", 0, 0)
    assert world.claim(session) == ()


def test_a_check_gets_what_the_body_left_and_what_it_gives_is_what_the_stage_gives() -> None:
    world = World(PLAN)
    session = _suspended(world)
    check = _check(world, session)

    assert world.value(check.run, check.input) == "elsewhere"
    world.complete(check, "result")
    after = world.claim_one(session)
    assert (after.node, world.value(after.run, after.input)) == ("z", "result")


def test_the_history_says_of_what_was_handed_on_what_a_person_asks() -> None:
    world = World(PLAN)
    _suspended(world, after=5, give_up_in=100, key="job-7")

    (row,) = [row for row in world.history() if row.type == "stage.suspended"]
    assert (row.node, row.item, row.epoch) == ("e", None, 1)
    assert parse(row.data or "") == {
        "attempt": 1,
        "job": 1,
        "check_after": 5 * SECOND,
        "give_up_at": world.now + 100 * SECOND,
        "key": "job-7",
    }


def test_the_body_is_never_run_again_once_its_work_is_handed_on() -> None:
    world = World(PLAN)
    session = _suspended(world)
    kinds: list[JobKind] = []
    for outcome in (
        PollNotReady(),
        failed(),
        failed(),
        failed(),
        PollNotReady(),
        Completed(output=payload(1)),
    ):
        check = _check(world, session)
        kinds.append(check.kind)
        world.settle(check, outcome)

    assert set(kinds) == {JobKind.POLL}
    assert world.events().count("stage.suspended") == 1
    assert world.claim_one(session).node == "z"


def test_whoever_ran_the_body_can_hand_on_or_complete_nothing_more() -> None:
    world = World(PLAN)
    world.create()
    body = world.claim_one(world.open())
    world.suspend(body)

    for outcome in (Completed(output=payload(1)), failed(), PollNotReady()):
        with world.unchanged():
            assert world.settle(body, outcome).status == "fenced"
    with world.unchanged():
        assert world.suspend(body).status == "fenced"


def test_an_attempt_that_was_lost_hands_nothing_on() -> None:
    world = World(PLAN)
    world.create()
    lost = world.claim_one(world.open())
    world.lose()

    with world.unchanged():
        assert world.suspend(lost).status == "fenced"
    again = world.claim_one(world.open())
    assert (again.kind, again.attempt) == (JobKind.STAGE, 2)
    assert world.suspend(again).status == "settled"


def test_a_body_that_fails_before_it_hands_on_is_tried_again() -> None:
    world = World(PLAN)
    world.create()
    session = world.open()
    world.fail(world.claim_one(session))
    again = world.claim_one(session)

    assert (again.kind, again.attempt) == (JobKind.STAGE, 2)
    world.suspend(again)
    assert (_job(world).attempts, _job(world).max_attempts) == (0, 3)


def test_a_body_may_have_nothing_to_hand_on() -> None:
    world = World(PLAN)
    world.create()
    session = world.open()
    world.complete(world.claim_one(session), "at once")

    assert world.claim_one(session).node == "z"


def test_a_stage_without_a_check_is_not_suspended() -> None:
    world = World(pipeline(stage("a")))
    world.create()
    attempt = world.claim_one(world.open())

    with world.unchanged(), pytest.raises(InvalidCommandError, match="'a' has no check"):
        world.suspend(attempt)


@pytest.mark.parametrize(("after", "key"), [(0, "k"), (-1, "k"), (1, "")])
def test_a_suspension_has_a_key_and_a_time(after: float, key: str) -> None:
    world = World(PLAN)
    world.create()
    attempt = world.claim_one(world.open())

    with world.unchanged(), pytest.raises(InvalidCommandError, match="check_after"):
        world.suspend(attempt, after=after, key=key)


def test_a_check_hands_nothing_on_and_a_body_does_not_say_not_yet() -> None:
    world = World(PLAN)
    world.create()
    session = world.open(lease=DAY * SECOND)
    body = world.claim_one(session)
    with world.unchanged(), pytest.raises(InvalidCommandError, match="not_ready"):
        world.settle(body, PollNotReady())
    world.suspend(body)
    check = _check(world, session)

    with world.unchanged(), pytest.raises(InvalidCommandError, match="suspended"):
        world.suspend(check)


# Asking ----------------------------------------------------------------------------------------------------------


def test_work_that_is_not_done_is_asked_about_again_as_often_as_it_takes() -> None:
    world = World(PLAN)
    session = _suspended(world, after=60)
    for _ in range(20):
        check = _check(world, session)
        assert check.attempt == 1
        settled = world.settle(check, PollNotReady())
        assert settled.retry_at == world.now + 60 * SECOND

    assert world.run().status == "running"
    assert world.events() == ["run.created", "stage.suspended"]


def test_a_check_may_say_when_to_ask_again_this_once() -> None:
    world = World(PLAN)
    session = _suspended(world, after=60)
    assert (
        world.settle(_check(world, session), PollNotReady(check_after=5 * SECOND)).retry_at
        == world.now + 5 * SECOND
    )
    assert world.settle(_check(world, session), PollNotReady()).retry_at == world.now + 60 * SECOND


def test_not_yet_writes_the_row_of_the_job_and_nothing_else() -> None:
    world = World(PLAN)
    session = _suspended(world)
    check = _check(world, session)
    before = world.tables()
    world.settle(check, PollNotReady())
    after = world.tables()

    changed = [
        field.name
        for field in attrs.fields(type(before))
        if getattr(before, field.name) != getattr(after, field.name)
    ]
    assert changed == ["jobs"]
    assert before.runs == after.runs
    assert before.history == after.history


def test_a_check_that_was_lost_writes_nothing() -> None:
    world = World(PLAN)
    world.create()
    world.suspend(world.claim_one(world.open()))
    world.wait(60)
    world.wake_due()
    lost = world.claim_one(world.open())
    world.lose()
    again = world.claim_one(world.open())
    assert (again.kind, again.attempt) == (JobKind.POLL, 2)

    for outcome in (PollNotReady(), Completed(output=payload("late")), failed()):
        with world.unchanged():
            assert world.settle(lost, outcome).status == "fenced"
    assert world.complete(again).status == "settled"


def test_whoever_checks_may_take_what_comes_next() -> None:
    world = World(PLAN)
    session = _suspended(world)
    check = _check(world, session)
    command = attrs.evolve(settling(check, Completed(output=payload(1))), take_next=session)
    taken = world.do(command).next

    assert taken is not None
    assert taken.node == "z"


# Checks that fail ------------------------------------------------------------------------------------------------


def test_a_check_that_throws_never_fails_the_run() -> None:
    world = World(PLAN)
    session = _suspended(world, after=60)
    for _ in range(20):
        settled = world.settle(_check(world, session), failed())
        assert settled.run_status is RunStatus.RUNNING

    assert "stage.failed" not in world.events()
    world.complete(_check(world, session))
    assert world.claim_one(session).node == "z"


def test_a_check_that_throws_backs_off_and_then_is_made_as_rarely_as_any() -> None:
    retry = RetryPolicy(attempts=3, wait_us=SECOND, backoff=2.0, jitter=0.0)
    world = World(pipeline(attrs.evolve(external("e"), check=CheckPlan(retry=retry))))
    session = _suspended(world, after=60)
    waits: list[float] = []
    for _ in range(7):
        settled = world.settle(_check(world, session), failed())
        waits.append(((settled.retry_at or 0) - world.now) / SECOND)

    assert waits == [1, 2, 60, 1, 2, 60, 1]


def test_a_check_that_found_something_begins_anew_with_its_attempts() -> None:
    world = World(PLAN)
    session = _suspended(world)
    world.settle(_check(world, session), failed())
    world.settle(_check(world, session), failed())
    world.settle(_check(world, session), PollNotReady())

    assert _job(world).attempts == 0
    assert _check(world, session).attempt == 1


def test_a_check_that_says_that_the_work_failed_fails_the_run() -> None:
    world = World(PLAN)
    session = _suspended(world)
    world.settle(_check(world, session), failed(retryable=False, code="rejected"))

    assert world.run().status == "failed"
    error = parse(world.run().error or "")
    assert (error["code"], error["stage"]) == ("rejected", "e")


def test_a_check_whose_workers_are_all_lost_ends_the_run() -> None:
    world = World(pipeline(external("e", checks=2), stage("z")))
    _suspended(world)
    world.wait(60)
    world.wake_due()
    for attempt in range(1, LOSSES_MIN + 1):
        assert world.claim_one(world.open()).attempt == attempt
        world.lose()

    assert world.run().status == "failed"
    assert parse(world.run().error or "")["code"] == "worker_lost"


def test_losses_count_anew_once_a_check_has_come_back() -> None:
    world = World(pipeline(external("e", checks=2), stage("z")))
    _suspended(world)
    for _ in range(3):
        world.wait(60)
        world.wake_due()
        world.claim_one(world.open())
        world.lose()
        check = world.claim_one(world.open())
        assert (check.attempt, check.lost_attempts) == (2, 1)
        world.settle(check, PollNotReady())

    assert (_job(world).attempts, _job(world).lost_attempts) == (0, 0)


# Giving up -------------------------------------------------------------------------------------------------------


def test_a_check_before_the_end_of_patience_is_just_a_check() -> None:
    world = World(PLAN)
    session = _suspended(world, after=60, give_up_in=100)
    settled = world.settle(_check(world, session), PollNotReady())

    assert (
        settled.retry_at == world.now + 40 * SECOND
    )  # the last is made when it is time to give up, not after


@pytest.mark.parametrize("outcome", [PollNotReady(), PollNotReady(check_after=1), failed()])
def test_a_check_at_the_end_of_patience_is_the_last(outcome: Outcome) -> None:
    world = World(PLAN)
    session = _suspended(world, after=60, give_up_in=60)
    settled = world.settle(_check(world, session), outcome)

    assert settled.run_status is RunStatus.FAILED
    error = parse(world.run().error or "")
    assert (error["code"], error["stage"]) == ("gave_up", "e")
    assert ("it broke" in str(error["message"])) == (outcome == failed())


def test_work_that_is_done_at_the_last_check_is_done() -> None:
    world = World(PLAN)
    session = _suspended(world, after=60, give_up_in=60)
    world.complete(_check(world, session), "just in time")

    assert world.claim_one(session).node == "z"


def test_the_first_check_is_not_after_the_end_of_patience() -> None:
    world = World(PLAN)
    _suspended(world, after=60, give_up_in=10)

    assert _job(world).wake_at == world.now + 10 * SECOND


# Waking ----------------------------------------------------------------------------------------------------------

_WAKES = [
    StageWake(key="key"),
    StageWake(run_id="x", stage="e"),
]


@pytest.mark.parametrize("wake", _WAKES)
def test_a_suspended_stage_is_checked_at_once_if_it_is_woken(wake: StageWake) -> None:
    world = World(PLAN)
    session = _suspended(world)

    assert world.do(wake) == StagesWoken(woken=1)
    assert _job(world).state is JobState.QUEUED
    assert [hint.job for hint in world.heard.hints if isinstance(hint, JobHint)][-1] == _job(world).key.text
    assert world.claim_one(session).kind is JobKind.POLL


@pytest.mark.parametrize("wake", _WAKES)
def test_waking_twice_is_waking_once(wake: StageWake) -> None:
    world = World(PLAN)
    _suspended(world)
    world.do(wake)

    with world.unchanged():
        assert world.do(wake) == StagesWoken(woken=1)


@pytest.mark.parametrize("wake", _WAKES)
def test_a_stage_that_is_woken_while_it_is_checked_is_checked_again_at_once(wake: StageWake) -> None:
    world = World(PLAN)
    session = _suspended(world)
    check = _check(world, session)
    assert world.do(wake) == StagesWoken(woken=0, early=1)
    settled = world.settle(check, PollNotReady())

    assert settled.retry_at == world.now
    again = world.claim_one(session)
    assert again.kind is JobKind.POLL
    assert world.settle(again, PollNotReady()).retry_at == world.now + 60 * SECOND


def test_a_check_that_throws_is_made_again_at_once_if_it_was_woken_meanwhile() -> None:
    world = World(pipeline(external("e", wait_us=30 * SECOND)))
    session = _suspended(world)
    check = _check(world, session)
    world.do(StageWake(key="key"))

    assert world.settle(check, failed()).retry_at == world.now


def test_a_stage_that_is_woken_before_it_is_suspended_is_checked_as_soon_as_it_is() -> None:
    world = World(PLAN)
    world.create()
    session = world.open()
    body = world.claim_one(session)
    assert world.do(StageWake(run_id="x", stage="e")) == StagesWoken(woken=0, early=1)
    settled = world.suspend(body, after=60)

    assert settled.retry_at == world.now
    assert world.claim_one(session).kind is JobKind.POLL


@pytest.mark.parametrize("wake", _WAKES)
def test_a_stage_that_is_suspended_and_woken_in_one_batch_is_checked_at_once(wake: StageWake) -> None:
    world = World(PLAN)
    world.create()
    session = world.open()
    handed_on = StageSuspended(state=payload("elsewhere"), check_after=60 * SECOND, key="key")
    settled, woken = world.send(settling(world.claim_one(session), handed_on), wake)

    assert (field(settled, "status"), woken) == ("settled", StagesWoken(woken=1))
    assert world.claim_one(session).kind is JobKind.POLL


@pytest.mark.parametrize("wake", _WAKES)
def test_a_stage_that_ends_in_the_batch_of_its_wake_is_settled_and_not_woken(wake: StageWake) -> None:
    """The other settles of the batch are stored."""
    world = World(PLAN)
    session = _suspended(world)
    check = _check(world, session)
    settled, woken = world.send(settling(check, Completed(output=payload(1))), wake)

    assert field(settled, "status") == "settled"
    assert isinstance(woken, NothingToWakeError)
    assert world.claim_one(session).node == "z"


def test_a_body_that_failed_in_the_batch_of_its_wake_is_not_tried_again_before_its_time() -> None:
    world = World(PLAN)
    world.create()
    session = world.open()
    later = Failed(failure=Failure(code="oops", message="it broke", retry_after=30 * SECOND))
    settled, woken = world.send(settling(world.claim_one(session), later), StageWake(run_id="x", stage="e"))

    assert isinstance(woken, NothingToWakeError)
    assert (field(settled, "retry_at"), _job(world).wake_at) == (world.now + 30 * SECOND,) * 2


def test_a_key_that_nobody_has_suspended_under_wakes_nothing() -> None:
    world = World(PLAN)
    world.create()
    world.claim_one(world.open())

    with world.unchanged(), pytest.raises(NothingToWakeError):
        world.do(StageWake(key="key"))


@pytest.mark.parametrize(
    "wake",
    [
        StageWake(key="other"),
        StageWake(run_id="x", stage="z"),
        StageWake(run_id="y", stage="e"),
        StageWake(run_id="x", stage="e", item=0),
        StageWake(namespace="other", key="key"),
        StageWake(namespace="other", run_id="x", stage="e"),
    ],
)
def test_what_is_not_there_is_not_woken(wake: StageWake) -> None:
    world = World(PLAN)
    _suspended(world)

    with world.unchanged(), pytest.raises(NothingToWakeError):
        world.do(wake)


@pytest.mark.parametrize(
    "wake",
    [
        StageWake(),
        StageWake(key=""),
        StageWake(run_id="x"),
        StageWake(stage="e"),
        StageWake(key="key", run_id="x", stage="e"),
        StageWake(key="key", item=0),
    ],
)
def test_a_wake_that_can_not_be_meant_is_refused(wake: StageWake) -> None:
    world = World(PLAN)
    _suspended(world)

    with world.unchanged(), pytest.raises(InvalidCommandError, match="either the key"):
        world.do(wake)


def test_a_stage_that_is_done_is_not_woken() -> None:
    world = World(PLAN)
    session = _suspended(world)
    world.complete(_check(world, session))

    with pytest.raises(NothingToWakeError):
        world.do(StageWake(key="key"))


def test_all_who_wait_for_the_same_work_are_woken() -> None:
    world = World(PLAN)
    session = world.open()
    for run in ("x", "y"):
        world.create(run)
        world.suspend(world.claim_one(session), key="shared")

    assert world.do(StageWake(key="shared")) == StagesWoken(woken=2)
    assert {attempt.kind for attempt in world.claim(session)} == {JobKind.POLL}


def test_the_items_of_a_map_are_woken_one_by_one_or_all_at_once() -> None:
    world = World(pipeline(each_of(external("e")), stage("z")))
    world.create()
    session = world.open()
    world.expand(world.claim_one(session), range(3))
    for attempt in world.claim(session):
        world.suspend(attempt, key=f"k{attempt.item}")

    assert world.do(StageWake(run_id="x", stage="e", item=1)) == StagesWoken(woken=1)
    assert [attempt.item for attempt in world.claim(session)] == [1]
    assert world.do(StageWake(key="k2")) == StagesWoken(woken=1)
    assert world.do(StageWake(run_id="x", stage="e")) == StagesWoken(woken=2, early=1)


# Polling ---------------------------------------------------------------------------------------------------------


def test_polling_wakes_checks_that_are_due_and_no_other_sleepers() -> None:
    world = World(pipeline((external("e"), stage("a", wait_us=SECOND))))
    world.create()
    session = world.open()
    for attempt in world.claim(session):
        if attempt.node == "e":
            world.suspend(attempt, after=60)
        else:
            world.fail(attempt)
    assert world.do(StagePollSuspended()) == JobsWoken(woken=0)
    world.wait(60)

    assert world.do(StagePollSuspended()) == JobsWoken(woken=1)
    assert [attempt.kind for attempt in world.claim(session)] == [JobKind.POLL]
    assert world.wake_due() == 1


def test_polling_wakes_no_more_than_it_is_told() -> None:
    world = World(pipeline(each_of(external("e"))))
    world.create()
    session = world.open()
    world.expand(world.claim_one(session), range(3))
    for attempt in world.claim(session):
        world.suspend(attempt, after=60)
    world.wait(60)

    assert world.do(StagePollSuspended(limit=2)).woken == 2
    assert world.do(StagePollSuspended(limit=2)).woken == 1


def test_a_message_about_a_check_that_sleeps_comes_again_when_it_is_due() -> None:
    world = World(PLAN)
    session = _suspended(world, after=60)
    job = _job(world)
    command = JobClaimOne(session=session, job=job.key.text, epoch=0, definitions=("w@1",))

    assert world.do(command).retry_after == 60 * SECOND


# Pauses, cancellations, repairs ----------------------------------------------------------------------------------


def test_in_a_paused_run_nothing_is_checked() -> None:
    world = World(PLAN)
    session = _suspended(world, after=60)
    world.do(RunPause(run_id="x"))
    world.wait(3_600)

    assert world.wake_due() == world.do(StagePollSuspended()).woken == 0
    assert _job(world).state is JobState.PAUSED
    world.do(RunResume(run_id="x"))
    assert world.claim_one(session).kind is JobKind.POLL


def test_a_check_that_is_not_due_sleeps_on_when_its_run_is_resumed() -> None:
    world = World(PLAN)
    _suspended(world, after=60)
    due = _job(world).wake_at
    world.do(RunPause(run_id="x"))
    world.wait(10)
    world.do(RunResume(run_id="x"))

    assert (_job(world).state, _job(world).wake_at) == (JobState.SLEEPING, due)


def test_a_stage_that_is_woken_in_a_paused_run_is_checked_when_that_is_resumed() -> None:
    world = World(PLAN)
    session = _suspended(world, after=60)
    world.do(RunPause(run_id="x"))
    assert world.do(StageWake(key="key")).woken == 1
    assert _job(world).state is JobState.PAUSED
    world.do(RunResume(run_id="x"))

    assert world.claim_one(session).kind is JobKind.POLL


def test_work_that_is_handed_on_in_a_paused_run_is_asked_about_when_that_is_resumed() -> None:
    world = World(PLAN)
    world.create()
    session = world.open(lease=DAY * SECOND)
    body = world.claim_one(session)
    world.do(RunPause(run_id="x"))
    world.suspend(body, after=60)

    assert _job(world).state is JobState.PAUSED
    world.do(RunResume(run_id="x"))
    assert world.claim(session) == ()
    assert _check(world, session).kind is JobKind.POLL


def test_a_check_that_ends_in_a_paused_run_is_held() -> None:
    world = World(PLAN)
    session = _suspended(world, after=60)
    check = _check(world, session)
    world.do(RunPause(run_id="x"))
    world.settle(check, PollNotReady())

    assert _job(world).state is JobState.PAUSED
    world.do(RunResume(run_id="x"))
    assert _job(world).wake_at == world.now + 60 * SECOND


def test_a_cancelled_run_asks_no_more() -> None:
    world = World(PLAN)
    session = _suspended(world)
    check = _check(world, session)
    world.do(RunCancel(run_id="x"))

    assert world.jobs() == []
    with world.unchanged():
        assert world.complete(check).status == "fenced"
    with pytest.raises(NothingToWakeError):
        world.do(StageWake(key="key"))


def test_work_that_was_handed_on_is_not_handed_on_again_by_a_repair() -> None:
    world = World(PLAN)
    session = _suspended(world)
    world.put(Delete(JOBS, _job(world).key))

    assert world.do(RunRepair()).repaired == ("x",)
    again = world.claim_one(session)
    assert (again.kind, world.value(again.run, again.input)) == (JobKind.POLL, "elsewhere")
    assert world.settle(again, PollNotReady()).retry_at == world.now + 60 * SECOND
    assert world.complete(_check(world, session)).status == "settled"


def test_items_that_were_handed_on_are_not_handed_on_again_by_a_repair() -> None:
    world = World(pipeline(each_of(external("e")), stage("z")))
    world.create()
    session = world.open()
    world.expand(world.claim_one(session), range(3))
    first, second, _ = world.claim(session)
    world.suspend(first, "one", key="k")
    world.complete(second)
    world.put(*(Delete(JOBS, job.key) for job in world.jobs()))

    assert world.do(RunRepair()).repaired == ("x",)
    assert sorted((job.item, job.kind) for job in world.jobs()) == [(0, JobKind.POLL), (2, JobKind.STAGE)]


def test_a_rerun_hands_the_work_on_anew() -> None:
    world = World(PLAN)
    session = _suspended(world)
    world.settle(_check(world, session), failed(retryable=False))
    rerun = world.rerun()

    assert rerun.stage == "e"
    assert world.claim_one(session).kind is JobKind.STAGE


# Maps ------------------------------------------------------------------------------------------------------------


def test_a_map_goes_on_when_all_that_its_items_handed_on_is_done() -> None:
    world = World(pipeline(each_of(external("e"), limit=2), stage("z")))
    world.create()
    session = world.open(lease=DAY * SECOND)
    world.expand(world.claim_one(session), range(3))
    handed_on: list[int | None] = []
    while (attempts := world.claim(session)) or not handed_on or world.jobs()[0].kind is JobKind.POLL:
        for attempt in attempts:
            if attempt.node == "z":
                assert world.value(attempt.run, attempt.input) == [["e", 0], ["e", 1], ["e", 2]]
                assert handed_on == [0, 1, 2]
                return
            if attempt.kind is JobKind.POLL:
                world.complete(attempt)
            else:
                handed_on.append(attempt.item)
                world.suspend(attempt, after=60)
        world.wait(60)
        world.do(StagePollSuspended())
    raise AssertionError("the map is never done")


def test_an_item_whose_work_elsewhere_failed_may_be_one_that_is_tolerated() -> None:
    world = World(pipeline(each_of(external("e"), enough=Enough(tolerated=1)), stage("z")))
    world.create()
    session = world.open(lease=DAY * SECOND)
    world.expand(world.claim_one(session), range(2))
    for attempt in world.claim(session):
        world.suspend(attempt, after=60)
    world.wait(60)
    world.wake_due()
    first, second = world.claim(session)
    world.fail(first, retryable=False)
    world.complete(second)

    last = world.claim_one(session)
    assert world.value(last.run, last.input) == {
        "results": [["e", 1]],
        "failures": [{"index": 0, "error": "it broke"}],
    }


def test_checks_of_items_that_are_not_needed_any_more_are_gone() -> None:
    world = World(pipeline(each_of(external("e"), enough=Enough(at_least=1)), stage("z")))
    world.create()
    session = world.open()
    world.expand(world.claim_one(session), range(3))
    first, second, third = world.claim(session)
    world.suspend(first)
    world.suspend(second)
    world.complete(third)

    assert [job.node for job in world.jobs()] == ["z"]
    with pytest.raises(NothingToWakeError):
        world.do(StageWake(run_id="x", stage="e"))
