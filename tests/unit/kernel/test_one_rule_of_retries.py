"""The same policy and the same failures have the same consequences for a stage, an inline step and a queued step."""

from collections.abc import Callable, Sequence
from typing import Final

import attrs
import pytest

from holdfast.kernel.commands import (
    Attempt,
    Failed,
    Failure,
    FunctionWaiting,
    JobClaim,
    JobRecord,
    JobRecorded,
    QueuedStepFailed,
    QueuedStepJob,
    StepFail,
    StepQueue,
)
from holdfast.kernel.history import events
from holdfast.kernel.history.exceptions import error_from, raised_from
from holdfast.kernel.pipelines.plan import RetryPolicy, RetryRule, StagePlan
from holdfast.kernel.rules.retries import RETRY_AFTER_MAX
from holdfast.ports.errors import StepLostError, StepResultError
from holdfast.ports.records.job import ATTEMPTS_UNLIMITED
from holdfast.ports.searches import QueueClaim
from tests.unit.kernel.test_functions import driven, function, record
from tests.unit.kernel.world import SECOND, World, payload, pipeline

ERROR: Final = events.RecordedError(
    type="ValueError", message="no", code="body_error", arguments='{"args":["no"]}', traceback="line 1"
)
USUAL: Final = RetryPolicy(attempts=3, wait_us=10 * SECOND, backoff=3.0, wait_max_us=60 * SECOND, jitter=0.0)
LIMITED: Final = RetryPolicy(attempts=5, wait_us=2 * SECOND, backoff=1.0, jitter=0.0)
ONCE: Final = RetryPolicy(attempts=1)
ENDLESS: Final = attrs.evolve(USUAL, attempts=ATTEMPTS_UNLIMITED, backoff=1.0)
"""Every ten seconds."""
TIMED: Final = attrs.evolve(ENDLESS, total_time_us=20 * SECOND)
QUEUE: Final = (QueueClaim(queue="gpu", definitions=("step:embed",), limit=1),)


@attrs.frozen
class Raises:
    """An attempt that raises an error under this policy; None: an error that is never tried again."""

    policy: RetryPolicy | None = USUAL
    after: int | None = None


@attrs.frozen
class Lost:
    """An attempt that is lost with its worker."""


End = Raises | Lost
Waits = list[int | None]
"""The wait after each attempt; None: there is no other."""


def of_a_stage(ends: Sequence[End], usual: RetryPolicy) -> Waits:
    rule = RetryRule(error="Limited", policy=LIMITED)
    world = World(pipeline(StagePlan(name="a", retry=usual, retry_rules=(rule,))))
    world.create()

    def claim() -> Attempt:
        return world.claim_one(world.open())

    def fail(attempt: Attempt, end: Raises) -> None:
        index = 0 if end.policy is LIMITED else None
        failure = Failure(
            code="e", message="no", rule=index, retryable=end.policy is not None, retry_after=end.after
        )
        world.settle(attempt, Failed(failure=failure))

    return _of_a_job(world, ends, claim, fail)


def of_a_queued_step(ends: Sequence[End], usual: RetryPolicy) -> Waits:
    world = function()
    attempt = driven(world)
    most = max(usual.attempts, LIMITED.attempts)
    queued = QueuedStepJob(queue="gpu", input=payload(1), attempts=most)
    record(world, attempt, StepQueue(call="1", step="embed", queued=queued))
    world.settle(attempt, FunctionWaiting(seen=2))

    def claim() -> Attempt:
        (attempt,) = world.do(JobClaim(session=world.open(), queue_claims=QUEUE, limit=1)).attempts
        return attempt

    def fail(attempt: Attempt, end: Raises) -> None:
        failed = QueuedStepFailed(error=ERROR.text, retry=end.policy, retry_after=end.after)
        world.settle(attempt, failed)

    return _of_a_job(world, ends, claim, fail)


def _of_a_job(
    world: World, ends: Sequence[End], claim: Callable[[], Attempt], fail: Callable[[Attempt, Raises], None]
) -> Waits:
    waits: Waits = []
    for end in ends:
        attempt = claim()
        if isinstance(end, Lost):
            world.lose()
        else:
            fail(attempt, end)
        job = next((job for job in world.jobs() if job.key.text == attempt.job), None)
        waits.append(None if job is None else (job.wake_at or world.now) - world.now)
        world.wait((waits[-1] or 0) / SECOND)
        world.wake_due()
    return waits


def recorded(world: World, attempt: Attempt, fail: StepFail, *, seen: int = 1) -> JobRecorded:
    """Record it alone. The invariants are not checked: a driver would record new starts of lost steps as well."""
    return world.kernel.dispatch(JobRecord(job=attempt.job, epoch=attempt.epoch, seen=seen, records=(fail,)))


def of_an_inline_step(ends: Sequence[End], usual: RetryPolicy) -> Waits:
    world = function()
    attempt = driven(world)
    waits: Waits = []
    losses, began = 0, world.now
    for number, end in enumerate(ends, 1):
        failed = events.StepFailed(call="1", step="s", attempt=number, error=ERROR)
        if isinstance(end, Lost):
            losses += 1
            lost = attrs.evolve(failed, lost=True, lost_attempts=losses)
            fail = StepFail(event=lost, retry=usual, lost_attempts=losses)
        else:
            fail = StepFail(
                event=failed,
                retry=end.policy,
                retry_after=end.after,
                first_started_at=began,
                lost_attempts=losses,
            )
        reply = recorded(world, attempt, fail, seen=number)
        (row,) = reply.rows
        event = events.event_of(row)
        assert isinstance(event, events.StepFailed | events.StepRetrying)
        assert reply.failure is None
        at = event.retry_at if isinstance(event, events.StepRetrying) else None
        waits.append(None if at is None else at - world.now)
        world.wait((waits[-1] or 0) / SECOND)
    return waits


@pytest.mark.parametrize("of", [of_a_stage, of_an_inline_step, of_a_queued_step])
@pytest.mark.parametrize(
    ("usual", "ends", "expected"),
    [
        (USUAL, [Raises()] * 3, [10, 30, None]),
        (USUAL, [Raises(LIMITED)] * 5, [2, 2, 2, 2, None]),
        (USUAL, [Raises(LIMITED), Raises(LIMITED), Raises()], [2, 2, None]),
        (USUAL, [Raises(), Raises(None)], [10, None]),
        (USUAL, [Raises(USUAL, after=7 * SECOND), Raises()], [7, 30]),
        (USUAL, [Raises(USUAL, after=-5), Raises(None, after=SECOND)], [0, None]),
        (USUAL, [Raises(USUAL, after=2 * RETRY_AFTER_MAX)], [RETRY_AFTER_MAX // SECOND]),
        (USUAL, [Lost(), Raises(), Lost(), Raises(), Raises()], [0, 10, 0, 30, None]),
        (USUAL, [Lost()] * 5, [0, 0, 0, 0, None]),
        (attrs.evolve(USUAL, attempts=7), [Lost()] * 6, [0] * 6),
        (ONCE, [Raises(ONCE)], [None]),
        (ENDLESS, [Raises(ENDLESS)] * 40, [10] * 40),
        (TIMED, [Raises(TIMED)] * 3, [10, 10, None]),
        (TIMED, [Raises(TIMED, after=20 * SECOND), Raises(TIMED)], [20, None]),
        (TIMED, [Raises(TIMED, after=20 * SECOND + 1)], [None]),
        (TIMED, [Raises(LIMITED), Raises(LIMITED), Raises(TIMED), Raises(TIMED)], [2, 2, 10, None]),
        (attrs.evolve(TIMED, attempts=2), [Raises(attrs.evolve(TIMED, attempts=2))] * 2, [10, None]),
        (ENDLESS, [Lost()] * 30, [0] * 30),
    ],
)
def test_the_rule_is_the_same(
    of: Callable[[Sequence[End], RetryPolicy], Waits],
    usual: RetryPolicy,
    ends: list[End],
    expected: list[int | None],
) -> None:
    assert of(ends, usual) == [None if wait is None else wait * SECOND for wait in expected]


def failing(call: str = "1", *, undoes: str | None = None, code: str = "body_error") -> events.StepFailed:
    error = attrs.evolve(ERROR, code=code)
    return events.StepFailed(call=call, step="s", attempt=1, error=error, undoes=undoes)


def test_the_error_of_a_retry_is_kept_without_its_arguments_and_notes() -> None:
    world = function()
    attempt = driven(world)
    lost = raised_from(StepLostError("s", 1))
    error = attrs.evolve(ERROR, type=lost.type, message=lost.message, arguments=lost.arguments)
    fail = StepFail(event=attrs.evolve(failing(), error=error), retry=USUAL)
    (row,) = record(world, attempt, fail).rows
    assert events.StepRetrying.from_row(row).error == attrs.evolve(error, arguments=None)
    assert "Retry(attempts=...)" not in (row.data or "")


def test_the_error_of_a_step_that_is_lost_for_good_says_how_to_allow_more_attempts() -> None:
    world = function()
    attempt = driven(world)
    lost = raised_from(StepLostError("s", 1))
    error = attrs.evolve(ERROR, type=lost.type, message=lost.message, arguments=lost.arguments)
    (row,) = record(world, attempt, StepFail(event=attrs.evolve(failing(), error=error), retry=ONCE)).rows
    again = error_from(events.StepFailed.from_row(row).error.raised)
    assert isinstance(again, StepLostError)
    assert "Retry(attempts=...)" in again.__notes__[0]


def test_a_compensation_is_tried_again_and_blocks_its_run_when_its_attempts_are_used_up() -> None:
    world = function()
    attempt = driven(world)
    fail = StepFail(event=failing(undoes="7"), retry=ONCE)
    reply = record(world, attempt, fail)
    (row,) = reply.rows
    assert events.StepRetrying.from_row(row).retry_at == world.now
    assert reply.failure == Failure(
        code="compensation_failed",
        message="the compensation 's' has failed 1 time: ValueError: no; `run resume` retries it",
    )
    # The reply may be lost: the same record has the same reply, and no second row.
    world.wait(1)
    assert record(world, attempt, fail) == reply
    assert record(world, attempt, seen=reply.rows[-1].number).failure is None


def test_a_compensation_whose_result_is_refused_has_happened_and_fails() -> None:
    world = function()
    attempt = driven(world)
    failed = failing(undoes="7", code=StepResultError.code)
    reply = record(world, attempt, StepFail(event=failed, retry=None))
    assert ([row.type for row in reply.rows], reply.failure) == (["step.failed"], None)


@pytest.mark.parametrize(
    ("undoes", "attempts", "losses", "is_alone", "expected"),
    [
        (None, 3, 5, True, ("step.failed", None)),
        (None, 3, 5, False, ("step.retrying", None)),
        (None, 3, 20, False, ("step.retrying", "worker_lost")),
        (None, 1, 1, False, ("step.failed", None)),
        ("7", 1, 1, True, ("step.retrying", None)),
        ("7", 1, 5, True, ("step.retrying", "compensation_failed")),
    ],
)
def test_a_lost_step_is_given_up_only_if_it_was_alone(
    undoes: str | None, attempts: int, losses: int, is_alone: bool, expected: tuple[str, str | None]
) -> None:
    world = function()
    attempt = driven(world)
    lost = attrs.evolve(failing(undoes=undoes), attempt=losses, lost=True, lost_attempts=losses)
    policy = attrs.evolve(USUAL, attempts=attempts)
    fail = StepFail(event=lost, retry=policy, lost_attempts=losses, is_alone=is_alone)
    reply = recorded(world, attempt, fail)
    code = None if reply.failure is None else reply.failure.code
    assert (reply.rows[0].type, code) == expected
