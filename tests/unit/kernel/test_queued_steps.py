"""Queued steps: each is a job beside that of its function, which gets the result in the same commit."""

from collections.abc import Callable
from typing import Any, TypeAlias

import attrs
import pytest

from holdfast.kernel.commands import (
    Attempt,
    Blocked,
    Completed,
    Failed,
    Failure,
    FunctionRecord,
    FunctionWaiting,
    JobClaim,
    JobRelease,
    Outcome,
    QueuedStepCompleted,
    QueuedStepFailed,
    QueuedStepJob,
    RunCancel,
    RunPause,
    RunRepair,
    RunResume,
    RunTerminate,
    StepCancel,
    StepQueue,
)
from holdfast.kernel.invariants import check
from holdfast.kernel.pipelines.plan import LOSSES_MAX, RetryPolicy
from holdfast.ports.changes import Delete, Insert
from holdfast.ports.errors import InvalidCommandError
from holdfast.ports.json import canonical, parse
from holdfast.ports.records.job import Job, JobKind, JobState, losses_max
from holdfast.ports.records.run import RunStatus
from holdfast.ports.searches import QueueClaim
from holdfast.ports.tables import JOBS
from holdfast.ports.transport import JobHint
from holdfast.ports.working_set import Tables
from tests.unit.kernel.test_functions import driven, function, parked, record
from tests.unit.kernel.world import SECOND, World, payload, settling

ERROR = canonical({"type": "ValueError", "message": "no", "code": "body_error"})


def policy(seconds: float) -> RetryPolicy:
    return RetryPolicy(attempts=10, wait_us=round(seconds * SECOND), jitter=0.0)


def queue(call: str = "1", *, attempts: int = 3, step: str = "embed") -> FunctionRecord:
    how = QueuedStepJob(queue="gpu", input=payload({"text": call}), attempts=attempts)
    return StepQueue(call=call, step=step, site="a.py:3", queued=how)


def drop(job: Job) -> FunctionRecord:
    return StepCancel(call=job.node, job=job.number)


def steps(world: World) -> list[Job]:
    return [job for job in world.jobs() if job.kind is JobKind.STEP]


def driver(world: World) -> Job:
    return next(job for job in world.jobs() if job.kind is JobKind.WORKFLOW)


def claim(world: World, *, step: str = "embed") -> Attempt:
    lanes = (QueueClaim(queue="gpu", definitions=(f"step:{step}",), limit=10),)
    (attempt,) = world.do(JobClaim(session=world.open(), queue_claims=lanes, limit=10)).attempts
    return attempt


def resting(*rows: FunctionRecord) -> World:
    """A function that waits for a queued step."""
    world = function()
    attempt = driven(world)
    record(world, attempt, *(rows or (queue(),)))
    world.settle(attempt, FunctionWaiting(seen=1 + len(rows or (queue(),))))
    return world


def test_a_step_that_is_recorded_as_queued_has_a_job_of_its_own() -> None:
    world = function()
    attempt = driven(world)
    reply = record(world, attempt, queue("1"), queue("2"))
    assert [row.type for row in reply.rows] == ["step.queued", "step.queued"]
    first, second = steps(world)
    assert (first.queue, first.definition, first.node, first.input) == ("gpu", "step:embed", "1", "2")
    assert (second.node, second.input, second.max_attempts, second.state) == (
        "2",
        "3",
        3,
        JobState.QUEUED,
    )
    assert parse(reply.rows[0].data or "")["job"] == first.number
    assert JobHint(job=first.key.text, epoch=0, queue="gpu") in world.heard.hints


def test_who_has_heard_no_answer_queues_it_once() -> None:
    world = function()
    attempt = driven(world)
    record(world, attempt, queue())
    assert [row.type for row in record(world, attempt, queue()).rows] == ["step.queued"]
    assert len(steps(world)) == 1


def test_only_those_who_have_its_code_and_its_queue_get_it() -> None:
    world = resting()
    assert world.claim(world.open()) == ()
    lanes = (QueueClaim(queue="gpu", definitions=("w@1", "step:other"), limit=10),)
    assert world.do(JobClaim(session=world.open(), queue_claims=lanes, limit=10)).attempts == ()
    attempt = claim(world)
    assert (attempt.kind, attempt.node, attempt.attempt, attempt.max_attempts) == (JobKind.STEP, "1", 1, 3)


def test_what_it_gives_is_told_and_the_function_is_woken_in_one_commit() -> None:
    world = resting()
    attempt = claim(world)
    assert driver(world).state is JobState.SLEEPING
    world.settle(attempt, QueuedStepCompleted(output=payload(7)))
    assert steps(world) == []
    assert driver(world).state is JobState.QUEUED
    row = world.history()[-1]
    assert (row.type, row.node, row.payload) == ("step.completed", "f", payload(7))
    facts = parse(row.data or "")
    assert (facts["call"], facts["step"], facts["attempt"]) == ("1", "embed", 1)


def test_what_comes_while_the_function_is_driven_is_in_the_next_answer() -> None:
    world = function()
    attempt = driven(world)
    record(world, attempt, queue())
    world.settle(claim(world), QueuedStepCompleted(output=payload(7)))
    assert driver(world).state is JobState.LEASED
    assert [row.type for row in record(world, attempt, seen=2).rows] == ["step.completed"]
    record(world, attempt, queue("2"), seen=3)
    world.settle(claim(world), QueuedStepCompleted(output=payload(7)))
    parked(world, attempt, seen=4)
    assert driver(world).state is JobState.QUEUED  # there is a row that it was not told


def test_what_it_raises_is_tried_again_and_the_function_sleeps_on() -> None:
    world = resting()
    world.settle(claim(world), QueuedStepFailed(error=ERROR, retry=policy(5)))
    (job,) = steps(world)
    assert (job.state, job.attempts, driver(world).state) == (JobState.SLEEPING, 1, JobState.SLEEPING)
    world.wait(6)
    world.wake_due()
    assert claim(world).attempt == 2
    assert world.events()[-1] == "step.retrying"


def test_it_is_never_tried_more_often_than_its_row_says() -> None:
    world = resting(queue(attempts=1))
    reply = world.settle(claim(world), QueuedStepFailed(error=ERROR, retry=policy(0)))
    assert reply.retry_at is None
    assert world.events()[-1] == "step.failed"
    assert driver(world).state is JobState.QUEUED


@pytest.mark.parametrize(("attempts", "most"), [(1, 1), (2, 5), (6, 6)])
def test_losses_are_counted_apart_and_the_last_one_fails_the_step(attempts: int, most: int) -> None:
    world = resting(queue(attempts=attempts))
    for losses in range(1, most):
        claim(world)
        world.lose()
        (job,) = steps(world)
        assert (job.state, job.attempts, job.lost_attempts) == (JobState.QUEUED, losses, losses)
        facts = parse(world.history()[-1].data or "")
        assert (facts["attempt"], facts["lost_attempts"]) == (losses, losses)
    claim(world)
    world.lose()
    assert steps(world) == []
    assert world.events()[-most:] == [*["step.retrying"] * (most - 1), "step.failed"]
    error = parse(world.history()[-1].data or "")["error"]
    assert error["type"] == "holdfast.ports.errors.StepLostError"
    assert "arguments" in error
    assert driver(world).state is JobState.QUEUED


def test_what_was_lost_leaves_a_step_all_its_attempts() -> None:
    world = resting(queue(attempts=2))
    for _ in range(3):
        claim(world)
        world.lose()
    assert world.settle(claim(world), QueuedStepFailed(error=ERROR, retry=policy(0))).retry_at is not None
    assert world.settle(claim(world), QueuedStepFailed(error=ERROR, retry=policy(0))).retry_at is None
    assert world.events()[-1] == "step.failed"


def test_an_attempt_that_is_given_back_does_not_count() -> None:
    world = resting(queue(attempts=1))
    attempt = claim(world)
    world.do(JobRelease(job=attempt.job, epoch=attempt.epoch))
    assert claim(world).attempt == 1


def test_one_that_is_dropped_is_taken_away_from_whoever_has_it() -> None:
    world = function()
    attempt = driven(world)
    record(world, attempt, queue("1"), queue("2"))
    held = claim_all(world)[0]
    reply = record(world, attempt, *map(drop, steps(world)), seen=3)
    assert [row.type for row in reply.rows] == ["step.cancelled", "step.cancelled"]
    assert steps(world) == []
    with world.unchanged():
        assert world.settle(held, QueuedStepCompleted(output=payload(7))).status == "fenced"


def claim_all(world: World) -> tuple[Attempt, ...]:
    lanes = (QueueClaim(queue="gpu", definitions=("step:embed",), limit=1),)
    return world.do(JobClaim(session=world.open(), queue_claims=lanes, limit=1)).attempts


def test_one_that_has_ended_meanwhile_is_not_dropped() -> None:
    world = function()
    attempt = driven(world)
    record(world, attempt, queue())
    (job,) = steps(world)
    world.settle(claim(world), QueuedStepCompleted(output=payload(7)))
    assert [row.type for row in record(world, attempt, drop(job), seen=2).rows] == ["step.completed"]
    wrong = StepCancel(call="7", job=driver(world).number)
    assert record(world, attempt, wrong, seen=3).rows == ()


def test_a_paused_run_holds_what_nobody_has_and_takes_results() -> None:
    world = resting(queue("1"), queue("2"))
    (held,) = claim_all(world)
    world.do(RunPause(run_id="x"))
    assert [job.state for job in steps(world)] == [JobState.LEASED, JobState.PAUSED]
    world.settle(held, QueuedStepFailed(error=ERROR, retry=policy(1)))
    assert [job.state for job in steps(world)] == [JobState.PAUSED, JobState.PAUSED]
    world.do(RunResume(run_id="x"))
    assert [job.state for job in steps(world)] == [JobState.SLEEPING, JobState.QUEUED]


def test_one_that_gets_into_its_queue_while_the_run_is_paused_is_held() -> None:
    world = function()
    attempt = driven(world)
    world.do(RunPause(run_id="x"))
    record(world, attempt, queue())
    assert [job.state for job in steps(world)] == [JobState.PAUSED]


def test_a_blocked_run_holds_them_too() -> None:
    world = function()
    attempt = driven(world)
    record(world, attempt, queue("1"), queue("2"))
    claim_all(world)
    world.settle(attempt, Blocked(failure=Failure(code="stuck", message="")))
    assert [job.state for job in steps(world)] == [JobState.LEASED, JobState.PAUSED]
    world.do(RunResume(run_id="x"))
    assert [job.state for job in steps(world)] == [JobState.LEASED, JobState.QUEUED]


def test_a_function_that_is_lost_too_often_is_blocked_with_them() -> None:
    world = resting()
    world.settle(claim(world), QueuedStepCompleted(output=payload(7)))
    attempt = world.claim_one(world.open())
    record(world, attempt, queue("2"), seen=3)
    for _ in range(LOSSES_MAX):
        world.lose()
        if driver(world).state is JobState.QUEUED:
            world.claim_one(world.open())
    assert world.run().status is RunStatus.BLOCKED
    assert [job.state for job in steps(world)] == [JobState.PAUSED]


def test_what_is_cancelled_while_it_is_held_lets_them_go_on() -> None:
    world = resting()
    world.do(RunPause(run_id="x"))
    world.do(RunCancel(run_id="x"))
    assert world.run().status is RunStatus.CANCELLING
    assert [job.state for job in world.jobs()] == [JobState.QUEUED, JobState.QUEUED]


@pytest.mark.parametrize("is_held", [False, True])
def test_the_end_of_a_run_leaves_none(is_held: bool) -> None:
    world = resting()
    held = claim(world) if is_held else None
    world.do(RunTerminate(run_id="x"))
    assert world.jobs() == []
    if held is not None:
        with world.unchanged():
            assert world.settle(held, QueuedStepCompleted(output=payload(7))).status == "fenced"


def test_a_function_that_ends_with_one_in_a_queue_leaves_none() -> None:
    world = function()
    attempt = driven(world)
    record(world, attempt, queue())
    world.settle(attempt, Completed(output=payload(1)))
    assert world.jobs() == []
    assert world.run().status is RunStatus.COMPLETED


@pytest.mark.parametrize(
    "outcome",
    [Completed(output=payload(1)), Failed(failure=Failure(code="c", message="m")), FunctionWaiting(seen=1)],
)
def test_a_step_ends_as_no_stage_does(outcome: Outcome) -> None:
    world = resting()
    attempt = claim(world)
    with world.unchanged(), pytest.raises(InvalidCommandError, match="of kind step"):
        world.settle(attempt, outcome)


def test_two_steps_that_end_in_one_batch_wake_their_function_once() -> None:
    world = resting(queue("1"), queue("2"))
    lanes = (QueueClaim(queue="gpu", definitions=("step:embed",), limit=2),)
    attempts = world.do(JobClaim(session=world.open(), queue_claims=lanes, limit=2)).attempts
    world.send(*(settling(one, QueuedStepCompleted(output=payload(7))) for one in attempts))
    assert world.events()[-2:] == ["step.completed", "step.completed"]
    (job,) = world.jobs()
    assert job.state is JobState.QUEUED


def test_repair_gives_a_step_its_job_back_and_takes_away_what_nobody_needs() -> None:
    world = resting(queue("1"), queue("2"))
    one, other = steps(world)
    world.put(Delete(JOBS, one.key))
    assert world.do(RunRepair()).repaired == ("x",)
    assert [(job.node, job.definition) for job in steps(world)] == [("2", "step:embed"), ("1", "step:embed")]
    again = steps(world)[1]
    assert parse(world.history()[-2].data or "")["job"] == again.number
    assert world.value(world.run().key, again.input) == {"text": "1"}
    with world.unchanged():
        assert world.do(RunRepair()).repaired == ()
    stray = attrs.evolve(other, number=again.number + 1, node="9")
    world.put(Insert(stray))
    world.do(RunRepair(run=world.run().key))
    assert [job.node for job in steps(world)] == ["2", "1"]


Damage: TypeAlias = Callable[[Tables, Job], None]


def _without_job(tables: Tables, job: Job) -> None:
    del tables.jobs[job.run][job.number]
    run = tables.runs[job.run]
    tables.runs[job.run] = attrs.evolve(run, open_jobs=run.open_jobs - 1)


def _with(**fields: Any) -> Damage:
    def damage(tables: Tables, job: Job) -> None:
        tables.jobs[job.run][job.number] = attrs.evolve(job, **fields)

    return damage


def _twice(tables: Tables, job: Job) -> None:
    rows = tables.history[job.run]
    tried = next(row for row in rows if row.type == "step.retrying")
    rows.append(attrs.evolve(tried, number=len(rows) + 1))
    tables.runs[job.run] = attrs.evolve(tables.runs[job.run], last_row=len(rows))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("S7", _without_job),
        ("S7", _with(node="7")),
        ("S7", _with(definition="step:other")),
        ("S7", _with(queue="other")),
        ("S7", _with(max_attempts=9)),
        ("S7", _with(input="1")),
        ("S7", _with(state=JobState.SLEEPING, wake_at=None)),
        ("S7", _with(state=JobState.PAUSED)),
        ("S8", _with(attempts=2)),
        ("S8", _with(attempts=3)),
        ("S8", _with(lost_attempts=1)),
        ("S1", _with(epoch=0, attempts=0)),
        ("S8", _twice),
    ],
)
def test_the_checker_sees_each_of_these(name: str, damage: Damage) -> None:
    world = resting()
    world.settle(claim(world), QueuedStepFailed(error=ERROR, retry=policy(0)))
    tables = world.tables()
    assert check(tables) == []
    damage(tables, steps(world)[0])
    assert name in {violation.invariant for violation in check(tables)}


def test_an_answer_to_nobody_is_seen_by_the_checker() -> None:
    world = resting()
    attempt = claim(world)
    world.settle(attempt, QueuedStepCompleted(output=payload(7)))
    tables = world.tables()
    rows = tables.history[attempt.run]
    rows.append(attrs.evolve(rows[-1], number=len(rows) + 1))
    tables.runs[attempt.run] = attrs.evolve(tables.runs[attempt.run], last_row=len(rows))
    assert any("which is not the open job of the call" in violation.what for violation in check(tables))


@pytest.mark.parametrize(
    ("attempts", "most"), [(1, 1), (2, 5), (5, 5), (6, 6), (100, 100), (101, 100), (10_000, 100)]
)
def test_what_may_be_tried_often_is_given_up_after_a_hundred_losses(attempts: int, most: int) -> None:
    assert losses_max(attempts) == most
