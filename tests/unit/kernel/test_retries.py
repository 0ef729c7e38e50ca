"""Failing bodies are retried with backoff, up to their limit."""

import sys
from datetime import timedelta
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
    JobSettled,
    JobsWoken,
    JobWakeDue,
    RunCancel,
    RunCreate,
)
from holdfast.kernel.pipelines.plan import MapPlan, RetryPolicy, RetryRule, StagePlan
from holdfast.kernel.rules.retries import RETRY_AFTER_MAX, backoff, next_attempt_at
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.json import parse
from holdfast.ports.records.job import ATTEMPTS_UNLIMITED, Job, JobKey, JobKind, JobState
from holdfast.ports.records.run import RunStatus
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


# By error -------------------------------------------------------------------------------------------------------

SLOW = RetryPolicy(attempts=6, wait_us=60 * SECOND, backoff=1.0, jitter=0.0)
ONCE = RetryPolicy(attempts=1)
RULED = StagePlan(
    name="a",
    retry=attrs.evolve(PATIENT, attempts=3),
    retry_rules=(RetryRule(error="Busy", policy=SLOW), RetryRule(error="Broken", policy=ONCE)),
)


def failing(world: World, rule: int | None = None, retry_after: int | None = None) -> JobSettled:
    """Claim the only job, and fail it under this rule."""
    world.wait(3600)
    world.wake_due()
    failure = Failure(code="E", message="no", rule=rule, retry_after=retry_after)
    return world.settle(world.claim_one(world.open()), Failed(failure=failure))


def test_each_kind_of_error_has_its_own_patience() -> None:
    world = World(pipeline(RULED))
    world.create()
    waits: list[int] = []
    for rule in (0, None, 0, 0):
        retry_at = failing(world, rule).retry_at
        assert retry_at is not None
        waits.append(retry_at - world.now)

    assert waits == [60 * SECOND, 30 * SECOND, 60 * SECOND, 60 * SECOND]
    assert world.jobs()[0].max_attempts == 6


@pytest.mark.parametrize(("rule", "attempts"), [(0, 6), (1, 1), (None, 3), (7, 3)])
def test_each_kind_of_error_has_its_own_number_of_attempts(rule: int | None, attempts: int) -> None:
    world = World(pipeline(RULED))
    world.create()
    for _ in range(attempts - 1):
        assert failing(world, rule).run_status == "running"

    assert failing(world, rule).run_status == "failed"


def test_attempts_count_whatever_they_failed_by() -> None:
    world = World(pipeline(RULED))
    world.create()
    for _ in range(3):
        assert failing(world, 0).run_status == "running"

    assert failing(world, None).run_status == "failed"


def test_a_lost_worker_costs_one_of_the_highest_number_of_attempts() -> None:
    world = World(pipeline(RULED))
    world.create()
    for _ in range(5):
        world.claim_one(world.open())
        assert world.lose().freed == 1
    world.claim_one(world.open())

    assert world.lose().dead == 1
    assert parse(world.run().error or "")["code"] == "worker_lost"


@pytest.mark.parametrize(
    ("asked", "waited"),
    [(5 * SECOND, 5 * SECOND), (0, 0), (-5, 0), (10**18, RETRY_AFTER_MAX)],
)
def test_a_body_says_itself_when_it_is_tried_again(asked: int, waited: int) -> None:
    world = World(pipeline(RULED))
    world.create()

    assert failing(world, retry_after=asked).retry_at == world.now + waited


def test_a_body_that_asks_for_patience_gets_no_further_attempts() -> None:
    world = World(pipeline(RULED))
    world.create()
    settled = [failing(world, retry_after=1) for _ in range(3)]

    assert [one.run_status for one in settled] == ["running", "running", "failed"]


# The time for all attempts --------------------------------------------------------------------------------------


def limited(total: float, policy: RetryPolicy = PATIENT) -> World:
    world = World(pipeline(StagePlan(name="a", retry=policy, timeout_total_us=round(total * SECOND))))
    world.create()
    return world


def test_a_retry_that_would_begin_too_late_is_none() -> None:
    world = limited(40)
    world.wait(3600)  # what it waited for its first claim does not count
    session = world.open()
    first = world.claim_one(session)
    assert first.total_until == world.now + 40 * SECOND
    world.wait(1)
    world.fail(first)
    world.wait(10)
    world.wake_due()
    second = world.claim_one(session)
    assert second.total_until == first.total_until
    settled = world.fail(second)

    assert (settled.run_status, settled.retry_at) == ("failed", None)
    error = parse(world.run().error or "")
    assert (error["code"], error["attempt"]) == ("timeout_total", 2)
    assert error["message"] == (
        "2 attempts were made, and the next would begin after the 0:00:40 for all of them; the last one: it broke"
    )
    assert world.events() == ["run.created", "stage.retrying", "stage.failed", "run.failed"]


def test_a_retry_that_begins_at_the_last_moment_is_one() -> None:
    world = limited(10.000001)
    world.fail(world.claim_one(world.open()))

    assert world.run().status == "running"


def test_a_retry_that_would_begin_when_the_time_is_over_is_none() -> None:
    world = limited(10)
    world.fail(world.claim_one(world.open()))

    assert world.run().status == "failed"


def test_what_has_no_attempt_left_did_not_run_out_of_time() -> None:
    world = limited(1, attrs.evolve(PATIENT, attempts=1))
    attempt = world.claim_one(world.open())
    world.wait(5)
    world.fail(attempt, code="E1")

    assert parse(world.run().error or "")["code"] == "E1"


def test_the_total_time_of_a_policy_begins_with_the_first_claim() -> None:
    policy = attrs.evolve(PATIENT, total_time_us=10 * SECOND)
    world = World(pipeline(StagePlan(name="a", retry=policy)))
    world.create()
    world.wait(3_600)  # in the queue
    first = world.claim_one(world.open())
    assert first.total_until is None
    assert world.fail(first, code="E1").retry_at == world.now + 10 * SECOND
    world.wait(10)
    world.wake_due()
    world.fail(world.claim_one(world.open()), code="E2")
    assert parse(world.run().error or "")["code"] == "E2"


def test_an_attempt_that_is_lost_counts_for_the_total_time() -> None:
    policy = attrs.evolve(PATIENT, total_time_us=10 * SECOND)
    world = World(pipeline(StagePlan(name="a", retry=policy)))
    world.create()
    world.claim_one(world.open())
    world.lose()
    assert world.fail(world.claim_one(world.open())).retry_at is None


def test_an_attempt_in_progress_may_last_longer_than_the_total_time() -> None:
    policy = attrs.evolve(PATIENT, total_time_us=10 * SECOND)
    world = World(pipeline(StagePlan(name="a", retry=policy)))
    world.create()
    attempt = world.claim_one(world.open())
    world.wait(20)
    assert world.complete(attempt).run_status is RunStatus.COMPLETED


def test_a_lost_worker_s_job_ends_when_it_is_freed_too_late() -> None:
    world = limited(60)
    world.claim_one(world.open())
    freed = world.lose()

    error = parse(world.run().error or "")
    assert (freed.freed, freed.dead, error["code"]) == (0, 1, "timeout_total")
    assert error["message"].startswith("1 attempt was made")
    assert error["message"].endswith("the worker that held attempt 1 was lost")


def test_an_attempt_that_is_given_back_starts_no_clock() -> None:
    world = limited(60)
    session = world.open()
    world.release(world.claim_one(session))
    assert world.jobs()[0].first_claimed_at is None
    world.wait(20)
    world.fail(world.claim_one(session))
    world.wait(10)
    world.wake_due()
    world.release(world.claim_one(session))

    assert world.jobs()[0].first_claimed_at == world.now - 10 * SECOND


def test_each_item_of_a_map_has_its_own_time() -> None:
    item = StagePlan(name="m", retry=PATIENT, timeout_total_us=60 * SECOND)
    world = World(pipeline(MapPlan(stage=item, limit=1)))
    world.create()
    session = world.open()
    expand = world.claim_one(session)
    assert expand.total_until is None
    world.expand(expand, range(2))
    world.complete(world.claim_one(session))
    world.wait(100)

    assert world.claim_one(session).total_until == world.now + 60 * SECOND


@pytest.mark.slow
@given(
    policy=st.builds(
        RetryPolicy,
        attempts=st.integers(1, 6),
        wait_us=st.integers(0, 60 * SECOND),
        backoff=st.floats(1.0, 4.0),
        jitter=st.floats(0.0, 1.0),
    ),
    total=st.integers(1, 200 * SECOND),
    lasts=st.lists(st.integers(0, 40 * SECOND), min_size=6, max_size=6),
)
def test_no_attempt_begins_when_the_time_for_all_is_over(
    policy: RetryPolicy, total: int, lasts: list[int]
) -> None:
    world = limited(total / SECOND, policy)
    session = world.open(lease=10**15)
    began: list[int] = []
    while attempts := world.claim(session):
        began.append(world.now)
        world.wait(lasts[len(began) - 1] / SECOND)
        retry_at = world.fail(attempts[0]).retry_at
        if retry_at is not None:
            world.wait((retry_at - world.now) / SECOND)
            world.wake_due()

    assert world.run().status == "failed"
    assert all(at < began[0] + total for at in began)
    assert len(began) <= policy.attempts
    code = parse(world.run().error or "")["code"]
    assert code == ("oops" if len(began) == policy.attempts else "timeout_total")


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
    claim = JobClaim(session=world.open(), namespace="other", queue_claims=world.lanes(), limit=1)
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
    wait_max_us=st.integers(0, 10**11) | st.integers(2**53, timedelta.max // timedelta(microseconds=1)),
    jitter=st.floats(0.0, 1.0),
)


@given(policy=POLICIES, number=st.integers(1, 10**6), attempt=st.integers(1, 100))
def test_a_wait_stays_within_its_jitter(policy: RetryPolicy, number: int, attempt: int) -> None:
    try:
        plain = min(policy.wait_us * policy.backoff ** (attempt - 1), policy.wait_max_us)
    except OverflowError:
        plain = policy.wait_max_us if policy.wait_us else 0
    wait = backoff(policy, JobKey("run", number), attempt)

    assert 0 <= wait <= policy.wait_max_us
    slack = 1 + plain * 1e-12  # floats of this size are rounded
    if attempt <= 65:
        assert plain * (1 - policy.jitter) - slack <= wait <= plain * (1 + policy.jitter) + slack


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
    policy = RetryPolicy(wait_us=1000 * SECOND, wait_max_us=2000 * SECOND, jitter=0.5)
    waits = sorted(backoff(policy, JobKey("run", number), 1) / SECOND for number in range(1000))

    assert waits[0] < 510
    assert waits[-1] > 1490
    assert 900 < sum(waits) / len(waits) < 1100


def test_jitter_spreads_the_longest_waits_below_the_maximum() -> None:
    policy = RetryPolicy(wait_us=1000 * SECOND, wait_max_us=1000 * SECOND, jitter=0.5)
    waits = sorted(backoff(policy, JobKey("run", number), 1) / SECOND for number in range(1000))

    assert waits[0] < 510
    assert 990 < waits[-1] <= 1000
    assert 700 < sum(waits) / len(waits) < 800


@pytest.mark.parametrize("factor", [1e6, sys.float_info.max])
def test_a_wait_too_long_to_count_is_the_longest(factor: float) -> None:
    """It must not raise: that would happen inside a settle, with other settles in the same batch."""
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
    """Jobs found due at the start of the batch are checked again."""
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


@given(
    st.builds(
        RetryPolicy,
        attempts=st.integers(1, 20) | st.just(ATTEMPTS_UNLIMITED),
        wait_us=st.integers(1, 100 * SECOND),
        backoff=st.floats(1.0, 4.0),
        wait_max_us=st.integers(SECOND, 100 * SECOND),
        jitter=st.floats(0.0, 1.0),
        total_time_us=st.none() | st.integers(1, 500 * SECOND),
    )
)
def test_no_attempt_is_above_the_limits_and_each_below_them_is_made(policy: RetryPolicy) -> None:
    job = Job(
        run="r",
        number=1,
        namespace="n",
        queue="q",
        definition="w@1",
        kind=JobKind.STAGE,
        node="a",
        input="null",
    )
    plan, failure, now = pipeline(StagePlan(name="a", retry=policy)), Failure(code="e", message="no"), 7
    for attempt in range(1, 41):
        failing = attrs.evolve(job, attempts=attempt, max_attempts=policy.attempts, first_claimed_at=7)
        at = next_attempt_at(plan, failing, failure, now)
        ends = now + backoff(policy, job.key, attempt)
        is_late = policy.total_time_us is not None and ends > 7 + policy.total_time_us
        if attempt >= policy.attempts or is_late:
            assert at is None
            return
        assert at == ends
        now = ends
