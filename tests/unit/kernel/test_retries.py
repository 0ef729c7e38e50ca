"""Bodies fail: they are tried again, patiently, and not for ever."""

import sys
from itertools import pairwise

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kernel.commands import (
    Command,
    Failed,
    Failure,
    JobClaim,
    JobClaimOne,
    JobRelease,
    JobsWoken,
    JobWakeDue,
    RunCancel,
    RunCreate,
)
from holdfast.kernel.decide.failures import backoff
from holdfast.kernel.plan import RetryPolicy, StagePlan
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.json import parse
from holdfast.ports.records import JobKey, JobState, RunStatus
from tests.unit.kernel.world import SECOND, World, each, failed, payload, pipeline, settling, stage

PATIENT = RetryPolicy(attempts=4, wait_us=10 * SECOND, backoff=3.0, wait_max_us=60 * SECOND, jitter=0.0)


@pytest.fixture
def world() -> World:
    return World(pipeline(StagePlan(name="a", retry=PATIENT)))


def test_a_failed_attempt_sleeps_until_it_is_tried_again(world: World) -> None:
    world.create()
    session = world.open()
    attempt = world.claim_one(session)
    settled = world.fail(attempt)

    job = world.job(attempt)
    assert settled.retry_at == job.wake_at == world.now + 10 * SECOND
    assert (settled.status, settled.run_status) == ("settled", RunStatus.RUNNING)
    assert (job.state, job.session, job.attempts) == (JobState.SLEEPING, None, 1)
    assert world.claim(session) == ()
    assert world.wake_due() == 0
    world.wait(10)
    assert world.wake_due() == 1
    assert world.wake_due() == 0
    again = world.claim_one(session)
    assert (again.job, again.attempt, again.epoch) == (attempt.job, 2, 2)


def test_each_wait_is_longer_up_to_the_longest(world: World) -> None:
    world.create()
    session = world.open()
    waits: list[int] = []
    while attempts := world.claim(session):
        retry_at = world.fail(attempts[0]).retry_at
        if retry_at is not None:
            waits.append(retry_at - world.now)
            world.wait(waits[-1] / SECOND)
            world.wake_due()

    assert waits == [10 * SECOND, 30 * SECOND, 60 * SECOND]


def test_a_stage_that_fails_every_time_fails_its_run_after_exactly_its_attempts(world: World) -> None:
    world.create()
    session = world.open()
    attempts: list[int] = []
    while claimed := world.claim(session):
        attempts.append(claimed[0].attempt)
        world.fail(claimed[0])
        world.wait(60)
        world.wake_due()

    assert attempts == [1, 2, 3, 4]
    assert world.run().status == "failed"
    assert world.jobs() == []
    assert world.events() == ["run.created", *["stage.retrying"] * 3, "stage.failed", "run.failed"]


def test_a_failure_that_can_not_be_retried_fails_the_run_at_once(world: World) -> None:
    world.create()
    settled = world.fail(world.claim_one(world.open()), retryable=False)

    assert (settled.run_status, settled.retry_at) == (RunStatus.FAILED, None)
    assert world.events() == ["run.created", "stage.failed", "run.failed"]


def test_a_failed_run_says_why() -> None:
    world = World(pipeline(each("m", attempts=1)))
    world.create()
    session = world.open()
    world.expand(world.claim_one(session), range(3))
    world.wait(1)
    failure = Failure(code="E42", message="too hot", type="HeatError", traceback="line 1")
    world.settle(world.claim(session)[1], Failed(failure=failure))

    run = world.run()
    why = {"code": "E42", "message": "too hot", "type": "HeatError", "attempt": 1, "job": 3}
    assert parse(run.error or "") == {**why, "stage": "m", "item": 1}
    assert (run.status, run.ended_at, run.result) == (RunStatus.FAILED, world.now, None)
    stage_row, run_row = world.history()[-2:]
    assert parse(stage_row.data or "") == {**why, "traceback": "line 1"}
    assert (stage_row.type, stage_row.node, stage_row.item, stage_row.epoch) == ("stage.failed", "m", 1, 1)
    assert (run_row.type, run_row.data) == ("run.failed", run.error)


def test_history_says_why_an_attempt_is_repeated(world: World) -> None:
    world.create()
    settled = world.fail(world.claim_one(world.open()), code="E1")

    row = world.history()[-1]
    assert (row.type, row.node, row.epoch, row.payload) == ("stage.retrying", "a", 1, None)
    facts = {
        "code": "E1",
        "message": "it broke",
        "type": "",
        "attempt": 1,
        "job": 1,
        "retry_at": settled.retry_at,
    }
    assert parse(row.data or "") == facts


def test_one_item_that_fails_for_good_ends_the_run_for_all() -> None:
    world = World(pipeline(each("m"), stage("b")))
    world.create()
    session = world.open()
    world.expand(world.claim_one(session), range(5))
    items = world.claim(session)
    world.complete(items[0])
    world.fail(items[1], retryable=False)

    assert world.run().status == "failed"
    with world.unchanged():
        assert {world.complete(item).status for item in items} == {"fenced"}


def test_a_wait_of_nothing_is_none() -> None:
    world = World(pipeline(stage("a")))
    world.create()
    attempt = world.claim_one(world.open())
    settled = world.fail(attempt)

    assert settled.retry_at == world.now
    assert (world.job(attempt).state, world.job(attempt).wake_at) == (JobState.QUEUED, None)


def test_a_released_attempt_leaves_the_retries_as_they_were() -> None:
    world = World(pipeline(stage("a", attempts=2)))
    world.create()
    session = world.open()
    world.fail(world.claim_one(session))
    for _ in range(5):
        world.release(world.claim_one(session))
    last = world.claim_one(session)

    assert last.attempt == last.max_attempts == 2
    assert world.fail(last).run_status == RunStatus.FAILED


def test_retries_end_when_the_run_does(world: World) -> None:
    world.create()
    world.fail(world.claim_one(world.open()))
    world.do(RunCancel(run_id="x"))
    world.wait(3600)

    with world.unchanged():
        assert world.wake_due() == 0


# Waking ---------------------------------------------------------------------------------------------------------


def test_sleepers_wake_in_the_order_in_which_they_are_due() -> None:
    world = World(pipeline(stage("a")))
    session = world.open()
    for name, delay in (("x", 30), ("y", 10), ("z", 20)):
        world.create(name)
        world.release(world.claim_one(session), delay=delay * SECOND)
    world.wait(3600)
    woken: list[str] = []
    while world.do(JobWakeDue(limit=1)).woken:
        woken.append(world.claim_one(session).run)

    assert woken == [world.run(name).key for name in "yzx"]


def test_nothing_wakes_early_nor_twice() -> None:
    world = World(pipeline(stage("a")))
    world.create()
    world.release(world.claim_one(world.open()), delay=SECOND)
    world.wait(0.999999)
    with world.unchanged():
        assert world.wake_due() == 0
    world.wait(0.000001)
    first, second = world.send(JobWakeDue(), JobWakeDue())

    assert first != second
    assert [job.state for job in world.jobs()] == [JobState.QUEUED]


def test_sleepers_of_all_namespaces_wake() -> None:
    world = World(pipeline(stage("a")))
    world.do(RunCreate(workflow="w", namespace="other", input=payload(0)))
    claim = JobClaim(session=world.open(), namespace="other", lanes=world.lanes(), limit=1)
    (attempt,) = world.do(claim).attempts
    world.do(JobRelease(job=attempt.job, epoch=1, delay=SECOND, namespace="other"))
    world.wait(1)

    assert world.wake_due() == 1


def test_a_negative_number_of_sleepers_is_refused(world: World) -> None:
    with world.unchanged(), pytest.raises(InvalidCommandError):
        world.do(JobWakeDue(limit=-1))


# The length of the wait -------------------------------------------------------------------------------------------


POLICIES = st.builds(
    RetryPolicy,
    wait_us=st.integers(0, 10**10),
    backoff=st.floats(1.0, 1e6),
    wait_max_us=st.integers(0, 10**11),
    jitter=st.floats(0.0, 1.0),
)


@given(policy=POLICIES, number=st.integers(1, 10**6), attempt=st.integers(1, 100))
def test_a_wait_stays_within_its_jitter(policy: RetryPolicy, number: int, attempt: int) -> None:
    try:
        plain = min(policy.wait_us * policy.backoff ** (attempt - 1), policy.wait_max_us)
    except OverflowError:
        plain = policy.wait_max_us if policy.wait_us else 0
    wait = backoff(policy, JobKey("run", number), attempt)

    assert wait >= 0
    if attempt <= 65:
        assert plain * (1 - policy.jitter) - 1 <= wait <= plain * (1 + policy.jitter) + 1


@given(policy=POLICIES, number=st.integers(1, 10**6), attempt=st.integers(1, 100))
def test_a_wait_is_the_same_whenever_it_is_worked_out(policy: RetryPolicy, number: int, attempt: int) -> None:
    key = JobKey("run", number)

    assert backoff(policy, key, attempt) == backoff(policy, key, attempt)


def test_without_jitter_waits_never_get_shorter() -> None:
    policy = RetryPolicy(wait_us=7, backoff=1.7, wait_max_us=10**9, jitter=0.0)
    waits = [backoff(policy, JobKey("run", 1), attempt) for attempt in range(1, 200)]

    assert all(before <= after for before, after in pairwise(waits))
    assert waits[0] == 7
    assert waits[-1] == 10**9


def test_jitter_spreads_the_waits_of_many_jobs() -> None:
    policy = RetryPolicy(wait_us=1000 * SECOND, wait_max_us=1000 * SECOND, jitter=0.5)
    waits = sorted(backoff(policy, JobKey("run", number), 1) / SECOND for number in range(1000))

    assert waits[0] < 510
    assert waits[-1] > 1490
    assert 900 < sum(waits) / len(waits) < 1100


@pytest.mark.parametrize("factor", [1e6, sys.float_info.max])
def test_a_wait_too_long_to_count_is_the_longest(factor: float) -> None:
    """It must not be an error: that would be met inside a settle, with other settles in the same batch."""
    policy = RetryPolicy(attempts=100, wait_us=SECOND, backoff=factor, wait_max_us=60 * SECOND, jitter=0.0)

    assert {backoff(policy, JobKey("run", 1), attempt) for attempt in (3, 60, 100)} == {60 * SECOND}


def test_a_retry_at_once_that_fails_at_once_still_ends() -> None:
    policy = attrs.evolve(PATIENT, wait_us=0, jitter=1.0)
    world = World(pipeline(StagePlan(name="a", retry=policy)))
    world.create()
    world.drain(lambda _: failed())

    assert world.run().status == "failed"
    assert world.events().count("stage.retrying") == 3


def test_a_failure_can_be_settled_with_the_last_of_one_attempt() -> None:
    world = World(pipeline(stage("a", attempts=1)))
    world.create()
    attempt = world.claim_one(world.open())

    assert world.do(settling(attempt, failed())).run_status == RunStatus.FAILED


def test_a_job_that_fell_asleep_again_within_the_batch_is_not_woken() -> None:
    """What was found to be due when the batch began is looked at again."""
    world = World(pipeline(stage("a")))
    world.create()
    session = world.open()
    attempt = world.claim_one(session)
    world.release(attempt, delay=SECOND)
    world.wait(1)
    commands: list[Command[object]] = [
        JobWakeDue(limit=1),
        JobClaimOne(session=session, job=attempt.job, epoch=1, definitions=("w@1",)),
        JobRelease(job=attempt.job, epoch=2, delay=SECOND),
        JobWakeDue(limit=2),
    ]
    first, *_, second = world.send(*commands)

    assert (first, second) == (JobsWoken(woken=1), JobsWoken(woken=0))
    assert world.job(attempt).wake_at == world.now + SECOND
